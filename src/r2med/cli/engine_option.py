"""`--engine` of the verbs whose work can be spread: where it runs, and what shards of a batch agree on."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TypeVar

import click

import r2med
from r2med.cli.options import messages
from r2med.engine.choose import choose_engine
from r2med.engine.shards import Shards
from r2med.engine.spreading import spread_of, spreading
from r2med.errors import Postponed, R2medError
from r2med.pipeline.engine import Engine

_Command = TypeVar("_Command", bound=Callable[..., object])


def engine_option() -> Callable[[_Command], _Command]:
    """The option, the same in every verb."""
    return click.option(
        "--engine", default="", metavar="ENGINE", help="local, ray, ray://host:10001, shard:3/16, shard:merge/16."
    )


def open_engine(text: str, settings: Mapping[str, object], *, no_shards: str = "") -> Engine:
    """Where the work runs; a shard whose siblings were given other settings is refused, and all where there is a reason
    that shards make no sense."""
    engine = choose_engine(text, messages())
    spread = spread_of(engine)
    if isinstance(spread, Shards):
        if no_shards:
            raise R2medError(f"this cannot be shared by shards, for {no_shards}; use --engine ray or local")
        command = click.get_current_context().command_path
        spread.check_siblings({"command": command, **settings, "r2med": r2med.__version__})
    return engine


@contextmanager
def one_engine(text: str, *, no_shards: str = "") -> Iterator[Engine]:
    """Where the work of a command runs, and answers of local models too; shards must be given the same but for the
    number, end well where the rest is left to others, and close their batch where they merged."""
    engine = open_engine(text, _same_for_all(click.get_current_context().params), no_shards=no_shards)
    try:
        with spreading(engine):
            yield engine
    except Postponed as share:
        click.echo(str(share), err=True)
        raise click.exceptions.Exit(0) from share
    close_batch(engine)


_OWN = ("engine", "concurrency", "timeout", "retries", "rpm", "as_json", "form", "plots", "plot", "dry_run")
"""Options in which the shards of a batch may differ: no answer depends on them."""


def _same_for_all(given: Mapping[str, object]) -> dict[str, object]:
    return {name: _plain(value) for name, value in given.items() if name not in _OWN}


def _plain(value: object) -> object:
    if isinstance(value, tuple | list):
        return [_plain(each) for each in value]
    return str(value) if isinstance(value, Path) else value


def close_batch(engine: Engine) -> None:
    """Let the next batch of shards be another, after the command that merged."""
    spread = spread_of(engine)
    if isinstance(spread, Shards):
        spread.merged()
