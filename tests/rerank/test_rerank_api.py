"""Rerankers over HTTP: the common shape, its dialects, and servers that misbehave."""

from __future__ import annotations

import pytest
from rerank_parts import DOCUMENTS, QUERIES, collection, context, order, run_over

from r2med.errors import R2medError, SpecError
from r2med.models.http import RequestLimits
from r2med.pipeline.system import System
from r2med.rerank.api import ApiRerank, api_model
from rerank_server import RerankServer, Say, fit

pytest.importorskip("httpx2")
KEY = "secret-0123456789"


@pytest.fixture(autouse=True)
def _impatient(monkeypatch: pytest.MonkeyPatch):
    limits = RequestLimits(timeout=5.0, retries=2, backoff=0.01)
    monkeypatch.setattr(RequestLimits, "configured", lambda: limits)


def expected(query: str, documents=DOCUMENTS) -> list[str]:
    return sorted(documents, key=lambda name: -fit(QUERIES[query], documents[name]))


@pytest.mark.parametrize("say", [Say(), Say(name="data"), Say(score="score")], ids=["cohere", "voyage", "score"])
def test_lists_are_ordered_by_the_servers_scores(say: Say) -> None:
    with RerankServer(lambda nth, body: say) as server:
        data, own = collection(), context()
        after = ApiRerank(f"tiny@{server.url}").rerank(data, run_over(data), own)
        assert server.paths == ["/v1/rerank"] * 2
        assert server.bodies[0].keys() == {"model", "query", "documents", "top_n"}
        assert (server.bodies[0]["model"], server.bodies[0]["top_n"]) == ("tiny", 5)
        assert "Authorization" not in server.headers[0]
    for query in QUERIES:
        assert order(after, query) == expected(query)
    bill = own.notes.facts.pop("account")
    assert (bill["requests"], bill["prompt_tokens"], bill["cost"]) == (2, 14, None)
    assert own.notes.facts == {"pairs": 10, "scored": 10}


def test_scores_are_kept() -> None:
    with RerankServer() as server:
        data = collection()
        stage = ApiRerank(f"tiny@{server.url}", batch=2)
        first = stage.rerank(data, run_over(data), context())
        assert sorted(len(body["documents"]) for body in server.bodies) == [1, 1, 2, 2, 2, 2]
        own = context()
        assert stage.rerank(data, run_over(data), own) == first
        assert len(server.bodies) == 6
        assert own.notes.facts.pop("account")["whole"] is False, "what the kept scores cost is not known"
        assert own.notes.facts == {"pairs": 10, "scored": 0}
        more = collection(documents={**DOCUMENTS, "d6": "rash"})
        stage.rerank(more, run_over(more), context())
        assert [body["documents"] for body in server.bodies[6:]] == [["rash"], ["rash"]]


def test_a_passing_trouble_is_asked_again() -> None:
    plans = [Say(429, {"Retry-After": "0"}), Say(503)]
    with RerankServer(lambda nth, body: plans[nth] if nth < len(plans) else Say()) as server:
        data, own = collection(), context()
        after = ApiRerank(f"tiny@{server.url}").rerank(data, run_over(data), own)
        assert len(server.bodies) == 4
    assert order(after, "q1") == expected("q1")
    assert not own.notes.incomplete


@pytest.mark.parametrize(
    ("say", "reason"),
    [
        (Say(missing=2), "sent 3 scores for 5 documents"),
        (Say(400, body=b'{"error": {"message": "too long"}}'), "400 from {url}: too long"),
        (Say(500, body=b"{}"), "500 from {url}"),
        (Say(body=b"no json"), "an answer that cannot be read"),
        (Say(body=b'{"results": [{"index": 0, "relevance_score": null}]}'), "an answer that cannot be read"),
        (
            Say(body=b'{"results": [{"index": 0, "relevance_score": 1}, {"index": 9, "relevance_score": 1}]}'),
            "2 scores for 5",
        ),
        (Say(body=b"{}"), "0 scores for 5 documents"),
        (Say(body=b"[]"), "an answer that cannot be read"),
    ],
)
def test_a_query_that_fails_keeps_its_order_and_the_others_survive(say: Say, reason: str) -> None:
    def plan(nth: int, body: dict[str, object]) -> Say:
        return say if body["query"] == QUERIES["q1"] else Say()

    with RerankServer(plan) as server:
        data, own = collection(), context()
        before = run_over(data)
        after = ApiRerank(f"tiny@{server.url}").rerank(data, before, own)
        assert reason.format(url=server.url) in own.notes.incomplete["q1"]
    assert list(own.notes.incomplete) == ["q1"]
    assert order(after, "q1") == order(before, "q1")
    assert order(after, "q2") == expected("q2")


@pytest.mark.parametrize(("status", "words"), [(401, "refused the key"), (404, "has no /rerank"), (503, "503 from")])
def test_a_server_that_is_no_good_at_all_is_an_error(status: int, words: str) -> None:
    queries = {f"q{n}": f"question {n}" for n in range(6)}
    with RerankServer(lambda nth, body: Say(status, body=b'{"error": "no"}')) as server:
        data = collection(queries)
        with pytest.raises(R2medError, match=words):
            ApiRerank(f"tiny@{server.url}").rerank(data, run_over(data), context())


def test_nobody_there_is_an_error() -> None:
    with RerankServer() as server:
        url = server.url
    data = collection({f"q{n}": f"question {n}" for n in range(4)})
    with pytest.raises(R2medError, match="is the server running"):
        ApiRerank(f"tiny@{url}").rerank(data, run_over(data), context())


def test_keys_come_from_the_environment_and_stay_there(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("R2MED_RERANK_KEY", KEY)
    with RerankServer(lambda nth, body: Say(400, body=f'{{"error": "bad {KEY}"}}'.encode())) as server:
        data, own = collection({"q1": "a", "q2": "b"}), context()
        stage = ApiRerank(f"tiny@{server.url}")
        stage.rerank(data, run_over(data), own)
        assert server.headers[0]["Authorization"] == f"Bearer {KEY}"
    assert KEY not in repr((own.notes, stage.fingerprint(), stage.describe(), str(stage)))
    assert "bad ***" in own.notes.incomplete["q1"]


def test_a_hosted_model_without_its_key_is_an_error() -> None:
    stage = ApiRerank("cohere")
    assert stage.requirements.key == "COHERE_API_KEY"
    data = collection()
    with pytest.raises(R2medError, match="set COHERE_API_KEY in the environment"):
        stage.rerank(data, run_over(data), context())


def test_a_key_goes_to_its_own_host_and_to_no_other() -> None:
    assert api_model("rerank-english-v3.0@https://api.cohere.com/v2").key_env == "COHERE_API_KEY"
    assert api_model("rerank-v3.5@https://api.cohere.com.example.org/v2").key_env == "R2MED_RERANK_KEY"
    assert api_model("x@http://localhost:8000/v1/rerank").url == "http://localhost:8000/v1"


def test_documents_are_cut_where_a_server_wants_them_short() -> None:
    with RerankServer() as server:
        data = collection()
        ApiRerank(f"tiny@{server.url}", words=2).rerank(data, run_over(data), context())
        assert server.bodies[0]["documents"][0] == "scurvy is"


@pytest.mark.parametrize(
    ("spec", "words"),
    [
        ("api-rerank(cohre)", "did you mean cohere"),
        ("api-rerank(x@ftp://host/v1)", "is not a URL"),
        ("api-rerank(x@http://me:pw@host/v1)", "holds a user or password"),
        ("api-rerank(cohere, batch=0)", "batch must be positive"),
        ("api-rerank(cohere, depth=0)", "depth must be at least 1"),
    ],
)
def test_wrong_specs_are_refused_before_anything_runs(spec: str, words: str) -> None:
    with pytest.raises(SpecError, match=words):
        System.parse(f"bm25 >> {spec}")


def test_specs_round_trip() -> None:
    spec = "bm25 >> api-rerank(bge@http://localhost:8000/v1, depth=20, batch=10) >> api-rerank(jina)"
    assert str(System.parse(spec)) == spec
