"""What the verbs that ask a model share: where local models answer, how hard servers are asked, and one client."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import click

from r2med.cli.engine_option import engine_option, one_engine
from r2med.cli.options import Function
from r2med.config.request_settings import RequestSettings, requesting
from r2med.pipeline.engine import Engine

_POSITIVE = click.FloatRange(0, min_open=True)


def asking_options(function: Function) -> Function:
    """Where work runs and how hard servers are asked: of every verb that asks a model."""
    options = (
        engine_option(),
        click.option("--concurrency", type=click.IntRange(1), help="Requests to a server at a time (usually 16)."),
        click.option("--timeout", type=_POSITIVE, metavar="SECONDS", help="When a request counts as lost (600)."),
        click.option("--retries", type=click.IntRange(0), help="How often a failed request is asked again (6)."),
        click.option("--rpm", type=_POSITIVE, metavar="NUMBER", help="Requests a minute at the most (no limit)."),
    )
    for option in reversed(options):
        function = option(function)
    return function


@contextmanager
def asking(
    *,
    engine: str,
    concurrency: int | None,
    timeout: float | None,
    retries: int | None,
    rpm: float | None,
    max_cost: float | None = None,
    max_tokens: int | None = None,
    dry_run: bool = False,
) -> Iterator[Engine]:
    """One client and one engine for the whole command, as the command line and the user's files say.

    A shard that has done its share says what is left to others, and the command ends well. A dry run works here.
    """
    settings = RequestSettings(timeout, retries, rpm, concurrency)
    with requesting(settings), one_client(max_cost, max_tokens), one_engine("local" if dry_run else engine) as chosen:
        yield chosen


@contextmanager
def one_client(max_cost: float | None = None, max_tokens: int | None = None) -> Iterator[None]:
    """One client for the whole command, which spends no more than is allowed."""
    from r2med.llm import Limits, session  # a run without language models loads none of it

    with session(Limits.configured(max_cost=max_cost, max_tokens=max_tokens)):
        yield
