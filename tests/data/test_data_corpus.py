"""Large files are known again by their bytes: what is recalled is what was read, and nothing old is recalled."""

from __future__ import annotations

import os
import shutil
import time
from dataclasses import replace
from pathlib import Path
from random import Random

import orjson
import pytest
from folders import LAYOUTS, Content

from r2med.data import corpus as corpora
from r2med.data.dataset import text_fingerprint
from r2med.data.loader import load
from r2med.data.validate import validate
from r2med.errors import DataError
from r2med.pipeline.executor.local import quiet
from r2med.pipeline.stage import Context
from r2med.retrieve.bm25 import BM25
from r2med.store import hashes as file_hashes
from r2med.store.cache import Cache

RANDOM = Random(0)
LARGE = Content(
    # Words that hardly compress, so that the files are large in every format.
    documents=[(f"d{n}", "", f"µ n{n} {RANDOM.randbytes(2400).hex(' ', 4)}") for n in range(2000)],
    queries=[("q1", "who has n7"), ("q2", "who has n1999")],
    qrels=[("q1", "d7", 1), ("q2", "d1999", 1)],
)


def kept() -> list[Path]:
    return sorted((Cache.default().root / "corpus").glob("*/facts.json"))


@pytest.fixture
def folder(tmp_path):
    LAYOUTS["r2med"](tmp_path, LARGE)
    return tmp_path


@pytest.mark.parametrize("layout", sorted(LAYOUTS))
def test_what_is_recalled_equals_what_was_read(tmp_path, layout):
    LAYOUTS[layout](tmp_path, LARGE)
    first, again = load(tmp_path), load(tmp_path)
    assert len(kept()) == 1
    assert again.fingerprint == first.fingerprint
    assert list(again.collection.documents) == list(first.collection.documents)
    assert again.collection.documents.text("d7") == LARGE.documents[7][2]
    assert again.gold == first.gold


def test_a_cached_index_is_searched_without_the_file(folder):
    few_words = replace(LARGE, documents=[(name, "", f"n{name[1:]}" + " iron" * 500) for name, _, _ in LARGE.documents])
    LAYOUTS["r2med"](folder, few_words)
    context = Context(Cache.default(), quiet())
    first = BM25().retrieve(load(folder).collection, context)
    recalled = load(folder)
    (folder / "corpus.jsonl").unlink()
    assert BM25().retrieve(recalled.collection, context) == first
    assert recalled.collection.documents.text("d7").startswith("n7 iron")


def test_a_changed_byte_is_seen_though_size_and_time_are_as_before(folder):
    file = folder / "corpus.jsonl"
    before, status = load(folder).fingerprint, file.stat()
    file.write_bytes(file.read_bytes().replace(b"n1500 ", b"n1501 "))
    os.utime(file, ns=(status.st_atime_ns, status.st_mtime_ns))
    assert file.stat().st_size == status.st_size
    assert load(folder).fingerprint != before


def test_a_file_is_known_without_reading_it_until_it_changes(folder, monkeypatch):
    """By its times and inode, which a changed byte, a restored time and a replacement of equal size all give away."""
    monkeypatch.setattr(file_hashes, "SETTLED", 0)
    read: list[Path] = []
    digest = corpora._digest
    monkeypatch.setattr(corpora, "_digest", lambda file: read.append(file) or digest(file))
    file = folder / "corpus.jsonl"
    before = load(folder).fingerprint
    assert len(read) == 1
    read.clear()
    assert load(folder).fingerprint == before
    assert not read
    status, content = file.stat(), file.read_bytes()

    def in_place():
        file.write_bytes(content.replace(b"n1500 ", b"n1501 "))

    def by_another():
        (folder / "new").write_bytes(content.replace(b"n1500 ", b"n1502 "))
        os.utime(folder / "new", ns=(status.st_atime_ns, status.st_mtime_ns))
        (folder / "new").replace(file)

    seen = {before}
    for number, change in enumerate((in_place, by_another), 1):
        time.sleep(0.02)
        change()
        os.utime(file, ns=(status.st_atime_ns, status.st_mtime_ns))
        assert file.stat().st_size == status.st_size
        seen.add(load(folder).fingerprint)
        assert len(read) == number
    assert len(seen) == 3


def test_a_file_that_has_just_changed_is_read_again(folder, monkeypatch):
    monkeypatch.setattr(file_hashes, "SETTLED", 3600)
    load(folder)
    load(folder)
    assert not (Cache.default().root / "hashes").exists()


def test_a_damaged_hash_is_not_believed(folder, monkeypatch):
    monkeypatch.setattr(file_hashes, "SETTLED", 0)
    before = load(folder).fingerprint
    (known,) = (Cache.default().root / "hashes").iterdir()
    data = bytearray(known.read_bytes())
    for place in range(len(data)):
        damaged = data[:]
        damaged[place] ^= 1
        known.write_bytes(damaged)
        assert file_hashes.FileHashes(known.parent).recall(folder / "corpus.jsonl") in ("", orjson.loads(data)["hash"])
    assert load(folder).fingerprint == before


@pytest.mark.parametrize("layout", sorted(LAYOUTS))
def test_a_file_replaced_between_its_hash_and_its_reading_spoils_nothing(tmp_path, layout, monkeypatch):
    other = replace(LARGE, documents=[(name, "", text[::-1]) for name, _, text in LARGE.documents])
    here, there = tmp_path / "here", tmp_path / "there"
    LAYOUTS[layout](here, LARGE)
    LAYOUTS[layout](there, other)
    names = [file.relative_to(there) for file in there.rglob("corpus*") if file.is_file()]
    contents = {folder: [(folder / name).read_bytes() for name in names] for folder in (here, there)}

    def put_in_place(folder):
        for name, content in zip(names, contents[folder], strict=True):
            (here / name).write_bytes(content)

    def hash_then_replace(file):
        digests.append(digest(file))
        if len(digests) == len(names):
            put_in_place(there)
        return digests[-1]

    digest, digests = corpora._digest, []
    (Cache.default().root / corpora._KIND).mkdir(parents=True)  # or nothing would be looked up
    with monkeypatch.context() as patch:
        patch.setattr(corpora, "_digest", hash_then_replace)
        assert load(here).collection.documents.texts[0] == other.documents[0][2]
    for folder, content in ((here, LARGE), (there, other), (here, LARGE)):
        put_in_place(folder)
        dataset = load(here)
        assert dataset.collection.documents.fingerprint == text_fingerprint(
            [name for name, _, _ in content.documents], [text for _, _, text in content.documents]
        )
        assert dataset.collection.documents.text("d7") == content.documents[7][2]


def test_warnings_are_recalled_and_errors_are_never_kept(folder):
    file = folder / "corpus.jsonl"
    lines = file.read_bytes().splitlines(keepends=True)
    file.write_bytes(b"".join([*lines, lines[3], lines[5]]))
    first, again = load(folder), load(folder)
    assert len(kept()) == 1
    assert again.warnings == first.warnings
    assert "2 rows that repeat an id" in again.warnings[0]
    file.write_bytes(b"".join([*lines, b"{broken\n"]))
    for _ in range(2):
        with pytest.raises(DataError, match=r"corpus\.jsonl:2001: not JSON"):
            load(folder)
    assert len(kept()) == 1


@pytest.mark.parametrize(
    "damage",
    [
        lambda old: old[: len(old) // 2],
        lambda old: old.replace(b"2000", b"2001"),
        lambda old: b"",
        lambda old: b"[1]",
    ],
    ids=["cut", "changed", "empty", "another"],
)
def test_a_damaged_memory_is_made_again(folder, damage):
    before = load(folder)
    (file,) = kept()
    good = file.read_bytes()
    file.write_bytes(damage(good))
    after = load(folder)
    assert list(after.collection.documents) == list(before.collection.documents)
    assert kept() == [file]
    assert file.read_bytes() == good


def test_validate_always_reads(folder):
    load(folder)
    (file,) = kept()
    assert validate(folder).documents == 2000
    shutil.rmtree(file.parent)
    validate(folder)
    assert not kept()


def test_small_files_are_not_kept(tmp_path):
    load("sample/Biology")
    assert not kept()
