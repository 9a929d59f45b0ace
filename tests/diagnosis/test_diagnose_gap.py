"""The gap and the ceiling: known texts give known figures, and a share of the way is one."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from planted import write_task
from r2med.data.dataset import Texts
from r2med.data.loader import load
from r2med.diagnosis.gap import PAIRS, Rarity, climb, floor_and_ceiling, measure_gap
from r2med.errors import R2medError
from r2med.lexical.builder import build_index
from r2med.runs.ledger import Ledger

WORDS = st.lists(st.sampled_from(["gum", "toe", "the", "gout", "scurvy", "unheard"]), max_size=6).map(" ".join)
RARITY = Rarity(build_index(Texts(["a", "b", "c"], ["gum toe", "gum gout", "gum scurvy"])))


@given(WORDS, WORDS)
def test_coverage_is_a_share_and_whole_for_a_text_in_itself(one: str, other: str) -> None:
    found = RARITY.coverage(one, other)
    assert found is None or 0 <= found <= 1
    assert RARITY.coverage(one, one) in (None, 1.0)
    assert RARITY.coverage(one, f"{other} {one}") in (None, 1.0)
    assert (found is None) == (not RARITY.terms(one))


def test_rare_words_weigh_more_and_unheard_ones_most() -> None:
    assert RARITY.idf("gum") < RARITY.idf("gout") < RARITY.idf("unheard")
    shared = RARITY.coverage("gum gout", "gout")
    assert shared == pytest.approx(RARITY.idf("gout") / (RARITY.idf("gum") + RARITY.idf("gout")))


@pytest.fixture
def task(tmp_path: Path) -> Path:
    documents = {"d1": "scurvy lacks vitamin", "d2": "gout has crystals", "d3": "rain falls", "empty": ""}
    queries = {"q1": "bleeding gums", "q2": "hot toe crystals", "q3": "unanswered"}
    relevant = {"q1": ["d1", "empty"], "q2": ["d2"], "q3": ["d3"]}
    return write_task(tmp_path / "t", documents, queries, relevant, {"q1": "scurvy", "q2": "gout", "q3": " "})


def test_the_gap_of_a_planted_task(task: Path) -> None:
    found = measure_gap(load(task))
    assert found.queries == 2, "only queries with an answer"
    assert set(found.overlap) == set(found.similarity) == set(PAIRS)
    assert found.overlap["answer-positive"].value == 1.0
    assert found.overlap["query-answer"].value == 0.0
    rarity = Rarity.of(load(task).collection.documents)
    expected = rarity.weight({"crystal"}) / rarity.weight({"hot", "toe", "crystal"})
    assert found.overlap["query-positive"].value == pytest.approx(expected / 2)
    assert found.overlap["query-other"].value == 0.0
    assert all(-1 <= each.low <= each.value <= each.high <= 1 for each in found.similarity.values())


def test_similarity_is_the_cosine_of_the_vectors(tmp_path: Path) -> None:
    folder = write_task(tmp_path / "t", {"d": "gout of the toe"}, {"q": "gout of the toe"}, {"q": ["d"]}, {"q": "gout"})
    found = measure_gap(load(folder)).similarity
    assert found["query-positive"].value == pytest.approx(1.0)
    assert found["answer-positive"].value == pytest.approx(found["query-answer"].value)
    assert "query-other" not in found, "no other query has documents"


def test_the_sample_shows_the_gap() -> None:
    found = measure_gap(load("sample/MedQA-Diag"))
    assert found.overlap["answer-positive"].low > found.overlap["query-positive"].high
    assert found.overlap["query-positive"].value > found.overlap["query-other"].value
    assert found.as_dict()["encoder"] == "wordllama"


def test_what_cannot_be_measured_is_one_line(task: Path, tmp_path: Path) -> None:
    bare = write_task(tmp_path / "bare", {"d": "gout"}, {"q": "toe"}, {"q": ["d"]})
    with pytest.raises(R2medError, match="has no gold answers"):
        measure_gap(load(bare))
    with pytest.raises(R2medError, match="bm25 is not an encoder"):
        measure_gap(load(task), "bm25")


# No measure gives numbers so small that their mean is lost.
SCORES = st.lists(st.tuples(*[st.floats(0, 1).map(lambda value: round(value, 6))] * 3), min_size=2, max_size=12)


def columns(rows: list[tuple[float, float, float]], *order: int) -> tuple[dict[str, float], ...]:
    return tuple({f"q{n}": row[place] for n, row in enumerate(rows)} for place in order)


@given(SCORES)
def test_the_floor_closes_nothing_and_the_ceiling_everything(rows: list[tuple[float, float, float]]) -> None:
    floor = climb("bm25", "s", {"t": columns(rows, 0, 1, 0)}).overall  # type: ignore[dict-item]
    ceiling = climb("bm25", "s", {"t": columns(rows, 0, 1, 1)}).overall  # type: ignore[dict-item]
    if floor.oracle > floor.plain:
        assert floor.closed == 0.0
        assert ceiling.closed == 1.0
        assert ceiling.low == pytest.approx(1.0)
    else:
        assert floor.closed is ceiling.closed is None


@given(SCORES)
def test_queries_are_aligned_by_id(rows: list[tuple[float, float, float]]) -> None:
    plain, oracle, system = columns(rows, 0, 1, 2)
    turned = dict(reversed(system.items()))
    one, other = (climb("bm25", "s", {"t": (plain, oracle, each)}).overall for each in (system, turned))
    assert one == other


def test_the_average_is_over_tasks_not_queries() -> None:
    ends = {"t1": columns([(0.0, 1.0, 1.0)] * 9, 0, 1, 2), "t2": columns([(0.0, 0.5, 0.0)] * 2, 0, 1, 2)}
    found = climb("bm25", "s", ends)  # type: ignore[arg-type]
    assert (found.overall.plain, found.overall.oracle, found.overall.system) == (0.0, 0.75, 0.5)
    assert found.overall.closed == pytest.approx(2 / 3)
    assert found.oracle == "oracle-answer >> bm25"


def test_floor_and_ceiling_are_runs_of_the_ledger() -> None:
    plain, oracle = floor_and_ceiling("replay >> bm25", load("sample/Biology"))
    assert np.mean(list(oracle.values())) > np.mean(list(plain.values()))
    with Ledger() as ledger:
        kept = {entry.system: entry.oracle for entry in ledger.entries()}
    assert kept == {"bm25": False, "oracle-answer >> bm25": True}
