"""Results that print as tables: how they look is decided floors above, in a module that is imported to show one."""

from __future__ import annotations

import importlib
from typing import Any


class Viewable:
    """A value that prints as a table and shows as one in a notebook."""

    def __str__(self) -> str:
        return str(_notebook().as_plain_text(self))

    def _repr_html_(self) -> str:
        return str(_notebook().as_html(self))


def _notebook() -> Any:
    return importlib.import_module("r2med.render.scores.report")
