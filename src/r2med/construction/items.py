"""The items of a build: questions, documents and the passages that documents are cut into."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from r2med.lexical.segmentation import TOKEN, count_tokens, sentences, trim


@dataclass(frozen=True)
class Question:
    """A question as it was read, and the results of the steps so far."""

    id: str
    original: str
    answer: str
    options: tuple[str, ...] = ()
    sources: tuple[str, ...] = ()
    text: str = ""
    intent: str = ""
    reasoning: str = ""

    @property
    def with_options(self) -> str:
        """Return the original with its options below it."""
        listed = [f"{chr(ord('A') + place)}. {option}" for place, option in enumerate(self.options)]
        return "\n".join([self.original, *listed])

    def view(self, name: str) -> str:
        """Return the text of a view, which a search is made with."""
        return {"question": self.text, "answer": self.answer, "reasoning": self.reasoning}[name]


@dataclass(frozen=True)
class Heading:
    """A heading in a document's text."""

    start: int
    end: int
    text: str


@dataclass(frozen=True)
class Document:
    """A document as it was read."""

    id: str
    title: str
    text: str
    source: str
    headings: tuple[Heading, ...] = ()


@dataclass(frozen=True)
class Passage:
    """A part of a document that is searched, judged and put into the corpus."""

    id: str
    title: str
    text: str
    document: str
    source: str
    start: int
    end: int

    @property
    def shown(self) -> str:
        """Return the passage as systems and judges see it, and as a reader of the built task joins it."""
        return f"{self.title} {self.text}" if self.title else self.text


_TAIL = 4  # a last passage shorter than this part of a whole one joins the one before it


class Span(NamedTuple):
    """A part of a document's text, and the heading that it stands under."""

    start: int
    end: int
    heading: str


def cut(document: Document, tokens: int) -> list[Span]:
    """Cut a document into passages; 0 tokens means the whole document."""
    if not tokens:
        whole = trim(document.text, 0, len(document.text))
        return [Span(*whole, "")] if whole else []
    starts = [0, *(heading.end for heading in document.headings)]
    stops = [*(heading.start for heading in document.headings), len(document.text)]
    names = ["", *(heading.text for heading in document.headings)]
    spans: list[Span] = []
    for start, stop, name in zip(starts, stops, names, strict=True):
        groups: list[tuple[int, int, int]] = []
        for first, last, count in _pieces(document.text, start, stop, tokens):
            if groups and groups[-1][2] + count <= tokens:
                groups[-1] = (groups[-1][0], last, groups[-1][2] + count)
            else:
                groups.append((first, last, count))
        if len(groups) > 1 and groups[-1][2] < tokens / _TAIL:
            _, last, count = groups.pop()
            groups[-1] = (groups[-1][0], last, groups[-1][2] + count)
        spans += [Span(first, last, name) for first, last, _ in groups]
    return spans


def _pieces(text: str, start: int, stop: int, tokens: int) -> Iterator[tuple[int, int, int]]:
    """Yield sentences with their tokens, cut between words if they have more than twice the wanted length."""
    for first, last in sentences(text[start:stop]):
        begin, end = start + first, start + last
        count = count_tokens(text[begin:end])
        if count <= 2 * tokens:
            yield begin, end, count
            continue
        places = [match.span() for match in TOKEN.finditer(text, begin, end)]
        for number in range(0, len(places), tokens):
            part = places[number : number + tokens]
            yield part[0][0], part[-1][1], len(part)


def passages_of(document: Document, spans: Sequence[Span]) -> list[Passage]:
    """Return the passages of these spans; a document in one piece keeps its id."""
    passages = []
    for number, (start, end, heading) in enumerate(spans):
        identifier = document.id if len(spans) == 1 else f"{document.id}#{number}"
        title = ": ".join(filter(None, dict.fromkeys([document.title, heading])))
        passages.append(Passage(identifier, title, document.text[start:end], document.id, document.source, start, end))
    return passages
