"""What a searching model's text asks for: a search, the end, or nothing that can be understood.

Servers differ in what they do at a stop string: most take it out, some leave it in, a few ignore it and let the model
go on and invent its own results. All three read the same here: a text counts up to the first tag that closes a move.
"""

from __future__ import annotations

import re
from enum import Enum
from typing import NamedTuple


class Kind(Enum):
    """What a model did."""

    SEARCH = "search"
    ANSWER = "answer"
    EMPTY = "empty"
    """A search for nothing."""
    UNCLEAR = "unclear"
    """Neither a search nor an answer, or half of one."""
    CUT = "cut"
    """The token limit came before either was complete."""


class Tags(NamedTuple):
    """The marks of one protocol, each an opening and a closing string."""

    call: tuple[str, str]
    result: tuple[str, str]
    answer: tuple[str, str] = ("<answer>", "</answer>")
    anywhere: bool = False
    """Whether an answer's tags count also inside reasoning, as with models that were trained to write them."""


class Move(NamedTuple):
    """One step of a model."""

    kind: Kind
    text: str
    """The query or the answer."""
    said: str
    """What the model is taken to have written: up to the end of the move, with its closing tag."""


_LONGEST_OPEN_QUERY = 500
"""Characters that may follow a search tag which was never closed; more is prose that mentions the tag."""
_PLACEHOLDERS = {"", "and", "or", "query", "your query", "search query", "answer", "your answer", "passage", "report"}
"""What stands between the tags when a model quotes its instructions."""


def read_move(text: str, tags: Tags, *, cut: bool = False, answer_from: int = 0) -> Move:
    """The first move in a text. `cut`: the token limit ended it; `answer_from`: where reasoning is over.

    >>> tags = Tags(("<search>", "</search>"), ("<information>", "</information>"))
    >>> read_move("I wonder. <search> vitamin C", tags).text
    'vitamin C'
    >>> read_move("<search>vitamin C</search><information>invented", tags).said
    '<search>vitamin C</search>'
    """
    searched = text.find(tags.call[1])
    answered = _answer_end(text, tags, answer_from)
    if searched >= 0 and not 0 <= answered < searched:
        said = text[: searched + len(tags.call[1])]
        _, opened, query = text[:searched].rpartition(tags.call[0])
        return _search(query, said, tags) if opened else Move(Kind.UNCLEAR, "", said)
    if answered >= 0:
        start = text.rfind(tags.answer[0], answer_from, answered) + len(tags.answer[0])
        return _answer(text[start:answered], text[: answered + len(tags.answer[1])])
    return _open_move(text, tags, cut, answer_from)


def _answer_end(text: str, tags: Tags, start: int) -> int:
    """Where the first answer that is more than a quotation of the instructions closes; -1 when none does."""
    opening = text.find(tags.answer[0], start)
    while opening >= 0:
        closing = text.find(tags.answer[1], opening)
        if closing < 0:
            return -1
        inner = text[opening:closing].rpartition(tags.answer[0])[2]
        if not _quoted(inner):
            return closing
        opening = text.find(tags.answer[0], closing)
    return -1


def _open_move(text: str, tags: Tags, cut: bool, answer_from: int) -> Move:
    """A move whose closing tag the server took out as its stop string, unless the limit came first."""
    if cut:
        return Move(Kind.CUT, "", text)
    search, answer = text.rfind(tags.call[0]), text.rfind(tags.answer[0], answer_from)
    said = text[answer + len(tags.answer[0]) :]
    if answer > search and tags.answer[1] not in said and not _quoted(said):
        return _answer(said, text.rstrip() + tags.answer[1])
    query = text[search + len(tags.call[0]) :]
    if search >= 0 and len(query.strip()) <= _LONGEST_OPEN_QUERY:
        return _search(query, text.rstrip() + tags.call[1], tags)
    return Move(Kind.UNCLEAR, "", text)


def _search(query: str, said: str, tags: Tags) -> Move:
    for mark in (*tags.call, *tags.result, *tags.answer):
        query = query.replace(mark, " ")
    query = " ".join(query.split()).strip("\"'“” ")
    return Move(Kind.EMPTY if _quoted(query) else Kind.SEARCH, query, said)


def _answer(answer: str, said: str) -> Move:
    answer = answer.strip()
    return Move(Kind.UNCLEAR if _quoted(answer) else Kind.ANSWER, answer, said)


def _quoted(text: str) -> bool:
    """Whether a text says nothing: no letter or digit, or a word of the instructions."""
    return " ".join(re.findall(r"\w+", text.casefold())) in _PLACEHOLDERS


def same_search(query: str) -> str:
    """What two searches have in common that are one: their words, case and punctuation aside.

    >>> same_search("Vitamin-C  deficiency?") == same_search("vitamin c deficiency")
    True
    """
    return " ".join(re.findall(r"\w+", query.casefold()))
