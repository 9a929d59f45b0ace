"""Fusion gives the scores of its definitions, which are also ranx's."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from r2med.data.dataset import Collection, Generation, Texts
from r2med.data.run import Run
from r2med.data.tasks import folder_task
from r2med.errors import SpecError
from r2med.pipeline.executor.local import quiet
from r2med.pipeline.stage import Context
from r2med.pipeline.system import System
from r2med.retrieve.fusion import RRF, CombMNZ, Views, WeightedSum
from r2med.store.cache import Cache

scores = st.floats(-50, 50, allow_nan=False).map(lambda value: round(value, 3))
one_list = st.dictionaries(st.sampled_from([f"d{n}" for n in range(9)]), scores, min_size=1, max_size=9)
one_run = st.fixed_dictionaries({"q1": one_list, "q2": one_list})


def as_run(lists: dict[str, dict[str, float]]) -> Run:
    return Run.from_lists({query: (list(found), list(found.values())) for query, found in lists.items()})


def fused(run: Run) -> dict[str, dict[str, float]]:
    return {query: dict(zip(ranking.documents, ranking.scores.tolist(), strict=True)) for query, ranking in run}


def ranx_fused(runs: list[Run], norm: str | None, method: str, **params: object) -> dict[str, dict[str, float]]:
    # Its functions are the same uncompiled, and compiling them would take longer than all of this file.
    pytest.importorskip("numba").config.DISABLE_JIT = True
    ranx = pytest.importorskip("ranx")
    # ranx ranks tied documents in the order it is given them, so it is given ours.
    given_runs = [ranx.Run(fused(run)) for run in runs]
    done = ranx.fuse(given_runs, norm=norm, method=method, params=params or None)
    return {query: dict(done.run[query]) for query in done.run}


def close(ours: dict[str, dict[str, float]], theirs: dict[str, dict[str, float]]) -> None:
    assert ours.keys() == theirs.keys()
    for query, expected in theirs.items():
        assert ours[query] == pytest.approx(expected, abs=1e-6)


@given(st.lists(one_run, min_size=2, max_size=4), st.integers(1, 100))
def test_rrf_by_its_definition(lists: list[dict[str, dict[str, float]]], k: int) -> None:
    runs = [as_run(found) for found in lists]
    ours = fused(RRF(*["bm25"] * len(runs), k=float(k)).merge(runs))
    for query in ("q1", "q2"):
        expected: dict[str, float] = {}
        for run in runs:
            for place, document in enumerate(run[query].documents, 1):
                expected[document] = expected.get(document, 0) + 1 / (k + place)
        assert ours[query] == pytest.approx(expected)


@given(st.lists(one_run, min_size=2, max_size=3))
def test_weighted_sum_by_its_definition(lists: list[dict[str, dict[str, float]]]) -> None:
    runs = [as_run(found) for found in lists]
    weights = [float(n + 1) for n in range(len(runs))]
    ours = fused(WeightedSum(*["bm25"] * len(runs), weights=weights, norm="none").merge(runs))
    for query in ("q1", "q2"):
        documents = {document for found in lists for document in found[query]}
        expected = {d: sum(w * f[query].get(d, 0.0) for w, f in zip(weights, lists, strict=True)) for d in documents}
        assert ours[query] == pytest.approx(expected, abs=1e-9)


@pytest.mark.parametrize(
    ("stage", "norm", "method", "params"),
    [
        (RRF("bm25", "bm25", k=60.0), None, "rrf", {"k": 60}),
        (WeightedSum("bm25", "bm25"), "min-max", "sum", {}),
        (WeightedSum("bm25", "bm25", norm="z-score"), "zmuv", "sum", {}),
        (WeightedSum("bm25", "bm25", weights=[0.3, 0.7]), "min-max", "wsum", {"weights": [0.3, 0.7]}),
        (CombMNZ("bm25", "bm25"), "min-max", "mnz", {}),
    ],
    ids=["rrf", "sum", "z-score", "weights", "mnz"],
)
def test_equal_to_ranx_on_random_runs(stage, norm, method, params) -> None:
    generator = np.random.default_rng(7)
    for _ in range(10):
        runs = []
        for _ in range(2):
            lists = {}
            for query in ("q1", "q2", "q3"):
                documents = generator.choice(200, size=100, replace=False)
                lists[query] = ([f"d{n}" for n in documents], generator.normal(size=100))
            runs.append(Run.from_lists(lists))
        wide = type(stage)(*["bm25"] * 2, **{**vars_of(stage), "depth": 1000})
        close(fused(wide.merge(runs)), ranx_fused(runs, norm, method, **params))


def vars_of(stage) -> dict[str, object]:
    return {name: value for name, value in vars(stage).items() if name not in ("systems", "depth")}


def test_depth_cuts_and_missing_documents_add_nothing() -> None:
    a = as_run({"q": {"x": 3.0, "y": 2.0}})
    b = as_run({"q": {"y": 9.0, "z": 1.0}})
    run = RRF("bm25", "bm25-classic", depth=2).merge([a, b])
    assert run["q"].documents == ["y", "x"]
    assert run["q"].scores.tolist() == pytest.approx([1 / 62 + 1 / 61, 1 / 61])


@pytest.mark.parametrize("kind", [WeightedSum, CombMNZ])
def test_a_list_of_one_document_or_of_equal_scores_counts_as_found(kind: type[WeightedSum]) -> None:
    """By min-max the only hit of a list would be 0, as if it had not been found."""
    single, others = as_run({"q": {"z": 3.0}}), as_run({"q": {"x": 3.0, "y": 2.0}})
    assert fused(kind("bm25", "bm25").merge([single, others]))["q"] == {"z": 1.0, "x": 1.0, "y": 0.0}
    equal = as_run({"q": {"z": 5.0, "y": 5.0}})
    assert fused(kind("bm25", "bm25", weights=[0.4, 0.6]).merge([equal, others]))["q"]["z"] == pytest.approx(0.4)
    assert "equal scores" in kind("bm25").fingerprint(), "runs that were made otherwise are not taken for these"


def test_an_empty_list_is_no_obstacle() -> None:
    a = as_run({"q": {"x": 3.0}})
    nothing = Run.from_lists({"q": ([], [])})
    assert WeightedSum("bm25", "bm25").merge([a, nothing])["q"].documents == ["x"]
    assert CombMNZ("bm25", "bm25").merge([nothing, nothing])["q"].documents == []


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("rrf()", "at least one system"),
        ("rrf(bm25, bm25-classic, weights=[1])", "2 systems and 1 weights"),
        ("rrf(bm25, k=-1)", "k must not be negative"),
        ("rrf(bm25, k=1e23)", "k must be at most 1e\\+06"),
        ("wsum(bm25, bm25-classic, weights=[0, 0])", "one of them not 0"),
        ("wsum(bm25, bm25-classic, weights=[1e308, 1e308])", "numbers up to 1e\\+06"),
        ("rrf(bm25, depth=0)", "depth must be at least 1"),
        ("wsum(bm25, norm=softmax)", "unknown norm 'softmax'"),
        ("rrf(bm25, bm26)", "unknown stage 'bm26'; did you mean bm25"),
        ("rrf(bm25, kk=3)", "rrf has no option 'kk'"),
        ("views()", "lacks system"),
    ],
)
def test_wrong_fusions_are_one_line(text: str, complaint: str) -> None:
    with pytest.raises(SpecError, match=complaint) as caught:
        System.parse(text)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    "text",
    [
        "rrf(bm25, bm25-classic)",
        "rrf(bm25(k1=1.2), bm25-classic, weights=[1, 2.5], depth=50, k=10)",
        "wsum(bm25, bm25-classic, norm=z-score)",
        "combmnz(bm25, rrf(bm25, bm25-classic))",
        "views(bm25, k=10)",
    ],
)
def test_specs_of_fusions_round_trip(text: str) -> None:
    assert System.parse(text).spec == text


def test_views_search_with_every_text_of_a_query(tmp_path) -> None:
    documents = Texts(["a", "b", "c"], ["fever rash", "lupus nephritis", "broken bone"])
    plain = Collection(folder_task(tmp_path), documents, Texts(["q"], ["fever"]))
    expanded = plain.expanded([[Generation("lupus", "hyde"), Generation("", "hyde", incomplete="refused")]])
    context = Context(Cache(tmp_path), quiet())
    found = Views(System.parse("bm25")).retrieve(expanded, context)["q"]
    assert sorted(found.documents) == ["a", "b"]
    # The incomplete generation is replaced by the query itself, which therefore counts twice.
    assert found.documents[0] == "a"
