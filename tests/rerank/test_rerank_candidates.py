"""Lists put together again: new scores above, the rest below in the order it had, and what is unusable left alone."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from rerank_parts import collection, context, order, run_over

from r2med.data.run import Run
from r2med.errors import R2medError
from r2med.lexical.ranking import rank
from r2med.rerank.candidates import CandidateList, candidates, checked, in_order, reranked
from r2med.rerank.listwise import Listwise

STAGE = Listwise("gpt-4o")
finite = st.floats(-(2.0**120), 2.0**120, width=32)


def shown(count: int) -> CandidateList:
    names = [f"d{n}" for n in range(count)]
    return CandidateList("q1", "why?", names, names, np.arange(count, 0, -1.0))


@given(st.lists(finite, min_size=1, max_size=12), st.lists(finite, max_size=12))
def test_the_tail_keeps_its_order_under_any_scores(new: list[float], rest: list[float]) -> None:
    names = [f"d{n:02}" for n in range(len(new) + len(rest))]
    before = Run.from_lists({"q": (names, sorted([*new, *rest], reverse=True))})
    head = before["q"].documents[: len(new)]
    found = CandidateList("q", "", head, head, before["q"].scores[: len(new)])
    after = reranked(STAGE, before, [found], [np.array(new)], context())["q"]
    assert set(after.documents[: len(new)]) == set(head)
    assert list(after.documents[len(new) :]) == list(before["q"].documents[len(new) :])
    assert (
        dict(zip(after.documents, after.scores.tolist(), strict=True)).items()
        >= dict(zip(head, new, strict=True)).items()
    )


@given(st.data())
def test_scores_in_order_rank_in_that_order(data: st.DataObject) -> None:
    scores = data.draw(st.lists(st.sampled_from([0.0, 1.0, 5.5, 10.0, 1e-9]), min_size=1, max_size=20))
    best_first = data.draw(st.permutations(range(len(scores))))
    made = in_order(best_first, scores)
    names = data.draw(st.permutations([f"d{n}" for n in range(len(scores))]))
    assert rank(names, made).tolist() == list(best_first)


def test_scores_that_need_no_nudge_stay_as_they_are() -> None:
    assert in_order([1, 0], [0.1, 0.2]).tolist() == [0.1, 0.2]


@pytest.mark.parametrize(
    ("scores", "reason"),
    [
        ([1.0, math.nan, 2.0], "the score of d1 is nan"),
        ([1.0, 2.0, math.inf], "the score of d2 is inf"),
        ([-3e38, 1.0, 2.0], "the score of d0 is -3e+38"),
        ([1e39, 1.0, 2.0], "the score of d0 is 1e+39"),
        ([1.0, 2.0], "2 scores for 3 documents"),
        ([1.0, 2.0, 3.0, 4.0], "4 scores for 3 documents"),
        ([[1.0], [2.0], [3.0]], "an array of shape (3, 1) scores for 3 documents"),
        (5.0, "an array of shape () scores for 3 documents"),
        (["a", "b", "c"], "the scores are not numbers"),
        ([None, 1.0, 2.0], "the score of d0 is nan"),
        (None, "an array of shape () scores for 3 documents"),
    ],
)
def test_unusable_scores_say_why(scores: object, reason: str) -> None:
    assert checked(scores, shown(3)) == reason  # type: ignore[arg-type]


def test_usable_scores_keep_their_precision() -> None:
    single = np.array([1, 2, 3], dtype=np.float32)
    assert checked(single, shown(3)).dtype == np.float32  # type: ignore[union-attr]
    assert checked(np.array([1, 2, 3]), shown(3)).dtype == np.float64  # type: ignore[union-attr]


def test_an_unusable_query_keeps_its_list_and_is_noted() -> None:
    data = collection()
    before, own = run_over(data), context()
    found = candidates(data, before, 2)
    after = reranked(STAGE, before, found, ["no luck", np.array([1.0, 2.0])], own)
    assert order(after, "q1") == order(before, "q1")
    assert order(after, "q2") == ["d2", "d1", "d3", "d4", "d5"]
    assert own.notes.incomplete == {"q1": "no luck"}
    assert own.notes.warnings == [f"{STAGE}: 1 of 2 queries keep the order they had; the first is q1: no luck"]


def test_strict_makes_it_an_error() -> None:
    data, own = collection(), context()
    own.strict = True
    before = run_over(data)
    found = candidates(data, before, 2)
    with pytest.raises(R2medError, match="q1: no luck"):
        reranked(STAGE, before, found, ["no luck"] * 2, own)


def test_a_query_without_documents_is_no_candidate() -> None:
    data = collection()
    run = Run.from_lists({"q1": ([], []), "q2": (["d1"], [1.0])})
    assert [found.query for found in candidates(data, run, 5)] == ["q2"]
    assert len(reranked(STAGE, run, candidates(data, run, 5), [np.array([3.0])], context())) == 2
