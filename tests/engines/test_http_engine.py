"""Search engines behind HTTP: the figures of the search behind them, and one line for everything that goes wrong."""

from __future__ import annotations

import json
import re
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import parse_qs

import pytest
from click.testing import CliRunner
from engine_server import HEADERS, KEY, Backend, EngineServer

import r2med
from jsonserver import Say
from r2med.cli.main import app
from r2med.engines.request import presets
from r2med.errors import R2medError, SpecError, StoreWarning
from r2med.pipeline.system import System
from r2med.store.arrays import ValueStore, read_shard

pytest.importorskip("httpx2")
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


def test_errors_and_time_outs_are_counted_also_where_a_retry_made_up_for_them(backend: Backend, tmp_path: Path) -> None:
    (tmp_path / "r2med.toml").write_text("[requests]\nretries = 1\ntimeout = 1.5\nconcurrency = 1\n")

    def plan(nth: int, body: object) -> Say:
        fine = Say(body=b'{"hits": {"hits": [{"_id": "bio-d001", "_score": 2}]}}')
        return {1: Say(503, body=b"{}"), 4: Say(delay=4, body=b"{}")}.get(nth, fine)

    with EngineServer("elasticsearch", backend, plan) as server:
        system = spec(server)
        report = r2med.evaluate(["bm25", system, f"rrf({system}, bm25)"], TASK)
        assert len(server.bodies) == 11
    plain, result, fused = report.as_dict()["results"]
    assert (result["errors"], result["timeouts"], fused["errors"], fused["timeouts"]) == (1, 1, 1, 1)
    assert "errors" not in plain
    assert "incomplete" not in result
    assert f"{result['system']}: failed attempts: 1, time-outs: 1" in str(report)


def test_no_more_requests_are_sent_than_allowed_at_a_time_and_in_a_minute(backend: Backend, tmp_path: Path) -> None:
    (tmp_path / "r2med.toml").write_text("[requests]\nconcurrency = 2\nrequests_per_minute = 600\n")
    fine = Say(body=b'{"hits": {"hits": [{"_id": "bio-d001", "_score": 2}]}}', delay=0.3)
    with EngineServer("elasticsearch", backend, lambda nth, body: fine) as server:
        started = time.monotonic()
        only_result(spec(server))
        assert server.busiest <= 2
        assert all(when - started >= 0.1 * nth for nth, when in enumerate(server.times))
    with EngineServer("elasticsearch", backend, lambda nth, body: fine) as server:
        options = ["--concurrency", "4", "--rpm", "6000", "--tasks", TASK, "--json"]
        done = CliRunner().invoke(app, ["run", spec(server), *options], catch_exceptions=False)
        assert done.exit_code == 0
        assert 2 < server.busiest <= 4, "an option of the command wins"


def test_a_key_goes_into_the_headers_that_name_it_and_no_other(
    backend: Backend, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with EngineServer("typesense", backend) as server:
        only_result(spec(server))
        assert server.headers[-1]["X-Typesense-Api-Key"] == KEY
        assert [name for name, value in server.headers[-1].items() if KEY in value] == ["X-Typesense-Api-Key"]
        for odd in ("two\nlines", "schl\u00fcssel"):
            monkeypatch.setenv("TYPESENSE_API_KEY", odd)
            message = failure(spec(server, depth=9))
            assert message.startswith("TYPESENSE_API_KEY holds characters that no header can hold")
        assert len(server.bodies) == 1


def test_an_engine_that_finds_nothing_for_any_query_is_warned_of(backend: Backend) -> None:
    with EngineServer("elasticsearch", backend, lambda nth, body: Say(body=b'{"hits": {"hits": []}}')) as server:
        (line,) = only_result(spec(server)).warnings
    assert line == "http(elasticsearch): found nothing for any of 9 queries; is the right index or field searched?"


def test_kept_replies_are_counted_and_forgotten_by_name_alone(backend: Backend, own_home: Path) -> None:
    def told(*arguments: str) -> str:
        done = CliRunner().invoke(app, ["cache", *arguments], env={"COLUMNS": "120", "NO_COLOR": "1"})
        assert done.exit_code == 0, done.output
        return done.output

    def replies() -> list[dict[str, object]]:
        return [row for row in json.loads(told("--json")) if row["kind"] == "replies"]

    assert replies() == []
    assert told("clear", "replies") == "removed 0 replies of search engines\n"
    assert not (own_home / "replies").exists(), "looking makes no file"
    with EngineServer("elasticsearch", backend) as server:
        only_result(spec(server))
        assert len(server.bodies) == 9
        assert re.search(r"replies +search engines +9 queries +\d", told())
        (row,) = replies()
        assert row["holds"] == "9 queries"
        assert 0 < row["bytes"] < 1 << 20
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
    assert any("replies" in file.parts for file in files)
    assert not [file for file in files if KEY.encode() in file.read_bytes()]
    assert KEY not in capsys.readouterr().err


_SCORE = b'{"hits": {"hits": [{"_id": "a", "_score": %s}]}}'


@pytest.mark.parametrize(
    ("say", "words"),
    [
        (Say(302, {"Location": "http://elsewhere.example/"}, b"{}"), "redirects to http://elsewhere.example/"),
        (Say(body=b'{"took": 1}'), "has no 'hits.hits' (there is: took); see its [reply] table"),
        (
            Say(body=b'{"code": 100, "message": "no collection for %s"}' % KEY.encode()),
            "has no 'hits.hits' (there is: code, message); no collection for ***; see its [reply] table",
        ),
        (Say(body=b"<html>"), "sent an answer that cannot be read as JSON"),
        (Say(body=b'{"hits": {"hits": null}}'), "has no list at 'hits.hits' (there is: null); see its [reply] table"),
        (Say(body=b'{"hits": {"hits": [{"_id": null, "_score": 1}]}}'), "has the id null, which is neither a text nor"),
        (Say(body=b'{"timed_out": true, "hits": {"hits": []}}'), "timed_out: true"),
        (Say(body=b'{"timed_out": "%s", "hits": {"hits": []}}' % KEY.encode()), "timed_out: ***"),
        (Say(body=_SCORE % b'"high"'), "has the score \"high\" for 'a', which is not a number"),
        (Say(body=_SCORE % b"null"), "has the score null for 'a', which is not a number"),
        (Say(body=_SCORE % b"true"), "has the score true for 'a', which is not a number"),
        (Say(body=_SCORE % b"NaN"), "sent an answer that cannot be read as JSON"),
        (Say(body=b'{"hits": {"hits": [{"_id": "a", "_score": 1}]}}'), "are not documents of sample/Biology"),
        (
            Say(body=b'{"hits": {"hits": [{"_id": "bio-d001", "_score": 2}, {"_id": "bio-d001", "_score": 1}]}}'),
            "'bio-d001' is in its list more than once",
        ),
        (Say(body=b" " * 50_000_000), "sent 50 MB or more"),
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
        assert edited.id != result.id
        assert edited.metrics["Recall@100"] < result.metrics["Recall@100"]


@pytest.mark.parametrize(
    ("system", "words"),
    [
        ("http(elasticserch, url=http://x, index=y)", "unknown engine 'elasticserch'; did you mean elasticsearch?"),
        ("http(elasticsearch, index=y)", "needs an address, url=http://host:port"),
        ("http(elasticsearch, url=http://x)", "say what is searched, index=..."),
        ("http(qdrant, url=http://x, index=y)", "qdrant searches by vectors; give encoder=..."),
        ("http(qdrant, url=http://x, index=y, encoder=bm25)", "bm25 is not an encoder"),
        ("http(typesense, url=http://x, index=y, depth=300)", "gives at most 250 hits, not 300"),
        ("http(solr, url=http://x, index=y, batch=4)", "takes one query at a time"),
        ('http(solr, url=http://x, index=y, chunk="(")', "not a regular expression"),
        ('http(solr, url=http://x, index=y, chunk="a")', "has no group for the document"),
        ('http(solr, url="http://me:secret@x", index=y)', "holds a user or password"),
        ("http(solr, url=localhost:8983, index=y)", "is not a URL: 'localhost:8983'; write url=http://host:port"),
        ("http(nothing.toml)", "nothing.toml: no such file"),
        ("http(bad.toml)", "not readable as TOML"),
        ("http(odd.toml)", "replies is not a known key; did you mean reply?"),
        ("http(solr, url=http://x, index=2024)", 'index must be a name or text, not 2024; write index="2024"'),
    ],
)
def test_wrong_specs_are_refused_before_anything_runs(tmp_path: Path, system: str, words: str) -> None:
    (tmp_path / "bad.toml").write_text("a = [")
    (tmp_path / "odd.toml").write_text("replies = 1")
    with pytest.raises((SpecError, R2medError)) as caught:
        System.parse(system)
    assert words in str(caught.value)


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ('"ApiKey {env:MY_OWN_KEY}"', "5", "[headers] Authorization must be a text, not 5"),
        ("{env:MY_OWN_KEY}", "{env:}", "headers.Authorization has a placeholder that is none; a key is {env:NAME}"),
        ('"{k}"', '"{kk}"', "[query] cannot hold {kk}; did you mean k?"),
        ("{index}", "{query}", "path cannot hold {query}; known: index"),
        ('"{query}"', '"fever"', "[query] has no {query}: every query would be asked for alike"),
        ("batch = 1", "batch = 0", "batch must be a whole number of at least 1, not 0"),
        ("batch = 1", "batch = true", "batch must be a whole number of at least 1, not True"),
        ("batch = 1", "batch = 4", "batch = 4 needs a table [query_item]"),
        ("batch = 1", 'query_item = {q = "{query}"}', "[query_item] needs {items} in [query], and reply.lists"),
        ("batch = 1", "largest = -1", "largest must be a whole number of at least 0, not -1"),
        ("batch = 1", 'method = "PUT"', "method must be one of GET, POST, not 'PUT'"),
        ("reply = {", "reply = 5 # {", "reply must be a table, not 5"),
        ('"_id"', "5", "reply.id must be a text, not 5"),
        ('id = "_id"', 'errors = [5], id = "_id"', "reply.errors must be a list of texts, not [5]"),
        ('score = "_score"', 'points = "_score"', "reply.points is not a known key"),
        ("[query]", '[vector]\nv = "{vector}"', "no table [query]"),
    ],
)
def test_every_wrong_line_of_a_file_is_named(tmp_path: Path, old: str, new: str, words: str) -> None:
    text = ENGINE.format(url="http://localhost:1")
    System.parse(f"http({_written(tmp_path, text)}, index=docs)")
    assert old in text
    with pytest.raises(SpecError) as caught:
        System.parse(f"http({_written(tmp_path, text.replace(old, new))}, index=docs)")
    assert str(caught.value).startswith("engine.toml:")
    assert words in str(caught.value)


def _written(folder: Path, text: str) -> str:
    (folder / "engine.toml").write_text(text)
    return "engine.toml"


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
        (rows,) = own_home.glob("replies/*/*.rows")
        rows.write_bytes(rows.read_bytes().replace(b"0", b"1"))
        with pytest.warns(StoreWarning, match="replies of .* are damaged"):
            after = only_result(f"rrf({spec(server)}, bm25)")
        assert len(server.bodies) == 18
        assert after.metrics == pytest.approx(before.metrics, abs=1e-12)


def _listed(*names: str) -> Say:
    hits = [{"_id": name, "_score": 9.0 - place} for place, name in enumerate(names)]
    return Say(body=json.dumps({"hits": {"hits": hits}}).encode())


@pytest.mark.parametrize(("names", "words"), [(("x", "x"), "more than once"), (("x", "y"), "are not documents of")])
def test_lists_that_were_refused_are_asked_for_again(backend: Backend, names: tuple[str, str], words: str) -> None:
    broken = True
    with EngineServer("elasticsearch", backend, lambda nth, body: _listed(*names) if broken else Say()) as server:
        assert words in failure(spec(server))
        asked = len(server.bodies)
        broken = False
        mended = only_result(spec(server))
        assert len(server.bodies) == asked + 9
        assert not mended.incomplete
        only_result(f"rrf({spec(server)}, bm25)")
        assert len(server.bodies) == asked + 9, "what was accepted is kept"


def test_kept_lists_that_are_refused_are_asked_for_again(
    backend: Backend, own_home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with EngineServer("elasticsearch", backend) as server:
        before = only_result(spec(server))
        (log,) = own_home.glob("replies/*/*.log")
        with ValueStore("replies", {}) as store:
            keys = [entry["text"].tobytes() for entry in read_shard(log).entries]
            store.write(dict.fromkeys(keys, b'[[["x", 2.0], ["x", 1.0]], 0.1]'))
        after = only_result(f"rrf({spec(server)}, bm25)")
        assert len(server.bodies) == 18
        assert not after.incomplete
        assert before.metrics


def test_an_index_that_was_empty_for_a_while_is_searched_again(backend: Backend) -> None:
    empty = True
    with EngineServer("elasticsearch", backend, lambda nth, body: _listed() if empty else Say()) as server:
        first = only_result(spec(server))
        assert len(first.incomplete) == 9
        empty = False
        again = only_result(spec(server))
        assert len(server.bodies) == 18
        assert not again.incomplete
        assert again.metrics["nDCG@10"] > 0


def test_a_blank_key_is_said_to_be_the_matter(backend: Backend, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(VARIABLES["elasticsearch"], " ")
    with EngineServer("elasticsearch", backend) as server:
        said = failure(spec(server))
    assert "refused the key" in said
    assert f"{VARIABLES['elasticsearch']} not set" in said
