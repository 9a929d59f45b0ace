"""What `--json` prints is what its schema says, with every field described."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click
import pytest
from click.testing import CliRunner
from jsonschema import Draft202012Validator
from schemas import SHAPES

from r2med.cli.main import VERBS, app
from r2med.construction.builder import init
from r2med.data.tasks import SAMPLE
from r2med.reviews.rows import DraftDecision, Ruling
from r2med.reviews.store import ReviewStore

ROOT = Path(__file__).parents[2]
SCHEMAS = ROOT / "docs" / "schemas"
TASKS = ("--tasks", "sample/Biology", "sample/MedQA-Diag")
INFERRED = "replay >> bm25"
LAST = "the id of the last run"
INTERPRETER = ("--llm", "scripted:interpreter.jsonl", "--failed", "mark", "--out", "translated")
TRANSLATE = ("build", "translate", "sample/Biology", "--to", "fr", *INTERPRETER)
TRAIN = (
    "train",
    "data",
    "--from",
    "sample",
    "--llm",
    "scripted:writer.jsonl",
    "--questions",
    "3",
    "--out",
    "t.parquet",
)
GRADED = "pointwise(scripted:graded.jsonl, mode=grade)"
JUDGE = "[judge]\nmodels = ['scripted:judge.jsonl']"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A home with a few runs, and files to look at."""
    folder = tmp_path_factory.mktemp("json")
    sample = ROOT / "src" / "r2med" / "data" / "sample" / "Biology"
    texts = [json.loads(line)["text"] for line in (sample / "corpus.jsonl").read_text("utf-8").splitlines()]
    (folder / "training.jsonl").write_text("".join(json.dumps({"text": text}) + "\n" for text in texts[:3]), "utf-8")
    (folder / "broken").mkdir()
    for name in ("corpus", "query", "qrels"):
        (folder / "broken" / f"{name}.jsonl").write_text('{"id": "d1"}\nnot JSON\n', "utf-8")
    (folder / "review.csv").write_text(
        "query_id,doc_id,label\nbio-q01,bio-d016,1\nbio-q01,bio-d001,0\nbio-q02,bio-d032,0\n", "utf-8"
    )
    (folder / "copies").mkdir()
    (folder / "copies" / "r2med.toml").write_text(f'[data]\nfull = "{SAMPLE}"\n')
    (folder / "script.jsonl").write_text(
        json.dumps({"match": "touch|Doppler|skin", "reply": "The cerebellum predicts touch.\nClass: other"}) + "\n",
        "utf-8",
    )
    (folder / "said.jsonl").write_text(json.dumps({"reply": "Answer: ethylene [1]"}) + "\n", "utf-8")
    facts = {"nuggets": [{"text": "It is ethylene", "vital": True}]}
    rules = [
        {"match": "List the facts", "reply": json.dumps(facts)},
        {"match": "Decide for each fact", "reply": '{"1": "support"}'},
        {"match": "Verdict", "reply": "Verdict: no"},
        {"reply": "Answer: ethylene [1]"},
    ]
    (folder / "facts.jsonl").write_text("".join(json.dumps(rule) + "\n" for rule in rules), "utf-8")
    nugget = {"query_id": "bio-q04", "nugget_id": "n01", "text": "It is ethylene", "vital": True}
    (folder / "nuggets.jsonl").write_text(json.dumps(nugget) + "\n", "utf-8")
    verdict = {"answers": 3, "supports": 2, "reason": "It says so.", "quote": "a lack of vitamin C"}
    said = {"translation": "Pourquoi est-ce ainsi ?", "same": True, "difference": ""}
    (folder / "interpreter.jsonl").write_text(json.dumps({"reply": json.dumps(said)}) + "\n", "utf-8")
    wrote = {"question": "Why is that?", "answer": "because", "bridge": "One thing leads to another."}
    rules = [
        {"match": "Read the passage", "reply": json.dumps(wrote)},
        {"match": "Say why it is wrong", "reply": "Class: same-topic"},
        {"match": r"You judge.*\nPassage:\n[^\n]*(?:brain|cell|nerve)", "reply": json.dumps(verdict)},
        {"reply": json.dumps(verdict | {"answers": 0, "supports": 0})},
    ]
    (folder / "grades.jsonl").write_text(
        '{"match": "brain", "reply": "{\\"grade\\": 2}"}\n{"reply": "{\\"grade\\": 0}"}\n'
    )
    (folder / "writer.jsonl").write_text("".join(json.dumps(rule) + "\n" for rule in rules), "utf-8")
    graded = [{"match": "[aeiou]n[^a-z]", "reply": "Grade: 7"}, {"reply": "Grade: 2"}]
    (folder / "graded.jsonl").write_text("".join(json.dumps(rule) + "\n" for rule in graded), "utf-8")
    shutil.copytree(sample, folder / "sample")
    init(folder / "built")
    (folder / "built" / "judge.jsonl").write_text(json.dumps({"reply": json.dumps(verdict)}) + "\n", "utf-8")
    plan = (folder / "built" / "plan.toml").read_text("utf-8").replace("[judge]\nmodels = []", JUDGE)
    (folder / "built" / "plan.toml").write_text(plan.replace('licence = ""', 'licence = "CC0"'), "utf-8")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("R2MED_HOME", str(folder / "home"))
        patch.chdir(folder)
        output("run", "bm25", INFERRED, *TASKS, "--out", "out")
        output("nano", "build", *TASKS[1:], "--docs", "40", "--dense", "wordllama", "--out", "small")
        output("build", "run", "built")
        output(*TRANSLATE)
        output("run", "bm25", "--tasks", "translated")
        output("review", "new", "pilot", "--from", "sample/Biology", "bm25", "--items", "12", "--overlap", "1")
        judge_all("pilot")
        draw = ("--items", "200", "--queue", "random")
        output("review", "new", "holes", "--from", "sample/Biology", "bm25", INFERRED, *draw)
        with ReviewStore.open("holes") as store:
            grades = [(item.number, DraftDecision("graded", item.number % 4)) for item in store.items()]
            store.record_all(store.add_reviewer("a person").id, grades)
        output("review", "export", "pilot", "--to", "csv", "--out", "labels.csv")
        output("submit", "bm25", *TASKS, "--out", "ours.zip")
        (folder / "out" / "runs").rename(folder / "lists")
        next((folder / "lists").glob("sample-Biology.bm25.*")).rename(folder / "list.trec")
    return folder


def judge_all(name: str) -> None:
    """Let two models judge every item of a review, and a person rule on one and name a sentence as unclear."""
    with ReviewStore.open(name) as store:
        for place, model in enumerate(("one", "two")):
            drafts = [(each.number, DraftDecision("graded", (each.number + place) % 4)) for each in store.items()]
            store.record_all(store.add_reviewer(model, "model").id, drafts)
        owner = store.add_reviewer("owner", role="adjudicator")
        store.rule(Ruling(0, owner.id, 1, 2, "guideline", 3, "", 4.5, ""), "token")


def output(*command: str) -> str:
    """What a command prints, in this process; the status of a check is part of what it says, not an error."""
    done = CliRunner().invoke(app, command, catch_exceptions=False)
    assert done.exit_code in (0, 1), done.output
    return done.stdout


COMMANDS = {
    "run": ("run", "bm25", INFERRED, "oracle-answer >> bm25", "hyde(scripted:script.jsonl) >> bm25", *TASKS, "--json"),
    "run (a file)": ("eval", "list.trec", "--tasks", "sample/Biology", "--json"),
    "run (a failure)": ("run", "bm25", "replay(llm=absent) >> bm25", *TASKS, "--json"),
    "plan": ("run", "bm25", "hyde(gpt-4o) >> rrf(bm25, wordllama)", *TASKS, "--dry-run", "--json"),
    "compare": ("compare", "bm25", INFERRED, *TASKS, "--json"),
    "compare-plan": ("compare", "bm25", INFERRED, *TASKS, "--plan", "--json"),
    "board": ("board", "--format", "json"),
    "board (ranks)": ("board", *TASKS, "--columns", "ranks", "contamination", "--format", "json"),
    "board-factors": ("board", "--published", "--factors", "--format", "json"),
    "board (local runs)": ("board", *TASKS, "--ci", "--columns", "cost", "--baseline", "bm25", "--format", "json"),
    "runs": ("runs", "--json"),
    "causes": ("diagnose", INFERRED, "--against", "bm25", *TASKS, "--json"),
    "gap": ("diagnose", INFERRED, *TASKS, "--gap", "--json"),
    "complement": ("diagnose", "bm25", INFERRED, *TASKS, "--complement", "--json"),
    "coverage": ("diagnose", "bm25", *TASKS, "--coverage", "--json"),
    "slices": ("diagnose", "bm25", *TASKS, "--slices", "--json"),
    "cost": ("diagnose", *TASKS, "--cost", "--json"),
    "verification": ("diagnose", "bm25", "--verify", GRADED, *TASKS, "--json"),
    "plan (of a verification)": ("diagnose", "bm25", "--verify", GRADED, *TASKS, "--dry-run", "--json"),
    "sensitivity": ("sensitivity", "wordllama", "--max-length", "8,32", *TASKS, "--json"),
    "frontier": ("frontier", "bm25", INFERRED, *TASKS, "--json"),
    "tune": ("tune", "bm25", "--over", "k1=0.5,0.9", "--folds", "2", "--tasks", "sample/Biology", "--json"),
    "tune (a route)": ("tune", f"route(bm25, {INFERRED})", "--halves", "2", "--tasks", "sample/Biology", "--json"),
    "audit": ("audit", "sample/Biology", "--labels", "task", "review.csv", "--overlay", "--json"),
    "correct": (
        *("correct", "bm25", INFERRED, "--task", "sample/Biology", "--people", "review:holes"),
        *("--judge", "scripted:grades.jsonl", "--repeat", "2", "--json"),
    ),
    "correct (without labels)": ("correct", "bm25", "--task", "sample/Biology", "--json"),
    "correct-plan": ("correct", "bm25", INFERRED, "--task", "sample/Biology", "--plan", "--json"),
    "review": ("review", "new", "other", "--from", "sample/Biology", "bm25", "--items", "12", "--json"),
    "review (judged)": ("review", "show", "pilot", "--json"),
    "review-agreement": ("review", "agreement", "pilot", "--json"),
    "review-export": (
        *("review", "export", "pilot", "--to", "task", "--out", "reviewed"),
        *("--rule", "median", "--reviewer", "one", "two", "--json"),
    ),
    "review-import": ("review", "import", "pilot", "labels.csv", "--as", "them", "--json"),
    "review-judge": ("review", "judge", "pilot", "--llm", "scripted:said.jsonl", "--as", "judge", "--json"),
    "review-judge-plan": ("review", "judge", "pilot", "--llm", "gpt-4o", "--dry-run", "--json"),
    "reviews": ("review", "list", "--json"),
    "answers": ("answers", INFERRED, "--json"),
    "rag": (
        "rag",
        "bm25",
        "oracle-answer >> bm25",
        "--llm",
        "scripted:said.jsonl",
        *TASKS[:2],
        "--samples",
        "2",
        "--json",
    ),
    "rag [with nuggets]": (
        *("rag", "bm25", "--llm", "scripted:facts.jsonl", "--judge", "scripted:facts.jsonl", "--k", "1"),
        *("--nuggets", "nuggets.jsonl", *TASKS[:2], "--json"),
    ),
    "rag-nuggets": (
        *("rag", "--llm", "scripted:facts.jsonl", "--write-nuggets", "written.jsonl", *TASKS[:2], "--json"),
    ),
    "rag-nuggets-plan": (
        *("rag", "--llm", "gpt-4o", "--write-nuggets", "planned.jsonl", *TASKS[:2], "--dry-run", "--json"),
    ),
    "rag-plan": ("rag", "bm25", "--llm", "gpt-4o", "--judge", "gpt-4o", *TASKS, "--dry-run", "--json"),
    "validate": ("tasks", "validate", "broken", "--json"),
    "leakage": ("leakage", "training.jsonl", "--tasks", "sample/Biology", "--json"),
    "verify": ("verify", "ours.zip", "--json"),
    "stats": ("tasks", "stats", "sample/Biology", "--json"),
    "tasks": ("tasks", "--json"),
    "inspect": ("inspect", INFERRED, "--against", "bm25", *TASKS, "--sample", "3", "--json"),
    "inspect (one run)": ("inspect", "bm25", *TASKS, "--worst", "2", "--json"),
    "label": ("label", "sample/Biology", "--llm", "scripted:script.jsonl", "--out", "labels.tsv", "--json"),
    "reproduce": ("reproduce", "base/bm25", "--tasks", "Biology", "MedQA-Diag", "--json"),
    "search": ("search", "bm25", "why do joggers get red urine?", "--task", "sample/Biology", "--json"),
    "reproduce-plan": ("reproduce", "base/bge", "hyde/gpt4/bm25", "reranker/rankllama", "--dry-run", "--json"),
    "build": ("build", "run", "built", "--json"),
    "build (status)": ("build", "status", "built", "--json"),
    "build-plan": ("build", "run", "built", "--dry-run", "--json"),
    "build-check": ("build", "check", "built", "--reask", "50%", "--json"),
    "build-plan (judges asked again)": ("build", "check", "built", "--reask", "100%", "--dry-run", "--json"),
    "build-publish": ("build", "publish", "built", "--repo", "ward-7/handover", "--dry-run", "--json"),
    "build-show": ("build", "show", "built", "example-1", "--json"),
    "build-translate": (*TRANSLATE, "--json"),
    "build-plan (a translation)": (*TRANSLATE, "--dry-run", "--json"),
    "train-data": (*TRAIN, "--allow-unchecked", "--json"),
    "train-export": ("train", "export", "t.parquet", "--to", "gritlm", "--out", "grit", "--json"),
    "build-plan (training data)": (*TRAIN, "--dry-run", "--json"),
    "board (a translation)": ("board", "--tasks", "translated", "--format", "json"),
    "compare-languages": ("compare", "bm25", "--languages", "--tasks", "translated", "--json"),
    "nano-build": ("nano", "build", *TASKS[1:], "--docs", "40", "--out", "nano-set", "--json"),
    "nano-profile": ("nano", "profile", "small", "--json"),
    "nano-agree": ("nano", "agree", "small", "sample", "--systems", "bm25", "bm25-classic", "--json"),
    "index": ("engines", "push", "sample/Biology", "--to", "solr", "--url", "http://x", "--dry-run", "--json"),
    "engines": ("engines", "--json"),
    "models": ("models", "--json"),
    "models (llm)": ("models", "--llm", "--json"),
    "models (reranker)": ("models", "--reranker", "--json"),
    "models (late)": ("models", "--late", "--json"),
    "model (late)": ("models", "show", "colbertv2", "--json"),
    "model (reranker)": ("models", "show", "listwise(reasonrank-7b)", "--json"),
    "model (language model)": ("models", "show", "gpt-4o", "--json"),
    "models (all)": ("models", "--all", "--json"),
    "model": ("models", "show", "bge", "--json"),
    "cache": ("cache", "--json"),
    "doctor": ("doctor", "--json"),
    "run-record": ("runs", "show", LAST, "--json"),
}
"""A command for each schema; in brackets, what is special about another one."""


def closed(schema: Any) -> Any:
    """The schema with no room for fields that it does not describe."""
    if isinstance(schema, list):
        return [closed(item) for item in schema]
    if not isinstance(schema, dict):
        return schema
    shut = {"additionalProperties": False} if "properties" in schema else {}
    return shut | {key: closed(value) for key, value in schema.items()}


@pytest.mark.parametrize("name", COMMANDS)
def test_the_output_is_what_the_schema_says(name: str, folder: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("R2MED_HOME", str(folder / "home"))
    monkeypatch.chdir(folder / "copies" if name == "reproduce" else folder)
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    last = json.loads(output("runs", "--json"))[0]["run"]
    value = json.loads(output(*(last if word == LAST else word for word in COMMANDS[name])))
    file = SCHEMAS / f"{name.partition(' ')[0]}.json"
    checker = Draft202012Validator(closed(json.loads(file.read_text("utf-8"))))
    wrong = [f"{fault.json_path}: {fault.message[:300]}" for fault in checker.iter_errors(value)]
    assert wrong == [], f"{file} does not describe what is printed; mend scripts/schemas.py, then run: make reference"
    assert value


def test_the_schema_of_slices_admits_no_interval_of_one_query():
    checker = Draft202012Validator(closed(json.loads((SCHEMAS / "slices.json").read_text("utf-8"))))

    def valid(queries: int, low: float | None) -> bool:
        mean = {"mean": 0.369, "low": low, "high": low}
        return checker.is_valid({"task": [{"slice": "a", "queries": queries, "means": [mean], "difference": mean}]})

    assert valid(1, None)
    assert valid(2, 0.369)
    assert valid(2, None)
    assert not valid(1, 0.369)
    assert not valid(0, None)


def test_every_verb_with_json_has_a_schema():
    titles = " ".join(title for title, _, _ in SHAPES.values())
    for verb, command in commands():
        if any("--json" in param.opts for param in command.params):
            assert re.search(rf"r2med {verb}( --[\w-]+)* --json", titles), f"{verb} --json has no schema"


def commands() -> Iterator[tuple[str, click.Command]]:
    """Every verb, and every verb below one."""
    with click.Context(app) as context:
        for verb in VERBS:
            command = app.get_command(context, verb)
            assert command is not None
            yield verb, command
            for name, below in getattr(command, "commands", {}).items():
                yield f"{verb} {name}", below


def test_every_schema_is_sound_and_used():
    files = {file.stem: json.loads(file.read_text("utf-8")) for file in SCHEMAS.glob("*.json")}
    assert set(files) == {name.partition(" ")[0] for name in COMMANDS} == set(SHAPES)
    for name, schema in files.items():
        Draft202012Validator.check_schema(schema)
        assert schema["title"].startswith("r2med "), name
        assert f"schemas/{name}.json" in (ROOT / "docs" / "reference" / "schemas.md").read_text("utf-8"), name
