"""Language models that were trained to rerank: which stage asks each, with which prompt, and how its answer is read."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from r2med.errors import SpecError, suggest
from r2med.models.card_registry import CardRegistry

ANSWERS = {
    "ranking": "listwise",
    "tied ranking": "listwise",
    "grades": "groupwise",
    "true or false": "pointwise",
    "whole number": "pointwise",
}
"""Every form of an answer, and the stage that reads it."""


@dataclass(frozen=True)
class ServedCard:
    """How a served reranker is asked and read.

    >>> served_cards()["rank1-7b"].answer
    'true or false'
    """

    name: str
    stage: str
    prompt: str
    """The bundled prompt."""
    answer: str
    parameters: float = 0
    licence: str = ""
    notes: str = ""

    def __post_init__(self) -> None:
        if ANSWERS.get(self.answer) != self.stage:
            known = ", ".join(f"{answer} ({stage})" for answer, stage in ANSWERS.items())
            raise SpecError(f"{self.name}: {self.stage} cannot read {self.answer!r}; known: {known}")


_DECK = CardRegistry(ServedCard, "r2med.rerank", "rerankers.toml", table="served", what="served reranker")


def served_cards() -> Mapping[str, ServedCard]:
    """Every card by the name of its language model."""
    return _DECK.cards()


def served_card(stage: str, llm: str, wanted: str = "") -> ServedCard | None:
    """How a model is asked by a stage: as it was trained, or as the model `wanted` was; None for any other model."""
    known = served_cards()
    if wanted and wanted not in known:
        raise SpecError(f"{stage}: unknown format {wanted!r}{suggest(wanted, known)}")
    found = known.get(wanted or llm.partition("@")[0])
    if found is not None and found.stage != stage:
        raise SpecError(f"{stage}: {found.name} was trained for {found.stage}: write {found.stage}({llm})")
    return found
