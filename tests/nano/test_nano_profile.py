"""The profile: its figures, its averages, and the published ones beside."""

from __future__ import annotations

from io import StringIO

import numpy as np
import pytest
from rich.console import Console
from sources import folder

from data.folders import Content, put_parquet, write_nano, write_r2med
from r2med.data.run import Run
from r2med.errors import DataError
from r2med.nano.builder import build
from r2med.nano.cli import show_profile
from r2med.nano.profile import SetProfile, TaskProfile, best, figures, profile, published
from r2med.nano.recipe import Recipe
from r2med.pipeline.evaluate import evaluate

SPLIT = "NanoR2MEDBiology"
DOCUMENTS = [(f"d{number:03}", "", f"text {number}") for number in range(150)]
IDS = [name for name, _, _ in DOCUMENTS]


def nano(path, lists, qrels, split=SPLIT):
    """A set of the published schema with the given hybrid lists."""
    write_nano(path, Content(DOCUMENTS, [(query, query) for query in lists], [(q, d, 1) for q, d in qrels]), split)
    for config in ("bm25", "harrier_oss_v1_270m", "reranking_hybrid"):
        rows = [(query, names if config == "reranking_hybrid" else names[:100]) for query, names in lists.items()]
        put_parquet(path, f"{config}/{split}-00000-of-00001.parquet", rows, ("query-id", "corpus-ids"))
    return path


def test_recall_is_micro_and_a_safeguard_does_not_count(tmp_path):
    lists = {"q1": IDS[:100], "q2": [*IDS[:100], "d120"]}
    qrels = [("q1", "d000"), ("q1", "d099"), ("q1", "d149"), ("q2", "d120")]
    (task,) = profile([nano(tmp_path, lists, qrels)])[0].tasks
    found = task.profiles["hybrid"]
    # Two of four relevant documents; the mean over queries would be a third.
    assert found.recall_at_100 == pytest.approx(2 / 4)
    assert found.hit_at_10 == pytest.approx(1 / 2)
    assert (task.safeguards, task.positives, task.queries, task.documents) == (1, 4, 2, 150)


def test_a_safeguard_after_a_short_list_does_not_count_either(tmp_path):
    odd = Content(
        [("d1", "", "iron"), ("d2", "", "zinc")],
        [("q1", "xylophone"), ("q2", "iron")],
        [("q1", "d2", 1), ("q2", "d1", 1)],
    )
    write_r2med(tmp_path / "odd", odd)
    build(tmp_path / "odd", tmp_path / "out", Recipe(documents=2))
    (task,) = profile([tmp_path / "out"])[0].tasks
    assert task.safeguards == 1
    assert task.profiles["hybrid"] == task.profiles["bm25"]
    assert task.profiles["hybrid"].recall_at_100 == pytest.approx(0.5)


def test_figures_are_those_of_an_evaluation(tmp_path):
    build(folder(tmp_path / "mine"), tmp_path / "out", Recipe(documents=25, dense="bm25-classic"))
    (task,) = profile([tmp_path / "out"])[0].tasks
    for kind, spec in (("bm25", "bm25"), ("dense", "bm25-classic")):
        metrics = evaluate(spec, tmp_path / "out").results[0].metrics
        assert task.profiles[kind].ndcg_at_10 == pytest.approx(metrics["nDCG@10"])
        assert task.profiles[kind].hit_at_10 == pytest.approx(metrics["Hit@10"])


def test_only_judged_documents_down_to_rank_100_are_found():
    run = Run.from_lists({"q": (IDS, np.arange(150.0)[::-1])})
    assert figures(run, {"q": {"d099": 1, "d100": 1, "d001": 0}}).recall_at_100 == pytest.approx(0.5)


def published_set():
    queries = dict(zip(published(), (77, 103, 129, 118, 97, 88, 114, 150), strict=True))
    tasks = [TaskProfile(name, name, queries[name], 10_000, 1, row, row, 0) for name, row in published().items()]
    return SetProfile("NanoR2MED", tasks)


def test_the_averages_of_the_published_figures_are_the_published_averages():
    averages = published_set().averages()
    weighted = averages["query-weighted"]
    assert {kind: round(each.ndcg_at_10, 4) for kind, each in weighted.items()} == {
        "bm25": 0.2110, "dense": 0.2980, "hybrid": 0.2899,
    }  # fmt: skip
    assert round(weighted["bm25"].recall_at_100, 4) == 0.5070
    assert round(weighted["hybrid"].hit_at_10, 4) == 0.5833
    assert averages["macro"]["dense"].ndcg_at_10 == pytest.approx(
        np.mean([row["dense"].ndcg_at_10 for row in published().values()])
    )


def test_the_best_profiles_are_the_published_ones():
    names = {task.split.removeprefix("NanoR2MED"): best(task.profiles) for task in published_set().tasks}
    assert {name for name, kind in names.items() if kind == "hybrid"} == {"IIYiClinical", "MedQADiag", "PMCClinical"}
    assert {kind for name, kind in names.items() if name not in ("IIYiClinical", "MedQADiag", "PMCClinical")} == {
        "dense"
    }


def shown(found, width=160):
    buffer = StringIO()
    show_profile(found, Console(file=buffer, width=width, color_system=None))
    return buffer.getvalue()


def test_the_table_has_the_published_figures_beside():
    text = shown(published_set())
    (line,) = [line for line in text.split("hit@10")[0].splitlines() if line.strip().startswith("NanoR2MEDBiology")]
    assert line.split() == [
        "NanoR2MEDBiology",
        "103",
        "10,000",
        "1",
        "0.01",
        *["0.3455", "0.4953", "0.4722"],
        "dense",
        *["0.3455", "0.4953", "0.4722"],
    ]
    assert text.count("query-weighted") == 3
    assert "0.2110" in text
    assert max(map(len, text.splitlines()[:-1])) <= 140


def test_published_figures_stand_only_beside_sets_built_as_published(tmp_path):
    source = folder(tmp_path / "Biology")
    build(source, tmp_path / "out", Recipe(documents=25))
    (found,) = profile([tmp_path / "out"])
    assert found.tasks[0].split == SPLIT
    assert found.tasks[0].published == {}
    assert found.published_averages() == {}
    assert "publ." not in shown(found)
    assert found.as_dict()["tasks"][0]["best_published"] is None


def test_every_set_has_averages_of_its_own(tmp_path):
    sources = [folder(tmp_path / "a"), folder(tmp_path / "b", queries=3)]
    build(sources, tmp_path / "one", Recipe(documents=25))
    build(sources[0], tmp_path / "two", Recipe(documents=25, policy="hard", dense="bm25-classic"))
    one, two = profile([tmp_path / "one", tmp_path / "two"])
    assert [task.split for task in one.tasks] == ["NanoA", "NanoB"]
    assert two.dense == "bm25-classic(depth=500)"
    values, weights = [task.profiles["bm25"].hit_at_10 for task in one.tasks], [6, 3]
    assert one.averages()["query-weighted"]["bm25"].hit_at_10 == pytest.approx(np.average(values, weights=weights))
    assert one.averages()["macro"]["bm25"].hit_at_10 == pytest.approx(np.mean(values))
    assert set(one.averages()["macro"]) == {"bm25", "hybrid"}


@pytest.mark.parametrize(
    ("name", "message"), [("Biology", "is not a nano task"), ("sample/Biology", "has no candidate lists")]
)
def test_what_is_no_nano_set_has_no_profile(name, message):
    with pytest.raises(DataError, match=message):
        profile([name])
