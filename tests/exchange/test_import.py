"""Run files of other tools in the ledger: a system like any other, in every verb and inside specs."""

from __future__ import annotations

import hashlib
import shutil
from pathlib import Path

import orjson
import pytest
from click.testing import CliRunner

import r2med
from r2med.cli.main import app
from r2med.data.run import Run
from r2med.data.run_files import write_run
from r2med.exchange.score_files import import_run
from r2med.runs.ledger import Ledger

TASK = "sample/Biology"


@pytest.fixture
def bm25() -> Run:
    """The lists of BM25, whose own run is in the ledger too."""
    report = r2med.evaluate("bm25", TASK)
    with Ledger() as ledger:
        return ledger.run(ledger.get(report.results[0].id))


@pytest.fixture
def file(tmp_path: Path, bm25: Run) -> Path:
    write_run(bm25, tmp_path / "theirs.trec")
    return tmp_path / "theirs.trec"


def verb(*args: str) -> str:
    done = CliRunner().invoke(app, list(args), env={"COLUMNS": "200"})
    assert done.exit_code == 0, f"{done.output}\n{done.exception!r}"
    return done.stdout


def scores(*systems: str, task: str = TASK) -> dict[str, dict[str, float]]:
    report = r2med.evaluate(list(systems), task)
    assert not report.failures, report.failures
    return {result.system: result.metrics for result in report.results}


@pytest.mark.parametrize("name", ["theirs.trec", "theirs.trec.gz", "theirs.jsonl", "theirs.json", "theirs.parquet"])
def test_every_format_gives_the_figures_of_eval(tmp_path: Path, bm25: Run, name: str) -> None:
    write_run(bm25, tmp_path / name)
    printed = orjson.loads(verb("eval", str(tmp_path / name), "--tasks", TASK, "--keep", "theirs", "--json"))
    measured = orjson.loads(verb("eval", str(tmp_path / name), "--tasks", TASK, "--json"))
    assert printed["results"][0]["metrics"] == measured["results"][0]["metrics"]
    assert printed["results"][0]["system"] == "theirs"


def test_the_name_stands_where_a_retriever_stands(file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "lengths_of_mine.py").write_text(
        "class Length:\n    def score(self, query, documents):\n        return [len(text) for text in documents]\n"
    )
    import_run(file, TASK, "theirs")
    rows = scores(
        "bm25", "theirs", "rrf(bm25, bm25-classic)", "rrf(theirs, bm25-classic)", "bm25 >> lengths_of_mine:Length",
        "theirs >> lengths_of_mine:Length", "bm25(depth=3)", "theirs(depth=3)",
    )  # fmt: skip
    values = list(rows.values())
    for ours, imported in zip(values[::2], values[1::2], strict=True):
        assert imported == pytest.approx(ours, abs=1e-12)
    assert list(rows)[1::2][1] == "rrf(theirs, bm25-classic)"


def test_every_verb_takes_it_and_says_what_it_is(file: Path, tmp_path: Path) -> None:
    assert "theirs" in verb("eval", str(file), "--tasks", TASK, "--keep", "theirs")
    (row,) = [row for row in orjson.loads(verb("runs", "--json")) if row["system"] == "theirs"]
    assert (row["imported"], row["seconds"]) == (True, None)
    assert "imported" in verb("runs", "--system", "theirs")
    shown = orjson.loads(verb("runs", "show", row["run"], "--json"))
    assert shown["record"]["notes"]["theirs"]["sha256"] == hashlib.sha256(file.read_bytes()).hexdigest()
    assert "No difference is shown" in verb("compare", "bm25", "theirs")
    assert "theirs" in verb("board", "--tasks", TASK)
    assert "bio-q01" in verb("inspect", "theirs", "--tasks", TASK)
    assert "theirs" in verb("diagnose", "--cost", "theirs", "bm25", "--tasks", TASK)
    (cost,) = [
        row for row in verb("run", "theirs", "--tasks", TASK, "--columns", "cost").splitlines() if "theirs" in row
    ]
    assert cost.split()[2:] == ["?"] * 5
    verb("report", "theirs", "--no-causes", "--out", str(tmp_path / "r.html"))
    assert "theirs" in (tmp_path / "r.html").read_text("utf-8")


def test_diagnosis_does_not_search_with_answers_in_lists_that_are_fixed(file: Path) -> None:
    import_run(file, TASK, "theirs")
    causes = orjson.loads(verb("diagnose", "theirs", "--tasks", TASK, "--json"))
    assert "oracle" not in verb("runs")
    found = {case["cause"] for case in _cases(causes)}
    assert "undecided" in found
    assert "out of reach" not in found


def _cases(value: object):
    """Every query with a cause, wherever the JSON has it."""
    if isinstance(value, dict):
        if "cause" in value:
            yield value
        for inner in value.values():
            yield from _cases(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from _cases(inner)


def test_the_same_file_is_the_same_run_and_another_file_is_not(file: Path, bm25: Run, tmp_path: Path) -> None:
    first = import_run(file, TASK, "theirs").results[0]
    assert import_run(file, TASK, "theirs").results[0].id == first.id
    before = scores("rrf(theirs, bm25)")
    write_run(bm25.cut(1), file)
    second = import_run(file, TASK, "theirs").results[0]
    assert second.id != first.id
    assert scores("theirs")["theirs"] == second.metrics
    assert scores("rrf(theirs, bm25(depth=1))") != before
    again = r2med.evaluate("theirs", TASK, r2med.Options(fresh=True)).results[0]
    assert (again.metrics, again.record.imported) == (second.metrics, True)


def test_a_query_without_a_list_is_incomplete_also_inside_a_fusion(file: Path, bm25: Run) -> None:
    write_run(bm25.select(bm25.queries[1:]), file)
    reports = [import_run(file, TASK, "theirs"), r2med.evaluate(["theirs", "rrf(theirs, bm25)"], TASK)]
    for result in (result for report in reports for result in report.results):
        assert dict(result.incomplete) == {"bio-q01": "no list in theirs.trec"}
    assert "1 of 9 queries have no list" in reports[0].results[0].warnings[-1]
    causes = orjson.loads(verb("diagnose", "theirs", "--tasks", TASK, "--json"))
    (case,) = [case for case in _cases(causes) if case.get("query") == "bio-q01"]
    assert case["reason"] == "no list in theirs.trec"


def test_the_data_must_be_that_of_the_task(tmp_path: Path, bm25: Run, file: Path) -> None:
    folder = tmp_path / "mine"
    shutil.copytree(r2med.load(TASK).task.folder, folder)
    import_run(file, folder, "theirs")
    (message,) = [failure.message for failure in r2med.evaluate("theirs", TASK).failures]
    assert message.startswith("theirs was not imported for sample/Biology, only for ")
    corpus = next(folder.glob("corpus*"))
    corpus.write_text(corpus.read_text("utf-8").replace("the", "The", 1), "utf-8")
    (message,) = [failure.message for failure in r2med.evaluate("rrf(theirs, bm25)", folder).failures]
    assert "theirs was imported for other documents or queries than" in message


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("bm25", "bm25 is the name of a stage already"),
        ("bge", "bge is the name of a model already"),
        ("short", "short is the name of an alias already"),
        ("two words", "cannot be a name in a system"),
        ("none", "cannot be a name in a system"),
        ("a/b", "cannot be a name in a system"),
    ],
)
def test_a_name_that_stands_for_something_else_is_refused(
    file: Path, monkeypatch: pytest.MonkeyPatch, name: str, words: str
) -> None:
    monkeypatch.chdir(file.parent)
    (file.parent / "r2med.toml").write_text('[aliases]\nshort = "bm25"\n')
    done = CliRunner().invoke(app, ["eval", str(file), "--tasks", TASK, "--keep", name])
    assert words in str(done.exception)


@pytest.mark.parametrize(
    ("lists", "words"),
    [
        ({"q1": (["d1"], [1.0])}, "shares no query with sample/Biology ('q1' in the file, 'bio-q01' in the task)"),
        ({"bio-q01": (["d1"], [1.0])}, "1 of 1 id (100.0%) are not documents of sample/Biology"),
        ({"bio-q01": (["d1", "bio-d001"], [2.0, 1.0])}, "for query bio-q01; more than 10% is refused"),
    ],
)
def test_a_file_of_another_collection_is_one_line(file: Path, lists: dict, words: str) -> None:
    write_run(Run.from_lists(lists), file)
    with pytest.raises(r2med.R2medError) as caught:
        import_run(file, TASK, "theirs")
    assert words in str(caught.value)
    assert "unknown=" not in str(caught.value), "a file has no options"
    assert "\n" not in str(caught.value)
    with Ledger() as ledger:
        assert not ledger.entries(system="theirs")


def test_ids_of_a_few_other_documents_are_left_out_and_said(file: Path, bm25: Run) -> None:
    lists = {query: (list(ranking.documents), ranking.scores.tolist()) for query, ranking in bm25}
    lists["bio-q01"] = ([*lists["bio-q01"][0], "elsewhere"], [*lists["bio-q01"][1], -1.0])
    lists["q-of-others"] = (["bio-d001"], [1.0])
    write_run(Run.from_lists(lists), file)
    result = import_run(file, TASK, "theirs").results[0]
    assert result.metrics == pytest.approx(scores("bm25")["bm25"], abs=1e-12)
    assert any("'elsewhere' for query bio-q01; they are left out" in line for line in result.warnings)
    assert any("1 query not of sample/Biology left out, the first 'q-of-others'" in line for line in result.warnings)


def test_a_file_that_is_replaced_while_it_is_read_is_not_imported(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The hash that is recorded would be of one file, the lists of another."""
    from r2med.data.run_files import read_run

    def swapped(path: Path):
        path.write_text(path.read_text().replace(" Q0 ", " Q1 "))
        return read_run(path)

    monkeypatch.setattr("r2med.retrieve.given_lists.read_run", swapped)
    done = CliRunner().invoke(app, ["eval", str(file), "--tasks", TASK, "--keep", "theirs"])
    assert done.exit_code != 0
    assert "was replaced while it was imported" in done.output + str(done.exception)
    with Ledger() as ledger:
        assert ledger.entries(system="theirs") == []
