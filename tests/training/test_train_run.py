"""Training: every kind is a system, a killed training ends with the same weights, other trainers read our files."""

from __future__ import annotations

import json
import signal
import socket
import time
from contextlib import suppress
from pathlib import Path

import pytest
import training_children as children
from bridging import training_file
from click.testing import CliRunner

from needs import packages
from r2med.cli.main import app
from r2med.store.hashes import is_unchanged, write_checksums
from r2med.training.rows import passages_of_rows, read_training_file, trainer_rows
from r2med.training.settings import RERANKER, read_run_settings

pytestmark = packages("sentence_transformers", "datasets", "peft", "accelerate")

SETTINGS = """
[train]
steps = {steps}
batch = 4
learning_rate = 0.003
seed = 3
[checkpoints]
every = 2
[dev]
every = 3
{more}
"""
KINDS = {
    "dense": "[loss]\nmatryoshka = [16]\n[lora]\nrank = 4",
    "sparse": '[loss]\nname = "distill"',
    "late": "",
    "reranker": "",
}


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a tiny base, data, and the held-out part of the data as a task."""
    folder = tmp_path_factory.mktemp("training")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("R2MED_HOME", str(folder / "home"))
        children.finish(children.make_base, folder / "tiny")
    write_dev_task(training_file(folder / "bridge.parquet"), folder / "held-out")
    return folder


def write_dev_task(data: Path, folder: Path) -> None:
    file = read_training_file(data)
    dev, train = (trainer_rows(file.part(part)) for part in ("dev", "train"))
    folder.mkdir()
    tables = {
        "query": [{"id": row.id, "text": row.query} for row in dev],
        "corpus": [{"id": name, "text": text} for name, text in passages_of_rows([*dev, *train]).items()],
        "qrels": [{"q_id": row.id, "p_id": each.id, "score": 1} for row in dev for each in row.positives],
    }
    for name, rows in tables.items():
        (folder / f"{name}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))


def training(place: Path, kind: str, out: Path, steps: int = 6, more: str = "") -> list[str]:
    settings = out.with_suffix(".toml")
    settings.write_text(SETTINGS.format(steps=steps, more=more))
    words = ["train", "run", place / "bridge.parquet", "--base", place / "tiny", "--kind", kind]
    return [*map(str, words), "--out", str(out), "--settings", str(settings)]


def test_every_kind_is_trained_and_is_a_system(place: Path, tmp_path: Path) -> None:
    commands = [training(place, kind, tmp_path / kind, more=more) for kind, more in KINDS.items()]
    systems = [str(tmp_path / kind) for kind in KINDS if kind != RERANKER]
    systems.append(f"bm25 >> {tmp_path / RERANKER}")
    commands.append(["run", *systems, "--tasks", str(place / "held-out"), "--json"])
    children.finish(children.call_all, commands, tmp_path / "said")
    said = [json.loads((tmp_path / f"said-{number}").read_text()) for number in range(len(commands))]
    assert [status for status, *_ in said] == [0] * len(said), said
    file = read_training_file(place / "bridge.parquet")
    for (kind, _), (_, shown, *_) in zip(KINDS.items(), said, strict=False):
        record = json.loads((tmp_path / kind / "training.json").read_text())
        assert record["steps"] == 6
        assert record["data"][0]["fingerprint"] == file.fingerprint
        assert any("eval_dev_nDCG@10" in entry for entry in record["history"])
        losses = [entry["loss"] for entry in record["history"] if "loss" in entry]
        assert losses[-1] < losses[0]
        card = (tmp_path / kind / "README.md").read_text()
        assert file.fingerprint in card
        assert "compared with: sample/Biology" in card
        after = record["dev"]["after"]["nDCG@10"]
        assert f"{100 * after[0]:.2f}" in shown
        assert f"{100 * after[0]:.2f}" in card
        assert not list((tmp_path / kind).glob("adapter*"))
        assert not (tmp_path / f"{kind}.work").exists()
    measured = {result["system"]: result["metrics"]["nDCG@10"] for result in json.loads(said[-1][1])["results"]}
    for system, kind in zip(measured, ("dense", "sparse", "late"), strict=False):
        record = json.loads((tmp_path / kind / "training.json").read_text())
        assert measured[system] == pytest.approx(record["dev"]["after"]["nDCG@10"][0], abs=1e-6)


MARK = {"loss": 99.0, "step": 0}


def mark_checkpoints(work: Path) -> None:
    """Write something into the state of every whole checkpoint that only goes on if it is read."""
    for file in work.glob("checkpoint-*/trainer_state.json"):
        with suppress(json.JSONDecodeError):  # the kill may have cut the last one off
            state = json.loads(file.read_text())
            if is_unchanged(file.parent):
                file.write_text(json.dumps(state | {"log_history": [MARK, *state["log_history"]]}))
                write_checksums(file.parent)


def test_a_killed_training_goes_on_to_the_same_weights(place: Path, tmp_path: Path) -> None:
    words = training(place, "dense", tmp_path / "killed", steps=16)
    child = children.start(children.train_quietly, words)
    state = tmp_path / "killed.work" / "checkpoint-4" / "meta.json"
    until = time.monotonic() + 200
    while not state.exists() and time.monotonic() < until:
        time.sleep(0.005)
    child.kill()
    child.join()
    assert child.exitcode == -signal.SIGKILL
    assert not (tmp_path / "killed").exists()
    mark_checkpoints(tmp_path / "killed.work")
    (tmp_path / "killed.work" / "checkpoint-99").mkdir()  # killed while it was written
    other = CliRunner().invoke(app, [*words, "--seed", "5"])
    assert "another training was begun here" in str(other.exception)
    commands = [words, training(place, "dense", tmp_path / "whole", steps=16)]
    children.finish(children.call_all, commands, tmp_path / "said")
    killed, whole = tmp_path / "killed", tmp_path / "whole"
    assert (killed / "model.safetensors").read_bytes() == (whole / "model.safetensors").read_bytes()
    records = [json.loads((folder / "training.json").read_text()) for folder in (killed, whole)]
    assert records[0]["history"].pop(0) == MARK, "it did not go on, but began anew"
    assert records[0] == records[1]
    assert "exists already" in str(CliRunner().invoke(app, words).exception)


@pytest.mark.parametrize("name", ["weights.safetensors", "optimizer.pt"])
def test_a_damaged_checkpoint_is_said_and_the_one_before_is_used(place: Path, tmp_path: Path, name: str) -> None:
    words = training(place, "dense", tmp_path / "hurt", steps=16)
    child = children.start(children.train_quietly, words)
    work = tmp_path / "hurt.work"
    until = time.monotonic() + 200
    while not (work / "checkpoint-8" / "meta.json").exists() and time.monotonic() < until:
        time.sleep(0.005)
    child.kill()
    child.join()
    assert child.exitcode == -signal.SIGKILL
    mark_checkpoints(work)
    whole = sorted(path.parent for path in work.glob("checkpoint-*/meta.json") if is_unchanged(path.parent))
    newest = max(whole, key=lambda folder: int(folder.name.rpartition("-")[2]))
    (file,) = newest.rglob(name)
    content = bytearray(file.read_bytes())
    content[len(content) // 2] ^= 1
    file.write_bytes(content)
    commands = [words, training(place, "dense", tmp_path / "whole", steps=16)]
    children.finish(children.call_all, commands, tmp_path / "said")
    weights = [(tmp_path / folder / "model.safetensors").read_bytes() for folder in ("hurt", "whole")]
    assert weights[0] == weights[1]
    told = (tmp_path / "said-0").read_text()
    before = f"checkpoint-{int(newest.name.rpartition('-')[2]) - 2}"
    assert work / before in whole
    assert f"now: r2med run {tmp_path / 'hurt'}" in told
    words_of_warning = f"{newest.name} changed on the disk since written and cannot be used; training goes on from"
    assert f"{words_of_warning} {before}" in told, told
    assert json.loads((tmp_path / "hurt" / "training.json").read_text())["history"][0] == MARK


def test_two_processes_train_one_model(place: Path, tmp_path: Path) -> None:
    words = training(place, "reranker", tmp_path / "shared", steps=16)  # an epoch of two processes has 13
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    both = [children.start(children.call_as_one_of, 2, rank, port, words, tmp_path / f"said-{rank}") for rank in (0, 1)]
    for child in both:
        child.join(200)
    said = [json.loads((tmp_path / f"said-{rank}").read_text()) for rank in (0, 1)]
    assert [status for status, *_ in said] == [0, 0], said
    assert "16 steps of distill" in said[0][1]
    assert not said[1][1], "one of them writes and speaks"
    record = json.loads((tmp_path / "shared" / "training.json").read_text())
    assert record["steps"] == 16
    assert sum("loss" in entry for entry in record["history"]) > 3
    assert not (tmp_path / "shared.work").exists()


def test_the_trainers_of_sentence_transformers_take_the_exports(place: Path, tmp_path: Path) -> None:
    for form in ("sentence-transformers", "cross-encoder", "cross-encoder-lists"):
        words = ["train", "export", str(place / "bridge.parquet"), "--to", form, "--out", str(tmp_path / form)]
        assert CliRunner().invoke(app, words).exit_code == 0
    children.finish(children.train_on_exports, place / "tiny", tmp_path, tmp_path / "said.json")
    done = json.loads((tmp_path / "said.json").read_text())
    assert [(name, rows) for _, name, rows, _ in done] == [
        ("SentenceTransformer", 9),
        ("SparseEncoder", 9),
        ("MultiVectorEncoder", 9),
        ("CrossEncoder", 9 * 12),
        ("CrossEncoder", 9),
    ]
    assert all(0 < loss < 1e4 for *_, loss in done), done


@packages("FlagEmbedding", "pylate")
def test_other_trainers_read_the_files(place: Path, tmp_path: Path) -> None:
    for form in ("flagembedding", "pylate"):
        words = ["train", "export", str(place / "bridge.parquet"), "--to", form, "--out", str(tmp_path / form)]
        assert CliRunner().invoke(app, words).exit_code == 0
    rows = {row.query: row for row in trainer_rows(read_training_file(place / "bridge.parquet").part("train"))}
    children.finish(children.read_by_flagembedding, tmp_path / "flagembedding" / "train.jsonl", tmp_path / "flag.json")
    read = json.loads((tmp_path / "flag.json").read_text())
    assert len(read) == len(rows)
    for query, passages, scores in read:
        assert passages[0] in [each.text for each in rows[query].positives]
        assert set(passages[1:]) <= {each.text for each in rows[query].negatives}
        assert scores[0] == 1.0
        assert max(scores[1:]) < 0.5
    children.finish(children.read_by_pylate, tmp_path / "pylate", tmp_path / "pylate.json")
    for row in json.loads((tmp_path / "pylate.json").read_text()):
        known = rows[row["query"]]
        scores = {each.text: each.score for each in (*known.positives, *known.negatives)}
        assert row["scores"] == [scores[text] for text in row["documents"]]
        assert row["documents"][0] == known.positives[0].text


@pytest.mark.parametrize(
    ("table", "said"),
    [
        ("[train]\nsteps = 1.5", "settings.toml:2: [train] steps must be a whole number"),
        ("[train]\nbatch = 1", "settings.toml:2: [train] batch must be a whole number of at least 2"),
        ('[loss]\nname = "mse"', "settings.toml:2: [loss] name must be infonce or distill"),
        ("[trian]\nsteps = 1", "trian is not a known key; did you mean train"),
        ('[dev]\nmeasures = ["nDGC@10"]', "nDGC@10"),
    ],
)
def test_wrong_settings_are_one_line(place: Path, tmp_path: Path, table: str, said: str) -> None:
    (tmp_path / "settings.toml").write_text(table)
    words = ["train", "run", str(place / "bridge.parquet"), "--base", "minilm", "--kind", "dense"]
    done = CliRunner().invoke(
        app, [*words, "--out", str(tmp_path / "out"), "--settings", str(tmp_path / "settings.toml")]
    )
    assert said in str(done.exception)
    assert not (tmp_path / "out").exists()


def test_what_cannot_be_trained_is_one_line_and_leaves_nothing_behind(place: Path, tmp_path: Path) -> None:
    wrong = {
        "[loss]\nmatryoshka = [999]": "the vectors of the base have 32",
        "[train]\nmax_length = 65": "has places for 64 tokens, not for 65",
    }
    commands = [training(place, "dense", tmp_path / f"wrong-{number}") for number in range(len(wrong))]
    for words, settings in zip(commands, wrong, strict=True):
        Path(words[-1]).write_text(settings)
    children.finish(children.call_all, commands, tmp_path / "said")
    for number, line in enumerate(wrong.values()):
        status, _, error, _ = json.loads((tmp_path / f"said-{number}").read_text())
        assert status
        assert line in error
        assert not (tmp_path / f"wrong-{number}.work").exists(), "the next try would be another training"


def test_an_unknown_base_is_one_line(place: Path, tmp_path: Path) -> None:
    words = ["train", "run", str(place / "bridge.parquet"), "--kind", "dense", "--out", str(tmp_path / "out"), "--base"]
    assert "minilm" in str(CliRunner().invoke(app, [*words, "minilmm"]).exception)
    assert "openai cannot be trained" in str(CliRunner().invoke(app, [*words, "openai"]).exception)
    assert "no such folder" in str(CliRunner().invoke(app, [*words, "./nowhere"]).exception)
    (tmp_path / "empty").mkdir()
    assert "empty: not a model (no config.json)" in str(
        CliRunner().invoke(app, [*words, str(tmp_path / "empty")]).exception
    )
    assert read_run_settings(None).loss_of(RERANKER) == "distill"
