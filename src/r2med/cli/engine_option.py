"""`--engine` of the verbs whose work can be spread: where it runs, and what shards of a batch agree on."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TypeVar

import click

import r2med
from r2med.cli.options import messages
from r2med.engine.choose import choose_engine
from r2med.engine.shards import Shards
from r2med.engine.spreading import spread_of
from r2med.pipeline.engine import Engine

_Command = TypeVar("_Command", bound=Callable[..., object])


def engine_option() -> Callable[[_Command], _Command]:
    """The option, the same in every verb."""
    return click.option(
        "--engine", default="", metavar="ENGINE", help="local, ray, ray://host:10001, shard:3/16, shard:merge/16."
    )


def open_engine(text: str, settings: Mapping[str, object]) -> Engine:
    """Where the work runs; a shard whose siblings were given other settings is refused."""
    engine = choose_engine(text, messages())
    spread = spread_of(engine)
    if isinstance(spread, Shards):
        spread.check_siblings({**settings, "r2med": r2med.__version__})
    return engine


def close_batch(engine: Engine) -> None:
    """Let the next batch of shards be another, after the command that merged."""
    spread = spread_of(engine)
    if isinstance(spread, Shards):
        spread.merged()
