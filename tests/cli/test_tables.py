"""Every verb that prints a table, at every width and in a pipe: all names and all figures are there, whole."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from r2med.cli.main import VERBS, app

LONG = "rrf(bm25, bm25-classic, bm25(k1=1.2, b=0.4))"
GRADED = "pointwise(scripted:{home}/graded.jsonl, mode=grade)"
SYSTEMS = ("bm25", "bm25-classic", LONG)


def invoke(*args: str, columns: int | None = None) -> Result:
    return CliRunner().invoke(app, args, env={"COLUMNS": str(columns) if columns else None, "NO_COLOR": "1"})


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A ledger with runs, a nano set and a file of training data, made once."""
    folder = tmp_path_factory.mktemp("tables")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("R2MED_HOME", str(folder))
        for args in (
            ("run", *SYSTEMS, "replay >> bm25"),
            ("nano", "build", "sample", "--out", str(folder / "nano"), "--docs", "30", "--queries", "4"),
            ("run", *SYSTEMS, "--tasks", str(folder / "nano")),
        ):
            done = invoke(*args)
            assert done.exit_code == 0, done.output
    graded = [{"match": "[aeiou]n[^a-z]", "reply": "Grade: 7"}, {"reply": "Grade: 2"}]
    (folder / "graded.jsonl").write_text("".join(json.dumps(rule) + "\n" for rule in graded), "utf-8")
    texts = [json.loads(line)["text"] for line in _corpus().splitlines()[:3]]
    (folder / "train.jsonl").write_text("".join(json.dumps({"text": text}) + "\n" for text in texts))
    pairs = [(query, document) for query in range(1, 10) for document in range(1, 7)]
    rows = [
        f"bio-q{q:02},bio-d{d:03},{(q + d + d % 2 * len(who)) % 3},{who}\n"
        for q, d in pairs
        for who in ("a", "reviewer")
    ]
    (folder / "reviewers.csv").write_text("query_id,doc_id,label,reviewer\n" + "".join(rows), "utf-8")
    return folder


def _corpus() -> str:
    from importlib.resources import files

    root = files("r2med") / "data" / "sample"
    return next(iter(Path(str(root)).rglob("*orpus*.jsonl"))).read_text("utf-8")


COMMANDS = {
    "run": ("run", *SYSTEMS),
    "run --ci": ("run", *SYSTEMS, "--ci", "--columns", "cost"),
    "run of a nano set": ("run", *SYSTEMS, "--tasks", "{home}/nano"),
    "runs": ("runs", "--limit", "12"),
    "board": ("board", "--limit", "5"),
    "board --ci": ("board", "--group", "sample", "--ci", "--columns", "cost"),
    "compare": ("compare", *SYSTEMS, "--tasks", "sample"),
    "stats": ("tasks", "stats", "sample"),
    "answers": ("answers", "replay >> bm25"),
    "models": ("models",),
    "models --all": ("models", "--all"),
    "tasks": ("tasks",),
    "causes": ("diagnose", "bm25", "--against", LONG, "--tasks", "sample"),
    "gap": ("diagnose", LONG, "--gap", "--tasks", "sample"),
    "complement": ("diagnose", "bm25", LONG, "--complement", "--tasks", "sample"),
    "coverage": ("diagnose", "bm25", LONG, "--coverage", "--tasks", "sample"),
    "slices": ("diagnose", "bm25", LONG, "--slices", "--tasks", "sample"),
    "cost": ("diagnose", "--cost", "--tasks", "sample"),
    "verification": ("diagnose", "bm25", "--verify", GRADED, "--tasks", "sample"),
    "audit": ("audit", "sample/Biology", "--labels", "{home}/reviewers.csv"),
    "nano profile": ("nano", "profile", "{home}/nano"),
    "nano agree": ("nano", "agree", "{home}/nano", "sample", "--systems", *SYSTEMS),
    "leakage": ("leakage", "{home}/train.jsonl", "--tasks", "sample", "--documents"),
    "cache": ("cache",),
}


def blocks(text: str) -> Iterator[tuple[str, list[str]]]:
    """Each table: the heading above its rule, and its rows up to a blank line."""
    for part in re.split(r"\n\s*\n", text):
        lines = part.strip("\n").splitlines()
        rules = [place for place, line in enumerate(lines) if line.strip() and set(line.strip()) == {"─"}]
        if rules:
            body = [line for place, line in enumerate(lines) if place > rules[0] and place not in rules]
            yield " ".join(lines[: rules[0]]), body


def names(rows: list[str]) -> list[str]:
    """The first column, a line each: what stands before two blanks, after a rank."""
    pieces = [re.split(r"\s{2,}", re.sub(r"^\s*(\d+|-)\s\s", "", row).strip()) for row in rows]
    return [several[0] for several in pieces if not re.fullmatch(r"[\d.]+-[\d.]+|\([\d.]+\)", several[0])]


def squeezed(text: str) -> str:
    return re.sub(r"\s", "", text)


def figures(rows: list[str]) -> set[float]:
    return set(map(float, re.findall(r"(?<![\w.@/-])[-+]?\d+\.\d+(?![\w.])", "\n".join(rows))))


CLOCKS = ("cache", "cost", "run --ci", "board --ci", "runs")
"""What shows seconds and sizes, which are others at every call."""


@pytest.mark.parametrize("name", COMMANDS)
def test_tables_are_whole_at_every_width(name: str, home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("R2MED_HOME", str(home))
    args = [part.replace("{home}", str(home)) for part in COMMANDS[name]]
    pipe = invoke(*args)
    assert pipe.exit_code in (0, 1), pipe.output
    tables = [rows for _, rows in blocks(pipe.output)]
    assert tables
    expected = [squeezed(line) for rows in tables for line in names(rows)]
    for columns in (60, 80, 120):
        shown = invoke(*args, columns=columns).output
        parts = [rows for _, rows in blocks(shown)]
        assert "…" not in shown
        assert [row for rows in parts for row in rows if len(row) > columns] == []
        first = squeezed("".join(line for rows in parts for line in names(rows)))
        assert [line for line in expected if line not in first] == [], shown
        there = set[float]().union(*map(figures, parts))
        wanted = set[float]() if name in CLOCKS else set[float]().union(*map(figures, tables))
        rounded = 0.0501
        assert [figure for figure in wanted if not any(abs(figure - seen) < rounded for seen in there)] == [], shown


def test_models_of_every_kind_are_listed_with_what_they_need() -> None:
    from r2med.llm.cards import model_names
    from r2med.rerank.cards import api_cards, cards, served_cards

    found = json.loads(invoke("models", "--all", "--json").output)
    assert [fact["name"] for fact in found["llm"]] == model_names()
    assert len(found["reranker"]) == len(cards()) + len(served_cards()) + len(api_cards())
    assert found["llm"] == json.loads(invoke("models", "--llm", "--json").output)
    assert found["reranker"] == json.loads(invoke("models", "--reranker", "--json").output)
    assert found["encoder"] == json.loads(invoke("models", "--json").output)
    gpt = next(fact for fact in found["llm"] if fact["name"] == "gpt-4o")
    assert (gpt["prompt_price"], gpt["completion_price"], gpt["needs"]) == (2.5, 10.0, "OPENAI_API_KEY")
    row = next(line for line in invoke("models", "--llm").output.splitlines() if line.startswith(" gpt-4o "))
    assert row.split() == ["gpt-4o", gpt["id"], "no", "2.5", "10", "OPENAI_API_KEY"]


def test_the_board_fits_a_few_screens_and_says_what_is_left_out() -> None:
    shown = CliRunner(env={"COLUMNS": "80"}).invoke(app, ["board"], catch_exceptions=False).output
    assert "more systems are not shown (--limit 0 shows all)" in shown
    assert len(shown.splitlines()) < 120
    assert "· grouprank" in " ".join(shown.split())
    everything = CliRunner().invoke(app, ["board", "--format", "csv"], catch_exceptions=False).output
    assert len(everything.splitlines()) > 162


def test_names_of_tasks_stay_whole_on_a_narrow_terminal() -> None:
    for verb in ("show", "stats"):
        shown = CliRunner(env={"COLUMNS": "80"}).invoke(app, ["tasks", verb, "sample"], catch_exceptions=False).output
        assert "Bioinformatics" in shown
        assert "qa-reference" in shown or verb == "stats"


def test_every_verb_and_sub_verb_is_one_whole_sentence_in_its_list() -> None:
    for verb in VERBS:
        shown = CliRunner(env={"COLUMNS": "80"}).invoke(app, [verb, "--help"], catch_exceptions=False).output
        _, _, listed = shown.partition("\nCommands:\n")
        assert "..." not in listed, verb
        assert all(line.endswith(".") for line in listed.splitlines()), verb
