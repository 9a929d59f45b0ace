"""Prompts as text files: one a method and task family beside this module, or the user's own."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib import resources
from typing import TYPE_CHECKING

from r2med.errors import SpecError, expanded

if TYPE_CHECKING:
    from r2med.data.tasks import Task

FAMILIES = ("qa-reference", "clinical-evidence", "clinical-case", "custom")
"""The families that have prompts of their own; a task of any other takes those of `custom`."""


@dataclass(frozen=True)
class PromptTemplate:
    """A prompt with places to fill in, written `{query}`; any other brace stands for itself.

    >>> PromptTemplate("Why {query}? {x}", "mine").fill({"query": "{noun}", "noun": "post"})
    'Why {noun}? {x}'
    """

    text: str
    source: str
    """The file it came from."""

    @property
    def hash(self) -> str:
        """What a result records of the text, besides the first prompt made from it."""
        return hashlib.sha256(self.text.encode("utf-8", "surrogatepass")).hexdigest()[:16]

    def fill(self, values: Mapping[str, str]) -> str:
        """The prompt. What is filled in is never itself filled in."""
        pattern = "|".join(re.escape(name) for name in values)
        return re.sub(rf"\{{({pattern})\}}", lambda place: values[place[1]], self.text)


def bundled(name: str) -> PromptTemplate:
    """A prompt that comes with r2med, by its file's name without the ending.

    >>> "{query}" in bundled("hyde.qa-reference").text
    True
    """
    file = f"{name}.txt"
    text = resources.files("r2med.expand").joinpath("prompts", file).read_text(encoding="utf-8")
    return PromptTemplate(text.strip(), file)


def templates(method: str, override: str = "", needed: Sequence[str] = ("query",)) -> Mapping[str, PromptTemplate]:
    """A method's prompts by family; an own file serves all of them, and must have every place that is needed."""
    if not override:
        return {family: bundled(f"{method}.{family}") for family in FAMILIES}
    path = expanded(override)
    try:
        text = path.read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise SpecError(f"{method}: cannot read the prompt {path}: not UTF-8") from error
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        raise SpecError(f"{method}: cannot read the prompt {str(path)!r}: {reason}") from error
    missing = [f"{{{name}}}" for name in needed if f"{{{name}}}" not in text]
    if missing:
        raise SpecError(f"{path}: a prompt for {method} must have {' and '.join(missing)} in it")
    return dict.fromkeys(FAMILIES, PromptTemplate(text.strip(), str(path)))


def task_values(task: Task) -> dict[str, str]:
    """What a task has to fill in."""
    return {"noun": task.noun, "target": task.target, "purpose": task.purpose}


def cut_words(text: str, words: int) -> str:
    """A text's first so many words.

    >>> cut_words("one  two three", 2)
    'one two'
    """
    return " ".join(text.split(maxsplit=words)[:words])


def numbered(texts: Sequence[str], words: int) -> str:
    """Passages as a prompt shows them: numbered, each cut.

    >>> numbered(["one two", "three"], 1)
    '[1] one\\n\\n[2] three'
    """
    return "\n\n".join(f"[{number}] {cut_words(text, words)}" for number, text in enumerate(texts, 1))
