"""The API encoder against a real server on this machine, with faults."""

from __future__ import annotations

import json
import logging

import numpy as np
import pytest

from embedding_server import DIMENSION, EmbeddingServer, Say, vector
from encoders import context
from r2med.data.dataset import Texts
from r2med.encode.api import ApiEncoder, card_at
from r2med.encode.batching import encode_all
from r2med.encode.cards import EncoderCard
from r2med.encode.encoder import Prompts, Role
from r2med.errors import MissingExtra, R2medError, SpecError
from r2med.models import server as json_server
from r2med.models.http import RequestLimits
from r2med.pipeline.executor.local import begin_command
from r2med.store.cache import home

pytest.importorskip("httpx2")

KEY = "sk-secret-0123456789abcdef"
QUICK = RequestLimits(concurrency=4, timeout=2.0, retries=3, backoff=0.01)


def serve(*steps: Say, then: Say | None = None) -> EmbeddingServer:
    """A server that meets its first attempts so, and all later ones well."""
    return EmbeddingServer(lambda nth, body: steps[nth] if nth < len(steps) else then or Say())


def api_card(name: str, url: str, max_length: int = 8000, **fields) -> EncoderCard:
    return EncoderCard(name, name, url=url, backend="api", max_query=max_length, max_document=max_length, **fields)


def encoder_at(
    server: EmbeddingServer,
    limits: RequestLimits = QUICK,
    *,
    prompts: Prompts | None = None,
    request_texts: int = 128,
    request_tokens: int = 16_000,
    **fields,
) -> ApiEncoder:
    encoder = ApiEncoder(api_card("tiny", server.url, **fields), prompts or Prompts(), limits)
    encoder.request_texts, encoder.request_tokens = request_texts, request_tokens
    return encoder


def wanted(texts) -> np.ndarray:
    return np.array([vector(text) for text in texts], dtype=np.float32)


TEXTS = [f"text number {number}" for number in range(40)]


def test_many_texts_in_parallel_requests_come_back_in_order():
    with EmbeddingServer(lambda nth, body: Say(delay=0.03 if nth % 2 else 0.0, shuffled=nth % 3 == 0)) as server:
        encoder = encoder_at(server, request_texts=3)
        np.testing.assert_array_equal(encoder.encode(TEXTS, Role.DOCUMENT), wanted(TEXTS))
        assert sorted(server.texts) == sorted(TEXTS)
        assert max(len(body["input"]) for body in server.bodies) == 3
        assert {body["model"] for body in server.bodies} == {"tiny"}
        assert 1 < server.busiest <= 4
        bill = encoder.take_bill()
        assert (bill.requests, bill.prompt_tokens, bill.cost) == (14, 400, None)
        assert encoder.take_bill() is None


def test_requests_keep_to_their_tokens():
    with EmbeddingServer() as server:
        texts = ["word " * 60, "a", "b", "word " * 400, "c"]
        encoder_at(server, request_tokens=150).encode(texts, Role.DOCUMENT)
        sizes = sorted(tuple(len(text) for text in body["input"]) for body in server.bodies)
        assert sizes == [(1,), (300, 1, 1), (2000,)]


@pytest.mark.parametrize(
    "fault",
    [
        Say(429),
        Say(500, body=b"oops"),
        Say(503),
        Say(529, body=b"{}"),
        Say(cut="length"),
        Say(delay=3.0),
        Say(body=b"<html>gateway</html>"),
        Say(body=b'{"data": [{"index": 0}]}'),
        Say(body=json.dumps({"data": [{"index": 0, "embedding": [1.0]}]}).encode()),
        Say(body=json.dumps({"data": [{"index": 5, "embedding": [1.0]}] * 2}).encode()),
        Say(body=json.dumps({"data": [{"index": 0, "embedding": [1]}, {"index": 1, "embedding": [1, 2]}]}).encode()),
        Say(body=b"[]"),
    ],
    ids=lambda say: f"{say.status} {say.body or ''} {'cut' if say.cut else ''} {say.delay}",
)
def test_a_passing_fault_is_asked_again(fault):
    limits = RequestLimits(concurrency=1, timeout=0.5, retries=3, backoff=0.01)
    with serve(fault, fault) as server:
        found = encoder_at(server, limits).encode(TEXTS[:2], Role.DOCUMENT)
        np.testing.assert_array_equal(found, wanted(TEXTS[:2]))
        assert len(server.bodies) == 3


def test_a_server_that_trickles_is_not_waited_for():
    limits = RequestLimits(concurrency=1, timeout=0.3, retries=1, backoff=0.01)
    with serve(Say(trickle=0.02)) as server:
        np.testing.assert_array_equal(encoder_at(server, limits).encode(["a"], Role.QUERY), wanted(["a"]))
        assert len(server.bodies) == 2


def test_the_server_is_left_alone_as_long_as_it_asks():
    with serve(Say(429, {"Retry-After": "0.4"})) as server:
        encoder_at(server, request_texts=1).encode(["a"], Role.QUERY)
        assert server.times[1] - server.times[0] >= 0.4


def test_what_one_request_is_told_holds_for_the_others():
    limits = RequestLimits(concurrency=2, timeout=5.0, retries=3, backoff=0.01)
    with serve(Say(429, {"Retry-After": "0.5"}), Say(delay=0.15)) as server:
        encoder_at(server, limits, request_texts=1).encode(["a", "b", "c"], Role.QUERY)
        assert min(server.times[2:]) - server.times[0] >= 0.5


def test_without_a_wish_the_wait_grows():
    limits = RequestLimits(concurrency=1, timeout=5.0, retries=3, backoff=0.1)
    with serve(Say(500), Say(500)) as server:
        encoder_at(server, limits).encode(["a"], Role.QUERY)
        first, second = np.diff(server.times)
        assert first >= 0.05
        assert second >= 0.1


def test_it_gives_up_after_the_last_retry_in_one_line():
    with serve(then=Say(503, body=b'{"error": {"message": "busy\\nbusy"}}')) as server:
        with pytest.raises(
            R2medError, match=r"^503 from http://127.*: busy busy \(4 attempts\); vectors so far are kept$"
        ):
            encoder_at(server).encode(["a"], Role.QUERY)
        assert len(server.bodies) == 4


@pytest.mark.parametrize(
    ("say", "message"),
    [
        (Say(400, body=b'{"error": {"message": "input too long"}}'), "400 from .*: input too long"),
        (Say(404, body=b'{"detail": "no such model"}'), "does not know the model tiny, or has no /embeddings: no such"),
        (
            Say(401, body=f'{{"error": "wrong key {KEY[:9]}***"}}'.encode()),
            "refused the key of tiny .401.: R2MED_EMBED_KEY not set",
        ),
        (Say(403, body=b""), "refused the key of tiny .403."),
        (
            Say(429, body=b'{"error": {"code": "insufficient_quota", "message": "pay"}}'),
            "takes no requests to tiny .429.: pay",
        ),
        (Say(429, {"Retry-After": "7200"}), "429 from"),
    ],
)
def test_what_will_not_pass_is_not_asked_again(say, message):
    with serve(then=say) as server:
        with pytest.raises(R2medError, match=message):
            encoder_at(server).encode(["a"], Role.QUERY)
        assert len(server.bodies) == 1


def test_nobody_there():
    with EmbeddingServer() as server:
        pass
    with pytest.raises(
        R2medError, match=r"no server is listening at http://127.*; is the server running\? \(3 attempts\)"
    ):
        encoder_at(server).encode(["a"], Role.QUERY)


def test_a_server_that_never_answers_is_asked_once_a_command():
    with serve(then=Say(503)) as server:
        for _ in range(2):
            with pytest.raises(R2medError, match="503 from"):
                encoder_at(server).encode(["a"], Role.QUERY)
        assert len(server.bodies) == 1 + QUICK.retries
        server.plan = lambda nth, body: Say()
        begin_command()
        assert len(encoder_at(server).encode(["a"], Role.QUERY)) == 1


def test_a_redirect_is_not_followed(monkeypatch):
    monkeypatch.setenv("R2MED_EMBED_KEY", "sk-123")
    with EmbeddingServer() as other, serve(then=Say(307, {"Location": f"{other.url}/embeddings"})) as server:
        with pytest.raises(R2medError, match="redirects to http://127"):
            encoder_at(server).encode(["a"], Role.QUERY)
        assert (len(server.bodies), len(other.bodies)) == (1, 0)


def test_a_body_without_end_is_not_read_to_its_end(monkeypatch):
    monkeypatch.setattr(json_server.JsonServer, "largest", 1_000_000)
    with serve(then=Say(body=b"x" * (2 << 20))) as server:
        with pytest.raises(R2medError, match="sent 1 MB or more"):
            encoder_at(server).encode(["a"], Role.QUERY)
        assert len(server.bodies) == 1


def test_one_hopeless_request_stops_the_others():
    def plan(nth, body):
        return Say(400, body=b"no") if "text number 0" in body["input"] else Say(429, {"Retry-After": "1"})

    with EmbeddingServer(plan) as server:
        with pytest.raises(R2medError, match="400 from"):
            encoder_at(server, request_texts=1).encode(TEXTS, Role.DOCUMENT)
        assert len(server.bodies) <= 8


def test_the_key_is_sent_and_shown_nowhere(monkeypatch, caplog):
    monkeypatch.setenv("R2MED_EMBED_KEY", KEY)
    caplog.set_level(logging.DEBUG)
    echo = Say(400, body=("x" * 190 + KEY).encode())
    texts, notes = Texts(["d0", "d1"], ["a", "b"]), context()
    with serve(Say(), echo) as server:
        encoder = encoder_at(server, request_texts=2)
        encode_all(encoder, texts, Role.DOCUMENT, notes)
        with pytest.raises(R2medError) as failure:
            encoder.encode(["c"], Role.DOCUMENT)
        assert server.headers[0]["Authorization"] == f"Bearer {KEY}"
    kept = b"".join(path.read_bytes() for path in (home() / "vectors").rglob("*") if path.is_file())
    chain = [failure.value, failure.value.__cause__, failure.value.__context__]
    seen = [str(notes.notes), str(encoder.settings(Role.QUERY)), repr(vars(encoder)), caplog.text, *map(repr, chain)]
    for text in seen:
        assert KEY not in text
        assert KEY[:8] not in text
    assert KEY.encode() not in kept


def test_without_a_key_none_is_sent():
    with EmbeddingServer() as server:
        encoder_at(server).encode(["a"], Role.QUERY)
        assert "Authorization" not in server.headers[0]


def test_a_known_host_gets_its_own_key_and_wants_it(monkeypatch):
    monkeypatch.setenv("R2MED_EMBED_KEY", KEY)
    encoder = ApiEncoder(api_card("text-embedding-3-large", "https://api.openai.com/v1"), Prompts())
    assert encoder.requirements.key == "OPENAI_API_KEY"
    assert encoder.requirements.extra == "api"
    with pytest.raises(R2medError, match="text-embedding-3-large needs a key: set OPENAI_API_KEY in the environment"):
        encoder.load()
    other = ApiEncoder(api_card("m", "https://api.openai.com.evil.example/v1"), Prompts())
    assert other.key_env == "R2MED_EMBED_KEY"


def test_sides_and_prompts_are_told_to_a_server_that_wants_them():
    with EmbeddingServer() as server:
        encoder = encoder_at(server, input_types=True, prompts=Prompts("q: "))
        encoder.encode(["a"], Role.QUERY)
        encoder.encode(["a"], Role.DOCUMENT)
        encoder.for_passages().encode(["a"], Role.QUERY)
        encoder_at(server).encode(["a"], Role.DOCUMENT)
        seen = [(body["input"], body.get("input_type")) for body in server.bodies]
        assert seen == [(["q: a"], "query"), (["a"], "document"), (["a"], "query"), (["a"], None)]


def test_long_texts_are_cut_and_counted():
    texts = Texts(["d0", "d1"], ["ab" * 30, "é" * 40])
    with EmbeddingServer() as server:
        notes = context()
        encode_all(encoder_at(server, max_length=15), texts, Role.DOCUMENT, notes)
        assert sorted(server.texts) == sorted(["ab" * 22 + "a", "é" * 22])
        facts = notes.notes.facts["documents"]
        assert (facts["truncated"], facts["max_tokens"], facts["dimension"]) == (2, 15, DIMENSION)
        assert notes.notes.facts["account"]["requests"] == 1
        encoder_at(server, max_length=0).encode(texts.texts, Role.DOCUMENT)
        assert sorted(server.texts[2:]) == sorted(texts.texts)


class Encoding:
    """A stand-in for a tokenizer of tiktoken: a token is four bytes."""

    def encode_ordinary(self, text: str) -> list[bytes]:
        data = text.encode()
        return [data[start : start + 4] for start in range(0, len(data), 4)]

    def decode_bytes(self, tokens: list[bytes]) -> bytes:
        return b"".join(tokens)


def test_a_tokenizer_counts_where_it_is_installed(monkeypatch, tmp_path):
    (tmp_path / "tiktoken.py").write_text("")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr("r2med.encode.api._encoding", lambda name: Encoding())
    with EmbeddingServer() as server:
        encoder = encoder_at(server, max_length=5, tokenizer="cl100k_base")
        assert encoder.settings(Role.QUERY)["tokens"] == "cl100k_base"
        assert encoder.lengths(["x" * 41, "é"], Role.QUERY).tolist() == [11, 1]
        encoder.encode(["x" * 41, "aé" * 9], Role.QUERY)
        assert server.texts == ["x" * 20, "aé" * 6 + "a"]


def test_without_the_tokenizer_bytes_are_counted(monkeypatch):
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    encoder = ApiEncoder(api_card("m", "http://localhost:1/v1", tokenizer="cl100k_base"), Prompts())
    assert encoder.settings(Role.QUERY)["tokens"] == "3 bytes"
    assert encoder.lengths(["abcd"], Role.QUERY).tolist() == [2]
    with pytest.raises(MissingExtra, match=r"httpx2: pip install 'r2med\[api\]'"):
        encoder.load()


def test_a_broken_character_is_replaced():
    with EmbeddingServer() as server:
        encoder_at(server).encode(["half \ud83e of a pair"], Role.QUERY)
        assert server.texts == ["half ? of a pair"]


def test_what_was_paid_for_is_kept_when_a_later_batch_fails():
    texts = Texts([f"d{n}" for n in range(40)], [f"{text} {'w' * (40 - n)}" for n, text in enumerate(TEXTS)])
    limits = RequestLimits(concurrency=1, timeout=2.0, retries=0)
    with serve(Say(), Say(), then=Say(400, body=b"no")) as server:
        with pytest.raises(R2medError, match="400"):
            encode_all(encoder_at(server, limits, request_tokens=100), texts, Role.DOCUMENT, context())
        paid = {text for body in server.bodies[:2] for text in body["input"]}
        server.plan = lambda nth, body: Say()
        before = len(server.bodies)
        vectors = encode_all(encoder_at(server, limits, request_tokens=100), texts, Role.DOCUMENT, context())
        assert not paid & {text for body in server.bodies[before:] for text in body["input"]}
        np.testing.assert_array_equal(vectors[:], wanted(texts.texts))


@pytest.mark.parametrize("address", ["m@localhost:8000", "m@", "@http://h/v1", "m@ftp://h/v1", "m@http:///v1"])
def test_an_address_that_cannot_be_read(address):
    with pytest.raises(SpecError, match="write NAME@http://host:port/v1"):
        card_at(address)


def test_a_password_in_the_address_is_refused_and_not_repeated():
    with pytest.raises(SpecError, match="holds a user or password") as failure:
        card_at("m@https://me:hunter2@host/v1")
    assert "hunter2" not in str(failure.value)
