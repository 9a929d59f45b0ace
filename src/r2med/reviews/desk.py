"""What a person at the desk sees and does: one item at a time, blind, with everything that was said kept."""

from __future__ import annotations

import random
from bisect import bisect_left
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import NamedTuple

from r2med.errors import R2medError
from r2med.lexical.highlight import Kinds, Part, WordMark, kinds_of, marks
from r2med.lexical.segmentation import sentences as text_sentences
from r2med.reviews.batches import Dealer
from r2med.reviews.progress import ReviewProgress, StandingDecisions, review_progress
from r2med.reviews.rows import (
    ANSWER,
    CAUSES,
    GRADED,
    REASONING,
    SOURCES,
    UNSURE,
    Decision,
    DraftDecision,
    Revealed,
    Reviewer,
    ReviewItem,
    ReviewQuestion,
    Ruling,
)
from r2med.reviews.scale import sentences
from r2med.reviews.store import ReviewStore

LONGEST = 200_000
"""Characters that are shown at all: nobody reads more, and a genome has millions."""
_LONGEST = 600
"""A sentence with more characters is cut between words: tables and genomes have no full stops."""


class Sentence(NamedTuple):
    """A sentence from character to character, in stretches that are marked or not."""

    start: int
    end: int
    parts: tuple[Part, ...]


def sentence_places(text: str) -> Iterator[tuple[int, int]]:
    """Where the sentences of a text begin and end; put together they are the text, but for blanks before the first.

    >>> text = "It has 2.5 mg. Gums bleed, e.g. often! Then"
    >>> [text[start:end] for start, end in sentence_places(text)]
    ['It has 2.5 mg. ', 'Gums bleed, e.g. often! ', 'Then']
    """
    starts = [start for start, _ in text_sentences(text)]
    for start, end in pairwise([*starts, len(text)]):
        while end - start > _LONGEST:
            cut = text.rfind(" ", start, start + _LONGEST) + 1
            cut = cut if cut > start else start + _LONGEST
            yield start, cut
            start = cut
        yield start, end


def lay_out(text: str, kinds: Kinds) -> list[Sentence]:
    """Split a text into sentences with its matching words marked."""
    text = text[:LONGEST]
    words = list(marks(text, kinds))
    starts = [word.start for word in words]
    return [
        _sentence(text, start, end, words[bisect_left(starts, start) : bisect_left(starts, end)])
        for start, end in sentence_places(text)
    ]


def _sentence(text: str, start: int, end: int, words: Sequence[WordMark]) -> Sentence:
    found: list[Part] = []
    done = start
    for word in words:
        stop = min(word.end, end)
        found += [Part(text[done : word.start]), Part(text[word.start : stop], word.kind)]
        done = stop
    parts = (*found, Part(text[done:end]))
    return Sentence(start, end, tuple(part for part in parts if part.text))


_AGREED = "nobody disagrees about this item (any more)"


@dataclass(frozen=True)
class DeskCard:
    """One item as a person sees it; nothing in it tells where the item came from, or what others say."""

    position: int
    question: ReviewQuestion
    passage: Sequence[Sentence]
    letters: int
    revealed: Mapping[str, str]
    """What this person had revealed, and its text."""
    hidden: Sequence[str]
    """What could be revealed now."""
    held: Decision | None
    """What they decided before."""
    draft: Decision | None
    """What the form holds already: what was decided last, even where it was taken back."""
    before: int | None
    after: int | None
    """The places beside it."""
    following: int | None
    """The place that comes when this one is decided."""
    done: int
    left: int

    @property
    def cut(self) -> int:
        """How many characters of the passage are not shown."""
        return max(0, self.letters - LONGEST)


class UnsignedOpinion(NamedTuple):
    """What somebody said of a contested item, without a name."""

    grade: int | None
    """None where they were unsure and named none."""
    unsure: bool
    note: str
    stretch: str
    """What they marked."""


@dataclass(frozen=True)
class RulingCard:
    """A contested item as an adjudicator sees it."""

    item: ReviewItem
    question: ReviewQuestion
    passage: Sequence[Sentence]
    revealed: Mapping[str, str]
    """What this adjudicator had revealed, and its text."""
    hidden: Sequence[str]
    """What could be revealed now."""
    said: Sequence[UnsignedOpinion]
    ruling: Ruling | None
    draft: Ruling | None
    """What the form holds already: the ruling, or this adjudicator's last one where it was taken back."""
    number: int
    """Its place among the contested ones, from 1."""
    total: int
    open: int
    """How many have no ruling yet."""
    before: int | None
    after: int | None
    following: int | None


class Desk:
    """The desk of one project."""

    def __init__(self, store: ReviewStore) -> None:
        self.store = store
        self.dealer = Dealer(store)
        self.guideline = sentences(store.project.guideline)
        self._standing = StandingDecisions(store)

    def start(self, person: Reviewer) -> int | None:
        """The first place that is not decided; None when nothing is left."""
        place = self.dealer.next_open(person)
        return place.position if place else None

    def card(self, person: Reviewer, position: int) -> DeskCard:
        """A place in a person's order."""
        place = self.store.dealt(person.id, position)
        if place is None:
            raise R2medError(f"there is no item {position} on this desk")
        item = self.store.item(place.item)
        question = self.store.question(item.question)
        held = self.store.standing_at(person.id, position)
        following = self.dealer.next_open(person, position)
        known = self.store.revealed(person.id, position)
        shown = _shown(question, known, _origin(item) if held else "")
        return DeskCard(
            position,
            question,
            _marked(item, question, shown),
            len(item.text),
            shown,
            _hidden(question, known, decided=held is not None),
            held,
            held or self.store.last_at(person.id, position),
            self.dealer.neighbour(person, position, -1),
            self.dealer.neighbour(person, position, 1),
            following.position if following and following.position != position else None,
            self.dealer.done(person),
            self.dealer.waiting(person),
        )

    def decide(
        self, person: Reviewer, position: int, draft: DraftDecision, token: str, seen: int | None
    ) -> tuple[Decision, int | None]:
        """Keep a decision; it, and the place that comes next."""
        row = self.store.record(person.id, position, draft, token, seen)
        following = self.dealer.next_open(person, position)
        return row, following.position if following else None

    def undo(self, person: Reviewer, token: str) -> Decision | None:
        """Take the last decision back; what says so, with the place to look at again."""
        return self.store.undo(person.id, token)

    def reveal(self, person: Reviewer, position: int, what: str) -> None:
        """Record that something is shown from now on; where an item came from is shown only after deciding."""
        card = self.card(person, position)
        if what in card.revealed:
            return
        if what not in card.hidden:
            raise R2medError(f"{what!r} cannot be shown here before you have decided")
        self.store.reveal(person.id, position, what)

    # ------------------------------------------------------------------------------------------ adjudication

    def contested(self) -> list[int]:
        """The items that an adjudicator is asked about."""
        return self._standing.contested()

    def open_rulings(self) -> int:
        """Count the contested items without a ruling."""
        ruled = self.store.rulings()
        return sum(item not in ruled for item in self.contested())

    def next_ruling(self, after: int = 0) -> int | None:
        """The first contested item after one that has no ruling, then any; None when all have one."""
        ruled = self.store.rulings()
        missing = [item for item in self.contested() if item not in ruled]
        return next((item for item in missing if item > after), missing[0] if missing else None)

    def ruling_card(self, person: Reviewer, item: int) -> RulingCard:
        """A contested item with what was said of it, in an order that tells nothing."""
        items, ruled, rows = self.contested(), self.store.rulings(), self.store.all_rulings()
        mine = [row for row in rows if (row.reviewer, row.item) == (person.id, item) and row.grade is not None]
        if item not in items:
            raise R2medError(_AGREED)
        place = items.index(item)
        shown = self.store.item(item)
        question = self.store.question(shown.question)
        said = [_opinion(row, shown.text) for row in self._standing.said_of(item) if row.verdict in (GRADED, UNSURE)]
        random.Random(f"{self.store.project.seed}\t{item}").shuffle(said)
        known = self.store.revealed_ruling(person.id, item)
        texts = _shown(question, known)
        following = next((each for each in (*items[place + 1 :], *items[:place]) if each not in ruled), None)
        return RulingCard(
            shown,
            question,
            _marked(shown, question, texts),
            texts,
            _hidden(question, known),
            said,
            ruled.get(item),
            ruled.get(item) or next(reversed(mine), None),
            place + 1,
            len(items),
            sum(each not in ruled for each in items),
            items[place - 1] if place else None,
            items[place + 1] if place + 1 < len(items) else None,
            following,
        )

    def reveal_ruling(self, person: Reviewer, item: int, what: str) -> None:
        """Record that an adjudicator is shown something from now on."""
        card = self.ruling_card(person, item)
        if what in card.revealed:
            return
        if what not in card.hidden:
            raise R2medError(f"{what!r} cannot be shown here")
        self.store.reveal(person.id, item, what)

    def rule(self, ruling: Ruling, token: str) -> Ruling:
        """Keep a ruling, which is of a contested item and names a cause."""
        if ruling.item not in self.contested():
            raise R2medError(_AGREED)
        if ruling.cause not in CAUSES:
            raise R2medError("name the cause of the disagreement first")
        if ruling.sentence is not None and not 0 <= ruling.sentence < len(self.guideline):
            raise R2medError(f"the guideline has no sentence {ruling.sentence + 1}")
        return self.store.rule(ruling, token)

    def undo_ruling(self, person: Reviewer, token: str) -> Ruling | None:
        """Take this person's last ruling that holds back."""
        mine = [each for each in self.store.rulings().values() if each.reviewer == person.id]
        if not mine:
            return None
        last = max(mine, key=lambda each: each.id)
        return self.store.rule(Ruling(0, person.id, last.item, None, "", None, "", None, "", last.id), token)

    def decisions(self) -> list[Decision]:
        """Return every decision that holds, second looks included."""
        return self._standing.current()

    def progress(self) -> ReviewProgress:
        """How everything stands, for the owner."""
        return review_progress(self.store, self._standing.current())


def _hidden(question: ReviewQuestion, known: Sequence[Revealed], *, decided: bool = False) -> list[str]:
    """Return what could be revealed and was not; where an item came from only after the decision."""
    possible = {ANSWER: bool(question.answer), REASONING: bool(question.reasoning), SOURCES: decided}
    seen = {each.what for each in known}
    return [what for what, there in possible.items() if there and what not in seen]


def _shown(question: ReviewQuestion, known: Sequence[Revealed], origin: str = "") -> dict[str, str]:
    """Return the texts that were revealed."""
    texts = {ANSWER: question.answer, REASONING: question.reasoning, SOURCES: origin}
    seen = {each.what for each in known}
    return {what: text for what, text in texts.items() if what in seen and text}


def _marked(item: ReviewItem, question: ReviewQuestion, shown: Mapping[str, str]) -> list[Sentence]:
    """Mark the words of the question; those of the gold answer only where it is in view."""
    return lay_out(item.text, kinds_of(query=[question.text], answer=[shown.get(ANSWER, "")]))


def _origin(item: ReviewItem) -> str:
    """Where an item came from, in a sentence or two."""
    ranks = [f"{system} has it in place {rank}" for system, rank in item.facts.get("ranks", {}).items()]
    label = item.facts.get("label")
    judged = "the task does not judge it" if label is None else f"the task's own label is {label}"
    drawn = "added because its grade is known" if item.drawn == "gold" else f"drawn: {item.drawn}"
    return "; ".join([f"Document {item.document}", drawn, judged, *ranks]) + "."


def _opinion(row: Decision, text: str) -> UnsignedOpinion:
    stretch = text[slice(*row.span)] if row.span else ""
    return UnsignedOpinion(row.grade, row.verdict == UNSURE, row.note, stretch)
