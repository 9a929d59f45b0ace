"""Spending limits, Ctrl-C and sudden death: what is finished is kept, and nothing is paid for twice."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
import time
from dataclasses import replace
from pathlib import Path

import pytest
from asking import model_at

from chat_server import Say
from r2med.errors import R2medError
from r2med.llm.budget import Limits
from r2med.llm.reply_cache import ReplyCache
from r2med.llm.types import LimitReached, Model, Reply, Request

SOURCE = Path(__file__).parents[2] / "src"


def priced(server, count: int, *, price=(1000.0, 1000.0), max_tokens: int = 50) -> list[Request]:
    """Requests that really take 15 tokens each and may take at most 50 written and a prompt."""
    model = replace(model_at(server), price=price)
    sampling = replace(model.sampling, max_tokens=max_tokens)
    return [replace(model.request(f"question {number}", ""), sampling=sampling) for number in range(count)]


@pytest.mark.parametrize("concurrency", [1, 8])
def test_the_cost_limit_is_never_passed_and_answers_are_kept(serve, connect, concurrency):
    server = serve(lambda prompt, nth: Say(delay=0.01, usage={"prompt_tokens": 20, "completion_tokens": 50}))
    client = connect(max_cost=1.0, concurrency=concurrency)
    with pytest.raises(LimitReached, match="kept") as error:
        client.ask_all(priced(server, 200))
    spent = client.budget.spent.cost
    assert spent is not None
    # 70 tokens at 1000 dollars a million are 7 cents; a request may take some 9 cents and is not sent beyond that.
    assert spent == pytest.approx(0.07 * server.answered)
    assert 0.85 <= spent <= 1.0
    assert f"{spent:.4f}" in str(error.value)
    assert "\n" not in str(error.value)
    before = server.attempts
    # Requests that wait for room in the budget are let in as they happen to wake, so these need not be the first.
    asked = [request for request in priced(server, 200) if request.messages[-1].content in server.asked]
    replies = connect().ask_all(asked)
    assert len(replies) == before
    assert all(isinstance(reply, Reply) and reply.cached for reply in replies)
    assert server.attempts == before


def test_the_token_limit_is_never_passed(serve, connect):
    server = serve()
    client = connect(max_tokens=400, concurrency=3)
    with pytest.raises(LimitReached, match="400 tokens"):
        client.ask_all(priced(server, 200, price=None))
    assert 300 <= client.budget.spent.tokens <= 400


def test_a_limit_below_one_request_sends_none(serve, connect):
    server = serve()
    with pytest.raises(LimitReached, match="0 answers"):
        connect(max_cost=0.01).ask_all(priced(server, 3))
    assert server.attempts == 0


def test_kept_answers_cost_nothing_under_a_limit(serve, connect):
    server = serve()
    connect().ask_all(priced(server, 30))
    replies = connect(max_cost=0.0).ask_all(priced(server, 30))
    assert all(reply.cached for reply in replies)


def test_what_a_lost_request_may_have_cost_counts_against_the_limit(serve, connect):
    server = serve(lambda prompt, nth: Say(body=b'{"choices": []}') if nth == 0 else Say())
    client = connect(max_cost=1.0, concurrency=1)
    with pytest.raises(LimitReached, match="lost"):
        client.ask_all(priced(server, 200))
    assert client.budget.spent.cost is not None
    assert client.budget.lost.cost > 0
    assert client.budget.spent.cost + client.budget.lost.cost <= 1.0


def test_an_unknown_price_cannot_be_limited(serve, connect):
    server = serve()
    with pytest.raises(R2medError, match="no price is known for tiny"):
        connect(max_cost=1.0).ask_all(priced(server, 3, price=None))
    assert server.attempts == 0


def test_an_answer_without_a_length_limit_cannot_be_limited(serve, connect):
    requests = [replace(request, sampling=replace(request.sampling, max_tokens=None)) for request in priced(serve(), 1)]
    with pytest.raises(R2medError, match="max_tokens"):
        connect(max_tokens=1000).ask_all(requests)


@pytest.mark.parametrize(
    "bad", [{"concurrency": 0}, {"timeout": 0}, {"retries": -1}, {"max_cost": -1.0}, {"requests_per_minute": 0}]
)
def test_limits_that_make_no_sense_are_refused(bad):
    with pytest.raises(R2medError):
        Limits(**bad)


ASK = """
    import sys
    from r2med.llm.client import Client
    from r2med.llm.budget import Limits
    from r2med.llm.cards import find_model
    model = find_model(sys.argv[1])
    requests = [model.request(f"question {number}") for number in range(int(sys.argv[2]))]
    with Client(Limits(concurrency=4, grace=20, backoff=0.01, lease=float(sys.argv[3]))) as client:
        print("asking", flush=True)
        for reply in client.ask_all(requests):
            print(reply.text)
"""


def start(server, count: int, lease: float = 10.0) -> subprocess.Popen[str]:
    """Another process that asks `count` questions."""
    process = subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(ASK), f"tiny@{server.url}", str(count), str(lease)],
        env={**os.environ, "PYTHONPATH": str(SOURCE)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "asking\n"
    return process


def wait_until(condition) -> None:
    for _ in range(1500):
        if condition():
            return
        time.sleep(0.02)
    raise AssertionError("it never came to that")


def kept() -> int:
    answers = ReplyCache()
    try:
        return len(answers)
    finally:
        answers.close()


def test_a_killed_run_pays_for_nothing_twice(serve):
    server = serve(lambda prompt, nth: Say(delay=0.02))
    process = start(server, 150, lease=2.0)
    wait_until(lambda: kept() >= 20)
    process.kill()
    process.wait()
    done = kept()
    assert 20 <= done < 150
    wait_until(lambda: server.busy == 0)
    first = dict(server.asked)
    process = start(server, 150)
    assert process.wait() == 0
    assert kept() == 150
    twice = [prompt for prompt, count in server.asked.items() if count > 1]
    # Only what was under way when the process died is asked again: at most as many as were sent at a time.
    assert len(twice) <= 4
    assert len(twice) == len(first) - done


def test_four_processes_that_ask_the_same_pay_once_and_use_the_same_answers(serve):
    server = serve(lambda prompt, nth: Say(text=f"{prompt}, version {nth} {time.monotonic()}", delay=0.01))
    processes = [start(server, 300) for _ in range(4)]
    said = [process.communicate(timeout=120)[0] for process in processes]
    assert [process.returncode for process in processes] == [0] * 4
    assert server.attempts == kept() == 300
    assert len(set(said)) == 1
    assert len(said[0].splitlines()) == 300


@pytest.mark.parametrize("lease", [1.0, 60.0])
def test_what_a_killed_process_was_asking_is_taken_over(serve, lease):
    """When its lease has run out, and at once where one can see that it is dead."""
    server = serve(lambda prompt, nth: Say(delay=600 if nth == 0 else 0))
    killed = start(server, 4, lease=lease)
    wait_until(lambda: server.attempts == 4)
    waiting = start(server, 4, lease=lease)
    time.sleep(min(lease, 1) * 2.5)
    # As long as the first lives it keeps its claims, however long its answers take.
    assert server.attempts == 4
    killed.kill()
    killed.wait()
    assert len(waiting.communicate(timeout=60)[0].splitlines()) == 4
    assert server.attempts == 8


def test_a_claim_without_a_sign_of_its_process_runs_out(tmp_path):
    first, second = (ReplyCache(tmp_path / "llm.sqlite", lease=0.3) for _ in range(2))
    assert first.write([lambda: first.claim("a")])[0].mine
    # As if its process hung, or were on a machine that is gone.
    first._closing.set()
    assert not second.write([lambda: second.claim("a")])[0].mine
    time.sleep(0.7)
    assert second.write([lambda: second.claim("a")])[0].mine
    first.close()
    second.close()


def test_answers_that_come_together_are_written_together(serve, connect):
    """One transaction for each answer and each claim would be 400."""
    server, client, statements = serve(lambda prompt, nth: Say(delay=0.1)), connect(concurrency=50), []
    client._answers._writer.set_trace_callback(statements.append)
    replies = client.ask_all(priced(server, 200))
    assert len(replies) == len(client._answers) == 200
    assert statements.count("COMMIT") < 200


def test_ctrl_c_lets_requests_under_way_finish_and_keeps_them(serve):
    server = serve(lambda prompt, nth: Say(delay=1.5 if int(prompt.split()[1]) >= 4 else 0.01))
    process = start(server, 400)
    wait_until(lambda: server.attempts == 8)
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate(timeout=60)
    assert "KeyboardInterrupt" in errors
    assert server.attempts == 8
    assert kept() == 8


def test_a_second_ctrl_c_stops_at_once(serve):
    server = serve(lambda prompt, nth: Say(delay=600 if int(prompt.split()[1]) >= 4 else 0.01))
    process = start(server, 400)
    wait_until(lambda: server.attempts == 8)
    process.send_signal(signal.SIGINT)
    time.sleep(0.5)
    assert process.poll() is None
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=60)
    assert process.returncode != 0
    assert kept() == 4


def test_a_client_can_be_used_again_after_it_was_stopped(serve, connect):
    server = serve()
    client = connect(max_tokens=400, concurrency=2)
    with pytest.raises(LimitReached):
        client.ask_all(priced(server, 200, price=None))
    before = server.attempts
    assert all(reply.cached for reply in client.ask_all(priced(server, 5, price=None)))
    with pytest.raises(LimitReached):
        client.ask_all(priced(server, 200, price=None))
    assert server.attempts == before


def test_whatever_an_answer_depends_on_changes_the_key():
    model = Model("m", "m")
    base = model.request("hello")
    others = [
        Model("m", "m2").request("hello"),
        Model("m", "m", "http://h/v1").request("hello"),
        replace(model, extra={"chat_template_kwargs": {"enable_thinking": True}}).request("hello"),
        model.request("hello!"),
        model.request("hello", system=""),
        model.request("hello", stop=("a",)),
        model.request("hello", logprobs=2),
        base.samples(2)[1],
        replace(base, sampling=replace(base.sampling, temperature=0.0)),
        replace(base, sampling=replace(base.sampling, max_tokens=9)),
        replace(base, messages=base.messages[::-1]),
    ]
    assert len({request.key() for request in [base, *others]}) == len(others) + 1
