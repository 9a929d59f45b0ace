"""Joins of generated texts and the query: the published protocol as a table, and the joins that an expander may set.

A join is written `replace` (the texts alone), `concat` (the query, then the texts) or `repeat(n)` (the query n times,
then the texts). `mean`, the average of embeddings, is defined for dense retrievers only. The retriever carries out
the join.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import NamedTuple

from r2med.data.dataset import Collection, Generation
from r2med.errors import SpecError

TEXT_JOINS: Mapping[str, str] = MappingProxyType(
    {"query2doc": "repeat(2)", "lamer": "concat"}
    | dict.fromkeys(("hyde", "answer", "oracle-answer", "search-o1", "search-r1", "replay"), "replace")
)
"""Joins of a lexical retriever for each method's text, as published; any other method replaces."""
DENSE_JOINS: Mapping[str, str] = MappingProxyType({"query2doc": "concat"})
"""Joins of a dense retriever for each method's text, as published; any other is averaged with the query's."""
_REPEAT = re.compile(r"repeat\(([1-9]\d{0,2})\)")


def query_copies(join: str) -> int:
    """Return how many times a join puts the query before the texts.

    >>> [query_copies(join) for join in ("replace", "concat", "repeat(3)")]
    [0, 1, 3]
    """
    if join == "replace":
        return 0
    if join == "concat":
        return 1
    if repeat := _REPEAT.fullmatch(join):
        return int(repeat[1])
    reason = "averages embeddings and needs a dense retriever" if join == "mean" else "is not known"
    raise SpecError(f'join {join!r} {reason}; a retriever of words takes replace, concat or "repeat(n)"')


def check_join(stage: str, join: str) -> None:
    """Refuse a join that no retriever knows; the retriever that follows checks if it knows it."""
    if join not in ("", "mean"):
        try:
            query_copies(join)
        except SpecError as error:
            raise SpecError(f'{stage}: join must be replace, concat, mean or "repeat(n)", not {join!r}') from error


_SEPARATOR = "[SEP]"  # between query and text if a dense retriever encodes both at once, as published
_REWRITTEN = "replay"  # the method of a text that is the whole query


def usable(generations: Iterable[Generation]) -> list[Generation]:
    """Return the generations that a query can be searched with: complete, and not blank."""
    return [generation for generation in generations if not generation.incomplete and generation.text.strip()]


def join_of(generation: Generation, override: str, protocol: Mapping[str, str], default: str = "replace") -> str:
    """Return the join of a generation: the stage's, else the one stored with it, else its method's in the protocol."""
    return override or generation.join or protocol.get(generation.method, default)


def joined_text(query: str, generations: Iterable[Generation], override: str = "") -> str:
    """Return the text to search with for a query and its generations.

    Generations that ask for different joins share the query's most frequent use. With none usable, the query stands
    for itself.

    >>> joined_text("why pale?", [Generation("anaemia", "query2doc"), Generation("cut", "hyde", incomplete="cut off")])
    'why pale? why pale? anaemia'
    """
    texts = usable(generations)
    if not texts:
        return query
    copies = max(query_copies(join_of(generation, override, TEXT_JOINS)) for generation in texts)
    return " ".join([query] * copies + [generation.text for generation in texts])


def search_texts(collection: Collection, override: str = "") -> list[str]:
    """Return the text to search with for each query of a collection."""
    queries = collection.queries.texts
    if not collection.generations:
        return list(queries)
    return [joined_text(query, texts, override) for query, texts in zip(queries, collection.generations, strict=True)]


class TextParts(NamedTuple):
    """Texts whose embeddings are averaged for a query."""

    query: str
    """The query, with the texts encoded together with it; empty if generated texts replace it."""
    passages: tuple[str, ...] = ()
    """Generated texts that are encoded separately."""


def parts(query: str, generations: Iterable[Generation], override: str = "") -> TextParts:
    """Return the texts that a dense retriever encodes for a query and its generations.

    A replayed text that replaces the query is a query, with a query's prompt; any other text that does so is a
    passage.

    >>> parts("why pale?", [Generation("anaemia", "hyde")])
    TextParts(query='why pale?', passages=('anaemia',))
    >>> parts("why pale?", [Generation("anaemia", "query2doc")])
    TextParts(query='why pale?[SEP]anaemia', passages=())
    """
    joined = [(generation, join_of(generation, override, DENSE_JOINS, "mean")) for generation in usable(generations)]
    if joined and all(join == "replace" for _, join in joined):
        rewritten = " ".join(generation.text for generation, _ in joined if generation.method == _REWRITTEN)
        return TextParts(rewritten, tuple(part.text for part, _ in joined if part.method != _REWRITTEN))
    apart = tuple(generation.text for generation, join in joined if join in ("mean", "replace"))
    beside = [(generation.text, query_copies(join)) for generation, join in joined if join not in ("mean", "replace")]
    if not beside:
        return TextParts(query, apart)
    copies = max(count for _, count in beside)
    return TextParts(_SEPARATOR.join([" ".join([query] * copies), *(text for text, _ in beside)]), apart)
