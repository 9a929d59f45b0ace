"""Questions and documents from the hub, and a finished task on it: against a server that speaks the hub's protocol."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path

import polars as pl
import pytest
from click.testing import CliRunner

from building import TASK, brain, sample, write_plan
from hubserver import Fault, HubServer, run_python
from r2med.cli.main import app
from r2med.construction.builder import Builder
from r2med.data.loader import load
from r2med.llm.cards import add_model
from r2med.llm.scripted import scripted

REPO, TOKEN = "ward-7/bedside", "hf_of_ward_7"


@pytest.fixture
def hub():
    with HubServer(writers={TOKEN: "ward-7", "hf_of_others": "others"}) as server:
        yield server


@pytest.fixture(scope="module")
def built(tmp_path_factory):
    said = brain()
    add_model(scripted(lambda request: said(request.messages[-1].content), "thinker"))
    folder = write_plan(
        tmp_path_factory.mktemp("publish") / "b",
        "thinker",
        task={"name": "bedside", "licence": "CC BY 4.0"},
        select={"dev": 0.4, "seed": 2},
    )
    Builder(folder).run()
    return folder


def r2med(hub: HubServer, home: Path, *words: object, **environment: str) -> subprocess.CompletedProcess[str]:
    line = [sys.executable, "-m", "r2med", *map(str, words)]
    variables = hub.environment(home, **environment)
    return subprocess.run(line, env=variables, capture_output=True, text=True, timeout=180, check=False, cwd=home)


LOAD = """
import json, sys
import datasets
from r2med.data.loader import load
found = {split: load(f"hf:{sys.argv[1]}", split=split) for split in ("test", "dev")}
configs = {name: {split: len(rows) for split, rows in datasets.load_dataset(sys.argv[1], name).items()}
           for name in ("corpus", "query", "qrels", "judgements")}
print(json.dumps({"fingerprints": {split: data.fingerprint for split, data in found.items()},
                  "answers": dict(found["test"].gold.answers), "reasoning": dict(found["test"].gold.reasoning),
                  "configs": configs}))
"""


def test_a_published_task_is_read_back_by_r2med_and_by_datasets_as_it_was(hub, built, tmp_path):
    shown = r2med(hub, tmp_path, "build", "publish", built, "--repo", REPO, "--dry-run", "--json")
    assert shown.returncode == 0, shown.stderr
    names = {file["name"] for file in json.loads(shown.stdout)["files"]}
    assert {"corpus/corpus.parquet", "qrels/dev.parquet", "judgements.parquet", "README.md", "task.toml"} <= names
    assert not any(request.startswith("POST") for request in hub.requests)
    done = r2med(hub, tmp_path, "build", "publish", built, "--repo", REPO, "--private", HF_TOKEN=TOKEN)
    assert done.returncode == 0, done.stderr
    assert f"--tasks hf:{REPO}" in done.stderr
    assert hub.private == {REPO}
    pushed = hub.repositories["datasets", REPO][0].files
    assert set(pushed) == names
    card = pushed["README.md"].decode()
    assert card.count("task_categories:") == 1
    assert 'license_name: "CC BY 4.0"' in card
    code = f"import sys; sys.argv = ['', {REPO!r}]\n{LOAD}"
    answer = json.loads(run_python(code, hub.environment(tmp_path / "other")).stdout)
    task = built / "task"
    local = {split: load(task, split=split) for split in ("test", "dev")}
    assert answer["fingerprints"] == {split: data.fingerprint for split, data in local.items()}
    assert answer["answers"] == dict(local["test"].gold.answers)
    assert answer["reasoning"] == dict(local["test"].gold.reasoning)
    rows = pl.read_parquet(task / "judgements.parquet")
    assert answer["configs"]["judgements"] == {"judgements": len(rows)}
    assert set(answer["configs"]["qrels"]) == {"dev", "test"}
    # Pushed again, it is a new commit of the same repository.
    again = r2med(hub, tmp_path, "build", "publish", built, "--repo", REPO, HF_TOKEN=TOKEN)
    assert again.returncode == 0, again.stderr
    assert len(hub.repositories["datasets", REPO]) == 3


@pytest.mark.parametrize(
    ("environment", "repo", "fault", "said"),
    [
        ({}, REPO, None, "no token of the hub: set HF_TOKEN in the environment, or run: hf auth login"),
        ({"HF_TOKEN": "hf_of_others"}, REPO, None, f"does not let this token write to {REPO} (403): check HF_TOKEN"),
        ({"HF_TOKEN": "hf_of_nobody"}, REPO, None, "(401): check HF_TOKEN; it needs the right to write to ward-7"),
        ({"HF_TOKEN": TOKEN}, "no name at all", None, "'no name at all' is not a name for a repository of the hub"),
        ({"HF_TOKEN": TOKEN}, REPO, Fault("commit", status=400), f"answered 400 while {REPO} was pushed"),
        ({"HF_TOKEN": TOKEN, "HF_HUB_OFFLINE": "1"}, REPO, None, "HF_HUB_OFFLINE is set"),
    ],
)
def test_what_stands_in_the_way_of_publishing_is_one_line(hub, built, tmp_path, environment, repo, fault, said):
    hub.faults += [fault] if fault else []
    done = r2med(hub, tmp_path, "build", "publish", built, "--repo", repo, **environment)
    assert done.returncode == 1
    [line] = [line for line in done.stderr.splitlines() if "UserWarning" not in line]
    assert said in line
    assert TOKEN not in line


def change(folder: Path, built: Path, spoil) -> Path:
    shutil.copytree(built / "task", folder)
    spoil(folder)
    return folder


def no_licence(folder: Path) -> None:
    manifest = json.loads((folder / "build.json").read_text())
    manifest["plan"]["task"]["licence"] = " "
    (folder / "build.json").write_text(json.dumps(manifest))


def unknown_document(folder: Path) -> None:
    with (folder / "qrels" / "test.tsv").open("a") as file:
        file.write("nobody\tnothing\t1\n")


def shared_text(folder: Path) -> None:
    rows = [json.loads(line) for line in (folder / "query.jsonl").read_text().splitlines()]
    splits = {
        line.split("\t")[0]: split
        for split in ("dev", "test")
        for line in (folder / "qrels" / f"{split}.tsv").read_text().splitlines()[1:]
    }
    one, other = (next(row for row in rows if splits[row["id"]] == split) for split in ("dev", "test"))
    other["text"] = one["text"]
    (folder / "query.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))


@pytest.mark.parametrize(
    ("spoil", "said"),
    [
        (no_licence, "not published: the licence of the texts is not stated; say it in plan.toml, [task] licence"),
        (unknown_document, "not published: the task is not valid: "),
        (shared_text, "not published: dev and test leak into each other: "),
    ],
)
def test_what_nobody_should_publish_is_refused_before_anything_is_sent(built, tmp_path, spoil, said):
    folder = change(tmp_path / "task", built, spoil)
    done = CliRunner().invoke(app, ["build", "publish", str(folder), "--repo", REPO, "--dry-run"])
    assert done.exit_code == 1
    assert str(done.exception or done.output).count("\n") <= 1
    assert said in str(done.exception) + done.output


def test_questions_and_documents_come_from_the_hub_once(hub, tmp_path):
    dataset = sample()
    table = pl.DataFrame(
        {
            "name": list(dataset.collection.queries.ids),
            "case": [text for _, text in dataset.collection.queries],
            "answer": [dataset.gold.answers[name] for name in dataset.collection.queries.ids],
        }
    )
    table.write_parquet(tmp_path / "cases.parquet")
    first = hub.add("ward-7/cases", {"data/train.parquet": (tmp_path / "cases.parquet").read_bytes()})
    second = hub.add("ward-7/texts", {"corpus.jsonl": (dataset.task.folder / "corpus.jsonl").read_bytes()})
    script = tmp_path / "b" / "judge.toml"
    folder = write_plan(
        tmp_path / "b",
        "",
        questions={"path": "hf:ward-7/cases/data/train.parquet", "id": "name", "question": "case", "options": ""},
        documents={"path": "hf:ward-7/texts"},
        difficulty={"models": [], "judge": ""},
        judge={"models": ["scripted:judge.toml"]},
    )
    script.write_text('[[rule]]\nreply = \'{"answers": 3, "supports": 3, "reason": "", "quote": ""}\'\n')
    done = r2med(hub, tmp_path, "build", "run", folder, "--json")
    assert done.returncode == 0, done.stderr
    manifest = json.loads((folder / "task" / "build.json").read_text())
    assert manifest["plan"]["questions"]["path"] == f"hf:ward-7/cases/data/train.parquet@{first}"
    assert manifest["plan"]["documents"]["path"] == f"hf:ward-7/texts@{second}"
    steps = {step["step"]: step for step in json.loads(done.stdout)["steps"]}
    assert steps["read"]["kept"] == len(dataset.collection.queries)
    assert steps["documents"]["kept"] == len(load(f"sample/{TASK}").collection.documents)
    hub.requests.clear()
    assert r2med(hub, tmp_path, "build", "run", folder, "--json").stdout == done.stdout
    assert hub.requests == []
    for path, said in (
        ("hf:ward-7/cases", "must name a file: hf:ward-7/cases/FILE"),
        ("hf:ward-7/cases/none.csv", "has no file 'none.csv'"),
        ("hf:ward-7", "not a place on the hub; write hf:ORG/NAME/FILE"),
        ("hf:ward-7/nothing/a.csv", "ward-7/nothing does not exist at"),
    ):
        plan = (folder / "plan.toml").read_text()
        (folder / "plan.toml").write_text(plan.replace("hf:ward-7/cases/data/train.parquet", path))
        wrong = r2med(hub, tmp_path, "build", "run", folder)
        (folder / "plan.toml").write_text(plan)
        assert wrong.returncode == 1
        assert said in wrong.stderr
        assert wrong.stderr.count("\n") == 1
