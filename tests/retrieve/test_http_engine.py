"""Search engines behind HTTP: the figures of the search behind them, and one line for everything that goes wrong."""

from __future__ import annotations

import json
import re
import sqlite3
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import parse_qs

import pytest
from engine_server import HEADERS, KEY, Backend, EngineServer

import r2med
from jsonserver import Say
from r2med.errors import R2medError, SpecError
from r2med.pipeline.system import System
from r2med.retrieve.engine_request import presets

pytest.importorskip("httpx")
pytest.importorskip("wordllama")
TASK = "sample/Biology"
VARIABLES = {
    "elasticsearch": "ELASTIC_API_KEY",
    "opensearch": "OPENSEARCH_BASIC_AUTH",
    "solr": "SOLR_BASIC_AUTH",
    "vespa": "VESPA_TOKEN",
    "qdrant": "QDRANT_API_KEY",
    "weaviate": "WEAVIATE_API_KEY",
    "typesense": "TYPESENSE_API_KEY",
    "meilisearch": "MEILISEARCH_API_KEY",
    "milvus": "MILVUS_TOKEN",
}
TEXT = [name for name in VARIABLES if name != "qdrant"]


@pytest.fixture(scope="module")
def backend() -> Backend:
    return Backend(TASK)


@pytest.fixture(autouse=True)
def keys(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    for name in VARIABLES.values():
        monkeypatch.setenv(name, KEY)
    (tmp_path / "r2med.toml").write_text("[requests]\nretries = 1\n")


def spec(server: EngineServer, **more: object) -> str:
    index = {"index": "Docs", "id_field": "doc_id"} if server.engine == "weaviate" else {"index": "docs"}
    options = ", ".join(f"{name}={json.dumps(value)}" for name, value in {**index, **more}.items())
    return f"http({server.engine}, url={json.dumps(server.address)}, {options})"


def only_result(system: str, **options: object):
    report = r2med.evaluate(system, TASK, r2med.Options(**options))
    assert not report.failures, report.failures
    return report.results[0]


def failure(system: str) -> str:
    (failed,) = r2med.evaluate(system, TASK).failures
    assert "\n" not in failed.message
    return failed.message


def test_every_preset_is_tested_and_says_its_versions() -> None:
    assert set(presets()) == set(VARIABLES) == set(HEADERS)
    assert all(table["versions"] for table in presets().values())


@pytest.mark.parametrize("engine", TEXT)
def test_a_search_by_text_has_the_figures_of_the_search_behind_it(engine: str, backend: Backend) -> None:
    with EngineServer(engine, backend) as server:
        result = only_result(spec(server))
        assert result.metrics == pytest.approx(only_result("bm25").metrics, abs=1e-12)
        assert len(server.bodies) == (1 if engine == "typesense" else 9)


@pytest.mark.parametrize("engine", VARIABLES)
def test_a_search_by_vectors_has_the_figures_of_the_encoder(engine: str, backend: Backend) -> None:
    with EngineServer(engine, backend) as server:
        result = only_result(spec(server, encoder="wordllama"))
        assert result.metrics == pytest.approx(only_result("wordllama").metrics, abs=1e-9)


def test_it_stands_in_fusions_behind_expanders_and_before_rerankers(backend: Backend, tmp_path: Path) -> None:
    (tmp_path / "lengths_of_theirs.py").write_text(
        "class Length:\n    def score(self, query, documents):\n        return [len(text) for text in documents]\n"
    )
    with EngineServer("elasticsearch", backend) as server:
        own = spec(server)
        for system in ("rrf({}, bm25-classic)", "replay >> {}", "{} >> lengths_of_theirs:Length"):
            ours, theirs = system.format("bm25"), system.format(own)
            assert only_result(theirs).metrics == pytest.approx(only_result(ours).metrics, abs=1e-12), theirs
        system = System.parse(own)
        assert System.parse(str(system)) == system


def test_replies_are_kept_and_fresh_asks_again(backend: Backend) -> None:
    def plan(nth: int, body: object) -> Say:
        return Say(400, body=b'{"error": "too long"}') if nth == 4 else Say()

    with EngineServer("elasticsearch", backend, plan) as server:
        first = only_result(spec(server))
        assert len(first.incomplete) == 1
        assert "too long" in next(iter(first.incomplete.values()))
        again = only_result(spec(server))
        assert not again.incomplete
        assert len(server.bodies) == 10, "only what failed was asked again"
        only_result(f"rrf({spec(server)}, bm25)")
        assert len(server.bodies) == 10
        only_result(spec(server), fresh=True)
        assert len(server.bodies) == 19
        assert again.record.notes[again.system]["latency"]["p50"] > 0


def test_kept_replies_are_counted_and_forgotten_by_name_alone(backend: Backend, own_home: Path) -> None:
    from click.testing import CliRunner

    from r2med.cli.main import app

    def told(*arguments: str) -> str:
        done = CliRunner().invoke(app, ["cache", *arguments], env={"COLUMNS": "120", "NO_COLOR": "1"})
        assert done.exit_code == 0, done.output
        return done.output

    def replies() -> list[dict[str, object]]:
        return [row for row in json.loads(told("--json")) if row["kind"] == "replies"]

    assert replies() == []
    assert told("clear", "replies") == "removed 0 replies of search engines\n"
    assert not (own_home / "engines.sqlite").exists(), "looking makes no file"
    with EngineServer("elasticsearch", backend) as server:
        only_result(spec(server))
        assert len(server.bodies) == 9
        assert re.search(r"replies +search engines +9 queries +\d", told())
        (row,) = replies()
        assert row["holds"] == "9 queries"
        assert 0 < row["bytes"] < (own_home / "engines.sqlite").stat().st_size
        told("clear", "--all")
        assert replies() == [row], "what an engine answered cannot always be had again"
        assert told("clear", "replies") == "removed 9 replies of search engines\n"
        assert replies() == []
        only_result(f"rrf({spec(server)}, bm25)")
        assert len(server.bodies) == 18


def test_no_key_is_in_any_file_or_message(backend: Backend, own_home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with EngineServer("meilisearch", backend) as server:
        only_result(spec(server))

        def refuse(nth: int, body: object) -> Say:
            return Say(401, body=json.dumps({"error": f"key {KEY} is wrong"}).encode())

        server.plan = refuse
        message = failure(spec(server, depth=7))
    assert KEY not in message
    assert "MEILISEARCH_API_KEY" in message
    files = [file for file in own_home.rglob("*") if file.is_file()]
    assert any(file.name == "engines.sqlite" for file in files)
    assert not [file for file in files if KEY.encode() in file.read_bytes()]
    assert KEY not in capsys.readouterr().err


@pytest.mark.parametrize(
    ("say", "words"),
    [
        (Say(302, {"Location": "http://elsewhere.example/"}, b"{}"), "redirects to http://elsewhere.example/"),
        (Say(body=b'{"took": 1}'), "has no 'hits.hits' (there is: took); see its [reply] table"),
        (Say(body=b"<html>"), "sent an answer that cannot be read"),
        (Say(body=b'{"timed_out": true, "hits": {"hits": []}}'), "timed_out: true"),
        (Say(body=b'{"hits": {"hits": [{"_id": "a", "_score": "high"}]}}'), "sent an answer that cannot be read"),
        (Say(body=b'{"hits": {"hits": [{"_id": "a", "_score": NaN}]}}'), "sent an answer that cannot be read"),
        (Say(body=b'{"hits": {"hits": [{"_id": "a", "_score": 1}]}}'), "are not documents of sample/Biology"),
        (
            Say(body=b'{"hits": {"hits": [{"_id": "bio-d001", "_score": 2}, {"_id": "bio-d001", "_score": 1}]}}'),
            "'bio-d001' is in its list more than once",
        ),
        (Say(body=b" " * (51 << 20)), "sent more than 50 MB"),
        (Say(404, body=b'{"error": "no such index [docs]"}'), "is not there (404): check url and index"),
    ],
)
def test_every_wrong_reply_is_one_line(backend: Backend, say: Say, words: str) -> None:
    with EngineServer("elasticsearch", backend, lambda nth, body: say) as server:
        report = r2med.evaluate(spec(server), TASK)
    said = [each.message for each in report.failures] + [
        reason for result in report.results for reason in result.incomplete.values()
    ]
    assert said
    assert words in said[0]


@pytest.mark.parametrize("engine", ["milvus", "typesense"])
def test_errors_inside_a_reply_that_looks_fine_are_errors(engine: str, backend: Backend) -> None:
    with EngineServer(engine, backend) as server:
        said = failure(spec(server, index="other"))
    assert said.startswith(f"http({engine}) could search for none of the queries: ")
    assert "can't find collection" in said or "Not found" in said


def test_nobody_there_is_one_line() -> None:
    assert "no server is listening at http://127.0.0.1:9" in failure('http(solr, url="http://127.0.0.1:9", index=x)')


ENGINE = """
url = "{url}"
path = "{{index}}/_search"
batch = 1
headers = {{ Authorization = "ApiKey {{env:MY_OWN_KEY}}" }}
reply = {{ hits = "hits.hits", id = "_id", score = "_score" }}

[query]
size = "{{k}}"
query = {{ match = {{ text = {{ query = "{{query}}" }} }} }}
"""


def test_a_file_of_ones_own_with_chunks(backend: Backend, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MY_OWN_KEY", KEY)
    with EngineServer("elasticsearch", backend) as server:
        plain = server.elasticsearch

        def chunked(body: dict) -> object:
            reply = plain(body)
            hits = reply["hits"]["hits"]
            pieces = [{"_id": f"{h['_id']}#{n}", "_score": h["_score"] - n / 1000} for h in hits for n in (1, 0)]
            return {"hits": {"hits": pieces}}

        server.elasticsearch = chunked
        (tmp_path / "engine.toml").write_text(ENGINE.format(url=server.address))
        result = only_result('http(engine.toml, index=docs, chunk="(.*)#[0-9]+", fetch=200)')
        assert result.metrics == pytest.approx(only_result("bm25").metrics, abs=1e-12)
        (tmp_path / "engine.toml").write_text(ENGINE.format(url=server.address).replace('"{k}"', "3"))
        edited = only_result('http(engine.toml, index=docs, chunk="(.*)#[0-9]+", fetch=200)')
        assert edited.run_id != result.run_id
        assert edited.metrics["Recall@100"] < result.metrics["Recall@100"]


@pytest.mark.parametrize(
    ("system", "words"),
    [
        ("http(elasticserch, url=http://x, index=y)", "unknown engine 'elasticserch'; did you mean elasticsearch?"),
        ("http(elasticsearch, index=y)", "needs an address, url=http://host:port"),
        ("http(elasticsearch, url=http://x)", "say what is searched, index=..."),
        ("http(qdrant, url=http://x, index=y)", "qdrant searches by vectors; give encoder=..."),
        ("http(qdrant, url=http://x, index=y, encoder=bm25)", "bm25 is no encoder"),
        ("http(typesense, url=http://x, index=y, depth=300)", "gives at most 250 hits, not 300"),
        ("http(solr, url=http://x, index=y, batch=4)", "takes one query at a time"),
        ('http(solr, url=http://x, index=y, chunk="(")', "no regular expression"),
        ('http(solr, url=http://x, index=y, chunk="a")', "has no group for the document"),
        ('http(solr, url="http://me:secret@x", index=y)', "holds a user or password"),
        ("http(solr, url=localhost:8983, index=y)", "is no URL: 'localhost:8983'; write url=http://host:port"),
        ("http(nothing.toml)", "nothing.toml: no such file"),
        ("http(bad.toml)", "cannot be read as TOML"),
        ("http(odd.toml)", "unknown key 'replies'; did you mean reply?"),
    ],
)
def test_wrong_specs_are_refused_before_anything_runs(tmp_path: Path, system: str, words: str) -> None:
    (tmp_path / "bad.toml").write_text("a = [")
    (tmp_path / "odd.toml").write_text("replies = 1")
    with pytest.raises((SpecError, R2medError)) as caught:
        System.parse(system)
    assert words in str(caught.value)


def test_a_request_by_get_sends_a_query_string(backend: Backend, tmp_path: Path) -> None:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            place, _, query = self.path.partition("?")
            values = parse_qs(query)
            hits = backend.words(values["q"][0], int(values["n"][0])) if place == "/find" else []
            data = json.dumps([{"name": name, "points": score} for name, score in hits]).encode()
            self.send_response(200)
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        def log_message(self, *_: object) -> None:
            """Print nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    (tmp_path / "plain.toml").write_text(
        f'url = "http://127.0.0.1:{server.server_port}"\npath = "find"\nmethod = "GET"\n'
        'reply = {hits = "", id = "name", score = "points"}\n[query]\nq = "{query}"\nn = "{k}"\n'
    )
    try:
        assert only_result("http(plain.toml)").metrics == pytest.approx(only_result("bm25").metrics, abs=1e-12)
    finally:
        server.shutdown()
        server.server_close()


def test_a_damaged_row_of_kept_replies_is_asked_for_again(backend: Backend, own_home: Path) -> None:
    with EngineServer("solr", backend) as server:
        before = only_result(spec(server))
        with sqlite3.connect(own_home / "engines.sqlite") as db:
            db.execute("UPDATE replies SET hits = '[]'")
        after = only_result(f"rrf({spec(server)}, bm25)")
        assert len(server.bodies) == 18
        assert after.metrics == pytest.approx(before.metrics, abs=1e-12)
