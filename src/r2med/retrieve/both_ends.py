"""A collection's texts, taken from both ends by two who work side by side, until they meet."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from threading import Lock

from r2med.config.limits import thread_count
from r2med.retrieve.postings_builder import TextBlock
from r2med.text.blocks import join_texts

STEP = 64
"""How many documents are taken at a time."""
LEAST = 20_000_000
"""Fewer characters are indexed here before a second process has well begun."""
_SAMPLE = 256


def is_worthwhile(texts: Sequence[str]) -> bool:
    """Whether a second worker would save time: there is a processor for it, and enough to do by a sample of texts."""
    if thread_count() < 2 or len(texts) < 2 * STEP:
        return False
    places = range(0, len(texts), max(1, len(texts) // _SAMPLE))
    mean = sum(len(texts[place]) for place in places) / len(places)
    return mean * len(texts) >= LEAST


class BothEnds:
    """Texts that are taken from both ends until there are none left between."""

    def __init__(self, texts: Sequence[str]) -> None:
        self._texts = texts
        self._front, self._back = 0, len(texts)
        self._lock = Lock()

    def from_front(self, characters: int) -> Iterator[TextBlock]:
        """What is left, from the front on, in blocks of about so many characters."""
        first = self._front
        for texts in self._portions(characters, back=False):
            yield TextBlock(first, join_texts(texts))
            first += len(texts)

    def from_back(self, characters: int) -> Iterator[TextBlock]:
        """What is left, from the back on: later blocks come first."""
        first = self._back
        for texts in self._portions(characters, back=True):
            first -= len(texts)
            yield TextBlock(first, join_texts(texts[::-1]))

    def from_meeting(self, characters: int) -> Iterator[TextBlock]:
        """All that was taken from the back, once more, from the front on."""
        again = BothEnds(self._texts)
        again._front = self._back
        return again.from_front(characters)

    def _portions(self, characters: int, *, back: bool) -> Iterator[list[str]]:
        """What is left, as many texts at a time as it takes to reach so many characters."""
        portion: list[str] = []
        total = 0
        while step := self._step(back=back):
            texts = self._texts[step.start : step.stop]
            taken = sum(map(len, texts))
            if total + taken < characters:
                # Nearly always all of a step fits, and need not be looked at one by one.
                portion += texts[::-1] if back else texts
                total += taken
                continue
            for text in reversed(texts) if back else texts:
                portion.append(text)
                total += len(text)
                if total >= characters:
                    yield portion
                    portion, total = [], 0
        if portion:
            yield portion

    def _step(self, *, back: bool) -> range:
        with self._lock:
            if back:
                until = self._back
                self._back = max(self._front, until - STEP)
                return range(self._back, until)
            start = self._front
            self._front = min(self._back, start + STEP)
            return range(start, self._front)
