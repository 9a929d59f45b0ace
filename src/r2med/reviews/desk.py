"""The desk of a reviewer: one item at a time, blind, with every decision recorded."""

from __future__ import annotations

import random
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Any, NamedTuple

from r2med.errors import R2medError
from r2med.lexical.highlight import Kinds, Part, kinds_of, marks
from r2med.lexical.segmentation import sentences as text_sentences
from r2med.reviews.batches import Dealer
from r2med.reviews.deciding import DecidingDealer
from r2med.reviews.progress import contested_items
from r2med.reviews.rows import ANSWER, CAUSES, NUGGETS, REVEALS, UNSURE, Revealed, Reviewer, ReviewItem, Ruling
from r2med.reviews.scale import NUGGET_SCALE, sentences
from r2med.reviews.store import ReviewStore

LONGEST = 200_000  # characters of a passage that are shown; a genome has millions
LONGEST_SENTENCE = 600  # a sentence with more characters is cut between words: tables and genomes have no full stops


class Sentence(NamedTuple):
    """A sentence from character to character, in stretches that are marked or not."""

    start: int
    end: int
    parts: tuple[Part, ...]


def sentence_places(text: str) -> Iterator[tuple[int, int]]:
    """Yield where the sentences of a text begin and end; joined they are the text, except for leading blanks.

    >>> text = "It has 2.5 mg. Gums bleed, e.g. often! Then"
    >>> [text[start:end] for start, end in sentence_places(text)]
    ['It has 2.5 mg. ', 'Gums bleed, e.g. often! ', 'Then']
    """
    starts = [start for start, _ in text_sentences(text)]
    for start, end in pairwise([*starts, len(text)]):
        while end - start > LONGEST_SENTENCE:
            cut = text.rfind(" ", start, start + LONGEST_SENTENCE) + 1
            cut = cut if cut > start else start + LONGEST_SENTENCE
            yield start, cut
            start = cut
        yield start, end


def lay_out(text: str, kinds: Kinds) -> list[Sentence]:
    """Split a text into sentences with its matching words marked."""
    text = text[:LONGEST]
    words = list(marks(text, kinds))
    starts = [word.start for word in words]
    sentences = []
    for start, end in sentence_places(text):
        parts, done = [], start
        for word in words[bisect_left(starts, start) : bisect_left(starts, end)]:
            parts += [Part(text[done : word.start]), Part(text[word.start : min(word.end, end)], word.kind)]
            done = min(word.end, end)
        parts.append(Part(text[done:end]))
        sentences.append(Sentence(start, end, tuple(part for part in parts if part.text)))
    return sentences


Card = dict[str, Any]  # a passage as a page shows it, with its question and the places before and after it
_AGREED = "nobody disagrees about this item (any more)"


class Desk:
    """The desk of one project."""

    def __init__(self, store: ReviewStore) -> None:
        self.store = store
        self.dealer = DecidingDealer(store) if store.project.rule else Dealer(store)
        self.guideline = sentences(store.project.guideline)

    def card(self, person: Reviewer, position: int) -> Card:
        """Return one item as a reviewer sees it, without its origin or the opinions of others."""
        place = self.store.dealt(person.id, position)
        if place is None:
            raise R2medError(f"there is no item {position} on this desk")
        item = self.store.item(place.item)
        held = self.store.standing_at(person.id, position)
        following = self.dealer.next_open(person, position)
        revealed = self.store.revealed(person.id, position)
        # What the form holds already: the last decision, even if it was taken back.
        draft = held or self.store.standing_at(person.id, position, undone=True)
        return {
            **self._texts(item, revealed, decided=held is not None),
            "position": position,
            "letters": len(item.text),
            "cut": max(0, len(item.text) - LONGEST),
            "held": held,
            "draft": draft,
            "aspects": self.aspects(person, position),
            "covered": self.store.coverage().get(draft.id, ()) if draft else (),
            "before": self.dealer.neighbour(person, position, -1),
            "after": self.dealer.neighbour(person, position, 1),
            "following": following.position if following and following.position != position else None,
            "done": self.dealer.done(person),
            "left": self.dealer.waiting(person),
        }

    def aspects(self, person: Reviewer, position: int) -> list[str]:
        """Return the aspects that the reviewer of an item is asked about; none for most reviews."""
        place = self.store.dealt(person.id, position) if self.store.project.aspects else None
        return list(self.store.aspects_of(self.store.question(self.store.item(place.item).question))) if place else []

    def _texts(self, item: ReviewItem, revealed: Sequence[Revealed], *, decided: bool) -> Card:
        """Return the texts of a card; the origin of an item can be revealed only after the decision."""
        question = self.store.question(item.question)
        hideable = (
            question.answer,
            question.reasoning,
            _origin(item) if decided and not self.store.project.rule else "",
        )
        texts, seen = dict(zip(REVEALS, hideable, strict=True)), {fact.what for fact in revealed}
        revealed_texts = {what: text for what, text in texts.items() if text and what in seen}
        hidden = [what for what, text in texts.items() if text and what not in seen]
        # The words of the gold answer are marked only if it is in view.
        kinds = kinds_of(query=[question.text], answer=[revealed_texts.get(ANSWER, "")])
        passage = lay_out(item.text, kinds)
        return {"question": question, "passage": passage, "revealed": revealed_texts, "hidden": hidden}

    def reveal(self, person: Reviewer, place: int, what: str, *, ruling: bool) -> None:
        """Record that something is revealed at a place, to an adjudicator of an item; its origin only once decided."""
        card = self.ruling_card(person, place) if ruling else self.card(person, place)
        if what in card["hidden"]:
            self.store.reveal(person.id, place, what)
        elif what not in card["revealed"]:
            raise R2medError(f"{what!r} cannot be shown here{'' if ruling else ' before you have decided'}")

    def open_rulings(self) -> list[int]:
        """Return the contested items without a ruling."""
        ruled = self.store.rulings()
        return [item for item in contested_items(self.store) if item not in ruled]

    def next_ruling(self, after: int = 0) -> int | None:
        """Return the first contested item after one that has no ruling, then any; None if all have one."""
        missing = self.open_rulings()
        return next((item for item in missing if item > after), missing[0] if missing else None)

    def ruling_card(self, person: Reviewer, number: int) -> Card:
        """Return a contested item with the opinions on it, in a random order that identifies no reviewer."""
        decisions, rulings = contested_items(self.store), self.store.rulings()
        if number not in decisions:
            raise R2medError(_AGREED)
        contested = list(decisions)
        place, item = contested.index(number), self.store.item(number)
        opinions = [
            {"unsure": row.verdict == UNSURE, "stretch": item.text[slice(*row.span)] if row.span else ""}
            | {"grade": row.grade, "note": row.note}
            for row in decisions[number]
        ]
        random.Random(f"{self.store.project.seed}\t{number}").shuffle(opinions)
        earlier = [row for row in self.store.all_rulings() if (row.reviewer, row.item) == (person.id, number)]
        last = next((row for row in reversed(earlier) if row.grade is not None), None)
        return {
            **self._texts(item, self.store.revealed_ruling(person.id, number), decided=False),
            "item": item,
            "said": opinions,
            "ruling": rulings.get(number),
            "draft": rulings.get(number) or last,
            "number": place + 1,
            "total": len(contested),
            "open": sum(other not in rulings for other in contested),
            "before": contested[place - 1] if place else None,
            "after": contested[place + 1] if place + 1 < len(contested) else None,
            "following": next((n for n in (*contested[place + 1 :], *contested[:place]) if n not in rulings), None),
        }

    def rule(self, ruling: Ruling, token: str) -> Ruling:
        """Store a ruling on a contested item, with its cause."""
        if ruling.item not in contested_items(self.store):
            raise R2medError(_AGREED)
        if ruling.cause not in CAUSES:
            raise R2medError("name the cause of the disagreement first")
        if ruling.sentence is not None and not 0 <= ruling.sentence < len(self.guideline):
            raise R2medError(f"the guideline has no sentence {ruling.sentence + 1}")
        return self.store.rule(ruling, token)

    def undo_ruling(self, person: Reviewer, token: str) -> Ruling | None:
        """Undo this adjudicator's last standing ruling."""
        rulings = [row for row in self.store.rulings().values() if row.reviewer == person.id]
        last = max(rulings, key=lambda row: row.id, default=None)
        return last and self.store.rule(Ruling(0, person.id, last.item, None, "", None, "", None, "", last.id), token)


def _origin(item: ReviewItem) -> str:
    ranks = [f"{system} has it in place {rank}" for system, rank in item.facts.get("ranks", {}).items()]
    label = item.facts.get("label")
    if item.drawn == NUGGETS:
        return f"Nugget {item.document}, written as {NUGGET_SCALE.grade(label or 0).name.lower()}."
    judged = "the task does not judge it" if label is None else f"the task's own label is {label}"
    drawn = "added because its grade is known" if item.drawn == "gold" else f"drawn: {item.drawn}"
    return "; ".join([f"Document {item.document}", drawn, judged, *ranks]) + "."
