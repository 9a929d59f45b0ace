"""The one ranking rule, against its plainest possible statement, and what a `Run` keeps."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from r2med.data.run import Run
from r2med.errors import R2medError
from r2med.lexical.ranking import id_order, rank, top

tied = st.sampled_from([0.0, -0.0, 1.0, 1.0 + 1e-12, 1e300, -1e300, 1e-60, float("inf"), float("-inf")])
values = st.lists(st.one_of(tied, st.integers(-3, 3), st.floats(allow_nan=False)), max_size=40)
names = st.text(alphabet="ab1éß\uffee\U0001f9ea-", max_size=4)


def spelled_out(documents: list[str], scores: np.ndarray[Any, Any]) -> list[int]:
    """Score descending in single precision, then the bytes of the id descending, as trec_eval compares them."""
    with np.errstate(over="ignore"):
        keys = [(float(np.float32(score)), name.encode()) for name, score in zip(documents, scores, strict=True)]
    return sorted(range(len(keys)), key=keys.__getitem__, reverse=True)


@st.composite
def scored(draw: st.DrawFn) -> tuple[list[str], np.ndarray[Any, Any]]:
    scores = np.array(draw(values), dtype=np.float64)
    documents = draw(st.lists(names, min_size=len(scores), max_size=len(scores), unique=True))
    if draw(st.booleans()):
        with np.errstate(over="ignore"):
            scores = scores.astype(np.float32)
    return documents, scores


@settings(deadline=None)
@given(scored())
def test_rank_is_the_rule(given_list: tuple[list[str], np.ndarray[Any, Any]]) -> None:
    documents, scores = given_list
    assert rank(documents, scores).tolist() == spelled_out(documents, scores)


@settings(deadline=None)
@given(scored(), st.integers(-1, 45))
def test_top_is_the_beginning_of_rank(given_list: tuple[list[str], np.ndarray[Any, Any]], depth: int) -> None:
    documents, scores = given_list
    assert top(scores, depth, id_order(documents)).tolist() == spelled_out(documents, scores)[: max(depth, 0)]


@settings(deadline=None)
@given(st.lists(names, unique=True))
def test_id_order_sorts_ids_descending(ids: list[str]) -> None:
    places = id_order(ids)
    assert [name for _, name in sorted(zip(places.tolist(), ids, strict=True))] == sorted(ids, reverse=True)


@pytest.mark.filterwarnings("error")
def test_scores_beyond_single_precision_tie_without_a_warning() -> None:
    assert rank(["a", "b"], np.array([1e300, 1e200])).tolist() == [1, 0]
    assert top(np.array([1e300, 1e200]), 1, id_order(["a", "b"])).tolist() == [1]


@settings(deadline=None)
@given(st.dictionaries(names, scored(), max_size=5), st.integers(0, 10))
def test_a_run_holds_each_list_by_the_rule(
    lists: dict[str, tuple[list[str], np.ndarray[Any, Any]]], depth: int
) -> None:
    run = Run.from_lists(lists)
    assert list(run.queries) == list(lists)
    assert run.rows == sum(len(documents) for documents, _ in lists.values()) == run.offsets[-1]
    for query, (documents, scores) in lists.items():
        order = spelled_out(documents, scores)
        assert list(run[query].documents) == [documents[i] for i in order]
        assert run[query].scores.tolist() == scores[order].tolist()
        shallow = run.cut(depth)[query]
        assert list(shallow.documents) == [documents[i] for i in order[:depth]]
        assert shallow.scores.tolist() == scores[order[:depth]].tolist()
    assert run.cut(100) == run == run.select(lists)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_precision_is_kept_also_beside_empty_lists(dtype: type[np.floating[Any]]) -> None:
    run = Run.from_lists({"a": ([], []), "b": (["x", "y"], np.array([0.1, 0.2], dtype=dtype)), "c": ([], [])})
    for other in (run, run.cut(1), run.select(["b", "never"]), run.without_self("abc")):
        assert other.scores.dtype == dtype
        assert other["b"].scores[0] == dtype(0.2)


def test_whole_number_scores_become_doubles() -> None:
    run = Run.from_lists({"q": (["a", "b"], [1, 2])})
    assert run.scores.dtype == np.float64
    assert run["q"].documents == ["b", "a"]


def test_select_keeps_the_order_asked_for_and_gives_empty_lists() -> None:
    run = Run.from_lists({"q1": (["a"], [1.0]), "q2": (["b", "c"], [1.0, 2.0])}).select(["q2", "q3"])
    assert list(run.queries) == ["q2", "q3"]
    assert [list(ranking.documents) for _, ranking in run] == [["c", "b"], []]
    assert "q1" not in run
    assert "q3" in run


def test_without_self_drops_only_the_querys_own_id() -> None:
    run = Run.from_lists({"a": (["a", "b", "c"], [1.0, 3.0, 0.5]), "b": (["c"], [1.0]), "c": (["c"], [1.0])})
    dropped = run.without_self({"a", "c"})
    assert {query: list(ranking.documents) for query, ranking in dropped} == {"a": ["b", "c"], "b": ["c"], "c": []}
    assert dropped["a"].scores.tolist() == [3.0, 0.5]
    assert run["a"].documents == ["b", "a", "c"]
    assert run.without_self({"c"})["a"].documents == ["b", "a", "c"]


def test_runs_differ_in_any_of_their_parts() -> None:
    run = Run.from_lists({"q": (["a", "b"], [1.0, 2.0])})
    others = [
        {"p": (["a", "b"], [1.0, 2.0])},
        {"q": (["a", "c"], [1.0, 2.0])},
        {"q": (["a", "b"], [1.0, 2.5])},
        {"q": (["a", "b"], np.array([1, 2], dtype=np.float32))},
        {"q": (["a", "b"], [1.0, 2.0]), "r": ([], [])},
    ]
    assert run == Run.from_lists({"q": (["b", "a"], [2.0, 1.0])})
    assert all(run != Run.from_lists(lists) for lists in others)
    assert run != "run"


def test_bad_lists_are_refused() -> None:
    with pytest.raises(R2medError, match="query q: the score of b is not a number"):
        Run.from_lists({"q": (["a", "b"], [1.0, float("nan")])})
    with pytest.raises(R2medError, match="query q: document b appears more than once"):
        Run.from_lists({"q": (["a", "b", "b"], [1.0, 2.0, 3.0])})
    with pytest.raises(ValueError, match="query q: 1 documents for 2 scores"):
        Run.from_lists({"q": (["a"], [1.0, 2.0])})
    with pytest.raises(ValueError, match="depth of -1"):
        Run.from_lists({"q": (["a"], [1.0])}).cut(-1)
