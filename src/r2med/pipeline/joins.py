"""How generated texts join the query: the published protocol as a table, and what an expander may ask for instead.

A join is written `replace` (the texts alone), `concat` (the query, then the texts) or `repeat(n)` (the query n times,
then the texts). `mean`, the average of embeddings, has a meaning for dense retrievers only. How a join is done is the
retriever's business.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from types import MappingProxyType

from r2med.errors import SpecError

TEXT_JOINS: Mapping[str, str] = MappingProxyType(
    {
        "hyde": "replace",
        "query2doc": "repeat(2)",
        "lamer": "concat",
        "answer": "replace",
        "oracle-answer": "replace",
        "search-o1": "replace",
        "search-r1": "replace",
        "replay": "replace",
    }
)
"""How a retriever that searches with words joins each method's text, as published; any other method replaces."""

DENSE_JOINS: Mapping[str, str] = MappingProxyType({"query2doc": "concat"})
"""How a dense retriever joins each method's text, as published; any other method's is averaged with the query's."""

_REPEAT = re.compile(r"repeat\(([1-9]\d{0,2})\)")


def query_copies(join: str) -> int:
    """How many times a join puts the query before the texts.

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
    """Refuse a join that no retriever knows; whether the retriever that follows knows it is its own business."""
    if join not in ("", "mean"):
        try:
            query_copies(join)
        except SpecError as error:
            raise SpecError(f'{stage}: join must be replace, concat, mean or "repeat(n)", not {join!r}') from error
