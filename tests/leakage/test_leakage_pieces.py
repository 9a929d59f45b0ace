"""Work in pieces: the same is found however small they are, and no more is in memory than they allow."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Sequence
from functools import partial
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from leaking import WORDS, changed, dataset, find, named, subject_of, words, write_rows

from r2med.data.loader import load
from r2med.errors import DataError
from r2med.leakage import check as checking
from r2med.leakage import training
from r2med.leakage.check import check
from r2med.leakage.findings import Tally
from r2med.leakage.index import IndexedTask, Settings
from r2med.leakage.match import LeakHits, Matcher, join_hits
from r2med.leakage.training import Block, TrainingRow
from r2med.lexical.arrays import row_slices_up_to, slices_up_to

HUGE = 1 << 40
TASKS = ["sample/Biology", "sample/MedQA-Diag"]

texts = st.one_of(
    st.lists(st.sampled_from(WORDS[:3]), max_size=24).map(" ".join),
    # The same words over and over, spelt in two ways, and near-duplicates of them.
    st.sampled_from([words(length, 1) for length in (6, 7, 9, 20)]),
    st.sampled_from([words(length, 1).upper() for length in (6, 9)]),
    st.integers(0, 5).map(lambda seed: changed(words(20, 1), 0.05, seed)),
)
corpora = st.lists(texts, min_size=1, max_size=8)
choices = st.builds(
    Settings,
    methods=st.sampled_from(
        [("exact", "normalised", "near", "ngram"), ("exact", "ngram"), ("exact",), ("normalised", "near"), ("near",)]
    ),
    overlap=st.sampled_from([0.0, 0.3]),
    min_words=st.sampled_from([2, 5]),
)


def block_of(rows: Sequence[Sequence[str]]) -> Block:
    return Block.of([TrainingRow(number, list(row), 0) for number, row in enumerate(rows, 1)])


def pieces(subjects: Sequence[IndexedTask], block: Block, chosen: Settings, at_once: int) -> list[tuple[int, LeakHits]]:
    return list(Matcher(subjects, chosen, at_once).match(block))


def columns(found: Sequence[tuple[int, LeakHits]]) -> list[tuple[int, int, int, int, float]]:
    return [
        (place, *pair)
        for place, hits in found
        for pair in zip(
            hits.rows.tolist(), hits.texts.tolist(), hits.methods.tolist(), hits.scores.tolist(), strict=True
        )
    ]


@settings(max_examples=60, deadline=None)
@given(st.lists(corpora, min_size=1, max_size=2), st.lists(st.lists(texts, max_size=5), max_size=6), choices)
def test_small_pieces_hold_what_one_large_piece_holds(
    documents: list[list[str]], rows: list[list[str]], chosen: Settings
) -> None:
    block = block_of(rows)
    with tempfile.TemporaryDirectory() as folder:
        subjects = [subject_of(dataset(corpus, corpus[:2]), Path(folder), chosen) for corpus in documents]
        whole = pieces(subjects, block, chosen, HUGE)
        assert len({place for place, _ in whole}) == len(whole)
        for at_once in (1, 3, 20):
            found = pieces(subjects, block, chosen, at_once)
            assert columns(found) == columns(whole)
            assert all(len(hits) and (len(hits) <= at_once or len(set(hits.rows)) == 1) for _, hits in found)
            for (place, before), (other, after) in pairwise(found):
                assert place < other or before.rows[-1] < after.rows[0]


@pytest.mark.parametrize("at_once", [1, 20, HUGE])
def test_a_row_may_hold_more_texts_than_are_worked_on_at_a_time(at_once: int, tmp_path) -> None:
    text = words(60, 1)
    documents = [*(changed(text, 0.05, seed) for seed in range(30)), *[text] * 30]
    short = [f"a short text that ends in {WORDS[n % 50]} {n}" for n in range(30)]
    data = dataset(documents, short)
    rows = [[words(50, 2)], [text, *(changed(text, 0.05, seed) for seed in range(200, 205)), " ".join(short)], [text]]
    chosen = Settings()
    subject = subject_of(data, tmp_path, chosen)
    found = pieces([subject], block_of(rows), chosen, at_once)
    assert [sorted(set(hits.rows.tolist())) for _, hits in found] == ([[2, 3]] if at_once == HUGE else [[2], [3]])
    hits = named(subject, join_hits([hits for _, hits in found]))
    assert {name for row, name in hits if row == 2} == {*(f"d{n}" for n in range(60)), *(f"q{n}" for n in range(30))}
    assert {name for row, name in hits if row == 3} == {f"d{n}" for n in range(60)}
    assert hits[2, "d30"] == hits[3, "d59"] == ("exact", 1.0)
    assert hits[2, "q29"] == ("ngram", 1.0)
    assert hits[2, "d0"][0] == "near"


def test_the_ids_of_a_repeated_text_count_as_pairs(tmp_path) -> None:
    chosen = Settings(methods=("normalised",))
    subject = subject_of(dataset([words(40, 1)] * 30), tmp_path, chosen)
    found = pieces([subject], block_of([[words(40, 1)]] * 5), chosen, at_once=70)
    assert [(len(hits), sorted(set(hits.rows.tolist()))) for _, hits in found] == [
        (60, [1, 2]),
        (60, [3, 4]),
        (30, [5]),
    ]


def test_a_text_found_in_several_spellings_is_exact_if_one_of_them_is(tmp_path) -> None:
    text = words(10, 1)
    data = dataset([text, text.upper(), text.title()])
    found = find(data, [[text.upper(), f"{text}!", text], [f"{text}?"]], tmp_path, methods=("exact", "normalised"))
    methods = {pair: method for pair, (method, _) in found.items()}
    assert methods == {
        (1, "d0"): "exact", (1, "d1"): "exact", (1, "d2"): "normalised",
        (2, "d0"): "normalised", (2, "d1"): "normalised", (2, "d2"): "normalised",
    }  # fmt: skip


@pytest.fixture
def own_sentences(tmp_path, monkeypatch):
    """Training data made of documents of the tasks, in several blocks."""
    monkeypatch.setattr(training, "BLOCK", 40_000)
    documents = [
        text for name in ("Biology", "MedQA-Diag") for text in load(f"sample/{name}").collection.documents.texts
    ]
    return write_rows(tmp_path / "train.jsonl", [{"text": text, "more": other} for text, other in pairwise(documents)])


@pytest.mark.parametrize("at_once", [1, 4])
def test_reports_and_files_of_pairs_do_not_depend_on_pieces(at_once: int, own_sentences, tmp_path, monkeypatch) -> None:
    one, other = tmp_path / "one.jsonl", tmp_path / "other.jsonl"
    whole = check([own_sentences], TASKS, out=one)
    monkeypatch.setattr(checking, "Matcher", partial(Matcher, at_once=at_once))
    parts = check([own_sentences], TASKS, out=other)
    assert parts.as_dict() == whole.as_dict()
    assert parts.files[own_sentences].judged.tolist() == whole.files[own_sentences].judged.tolist()
    assert one.read_bytes() == other.read_bytes()
    assert one.read_bytes().count(b"\n") == whole.pairs > 50 * at_once


def test_few_pairs_wait(own_sentences, monkeypatch) -> None:
    made: list[int] = []
    taken: list[int] = []
    waiting: list[int] = []

    class Counting(Matcher):
        def match(self, block: Block) -> Iterator[tuple[int, LeakHits]]:
            for place, hits in super().match(block):
                made.append(len(hits))
                yield place, hits

    def add(tally: Tally, path: Path, place: int, hits: LeakHits, real=Tally.add) -> None:
        waiting.append(sum(made) - sum(taken))
        taken.append(len(hits))
        real(tally, path, place, hits)

    at_once = 5
    monkeypatch.setattr(checking, "Matcher", partial(Counting, at_once=at_once))
    monkeypatch.setattr(Tally, "add", add)
    report = check([own_sentences], TASKS)
    assert sum(made) == sum(taken) == report.pairs
    # A portion that is being counted, the next of its block, and the first of each block in line.
    portions = 2 + checking._WORKERS
    assert 0 < max(waiting) <= portions * (at_once + max(made)) < report.pairs / 2


def test_an_error_in_the_middle_of_a_block_ends_the_check(own_sentences, monkeypatch) -> None:
    class Failing(Matcher):
        def match(self, block: Block) -> Iterator[tuple[int, LeakHits]]:
            for number, piece in enumerate(super().match(block)):
                if number == 3:
                    raise DataError("in the middle")
                yield piece

    monkeypatch.setattr(checking, "Matcher", partial(Failing, at_once=1))
    with pytest.raises(DataError, match="in the middle"):
        check([own_sentences], TASKS)


sizes = st.lists(st.integers(0, 9), max_size=30)


@given(sizes, st.integers(1, 20))
def test_stretches_are_as_long_as_they_may_be(sizes: list[int], limit: int) -> None:
    parts = list(slices_up_to(np.array(sizes, dtype=np.int64), limit))
    assert [size for part in parts for size in sizes[part]] == sizes
    for part in parts:
        assert sum(sizes[part]) <= limit or len(sizes[part]) == 1
        assert part.stop == len(sizes) or sum(sizes[part]) + sizes[part.stop] > limit


@given(st.lists(sizes.filter(bool), max_size=8), st.integers(1, 20))
def test_stretches_of_rows_are_stretches_of_their_totals(rows: list[list[int]], limit: int) -> None:
    numbers = np.repeat(np.arange(0, 3 * len(rows), 3), [len(row) for row in rows]).astype(np.int64)
    column = np.array([size for row in rows for size in row], dtype=np.int64)
    found = [sorted(set(numbers[part].tolist())) for part in row_slices_up_to(numbers, column, limit)]
    totals = np.array([sum(row) for row in rows], dtype=np.int64)
    assert found == [list(range(3 * part.start, 3 * part.stop, 3)) for part in slices_up_to(totals, limit)]
