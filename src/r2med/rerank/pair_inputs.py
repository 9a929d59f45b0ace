"""Tokens of a query and a document for a model that reads pairs, cut to its limit.

The document gives way, from its end. The query stays whole; only one that leaves no room for any document loses its
beginning (its end is where a case asks its question), half of the room then goes to each, and that is counted.
`truncate=longest` cuts both from their ends until they are equally long, which is what most libraries do.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from r2med.errors import R2medError
from r2med.formatting import replace_surrogates
from r2med.models.tokenizer import Padded, pad_rows

if TYPE_CHECKING:
    from tokenizers import Encoding

    from r2med.models.tokenizer import Tokenizer

TRUNCATIONS = ("document", "longest")
_FIXED, _QUERY, _DOCUMENT = 0, 1, 2


class TextPair(NamedTuple):
    """Two texts to be compared."""

    query: str
    document: str


class PairInput(NamedTuple):
    """A pair as a model reads it."""

    ids: Sequence[int]
    types: Sequence[int]
    tokens: int  # how many tokens there were before any was cut
    query_lost: int  # how many of the query's tokens were cut


@dataclass(frozen=True)
class PairFormat:
    """Format of a pair for a model: as the two texts of its tokenizer's own pair, or as pieces."""

    query: str = "{query}"
    document: str = "{document}"
    pieces: tuple[str, ...] = ()
    limit: int = 512
    truncate: str = "document"

    def first(self, pair: TextPair) -> str:
        """Return a pair as the text that is read, which a result records for users."""
        parts = self.pieces or (self.query, self.document)
        filled = [_filled(part, pair._asdict())[0] for part in parts]
        return "".join(filled) if self.pieces else "\n".join(filled)


class Inputs:
    """A tokenizer with a format."""

    def __init__(self, tokenizer: Tokenizer, format: PairFormat) -> None:
        self.tokenizer, self.format = tokenizer, format
        tokenizer.backend.no_truncation()

    def rows(self, pairs: Sequence[TextPair]) -> list[PairInput]:
        """Tokenize each pair, cut to the limit."""
        clean = [TextPair(*map(replace_surrogates, pair)) for pair in pairs]
        return list(map(self._cut, self._pieces(clean) if self.format.pieces else self._pairs(clean)))

    def padded(self, rows: Sequence[PairInput]) -> Padded:
        """Pad rows to one batch: on the left for a language model, on the right for all others."""
        batch = pad_rows([row[:2] for row in rows], self.tokenizer.pad, "left" if self.format.pieces else "right")
        return batch if self.tokenizer.typed else batch._replace(types=np.zeros_like(batch.types))

    def _pairs(self, pairs: Sequence[TextPair]) -> Iterable[_Pieces]:
        queries = [_filled(self.format.query, {"query": pair.query}) for pair in pairs]
        documents = [_filled(self.format.document, {"document": pair.document}) for pair in pairs]
        texts = [(query[0], document[0]) for query, document in zip(queries, documents, strict=True)]
        encodings = self.tokenizer.backend.encode_batch(texts)
        for encoding, query, document in zip(encodings, queries, documents, strict=True):
            yield [(encoding, (query[1], document[1]))]

    def _pieces(self, pairs: Sequence[TextPair]) -> Iterable[_Pieces]:
        # A piece without a place to fill is the same for all pairs, and one with the query alone for many.
        encodings: dict[str, Encoding] = {}
        for pair in pairs:
            filled = [_filled(piece, pair._asdict()) for piece in self.format.pieces]
            for text, _ in filled:
                if text not in encodings:
                    encodings[text] = self.tokenizer.backend.encode(text, add_special_tokens=False)
            yield [(encodings[text], (spans,)) for text, spans in filled]

    def _cut(self, pieces: _Pieces) -> PairInput:
        ids = [token for encoding, _ in pieces for token in encoding.ids]
        types = [kind for encoding, _ in pieces for kind in encoding.type_ids]
        limit = self.format.limit
        if len(ids) <= limit:
            return PairInput(ids, types, len(ids), 0)
        parts = _parts(pieces)
        query, document = np.flatnonzero(parts == _QUERY), np.flatnonzero(parts == _DOCUMENT)
        room = limit - int((parts == _FIXED).sum())
        if room < 2:
            raise R2medError(f"a max_length of {limit} tokens leaves none for the texts")
        keep = np.ones(len(ids), dtype=np.bool_)
        half = min(len(query), len(document), room // 2)
        if self.format.truncate == "longest":
            # The longer gives way until both are equal.
            kept_query = half if len(query) <= len(document) else room - half
            keep[query[kept_query:]] = False
        else:
            kept_query = len(query) if len(query) < room else room - min(len(document), room // 2)
            keep[query[: len(query) - kept_query]] = False
        keep[document[room - kept_query :]] = False
        cut_ids, cut_types = (np.asarray(column)[keep].tolist() for column in (ids, types))
        return PairInput(cut_ids, cut_types, len(ids), len(query) - kept_query)


def _parts(pieces: _Pieces) -> np.ndarray[tuple[int], np.dtype[np.int8]]:
    """Return the part of each token: the query's, the document's, or neither's."""
    parts: list[int] = []
    for encoding, spans in pieces:
        for sequence, (start, end) in zip(encoding.sequence_ids, encoding.offsets, strict=True):
            part = _FIXED
            if sequence is not None:
                for kind, (first, last) in spans[min(sequence, len(spans) - 1)].items():
                    part = kind if start < last and end > first else part
            parts.append(part)
    return np.array(parts, dtype=np.int8)


_Spans = Mapping[int, tuple[int, int]]  # where the query's and the document's characters are in a text
_Pieces = Sequence[tuple["Encoding", Sequence[_Spans]]]  # the tokens of one pair
_PLACES = {"{query}": _QUERY, "{document}": _DOCUMENT}


def _filled(template: str, values: Mapping[str, str]) -> tuple[str, _Spans]:
    places = sorted((template.index(place), place) for place in _PLACES if place in template)
    text, spans, done = "", {}, 0
    for start, place in places:
        text += template[done:start]
        value = values[place.strip("{}")]
        spans[_PLACES[place]] = (len(text), len(text) + len(value))
        text += value
        done = start + len(place)
    return text + template[done:], spans
