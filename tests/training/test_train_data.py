"""Training data: the source is no positive, the bridge stays, negatives are typed, and nothing leaves unchecked."""

from __future__ import annotations

import json
from pathlib import Path

import orjson
import polars as pl
import pytest
from bridging import SIGNS, Brain, document, write_documents
from click.testing import CliRunner
from hypothesis import given, settings
from hypothesis import strategies as st

from r2med.cli.main import app
from r2med.construction.items import Passage
from r2med.data.loader import load
from r2med.errors import DataError
from r2med.training import data as making
from r2med.training.negatives import JudgedPassage, spread
from r2med.training.rows import read_training_file, write_training_file
from r2med.training.settings import read_settings
from r2med.training.writing import copied_run


@pytest.fixture
def near_tasks(monkeypatch: pytest.MonkeyPatch) -> None:
    """R2MED is not here: the gate looks at the sample in its place."""
    monkeypatch.setattr(making, "ALWAYS", ("sample/Biology",))


def call(*words: object, status: int = 0) -> str:
    done = CliRunner().invoke(app, ["train", *map(str, words)])
    assert done.exit_code == status, (words, done.output, done.exception)
    return done.stdout if not status else str(done.exception or "") + done.output


def make(folder: Path, *more: object, status: int = 0) -> str:
    words = ("data", "--from", folder / "documents", "--llm", "thinker", "--out", folder / "bridge.parquet")
    return call(*words, "--questions", 20, *more, status=status)


def test_the_source_is_no_positive_and_everything_is_kept(tmp_path: Path, near_tasks: None) -> None:
    brain = Brain()
    write_documents(tmp_path / "documents")
    planned = json.loads(make(tmp_path, "--dry-run", "--json"))
    assert [step["step"] for step in planned] == ["write", "judge", "type"]
    assert planned[0]["requests"] == 20
    assert not brain.asked
    table = tmp_path / "my.toml"
    table.write_text(
        "[negatives]\ncount = 5\n"
        'types = ["same-topic: what is done about another", "same-symptoms: another cause"]\n[parts]\ndev = 0.3\n'
    )
    options = ("--licence", "CC BY 4.0", "--settings", table, "--json")
    made = json.loads(make(tmp_path, *options))
    first, asked = (tmp_path / "bridge.parquet").read_bytes(), len(brain.asked)
    rows = pl.read_parquet(tmp_path / "bridge.parquet")
    assert made["rows"]["train"] + made["rows"]["dev"] == len(rows) == 20
    assert 0 < made["rows"]["dev"] < 14
    assert made["sources_judged_positive"] == 1.0
    texts = {f"{sign}-{kind}.txt": document(n, kind) for n, sign in enumerate(SIGNS) for kind in ("cause", "therapy")}
    for row in rows.iter_rows(named=True):
        sign = row["source"].partition("-")[0]
        assert [each["id"] for each in row["positives"]] == [
            f"{sign}-{'therapy' if 'cause' in row['source'] else 'cause'}.txt"
        ]
        assert row["positives"][0]["score"] == 1.0
        assert row["positives"][0]["text"].endswith(texts[row["positives"][0]["id"]])
        negatives = row["negatives"]
        assert len(negatives) == 5
        assert {each["id"].partition("-")[0] for each in negatives}.isdisjoint({sign})
        assert {each["type"] for each in negatives} == {"same-topic", "same-symptoms"}
        assert {each["score"] for each in negatives} == {0.0, 0.5 / 3}
        assert "inherited" in row["bridge"]
        assert (row["licence"], row["writer"], row["judges"]) == ("CC BY 4.0", "thinker", ["thinker"])
    assert len(set(rows["style"])) == 4
    assert len(set(rows["length"])) == 3
    assert len(set(rows["difficulty"])) == 3
    for drawn, prompt in ((rows[name][0], "\n".join(brain.asked)) for name in ("length", "style", "difficulty")):
        assert drawn in prompt
    assert len(read_settings(None, {}).negatives.types) >= 3
    kinds = " ".join(read_settings(None, {}).negatives.types)
    assert all(
        why in kinds for why in ("another diagnosis", "another indication", "the right disease, but another stage")
    )
    card = (tmp_path / "bridge.md").read_text()
    for words in ("CC BY 4.0", "| sample/Biology | 0 of", "No row holds a query or a positive", "| same-topic |"):
        assert words in card
    make(tmp_path, *options)
    assert (tmp_path / "bridge.parquet").read_bytes() == first
    assert len(brain.asked) == asked
    parts = dict(rows.select("document", "part").iter_rows())
    assert all(parts[row["document"]] == row["part"] for row in rows.iter_rows(named=True))


def test_what_was_not_written_is_asked_again_and_counted(tmp_path: Path, near_tasks: None) -> None:
    brain = Brain()
    write_documents(tmp_path / "documents", 4)
    away = {"question": "Is it Rashson disease?", "answer": "Rashson disease", "bridge": "It is."}
    copied = {"question": "Why is it that nothing else is known about its course so far?", "answer": "x", "bridge": "y"}
    brain.bad = [json.dumps(away), json.dumps(copied), "no JSON"]
    shown = make(tmp_path, "--questions", 1)
    written = [prompt for prompt in brain.asked if prompt.startswith("Read the passage")]
    assert len(written) == 4
    assert "write" in shown
    assert copied_run(copied["question"], document(0, "cause"), 8)
    empty = {"question": "", "answer": "", "bridge": ""}
    brain.bad, brain.mute = [json.dumps(empty)], "fever"
    told = make(tmp_path, "--questions", 0)
    assert "1 dropped: nothing to ask about it" in told
    assert "2 dropped: no question could be read" in told


def test_what_a_server_did_not_answer_is_asked_about_the_next_time_and_nothing_else(tmp_path: Path, near_tasks) -> None:
    brain = Brain()
    write_documents(tmp_path / "documents", 4)
    brain.down = "fever"
    first = json.loads(make(tmp_path, "--json"))
    assert first["steps"][0]["failed"] == {"out of order": 2}
    assert first["rows"]["train"] + first["rows"]["dev"] == 6
    brain.down, brain.asked = "", []
    second = json.loads(make(tmp_path, "--json"))
    assert second["steps"][0]["failed"] == {}
    assert second["rows"]["train"] + second["rows"]["dev"] == 8
    assert {"Feverson" in prompt or "fever" in prompt for prompt in brain.asked} == {True}


def test_the_gate_refuses_drops_or_records(tmp_path: Path, near_tasks: None) -> None:
    Brain()
    write_documents(tmp_path / "documents", 6)
    dataset = load("sample/Biology")
    positive = next(iter(next(iter(dataset.gold.qrels.values()))))
    text = dict(dataset.collection.documents)[positive]
    leak = tmp_path / "documents" / "fever-cause.txt"
    leak.write_text(f"{document(1, 'cause')} {text}")
    out = tmp_path / "bridge.parquet"
    said = make(tmp_path, status=1)
    assert "hold what systems are measured on" in said
    assert positive in said
    assert not out.exists()
    make(tmp_path, "--drop-leaking")
    kept = pl.read_parquet(out)
    assert text not in str(kept.to_dicts())
    assert "were left out" in (tmp_path / "bridge.md").read_text()
    assert len(kept) > 0
    make(tmp_path, "--allow-leakage")
    file = read_training_file(out)
    assert file.record["leakage"]["allow_leakage"]
    assert file.record["leakage"]["affected_rows"] > 0
    assert "let through by --allow-leakage" in (tmp_path / "bridge.md").read_text()
    assert "either" in make(tmp_path, "--allow-leakage", "--drop-leaking", status=1)
    file.rows.head(3).write_parquet(out)
    with pytest.raises(DataError, match="no record of a leakage check"):
        read_training_file(out)
    write_training_file(out, file.rows, {"leakage": {}})
    record = orjson.loads(pl.read_parquet_metadata(out)["r2med"])
    file.rows.head(3).write_parquet(out, metadata={"r2med": orjson.dumps(record).decode()})
    with pytest.raises(DataError, match="rows changed since"):
        read_training_file(out)
    file.rows.write_parquet(out, metadata={"r2med": orjson.dumps(record | {"format": 99}).decode()})
    with pytest.raises(DataError, match=r"made by another version of r2med .*; make it again: r2med train data"):
        read_training_file(out)


def test_tasks_that_cannot_be_had_are_refused_before_anything_is_asked(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    brain = Brain()
    write_documents(tmp_path / "documents", 3)
    said = make(tmp_path, "--against", "sample/Biology", status=1)
    assert "16 tasks could not be compared" in said
    assert not brain.asked
    made = json.loads(make(tmp_path, "--against", "sample/Biology", "--allow-unchecked", "--json"))
    assert made["leakage"]["checked"] == ["sample/Biology"]
    assert len(made["leakage"]["unchecked"]) == 16
    assert "**Not compared" in (tmp_path / "bridge.md").read_text()


def test_a_build_is_taken_over_without_a_request(tmp_path: Path, near_tasks: None) -> None:
    brain = Brain()
    write_documents(tmp_path / "documents", 4)
    make(tmp_path)
    asked = len(brain.asked)
    again = tmp_path / "again.parquet"
    call("data", "--from", tmp_path / "bridge.work", "--out", again)
    assert len(brain.asked) == asked
    mine, built = pl.read_parquet(tmp_path / "bridge.parquet"), pl.read_parquet(again)
    assert built["bridge"].equals(mine["bridge"])
    assert {each["type"] for row in built["negatives"] for each in row} == {None}
    call("data", "--from", tmp_path / "bridge.work", "--llm", "thinker", "--out", again)
    assert pl.read_parquet(again)["negatives"].equals(mine["negatives"])
    assert len(brain.asked) == asked


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--from", "nowhere", "--llm", "thinker"), "nowhere: no such file or folder"),
        (("--from", "documents"), "name it with --llm"),
        (("--from", "documents", "--llm", "nobody"), "unknown model 'nobody'"),
        (("--from", "documents", "--llm", "thinker", "--systems", "bm26"), "did you mean bm25"),
        (("--from", "documents", "--llm", "thinker", "--settings", "no.toml"), "no.toml: no such file"),
        (("--from", "documents", "--llm", "thinker", "--settings", "bad.toml"), "bad.toml:3: [negatives] types"),
        (("--from", "documents", "--llm", "thinker", "--out", "x.csv"), "ends in .parquet"),
    ],
)
def test_wrong_input_is_one_line(tmp_path: Path, monkeypatch, near_tasks: None, words, said: str) -> None:
    monkeypatch.chdir(tmp_path)
    brain = Brain()
    write_documents(tmp_path / "documents", 1)
    (tmp_path / "bad.toml").write_text('\n[negatives]\ntypes = ["only one"]\n')
    told = call("data", "--out", "x.parquet", *words, status=1)
    assert said in told
    assert not brain.asked


@settings(max_examples=40)
@given(st.lists(st.tuples(st.floats(0, 1), st.integers(1, 50)), min_size=1, max_size=60), st.integers(1, 20))
def test_negatives_come_from_the_whole_range(scores: list[tuple[float, int]], count: int) -> None:
    pool = [
        JudgedPassage(Passage(f"p{n:02}", "", "t", "d", "", 0, 1), score, rank)
        for n, (score, rank) in enumerate(scores)
    ]
    chosen = spread(pool, count)
    assert len(chosen) == len({each.passage.id for each in chosen}) == min(count, len(pool))
    assert chosen[0].score == max(score for score, _ in scores)
    if count > 1:
        assert chosen[-1].score == min(score for score, _ in scores)
    assert [each.score for each in chosen] == sorted((each.score for each in chosen), reverse=True)
