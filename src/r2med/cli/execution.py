"""Executors from what a user writes: `local`, `shard:3/16`, `ray`, `ray://host:10001`, `ray:host:6379`."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

import r2med
from r2med.cli.options import Function, write_json
from r2med.errors import Postponed, R2medError, suggest
from r2med.pipeline.executor.local import Executor, spreading
from r2med.pipeline.executor.shards import Shards
from r2med.render.scores.model import View
from r2med.render.scores.report import format_report, show_report
from r2med.render.sections import PRICED, show_estimate
from r2med.render.table import messages, output
from r2med.runs.report import Report, failure_lines
from r2med.settings import RequestSettings, executor_settings, overriding

if TYPE_CHECKING:
    from rich.console import Console

    from r2med.llm.steps import StepEstimate

_KINDS = ("local", "shard:3/16", "shard:merge/16", "ray", "ray:host:6379", "ray://host:10001")


def choose_executor(text: str = "", console: Console | None = None, memory: int | None = None) -> Executor:
    """Return the executor of a text, or of `[executor]` in the user's files if it is empty.

    >>> type(choose_executor("local")).__name__, choose_executor("shard:2/4").spread.number
    ('Executor', 2)
    """
    settings = executor_settings()
    name = text or settings.use
    if name == "local":
        return Executor(console, memory)
    kind, _, rest = name.partition(":")
    if kind == "shard":
        return Executor(console, memory, spread=Shards.parse(rest))
    if kind == "ray" and (not rest) == (name == "ray"):
        from r2med.pipeline.executor.ray import RayCluster  # an extra

        return Executor(console, memory, spread=RayCluster(name if rest.startswith("//") else rest, settings))
    raise R2medError(f"unknown executor {name!r}{suggest(name, _KINDS)}")


def executor_option() -> Callable[[Function], Function]:
    """Build the option, the same in every command."""
    return click.option(
        "--executor", default="", metavar="EXECUTOR", help="local, ray, ray://host:10001, shard:3/16, shard:merge/16."
    )


def open_executor(text: str, settings: Mapping[str, object], *, no_shards: str = "") -> Executor:
    """Open the executor of a text; refuse a shard whose siblings have other settings, or any shard for a reason."""
    executor = choose_executor(text, messages())
    spread = executor.spread
    if isinstance(spread, Shards):
        if no_shards:
            raise R2medError(f"this cannot be shared by shards, for {no_shards}; use --executor ray or local")
        command = click.get_current_context().command_path
        spread.check_siblings({"command": command, **settings, "r2med": r2med.__version__})
    return executor


@contextmanager
def one_executor(text: str, *, no_shards: str = "") -> Iterator[Executor]:
    """Open the executor of a command, local models included, for its duration.

    Shards must have the same settings but for their number. They exit with 0 if the rest is left to others, and close
    their batch if they merged.
    """
    given = click.get_current_context().params
    settings = {name: _plain(value) for name, value in given.items() if name not in _OWN}
    executor = open_executor(text, settings, no_shards=no_shards)
    try:
        with spreading(executor):
            yield executor
    except Postponed as share:
        click.echo(str(share), err=True)
        raise click.exceptions.Exit(0) from share
    close_batch(executor)


_OWN = ("executor", "concurrency", "timeout", "retries", "rpm", "as_json", "form", "plot", "dry_run")
"""Options in which the shards of a batch may differ: no answer depends on them."""


def _plain(value: object) -> object:
    if isinstance(value, tuple | list):
        return [_plain(item) for item in value]
    return str(value) if isinstance(value, Path) else value


def close_batch(executor: Executor) -> None:
    """Begin a new batch of shards after the command that merged."""
    if isinstance(executor.spread, Shards):
        executor.spread.merged()


def asking_options(function: Function) -> Function:
    """Add the options on executors and requests, the same in every command that asks a model."""
    positive = click.FloatRange(0, min_open=True)
    options = (
        executor_option(),
        click.option("--concurrency", type=click.IntRange(1), help="Requests to a server at a time (usually 16)."),
        click.option("--timeout", type=positive, metavar="SECONDS", help="Request timeout in seconds [600]."),
        click.option("--retries", type=click.IntRange(0), help="Retries of a failed request [6]."),
        click.option("--rpm", type=positive, metavar="NUMBER", help="Maximum requests per minute [no limit]."),
    )
    for option in reversed(options):
        function = option(function)
    return function


@contextmanager
def asking(
    *,
    executor: str,
    max_cost: float | None = None,
    max_tokens: int | None = None,
    dry_run: bool = False,
    rpm: float | None = None,
    **requests: Any,
) -> Iterator[Executor]:
    """Open one client and one executor for the whole command, as the command line and the user's files say.

    A shard that has done its share reports what is left to others, and exits with 0. A dry run is always local.
    """
    with (
        overriding(RequestSettings(requests_per_minute=rpm, **requests)),
        one_client(max_cost, max_tokens),
        one_executor("local" if dry_run else executor) as where,
    ):
        yield where


@contextmanager
def one_client(max_cost: float | None = None, max_tokens: int | None = None) -> Iterator[None]:
    """Open one client for the whole command, which spends no more than is allowed."""
    from r2med.llm.budget import Limits
    from r2med.llm.client import session  # a run without language models loads none of it

    with session(Limits.configured(max_cost=max_cost, max_tokens=max_tokens)):
        yield


def show_foreseen(foreseen: Sequence[StepEstimate], as_json: bool, note: str = PRICED) -> None:
    """Print what steps would ask and cost."""
    if as_json:
        write_json([step.as_dict() for step in foreseen])
        return
    show_estimate(foreseen, output(), note)


def print_report(report: Report, form: str, measures: Sequence[str], shown: View) -> None:
    """Print results as `json`, as a table for the terminal, or in another format with what failed on stderr."""
    if form == "json":
        write_json(report.as_dict())
    elif form == "terminal":
        show_report(report, output(), measures, shown)
    else:
        click.echo(format_report(report, form, measures, shown))
        if form == "csv" or not report.results:
            for line in failure_lines(report.failures, report.names):
                click.echo(line, err=True)
