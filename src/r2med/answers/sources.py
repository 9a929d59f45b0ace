"""Prompts from a question and its passages: numbered sources, cut to one budget, separate from instructions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from r2med.answers.arms import ArmPassage, draw
from r2med.data.dataset import Dataset
from r2med.errors import R2medError
from r2med.models.templates import Template, bundled, delimited, own_template
from r2med.store.typed import Typed

ORDERS = ("ranked", "shuffled")
"""How sources are numbered: as the list has them, or by a draw that is the same for every arm."""
NO_SOURCES = "(no sources are given)"
_NEEDED = ("question", "sources")
_LETTERS = 4
"""Letters per token, as in every estimate without a tokenizer."""


@dataclass(frozen=True)
class PromptRule:
    """Rule by which the prompts of all arms are made."""

    k: int = 5  # passages at the most
    budget: int = 2000  # tokens of all passages together; each may have a k-th part of them, however few there are
    order: str = "ranked"
    prompt: str = ""  # a file in place of the prompt that comes with r2med

    def __post_init__(self) -> None:
        if self.k < 1 or self.budget < self.k:
            raise R2medError(f"k={self.k} and a budget of {self.budget} tokens: a passage needs one token at least")
        if self.order not in ORDERS:
            raise R2medError(f"no order {self.order!r}; sources are {' or '.join(ORDERS)}")

    @property
    def letters(self) -> int:
        """Return the number of letters that a passage may have."""
        return _LETTERS * (self.budget // self.k)

    def template(self) -> Template:
        """Return the prompt."""
        return own_template("answers", self.prompt, _NEEDED) if self.prompt else bundled("answer", "r2med.answers")


class ShownPassage(Typed, frozen=True):
    """A passage that was in view, under its place from 1."""

    document: str
    relevant: bool
    cut: bool  # whether the budget left some of it out
    tokens: int  # an estimate of how many it takes
    score: float | None  # of the list that it came from


class Source(NamedTuple):
    """A passage as a prompt shows it."""

    shown: ShownPassage
    text: str


def show(query: str, passages: Sequence[ArmPassage], dataset: Dataset, rule: PromptRule) -> list[Source]:
    """Return the sources of a question, in their order and cut."""
    if rule.order == "shuffled":
        passages = sorted(passages, key=lambda passage: draw(query, passage.document))
    grades = dataset.gold.qrels.get(query, {})
    sources = []
    for document, score in passages:
        text = dataset.collection.documents.text(document)
        part = cut_letters(text, rule.letters)
        relevant, is_cut = grades.get(document, 0) > 0, len(part) < len(text.strip())
        sources.append(Source(ShownPassage(document, relevant, is_cut, -(-len(part) // _LETTERS), score), part))
    return sources


def cut_letters(text: str, most: int) -> str:
    """Cut a text after the last word that so many letters have room for; a longer word is broken.

    >>> cut_letters("swollen, bleeding gums", 18), cut_letters("gums", 9), cut_letters("hepatolenticular", 6)
    ('swollen, bleeding', 'gums', 'hepato')
    """
    text = text.strip()
    if len(text) <= most:
        return text
    head = text[: most + 1]
    space = max(head.rfind(" "), head.rfind("\n"))
    return head[:space].rstrip() if space > 0 else text[:most]


def prompt(template: Template, question: str, sources: Sequence[Source], words: Mapping[str, str]) -> str:
    """Write the prompt: every text between tags that it cannot close."""
    texts = "\n\n".join(delimited("source", source.text, id=number) for number, source in enumerate(sources, 1))
    return template.fill({**words, "question": delimited("question", question), "sources": texts or NO_SOURCES})
