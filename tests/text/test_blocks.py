"""Cutting, numbering and analyzing in bulk give what a loop over words would give."""

from __future__ import annotations

import random
import re

import numpy as np
from hypothesis import example, given
from hypothesis import strategies as st

from r2med.text import BREAK, STOP_WORDS, analyze, analyze_pieces
from r2med.text.blocks import STOPS, Pieces, cut
from r2med.text.packed_words import PACKED, PackedWords, WordList
from r2med.text.porter import STEP_2, STEP_3, STEP_4, stem
from r2med.text.porter_columns import stem_columns
from r2med.text.term_ids import TermIds
from r2med.text.word_terms import analyze_words

ASCII_BREAK = "".join(character for character in BREAK if character.isascii())
texts = st.text(st.one_of(st.characters(), st.sampled_from("aAbBzZ' -.,/\n\0β東😀\ud800")), max_size=60)
words = st.text(st.sampled_from("aAzβ.'"), min_size=1, max_size=25)
ENDINGS = sorted({suffix for step in (STEP_2, STEP_3, STEP_4) for rules in step.values() for suffix, _ in rules})
stemmed = st.builds(
    "".join,
    st.tuples(
        st.text("abcdehilorstuvwxyz01", max_size=6),
        st.sampled_from(["", "y", "yy", "ll", "at", "bl", "iz", *ENDINGS]),
        st.sampled_from(["", "s", "es", "ies", "sses", "ed", "eed", "ing", "ly", "e", "ation"]),
    ),
).filter(bool)


def encoded(given: list[str]) -> list[bytes]:
    return [word.encode("utf-8", "surrogatepass") for word in given]


def lowered(text: str) -> str:
    return re.sub("[A-Z]+", lambda found: found[0].lower(), text)


def plain_pieces(text: str) -> list[str]:
    found = (lowered(piece).rstrip(STOPS) for piece in re.split(f"[{re.escape(ASCII_BREAK)}]+", text))
    return [piece for piece in found if piece]


def number(pieces: Pieces, ids: TermIds) -> tuple[list[int], list[bytes]]:
    """The numbers of pieces in their order, and the new ones."""
    every, order = WordList.of([pieces.word(place) for place in np.flatnonzero(pieces.lengths).tolist()])
    found, new = ids.number(*every)
    numbers = np.empty_like(found)
    numbers[order] = found
    return numbers.tolist(), new.words()


@given(st.lists(st.one_of(texts, st.lists(words).map(" ".join)), max_size=6))
@example(["one., (two.) ;", "; : ,"])
def test_cut_is_splitting(block: list[str]) -> None:
    pieces = cut(block)
    kept = np.flatnonzero(pieces.lengths)
    found = [(int(pieces.owners[place]), pieces.word(place)) for place in kept.tolist()]
    expected = [(owner, piece) for owner, text in enumerate(block) for piece in encoded(plain_pieces(text))]
    assert found == expected
    assert pieces.packed.at(kept).words() == [piece[:PACKED] for _, piece in expected]
    assert sorted([*pieces.short().tolist(), *pieces.long().tolist()]) == kept.tolist()


@given(st.lists(st.lists(st.lists(words, max_size=8).map(" ".join), max_size=4), max_size=4))
def test_numbers_stand_for_pieces(blocks: list[list[str]]) -> None:
    ids, known = TermIds(), []
    for block in blocks:
        found, new = number(cut(block), ids)
        known += new
        assert [known[each] for each in found] == encoded([piece for text in block for piece in plain_pieces(text)])
    assert len(set(known)) == len(known) == len(ids)
    names, numbers = ids.by_name()
    assert names == sorted(known) == [known[each] for each in numbers.tolist()]


def test_numbers_survive_the_growth_of_the_table() -> None:
    drawn = random.Random(7)
    ids, known = TermIds(), []
    for _ in range(4):
        block = [" ".join(f"w{drawn.randrange(150_000):x}" for _ in range(60_000))]
        found, new = number(cut(block), ids)
        known += new
        assert [known[each] for each in found] == encoded(block[0].split())
    assert len(set(known)) == len(known) == len(ids) > 100_000
    assert ids.by_name().names == sorted(known)


@given(st.lists(stemmed.filter(lambda word: len(word) <= PACKED), min_size=1))
def test_stems_in_columns_are_those_of_words(given: list[str]) -> None:
    assert stem_columns(PackedWords.of(encoded(given))).words() == encoded([stem(word) for word in given])


def test_stems_of_a_vocabulary_are_those_of_its_words(collections) -> None:
    pieces = cut([(collections / "scifact" / "corpus.jsonl").read_text("utf-8")])
    given = sorted({word for word in pieces.packed.words() if word.isalnum() and word.isascii()})
    assert len(given) > 30_000
    assert stem_columns(PackedWords.of(given)).words() == [stem(word.decode()).encode() for word in given]


odd = st.text(st.sampled_from("a1.,:;'_\"#β's"), min_size=1, max_size=20)


@given(st.lists(st.one_of(stemmed, odd, texts.filter(bool), st.sampled_from(sorted(STOP_WORDS)))))
@example(["1.5", "1,000.5", ".5", "5.", "1..5", "1.,5", "1", ".", "1.a", "u.s.a", "patient's", "x" * 300])
def test_words_in_columns_have_the_terms_of_pieces(given: list[str]) -> None:
    pieces, _ = WordList.of(encoded([lowered(piece).replace("\0", "") or "x" for piece in given]))
    ordered = [word.decode("utf-8", "surrogatepass") for word in pieces.words()]
    counts, terms, places = analyze_words(pieces)
    expected = analyze_pieces(ordered)
    assert counts.tolist() == expected.counts
    found = dict(zip(places.tolist(), terms.words(), strict=True))
    assert [found[place] for place in range(len(found))] == encoded(expected.tokens)


@given(texts)
def test_pieces_have_the_tokens_of_the_text(text: str) -> None:
    """What the index relies on: cutting at ASCII breaks, dropping stops and lowering ASCII capitals change no token."""
    assert analyze_pieces(plain_pieces(text)).tokens == analyze(text)
