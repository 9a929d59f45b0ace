"""Scripted models, accounts, estimates, agents and sessions: everything that needs no server."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest

from r2med.errors import SpecError
from r2med.llm.budget import Limits, account
from r2med.llm.cards import find_model
from r2med.llm.client import current_client, session
from r2med.llm.scripted import scripted
from r2med.llm.types import Failed, Model, RawAnswer, Reply, Sampling
from r2med.models.http import AttemptError, backoff, retry_after
from r2med.models.templates import Template
from r2med.usage import Usage


def test_a_function_answers_on_the_common_path(connect):
    asked: list[str] = []

    def answer(request):
        asked.append(request.messages[-1].content)
        return f"<think>hm</think>{request.messages[-1].content.upper()}"

    model = scripted(answer)
    client = connect()
    replies = client.ask_all([model.request(word) for word in ("a", "b", "a")])
    assert [reply.text for reply in replies] == ["A", "B", "A"]
    assert [reply.reasoning for reply in replies] == ["hm"] * 3
    assert sorted(asked) == ["a", "b"]
    bill = account(client.ask_all([model.request("a")]))
    assert (bill.cached, bill.cost, bill.paid) == (1, 0.0, 0.0)
    assert bill.prompt_tokens > 0


def test_a_script_may_fail_like_a_server(connect):
    tries: list[int] = []

    def answer(request):
        tries.append(1)
        if len(tries) < 3:
            raise AttemptError("busy")
        return "at last"

    [reply] = connect().ask_all([scripted(answer).request("hello")])
    assert reply.text == "at last"

    def never(request):
        raise AttemptError("busy", retry=False)

    [failed] = connect().ask_all([scripted(never, "never").request("hello")], probing=True)
    assert failed == Failed(failed.request, "busy")


def test_a_mistake_in_a_script_is_a_mistake(connect):
    with pytest.raises(ZeroDivisionError):
        connect().ask_all([scripted(lambda request: str(1 // 0)).request("hello")])


JSONL = r"""
{"match": "scurvy|gums", "reply": "Vitamin C is missing.", "reasoning": "gums"}

{"match": "cut", "reply": "<think>on and", "finish": "length"}
{"match": "sample", "reply": ["one", "two"]}
"""
TOML = """
[[rule]]
match = "scurvy|gums"
reply = "Vitamin C is missing."
reasoning = "gums"

[[rule]]
match = "cut"
reply = "<think>on and"
finish = "length"

[[rule]]
match = "sample"
reply = ["one", "two"]
"""


@pytest.mark.parametrize(("name", "content"), [("script.jsonl", JSONL), ("script.toml", TOML)])
def test_a_file_answers_by_pattern(connect, tmp_path, name, content):
    path = tmp_path / name
    path.write_text(content)
    model = find_model(f"scripted:{path}")
    assert model.name == f"scripted:{path}"
    client = connect()
    first, cut, none = client.ask_all([model.request(text) for text in ("Bleeding gums?", "cut", "else")])
    assert (first.text, first.reasoning) == ("Vitamin C is missing.", "gums")
    assert cut.incomplete
    assert isinstance(none, Failed)
    assert "no rule" in none.incomplete
    assert [reply.text for reply in client.ask_all(model.request("sample").samples(3))] == ["one", "two", "one"]
    path.write_text(content.replace("Vitamin C", "Ascorbate"))
    changed = find_model(f"scripted:{path}")
    assert client.ask_all([changed.request("Bleeding gums?")])[0].text == "Ascorbate is missing."


@pytest.mark.parametrize(
    ("name", "content", "place"),
    [
        ("s.jsonl", '{"reply": "a"}\n{bad', "s.jsonl:2"),
        ("s.jsonl", '"a"', "s.jsonl:1"),
        ("s.jsonl", '{"match": "a"}', "s.jsonl:1"),
        ("s.jsonl", '{"reply": []}', "s.jsonl:1"),
        ("s.jsonl", '{"reply": 3}', "s.jsonl:1"),
        ("s.jsonl", '{"reply": "a", "macth": "b"}', "s.jsonl:1"),
        ("s.jsonl", '{"reply": "a", "match": "("}', "s.jsonl:1"),
        ("s.toml", '[[rule]]\nreply = "a"\n[[rule]]\nmatch = "a"\n', "rule 2"),
        ("s.toml", "[[rule", "s.toml"),
    ],
)
def test_a_bad_script_is_named_with_its_place(tmp_path, name, content, place):
    (tmp_path / name).write_text(content)
    with pytest.raises(SpecError, match=place):
        find_model(f"scripted:{tmp_path / name}")


def test_a_missing_script_is_named(tmp_path):
    with pytest.raises(SpecError, match=r"none\.jsonl"):
        find_model(f"scripted:{tmp_path / 'none.jsonl'}")


def priced(name: str, price: tuple[float, float] | None, text: str = "x" * 40) -> Model:
    model = scripted(lambda request: RawAnswer(text, usage=Usage(prompt_tokens=100, completion_tokens=10)), name)
    return replace(model, price=price, sampling=Sampling(max_tokens=1000))


def test_accounts_add_up_and_do_not_invent_prices(connect):
    client = connect()
    known, unknown = priced("known", (1.0, 10.0)), priced("unknown", None)
    bill = account(client.ask_all([known.request("a"), known.request("b")]))
    assert bill.cost == pytest.approx(2 * (100 * 1 + 10 * 10) / 1e6)
    assert (bill.requests, bill.prompt_tokens, bill.completion_tokens) == (2, 200, 20)
    again = account(client.ask_all([known.request("a"), known.request("c")]))
    assert again.cost == pytest.approx(bill.cost)
    assert again.paid == pytest.approx(bill.cost / 2)
    mixed = account(client.ask_all([known.request("a"), unknown.request("a")]))
    assert mixed.cost is None
    failed = account([Failed(known.request("z"), "no")])
    assert (failed.requests, failed.failed, failed.cost) == (1, 1, 0.0)
    assert failed.as_json()["failed"] == 1


def test_lengths_are_learnt_from_requests_of_the_same_kind_alone(connect):
    """A judge's verdicts of three tokens say nothing of the passages that the same model writes."""
    client = connect()
    said = {"verdict": 3, "passage": 120}
    model = scripted(lambda request: "word " * next(n for w, n in said.items() if w in request.messages[-1].content))
    verdict, passage = (
        Template("A verdict on {query}", source="v"),
        Template("A passage on {query}", source="p"),
    )
    client.ask_all([model.request(verdict.fill({"query": str(n)})) for n in range(20)])
    asked = [model.request(passage.fill({"query": str(n)})) for n in range(10)]
    guess = client.estimate(asked)
    assert guess.completion_tokens == 10 * 400
    assert guess.basis == "400 tokens an answer, a default: none such is kept"
    used = client.ask_all(asked[:5])
    guess = client.estimate(asked)
    assert guess.completion_tokens == sum(reply.usage.completion_tokens for reply in used)
    assert guess.known == 5
    assert "the mean of 5 such" in guess.basis
    elsewhere = replace(model, name="b", url="http://b/v1")
    assert client.estimate([elsewhere.request(passage.fill({"query": "0"}))]).known == 0


def test_an_estimate_knows_what_is_kept_and_learns_lengths(connect):
    client = connect()
    model = priced("m", (1.0, 10.0))
    requests = [model.request("x" * 400, system="") for _ in range(3)] + [model.request(f"{n}") for n in range(7)]
    guess = client.estimate(requests)
    assert (guess.requests, guess.cached) == (10, 2)
    assert guess.prompt_tokens >= 100
    assert guess.completion_tokens == 8 * 400
    assert guess.cost == pytest.approx((guess.prompt_tokens + 10 * guess.completion_tokens) / 1e6)
    assert guess.cost_limit == pytest.approx((guess.prompt_tokens + 10 * 8 * 1000) / 1e6)
    client.ask_all(requests[:5])
    learned = client.estimate(requests)
    assert learned.cached == 5
    assert learned.completion_tokens == 5 * 10
    assert client.estimate([priced("u", None).request("a")]).cost is None
    client.ask_all(requests)
    assert client.estimate(requests).cost == 0.0


def test_agents_run_together_on_the_clients_loop(connect):
    model = scripted(lambda request: request.messages[-1].content + "!")
    client = connect()

    async def agent(word: str) -> str:
        for _ in range(3):
            reply = await client.ask(model.request(word))
            assert isinstance(reply, Reply)
            word = reply.text
        return word

    async def all_agents() -> list[str]:
        return await asyncio.gather(*(agent(word) for word in "abc"))

    assert client.run(all_agents()) == ["a!!!", "b!!!", "c!!!"]


def test_a_blocking_call_on_the_loop_is_refused_instead_of_hanging(connect):
    model = scripted(lambda request: "ok")
    client = connect()

    async def tool(threaded: bool) -> list[Reply | Failed]:
        if threaded:
            return await asyncio.to_thread(client.ask_all, [model.request("a")])
        return client.ask_all([model.request("b")])

    assert client.run(tool(True))[0].text == "ok"
    with pytest.raises(RuntimeError, match="thread"):
        client.run(tool(False))


def test_a_client_works_where_a_loop_already_runs(connect):
    """As in a notebook."""
    client = connect()

    async def cell() -> list[Reply | Failed]:
        return client.ask_all([scripted(lambda request: "ok").request("a")])

    assert asyncio.run(cell())[0].text == "ok"


def test_a_session_lends_its_client():
    default = current_client()
    with session(Limits(concurrency=3)) as outer:
        assert current_client() is outer
        with session() as inner:
            assert current_client() is inner
        assert current_client() is outer
    assert current_client() is default
    assert default.ask_all([scripted(lambda request: "ok").request("a")])[0].text == "ok"


@pytest.mark.parametrize("value", ["", "soon", "-3", "nan", "inf", "Thu, 99 Foo"])
def test_a_wait_that_makes_no_sense_is_no_wait(value):
    assert retry_after({"retry-after": value}) is None


def test_waits_grow_with_chance_and_never_undercut_a_wish():
    for attempt in range(1, 50):
        grown = min(60.0, 2.0 ** (attempt - 1))
        assert grown / 2 <= backoff(attempt, 1.0) <= grown
        assert 7.0 <= backoff(attempt, 1.0, least=7.0) <= 8.0
