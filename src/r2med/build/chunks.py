"""Documents to passages: sentences regrouped to about so many tokens, never across headings, offsets kept."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from r2med.build.build_items import Document, Passage

_TOKEN = re.compile(r"\w+|[^\w\s]")
_END = re.compile(r"(?<=[.!?])[\"'”’)\]]*\s+(?=[\"'“‘(\[]*[A-Z0-9À-ÖØ-Þ])|(?<=[。！？])|\n\s*\n")
_ABBREVIATION = re.compile(
    r"\b(?:dr|mr|mrs|ms|prof|st|vs|fig|figs|nos|al|e\.g|i\.e|cf|approx|ca|resp|vol|ed|eds|pp?|sp|spp|inc|dept)\.$",
    re.IGNORECASE,
)
_TAIL = 4
"""A last passage shorter than this part of a whole one joins the one before it."""


class Span(NamedTuple):
    """A part of a document's text, and the heading that it stands under."""

    start: int
    end: int
    heading: str


def count_tokens(text: str) -> int:
    """Words and marks.

    >>> count_tokens("Fever (38.5 °C)?")
    9
    """
    return len(_TOKEN.findall(text))


def sentences(text: str) -> list[tuple[int, int]]:
    """Where each sentence of a text begins and ends; abbreviations do not end one.

    >>> [("Dr. Hart saw it. He left."[a:b]) for a, b in sentences("Dr. Hart saw it. He left.")]
    ['Dr. Hart saw it.', 'He left.']
    """
    edges, start = [], 0
    for match in _END.finditer(text):
        paragraph = match[0].count("\n") > 1
        if not paragraph and _ABBREVIATION.search(text[max(start, match.start() - 12) : match.start()]):
            continue
        edges.append((start, match.end()))
        start = match.end()
    edges.append((start, len(text)))
    return [trimmed for begin, end in edges if (trimmed := _trim(text, begin, end)) is not None]


def _trim(text: str, start: int, end: int) -> tuple[int, int] | None:
    part = text[start:end]
    if not part.strip():
        return None
    return start + len(part) - len(part.lstrip()), start + len(part.rstrip())


def cut(document: Document, tokens: int) -> list[Span]:
    """The passages of a document; the whole of it for 0 tokens."""
    if not tokens:
        whole = _trim(document.text, 0, len(document.text))
        return [Span(*whole, "")] if whole else []
    found: list[Span] = []
    for start, end, heading in _sections(document):
        pieces = [
            (start + first, start + last, count_tokens(document.text[start + first : start + last]))
            for first, last in sentences(document.text[start:end])
        ]
        found += [Span(*span, heading) for span in _regroup(list(_halved(document.text, pieces, tokens)), tokens)]
    return found


def _sections(document: Document) -> Iterator[tuple[int, int, str]]:
    """The text between headings, with the heading above it."""
    places = [heading.start for heading in document.headings] + [len(document.text)]
    yield 0, places[0], ""
    for heading, stop in zip(document.headings, places[1:], strict=True):
        yield heading.end, stop, heading.text


def _halved(text: str, pieces: Sequence[tuple[int, int, int]], tokens: int) -> Iterator[tuple[int, int, int]]:
    """Sentences, those of more than twice the wanted length cut between words."""
    for start, end, count in pieces:
        if count <= 2 * tokens:
            yield start, end, count
            continue
        places = [match.span() for match in _TOKEN.finditer(text, start, end)]
        for first in range(0, len(places), tokens):
            part = places[first : first + tokens]
            yield part[0][0], part[-1][1], len(part)


def _regroup(pieces: Sequence[tuple[int, int, int]], tokens: int) -> list[tuple[int, int]]:
    """Sentences in a row put together until the next would make a passage too long."""
    groups: list[tuple[int, int, int]] = []
    for start, end, count in pieces:
        if groups and groups[-1][2] + count <= tokens:
            groups[-1] = (groups[-1][0], end, groups[-1][2] + count)
        else:
            groups.append((start, end, count))
    if len(groups) > 1 and groups[-1][2] < tokens / _TAIL:
        last = groups.pop()
        groups[-1] = (groups[-1][0], last[1], groups[-1][2] + last[2])
    return [(start, end) for start, end, _ in groups]


def passages_of(document: Document, spans: Sequence[Span]) -> list[Passage]:
    """The passages at these places; a document in one piece keeps its id."""
    found = []
    for number, span in enumerate(spans):
        identifier = document.id if len(spans) == 1 else f"{document.id}#{number}"
        heading = span.heading if span.heading != document.title else ""
        title = ": ".join(part for part in (document.title, heading) if part)
        text = document.text[span.start : span.end]
        found.append(Passage(identifier, title, text, document.id, document.source, span.start, span.end))
    return found
