"""Runs in the formats of other tools: the shapes those tools read, with the figures of the ranked lists."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

import r2med
from hubserver import HubServer, run_python
from ledgers import commands
from r2med.data.run import Run
from r2med.data.run_files import read_run
from r2med.data.tasks import groups, registry, task
from r2med.errors import R2medError
from r2med.exchange.export import R2MED_MEASURES, Measured, Target, authors, export, mteb, mteb_measures, mteb_task
from r2med.measure.metrics import Measure
from r2med.measure.score import score
from r2med.runs.ledger import Entry, Ledger
from r2med.runs.record import RunRecord

QRELS = {"q1": {"d1": 1, "d3": 1}, "q2": {"d2": 1}}
RUN = Run.from_lists({"q1": (["d1", "d2", "d3"], [3.0, 2.0, 1.0]), "q2": (["d1", "d2"], [2.0, 1.0])})


def entry(name: str, **record: object) -> Entry:
    content = {
        "r2med": "0.1.0",
        "packages": {"numpy": "2.0"},
        "documents": 3,
        "stages": [{"spec": "bm25", "kind": "retriever"}],
        "data": {"fingerprint": "x", "revision": "0" * 40},
        **record,
    }
    made, date = RunRecord.from_json(content), "2026-11-15T10:00:00+00:00"
    return Entry("k" * 32, "bm25", name, registry()[name].group, ("q1", "q2"), 90.0, made, date)


def measured(name: str, measures: tuple[Measure, ...], system: str) -> Measured:
    scores = score(RUN, QRELS, measures)
    return Measured(entry(name), registry()[name], {m: scores.mean(m) for m in measures}, system)


def mteb_files(name: str = "Biology") -> dict[str, bytes]:
    return mteb(measured(name, mteb_measures(3), "r2med/bm25"))


def test_mteb_files_have_the_shape_of_its_results() -> None:
    files = mteb_files()
    folder = f"r2med__bm25/r2med-{r2med.__version__}"
    assert set(files) == {f"{folder}/R2MEDBiologyRetrieval.json", f"{folder}/model_meta.json"}
    found = json.loads(files[f"{folder}/R2MEDBiologyRetrieval.json"])
    assert set(found) == {
        "dataset_revision", "task_name", "mteb_version", "scores", "evaluation_time", "kg_co2_emissions", "date",
    }  # fmt: skip
    assert found["dataset_revision"] == "0" * 40
    [scores] = found["scores"]["test"]
    expected = score(RUN, QRELS, [Measure("nDCG", 10)]).mean(Measure("nDCG", 10))
    assert scores["main_score"] == scores["ndcg_at_10"] == pytest.approx(expected, abs=1e-6)
    assert (scores["hf_subset"], scores["languages"]) == ("default", ["eng-Latn"])
    assert {"map_at_100", "recall_at_20", "precision_at_1", "mrr_at_10"} <= set(scores)
    assert "recall_at_1000" not in scores, "the lists do not go that deep"
    assert Measure("Recall", 1000) in mteb_measures(1000)
    meta = json.loads(files[f"{folder}/model_meta.json"])
    assert (meta["name"], meta["revision"]) == ("r2med/bm25", f"r2med-{r2med.__version__}")


def test_mteb_knows_these_tasks_by_these_names() -> None:
    assert [mteb_task(each.base) for each in groups()["full"]] == [
        "R2MEDBiologyRetrieval",
        "R2MEDBioinformaticsRetrieval",
        "R2MEDMedicalSciencesRetrieval",
        "R2MEDMedXpertQAExamRetrieval",
        "R2MEDMedQADiagRetrieval",
        "R2MEDPMCTreatmentRetrieval",
        "R2MEDPMCClinicalRetrieval",
        "R2MEDIIYiClinicalRetrieval",
    ]


def test_mteb_itself_loads_them(tmp_path: Path) -> None:
    results = pytest.importorskip("mteb.results", reason="mteb is not installed")
    cache = pytest.importorskip("mteb.cache", reason="mteb is not installed")
    for each in groups()["full"]:
        for path, content in mteb_files(each.name).items():
            file = tmp_path / "results" / path
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_bytes(content)
    for file in tmp_path.rglob("R2MED*.json"):
        found = results.TaskResult.from_disk(file)
        assert found.get_score() == json.loads(file.read_bytes())["scores"]["test"][0]["ndcg_at_10"]
        assert found.task.metadata.name == found.task_name
        assert (
            found.task.metadata.revision == registry()[found.task.metadata.dataset["path"].partition("/")[2]].revision
        )
        assert found.validate_and_filter_scores().eval_splits == ["test"]
    loaded = cache.ResultCache(tmp_path).load_results(include_remote=False)
    [model] = loaded.model_results
    assert model.model_name == "r2med/bm25"
    assert len(model.task_results) == 8


def test_the_authors_files_have_their_names_and_keys() -> None:
    found = {}
    for each in groups()["full"]:
        files = authors(measured(each.name, R2MED_MEASURES, "bm25"))
        found |= {path: json.loads(content) for path, content in files.items()}
    assert sorted(found) == [
        "bm25/IIYiPatients-EN.json",
        "bm25/MedQA-Diag.json",
        "bm25/MedXpertQA-Exam.json",
        "bm25/PMC-Treat.json",
        "bm25/PMCPatients.json",
        "bm25/Stack-Bioinformatics.json",
        "bm25/Stack-Biology.json",
        "bm25/Stack-Medical.json",
    ]
    one = found["bm25/Stack-Biology.json"]
    assert list(one) == ["dataset_name", "evaluation_time", "model_name", "test"]
    assert (one["dataset_name"], one["evaluation_time"], one["model_name"]) == ("Stack-Biology", "1.50 minutes", "bm25")
    published = {"ndcg_at_10", "map_at_100", "recall_at_25", "precision_at_3", "mrr"}
    assert published <= set(one["test"])
    assert all(round(value, 5) == value for value in one["test"].values())


def test_a_run_file_reads_back(tmp_path: Path) -> None:
    result = r2med.evaluate("bm25", "sample/Biology").results[0]
    with Ledger() as ledger:
        [path] = export(ledger, ["bm25"], "trec", Target(tmp_path))
        stored = ledger.run(ledger.get(result.id))
    run, warnings = read_run(path)
    assert warnings == []
    assert [list(ranking.documents) for _, ranking in run] == [list(ranking.documents) for _, ranking in stored]


def test_what_a_format_has_no_place_for_is_refused(tmp_path: Path) -> None:
    result = r2med.evaluate("bm25", "sample/Biology").results[0]
    r2med.evaluate("oracle-answer >> bm25", "sample/Biology")
    with Ledger() as ledger:
        with pytest.raises(R2medError, match="the format mteb is for full tasks only"):
            export(ledger, [result.id], "mteb", Target(tmp_path))
        with pytest.raises(R2medError, match="the format r2med is for full tasks only, on which bm25 has no run"):
            export(ledger, ["bm25"], "r2med", Target(tmp_path))
        with pytest.raises(R2medError, match="no run of 'bge' in the ledger"):
            export(ledger, ["bge"], "trec", Target(tmp_path))
        assert export(ledger, ["oracle-answer >> bm25"], "trec", Target(tmp_path))
        add = Entry(
            "o" * 32,
            "oracle-answer >> bm25",
            "Biology",
            "full",
            ("q1",),
            1.0,
            RunRecord(oracle=True),
            scores={"nDCG@10": np.array([1.0])},
        )
        ledger.add(add, RUN)
        with pytest.raises(R2medError, match="was shown the answers"):
            export(ledger, ["oracle-answer >> bm25"], "mteb", Target(tmp_path))
    assert not list(tmp_path.rglob("*.json"))


def test_a_folder_that_cannot_be_made_is_one_line(tmp_path: Path) -> None:
    r2med.evaluate("bm25", "sample/Biology")
    (tmp_path / "file").write_text("here")
    with Ledger() as ledger, pytest.raises(R2medError, match="cannot be written"):
        export(ledger, ["bm25"], "trec", Target(tmp_path / "file"))


def test_the_whole_way_from_the_hub_to_the_files(tmp_path: Path) -> None:
    biology = task("Biology")
    texts = {"d1": "pallor is a sign of anaemia", "d2": "a bone", "q1": "sign of anaemia"}
    files = {
        "corpus.jsonl": "".join(json.dumps({"id": name, "text": texts[name]}) + "\n" for name in ("d1", "d2")),
        "query.jsonl": json.dumps({"id": "q1", "text": texts["q1"]}) + "\n",
        "qrels.jsonl": json.dumps({"q_id": "q1", "p_id": "d1", "score": 1}) + "\n",
    }
    out = str(tmp_path / "out")
    calls = [
        ["run", "bm25", "--tasks", "Biology", "sample/Biology", "--json"],
        ["export", "bm25", "--format", "mteb", "--name", "me/bm25", "--revision", "v1", "--out", out],
        ["export", "bm25", "--format", "r2med", "--out", out],
        ["submit", "bm25", "--tasks", "Biology", "--out", str(tmp_path / "s.zip")],
        ["verify", str(tmp_path / "s.zip")],
    ]
    with HubServer() as hub:
        content = {name: text.encode() for name, text in files.items()}
        hub.add(biology.hub, content, commit=biology.revision)
        done = run_python(commands(calls), hub.environment(tmp_path))
    assert done.returncode == 0, done.stderr
    found = json.loads((tmp_path / "out/me__bm25/v1/R2MEDBiologyRetrieval.json").read_text())
    assert found["dataset_revision"] == biology.revision
    assert found["scores"]["test"][0]["main_score"] == 1.0
    assert json.loads((tmp_path / "out/bm25/Stack-Biology.json").read_text())["test"]["ndcg_at_10"] == 1.0
    assert "verified; 1 run, 6 figures computed anew" in done.stdout
