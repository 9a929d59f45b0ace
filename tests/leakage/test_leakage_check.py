"""The whole check: several files and tasks, the report, the file of pairs, the cache."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import orjson
import pytest
from leaking import dataset, find, words, write_rows

from r2med.data.loader import load
from r2med.errors import DataError, MissingExtra, R2medError
from r2med.leakage import index
from r2med.leakage.check import check
from r2med.leakage.cli import conclusion
from r2med.leakage.index import Settings, index_task
from r2med.lexical import near_duplicates
from r2med.pipeline.executor.local import quiet
from r2med.store.cache import Cache


@pytest.fixture
def training(tmp_path):
    """Two files against two tasks."""
    biology, diagnosis = (load(f"sample/{name}").collection for name in ("Biology", "MedQA-Diag"))
    one = write_rows(
        tmp_path / "one.jsonl",
        [{"text": biology.queries.texts[0], "pos": diagnosis.queries.texts[0]}, {"text": biology.queries.texts[0]}],
    )
    other = write_rows(tmp_path / "other.jsonl", [{"text": words(30, 1)}, {"text": diagnosis.queries.texts[1].upper()}])
    return [one, other]


TASKS = ["sample/Biology", "sample/MedQA-Diag"]


def test_several_files_and_tasks(training) -> None:
    report = check(training, TASKS)
    assert [task.task for task in report.tasks] == TASKS
    assert [task.queries.affected for task in report.tasks] == [1, 2]
    assert report.tasks[1].queries.methods == {"exact": 1, "normalised": 1}
    assert report.pairs == 4
    assert [(found.rows, found.judged.tolist()) for found in report.files.values()] == [(2, [1, 2]), (2, [2])]
    assert conclusion(report)[0] == "3 of 4 rows hold queries or positives, 0 more hold other documents."


def test_a_task_is_looked_for_as_if_it_were_alone(training) -> None:
    together = check(training, TASKS)
    for place, task in enumerate(TASKS):
        alone = check(training, [task])
        assert alone.tasks[0] == together.tasks[place]
        assert [pair for pair in together.strongest if pair.task == task] == list(alone.strongest)


def test_every_pair_goes_to_the_file(training, tmp_path) -> None:
    out = tmp_path / "pairs.jsonl"
    out.write_text("old")
    report = check(training, TASKS, out=out, limit=1)
    rows = [orjson.loads(line) for line in out.read_bytes().splitlines()]
    assert len(rows) == report.pairs == 4
    assert len(report.strongest) == 1
    assert rows[0] == {
        "file": str(training[0]),
        "line": 1,
        "task": "sample/Biology",
        "kind": "query",
        "id": load("sample/Biology").collection.queries.ids[0],
        "method": "exact",
        "score": 1.0,
    }
    assert rows[0] == report.strongest[0]._asdict()
    assert not [path for path in tmp_path.iterdir() if path.name.startswith(".")]


def test_the_file_of_pairs_stays_as_it_was_when_something_fails(training, tmp_path) -> None:
    out = tmp_path / "pairs.jsonl"
    out.write_text("old")
    with training[1].open("ab") as file:
        file.write(b"{")
    with pytest.raises(DataError, match=r"other\.jsonl:3: not JSON"):
        check(training, TASKS, out=out)
    assert out.read_text() == "old"
    assert not [path for path in tmp_path.iterdir() if path.name.startswith(".")]


def test_the_strongest_pairs_come_first(training, tmp_path) -> None:
    biology = load("sample/Biology")
    judged = {document for grades in biology.gold.qrels.values() for document in grades}
    positive, other = (
        next(text for name, text in biology.collection.documents if (name in judged) is wanted)
        for wanted in (True, False)
    )
    rows = [
        {"text": other},
        {"text": positive.upper()},
        {"text": positive},
        {"text": biology.collection.queries.texts[3]},
    ]
    report = check([write_rows(tmp_path / "more.jsonl", rows)], ["sample/Biology"])
    found = [(pair.line, pair.kind, pair.method) for pair in report.strongest]
    assert found == [
        (4, "query", "exact"),
        (3, "positive", "exact"),
        (2, "positive", "normalised"),
        (1, "document", "exact"),
    ]


def test_json_has_everything(training) -> None:
    found = orjson.loads(orjson.dumps(check(training, TASKS).as_dict()))
    assert found["rows"] == 4
    assert found["affected_rows"] == found["affected_rows_with_documents"] == 3
    assert found["tasks"][0]["queries"] == {
        "total": 9, "affected": 1, "methods": {"exact": 1}, "too_short": 0, "share": pytest.approx(1 / 9)
    }  # fmt: skip
    assert found["settings"]["threshold"] == 0.6
    assert len(found["strongest"]) == found["pairs"] == 4


def test_what_cannot_be_checked(training, tmp_path) -> None:
    with pytest.raises(R2medError, match="name at least one task"):
        check(training, [])
    with pytest.raises(DataError, match="no such task or folder: 'Biologie'; did you mean Biology"):
        check(training, ["Biologie"])
    with pytest.raises(R2medError, match="is training data"):
        check(training, TASKS, out=training[0])
    with pytest.raises(R2medError, match=r"one.jsonl.pairs.jsonl: cannot be written \("):
        check(training, TASKS, out=training[0] / "pairs.jsonl")
    with pytest.raises(R2medError, match="is a folder"):
        check(training, TASKS, out=tmp_path)
    assert training[0].read_bytes().count(b"\n") == 2


def test_an_index_is_made_once_and_follows_its_data(tmp_path, monkeypatch) -> None:
    made = []
    monkeypatch.setattr(
        index, "hash_words", lambda texts, real=index.hash_words: made.append(len(texts)) or real(texts)
    )
    texts = [words(40, n) for n in range(3)]
    assert find(dataset(texts), [[texts[1]]], tmp_path) == {(1, "d1"): ("exact", 1.0)}
    assert find(dataset(texts), [[texts[2]]], tmp_path) == {(1, "d2"): ("exact", 1.0)}
    assert made == [4]
    assert find(dataset([*texts, words(40, 9)]), [[words(40, 9)]], tmp_path) == {(1, "d3"): ("exact", 1.0)}
    assert made == [4, 5]


def test_what_is_positive_is_no_part_of_the_index(tmp_path) -> None:
    texts = [words(40, n) for n in range(2)]
    for positives in ((0,), (1,)):
        data = dataset(texts, positives=positives)
        found = index_task(data, Settings(methods=("exact",)), quiet(), Cache(tmp_path))
        assert found.signatures is None
        assert len(list((tmp_path / "leakage").iterdir())) == 1


def flip(data: bytes) -> bytes:
    return bytes([*data[:-3], data[-3] ^ 4, *data[-2:]])


@pytest.mark.parametrize("damage", [lambda data: data[:-20], lambda data: b"", flip])
@pytest.mark.parametrize("names", [("gram-keys", "signatures"), ("offsets", "meta"), ("words", "raw", "normal")])
def test_a_damaged_index_is_made_again(damage, names, tmp_path) -> None:
    text = words(40, 1)
    find(dataset([text]), [[text]], tmp_path)
    for file in (tmp_path / "cache").rglob("*.*"):
        if file.stem in names:
            file.write_bytes(damage(file.read_bytes()))
    found = find(dataset([text]), [[text], [f"{words(90, 2)} {text} {words(90, 3)}"]], tmp_path)
    assert found == {(1, "d0"): ("exact", 1.0), (2, "d0"): ("ngram", 1.0)}


def test_other_methods_do_without_the_library(training, monkeypatch) -> None:
    def missing(*_: object) -> None:
        raise MissingExtra("this needs rensa")

    monkeypatch.setattr(near_duplicates, "require_extra", missing)
    report = check(training, TASKS, Settings(methods=("exact", "normalised", "ngram")))
    assert report.pairs == 4
    with pytest.raises(MissingExtra, match="rensa"):
        check(training, TASKS)


def test_an_empty_document_and_equal_texts_do_no_harm(tmp_path) -> None:
    data = dataset(["", "...", words(40, 1), words(40, 1)], ["", words(3, 2)])
    assert find(data, [[""], ["..."], [words(3, 2)], [words(40, 1)], []], tmp_path) == {
        (4, "d2"): ("exact", 1.0),
        (4, "d3"): ("exact", 1.0),
    }


def test_an_index_of_nothing_to_find(tmp_path) -> None:
    data = dataset([""], ["?"])
    assert find(data, [["anything at all that has words"]], tmp_path, min_words=1) == {}
    found = index_task(data, Settings(), quiet(), Cache(tmp_path))
    assert len(found.grams) == 0
    assert np.array_equal(found.firsts, [0])


def test_settings_are_part_of_the_report(training) -> None:
    wanted = replace(Settings(), threshold=0.8, overlap=0.5, methods=("ngram",))
    assert check(training, TASKS, wanted).settings == wanted
