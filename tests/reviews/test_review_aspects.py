"""Reviewers are asked which aspects of a question a passage covers: at the desk, in exports, and read back."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import pytest
from click.testing import CliRunner
from starlette.testclient import TestClient

from r2med.cli.main import app
from r2med.data.loader import load
from r2med.data.qrels import read_qrels
from r2med.reviews.access import ReviewDoor, invite, join_path
from r2med.reviews.store import ReviewStore
from r2med.web.access import Access
from r2med.web.app import create_app
from r2med.web.library import Library

HERE = "http://127.0.0.1:8421"
ASPECTS = {"cause": 3.0, "what to do; and when": 1.0}


def call(*words: str) -> str:
    done = CliRunner().invoke(app, words)
    assert done.exit_code == 0, f"{done.output} {done.exception!r}"
    return done.stdout


@pytest.fixture
def task(tmp_path: Path) -> Path:
    """Three passages of one question: one covers both aspects, one the first, one none."""
    folder = tmp_path / "scurvy"
    folder.mkdir()
    texts = {"d1": "Gums bleed for want of vitamin C.", "d2": "Eat lemons: vitamin C is lacking.", "d3": "Ships sail."}
    rows = [("d1", 1, "cause"), ("d2", 1, "cause"), ("d2", 1, "what to do; and when"), ("d3", 0, "cause")]
    lines = {
        "corpus.jsonl": [{"id": name, "text": text} for name, text in texts.items()],
        "query.jsonl": [{"id": "q1", "text": "Why do gums bleed?"}],
        "qrels.jsonl": [
            {"q_id": "q1", "p_id": name, "score": grade, "aspect": aspect, "weight": ASPECTS[aspect]}
            for name, grade, aspect in rows
        ],
    }
    for name, values in lines.items():
        (folder / name).write_text("".join(json.dumps(value) + "\n" for value in values))
    return folder


def judge(name: str, person: str, grades: dict[str, int], covered: dict[str, list[int]]) -> None:
    """Judge every item at the desk, as a form without script sends it."""
    with ReviewStore.open(name) as store:
        application = create_app(Library(), Access("t" * 20), ReviewDoor(lambda: 0.0))
        client = TestClient(application, base_url=HERE, headers={"origin": HERE}, follow_redirects=False)
        client.get(join_path(name, invite(store, person)))
        reviewer = store.reviewer(person)
        for step in range(3):
            address = client.get(f"/review/{name}").headers["location"]
            page = client.get(address).text
            assert "Which aspects of the question does the passage cover?" in page
            assert "what to do; and when" in page
            assert "checked> <span" not in page
            place = store.dealt(reviewer.id, int(address.rpartition("/")[2]))
            assert place is not None
            document = store.item(place.item).document
            boxes = {f"aspect-{number}": "on" for number in covered[document]}
            form = {"say": str(grades[document]), "token": f"{person}{step}" * 4, **boxes}
            assert client.post(address, data=form).status_code == 303
            again = client.get(address).text
            assert again.count("checked> <span") == len(boxes)


def test_aspects_from_the_desk_to_judgements_and_back(task: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("R2MED_HOME", str(tmp_path / "home"))
    call(
        "review", "new", "pilot", "--from", str(task), "--items", "3", "--overlap", "100%", "--repeat", "0", "--aspects"
    )
    judge("pilot", "Ada", {"d1": 3, "d2": 3, "d3": 0}, {"d1": [0], "d2": [0, 1], "d3": []})
    judge("pilot", "Ben", {"d1": 3, "d2": 3, "d3": 0}, {"d1": [0, 1], "d2": [1], "d3": [0]})
    # Most of those who were asked: of two people, both.
    expected = {"cause": (frozenset({"d1"}), 3.0), "what to do; and when": (frozenset({"d2"}), 1.0)}
    call("review", "export", "pilot", "--to", "r2med", "--out", str(tmp_path / "a.jsonl"))
    read = read_qrels(tmp_path / "a.jsonl")
    assert read.qrels == {"q1": {"d1": 2, "d2": 2, "d3": 0}}
    assert read.aspects == {"q1": expected}
    call("review", "export", "pilot", "--to", "task", "--out", str(tmp_path / "second"))
    again = load(tmp_path / "second").gold
    assert again.aspects == {"q1": expected}
    assert again.fingerprint != load(task).gold.fingerprint
    trec = CliRunner().invoke(app, ["review", "export", "pilot", "--to", "trec", "--out", str(tmp_path / "a.qrels")])
    assert "aspects are not in the form trec; --to r2med has them" in trec.output

    call("review", "export", "pilot", "--to", "csv", "--out", str(tmp_path / "a.csv"))
    rows = list(csv.DictReader((tmp_path / "a.csv").open()))
    by_pair = {(row["reviewer"], row["doc_id"]): json.loads(row["aspects"]) for row in rows}
    assert by_pair["Ada", "d2"] == [*ASPECTS]
    assert by_pair["Ben", "d3"] == ["cause"]
    call("review", "new", "copy", "--from", str(task), "--items", "3", "--aspects")
    for _ in range(2):  # the same file again writes nothing twice
        call("review", "import", "copy", str(tmp_path / "a.csv"), "--as", "first", "--kind", "person")
    with ReviewStore.open("copy") as store:
        assert len(store.decisions()) == len(rows) == 6
        names = {reviewer.id: reviewer.name for reviewer in store.reviewers()}
        documents = {item.number: item.document for item in store.items()}
        said = {
            (names[row.reviewer], documents[row.item]): store.coverage().get(row.id, ()) for row in store.decisions()
        }
    assert said == {(f"first: {who}", name): tuple(aspects) for (who, name), aspects in by_pair.items()}


def test_what_has_no_aspects_is_asked_for_none(task: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("R2MED_HOME", str(tmp_path / "home"))
    done = CliRunner().invoke(app, ["review", "new", "x", "--from", "sample/Biology", "--aspects"])
    message = "sample/Biology: its judgements have no column aspect for these questions; leave out --aspects"
    assert str(done.exception) == message
    call("review", "new", "plain", "--from", str(task), "--items", "3")
    call("review", "import", "plain", str(task / "qrels.jsonl"), "--as", "task", "--scale", "judgements")
    call("review", "export", "plain", "--to", "csv", "--out", str(tmp_path / "b.csv"))
    assert "aspects" not in (tmp_path / "b.csv").read_text()
    call("review", "new", "asked", "--from", str(task), "--items", "3", "--aspects")
    call("review", "import", "asked", str(task / "qrels.jsonl"), "--as", "task", "--scale", "judgements")
    (tmp_path / "bad.jsonl").write_text('{"q_id": "q1", "p_id": "d1", "score": 1, "aspect": "sails"}\n')
    done = CliRunner().invoke(
        app, ["review", "import", "asked", str(tmp_path / "bad.jsonl"), "--as", "b", "--scale", "judgements"]
    )
    assert str(done.exception).endswith("has no aspect 'sails' here")
