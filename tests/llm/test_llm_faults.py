"""The client against a real server that fails in every way a server can."""

from __future__ import annotations

import sqlite3
import ssl
import subprocess
import threading
import time
from dataclasses import replace
from email.utils import formatdate

import pytest
from asking import KEY, model_at, questions

from chat_server import ChatServer, Say
from r2med.errors import R2medError
from r2med.llm.budget import account
from r2med.llm.cards import find_model
from r2med.llm.client import Client
from r2med.llm.reply_cache import _USED
from r2med.llm.types import Failed, Reply
from r2med.models.http import ServerError

FAULTS = {
    "rate limit": Say(status=429, headers={"Retry-After": "0.05"}),
    "rate limit, bare": Say(status=429),
    "server error": Say(status=500),
    "overloaded": Say(status=503, body=b"<html>busy</html>"),
    "hang": Say(delay=30),
    "trickle": Say(trickle=0.2),
    "cut at length": Say(cut="length"),
    "cut in chunks": Say(cut="chunks"),
    "cut, silent": Say(cut="silent"),
    "cut error": Say(status=500, cut="length"),
    "not JSON": Say(body=b"<html>hello</html>"),
    "half JSON": Say(body=b'{"choices": [{"mess'),
    "a list": Say(body=b"[]"),
    "empty body": Say(body=b""),
    "no choices": Say(body=b'{"choices": []}'),
    "null choices": Say(body=b'{"choices": null}'),
    "no message": Say(body=b'{"choices": [{"finish_reason": "stop"}]}'),
    "error in a success": Say(body=b'{"error": {"message": "upstream failed", "code": 502}}'),
}


SLOW = {"hang", "trickle"}


def timeout_for(fault: str) -> float:
    """Short only where the test must sit it out, so that a busy machine does not add timeouts of its own."""
    return 1.0 if fault in SLOW else 30.0


@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_that_passes_is_asked_again(serve, connect, fault):
    server = serve(lambda prompt, nth: FAULTS[fault] if nth == 0 else Say())
    [reply] = connect(timeout=timeout_for(fault)).ask_all(questions(server, 1))
    assert isinstance(reply, Reply)
    assert reply.text == "answer to question 0"
    assert server.attempts == 2


@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_that_stays_fails_with_one_line_and_is_not_kept(serve, connect, fault):
    server = serve(lambda prompt, nth: FAULTS[fault] if prompt == "question 1" else Say())
    client = connect(timeout=timeout_for(fault), retries=1)
    first, second, third = client.ask_all(questions(server, 3))
    assert isinstance(first, Reply)
    assert isinstance(third, Reply)
    assert isinstance(second, Failed)
    assert second.incomplete
    assert "\n" not in second.incomplete
    assert "2 attempts" in second.incomplete
    server.plan = lambda prompt, nth: Say()
    assert [type(reply) for reply in client.ask_all(questions(server, 3))] == [Reply, Reply, Reply]
    assert server.asked == {"question 0": 1, "question 1": 3, "question 2": 1}


def test_a_storm_of_faults_loses_no_finished_answer(serve, connect):
    kinds = list(FAULTS.values())

    def storm(prompt: str, nth: int) -> Say:
        number = int(prompt.split()[1])
        return kinds[(number + nth) % len(kinds)] if nth < number % 4 else Say(delay=0.01 * (number % 3))

    server = serve(storm)
    replies = connect(timeout=1.0, concurrency=16, retries=6).ask_all(questions(server, 80))
    assert [reply.text for reply in replies] == [f"answer to question {number}" for number in range(80)]
    assert all(server.asked[f"question {number}"] > number % 4 for number in range(80))
    attempts = server.attempts
    again = connect().ask_all(questions(server, 80))
    assert all(reply.cached for reply in again)
    assert [reply.text for reply in again] == [reply.text for reply in replies]
    assert server.attempts == attempts


def test_retry_after_holds_back_every_request_to_the_server(serve, connect):
    times: list[float] = []

    def plan(prompt: str, nth: int) -> Say:
        times.append(time.monotonic())
        return Say(status=429, headers={"Retry-After": "0.8"}) if len(times) == 1 else Say(delay=0.1)

    server = serve(plan)
    replies = connect(concurrency=4).ask_all(questions(server, 12))
    assert all(isinstance(reply, Reply) for reply in replies)
    # Each of the four slots may have sent one request before the refusal was known, and none until it is over.
    assert sum(moment - times[0] < 0.8 for moment in times) <= 4


def test_retry_after_as_a_date_is_honoured(serve, connect):
    times: list[float] = []

    def plan(prompt: str, nth: int) -> Say:
        times.append(time.time())
        # A date has whole seconds: two seconds ahead is at least one second away.
        return Say(status=429, headers={"Retry-After": formatdate(time.time() + 2, usegmt=True)}) if nth == 0 else Say()

    connect().ask_all(questions(serve(plan), 1))
    assert times[1] - times[0] >= 0.9


def test_a_wait_without_end_is_not_waited_for(serve, connect):
    server = serve(lambda prompt, nth: Say(status=429, headers={"Retry-After": "86400"}))
    [reply] = connect().ask_all(questions(server, 1), probing=True)
    assert isinstance(reply, Failed)
    assert server.attempts == 1


@pytest.mark.parametrize("status", [400, 403, 413, 422])
def test_a_refused_request_fails_alone_and_at_once(serve, connect, status):
    server = serve(lambda prompt, nth: Say(text="too long", status=status) if prompt == "question 0" else Say())
    first, second = connect().ask_all(questions(server, 2))
    assert isinstance(first, Failed)
    assert str(status) in first.incomplete
    assert "too long" in first.incomplete
    assert isinstance(second, Reply)
    assert server.attempts == 2


@pytest.mark.parametrize(("status", "text"), [(401, "key"), (404, "does not know the model tiny"), (402, "pay")])
def test_what_would_fail_for_all_stops_everything_with_one_line(serve, connect, status, text):
    server = serve(lambda prompt, nth: Say(text="please pay", status=status))
    with pytest.raises(ServerError, match=text) as error:
        connect(concurrency=2).ask_all(questions(server, 50))
    assert "\n" not in str(error.value)
    assert server.attempts <= 2


def test_a_quota_that_is_used_up_is_not_asked_again(serve, connect):
    body = b'{"error": {"message": "You ran out", "type": "insufficient_quota", "code": "insufficient_quota"}}'
    server = serve(lambda prompt, nth: Say(status=429, body=body))
    with pytest.raises(ServerError, match="You ran out"):
        connect(concurrency=1).ask_all(questions(server, 5))
    assert server.attempts == 1


def test_nobody_at_the_address_is_said_once_and_soon(connect):
    model = find_model("tiny@http://127.0.0.1:9/v1")
    # The usual waits between retries would take longer than anyone has.
    client = connect(retries=6, backoff=1000.0)
    for _ in range(2):
        with pytest.raises(ServerError, match=r"no server is listening at .* is the server running"):
            client.ask_all([model.request(str(number)) for number in range(200)])


@pytest.mark.parametrize("count", [1, 9, 10, 30])
def test_a_model_that_answers_nothing_fails_however_few_it_was_asked_and_once_a_command(serve, connect, count):
    server = serve(lambda prompt, nth: Say(status=500))
    client = connect(retries=1, concurrency=2)
    with pytest.raises(ServerError, match="500 from"):
        client.ask_all(questions(server, count))
    attempts = server.attempts
    with pytest.raises(ServerError, match="500 from"):
        client.ask_all([model_at(server).request("another task")])
    assert server.attempts == attempts
    server.plan = lambda prompt, nth: Say()
    client.forget_outages()
    assert client.ask_all(questions(server, 1))[0].text == "answer to question 0"


def test_a_model_is_not_blamed_for_its_neighbour(serve, connect):
    refused = ("garbage", "question 0")
    server = serve(lambda prompt, nth: Say(status=400) if prompt.startswith(refused) else Say())
    client = connect(concurrency=1)
    with pytest.raises(ServerError):
        client.ask_all([model_at(server, "broken").request(f"garbage {number}") for number in range(12)])
    replies = client.ask_all(questions(server, 4))
    assert [type(reply) for reply in replies] == [Failed, Reply, Reply, Reply]


def test_a_redirect_is_not_followed(serve, connect, monkeypatch):
    monkeypatch.setenv("R2MED_LLM_KEY", KEY)
    other = serve()
    server = serve(lambda prompt, nth: Say(status=307, headers={"Location": f"{other.url}/chat/completions"}))
    with pytest.raises(ServerError, match="redirects to http://127"):
        connect(concurrency=1).ask_all(questions(server, 5))
    assert (server.attempts, other.attempts) == (1, 0)


def test_a_body_without_end_is_not_read_to_its_end(serve, connect, tmp_path):
    server = serve(lambda prompt, nth: Say(text="x" * (17 << 20)) if prompt == "question 0" else Say())
    first, second = connect(concurrency=1).ask_all(questions(server, 2))
    assert isinstance(first, Failed)
    assert "more than 16 MB" in first.incomplete
    assert isinstance(second, Reply)
    assert server.asked["question 0"] == 1
    assert sum(file.stat().st_size for file in (tmp_path / "home").iterdir()) < 1 << 20


@pytest.mark.parametrize("count", [-5, True, 1.5, "7", None])
def test_a_number_of_tokens_that_is_none_is_not_believed(serve, connect, count):
    server = serve(lambda prompt, nth: Say(usage={"prompt_tokens": count, "completion_tokens": count}))
    [reply] = connect().ask_all(questions(server, 1))
    assert (type(reply.usage.prompt_tokens), type(reply.usage.completion_tokens)) == (int, int)
    assert reply.usage.prompt_tokens > 1
    assert reply.usage.completion_tokens == 5  # "answer to question 0", guessed by its length


def test_a_server_that_refuses_everything_is_given_up(serve, connect):
    server = serve(lambda prompt, nth: Say(text="temperature is not supported", status=400))
    with pytest.raises(ServerError, match="temperature is not supported"):
        connect(concurrency=1).ask_all(questions(server, 500))
    assert server.attempts == 10


def test_a_server_that_dies_is_given_up_and_its_answers_are_kept(serve, connect):
    server = serve(lambda prompt, nth: Say() if int(prompt.split()[1]) < 30 else Say(status=500))
    with pytest.raises(ServerError, match="kept"):
        connect(concurrency=2, retries=0).ask_all(questions(server, 500))
    server.plan = lambda prompt, nth: Say()
    connect().ask_all(questions(server, 30))
    assert all(server.asked[f"question {number}"] == 1 for number in range(30))


def test_duplicates_are_asked_once_and_paid_once(serve, connect):
    server = serve(lambda prompt, nth: Say(delay=0.1))
    request = questions(server, 1)[0]
    client = connect()
    replies = client.ask_all([request] * 20)
    assert server.attempts == 1
    assert {reply.text for reply in replies} == {"answer to question 0"}
    bill = account(replies)
    assert (bill.requests, bill.cached) == (20, 19)
    assert client.budget.spent.requests == 1


def test_two_threads_share_one_client(serve, connect):
    server = serve(lambda prompt, nth: Say(delay=0.05))
    client = connect()
    found: list[list[Reply | Failed]] = []
    threads = [threading.Thread(target=lambda: found.append(client.ask_all(questions(server, 10)))) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found) == 4
    assert all(isinstance(reply, Reply) for replies in found for reply in replies)
    assert server.attempts == 10


def test_samples_are_kept_apart_and_seeded_apart(serve, connect):
    server = serve(lambda prompt, nth: Say(text=f"version {nth}"))
    client = connect(concurrency=1)
    samples = questions(server, 1)[0].samples(3)
    assert [reply.text for reply in client.ask_all(samples)] == ["version 0", "version 1", "version 2"]
    assert [body["seed"] for body in server.bodies] == [42, 43, 44]
    assert [reply.text for reply in client.ask_all(samples[:2])] == ["version 0", "version 1"]
    assert server.attempts == 3


def test_no_more_requests_at_a_time_than_allowed(serve, connect):
    server = serve(lambda prompt, nth: Say(delay=0.02))
    connect(concurrency=5).ask_all(questions(server, 40))
    assert server.busiest == 5


def test_the_pace_is_kept(serve, connect):
    times: list[float] = []

    def plan(prompt: str, nth: int) -> Say:
        times.append(time.monotonic())
        return Say()

    started = time.monotonic()
    connect(requests_per_minute=300).ask_all(questions(serve(plan), 6))
    # Five gaps of 0.2 s lie before the last request is sent; that requests arrive late cannot make it less.
    assert times[-1] - started >= 0.99


def test_progress_counts_kept_and_new_answers(serve, connect):
    class Bar:
        moved = 0.0

        def advance(self, amount: float = 1) -> None:
            self.moved += amount

    server, client = serve(), connect()
    client.ask_all(questions(server, 3))
    bar = Bar()
    client.ask_all(questions(server, 8), bar)
    assert bar.moved == 8


def test_the_key_goes_to_the_server_and_nowhere_else(serve, connect, monkeypatch, tmp_path, caplog):
    caplog.set_level("DEBUG")
    monkeypatch.setenv("R2MED_LLM_KEY", KEY)

    def plan(prompt: str, nth: int) -> Say:
        number = int(prompt.split()[1])
        # A careless server repeats the key in its errors and bodies.
        return [Say(), Say(text=f"bad key {KEY}", status=400), Say(body=f'{{"error": "{KEY}"}}'.encode())][number % 3]

    server = serve(plan)
    with Client(connect(retries=0).limits) as client:
        replies = client.ask_all(questions(server, 6))
        assert KEY not in repr(replies)
        assert KEY not in repr(vars(client))
    assert {headers["Authorization"] for headers in server.headers} == {f"Bearer {KEY}"}
    assert "***" in replies[1].incomplete
    files = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert files
    assert all(KEY.encode() not in path.read_bytes() for path in files)
    assert KEY not in caplog.text

    server.plan = lambda prompt, nth: Say(text=f"Incorrect key {KEY}", status=401)
    with pytest.raises(ServerError) as error, Client(connect().limits) as client:
        client.ask_all([model_at(server).request("question 99")])
    assert KEY not in str(error.value)
    assert "R2MED_LLM_KEY" in str(error.value)


def test_a_key_of_one_provider_is_not_sent_to_another(serve, connect, monkeypatch):
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    server = serve()
    connect().ask_all(questions(server, 1))
    connect().ask_all([replace(find_model(f"gpt-4o@{server.url}")).request("hello")])
    assert len(server.headers) == 2
    assert KEY not in str(server.headers)


def test_a_missing_key_is_named_before_anything_is_sent(connect):
    with pytest.raises(ServerError, match="OPENAI_API_KEY"):
        connect().ask_all([find_model("gpt-4o").request("hello")])


def test_a_proxy_of_the_environment_does_not_stand_before_this_machine(serve, connect, monkeypatch):
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:9")
    monkeypatch.setenv("ALL_PROXY", "http://127.0.0.1:9")
    [reply] = connect(retries=0).ask_all(questions(serve(), 1))
    assert isinstance(reply, Reply)


def test_a_proxy_of_the_environment_stands_before_other_machines(serve, connect, monkeypatch, tmp_path):
    (tmp_path / ".netrc").write_text("machine model.invalid login somebody password secret\n")
    (tmp_path / ".netrc").chmod(0o600)
    monkeypatch.setenv("NETRC", str(tmp_path / ".netrc"))
    monkeypatch.setenv("R2MED_LLM_KEY", KEY)
    proxy = serve()
    monkeypatch.setenv("http_proxy", proxy.url.removesuffix("/v1"))
    model = find_model("tiny@http://model.invalid/v1")
    [reply] = connect(retries=0).ask_all([model.request("hello")])
    assert isinstance(reply, Reply)
    assert proxy.paths == ["http://model.invalid/v1/chat/completions"]
    assert proxy.headers[0]["Authorization"] == f"Bearer {KEY}"
    monkeypatch.setenv("http_proxy", "socks5://127.0.0.1:9")
    with pytest.raises(ServerError, match=r"proxy of the environment cannot be used: .*SOCKS"):
        connect(retries=0).ask_all([model.request("hello again")])


def test_only_a_certificate_that_this_machine_trusts_will_do(connect, monkeypatch, tmp_path):
    named = ("-subj", "/CN=127.0.0.1", "-addext", "subjectAltName=IP:127.0.0.1", "-days", "2")
    files = ("-keyout", tmp_path / "key.pem", "-out", tmp_path / "own.pem")
    command = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", *files, *named]
    subprocess.run(command, check=True, capture_output=True)
    server = ChatServer()
    server.tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    server.tls.load_cert_chain(tmp_path / "own.pem", tmp_path / "key.pem")
    with server:
        with pytest.raises(ServerError, match="a certificate that this machine does not trust"):
            connect(retries=0).ask_all(questions(server, 1))
        assert server.attempts == 0
        monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "own.pem"))
        [reply] = connect(retries=0).ask_all(questions(server, 1))
        assert isinstance(reply, Reply)


def test_a_file_that_is_no_database_is_named(serve, connect, tmp_path):
    (tmp_path / "home").mkdir()
    (tmp_path / "home" / "llm.sqlite").write_text("not a database, but long enough to be read as one" * 50)
    with pytest.raises(R2medError, match=r"llm\.sqlite"):
        connect().ask_all(questions(serve(), 1))


def test_an_answer_that_cannot_be_kept_stops_the_asking(serve, connect, tmp_path):
    server, client = serve(), connect(concurrency=1)
    client.ask_all(questions(server, 1))
    with sqlite3.connect(tmp_path / "home" / "llm.sqlite") as other:
        other.execute("DROP TABLE answers")
        other.execute(f"CREATE TABLE answers ({_USED}, seal)")
    other.close()
    with pytest.raises(R2medError, match="nothing more is asked"):
        client.ask_all(questions(server, 20))
    assert server.attempts == 2


def test_a_file_that_another_process_holds_is_one_line_and_holds_up_no_answer(serve, connect, tmp_path):
    server, client = serve(), connect(concurrency=8)
    client.ask_all(questions(server, 1))
    client._answers._patience = 0.5
    with sqlite3.connect(tmp_path / "home" / "llm.sqlite", isolation_level=None) as other:
        other.execute("BEGIN IMMEDIATE")
        with pytest.raises(R2medError, match="another process has held it") as error:
            client.ask_all(questions(server, 8))
        assert "\n" not in str(error.value)
        # What is kept can be read all the while.
        [reply] = client.ask_all(questions(server, 1))
        assert reply.cached
        other.execute("ROLLBACK")
    other.close()
    assert all(isinstance(reply, Reply) for reply in client.ask_all(questions(server, 8)))


UNUSABLE = {
    "empty": Say(text=""),
    "null": Say(message={"content": None}),
    "filtered": Say(text="", choice={"finish_reason": "content_filter"}),
    "cut trace": Say(text="<think>Bleeding gums", choice={"finish_reason": "length"}),
    "refused": Say(text="I'm sorry, but I cannot help with that."),
}


@pytest.mark.parametrize("kind", UNUSABLE)
def test_an_answer_of_no_use_is_asked_again_by_the_next_command_only(serve, connect, kind):
    server = serve(lambda prompt, nth: UNUSABLE[kind])
    client = connect()
    for _ in range(2):
        [reply] = client.ask_all(questions(server, 1))
        assert reply.incomplete
    assert server.attempts == 1
    server.plan = lambda prompt, nth: Say()
    later = connect()
    assert later.estimate(questions(server, 1)).cached == 0
    [reply] = later.ask_all(questions(server, 1))
    assert (reply.text, reply.cached) == ("answer to question 0", False)
    [reply] = connect().ask_all(questions(server, 1))
    assert (reply.text, reply.cached) == ("answer to question 0", True)
    assert server.attempts == 2


@pytest.mark.parametrize("content", [3, {"a": 1}, True])
def test_content_that_is_no_text_is_asked_again_at_once(serve, connect, content):
    server = serve(lambda prompt, nth: Say(message={"content": content}) if nth == 0 else Say())
    [reply] = connect().ask_all(questions(server, 1))
    assert reply.text == "answer to question 0"
    assert server.attempts == 2


def test_answers_of_one_server_are_never_taken_for_another_ones(serve, connect, tmp_path):
    one, other = serve(lambda prompt, nth: Say(text="one")), serve(lambda prompt, nth: Say(text="other"))
    for server in (one, other, one):
        [reply] = connect().ask_all(questions(server, 1))
        assert reply.text == ("one" if server is one else "other")
    assert (one.attempts, other.attempts) == (1, 1)


def test_servers_that_the_user_calls_equal_share_their_answers(serve, connect, tmp_path, monkeypatch):
    one, other = serve(lambda prompt, nth: Say(text="one")), serve(lambda prompt, nth: Say(text="other"))
    monkeypatch.chdir(tmp_path)
    (tmp_path / "r2med.toml").write_text(f'[servers]\nfarm = ["{one.url}/", "http://127.0.0.1:*/v1"]\n')
    replies = [connect().ask_all(questions(server, 1))[0] for server in (one, other)]
    assert [reply.text for reply in replies] == ["one", "one"]
    assert model_at(other).server == "farm"
    assert other.attempts == 0
