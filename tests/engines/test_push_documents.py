"""Documents pushed into search engines: what arrives is what the task has, whole, once, and counted."""

from __future__ import annotations

import json
import os
import shlex
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner
from index_server import HEADERS, KEY, IndexServer

import databases
import r2med
from r2med.cli.main import app
from r2med.encode.encoder import Role
from r2med.encode.resolve import encoder_for
from r2med.engines.push import PushRequest, plan_push, push
from r2med.engines.targets import TARGETS
from r2med.errors import R2medError
from r2med.pipeline.system import System

pytest.importorskip("httpx2")
pytest.importorskip("wordllama")
TASK = "sample/Biology"
VARIABLES = (
    "ELASTIC_API_KEY", "OPENSEARCH_BASIC_AUTH", "SOLR_BASIC_AUTH", "VESPA_TOKEN", "QDRANT_API_KEY",
    "WEAVIATE_API_KEY", "TYPESENSE_API_KEY", "MEILISEARCH_API_KEY", "MILVUS_TOKEN",
)  # fmt: skip


@pytest.fixture(autouse=True)
def keys(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    for name in VARIABLES:
        monkeypatch.setenv(name, KEY)
    (tmp_path / "r2med.toml").write_text("[requests]\nretries = 1\n")


def index_of(engine: str) -> str:
    return TARGETS[engine].default_name(TASK)


def server_for(engine: str, dimension: int = 256) -> IndexServer:
    server = IndexServer(engine)
    if engine == "vespa":
        server.make("biology", dimension)
    return server


def test_every_engine_that_can_be_asked_can_be_filled() -> None:
    from r2med.engines.request import presets

    assert set(TARGETS) == set(presets()) == set(HEADERS)


@pytest.mark.parametrize("engine", TARGETS)
def test_documents_arrive_with_our_ids_and_vectors(engine: str) -> None:
    collection = r2med.load(TASK).collection
    vectors = encoder_for("wordllama", {}, collection.task).encode(list(collection.documents.texts), Role.DOCUMENT)
    with server_for(engine) as server:
        result = push(PushRequest(TASK, engine, server.url, encoder="wordllama", batch=10))
        arrived = server.documents(index_of(engine))
        assert (result.documents, result.sent, result.count) == (64, 64, 64)
        assert {name: text for name, (text, _) in arrived.items()} == dict(collection.documents)
        for name, vector in zip(collection.documents.ids, vectors, strict=True):
            assert np.array_equal(np.array(arrived[name][1], dtype=np.float32), vector)
        requests = server.requests
        again = push(PushRequest(TASK, engine, server.url, encoder="wordllama", batch=10))
        assert (again.sent, again.count) == (0, 64)
        assert server.requests - requests <= 6, "nothing is sent twice"
        assert str(System.parse(result.system)) == result.system
        assert engine in result.system


@pytest.mark.parametrize("engine", [name for name in TARGETS if name != "qdrant"])
def test_documents_without_vectors_and_with_odd_ids(engine: str, tmp_path: Path) -> None:
    ids = ["a/b c", "ümlaut:1", "x" * 100, "UPPER", "5"]
    (tmp_path / "biology").mkdir()
    rows = [{"_id": name, "text": f'text of\n\u0001 {name} \u2028 "quoted"'} for name in ids]
    (tmp_path / "biology" / "corpus.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    (tmp_path / "biology" / "queries.jsonl").write_text('{"_id": "q", "text": "text"}\n')
    (tmp_path / "biology" / "qrels").mkdir()
    (tmp_path / "biology" / "qrels" / "test.tsv").write_text("query-id\tcorpus-id\tscore\nq\t5\t1\n")
    with server_for(engine, 0) as server:
        result = push(PushRequest("./biology", engine, server.url, batch=2))
        arrived = server.documents(result.index)
    expected = dict(r2med.load("./biology").collection.documents)
    if engine == "vespa":
        expected = {name: text.replace("\x01", " ") for name, text in expected.items()}
    assert {name: text for name, (text, _) in arrived.items()} == expected


def test_a_push_that_failed_or_was_killed_goes_on(tmp_path: Path) -> None:
    with server_for("elasticsearch") as server:
        server.fail = lambda nth: 400 if nth == 9 else 0
        request = PushRequest(TASK, "elasticsearch", server.url, batch=4)
        with pytest.raises(R2medError, match="400 from"):
            push(request)
        server.fail = lambda nth: 0
        result = push(request)
        assert 0 < result.sent < 64
        assert result.count == 64

        command = [sys.executable, "-m", "r2med", "engines", "push", TASK, "--to", "elasticsearch", "--url", server.url]
        server.fail = lambda nth: time.sleep(0.05) or 0
        killed = subprocess.Popen([*command, "--index", "other", "--batch", "1"], stdout=subprocess.PIPE)
        while len(server.stored.get("other", ())) < 10 and killed.poll() is None:
            time.sleep(0.01)
        killed.send_signal(signal.SIGKILL)
        killed.wait()
        assert len(server.stored["other"]) < 64
        server.fail = lambda nth: 0
        rest = push(PushRequest(TASK, "elasticsearch", server.url, index="other", batch=1))
        assert rest.count == 64
        assert 64 - 10 - 8 <= rest.sent <= 64 - 10 + 8, "at most what was under way is sent twice"

        server.indexes.pop("other")
        assert push(PushRequest(TASK, "elasticsearch", server.url, index="other", batch=9)).sent == 64, "emptied since"


def test_a_count_that_differs_is_an_error() -> None:
    with server_for("qdrant") as server:
        server.make("biology", 256)
        server.keep("biology", "1", "other", "text", [0.0] * 256)
        with pytest.raises(
            R2medError, match=r"counts 65 documents in biology, sample/Biology has 64: it held 1 before"
        ):
            push(PushRequest(TASK, "qdrant", server.url, encoder="wordllama"))
        server.make("biology", 256)
        dropped = server.keep
        server.keep = lambda *row: dropped(*row) if row[2] != "bio-d007" else None
        with pytest.raises(R2medError, match=r"counts 63 documents in biology, .* the push is not complete"):
            push(PushRequest(TASK, "qdrant", server.url, encoder="wordllama", batch=7))


def test_a_document_that_an_engine_does_not_take_is_one_line() -> None:
    for engine in ("elasticsearch", "weaviate", "typesense", "meilisearch", "milvus"):
        with IndexServer(engine) as server:
            plain = server.keep

            def keep(index: str, key: str, name: str, *rest: object, plain: object = plain) -> None:
                if name == "bio-d005":
                    from index_server import Refused

                    raise Refused(400, {"error": "poison"})
                plain(index, key, name, *rest)

            server.keep = keep
            with pytest.raises(R2medError) as caught:
                push(PushRequest(TASK, engine, server.url))
            assert "poison" in str(caught.value), engine
            assert "\n" not in str(caught.value)


def test_a_real_database_is_filled_and_searched(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PUSH_DSN", databases.dsn("pushed"))
    request = PushRequest(TASK, "postgres", dsn_env="PUSH_DSN", encoder="wordllama", batch=10)
    result = push(request)
    assert (result.sent, result.count) == (64, 64)
    assert push(request).sent == 0
    runner = CliRunner()
    shown = runner.invoke(app, ["engines", "show", "postgres-vector"], catch_exceptions=False)
    (tmp_path / "postgres-vector.sql").write_text(shown.stdout)
    report = r2med.evaluate([result.system, "wordllama"], TASK)
    assert not report.failures
    theirs, ours = (each.metrics for each in report.results)
    assert theirs == pytest.approx(ours, abs=1e-9)
    pushed = runner.invoke(
        app,
        ["engines", "push", TASK, "--to", "postgres", "--dsn-env", "PUSH_DSN", "--index", "My table"],
        catch_exceptions=False,
    )
    show, run = pushed.stdout.splitlines()[-2:]
    assert show == "r2med engines show postgres-text --table 'My table' > postgres-text.sql"
    shown = runner.invoke(app, shlex.split(show)[1:-2], catch_exceptions=False)
    assert shown.stdout.count('FROM "My table"') == 1
    (tmp_path / "postgres-text.sql").write_text(shown.stdout)
    searched = runner.invoke(app, [*shlex.split(run)[1:], "--json"], catch_exceptions=False)
    assert json.loads(searched.stdout)["results"][0]["metrics"]["nDCG@10"] > 0
    with pytest.raises(R2medError, match="expected 256 dimensions, not 4"):
        push(PushRequest(TASK, "postgres", dsn_env="PUSH_DSN", encoder="my_short:Short", index="documents"))


def test_what_was_pushed_is_known_by_the_database_and_not_by_the_variable(monkeypatch: pytest.MonkeyPatch) -> None:
    request = PushRequest(TASK, "postgres", dsn_env="PUSH_DSN")
    monkeypatch.setenv("PUSH_DSN", databases.dsn("pushed_here"))
    assert push(request).count == 64
    monkeypatch.setenv("PUSH_DSN", databases.dsn("pushed_there"))
    assert push(PushRequest("sample/MedQA-Diag", "postgres", dsn_env="PUSH_DSN")).count == 64
    with pytest.raises(R2medError, match="counts 128 documents in documents, sample/Biology has 64: it held 64 before"):
        push(request)


@pytest.fixture(autouse=True)
def short_encoder(tmp_path: Path) -> None:
    (tmp_path / "my_short.py").write_text(
        "import numpy as np\nclass Short:\n"
        "    def encode_queries(self, texts):\n        return np.ones((len(texts), 4), dtype=np.float32)\n"
        "    encode_documents = encode_queries\n"
    )


def test_a_dry_run_shows_mapping_and_size_and_sends_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DATABASE_URL", "postgresql://localhost:9/none")
    runner = CliRunner()
    for engine in (*TARGETS, "postgres"):
        url = [] if engine == "postgres" else ["--url", "http://127.0.0.1:9"]
        command = ["engines", "push", TASK, "--to", engine, *url, "--encoder", "wordllama", "--dry-run"]
        shown = runner.invoke(app, command, catch_exceptions=False)
        assert shown.exit_code == 0, shown.output
        assert shown.stdout.startswith("64 documents to ")
        assert "256" in shown.stdout or engine == "weaviate", engine
    plan = plan_push(PushRequest(TASK, "elasticsearch", "http://127.0.0.1:9", batch=10))
    assert plan.batches == 7
    texts = r2med.load(TASK).collection.documents.texts
    assert sum(map(len, texts)) < plan.bytes < 2 * sum(map(len, texts))


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"engine": "elastic"}, "unknown engine 'elastic'; did you mean elasticsearch?"),
        ({"engine": "solr", "url": ""}, "where does solr listen? --url http://host:port"),
        ({"engine": "solr", "url": "localhost:8983"}, "is not a URL"),
        ({"engine": "solr", "url": "http://127.0.0.1:9"}, "no server is listening at http://127.0.0.1:9"),
        ({"engine": "qdrant"}, "qdrant holds vectors: say which, --encoder SPEC"),
        ({"engine": "elasticsearch", "index": "Upper"}, "'Upper' cannot be the name of an index here"),
        ({"engine": "weaviate", "index": "lower"}, "'lower' cannot be the name of an index here"),
        ({"engine": "milvus", "index": "a-b"}, "'a-b' cannot be the name of an index here"),
        ({"engine": "solr", "encoder": "bm25"}, "--encoder bm25: that is not an encoder"),
        ({"engine": "postgres", "url": "http://x"}, "the address of a database is in a variable"),
        ({"engine": "postgres", "url": "", "dsn_env": "NOT_SET"}, "set NOT_SET to the address of the database"),
        ({"engine": "solr", "batch": 0}, "--batch must be 1 or more"),
    ],
)
def test_bad_input_is_one_line(given: dict[str, object], words: str) -> None:
    with pytest.raises(R2medError) as caught:
        push(PushRequest(**{"task": TASK, "url": "http://localhost:9", **given}))
    assert words in str(caught.value)
    assert "\n" not in str(caught.value)


def test_wrong_keys_and_missing_cores_are_one_line_without_the_key(monkeypatch: pytest.MonkeyPatch) -> None:
    with IndexServer("solr") as server:
        with pytest.raises(R2medError, match=r"solr/other/schema is not there \(404\): check url and index"):
            push(PushRequest(TASK, "solr", server.url, index="other"))
        monkeypatch.setenv("SOLR_BASIC_AUTH", "wrong-key")
        with pytest.raises(R2medError, match="check SOLR_BASIC_AUTH") as caught:
            push(PushRequest(TASK, "solr", server.url))
    assert "wrong-key" not in str(caught.value)
    with IndexServer("vespa") as server, pytest.raises(R2medError, match="Vespa has no schema 'biology': deploy one"):
        push(PushRequest(TASK, "vespa", server.url))
    assert not any(KEY.encode() in file.read_bytes() for file in Path(os.environ["R2MED_HOME"]).rglob("*.sqlite"))
