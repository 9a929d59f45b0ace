"""The index holds what counting tokens one by one would give, in memory and from files."""

from __future__ import annotations

import random
import shutil
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from r2med.data.dataset import Texts
from r2med.data.loader import load
from r2med.lexical import builder as index_builder
from r2med.lexical import postings as postings_builder
from r2med.lexical.analyzer import analyze
from r2med.lexical.builder import build_index, write_index
from r2med.lexical.index import InvertedIndex
from r2med.lexical.ranking import id_order

words = st.sampled_from(
    "the cell cells' Cell's renal/failure 3.5 β-blocker 東京都 x immunohistochemistries a.b 1,000 naïve 👩‍🔬".split()
)
texts = st.one_of(st.lists(words, max_size=12).map(" ".join), st.text(max_size=20))


def numbered(found: list[str]) -> Texts:
    return Texts([f"d{place}" for place in range(len(found))], found)


def counted(index: InvertedIndex) -> list[Counter[str]]:
    """The index turned round: each document's terms and how often it has them."""
    numbers = np.repeat(np.arange(len(index.terms)), np.diff(index.offsets))
    assert (np.diff(numbers * len(index.lengths) + index.documents) > 0).all(), "postings are in order, each once"
    documents: list[Counter[str]] = [Counter() for _ in index.lengths]
    rows = zip(index.documents.tolist(), numbers.tolist(), index.values.tolist(), strict=True)
    for document, number, frequency in rows:
        documents[document][index.terms[number]] = frequency
    return documents


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(texts, max_size=12), st.sampled_from([1, 40, 10_000]))
def test_index_is_counting(monkeypatch: pytest.MonkeyPatch, found: list[str], block: int) -> None:
    monkeypatch.setattr(postings_builder, "BLOCK", block)
    index = build_index(numbered(found))
    expected = [Counter(analyze(text)) for text in found]
    assert counted(index) == expected
    assert index.lengths.tolist() == [counts.total() for counts in expected]
    assert list(index.terms) == sorted(set().union(*expected))
    assert all(index.terms[index.number(term)] == term for term in index.terms)
    for number in range(len(index.terms)):
        assert len(index.postings(number).documents) == len(index.postings(number).values) > 0
    assert index.number("nowhere to be found") == -1
    assert index.ties.tolist() == id_order([f"d{place}" for place in range(len(found))]).tolist()


def test_many_terms_and_documents_in_a_block() -> None:
    """So many that a term and a document no longer fit into 32 bits together."""
    drawn = random.Random(3)
    found = [f"w{drawn.randrange(200_000)} t{place}x w{drawn.randrange(200_000)}" for place in range(40_000)]
    index = build_index(numbered(found))
    assert len(index.terms) << 16 > 1 << 32
    assert counted(index) == [Counter(analyze(text)) for text in found]


@pytest.mark.parametrize(("times", "width"), [(255, np.uint8), (256, np.uint16), (70_000, np.uint32)])
def test_frequencies_take_no_more_bytes_than_they_need(times: int, width: type, tmp_path: Path) -> None:
    index = build_index(Texts(["d1", "d2"], ["cell " * times, "cell wall"]))
    index.save(tmp_path)
    assert index.postings(index.number("cell")).values.tolist() == [times, 1]
    assert InvertedIndex.mapped(tmp_path).values.dtype == width


def test_progress_counts_every_document(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(postings_builder, "BLOCK", 10)
    seen: list[float] = []
    build_index(numbered(["one two three"] * 7), seen.append)
    assert sum(seen) == 7
    assert len(seen) > 1


@pytest.mark.parametrize("found", [[], [""], ["the of and"], ["cells β 東京"]])
def test_save_and_open(found: list[str], tmp_path: Path) -> None:
    built = build_index(numbered(found))
    built.save(tmp_path)
    opened = InvertedIndex.mapped(tmp_path)
    assert list(opened.terms) == list(built.terms)
    for name in ("offsets", "documents", "values", "lengths", "ties"):
        assert np.array_equal(getattr(opened, name), getattr(built, name)), name


def files(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(texts, max_size=30), st.sampled_from([1, 2_000, 9_000, 1 << 20]))
def test_any_memory_gives_the_same_files(tmp_path_factory, found: list[str], memory: int) -> None:
    """From a run for every document, with the vocabulary forgotten each time, to no run at all."""
    whole, streamed = tmp_path_factory.mktemp("whole"), tmp_path_factory.mktemp("streamed")
    build_index(numbered(found)).save(whole)
    write_index(numbered(found), streamed, memory)
    assert files(streamed) == files(whole)


def test_many_runs_of_real_texts_give_the_same_files(collections, tmp_path: Path, monkeypatch) -> None:
    documents = load(collections / "medline").collection.documents
    build_index(documents).save(tmp_path)
    spilled: list[int] = []
    merge = index_builder.merge_runs

    def counting(runs: list[Path], folder: Path, memory: int) -> None:
        spilled.append(len(runs))
        merge(runs, folder, memory)

    monkeypatch.setattr(index_builder, "merge_runs", counting)
    for memory in (1 << 20, 6 << 20):
        folder = tmp_path / f"with-{memory}"
        folder.mkdir()
        write_index(documents, folder, memory)
        built = files(folder)
        shutil.rmtree(folder)
        assert built == files(tmp_path)
    assert spilled[0] > spilled[1] > 1
