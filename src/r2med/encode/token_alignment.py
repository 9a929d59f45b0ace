"""Which token of a document each token of a query matched best: late interaction made visible."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from r2med.encode.encoder import Role, Vectors
from r2med.encode.text_hashes import text_hashes
from r2med.encode.token_encoder import TokenEncoder
from r2med.encode.token_store import TokenStore


class TokenPiece(NamedTuple):
    """A token with a vector that counts: what it is of the text, from character to character."""

    text: str
    start: int
    end: int
    """Both -1 for a token that no text has: a marker, a mask, a beginning or an end."""


@dataclass(frozen=True)
class TokenMatch:
    """A token of a query, and the token of a document that it fits best."""

    query: str
    document: str
    similarity: float
    """What it adds to the score."""
    written: bool
    """Whether the query's token stands in its text; markers and masks do not."""
    start: int
    """Where the document's token is in the text, in characters; -1 for a marker."""
    end: int


def align(encoder: TokenEncoder, query: str, documents: Mapping[str, str], store: str) -> dict[str, list[TokenMatch]]:
    """For each document that is kept, the best match of every token of a query, in the query's order.

    No model is loaded: a text whose vectors are not kept is left out.
    """
    asked = _kept(encoder, [query], Role.QUERY, "float32")[0]
    if asked is None:
        return {}
    pieces = token_pieces(encoder, query, Role.QUERY)
    kept = _kept(encoder, list(documents.values()), Role.DOCUMENT, store)
    found = {}
    for (name, text), vectors in zip(documents.items(), kept, strict=True):
        if vectors is not None:
            found[name] = _matches(pieces, token_pieces(encoder, text, Role.DOCUMENT), asked, vectors)
    return found


def _kept(encoder: TokenEncoder, texts: Sequence[str], role: Role, precision: str) -> list[Vectors | None]:
    store = TokenStore(encoder.settings(role), precision)
    places = store.find(text_hashes(texts))
    return [None if place < 0 else store.spans(np.array([place])).of(0) for place in places.tolist()]


def token_pieces(encoder: TokenEncoder, text: str, role: Role) -> list[TokenPiece]:
    """The tokens of a text that have a vector, in the order of the vectors."""
    read, before = encoder.batch([text], role), len(encoder.prefix(role))
    offsets = encoder.offsets(text, role)
    pieces = []
    for place in np.flatnonzero(read.counted[0]).tolist():
        first, last = offsets[place] if place < len(offsets) else (0, 0)
        # A token of bytes may begin with the space before its word, be it the prefix's.
        start, end = max(0, first - before), last - before
        while start < end and text[start : start + 1].isspace():
            start += 1
        if 0 <= start < end:
            pieces.append(TokenPiece(text[start:end], start, end))
        else:
            pieces.append(TokenPiece(encoder.tokenizer.backend.id_to_token(int(read.ids[0, place])) or "", -1, -1))
    return pieces


def _matches(
    query: Sequence[TokenPiece], document: Sequence[TokenPiece], asked: Vectors, vectors: Vectors
) -> list[TokenMatch]:
    product = asked.astype(np.float64) @ vectors.astype(np.float64).T
    best = product.argmax(axis=1)
    return [
        TokenMatch(
            piece.text,
            document[place].text,
            round(float(product[number, place]), 6),
            piece.start >= 0,
            document[place].start,
            document[place].end,
        )
        for number, (piece, place) in enumerate(zip(query, best.tolist(), strict=True))
    ]
