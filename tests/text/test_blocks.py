"""Cutting and numbering in bulk gives what splitting a text and a dict would give."""

from __future__ import annotations

import random
import re

from hypothesis import given
from hypothesis import strategies as st

from r2med.text import BREAK, analyze, analyze_pieces
from r2med.text.blocks import TermIds, cut

ASCII_BREAK = "".join(character for character in BREAK if character.isascii())
texts = st.text(st.one_of(st.characters(), st.sampled_from("aAbBzZ' -.,/\n\0β東😀\ud800")), max_size=60)
words = st.text(st.sampled_from("aAzβ.'"), min_size=1, max_size=25)


def lowered(text: str) -> str:
    return re.sub("[A-Z]+", lambda found: found[0].lower(), text)


def plain_pieces(text: str) -> list[str]:
    return [lowered(piece) for piece in re.split(f"[{re.escape(ASCII_BREAK)}]+", text) if piece]


@given(st.lists(st.one_of(texts, st.lists(words).map(" ".join)), max_size=6))
def test_cut_is_splitting(block: list[str]) -> None:
    pieces = cut(block)
    found = [(int(owner), pieces.text(place)) for place, owner in enumerate(pieces.owners)]
    assert found == [(owner, piece) for owner, text in enumerate(block) for piece in plain_pieces(text)]


@given(st.lists(st.lists(st.lists(words, max_size=8).map(" ".join), max_size=4), max_size=4))
def test_numbers_stand_for_pieces(blocks: list[list[str]]) -> None:
    numbers, known = TermIds(), []
    for block in blocks:
        found, new = numbers.number(cut(block))
        known += new
        assert [known[number] for number in found] == [piece for text in block for piece in plain_pieces(text)]
    assert len(set(known)) == len(known) == numbers.count


def test_numbers_survive_the_growth_of_the_table() -> None:
    drawn = random.Random(7)
    numbers, known = TermIds(), []
    for _ in range(4):
        block = [" ".join(f"w{drawn.randrange(150_000):x}" for _ in range(60_000))]
        found, new = numbers.number(cut(block))
        known += new
        assert [known[number] for number in found] == block[0].split()
    assert len(set(known)) == len(known) == numbers.count > 100_000


@given(texts)
def test_pieces_have_the_tokens_of_the_text(text: str) -> None:
    """What the index relies on: cutting at ASCII breaks and lowering ASCII capitals change no token."""
    assert analyze_pieces(plain_pieces(text)).tokens == analyze(text)
