"""Replies in odd clothes: Markdown's escapes, full-width signs, prose, and texts that are nested without end."""

from __future__ import annotations

import time

import pytest
from asking import model_at

from chat_server import Say
from r2med.llm import parsing as reading
from r2med.llm.budget import Limits
from r2med.llm.client import Client
from r2med.llm.parsing import (
    read_cited_answer,
    read_class,
    read_grade,
    read_grades,
    read_permutation,
    read_tied_ranking,
    read_verdict,
)
from r2med.llm.types import Failed
from r2med.models.http import error_text


@pytest.mark.parametrize(
    "reply",
    [
        "[3] > [1] > [2]",
        r"[3] \> [1] \> [2]",
        r"\[3\] \> \[1\] \> \[2\]",
        "[3] ＞ [1] ＞ [2]",
        "［3］＞［1］＞［2］",
        "【3】＞【1】＞【2】",
        "3 ＞ 1 ＞ 2",
        r"3 \> 1 \> 2",
        "Best is [3], then comes [1], and last [2].",
        "[3] beats [1] beats [2]",
        r"**[3]** \> **[1]** \> **[2]**",
    ],
)
def test_a_ranking_is_read_whatever_its_signs_look_like(reply):
    assert read_permutation(reply, 3).order == (2, 0, 1)
    assert read_tied_ranking(reply, 3).order == (2, 0, 1)


def test_ties_with_full_width_signs_stay_in_the_order_they_had():
    assert read_tied_ranking("[3] ＞ [2] ＝ [1]", 3).order == (2, 0, 1)


def test_one_number_alone_is_still_a_choice():
    assert read_permutation("The best one is [2].", 3).order == (1, 0, 2)
    assert read_permutation("[2] alone, as [9] does not exist", 3).order == (1, 0, 2)


@pytest.mark.parametrize(
    "reply", ["[1]: 7\n[2]: 3", r"\[1\]: 7" + "\n" + r"\[2\]: 3", "［1］：7\n［2］：3", "1： 7\n2： 3"]
)
def test_grades_verdicts_and_classes_are_read_through_the_same_signs(reply):
    assert read_grades(reply, 2) == {0: 7.0, 1: 3.0}
    assert read_grade("Grade： 8／10") == 8.0
    assert read_verdict(r"\*\*Verdict： yes\*\*") is True
    assert read_class("Class： nervous", ["nervous", "skin"]) == "nervous"
    assert read_cited_answer("Answer： scurvy").answer == "scurvy"


@pytest.mark.parametrize("status", [200, 500, 400])
def test_a_reply_that_is_nested_too_deeply_fails_its_request_alone(serve, status):
    deep = b'{"choices": ' + b"[" * 200_000
    server = serve(lambda prompt, nth: Say(status, body=deep) if prompt == "deep" else Say())
    model = model_at(server)
    with Client(Limits(retries=0, backoff=0.01)) as client:
        fine, lost = client.ask_all([model.request("plain"), model.request("deep")])
    assert fine.text == "answer to plain"
    assert isinstance(lost, Failed)
    assert "\n" not in lost.incomplete


def test_what_a_server_says_of_an_error_may_be_nested():
    deep: list[object] = []
    for _ in range(5000):
        deep = [deep]
    assert error_text({"error": deep}) == "a reply that is nested too deeply to be read"


@pytest.mark.parametrize("wish", ["1e99", "601", "30"])
def test_a_server_that_asks_for_a_longer_wait_than_the_timeout_is_not_waited_for(serve, wish):
    server = serve(lambda prompt, nth: Say(429, headers={"Retry-After": wish}) if prompt == "busy" else Say())
    model = model_at(server)
    started = time.monotonic()
    with Client(Limits(timeout=3, retries=2, backoff=0.01)) as client:
        fine, lost = client.ask_all([model.request("plain"), model.request("busy")])
    assert time.monotonic() - started < 10
    assert fine.text == "answer to plain"
    assert f"it asks to wait {float(wish):.4g} s, more than the timeout of 3 s" in lost.incomplete


def test_a_long_wait_is_said_once(serve, capsys):
    server = serve(lambda prompt, nth: Say(429, headers={"Retry-After": "5"}) if nth == 0 else Say())
    with Client(Limits(timeout=30, retries=2, backoff=0.01, concurrency=2)) as client:
        replies = client.ask_all([model_at(server).request(name) for name in ("one", "two")])
    assert not any(isinstance(reply, Failed) for reply in replies)
    assert capsys.readouterr().err.count("waiting 5 s, as the server asks for") == 1


@pytest.mark.parametrize("reply", ["{a}" * 3000, r"\frac{a}{b} " * 1500, "{" * 20_000, '{"a":' * 9000, '{"a' * 9000])
def test_a_reply_full_of_braces_is_read_in_one_pass(reply, monkeypatch):
    tried = []
    loads = reading.orjson.loads
    monkeypatch.setattr(reading.orjson, "loads", lambda text: tried.append(text) or loads(text))
    assert reading.read_object(f'{{"grade": 1}} {reply}') == {"grade": 1}
    assert len(tried) == 1


@pytest.mark.parametrize("reply", ['{"grade": NaN}', '{"grade": 1, "note": "\\ud800"}', '{"grade": 1', "[1, 2]"])
def test_what_is_not_json_is_no_object(reply):
    assert reading.read_object(reply) is None
