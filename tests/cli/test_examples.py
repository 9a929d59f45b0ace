"""The examples of every `--help` work: each is run as it stands, but for those that need what a test has not."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from r2med.cli.main import VERBS, app

ELSEWHERE = {
    "full": "the tasks of the hub",
    "nano": "the tasks of the hub",
    "MedQA-Diag": "the tasks of the hub",
    "hyde/gpt4/bm25": "the tasks of the hub",
    "table:base": "the tasks of the hub",
    "base/bm25": "the tasks of the hub",
    "gpt-4o": "a key",
    "bge": "a model of the hub",
    "minilm": "a model of the hub",
}
"""Words of examples that need a network or a key, which are only read and not run."""
NEVER = {"serve", "site", "submit", "verify", "plot", "doctor"}
"""Verbs that have tests of their own for what they write or serve."""


def examples() -> Iterator[str]:
    """Every line below `Examples:` in the help of a verb or of a verb below it."""
    with click.Context(app) as context:
        commands = [app.get_command(context, verb) for verb in VERBS]
    for command in commands:
        assert command is not None
        several = [command, *(command.commands.values() if isinstance(command, click.Group) else ())]
        for each in several:
            yield from re.findall(r"(?m)^\s+(r2med .+)$", (each.help or "").partition("Example")[2])


def offline(line: str) -> bool:
    words = re.split(r"[\s\"(),>]+", line)
    return words[1] not in NEVER and not ELSEWHERE.keys() & set(words)


OFFLINE = sorted(line for line in examples() if offline(line))


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with all that the examples name, and a ledger with their runs."""
    folder = tmp_path_factory.mktemp("examples")
    for name in ("path/to/folder", "path/to/your/folder", "other/folder"):
        data = folder / name
        data.mkdir(parents=True)
        (data / "query.jsonl").write_text('{"id": "q", "text": "cat"}\n{"id": "p", "text": "dog"}\n')
        (data / "corpus.jsonl").write_text('{"id": "a", "text": "dog"}\n{"id": "b", "text": "cat"}\n')
        (data / "qrels.jsonl").write_text(
            '{"q_id": "q", "p_id": "b", "score": 1}\n{"q_id": "p", "p_id": "a", "score": 1}\n'
        )
    (folder / "body_system.tsv").write_text("task\tquery\tlabel\nsample/Biology\tbio-q01\tnerves\n")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("R2MED_HOME", str(folder / "home"))
        patch.chdir(folder)
        systems = ("bm25", "bm25-classic", "rrf(bm25, bm25-classic)", "replay >> bm25", "wordllama")
        for args in ((*systems, "--tasks", "sample"), ("bm25(k1=2)", "--tasks", "path/to/your/folder")):
            done = CliRunner().invoke(app, ["run", *args])
            assert done.exit_code == 0, done.output
    return folder


def test_the_examples_are_found_and_most_can_be_run() -> None:
    found = list(examples())
    assert len(found) > 30
    assert len(OFFLINE) > 15
    for word in ELSEWHERE:
        assert any(word in line for line in found), f"no example names {word} any more"


FILES = ("bm25.trec", "a.trec.gz", "train", "part-", "cases.html", "my-nano", "generated", ".tar", "clean.")
"""Files of a user's own in examples."""


@pytest.mark.parametrize("line", [line for line in OFFLINE if not any(name in line for name in FILES)])
def test_the_example_works(line: str, place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("R2MED_HOME", str(place / "home"))
    monkeypatch.chdir(place)
    words = shlex.split(line.partition(" > ")[0].partition("  #")[0])
    done = CliRunner().invoke(app, words[1:])
    assert done.exit_code == 0, f"{line}\n{done.output}\n{done.exception!r}"
