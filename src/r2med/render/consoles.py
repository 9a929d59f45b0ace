"""The one place that makes consoles: a user's text is shown as it is, never read as markup or emoji codes."""

from __future__ import annotations

import os
import sys
from typing import IO, TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rich.console import Console

_PIPE = 160
"""Columns of what is drawn across (rules, pages of cases) where nothing says how wide the reader is."""


def output() -> Console:
    """The console for results. In a pipe or a file nothing is wrapped, unless COLUMNS asks for a width."""
    return _make(wraps=sys.stdout.isatty() or "COLUMNS" in os.environ)


def messages() -> Console:
    """The console for progress and remarks, apart from the results."""
    return _make(wraps=sys.stderr.isatty(), stderr=True)


def written_to(stream: IO[str], width: int | None = None, *, styled: bool = False) -> Console:
    """A console that writes into a stream, without a width as into a pipe; `styled` writes colours too."""
    return _make(wraps=width is not None, file=stream, width=width, force_terminal=styled or None)


def _make(*, wraps: bool, width: int | None = None, **settings: Any) -> Console:
    from rich.console import Console

    return Console(
        highlight=False,
        emoji=False,
        markup=False,
        width=width if wraps else _PIPE,
        soft_wrap=not wraps,
        **settings,
    )


def room(console: Console) -> int | None:
    """How many columns a table may have; None where nothing is wrapped."""
    return None if console.soft_wrap else console.width


def say(console: Console, line: str, style: str = "") -> None:
    """Print a message that must stay one line (`warning: ...`, `failed: ...`), however long it is."""
    console.print(line, style=style, soft_wrap=True)
