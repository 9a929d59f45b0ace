"""Normalised words as numbers: what is the same text, what is the same run."""

from __future__ import annotations

from itertools import permutations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from r2med.lexical.hashes import hash_words, joined, normalise, raw_hash
from r2med.lexical.shingles import inside, ngram_hashes, ngrams

characters = st.one_of(st.characters(), st.sampled_from("aAbBzZ09_' -.,/\n\0ßİΣςﬁⅣ①é\u0301ﾊ東😀\ud800"))
texts = st.text(characters, max_size=60)
word = st.text(st.sampled_from("aAzZ0éβ東"), min_size=1, max_size=25)
sentences = st.lists(word, max_size=8).map(" ".join)
marks = st.text(st.sampled_from(" \t\n.,;:!?()[]{}\"'“”–—…_-/*#\u00a0\u2009"), min_size=1, max_size=3)


@given(texts)
def test_normalising_twice_changes_nothing(text: str) -> None:
    once = normalise(text)
    assert normalise(once) == once
    assert "  " not in once
    assert all(character.isalnum() or character == " " for character in once)


def test_folding_a_letter_does_not_cut_its_word() -> None:
    assert normalise("θεΐκός ẖ") == "θεΐκός ẖ".replace("ς", "σ")


@given(st.lists(word, min_size=1, max_size=8), st.data())
def test_case_marks_and_spacing_do_not_matter(parts: list[str], data: st.DataObject) -> None:
    written = "".join(
        data.draw(marks) + data.draw(st.sampled_from([part, part.upper(), part.title()])) for part in parts
    )
    assert normalise(written) == normalise(" ".join(parts))
    plain, other = hash_words([" ".join(parts), written]).text_hashes()
    assert plain == other


@given(st.lists(st.one_of(texts, sentences), max_size=6))
def test_hashed_words_are_the_words_of_the_normalised_text(block: list[str]) -> None:
    found, known = hash_words(block), [normalise(text).split() for text in block]
    assert found.counts.tolist() == [len(parts) for parts in known]
    assert np.array_equal(found.hashes, hash_words([" ".join(parts) for parts in known]).hashes)
    distinct = {part for parts in known for part in parts}
    assert len(set(found.hashes.tolist())) == len(distinct)


@given(st.lists(sentences, min_size=1, max_size=8))
def test_texts_have_one_hash_exactly_when_they_have_the_same_words(block: list[str]) -> None:
    hashes = hash_words(block).text_hashes().tolist()
    known = [tuple(normalise(text).split()) for text in block]
    for place, one in enumerate(known):
        assert [other == one for other in known] == [other == hashes[place] for other in hashes]


def test_order_and_number_of_words_matter() -> None:
    block = ["a b c", "c b a", "a b", "a b b c", "a b c d", "a a b c", "", "ab c"]
    assert len(set(hash_words(block).text_hashes().tolist())) == len(block)


@given(st.lists(sentences, max_size=6), st.integers(1, 14))
def test_runs_are_those_within_each_text(block: list[str], length: int) -> None:
    words = hash_words(block)
    found = ngrams(words, length)
    known = [normalise(text).split() for text in block]
    wanted = [tuple(parts[at : at + length]) for parts in known for at in range(len(parts) - length + 1)]
    assert found.counts.tolist() == [max(0, len(parts) - length + 1) for parts in known]
    same = {}
    for run, value in zip(wanted, found.hashes.tolist(), strict=True):
        assert same.setdefault(run, value) == value
    assert len(set(same.values())) == len(same)
    assert int(inside(words, length).sum()) == len(wanted)


@pytest.mark.parametrize("length", [2, 3, 4, 5, 6])
def test_runs_depend_on_the_order_of_their_words(length: int) -> None:
    orders = list(permutations("abcdef"[:length]))
    assert len(
        set(ngram_hashes(hash_words([" ".join(order) for order in orders]).hashes, length)[::length].tolist())
    ) == len(orders)


@given(st.lists(st.lists(sentences, max_size=4), max_size=4))
def test_blocks_joined_are_one_block(parts: list[list[str]]) -> None:
    whole, pieces = hash_words([text for part in parts for text in part]), joined([hash_words(part) for part in parts])
    assert np.array_equal(whole.hashes, pieces.hashes)
    assert np.array_equal(whole.offsets, pieces.offsets)


@given(st.lists(sentences, min_size=1, max_size=6), st.data())
def test_selecting_texts(block: list[str], data: st.DataObject) -> None:
    chosen = data.draw(st.lists(st.integers(0, len(block) - 1), max_size=6))
    found = hash_words(block).select(np.array(chosen, dtype=np.int64))
    assert np.array_equal(found.hashes, hash_words([block[place] for place in chosen]).hashes)


def test_a_raw_hash_sees_every_character() -> None:
    assert len({raw_hash(text) for text in ("a b", "A b", "a  b", "a b ", "a b\ud800")}) == 5
