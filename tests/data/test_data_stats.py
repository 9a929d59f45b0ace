"""The figures of a dataset, and the order-free, content-only fingerprint."""

from __future__ import annotations

import numpy as np
import orjson
import pytest
from folders import SMALL, Content, write_r2med
from hypothesis import given
from hypothesis import strategies as st

from r2med.data.dataset import text_fingerprint
from r2med.data.loader import load
from r2med.data.validate import Lengths, stats

texts = st.lists(st.text(max_size=5), max_size=5)


def test_the_figures_of_a_small_task(tmp_path):
    content = Content(
        documents=[("d1", "", "a b c"), ("d2", "", "x"), ("d3", "", ""), ("d4", "", "a b c"), ("q1", "", "é")],
        queries=[("q1", "one two"), ("q2", "one two three four")],
        qrels=[("q1", "d1", 1), ("q1", "d2", 2), ("q2", "d2", 1), ("q2", "d3", 0)],
    )
    write_r2med(tmp_path, content)
    figures = stats(load(tmp_path))
    assert (figures.queries, figures.documents, figures.qrels, figures.positives) == (2, 5, 3, 1.5)
    assert figures.query_words == Lengths(mean=3.0, p5=2, p50=2, p95=4, max=4)
    assert figures.document_words == Lengths(mean=1.6, p5=0, p50=1, p95=3, max=3)
    assert (figures.distinct_texts, figures.empty_documents, figures.one_character_documents) == (4, 1, 2)
    assert figures.shared_ids == 1
    assert figures.fingerprint == load(tmp_path).fingerprint
    assert orjson.loads(orjson.dumps(figures))["query_words"]["p95"] == 4


@given(st.lists(st.integers(0, 30), min_size=1, max_size=40))
def test_percentiles_are_lengths_that_occur(lengths):
    found = Lengths.of([" ".join("w" * n) for n in lengths])
    assert found.mean == pytest.approx(np.mean(lengths))
    for share, value in ((0.05, found.p5), (0.5, found.p50), (0.95, found.p95)):
        assert value in lengths
        assert sum(n <= value for n in lengths) >= share * len(lengths) - 1e-9
        assert sum(n < value for n in lengths) < share * len(lengths) + 1e-9


@given(texts, texts, texts, texts)
def test_only_equal_columns_have_equal_fingerprints(one, two, three, four):
    assert (text_fingerprint(one, two) == text_fingerprint(three, four)) == ((one, two) == (three, four))


def test_moving_a_boundary_changes_the_fingerprint():
    columns = [
        ["a", "bc"],
        ["ab", "c"],
        ["abc"],
        ["abc", ""],
        ["", "abc"],
        ["a\n", "bc"],
        ["\u00e9"],
        ["e\u0301"],
        ["\ud800"],
    ]
    assert len({text_fingerprint(column) for column in columns}) == len(columns)
    assert text_fingerprint(["a"], ["b"]) != text_fingerprint(["a", "b"])
    assert text_fingerprint(["x"] * 1000) != text_fingerprint(["x"] * 1001)


def test_the_order_of_documents_counts_and_that_of_judgements_does_not(tmp_path):
    write_r2med(tmp_path / "a", SMALL)
    write_r2med(tmp_path / "b", Content(SMALL.documents, SMALL.queries, SMALL.qrels[::-1], SMALL.answers))
    write_r2med(tmp_path / "c", Content(SMALL.documents[::-1], SMALL.queries, SMALL.qrels, SMALL.answers))
    a, b, c = (load(tmp_path / name) for name in "abc")
    assert a.fingerprint == b.fingerprint != c.fingerprint
