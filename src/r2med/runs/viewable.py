"""How results look is decided floors above them: a result says that it can be shown, a renderer says how."""

from __future__ import annotations

from collections.abc import Callable
from html import escape
from typing import Any

TEXT, HTML = "text", "html"

_VIEWS: dict[tuple[type, str], Callable[[Any], str]] = {}


def show_as(form: str, kind: type, view: Callable[[Any], str]) -> None:
    """Have every value of a type shown so, as text or as HTML."""
    _VIEWS[kind, form] = view


class Viewable:
    """A value that prints as a table and shows as one in a notebook, as far as a renderer was named for it."""

    def __str__(self) -> str:
        return _VIEWS.get((type(self), TEXT), repr)(self)

    def _repr_html_(self) -> str:
        view = _VIEWS.get((type(self), HTML))
        return f"<pre>{escape(str(self))}</pre>" if view is None else view(self)
