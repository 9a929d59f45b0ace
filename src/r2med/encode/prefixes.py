"""Prompts as data: templates over a task's words, written once in a card and rendered for each task."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from r2med.encode.encoder import Role
from r2med.errors import SpecError, suggest

if TYPE_CHECKING:
    from r2med.data.tasks import Task

FIELDS = ("noun", "target", "purpose", "subject", "sentence")
"""What may stand in braces: the attributes of a `Task`."""
_PLACE = re.compile(r"\{([a-z_]+)\}")


@dataclass(frozen=True)
class PrefixTemplate:
    """What stands before a text, with a task's words in braces; a family of tasks may have its own wording.

    >>> from r2med.data.tasks import task
    >>> PrefixTemplate("Instruct: {sentence}\\nQuery: ").render(task("Biology"))
    'Instruct: Given a Biology post, retrieve relevant passages that help answer the post\\nQuery: '
    """

    text: str = ""
    families: tuple[tuple[str, str], ...] = ()
    """Wordings for single families, by the family's name."""
    literal: bool = False
    """Whether braces mean nothing, as in the prompts that a model's own files state."""

    def __post_init__(self) -> None:
        if self.literal:
            return
        for wording in (self.text, *dict(self.families).values()):
            for name in _PLACE.findall(wording):
                if name not in FIELDS:
                    raise SpecError(f"the prompt {wording!r} has {{{name}}}{suggest(name, FIELDS)}")

    @classmethod
    def of(cls, value: str | Mapping[str, str]) -> PrefixTemplate:
        """A template from a card: one text, or a table of families with `default` for every other one."""
        if isinstance(value, str):
            return cls(value)
        return cls(value.get("default", ""), tuple(sorted((k, v) for k, v in value.items() if k != "default")))

    def plain(self) -> str | dict[str, str]:
        """The template as a card has it; the inverse of `of`."""
        return {**dict(self.families), "default": self.text} if self.families else self.text

    def render(self, task: Task) -> str:
        """The prompt for a task. Braces around anything but a task's word stay as they are."""
        if self.literal:
            return self.text
        wording = dict(self.families).get(task.family, self.text)
        return _PLACE.sub(lambda place: str(getattr(task, place[1])), wording)


NO_PROMPT = PrefixTemplate()
"""For a model that takes texts as they are."""


@dataclass(frozen=True)
class Prompts:
    """The two prompts of a model for one task, ready to stand before a text."""

    query: str = ""
    document: str = ""

    def of(self, role: Role) -> str:
        """The prompt of a role."""
        return self.query if role is Role.QUERY else self.document
