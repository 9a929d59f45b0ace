"""Results that print as tables: their drawing functions stand floors above, and are imported when a result is shown."""

from __future__ import annotations

from html import escape
from importlib import import_module
from typing import Any, ClassVar


class Viewable:
    """Value that prints as a table and shows as one in a notebook."""

    shown_by: ClassVar[str]
    """The function that prints the value on a console, as `module:function`."""
    drawn_by: ClassVar[str] = ""
    """The function that returns the value as HTML, if there is one."""

    def __str__(self) -> str:
        return str(_load("r2med.render.table:print_plainly")(_load(self.shown_by), self))

    def _repr_html_(self) -> str:
        return str(_load(self.drawn_by)(self)) if self.drawn_by else f"<pre>{escape(str(self))}</pre>"


def _load(name: str) -> Any:
    module, _, function = name.partition(":")
    return getattr(import_module(module), function)
