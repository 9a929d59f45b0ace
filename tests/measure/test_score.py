"""Scores equal trec_eval's to 1e-9, whatever the run and the judgements look like."""

from __future__ import annotations

import math

import numpy as np
import pytest
import pytrec_eval
from hypothesis import given, settings
from hypothesis import strategies as st

from r2med.data.run import Run
from r2med.errors import R2medError
from r2med.measure.metrics import DEFAULT, Measure, parse_all
from r2med.measure.score import positive, score

Lists = dict[str, dict[str, float]]
Judgements = dict[str, dict[str, int]]

QUERIES = [f"q{i}" for i in range(6)]
DOCUMENTS = [*(f"d{i}" for i in range(14)), "é", "\uffee", "\U0001f9ea"]
CUTOFFS = (1, 2, 3, 5, 10, 100)
MEASURES = parse_all(
    f"{name}@{cutoff}" for name in ("nDCG", "MAP", "Recall", "P", "MRR", "Hit") for cutoff in CUTOFFS
) + parse_all(["nDCG", "MAP", "MRR"])

# Equal in single precision, equal beyond its range, or equal outright: all of these are ties to trec_eval.
ties = st.sampled_from([0.0, -0.0, 1.0, 1.0 + 1e-12, 2.0, 1e-50, 1e300, 1e200, -1e300, 0.1, float(np.float32(0.1))])
scores = st.one_of(ties, st.floats(-10, 10))
lists = st.dictionaries(
    st.sampled_from([*QUERIES, "unjudged"]), st.dictionaries(st.sampled_from(DOCUMENTS), scores, max_size=14)
)
grades = st.dictionaries(st.sampled_from([*DOCUMENTS, "elsewhere"]), st.integers(-2, 4), min_size=1)
judgements = st.dictionaries(st.sampled_from(QUERIES), grades, min_size=1)


def as_run(lists: Lists) -> Run:
    return Run.from_lists({query: (list(found), list(found.values())) for query, found in lists.items()})


NATIVE = {"nDCG": "ndcg_cut", "MAP": "map_cut", "Recall": "recall", "P": "P", "Hit": "success"}
WHOLE = {"nDCG": "ndcg", "MAP": "map", "MRR": "recip_rank"}


def reference(lists: Lists, qrels: Judgements) -> dict[Measure, dict[str, float]]:
    """trec_eval's values for each query with a relevant document, 0 for those that are not in the run."""
    # The C code crashes on a query all of whose grades are below -1.
    wanted = {query: judged for query, judged in qrels.items() if max(judged.values()) > 0}
    asked = {f"{name}.{','.join(map(str, CUTOFFS))}" for name in NATIVE.values()} | set(WHOLE.values())
    found = pytrec_eval.RelevanceEvaluator(wanted, asked).evaluate(lists)
    table = {}
    for measure in MEASURES:
        values, key = found, WHOLE.get(measure.name, "")
        if measure.cutoff is not None and measure.name == "MRR":
            shallow = {query: cut(documents, measure.cutoff) for query, documents in lists.items()}
            values = pytrec_eval.RelevanceEvaluator(wanted, {key}).evaluate(shallow)
        elif measure.cutoff is not None:
            key = f"{NATIVE[measure.name]}_{measure.cutoff}"
        table[measure] = {query: values[query][key] if query in values else 0.0 for query in wanted}
    return table


def cut(found: dict[str, float], depth: int) -> dict[str, float]:
    with np.errstate(over="ignore"):
        order = sorted(found, key=lambda document: (np.float32(found[document]), document), reverse=True)
    return {document: found[document] for document in order[:depth]}


def assert_equal_to_trec_eval(lists: Lists, qrels: Judgements) -> None:
    found = score(as_run(lists), qrels, MEASURES)
    for measure, expected in reference(lists, qrels).items():
        assert list(found.queries) == list(expected)
        assert found.values(measure).tolist() == pytest.approx(list(expected.values()), abs=1e-9), str(measure)
        assert found.mean(measure) == pytest.approx(sum(expected.values()) / len(expected), abs=1e-9)


@settings(deadline=None)
@given(lists, judgements.filter(positive))
def test_equal_to_trec_eval(lists: Lists, qrels: Judgements) -> None:
    assert_equal_to_trec_eval(lists, qrels)


def test_equal_to_trec_eval_on_deep_lists() -> None:
    rng = np.random.default_rng(7)
    names = [f"doc{i}" for i in range(3000)]
    lists, qrels = {}, {}
    for place in range(30):
        found = rng.choice(names, size=int(rng.integers(1, 1001)), replace=False).tolist()
        lists[f"q{place}"] = dict(zip(found, rng.random(len(found)).round(2).tolist(), strict=True))
        judged = rng.choice(names, size=40, replace=False).tolist()
        qrels[f"q{place}"] = dict(zip(judged, rng.integers(-1, 4, 40).tolist(), strict=True))
    assert_equal_to_trec_eval(lists, qrels)


def test_by_hand() -> None:
    run = as_run({"q": {"x": 9.0, "good": 8.0, "bad": 7.0, "best": 6.0}})
    found = score(run, {"q": {"best": 3, "good": 1, "bad": -1, "never": 1, "zero": 0}}, MEASURES)
    ideal = 3 + 1 / math.log2(3) + 1 / 2
    assert found.mean(Measure("nDCG", 10)) == pytest.approx((1 / math.log2(3) + 3 / math.log2(5)) / ideal)
    assert found.mean(Measure("MAP")) == pytest.approx((1 / 2 + 2 / 4) / 3)
    assert found.mean(Measure("Recall", 3)) == pytest.approx(1 / 3)
    assert found.mean(Measure("P", 10)) == pytest.approx(2 / 10)
    assert found.mean(Measure("MRR", 1)) == 0
    assert found.mean(Measure("MRR", 2)) == 1 / 2
    assert (found.mean(Measure("Hit", 1)), found.mean(Measure("Hit", 2))) == (0, 1)


def test_queries_are_those_with_a_relevant_document_in_the_order_of_the_judgements() -> None:
    qrels = {"z": {"d1": 1}, "none": {"d1": 0, "d2": -1}, "a": {"d2": 2}, "missing": {"d1": 1}}
    run = as_run({"a": {"d1": 2.0, "d2": 1.0}, "none": {"d1": 1.0}, "z": {"d1": 1.0}, "unjudged": {"d1": 1.0}})
    found = score(run, qrels, [Measure("MRR", 10), Measure("Hit", 10)])
    assert found.queries == ("z", "a", "missing")
    assert found.values(Measure("MRR", 10)).tolist() == [1.0, 0.5, 0.0]
    assert found.as_dict() == {"MRR@10": 0.5, "Hit@10": pytest.approx(2 / 3)}
    assert found.per_query()["a"] == {"MRR@10": 0.5, "Hit@10": 1.0}
    assert found.measures == (Measure("MRR", 10), Measure("Hit", 10))


def test_trec_eval_itself_counts_a_query_without_a_relevant_document_as_zero() -> None:
    """The one rule in which the average differs from trec_eval's, on purpose; this notices if that ever changes."""
    qrels = {"none": {"d1": 0, "d2": -1}}
    assert pytrec_eval.RelevanceEvaluator(qrels, {"ndcg_cut.10"}).evaluate({"none": {"d1": 1.0}}) == {
        "none": {"ndcg_cut_10": 0.0}
    }
    with pytest.raises(R2medError, match="no query has a relevant document"):
        score(as_run({"none": {"d1": 1.0}}), qrels, DEFAULT)


def test_a_run_that_found_nothing_scores_zero() -> None:
    for run in (as_run({}), as_run({"q": {}}), as_run({"other": {"d": 1.0}})):
        assert set(score(run, {"q": {"d": 1}}, MEASURES).as_dict().values()) == {0.0}


def test_the_perfect_run_scores_one() -> None:
    found = score(as_run({"q": {"a": 3.0, "b": 2.0, "c": 1.0}}), {"q": {"a": 3, "b": 2, "c": 1}}, MEASURES)
    assert found.mean(Measure("nDCG", 2)) == 1
    assert found.mean(Measure("MAP")) == 1
    assert found.mean(Measure("P", 3)) == 1


def test_nothing_to_measure_is_an_error() -> None:
    with pytest.raises(R2medError, match="no measure"):
        score(as_run({}), {"q": {"d": 1}}, [])
    with pytest.raises(R2medError, match="no query has a relevant document"):
        score(as_run({}), {})
