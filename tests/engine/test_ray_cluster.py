"""A real Ray on this machine: the bytes of one process, whatever is killed, and one line where it cannot be used."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import encode_on_ray
import numpy as np
import pytest
from encode_on_ray import NotingEncoder, encode, on_ray

import encoders
import r2med
from r2med.config import EngineSettings
from r2med.encode import spread_encoding
from r2med.encode.batching import encode_all
from r2med.encode.encoder import Role
from r2med.encode.static import WordLlamaEncoder
from r2med.engine import ray_cluster
from r2med.engine.choose import choose_engine
from r2med.engine.ray_cluster import RayCluster
from r2med.engine.spreading import SpreadingEngine
from r2med.errors import MissingExtra, R2medError
from r2med.leakage import spread_matching, training
from r2med.leakage.check import check
from r2med.pipeline.stage import Context
from r2med.retrieve import spread_indexing, spread_search
from r2med.runs.ledger import Ledger
from r2med.storage.cache import Cache

ray = pytest.importorskip("ray")


@pytest.fixture(scope="module")
def cluster() -> Iterator[str]:
    """One cluster with room for four workers, for all tests of this file."""
    found = ray.init(num_cpus=4, include_dashboard=False, log_to_driver=False, logging_level="ERROR")
    yield found["gcs_address"] if isinstance(found, dict) else found.address_info["gcs_address"]
    ray.shutdown()


@pytest.fixture(autouse=True)
def small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(spread_encoding, "_BLOCK_TOKENS", 400)
    monkeypatch.setattr(WordLlamaEncoder, "batch_tokens", 400)
    monkeypatch.setattr(spread_indexing, "_BLOCK", 8000)
    monkeypatch.setattr(spread_search, "_RANGE", 13)
    monkeypatch.setattr(spread_search, "_POSTINGS", 400)
    monkeypatch.setattr(spread_search, "_LEAST", 1)


def lines(log: Path) -> list[tuple[str, str]]:
    """Which process did which batch."""
    return [tuple(line.split(" ", 1)) for line in log.read_text().splitlines()] if log.exists() else []


def test_the_bytes_are_those_of_one_process(cluster: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # On a slow machine a block may seem late and be dealt twice, which another test is about.
    monkeypatch.setattr(ray_cluster, "_SLOW", 1e6)
    alone = encode(tmp_path / "alone")[:].tobytes()
    expected = _run("quiet")
    # Those of two workers are seen below, after kills.
    monkeypatch.setenv("R2MED_HOME", str(tmp_path / "home"))
    assert encode(tmp_path / "spread", on_ray(4))[:].tobytes() == alone
    done = lines(tmp_path / "spread")
    assert len(done) == len(set(done)), "no worker did a batch twice"
    assert len({process for process, _ in done}) <= 4
    assert _run("ray") == expected
    assert not list((tmp_path / "home" / "blocks").rglob("*/*")), "what has arrived is not kept twice"


def _run(engine: str) -> dict[str, bytes]:
    options = r2med.Options() if engine == "quiet" else r2med.Options(engine=on_ray(4))
    report = r2med.evaluate("rrf(wordllama, bm25)", "sample/Biology", options)
    assert not report.failures
    with Ledger() as ledger:
        run = ledger.run(ledger.get(report.results[0].run_id))
    return {query: "".join(run[query].documents).encode() + run[query].scores.tobytes() for query in run.queries}


@pytest.fixture
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """No idle worker tries what another is slow at, so that what is computed twice was lost."""
    monkeypatch.setattr(ray_cluster, "_SLOW", 1e6)


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


def test_what_hangs_is_dealt_again(cluster: str, tmp_path: Path) -> None:
    texts = encoders.numbered(200)
    settings = EngineSettings(workers=2, blocks=f"file://{tmp_path}/anywhere")
    context = Context(Cache.default(), SpreadingEngine(RayCluster("", settings)))
    vectors = encode_all(HangingEncoder(tmp_path / "hung"), texts, Role.DOCUMENT, context)
    assert (tmp_path / "hung").exists()
    assert vectors[:].tobytes() == encoders.HashEncoder().encode(list(texts.texts), Role.DOCUMENT).tobytes()


def test_a_killed_worker_costs_its_block_and_no_more(cluster: str, tmp_path: Path, patient: None) -> None:
    log = tmp_path / "log"

    def kill() -> None:
        while len(lines(log)) < 12:
            time.sleep(0.01)
        os.kill(int(lines(log)[-1][0]), signal.SIGKILL)

    killer = threading.Thread(target=kill, daemon=True)
    killer.start()
    vectors = encode(log, on_ray(2), pause=0.03)
    killer.join(10)
    assert len({process for process, _ in lines(log)}) == 3, "another worker took its place"
    assert _twice(log) <= _IN_A_BLOCK
    assert vectors[:].tobytes() == _expected(tmp_path)


def test_a_killed_driver_costs_a_block_of_each_worker(cluster: str, tmp_path: Path, patient: None) -> None:
    log = tmp_path / "log"
    paths = [str(Path(encode_on_ray.__file__).parent), *sys.path]
    environment = os.environ | {"RAY_ADDRESS": cluster, "PYTHONPATH": os.pathsep.join(filter(None, paths))}
    code = "from r2med.encode import spread_encoding as s; s._BLOCK_TOKENS = 400; import runpy, sys;"
    code += f"sys.argv = ['x', {str(log)!r}, '0.05']; runpy.run_path({encode_on_ray.__file__!r}, run_name='__main__')"
    driver = subprocess.Popen([sys.executable, "-c", code], env=environment, stderr=subprocess.PIPE)
    while len(lines(log)) < 20 and driver.poll() is None:
        time.sleep(0.02)
    driver.kill()
    assert driver.wait() == -signal.SIGKILL, driver.stderr.read().decode()[-2000:] if driver.stderr else ""
    _settled(log)
    before = len(lines(log))
    vectors = encode(log, on_ray(2))
    assert vectors[:].tobytes() == _expected(tmp_path)
    assert len(lines(log)) > before, "the driver was killed in time"
    assert _twice(log) <= 2 * _IN_A_BLOCK


def _settled(log: Path) -> None:
    """Wait until workers whose driver is gone have gone too."""
    seen = -1
    while seen != len(lines(log)):
        seen = len(lines(log))
        time.sleep(1.0)


def _twice(log: Path) -> int:
    """Batches that were computed more than once."""
    return sum(count - 1 for count in Counter(batch for _, batch in lines(log)).values())


_IN_A_BLOCK = 3
"""Batches of 200 tokens in a block of 400, where short texts leave room for one more."""


def _expected(tmp_path: Path) -> bytes:
    texts = encoders.numbered(encode_on_ray.TEXTS)
    return np.asarray(NotingEncoder(tmp_path / "unused").encode(list(texts.texts), Role.DOCUMENT)).tobytes()


def test_training_data_is_compared_as_in_one_process(
    cluster: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(spread_matching, "_LEAST", 1)
    monkeypatch.setattr(training, "BLOCK", 4000)
    texts = r2med.load("sample/Biology").collection.documents.texts
    train = tmp_path / "train.txt"
    train.write_text("".join(f"{' '.join(text.split())[place:]}\n" for place, text in enumerate(texts)))
    found = []
    for name, engine in (("alone", None), ("ray", on_ray(2))):
        out = tmp_path / f"{name}.jsonl"
        report = check([train], ["sample/Biology"], engine=engine, out=out)
        found.append((report.as_dict(), out.read_bytes()))
    assert found[0] == found[1]
    assert found[0][0]["pairs"] >= len(texts)


class PoorEncoder(encoders.HashEncoder):
    """Cannot encode one of the texts."""

    def encode(self, texts, role):
        if any(text.startswith("text 7 ") for text in texts):
            raise R2medError("text 7 cannot be encoded")
        return super().encode(texts, role)


def test_what_a_worker_cannot_do_is_one_line(cluster: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(R2medError) as caught:
        encode_all(PoorEncoder(), encoders.numbered(20), Role.DOCUMENT, Context(Cache.default(), on_ray(1)))
    assert str(caught.value) == "text 7 cannot be encoded"
    plain = ray_cluster.BlockStore.get
    monkeypatch.setattr(ray_cluster.BlockStore, "get", lambda self, key: None)
    with pytest.raises(R2medError, match="storage that all hosts share"):
        encode(tmp_path / "log", on_ray(1))
    monkeypatch.setattr(ray_cluster.BlockStore, "get", plain)


def test_ray_that_is_missing_old_or_elsewhere_is_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ray, "__version__", "2.9.3")
    with pytest.raises(R2medError, match=r"Ray 2.9.3 is too old, 2.50 is needed: pip install 'r2med\[ray\]'"):
        choose_engine("ray")
    monkeypatch.undo()
    monkeypatch.setattr(ray, "is_initialized", lambda: False)
    for address in ("ray:127.0.0.1:9", "ray://127.0.0.1:9"):
        with pytest.raises(R2medError, match=r"no Ray cluster is listening at .*127.0.0.1:9; start one with"):
            choose_engine(address)
    with pytest.raises(R2medError, match="the Ray cluster at nowhere cannot be used: "):
        choose_engine("ray:nowhere")
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(MissingExtra, match=r"this needs ray: pip install 'r2med\[ray\]'"):
        choose_engine("ray")
