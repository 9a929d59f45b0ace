"""Comparing runs of the ledger: what cannot be compared is refused with the reason."""

from __future__ import annotations

import html
import json
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner

import r2med
from r2med.cli.main import app
from r2med.comparison.study import Comparison, compare
from r2med.errors import R2medError
from r2med.leaderboard.board import board
from r2med.measure.significance import difference
from r2med.pipeline.named_runs import select
from r2med.render.scores.model import View
from r2med.runs.ledger import Ledger


def task_folder(folder: Path, *, documents: dict[str, str], queries: dict[str, str], relevant: dict[str, str]) -> Path:
    folder.mkdir(exist_ok=True)

    def write(name: str, rows: list[dict[str, object]]) -> None:
        (folder / name).write_text("".join(json.dumps(row) + "\n" for row in rows))

    write("corpus.jsonl", [{"id": name, "text": text} for name, text in documents.items()])
    write("query.jsonl", [{"id": name, "text": text} for name, text in queries.items()])
    write("qrels.jsonl", [{"q_id": query, "p_id": document, "score": 1} for query, document in relevant.items()])
    return folder


def test_differences_are_those_of_the_per_query_scores() -> None:
    report = r2med.evaluate(["bm25", "bm25-classic"], "sample")
    with Ledger() as ledger:
        found = compare(ledger, ["bm25", "bm25-classic"])[0]
    expected = report.average("bm25-classic", "sample", "nDCG@10") - report.average("bm25", "sample", "nDCG@10")
    assert found.overall.mean == pytest.approx(expected)
    assert set(found.families) == {"qa-reference", "clinical-evidence", "clinical-case"}
    assert next(iter(found.tasks)) == "sample/Biology"
    assert found.corrected == found.overall.randomisation


def test_an_oracle_is_never_called_better() -> None:
    r2med.evaluate(["bm25", "oracle-answer >> bm25"], "sample")
    with Ledger() as ledger:
        found = compare(ledger, ["bm25", "oracle-answer >> bm25"])[0]
    assert found.differs
    assert found.as_dict()["oracles"] == ["oracle-answer >> bm25"]
    assert found.verdict.startswith("oracle-answer >> bm25 (oracle) scores higher than bm25 (p < 0.0001)")
    assert "better" not in found.verdict


def test_the_command_and_the_page_say_the_same_of_an_oracle() -> None:
    from click.testing import CliRunner

    from r2med.cli.main import app

    testclient = pytest.importorskip("starlette.testclient", reason="the web extra is not installed")
    from r2med.web.access import Access
    from r2med.web.app import create_app
    from r2med.web.library import Library

    systems = ["bm25", "oracle-answer >> bm25"]
    r2med.evaluate(systems, ["sample/Biology", "sample/MedQA-Diag"])
    with Ledger() as ledger:
        verdict = compare(ledger, systems)[0].verdict
        with testclient.TestClient(
            create_app(Library(ledger.path), Access(None)), base_url="http://localhost"
        ) as client:
            page = client.get("/compare", params={"group": "sample", "a": systems[0], "b": systems[1]}).text
    printed = CliRunner().invoke(app, ["compare", *systems], env={"COLUMNS": "250", "NO_COLOR": "1"}).output
    assert "(p < 0.0001)" in verdict
    assert verdict in printed
    assert verdict in html.unescape(page)
    assert "is better" not in printed + html.unescape(page)
    assert "<0.0001" in printed
    assert " 0.0000" not in printed


def test_tasks_are_corrected_for_so_many_looks() -> None:
    """One task of eight with p = 2/128 is what chance gives now and then; one with p = 2/512 is less so."""
    values = {f"task {place}": np.array([0.1, -0.1] * 4) for place in range(6)}
    values |= {"lucky": np.full(7, 0.1), "sure": np.full(9, 0.1)}
    tasks = {task: difference([each]) for task, each in values.items()}
    found = Comparison("a", "b", difference(list(values.values())), {}, tasks, 1.0)
    assert tasks["lucky"].randomisation < 0.05
    assert found.differing_tasks == ["sure"]
    assert found.as_dict()["tasks"]["lucky"]["holm"] == pytest.approx(7 * 2 / 128)


def test_all_pairs_are_compared_and_corrected() -> None:
    r2med.evaluate(["bm25", "bm25-classic", "bm25(k1=2)"], "sample/Biology")
    with Ledger() as ledger:
        found = compare(ledger, ["bm25", "bm25-classic", "bm25(k1=2.0)"])
    # Shown as the ledger knows them, however they were spelled.
    assert [(each.a, each.b) for each in found] == [
        ("bm25", "bm25-classic"),
        ("bm25", "bm25(k1=2)"),
        ("bm25-classic", "bm25(k1=2)"),
    ]
    assert all(each.corrected >= each.overall.randomisation for each in found)


def test_a_run_is_found_by_spec_in_any_spelling_or_by_id() -> None:
    result = r2med.evaluate("bm25(k1=2)", "sample/Biology").results[0]
    with Ledger() as ledger:
        for name in ("bm25(k1=2)", "bm25( k1 = 2.0 )", result.id, result.id[:5]):
            assert select(ledger, [name])[0].runs["sample/Biology"].id == result.id


def test_a_measure_deeper_than_the_lists_is_said_as_run_says_it() -> None:
    systems = ["bm25(depth=5)", "rrf(bm25(depth=3), bm25-classic, depth=64)"]
    report = r2med.evaluate(systems, "sample/Biology", measures=["Recall@10"])
    (said,) = [sentence for result in report.results for sentence in result.warnings if "Recall@10" in sentence]
    with Ledger() as ledger:
        assert compare(ledger, systems, "Recall@5")[0].notes == ()
        (note,) = compare(ledger, systems, "Recall@10")[0].notes
    assert note == "bm25(depth=5): Recall@10 measured on lists of 5 documents; give the retriever depth=..."
    assert said.endswith("measured on lists of 5 documents; give the retriever depth=...")


def test_data_that_was_changed_and_changed_back_has_its_own_runs_again(tmp_path: Path) -> None:
    parts = {"queries": {"q": "cat"}, "relevant": {"q": "a"}}
    first, second = {"a": "cat", "b": "dog"}, {"a": "mouse", "b": "cat"}
    folder = task_folder(tmp_path / "own", documents=first, **parts)
    before = r2med.evaluate(["bm25", "bm25-classic"], folder)
    r2med.evaluate("bm25", task_folder(folder, documents=second, **parts))
    again = r2med.evaluate("bm25", task_folder(folder, documents=first, **parts)).results[0]
    assert again.cached
    with Ledger() as ledger:
        assert select(ledger, ["bm25"])[0].runs[str(folder)].id == before.results[0].id
        assert compare(ledger, ["bm25", "bm25-classic"])[0].overall.queries == 1
        line = board(ledger, View(group="custom")).lines[0]
    assert (line.average, line.runs[str(folder)]) == (1.0, before.results[0].id)


def test_changed_data_is_refused(tmp_path: Path) -> None:
    parts = {"queries": {"q": "cat"}, "relevant": {"q": "a"}}
    folder = task_folder(tmp_path / "mine", documents={"a": "cat", "b": "dog"}, **parts)
    r2med.evaluate("bm25", folder)
    task_folder(tmp_path / "mine", documents={"a": "cat", "b": "cow"}, **parts)
    r2med.evaluate("bm25-classic", folder)
    with (
        Ledger() as ledger,
        pytest.raises(R2medError, match="did not see the same documents; run both again: r2med run"),
    ):
        compare(ledger, ["bm25", "bm25-classic"])


def test_what_is_not_there_is_one_line() -> None:
    r2med.evaluate("bm25", "sample/Biology")
    r2med.evaluate("bm25-classic", "sample/MedQA-Diag")
    with Ledger() as ledger:
        with pytest.raises(R2medError, match="no task in common"):
            compare(ledger, ["bm25", "bm25-classic"])
        with pytest.raises(R2medError, match=r"no run of 'bm26' in the ledger; did you mean bm25\?$"):
            compare(ledger, ["bm25", "bm26"])
        with pytest.raises(R2medError, match=r"no run of 'rrf.*run it first: r2med run 'rrf\(bm25, bm25-classic\)'"):
            compare(ledger, ["bm25", "rrf(bm25,bm25-classic)"])
        with pytest.raises(R2medError, match="two different systems are needed to compare"):
            compare(ledger, ["bm25", "bm25"])


def shown(*words: str) -> str:
    """Return what `compare` prints about these systems, on a wide screen."""
    done = CliRunner().invoke(app, ["compare", *words], env={"COLUMNS": "200"})
    assert done.exit_code == 0, done.output
    return done.stdout


def test_equal_results_have_no_detectable_difference() -> None:
    r2med.evaluate(["bm25", "bm25(depth=50)"], ["sample/Biology", "sample/MedQA-Diag"])
    printed = shown("bm25", "bm25(depth=50)")
    assert "No difference is shown (p = 1.0000)." in printed
    rows = [line.split() for line in printed.splitlines() if "+0.00 to +0.00" in line]
    assert [row[-2] for row in rows] == ["-"] * 5  # two tasks, their two families, all of them
    (found,) = json.loads(shown("bm25", "bm25(depth=50)", "--json"))
    assert found["overall"]["detectable"] is None
    assert found["overall"]["wins"] + found["overall"]["losses"] == 0


def test_a_pair_says_what_is_corrected_and_with_which_power() -> None:
    r2med.evaluate(["bm25", "bm25-classic"], ["sample/Biology", "sample/MedQA-Diag"])
    printed = shown("bm25", "bm25-classic")
    assert "Intervals and p of a line are of that line alone; the sentences are corrected after Holm." in printed
    assert "detectable: the smallest difference that so many queries show with 80% power." in printed
    assert "these queries would show one of about 5.6 points with 80% power." in printed


def test_intervals_of_several_pairs_are_said_to_be_uncorrected() -> None:
    r2med.evaluate(["bm25", "bm25(depth=50)", "bm25-classic"], ["sample/Biology", "sample/MedQA-Diag"])
    systems = ("bm25", "bm25(depth=50)", "bm25-classic")
    for words in (systems, (*systems, "--format", "md")):
        printed = shown(*words)
        assert "p (Holm)" in printed
        assert "The intervals are of single pairs, not corrected for the number of pairs." in printed
        assert "-0.00" not in printed
    verdicts = [found["verdict"] for found in json.loads(shown(*systems, "--json"))]
    assert all("after Holm over 3 pairs" in verdict for verdict in verdicts)


def test_a_plan_says_how_many_queries_a_difference_needs() -> None:
    r2med.evaluate(["bm25", "wordllama"], "sample")
    planned = CliRunner().invoke(app, ["compare", "bm25", "wordllama", "--plan", "--difference", "5", "--json"])
    plan = json.loads(planned.output)[0]
    assert plan["difference"] == 0.05
    expected = 72 * (plan["overall"]["detectable"] / 0.05) ** 2
    assert expected < plan["overall"]["needed"] < expected + 3
    assert len(plan["tasks"]) == 8
    table = CliRunner().invoke(app, ["compare", "bm25", "wordllama", "--plan"]).output
    assert "Queries for a difference of 2 points" in table
    assert "queries are needed, and there are 72" in table


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--difference", "2"], "--difference belongs to --plan"),
        (["--plan", "--difference", "0"], "0.0 is not in the range"),
        (["--plan", "--by-task"], "--plan shows every task anyway"),
        (["--plan", "--languages"], "--languages goes with neither"),
    ],
)
def test_a_plan_that_cannot_be_is_refused(options: list[str], message: str) -> None:
    refused = CliRunner().invoke(app, ["compare", "bm25", "wordllama", *options])
    assert refused.exit_code == 2
    assert message in refused.output
