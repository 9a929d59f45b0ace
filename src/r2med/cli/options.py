"""Options and output that several commands share: options with many values, JSON, consoles."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterable
from typing import IO, TYPE_CHECKING, Any, TypeVar

import click

from r2med.settings import parse_size
from r2med.store.typed import json_bytes

if TYPE_CHECKING:
    Whole = click.ParamType[int]
    Decimal = click.ParamType[float]
else:
    Whole = Decimal = click.ParamType  # older versions of click have no type in brackets


Function = TypeVar("Function", bound=Callable[..., Any])
DROP_SELF = "Drop the document with the query's own id unless it is relevant (default: as the task says)."
_TYPED = "r2med.typed"
"""Under what a context keeps the words that were typed."""


class ManyValues(click.Command):
    """A command whose repeatable options also take several values in a row: `--tasks Biology MedQA-Diag`."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Repeat the option's name before each further value, which is the form click understands."""
        ctx.meta[_TYPED] = tuple(args)
        greedy = {name for option in self.params if getattr(option, "multiple", False) for name in option.opts}
        spread: list[str] = []
        current = ""
        for place, argument in enumerate(args):
            if argument == "--":
                spread += args[place:]
                break
            if argument.startswith("-") and argument != "-":
                current = argument if argument in greedy else ""
                spread.append(argument)
            elif current and spread[-1] != current:
                spread += [current, argument]
            else:
                spread.append(argument)
        try:
            return super().parse_args(ctx, spread)
        except click.MissingParameter as error:
            greedy_name = next((argument for argument in args if argument in greedy), "")
            if not greedy_name or not isinstance(error.param, click.Argument):
                raise
            message = error.format_message().rstrip(".")
            raise click.UsageError(
                f"{message}: write it before {greedy_name}, which takes all that follows", ctx
            ) from error


class FailedWith2(click.ClickException):
    """An error of a verb whose exit code 1 is an answer."""

    exit_code = 2

    def show(self, file: IO[Any] | None = None) -> None:
        """Print the error as every other."""
        click.echo(f"r2med: {self.message}", file, err=True)


def typed_command() -> str:
    """Return the present command as it was typed, so that it can be repeated."""
    context = click.get_current_context()
    return shlex.join(["r2med", str(context.info_name), *context.meta.get(_TYPED, ())])


class Size(Whole):
    """A number of bytes as people write it: 500MB, 2GB."""

    name = "size"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        """Parse the number of bytes."""
        if isinstance(value, int):
            return value
        return parse_size(str(value)) or self.fail(f"{value!r} is not a size such as 500MB or 2GB", param, ctx)


class Percent(Decimal):
    """A share as people write it: 20%, or 0.2."""

    name = "share"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        """Parse the share, from 0 to 1."""
        if isinstance(value, float):
            return value
        text = str(value).strip()
        try:
            share = float(text.removesuffix("%")) / (100 if text.endswith("%") else 1)
        except ValueError:
            share = -1.0
        if not 0 <= share <= 1:
            self.fail(f"{value!r} is not a share such as 20% or 0.2", param, ctx)
        return share


def json_option() -> Callable[[Function], Function]:
    """Build the option `--json`."""
    return click.option("--json", "as_json", is_flag=True, help="Print only JSON.")


def tasks_option(text: str, kinds: str = "NAME|GROUP|PATH...") -> Callable[[Function], Function]:
    """Build the option `--tasks`."""
    return click.option("--tasks", multiple=True, metavar=kinds, help=text)


def near_option() -> Callable[[Function], Function]:
    """Build the option `--near`."""
    sentence = "From which share of pairs of words in common on texts are near-duplicates; 0: the same words only."
    return click.option("--near", default=0.0, show_default=True, type=click.FloatRange(0, 1), help=sentence)


def format_option() -> Callable[[Function], Function]:
    """Build the option `--format` of a table of results."""
    forms = click.Choice(["terminal", "md", "latex", "csv"])
    return click.option(
        "--format", "form", type=forms, default="terminal", show_default=True, help="How the table is written."
    )


def write_json(value: object) -> None:
    """Print JSON for machines, on standard output: structs, dataclasses and what they hold."""
    click.echo(json_bytes(value, indent=2).decode("utf-8", "replace"), nl=False)


def remark(notes: Iterable[str]) -> None:
    """Print notes on the results on standard error, a line each."""
    for note in notes:
        click.echo(f"note: {note}", err=True)
