"""Language models as rerankers: scripted ones that are right, wrong, silent or confused, on the path of real ones."""

from __future__ import annotations

import json
import math
import re
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import pytest
from rerank_parts import DOCUMENTS, QUERIES, collection, context, order, run_over

import r2med
from r2med.data.run import Run
from r2med.errors import R2medError, SpecError
from r2med.llm.cards import add_model, find_model
from r2med.llm.client import Client
from r2med.llm.scripted import scripted
from r2med.llm.types import RawAnswer, Request, Token
from r2med.models.http import AttemptError
from r2med.pipeline.registry import build_system
from r2med.pipeline.system import System
from r2med.rerank.groupwise import GROUPINGS, Groupwise, make_groups
from r2med.rerank.listwise import Listwise, windows
from r2med.rerank.pointwise import Pointwise

SHOWN = re.compile(r"^\[(\d+)\] (?:\(score ([-\d.e+]+)\) )?(.*)$", re.MULTILINE)


def passages(request: Request) -> dict[int, str]:
    """The numbered passages of a prompt."""
    return {int(number): text for number, _, text in SHOWN.findall(request.messages[-1].content)}


def model(answer, name: str, **options) -> str:
    return add_model(scripted(answer, name, **options)).name


def alphabetical(request: Request) -> str:
    """Ranks passages by their text, and thinks aloud before it."""
    found = sorted(passages(request).items(), key=lambda entry: entry[1])
    return "<think>[2] > [1] might do</think>" + " > ".join(f"[{number}]" for number, _ in found)


def many(count: int) -> dict[str, str]:
    """Documents whose names run against the order of their texts."""
    return {f"d{n:03}": f"passage {count - n:03} about gout" for n in range(count)}


@pytest.mark.parametrize(("documents", "window", "step"), [(1, 4, 2), (4, 4, 2), (5, 4, 2), (30, 4, 3), (100, 20, 10)])
def test_windows_cover_the_list_and_overlap(documents: int, window: int, step: int) -> None:
    found = windows(documents, window, step)
    assert found[0][1] == documents
    assert found[-1][0] == 0
    for (start, end), (next_start, next_end) in pairwise(found):
        assert end - start == window
        assert next_start <= start < next_end < end
    assert len(found) == Listwise("gpt-4o", window=window, step=step).requests_a_query(documents)


def test_the_best_rise_through_the_windows() -> None:
    data = collection(documents=many(30))
    stage = Listwise(model(alphabetical, "alphabetical"), window=8, step=4)
    own = context()
    after = stage.rerank(data, run_over(data), own)
    by_text = sorted(data.documents.ids, key=data.documents.text)
    # One pass of a window that moves by half of its size is sure of that half.
    assert order(after, "q1")[:4] == by_text[:4]
    assert own.notes.facts["windows"] == 2 * stage.requests_a_query(30)
    assert own.notes.facts["account"]["requests"] == own.notes.facts["windows"]
    assert not own.notes.incomplete
    assert "[1] passage" in own.notes.facts["first_prompt"]


def test_one_window_orders_a_list_wholly_and_the_tail_stays() -> None:
    data = collection(documents=many(12))
    after = Listwise(model(alphabetical, "alphabetical"), depth=5).rerank(data, run_over(data), context())
    assert order(after, "q2") == ["d004", "d003", "d002", "d001", "d000", *[f"d{n:03}" for n in range(5, 12)]]
    scores = after["q2"].scores.tolist()
    assert scores == sorted(scores, reverse=True)


def test_windows_of_all_queries_are_asked_together(monkeypatch: pytest.MonkeyPatch) -> None:
    rounds: list[int] = []

    def count(client, requests, *rest):
        rounds.append(len(requests))
        return ask_all(client, requests, *rest)

    ask_all = Client.ask_all
    monkeypatch.setattr(Client, "ask_all", count)
    data = collection({f"q{n}": f"question {n}" for n in range(5)}, many(9))
    lists = {f"q{n}": (data.documents.ids[: 5 + n], [float(5 + n - place) for place in range(5 + n)]) for n in range(5)}
    Listwise(model(alphabetical, "alphabetical"), window=5, step=2).rerank(data, Run.from_lists(lists), context())
    # Lists of 5, 6, 7, 8 and 9 have 1, 2, 2, 3 and 3 windows.
    assert rounds == [5, 4, 2]


def test_scores_stand_beside_the_passages_when_asked_for() -> None:
    seen: list[str] = []

    def by_score(request: Request) -> str:
        seen.append(request.messages[-1].content)
        found = SHOWN.findall(request.messages[-1].content)
        return " > ".join(f"[{number}]" for number, score, _ in sorted(found, key=lambda each: float(each[1] or 0)))

    data = collection()
    stage = Listwise(model(by_score, "by-score"), scores=True)
    after = stage.rerank(data, run_over(data), context())
    assert order(after, "q1") == list(DOCUMENTS)[::-1]
    assert "(score 5) scurvy" in seen[0]
    assert "score" not in Listwise("gpt-4o").templates()[0].text
    assert stage.key() != Listwise(stage.llm).key()


@pytest.mark.parametrize(
    ("reply", "reason"),
    [
        ("banana", "no ranking in the reply 'banana'"),
        ("<think>[3] > [1]", "the reasoning never ended"),
        ("", "empty answer"),
        ("I'm sorry, but I cannot help with that.", "the model refused"),
        (AttemptError("503 from the server", retry=False), "503 from the server"),
    ],
)
def test_a_reply_with_nothing_usable_keeps_the_order_and_is_counted(reply: object, reason: str) -> None:
    def answer(request: Request) -> str:
        if QUERIES["q2"] in request.messages[-1].content:
            return alphabetical(request)
        if isinstance(reply, AttemptError):
            raise reply
        return str(reply)

    data, own = collection(), context()
    before = run_over(data)
    after = Listwise(model(answer, f"bad {reason}")).rerank(data, before, own)
    assert order(after, "q1") == order(before, "q1")
    assert order(after, "q2") == sorted(DOCUMENTS, key=lambda name: DOCUMENTS[name])
    assert own.notes.incomplete == {"q1": f"1 of 1 windows kept their order: {reason}"}
    assert own.notes.facts["unusable"] == 1
    assert "the first is q1" in own.notes.warnings[0]


def test_replies_with_gaps_are_repaired_and_counted() -> None:
    data, own = collection(), context()
    stage = Listwise(model(lambda request: "[4] > [4] > [99] > [2]", "gaps"))
    after = stage.rerank(data, run_over(data), own)
    assert order(after, "q1") == ["d4", "d2", "d1", "d3", "d5"]
    assert own.notes.facts["repaired"] == 2
    assert not own.notes.incomplete


def test_passages_are_cut_and_their_own_numbers_disarmed() -> None:
    seen: list[str] = []

    def answer(request: Request) -> str:
        seen.append(request.messages[-1].content)
        return "[1]"

    data = collection(documents={"d1": "gout [12] is\n\npain of the bone [3] and more", "d2": "asthma"})
    Listwise(model(answer, "cut"), words=5).rerank(data, run_over(data), context())
    assert "[1] gout (12) is pain of\n\n[2] asthma\n" in seen[0]


def test_sampling_has_no_chance_in_it_but_for_reasoning_models() -> None:
    assert Listwise("gpt-4o").model.sampling.temperature == 0.0
    assert Listwise("qwq-32b").model.sampling.temperature == 0.7
    assert Listwise("o3-mini").model.sampling.temperature is None
    assert Listwise("qwq-32b", temperature=0.2).model.sampling.temperature == 0.2


def gold_ranker(dataset, name: str) -> str:
    """A model that knows which passages are right for which query."""
    texts, qrels = dataset.collection, dataset.gold.qrels

    def answer(request: Request) -> str:
        prompt = request.messages[-1].content
        query = next(name for name, text in texts.queries if text in prompt)
        right = {" ".join(texts.documents.text(document).split()) for document, grade in qrels[query].items() if grade}
        found = sorted(passages(request).items(), key=lambda entry: entry[1] not in right)
        return " > ".join(f"[{number}]" for number, _ in found)

    return model(answer, name)


def test_a_perfect_ranker_improves_and_a_garbage_one_does_not() -> None:
    dataset = r2med.load("sample/MedQA-Diag")
    perfect = gold_ranker(dataset, "perfect")
    garbage = model(lambda request: "As an aside, 42 is a fine number.", "garbage")
    report = r2med.evaluate(
        ["bm25", f"bm25 >> listwise({perfect}, window=10, step=5, words=1000)", f"bm25 >> listwise({garbage})"], dataset
    )
    assert not report.failures
    plain, better, same = report.results
    assert better.metrics["nDCG@10"] > plain.metrics["nDCG@10"] + 0.05
    assert same.metrics == plain.metrics
    assert len(same.incomplete) == len(dataset.collection.queries)
    assert not better.incomplete


def test_answers_are_kept_and_not_asked_for_again() -> None:
    asked: list[str] = []

    def answer(request: Request) -> str:
        asked.append(request.key())
        return alphabetical(request)

    data = collection(documents=many(30))
    name = model(answer, "kept")
    first = Listwise(name).rerank(data, run_over(data), context())
    count = len(asked)
    own = context()
    assert Listwise(name).rerank(data, run_over(data), own) == first
    assert len(asked) == count == own.notes.facts["account"]["cached"]


# Groupwise.


@pytest.mark.parametrize("how", GROUPINGS)
def test_groups_hold_every_passage_once_and_the_same_way_each_time(how: str) -> None:
    for number in range(3):
        found = make_groups(23, 5, how, number, "q1")
        assert sorted(place for group in found for place in group) == list(range(23))
        assert max(map(len, found)) - min(map(len, found)) <= 1
        assert max(map(len, found)) <= 5
        assert found == make_groups(23, 5, how, number, "q1")
    assert make_groups(23, 5, how, 1, "q1") != make_groups(23, 5, how, 2, "q1") != make_groups(23, 5, how, 2, "q2")
    neighbours = [sorted(group) == list(range(min(group), max(group) + 1)) for group in make_groups(100, 20, how)]
    assert all(neighbours) == (how == "sorted")


def graded(grades: dict[str, float]):
    def answer(request: Request) -> str:
        lines = [
            f"[{number}]: {grade:g}"
            for number, text in passages(request).items()
            for start, grade in grades.items()
            if text.startswith(start)
        ]
        return "Let me see.\n" + "\n".join(lines)

    return answer


GRADES = {"scurvy": 2, "gout": 9, "anaemia": 2, "sepsis": 10, "asthma": 2}


def test_groups_are_merged_by_grade_and_ties_keep_their_order() -> None:
    data = collection()
    for size, rounds in ((2, 1), (3, 2), (5, 1), (1, 1)):
        own = context()
        stage = Groupwise(model(graded(GRADES), "graded"), size=size, rounds=rounds)
        after = stage.rerank(data, run_over(data), own)
        assert order(after, "q1") == ["d4", "d2", "d1", "d3", "d5"]
        assert [round(score, 3) for score in after["q1"].scores.tolist()] == [10, 9, 2, 2, 2]
        assert own.notes.facts["groups"] == 2 * stage.requests_a_query(5)
        assert not own.notes.incomplete


def test_a_passage_that_every_reply_leaves_out_gets_the_lowest_grade_and_is_told() -> None:
    some = {start: grade for start, grade in GRADES.items() if start != "gout"}
    data, own = collection(), context()
    after = Groupwise(model(graded(some), "some"), size=5, rounds=1).rerank(data, run_over(data), own)
    assert order(after, "q1") == ["d4", "d1", "d2", "d3", "d5"]
    assert own.notes.incomplete["q1"] == "1 passages were left out of every reply; the first is d2"
    assert own.notes.facts["asked_again"] == 2 * 2, "both queries, twice each"


def test_an_unreadable_group_is_asked_for_again_and_counted() -> None:
    asked: list[str] = []

    def answer(request: Request) -> str:
        asked.append(request.messages[-1].content)
        if "could not be read" in asked[-1]:
            return graded(GRADES)(request)
        return "{'1': seven}"

    data, own = collection(), context()
    after = Groupwise(model(answer, "second thoughts"), size=3, rounds=1).rerank(data, run_over(data), own)
    assert order(after, "q1") == ["d4", "d2", "d1", "d3", "d5"]
    assert (own.notes.facts["groups"], own.notes.facts["asked_again"], own.notes.facts["unusable"]) == (4, 4, 0)
    assert own.notes.facts["account"]["requests"] == 8 == len(asked)
    assert not own.notes.incomplete
    assert own.notes.warnings == ["groupwise: groups without all their grades were asked for again, 4 requests in all"]
    foreseen = Groupwise("gpt-4o", size=5, rounds=2).forecast(data, context())
    assert (foreseen["requests"], foreseen["requests at most"]) == (4, 12)


@pytest.mark.parametrize(
    "stage",
    ["listwise(paid, window=10, step=5)", "pointwise(paid, mode=grade, depth=20)", "groupwise(paid, size=7, rounds=2)"],
)
def test_a_dry_run_prices_a_reranker_and_is_about_right(stage: str) -> None:
    """The oracle is the bill: what the same model is paid for the run that was priced."""
    answers = {"listwise": alphabetical, "pointwise": lambda request: "Grade: 7", "groupwise": graded({"p": 5})}
    price = (2.0, 8.0)
    paid = scripted(answers[stage.partition("(")[0]], "paid")
    add_model(replace(paid, price=price))
    documents = {name: text + " pain" * (5 * int(name[1:]) % 40) for name, text in many(30).items()}
    asked = {f"q{n}": f"why does joint number {n} hurt?" for n in range(6)}
    (reranker,) = System.parse(f"bm25 >> {stage}").stages[1:]
    before = collection({"other": "who has gout?"}, documents)
    plain = reranker.forecast(before, context())
    assert plain["length"] == "400 tokens an answer, a default: none such is kept"
    reranker.rerank(before, run_over(before), context())
    data, own = collection(asked, documents), context()
    foreseen = reranker.forecast(data, own)
    reranker.rerank(data, run_over(data), own)
    bill = own.notes.facts["account"]
    assert foreseen.get("requests", foreseen["requests at most"]) == bill["requests"]
    assert foreseen["prompt tokens"] == pytest.approx(bill["prompt_tokens"], rel=0.1)
    assert foreseen["completion tokens"] == pytest.approx(bill["completion_tokens"], rel=0.1)
    assert foreseen["dollars"] == pytest.approx(bill["cost"], rel=0.1)
    assert foreseen["dollars at most"] > foreseen["dollars"]
    tokens = (foreseen["prompt tokens"], foreseen["completion tokens"])
    assert foreseen["dollars"] == pytest.approx(sum(map(math.prod, zip(tokens, price, strict=True))) / 1e6, rel=0.01)


def test_a_group_without_grades_keeps_the_query_as_it_was_unless_another_round_helps() -> None:
    def answer(request: Request) -> str:
        shown = request.messages[-1].content
        return "no idea" if "gout" in shown and "scurvy" not in shown else graded(GRADES)(request)

    data, own = collection(), context()
    before = run_over(data)
    after = Groupwise(model(answer, "half"), size=3, rounds=1, groups="dealt").rerank(data, before, own)
    assert order(after, "q1") == order(before, "q1")
    assert own.notes.incomplete["q1"] == "2 of 5 passages got no grade: no grades in the reply 'no idea'"
    assert own.notes.facts["asked_again"] == 4
    own = context()
    after = Groupwise(model(answer, "half"), size=3, rounds=6).rerank(data, before, own)
    assert order(after, "q1") == ["d4", "d2", "d1", "d3", "d5"]
    assert "groups gave no grades" in own.notes.incomplete["q1"]


def test_two_shuffles_are_averaged_and_fused_with_the_first_stage() -> None:
    """Grades that depend on the company: the mean of the two rounds counts, beside the scores of the list before."""
    company: dict[str, list[float]] = {}

    def answer(request: Request) -> str:
        found = passages(request)
        grades = {number: (len(found) + len(text)) % 8 for number, text in found.items()}
        for number, text in found.items():
            company.setdefault(text[:4], []).append(grades[number])
        return "```json\n" + json.dumps({str(number): grade for number, grade in grades.items()}) + "\n```"

    data = collection({"q1": QUERIES["q1"]})
    before = run_over(data)
    for fuse in (0.0, 0.25):
        company.clear()
        stage = Groupwise(model(answer, f"company {fuse}"), size=2, rounds=2, fuse=fuse)
        after = stage.rerank(data, before, context())
        assert {len(grades) for grades in company.values()} <= {1, 2}, "a group that is drawn twice is asked once"
        assert any(len(set(grades)) == 2 for grades in company.values())
        means = {name: sum(given := company[text[:4]]) / len(given) for name, text in DOCUMENTS.items()}
        low, high = min(before["q1"].scores), max(before["q1"].scores)
        first = dict(zip(before["q1"].documents, (before["q1"].scores - low) / (high - low), strict=True))
        wanted = {name: (1 - fuse) * means[name] / 10 + fuse * first[name] if fuse else means[name] for name in means}
        for name, score in zip(after["q1"].documents, after["q1"].scores, strict=True):
            assert score == pytest.approx(wanted[name], abs=1e-5)
    again = Groupwise(stage.llm, size=2, rounds=2, fuse=0.25, seed=1)
    assert again.key() != stage.key()


# Models that were trained to rerank, in the shapes of their replies.

THOUGHT = "<think>\nThe stem points to uric acid; [1] is about vitamins, [2] > [3] perhaps.\n</think>\n"


@pytest.mark.parametrize(
    ("spec", "reply", "wanted"),
    [
        ("listwise(reasonrank-7b)", THOUGHT + "<answer> [2] > [4] > [1] > [3] > [5] </answer>", "d2 d4 d1 d3 d5"),
        ("listwise(reasonrank-32b)", THOUGHT + "<answer>[5] > [2]</answer>", "d5 d2 d1 d3 d4"),
        ("listwise(rank-k-32b)", THOUGHT + "[4] > [3] = [1] = [2] > [5]", "d4 d1 d2 d3 d5"),
        ("groupwise(grouprank-32b)", THOUGHT + '{"1": 0, "2": 9, "3": 3, "4": 10, "5": 1}', "d4 d2 d3 d5 d1"),
        (
            "groupwise(grouprank-7b)",
            '```json\n{"[1]": 1, "[2]": 9, "[3]": 3, "[4]": 10, "[5]": 0}\n```',
            "d4 d2 d3 d1 d5",
        ),
        (
            "groupwise(grouprank-7b)",
            json.dumps({"scores": [{"doc": f"doc_{n}", "score": str(n)} for n in range(1, 6)]}),
            "d5 d4 d3 d2 d1",
        ),
    ],
)
def test_a_trained_reranker_is_read_in_its_own_form(spec: str, reply: str, wanted: str) -> None:
    stage = build_system(f"bm25 >> {spec}").stages[-1]
    seen: list[Request] = []

    def answer(request: Request) -> str:
        seen.append(request)
        numbers = {text.split()[0]: number for number, text in passages(request).items()}
        places = {str(place): str(numbers[text.split()[0]]) for place, text in enumerate(DOCUMENTS.values(), 1)}
        return re.sub(r'(?<=\[)\d(?=\])|(?<=")\d(?=":)|(?<=doc_)\d', lambda found: places[found[0]], reply)

    name = model(answer, spec, trace=stage.model.trace)
    own = context()
    data = collection({"q1": QUERIES["q1"]})
    after = replace(stage, llm=name, format=stage.llm).rerank(data, run_over(data), own)
    assert " ".join(order(after, "q1")) == wanted
    assert not own.notes.incomplete
    assert stage.templates()[0].text.partition("{")[0] in seen[0].messages[-1].content
    assert stage.templates()[0].source.endswith(f"{stage.served.prompt}.txt")
    assert stage.served.name == stage.llm


def said(text: str, *tokens: tuple[str, float, dict[str, float]]) -> RawAnswer:
    made = tuple(Token(token, log, tuple(top.items())) for token, log, top in tokens)
    return RawAnswer(text, logprobs=made)


RANK1 = {
    "scurvy": said(THOUGHT + "false", ("</think>", 0, {}), (" false", -0.1, {" false": -0.1, " true": -2.3})),
    "gout": said(
        THOUGHT + "true", (" true", -9, {}), ("</think>", 0, {}), (" true", -0.2, {" true": -0.2, " false": -1.7})
    ),
    "anaemia": said(THOUGHT + "false", (" false", -1e-4, {" false": -1e-4, " true": -9.2})),
    "sepsis": said(THOUGHT + "true", (" true", -1e-4, {" true": -1e-4, " false": -9.2})),
    "asthma": said(THOUGHT + "false", (" false", -0.3, {" false": -0.3, " true": -1.4})),
}
ERANK = {
    "scurvy": said(THOUGHT + "<answer> 3 </answer>", ("<answer>", 0, {}), (" 3", -0.05, {}), ("</answer>", 0, {})),
    "gout": said(THOUGHT + "<answer>9</answer>", ("9", math.log(0.5), {}), ("</answer>", 0, {})),
    "anaemia": said(THOUGHT + "<answer>3</answer>", ("3", math.log(0.9), {}), ("</answer>", 0, {})),
    "sepsis": said(THOUGHT + "<answer>10</answer>", ("1", -0.1, {}), ("0", -0.2, {}), ("</answer>", 0, {})),
    "asthma": said(THOUGHT + "<answer>0</answer>"),
}


@pytest.mark.parametrize(
    ("llm", "replies", "scores"),
    [
        ("rank1-7b", RANK1, {"d1": -2.2, "d2": 1.5, "d3": -9.1999, "d4": 9.1999, "d5": -1.1}),
        ("erank-4b", ERANK, {"d1": 3 * math.exp(-0.05), "d2": 4.5, "d3": 2.7, "d4": 10 * math.exp(-0.3), "d5": 0.0}),
        (
            "rank1-32b",
            {start: replace(reply, logprobs=()) for start, reply in RANK1.items()},
            {"d2": 1, "d4": 1, "d1": -1},
        ),
    ],
)
def test_a_trained_judge_of_single_passages_is_scored_by_its_own_rule(llm: str, replies, scores) -> None:
    def answer(request: Request) -> RawAnswer:
        assert request.logprobs
        prompt = request.messages[-1].content
        return next(reply for start, reply in replies.items() if start in prompt)

    name = model(answer, f"judge {llm}", trace=find_model(llm).trace)
    data, own = collection({"q1": QUERIES["q1"]}), context()
    after = Pointwise(name, format=llm).rerank(data, run_over(data), own)
    found = dict(zip(after["q1"].documents, after["q1"].scores.tolist(), strict=True))
    assert {document: found[document] for document in scores} == pytest.approx(scores, abs=1e-3)
    assert not own.notes.incomplete


@pytest.mark.parametrize(
    "reply", ["maybe", "<think>still thinking", "<answer>eleven</answer>", "<answer>11</answer>", ""]
)
@pytest.mark.parametrize("llm", ["rank1-7b", "erank-4b"])
def test_a_trained_judge_that_says_nothing_usable_is_never_a_zero(llm: str, reply: str) -> None:
    name = model(lambda request: reply, f"mute {llm} {reply}", trace=find_model(llm).trace)
    data, own = collection({"q1": QUERIES["q1"]}), context()
    before = run_over(data)
    after = Pointwise(name, format=llm).rerank(data, before, own)
    assert after == before
    assert own.notes.incomplete.keys() == {"q1"}


# Pointwise.


def yes_model(scores: dict[str, float], name: str) -> str:
    def answer(request: Request) -> RawAnswer:
        prompt = request.messages[-1].content
        if not request.logprobs:
            return RawAnswer(f"Hm.\nGrade: {round(next(10 * p for start, p in scores.items() if start in prompt))}")
        likely = next(p for start, p in scores.items() if start in prompt)
        top = (("Yes", math.log(likely)), ("No", math.log(1 - likely)))
        return RawAnswer("Yes" if likely > 0.5 else "No", logprobs=(Token("Yes" if likely > 0.5 else "No", -0.1, top),))

    return model(answer, name)


LIKELY = {"scurvy": 0.2, "gout": 0.9, "anaemia": 0.21, "sepsis": 0.99, "asthma": 0.01}


def test_yes_and_no_by_log_probabilities() -> None:
    data, own = collection(), context()
    after = Pointwise(yes_model(LIKELY, "likely")).rerank(data, run_over(data), own)
    assert order(after, "q1") == ["d4", "d2", "d3", "d1", "d5"]
    assert after["q1"].scores[0] == pytest.approx(math.log(0.99 / 0.01))
    assert own.notes.facts["mode"] == "logprobs"
    assert own.notes.facts["pairs"] == 10


def test_grades_where_the_server_gives_no_log_probabilities() -> None:
    def answer(request: Request) -> str:
        prompt = request.messages[-1].content
        if "one word" in prompt:
            return "yes"
        return f"Grade: {next(round(10 * p) for start, p in LIKELY.items() if start in prompt)}"

    data, own = collection(), context()
    after = Pointwise(model(answer, "plain")).rerank(data, run_over(data), own)
    assert own.notes.facts["mode"] == "grade"
    assert order(after, "q1") == ["d4", "d2", "d1", "d3", "d5"]


def test_a_server_that_refuses_log_probabilities_is_asked_for_grades() -> None:
    def answer(request: Request) -> str:
        if request.logprobs:
            raise AttemptError("400: logprobs are not allowed for this model", retry=False)
        return "Grade: 5"

    data, own = collection(), context()
    before = run_over(data)
    after = Pointwise(model(answer, "refuses")).rerank(data, before, own)
    assert own.notes.facts["mode"] == "grade"
    assert order(after, "q1") == order(before, "q1")
    assert not own.notes.incomplete


def test_one_bad_pair_costs_its_query_and_no_other() -> None:
    def answer(request: Request) -> str:
        prompt = request.messages[-1].content
        if "sepsis" in prompt and QUERIES["q1"] in prompt:
            return "hard to say"
        return f"Grade: {next(round(10 * p) for start, p in LIKELY.items() if start in prompt)}"

    data, own = collection(), context()
    before = run_over(data)
    after = Pointwise(model(answer, "one bad"), mode="grade").rerank(data, before, own)
    assert order(after, "q1") == order(before, "q1")
    assert order(after, "q2") == ["d4", "d2", "d1", "d3", "d5"]
    assert own.notes.incomplete == {"q1": "d4: no grade in the reply 'hard to say'"}


# What all of them share.


@pytest.mark.parametrize(
    ("spec", "words"),
    [
        ("listwise(gpt-4o, window=10, step=10)", "below window"),
        ("listwise(gpt-4o, step=0)", "step must be 1"),
        ("listwise(gpt-4o, depth=0)", "depth must be at least 1"),
        ("listwise(gpt-4o, words=0)", "words must be 1"),
        ("listwise(gpt-4)", "did you mean gpt-4o"),
        ("listwise", "lacks llm"),
        ("listwise(gpt-4o, prompt=nowhere.txt)", "cannot read the prompt"),
        ("groupwise(gpt-4o, size=0)", "size and rounds"),
        ("groupwise(gpt-4o, groups=shuffled)", "groups must be one of random, dealt, sorted"),
        ("groupwise(gpt-4o, fuse=1)", "fuse must be 0 or more and below 1"),
        ("groupwise(gpt-4o, retries=-1)", "retries must be 0 or more"),
        ("listwise(rank1-7b)", "rank1-7b was trained for pointwise: write pointwise"),
        ("listwise(gpt-4o, format=reasonrank)", "unknown format 'reasonrank'; did you mean"),
        ("pointwise(erank-4b, mode=grade)", "leave mode out"),
        ("pointwise(gpt-4o, mode=maybe)", "unknown mode"),
        ("pointwise(gpt-4o, temperature=-1)", "must not be negative"),
        ("listwise(gpt-4o, max_tokens=0)", "max_tokens must be 1"),
    ],
)
def test_wrong_specs_are_refused_before_anything_runs(spec: str, words: str) -> None:
    with pytest.raises(R2medError, match=words):
        System.parse(f"bm25 >> {spec}")


def test_a_reranker_cannot_come_first() -> None:
    with pytest.raises(SpecError, match="cannot come before the retriever"):
        System.parse("listwise(gpt-4o) >> bm25")


@pytest.mark.parametrize(
    "spec",
    [
        "bm25 >> listwise(gpt-4o)",
        "bm25 >> listwise(gpt-4o, depth=50, window=10, step=5, scores=true)",
        "bm25 >> groupwise(local, words=100, size=5, rounds=3)",
        "bm25 >> pointwise(m@http://localhost:1/v1, depth=20, mode=grade) >> listwise(gpt-4o, depth=5)",
    ],
)
def test_specs_round_trip(spec: str) -> None:
    assert str(System.parse(spec)) == spec


def test_a_prompt_of_ones_own(tmp_path: Path) -> None:
    file = tmp_path / "mine.txt"
    file.write_text("Which is best for {query}? {passages} Mind the {noun}.", encoding="utf-8")
    seen: list[str] = []

    def answer(request: Request) -> str:
        seen.append(request.messages[-1].content)
        return "[5] > [4]"

    stage = Listwise(model(answer, "mine"), prompt=str(file))
    data = collection()
    after = stage.rerank(data, run_over(data), context())
    assert order(after, "q1")[:2] == ["d5", "d4"]
    assert seen[0].startswith("Which is best for why does the skin")
    assert seen[0].endswith("Mind the question.")
    before = stage.key()
    file.write_text("Another: {query} {passages}", encoding="utf-8")
    assert stage.key() != before
    file.write_text("No place for passages: {query}", encoding="utf-8")
    with pytest.raises(SpecError, match=r"must have \{passages\}"):
        Listwise("gpt-4o", prompt=str(file))
    file.write_text("{query} {passage}", encoding="utf-8")
    with pytest.raises(SpecError, match="say what it asks for"):
        Pointwise("gpt-4o", prompt=str(file))


def test_a_real_server_with_log_probabilities() -> None:
    """The whole way over HTTP, with the shapes that servers send."""
    pytest.importorskip("httpx2")
    from chat_server import ChatServer, Say

    def plan(prompt: str, nth: int) -> Say:
        likely = next(p for start, p in LIKELY.items() if start in prompt)
        top = [{"token": "Yes", "logprob": math.log(likely)}, {"token": "No", "logprob": math.log(1 - likely)}]
        content = [{"token": "Yes", "logprob": math.log(likely), "top_logprobs": top}]
        return Say(text="Yes", choice={"logprobs": {"content": content}})

    with ChatServer(plan) as server:
        data, own = collection(), context()
        after = Pointwise(f"tiny@{server.url}").rerank(data, run_over(data), own)
        assert order(after, "q1") == ["d4", "d2", "d3", "d1", "d5"]
        assert own.notes.facts["mode"] == "logprobs"
        body = server.bodies[0]
        assert (body["logprobs"], body["top_logprobs"], body["max_tokens"]) == (True, 20, 8)
        assert json.dumps(body).count("temperature") == 1
