"""A real vector database: Milvus 2.3, whose server comes as a package, asked through a file that says how.

Its package pins what others need newer, so that it lives in an environment of its own.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

import r2med
from r2med.encode.batching import encode_all
from r2med.encode.encoder import Role
from r2med.encode.resolve import encoder_for
from r2med.pipeline.executor.local import quiet
from r2med.pipeline.stage import Context
from r2med.runs.ledger import Ledger
from r2med.store.cache import Cache

VARIABLE = "R2MED_MILVUS_PYTHON"
httpx = pytest.importorskip("httpx2")
pytest.importorskip("wordllama")
pytestmark = pytest.mark.skipif(
    not os.environ.get(VARIABLE), reason=f"{VARIABLE} names an interpreter with milvus==2.3.5, a real vector database"
)
TASK = "sample/MedQA-Diag"
SERVE = """
import sys, time
from milvus import MilvusServer
server = MilvusServer()
server.set_base_dir(sys.argv[1])
server.start()
print(server.listen_port, flush=True)
sys.stdin.read()
server.stop()
"""
ENGINE = """
path = "v1/vector/search"
reply = { hits = "data", id = "doc", score = "distance" }

[vector]
collectionName = "{index}"
vector = "{vector}"
limit = "{k}"
outputFields = ["doc"]
"""


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Where the database listens; it ends with the tests."""
    command = [os.environ[VARIABLE], "-c", SERVE, str(tmp_path_factory.mktemp("milvus"))]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert process.stdin is not None
    assert process.stdout is not None
    try:
        yield f"http://127.0.0.1:{int(process.stdout.readline())}"
    finally:
        process.stdin.close()
        process.wait(60)


@pytest.fixture
def engine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("milvus.toml").write_text(ENGINE)


def spec(address: str, index: str) -> str:
    return f'http(milvus.toml, url="{address}", index={index}, encoder=wordllama)'


@pytest.mark.usefixtures("engine")
def test_a_real_database_finds_what_exact_search_finds(address: str) -> None:
    collection = r2med.load(TASK).collection
    encoder = encoder_for("wordllama", {}, collection.task)
    vectors = encode_all(encoder, collection.documents, Role.DOCUMENT, Context(Cache.default(), quiet()))
    pairs = zip(collection.documents.ids, vectors[:].tolist(), strict=True)
    rows = [{"doc": name, "vector": vector} for name, vector in pairs]
    shape = {"dimension": len(rows[0]["vector"]), "metricType": "COSINE", "primaryField": "id", "vectorField": "vector"}
    for path, body in (("collections/create", shape), ("insert", {"data": rows})):
        said = httpx.post(f"{address}/v1/vector/{path}", json={"collectionName": "docs", **body}, timeout=60).json()
        assert said["code"] == 200, said
    exact, found = r2med.evaluate(["wordllama", spec(address, "docs")], TASK).results
    with Ledger() as ledger:
        ours, theirs = (ledger.run(ledger.get(result.id)) for result in (exact, found))
    assert len(ours.queries) == len(collection.queries)
    for query in ours.queries:
        # Both add up in single precision, so that what is nearly equal may change places.
        mine, other = (dict(zip(*ranking, strict=True)) for ranking in (ours[query], theirs[query]))
        assert other == pytest.approx(mine, abs=1e-6)
    assert found.metrics == pytest.approx(exact.metrics, abs=1e-6)


@pytest.mark.usefixtures("engine")
def test_what_a_real_database_refuses_is_one_line_with_its_words(address: str) -> None:
    (failed,) = r2med.evaluate(spec(address, "missing"), TASK).failures
    assert "has no 'data' (there is: code, message); collection not found" in failed.message
    assert "\n" not in failed.message
