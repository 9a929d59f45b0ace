"""Documents that have a query's own id: which systems leave them out of that query's list, and who says so."""

import json

import pytest
from click.testing import CliRunner

import r2med
from r2med.cli.main import app
from r2med.data.tasks import registry
from r2med.runs.ledger import Ledger

TEXTS = {
    "1": ("why do gums bleed in scurvy", "Scurvy is a lack of vitamin C; gums bleed and wounds heal badly."),
    "2": ("what crystal causes gout", "Gout is caused by uric acid crystals in a joint."),
    "3": ("which mosquito carries malaria", "Malaria is carried by the Anopheles mosquito."),
    "4": ("what lowers thyroid hormone", "Hashimoto disease lowers thyroid hormone."),
}
SYSTEMS = ["bm25", "wordllama", "rrf(bm25, wordllama)"]


def write_folder(folder, relevant, rule=""):
    """Number questions and passages alike; `relevant` maps a question to its relevant passage."""
    folder.mkdir()
    rows = {
        "query.jsonl": [{"id": name, "text": question} for name, (question, _) in TEXTS.items()],
        "corpus.jsonl": [{"id": name, "text": passage} for name, (_, passage) in TEXTS.items()],
        "qrels.jsonl": [{"q_id": query, "p_id": document, "score": 1} for query, document in relevant.items()],
    }
    for name, content in rows.items():
        (folder / name).write_text("".join(json.dumps(row) + "\n" for row in content))
    if rule:
        (folder / "task.toml").write_text(f'drop_self = "{rule}"\n')
    return str(folder)


def said(*words):
    outcome = CliRunner().invoke(app, list(words))
    assert outcome.exit_code == 0, outcome.output
    return outcome.output


@pytest.mark.parametrize("asked", [[], ["--drop-self"], ["--keep-self"]])
def test_a_relevant_passage_of_the_questions_own_id_is_never_dropped(tmp_path, asked):
    folder = write_folder(tmp_path / "faq", {name: name for name in TEXTS})
    found = json.loads(said("run", *SYSTEMS, "--tasks", folder, "--json", *asked))
    assert [result["metrics"]["nDCG@10"] for result in found["results"]] == [1.0, 1.0, 1.0]
    assert all(not result["warnings"] for result in found["results"])


@pytest.mark.parametrize(("rule", "kept"), [("", [4, 4, 4]), ("dense", [4, 0, 4]), ("all", [0, 0, 0])])
def test_the_task_says_which_systems_drop_and_every_system_is_told_alike(tmp_path, rule, kept):
    folder = write_folder(tmp_path / "cases", {"1": "2", "2": "1", "3": "4", "4": "3"}, rule)
    report = r2med.evaluate(SYSTEMS, folder)
    for result, count in zip(report.results, kept, strict=True):
        with Ledger() as ledger:
            found = ledger.run(next(entry for entry in ledger.entries() if entry.id == result.id))
        assert sum(query in ranking.documents for query, ranking in found) == count
        assert any("4 documents with the query's own id left out" in line for line in result.warnings) == (
            count == 0 or (rule == "dense" and "wordllama" in result.system)
        )


def test_validate_run_and_diagnose_say_how_many_were_dropped(tmp_path):
    folder = write_folder(tmp_path / "cases", {"1": "2", "2": "2", "3": "4", "4": "3"}, "all")
    assert "4 queries have a document of the same id, 1 of them relevant; the others are left out" in said(
        "tasks", "validate", folder
    )
    assert "3 documents with the query's own id left out of its list, as the task says" in said(
        "run", "bm25", "--tasks", folder
    )
    assert "3 documents with the query's own id left out of its list" in said("diagnose", "bm25", "--tasks", folder)


def test_eval_drops_the_same_documents_as_run(tmp_path):
    folder = write_folder(tmp_path / "cases", {"1": "2", "2": "2", "3": "4", "4": "3"})
    file = tmp_path / "mine.trec"
    file.write_text("".join(f"{query} Q0 {name} 1 {5 - int(name)} x\n" for query in TEXTS for name in TEXTS))
    kept, dropped = (
        json.loads(said("eval", str(file), "--tasks", folder, "--json", "--measures", "MRR@10", *asked))["results"][0]
        for asked in ([], ["--drop-self"])
    )
    # Relevant at ranks 2, 2, 4, 3; without the query's own (but for 2, which is relevant to itself) at 1, 2, 3, 3.
    assert kept["metrics"]["MRR@10"] == pytest.approx((1 / 2 + 1 / 2 + 1 / 4 + 1 / 3) / 4)
    assert dropped["metrics"]["MRR@10"] == pytest.approx((1 + 1 / 2 + 1 / 3 + 1 / 3) / 4)
    assert "3 documents with the query's own id left out of its list" in dropped["warnings"]


def test_only_the_consultations_have_a_rule_among_the_named_tasks():
    ruled = {task.name: task.drop_self for task in registry().values() if task.drop_self != "none"}
    assert ruled == dict.fromkeys(("IIYi-Clinical", "nano/IIYi-Clinical", "sample/IIYi-Clinical"), "dense")


def test_the_figures_of_the_consultations_are_those_of_the_published_rules():
    """BM25 keeps the three own cases, dense systems leave them out, as before the rule was the task's."""
    report = r2med.evaluate(["bm25", "bm25-classic", "wordllama", "rrf(bm25, wordllama)"], "sample/IIYi-Clinical")
    assert [round(100 * result.metrics["nDCG@10"], 2) for result in report.results] == [36.93, 34.64, 43.90, 47.99]


def test_an_unknown_rule_is_one_line(tmp_path):
    folder = write_folder(tmp_path / "cases", {"1": "2"}, "sometimes")
    with pytest.raises(r2med.R2medError, match="drop_self must be one of none, dense, all, not 'sometimes'"):
        r2med.load(folder)
