"""Cutting, numbering and analyzing in bulk give what a loop over words would give."""

from __future__ import annotations

import random
import re

import numpy as np
from hypothesis import example, given
from hypothesis import strategies as st

from r2med.lexical.analyzer import BREAK, analyze, analyze_pieces
from r2med.lexical.pieces import PACKED, STOPS, PieceIds, Pieces, cut, join_texts

ASCII_BREAK = "".join(character for character in BREAK if character.isascii())
texts = st.text(st.one_of(st.characters(), st.sampled_from("aAbBzZ' -.,/\n\0β東😀\ud800")), max_size=60)
words = st.text(st.sampled_from("aAzβ.'"), min_size=1, max_size=25)


def encoded(given: list[str]) -> list[bytes]:
    return [word.encode("utf-8", "surrogatepass") for word in given]


def lowered(text: str) -> str:
    return re.sub("[A-Z]+", lambda found: found[0].lower(), text)


def plain_pieces(text: str) -> list[str]:
    found = (lowered(piece).rstrip(STOPS) for piece in re.split(f"[{re.escape(ASCII_BREAK)}]+", text))
    return [piece for piece in found if piece]


def number(pieces: Pieces, ids: PieceIds) -> tuple[list[int], list[bytes]]:
    """The numbers of pieces in their order, and the new ones."""
    short, long = pieces.short(), pieces.long()
    numbers, new = ids.number(pieces.packed.take(short), [pieces.word(place) for place in long.tolist()])
    return numbers[np.argsort(np.concatenate([short, long]))].tolist(), new


@given(st.lists(st.one_of(texts, st.lists(words).map(" ".join)), max_size=6))
@example(["one., (two.) ;", "; : ,"])
def test_cut_is_splitting(block: list[str]) -> None:
    pieces = cut(join_texts(block))
    kept = np.flatnonzero(pieces.lengths)
    found = [(int(pieces.owners[place]), pieces.word(place)) for place in kept.tolist()]
    expected = [(owner, piece) for owner, text in enumerate(block) for piece in encoded(plain_pieces(text))]
    assert found == expected
    assert pieces.packed.take(kept).words() == [piece[:PACKED] for _, piece in expected]
    assert sorted([*pieces.short().tolist(), *pieces.long().tolist()]) == kept.tolist()


@given(st.lists(st.lists(st.lists(words, max_size=8).map(" ".join), max_size=4), max_size=4))
def test_numbers_stand_for_pieces(blocks: list[list[str]]) -> None:
    ids, known = PieceIds(), []
    for block in blocks:
        found, new = number(cut(join_texts(block)), ids)
        known += new
        assert [known[each] for each in found] == encoded([piece for text in block for piece in plain_pieces(text)])
    assert len(set(known)) == len(known) == len(ids)


def test_numbers_survive_the_growth_of_the_table() -> None:
    drawn = random.Random(7)
    ids, known = PieceIds(), []
    for _ in range(4):
        block = [" ".join(f"w{drawn.randrange(150_000):x}" for _ in range(60_000))]
        found, new = number(cut(join_texts(block)), ids)
        known += new
        assert [known[each] for each in found] == encoded(block[0].split())
    assert len(set(known)) == len(known) == len(ids) > 100_000


@given(texts)
def test_pieces_have_the_tokens_of_the_text(text: str) -> None:
    """What the index relies on: cutting at ASCII breaks, dropping stops and lowering ASCII capitals change no token."""
    assert analyze_pieces(plain_pieces(text)).tokens == analyze(text)
