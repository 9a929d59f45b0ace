"""Judgements of documents that are not there and queries without text: counted and left out, or an error if asked."""

import json

import pytest
from click.testing import CliRunner

import r2med
from r2med.cli.main import app
from r2med.data.validate import validate

QUERIES = {"q1": "why do gums bleed", "q2": "what causes gout", "q3": " ", "q4": "which mosquito"}
DOCUMENTS = {"d1": "In scurvy gums bleed.", "d2": "Gout is caused by uric acid.", "d3": "A mosquito carries malaria."}
QRELS = [("q1", "d1"), ("q1", "gone"), ("q2", "d2"), ("q3", "d3"), ("q4", "gone")]


@pytest.fixture
def folder(tmp_path):
    parts = {
        "query.jsonl": [{"id": name, "text": text} for name, text in QUERIES.items()],
        "corpus.jsonl": [{"id": name, "text": text} for name, text in DOCUMENTS.items()],
        "qrels.jsonl": [{"q_id": query, "p_id": document, "score": 1} for query, document in QRELS],
    }
    for name, rows in parts.items():
        (tmp_path / name).write_text("".join(json.dumps(row) + "\n" for row in rows))
    return tmp_path


def test_what_cannot_be_used_is_counted_and_left_out(folder):
    dataset = r2med.load(folder)
    assert list(dataset.collection.queries.ids) == ["q1", "q2"]
    assert dataset.gold.qrels == {"q1": {"d1": 1}, "q2": {"d2": 1}}
    assert dataset.warnings == (
        "query.jsonl:3: 'q3' has no text, left out",
        "qrels.jsonl: 2 judgements of a document that is not in the corpus, which were left out; the first in line 2",
        "query.jsonl:4: the query 'q4' has no relevant document, left out",
    )
    assert r2med.evaluate("bm25", folder).results[0].metrics["Recall@100"] == 1.0


def test_strictness_makes_it_an_error(folder):
    with pytest.raises(r2med.R2medError, match=r"query\.jsonl:3: 'q3' has no text \(and 2 more"):
        r2med.load(folder, strict=True)
    assert validate(folder).ok
    report = validate(folder, strict=True)
    assert (report.errors, report.warnings) == (3, 1)
    assert [group.severity for group in report.groups()] == ["error", "error", "warning"]
    assert str(report.groups()[0]) == "error: queries without text: 1"
    assert str(validate(folder).groups()[0]) == "warning: queries without text, which were left out: 1"


@pytest.mark.parametrize("verb", ["validate", "run", "plan", "eval", "eval-several", "keep"])
def test_every_verb_that_reads_data_is_strict_on_request(folder, verb):
    own, file = str(folder), lists(folder, f"{folder.name}.trec")
    words = {
        "validate": ["tasks", "validate", own],
        "run": ["run", "bm25", "--tasks", own],
        "plan": ["run", "bm25", "--tasks", own, "--dry-run"],
        "eval": ["eval", file, "--tasks", own],
        "eval-several": ["eval", str(folder / "{task}.trec"), "--tasks", own],
        "keep": ["eval", file, "--tasks", own, "--keep", "theirs"],
    }[verb]
    assert CliRunner().invoke(app, words).exit_code == 0
    done = CliRunner().invoke(app, [*words, "--strict"])
    assert done.exit_code == 1
    assert "'q3' has no text" in f"{done.output} {done.exception}"


def test_a_task_of_which_nothing_is_left_is_an_error(folder):
    (folder / "qrels.jsonl").write_text('{"q_id": "q3", "p_id": "d3", "score": 1}\n')
    with pytest.raises(r2med.R2medError, match="no query has a relevant document"):
        r2med.load(folder)


def lists(folder, name):
    file = folder / name
    file.write_text("q1 Q0 d1 1 2.0 x\nq1 Q0 d2 2 1.0 x\nq2 Q0 d1 1 2.0 x\nq2 Q0 d2 2 1.0 x\n")
    return str(file)


def test_scores_of_a_folder_need_judgements_only(folder):
    (folder / "corpus.jsonl").unlink()
    (folder / "qrels.jsonl").write_text(
        '{"q_id": "q1", "p_id": "d1", "score": 1}\n{"q_id": "q2", "p_id": "d2", "score": 1}\n'
    )
    done = CliRunner().invoke(
        app, ["eval", lists(folder, "mine.trec"), "--tasks", str(folder), "--measures", "MRR@10", "--json"]
    )
    assert done.exit_code == 0, done.output
    (result,) = json.loads(done.stdout)["results"]
    assert result["metrics"]["MRR@10"] == 0.75
    assert result["task"] == str(folder)


def test_run_files_of_several_tasks_are_imported_in_one_command(tmp_path):
    out = tmp_path / "out"
    assert CliRunner().invoke(app, ["run", "bm25", "--tasks", "sample", "--out", str(out)]).exit_code == 0
    place = out / "runs" / "{task}.*.trec"
    done = CliRunner().invoke(app, ["eval", str(place), "--tasks", "sample", "--keep", "theirs", "--json"])
    assert done.exit_code == 0, done.output
    found = {result["task"]: result["metrics"]["nDCG@10"] for result in json.loads(done.stdout)["results"]}
    wanted = {result.task: result.metrics["nDCG@10"] for result in r2med.evaluate("bm25", "sample").results}
    assert found == pytest.approx(wanted)
    assert len(found) == 8
    assert CliRunner().invoke(app, ["eval", str(place), "--keep", "theirs"]).exit_code == 2


def test_a_broken_run_file_costs_its_own_task_only(tmp_path):
    out = tmp_path / "out"
    pair = ["sample/Biology", "sample/MedQA-Diag"]
    assert CliRunner().invoke(app, ["run", "bm25", "--tasks", *pair, "--out", str(out)]).exit_code == 0
    (file,) = (out / "runs").glob("sample-Biology.*.trec")
    file.write_text(file.read_text().replace(" Q0 ", " Q0 unknown-"))  # ids that the task does not have
    words = ["eval", str(out / "runs" / "{task}.*.trec"), "--tasks", *pair, "--keep", "theirs", "--json"]
    done = CliRunner().invoke(app, words)
    assert done.exit_code == 1
    found = json.loads(done.stdout)
    assert [result["task"] for result in found["results"]] == ["sample/MedQA-Diag"]
    assert [failure["task"] for failure in found["failures"]] == ["sample/Biology"]


def test_a_class_that_cannot_score_is_named(tmp_path, monkeypatch):
    (tmp_path / "my_rr.py").write_text("class RR:\n    pass\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    with pytest.raises(r2med.R2medError, match=r"my_rr:RR has no method score; .*score\(query, documents\)"):
        r2med.evaluate("bm25 >> my_rr:RR", "sample/Biology")
