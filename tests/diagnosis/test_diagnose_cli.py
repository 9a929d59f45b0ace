"""The verbs as a person uses them."""

from __future__ import annotations

import json
import os
import pty
import re
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

import r2med
from r2med.cli.main import app
from r2med.errors import R2medError


def run(*args: str) -> Result:
    return CliRunner().invoke(app, args, env={"COLUMNS": "160", "NO_COLOR": "1"})


def output(*args: str) -> str:
    done = run(*args)
    assert done.exit_code == 0, done.output
    return done.stdout


def found(*args: str) -> object:
    return json.loads(output(*args, "--json"))


@pytest.fixture(autouse=True)
def _runs(own_home: Path) -> None:
    r2med.evaluate(["bm25", "replay >> bm25", "wordllama"], ["sample/Biology", "sample/MedQA-Diag"])


def test_diagnose_prints_shares_and_what_they_mean() -> None:
    text = output("diagnose", "bm25")
    assert "bm25: causes in % of relevant documents" in text
    assert "bridge missing: not found, but it is when the gold answer is searched with" in text
    assert "all tasks" in text
    assert "oracle runs in the ledger" in text
    (biology, diag) = found("diagnose", "bm25")["diagnoses"]
    assert (biology["task"], diag["task"]) == ("sample/Biology", "sample/MedQA-Diag")
    assert biology["deep_cutoff"] == 12
    assert sum(biology["shares"]["documents"].values()) == pytest.approx(1)


def test_diagnose_against_compares_shares() -> None:
    text = output("diagnose", "replay >> bm25", "--against", "bm25", "--tasks", "sample/Biology")
    assert "replay >> bm25  against  bm25" in text
    r2med.evaluate("bm25(depth=1)", "sample/Biology")
    moved = output("diagnose", "replay >> bm25", "--against", "bm25(depth=1)", "--tasks", "sample/Biology")
    assert "bridge missing -> found" in moved
    shown = found("diagnose", "replay >> bm25", "--against", "bm25", "--tasks", "sample/Biology")
    assert shown["against"] == "bm25"
    change = shown["changes"]["replay >> bm25"]["documents"]["bridge missing"]
    shares = [shown["overall"][system]["documents"]["bridge missing"]["mean"] for system in ("replay >> bm25", "bm25")]
    assert change["mean"] == pytest.approx(shares[0] - shares[1])
    assert change["high"] < 0


@pytest.mark.parametrize(
    ("part", "piece"),
    [
        ("--gap", "gap closed %"),
        ("--complement", "overlap@10"),
        ("--coverage", "judged@10 in %"),
        ("--slices", "by query words in relevant documents"),
        ("--cost", "on the frontier of"),
    ],
)
def test_every_part_has_a_table_and_json(part: str, piece: str) -> None:
    systems = ("replay >> bm25", "bm25")
    assert piece in output("diagnose", *systems, part)
    assert found("diagnose", *systems, part)


def test_several_parts_are_all_printed() -> None:
    asked = ("diagnose", "bm25", "--causes", "--gap", "--slices", "--cost", "--tasks", "sample/Biology")
    text = output(*asked)
    for piece in ("causes in %", "cosine x 100", "by query words", "on the frontier of"):
        assert piece in text
    assert list(found(*asked)) == ["causes", "gap", "slices", "cost"]


def test_the_gap_needs_no_run() -> None:
    text = output("diagnose", "--gap", "--tasks", "sample/Biology", "sample/MedQA-Diag")
    assert "oracle-answer >> bm25 (oracle)" in text
    assert "gap closed" not in text
    mixed = run("diagnose", "--gap", "--tasks", "sample/Biology", "Biology").exception
    assert "no average in common" in str(mixed)
    (ceiling,) = found("diagnose", "replay >> bm25", "--gap", "--tasks", "sample/Biology")["ceiling"]
    assert ceiling["base"] == "bm25"
    assert 0 < ceiling["overall"]["closed"] < 1


def test_what_lacks_a_run_or_has_too_many_is_said() -> None:
    assert "a diagnosis needs a run" in run("diagnose").output
    assert "--complement needs 2 runs" in run("diagnose", "bm25", "--complement").output
    assert "--slices takes one run or two" in run("diagnose", "bm25", "bm25", "bm25", "--slices").output
    done = run("diagnose", "bm26")
    assert isinstance(done.exception, R2medError)
    assert "did you mean bm25?" in str(done.exception)


def test_inspect_as_text_json_and_page(tmp_path: Path) -> None:
    text = output("inspect", "bm25", "--tasks", "sample/MedQA-Diag", "--worst", "2", "--words", "20")
    assert text.count("nDCG@10") == 2
    assert "=porphyria=" in output("inspect", "bm25", "--query", "mqd-q01")
    rows = found("inspect", "bm25", "--against", "replay >> bm25", "--sample", "3")
    assert len(rows) == 3
    assert rows[0]["other"]["generations"]
    file = tmp_path / "cases.html"
    done = run("inspect", "bm25", "--failures", "5", "--html", str(file))
    assert done.exit_code == 0
    assert str(file) in done.stderr
    assert file.read_text("utf-8").startswith("<!DOCTYPE html>")
    assert "no query is like that" in output("inspect", "replay >> bm25", "--failures", "5")
    assert "choose one of" in run("inspect", "bm25", "--worst", "1", "--sample", "1").output


def test_a_terminal_gets_a_pager_and_a_pipe_does_not(tmp_path: Path) -> None:
    pager = tmp_path / "pager"
    pager.write_text(f"#!/bin/sh\ncat > {tmp_path / 'paged'}\n")
    pager.chmod(0o755)
    command = [sys.executable, "-m", "r2med", "inspect", "bm25", "--query", "mqd-q01", "--words", "8"]
    environment = {**os.environ, "PAGER": str(pager), "TERM": "xterm", "COLUMNS": "100"}
    piped = subprocess.run(command, capture_output=True, env=environment, check=True)
    assert b"mqd-q01" in piped.stdout
    assert not (tmp_path / "paged").exists()
    master, slave = pty.openpty()
    try:
        subprocess.run(command, stdin=slave, stdout=slave, stderr=slave, env=environment, check=True, timeout=60)
    finally:
        os.close(slave)
        os.close(master)
    paged = (tmp_path / "paged").read_text("utf-8")
    assert "mqd-q01" in paged
    assert "\x1b[" in paged, "in colour"


def test_folders_go_by_the_names_that_tell_them_apart_everywhere(tmp_path: Path) -> None:
    """In tables, in the list of runs and in warnings, as in the heading of the results."""
    folders = [tmp_path / "here" / "notes", tmp_path / "there" / "notes"]
    for folder, text in zip(folders, ("copper", "iron"), strict=True):
        folder.mkdir(parents=True)
        rows = {"corpus": [{"id": "d1", "text": text}, {"id": "d2", "text": "water"}, {"id": "d3", "text": ""}],
                "query": [{"id": "q1", "text": "copper and iron", "answer": text}],
                "qrels": [{"q_id": "q1", "p_id": "d1", "score": 1}]}  # fmt: skip
        for name, several in rows.items():
            (folder / f"{name}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in several))
    tasks = ("--tasks", *map(str, folders))
    texts = [
        output(*verb)
        for verb in (
            ("run", "bm25", "wordllama", *tasks),
            ("diagnose", "bm25", *tasks),
            ("diagnose", "bm25", "--gap", *tasks),
            ("diagnose", "bm25", "wordllama", "--complement", "--coverage", "--slices", *tasks),
            ("runs", "--group", "custom"),
            ("compare", "bm25", "wordllama", *tasks),
        )
    ]
    for text in texts:
        assert "here/notes" in text
        assert "there/notes" in text
        assert str(tmp_path) not in text
    assert "warning: there/notes: corpus.jsonl:3: 'd3' has no text" in texts[0]


def test_label_writes_what_slices_read(tmp_path: Path) -> None:
    script, table = tmp_path / "script.jsonl", tmp_path / "body.tsv"
    rules = [{"match": "The text:.*porphobilinogen|The text:.*abdominal", "reply": "Class: digestive"},
             {"match": "The text:.*salt", "reply": "two or three"}, {"reply": "nervous"}]  # fmt: skip
    script.write_text("".join(json.dumps(rule) + "\n" for rule in rules))
    model = f"scripted:{script}"
    text = output("label", "sample/MedQA-Diag", "--by", "body-system", "--llm", model, "--out", str(table))
    assert "digestive" in text
    assert "unparsable, the first sample/MedQA-Diag mqd-q" in text
    summary = found("label", "sample/MedQA-Diag", "--llm", model, "--out", str(table))
    lines = table.read_text().splitlines()
    assert lines[0] == "task\tquery\tlabel"
    assert len(lines) - 1 + len(summary["unparsable"]) == 9
    shown = found("diagnose", "bm25", "--slices", "--labels", str(table), "--tasks", "sample/MedQA-Diag")
    assert {each["slice"]: each["queries"] for each in shown["label"]}["(no label)"] == len(summary["unparsable"])


@pytest.mark.parametrize("form", [(), ("--json",)])
def test_label_fails_and_writes_nothing_if_no_reply_names_a_class(tmp_path: Path, form: tuple[str, ...]) -> None:
    script, table = tmp_path / "script.jsonl", tmp_path / "body.tsv"
    script.write_text('{"reply": "I cannot say"}\n')
    done = run("label", "sample/MedQA-Diag", "--llm", f"scripted:{script}", "--out", str(table), *form)
    assert done.exit_code == 1
    assert str(done.exception).startswith(f"none of 9 queries got a label, so that {table} is not written; the first")
    assert "'I cannot say'" in str(done.exception)
    assert not table.exists()


def test_the_judge_of_answers_is_asked_in_ones_own_words(tmp_path: Path) -> None:
    script, prompt = tmp_path / "script.jsonl", tmp_path / "strict.txt"
    script.write_text('{"match": "Be strict", "reply": "Verdict: no"}\n{"reply": "Verdict: yes"}\n')
    prompt.write_text("Be strict. {question} {correct_answer} {response}\nVerdict: yes or Verdict: no?")
    asked = ("answers", "replay >> bm25", "--tasks", "sample/MedQA-Diag", "--judge", f"scripted:{script}")
    usual, own = found(*asked), found(*asked, "--judge-prompt", str(prompt))
    assert (usual["results"][0]["accuracy"], own["results"][0]["accuracy"]) == (1.0, 0.0)
    assert usual["notes"] == []
    assert re.fullmatch(rf"The judge was asked with {prompt} \([0-9a-f]{{16}}\)\.", own["notes"][0])
    prompt.write_text("{question} {response}")
    assert "must have {correct_answer} in it" in str(run(*asked, "--judge-prompt", str(prompt)).exception)
    assert "cannot read the prompt" in str(run(*asked, "--judge-prompt", str(tmp_path / "none")).exception)
    assert "name one with --judge" in run(*asked[:4], "--judge-prompt", str(prompt)).output


def test_label_reads_a_file_of_queries_and_makes_the_folder_of_its_table(tmp_path: Path) -> None:
    script, table, file = tmp_path / "s.jsonl", tmp_path / "new" / "labels" / "body.tsv", tmp_path / "query.jsonl"
    script.write_text('{"reply": "other"}\n')
    file.write_text('{"id": "q7", "text": "a moss"}\n')
    output("label", str(file), "--llm", f"scripted:{script}", "--out", str(table))
    assert table.read_text().splitlines()[1] == "\tq7\tother"
    file.write_text('{"id": "q7"}\n')
    done = run("label", str(file), "--llm", f"scripted:{script}", "--out", str(table))
    assert isinstance(done.exception, R2medError)


@pytest.mark.parametrize("kind", ["board", "tasks", "differences", "frontier", "gap", "causes"])
def test_plot_draws_each_kind(kind: str, tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    file = tmp_path / f"{kind}.svg"
    tasks = ("--tasks", "sample/Biology", "sample/MedQA-Diag")
    done = run("plot", kind, *(("bm25", "wordllama") if kind == "differences" else ()), *tasks, "--out", str(file))
    assert done.exit_code == 0, done.output
    assert "<svg" in file.read_text("utf-8")


def test_plot_says_what_is_wrong(tmp_path: Path) -> None:
    assert "must end in .png" in run("plot", "board", "--out", str(tmp_path / "x.bmp")).output
    assert "of two runs" in run("plot", "differences", "bm25", "--out", str(tmp_path / "x.png")).output
