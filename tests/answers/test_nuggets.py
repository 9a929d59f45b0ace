"""Nuggets: recall as the reference implementations compute it, planted answers, and the way by the review desk."""

from __future__ import annotations

import json
import re
from dataclasses import replace

import numpy as np
import pytest
from click.testing import CliRunner

import r2med
from chat_server import ChatServer, Say
from r2med.answers.nuggets import RECALLS, Support, read_support, recall
from r2med.answers.study import StudyOptions
from r2med.cli.main import app
from r2med.data.nuggets import Nugget, NuggetRow, read_nuggets, write_nuggets
from r2med.llm.cards import add_model
from r2med.llm.scripted import scripted
from r2med.llm.types import Reply
from r2med.models.templates import Template
from r2med.reviews.rows import GRADED, PERSON, DraftDecision
from r2med.reviews.store import ReviewStore
from r2med.usage import Usage
from ragging import asked, share, sources, write_task

REFERENCE = (
    ("ov", "ps", [1.0, 0.5, 0.666667, 1.0, 0.75, 0.833333]),
    ("ovvvvo", "pssppp", [0.5, 0.333333, 0.4, 0.75, 0.666667, 0.7]),
    ("vvvovv", "spsssp", [0.6, 0.666667, 0.636364, 0.8, 0.833333, 0.818182]),
    ("vo", "ns", [0.0, 0.5, 0.333333, 0.0, 0.5, 0.333333]),
    ("oov", "pns", [1.0, 0.333333, 0.5, 1.0, 0.5, 0.625]),
    ("voooo", "nppnn", [0.0, 0.0, 0.0, 0.0, 0.2, 0.166667]),
    ("ovvovovv", "ssnpnsnp", [0.2, 0.375, 0.307692, 0.3, 0.5, 0.423077]),
    ("ovvo", "sppp", [0.0, 0.25, 0.166667, 0.5, 0.625, 0.583333]),
    ("vvovvvvo", "snspspnn", [0.333333, 0.375, 0.357143, 0.5, 0.5, 0.5]),
    ("oovv", "psnn", [0.0, 0.25, 0.166667, 0.0, 0.375, 0.25]),
    ("ovoooov", "sspnpps", [1.0, 0.428571, 0.555556, 1.0, 0.642857, 0.722222]),
    ("oov", "nsn", [0.0, 0.333333, 0.25, 0.0, 0.333333, 0.25]),
)
"""Vital or okay, the labels, and the scores: strict and lenient of vital and all nuggets by nuggetizer 0.0.5 (the
code of TREC's RAG track), those with weights by open-rag-eval 0.3.0; random cases, computed on 2026-11-20."""
LABELS = {"s": Support.FULL, "p": Support.PARTIAL, "n": Support.NONE}


@pytest.mark.parametrize(("kinds", "labels", "scores"), REFERENCE)
def test_recall_is_that_of_the_reference_implementations(kinds, labels, scores):
    nuggets = [Nugget(str(number), "fact", kind == "v") for number, kind in enumerate(kinds)]
    support = [LABELS[label] for label in labels]
    assert [recall(kind, nuggets, support) for kind in RECALLS] == pytest.approx(scores, abs=1e-6)


def test_a_question_without_a_vital_nugget_has_no_vital_recall():
    nuggets = [Nugget("a", "fact", False)]
    assert recall("strict_vital", nuggets, [Support.FULL]) is None
    assert recall("strict_weighted", nuggets, [Support.FULL]) == 1.0


@pytest.mark.parametrize(
    "text",
    ["", "all of them", '{"1": "support"}', '{"1": "support", "2": "perhaps"}', '{"1": true, "2": "support"}', "[1]"],
)
def test_labels_that_are_missing_or_unknown_are_not_read(text):
    request = scripted(lambda request: text).request("x")
    assert read_support(Reply(request, text, "", text, "stop", Usage()), 2) is None
    good = 'So:\n```json\n{"1": "support", "2": "partial_support", "3": "not_support"}\n```'
    reply = Reply(request, good, "", good, "stop", Usage())
    assert read_support(reply, 3) == (Support.FULL, Support.PARTIAL, Support.NONE)
    assert read_support(replace(reply, incomplete="cut"), 3) is None


COUNT = 40


def facts_of(number: int) -> list[tuple[str, bool]]:
    """The facts of a question, and whether each is vital: every fifth question has none, every other one vital fact."""
    facts = [(f"fact {name} of case {number}", vital) for name, vital in (("a", True), ("b", True), ("c", False))]
    return [] if number % 5 == 4 else facts if number % 2 else facts[:1] + facts[2:]


def held(view: str, fact: str) -> str:
    """Whether an answer says a fact whole (s), in part (p) or not (n): more with passages in view."""
    luck, more = share("luck", view, fact), 0.3 if view == "gold" else 0.0
    return "s" if luck < 0.3 + more else "p" if luck < 0.6 + more else "n"


def abstains(view: str, number: int) -> bool:
    return share("abstains", view, number) < 0.1


def unread(view: str, number: int) -> bool:
    return view == "gold" and number % 7 == 3


def answer(request) -> str:
    view, number = "gold" if sources(request) else "closed", int(asked(request)[1:])
    if abstains(view, number):
        return "Answer: not answerable from this\nSources: none"
    texts = [f"{view} of {number}."]
    texts += [
        f"{fact} {'whole' if h == 's' else 'partly'}." for fact, _ in facts_of(number) if (h := held(view, fact)) != "n"
    ]
    return f"Answer: {' '.join(texts)}\nSources: none"


def judge(request) -> str:
    """A judge that reads the response and nothing else."""
    text = request.messages[-1].content
    if "Verdict" in text:
        return "Verdict: no"
    response = re.search(r"<response>\n(.*?)\n</response>", text, re.S)[1]
    view, number = re.match(r"(\w+) of (\d+)\.", response).groups()
    if unread(view, int(number)):
        return "I cannot say."
    labels = {}
    for place, fact in re.findall(r"(?m)^(\d+)\. (fact .*)$", text):
        whole, part = f"{fact} whole" in response, f"{fact} partly" in response
        labels[place] = "support" if whole else "partial_support" if part else "not_support"
    return json.dumps(labels)


def expected(view: str, numbers, kind: str) -> dict[int, float]:
    """The recall of a kind, by question, from the plan alone."""
    credit = {"s": 1.0, "p": 0.0 if kind.startswith("strict") else 0.5, "n": 0.0}
    okay = {"vital": 0.0, "all": 1.0, "weighted": 0.5}[kind.partition("_")[2]]
    recalls = {}
    for number in numbers:
        facts = facts_of(number)
        if facts and not unread(view, number) | abstains(view, number):
            weights = np.array([1.0 if vital else okay for _, vital in facts])
            credits = np.array([credit[held(view, fact)] for fact, _ in facts])
            recalls[number] = float(weights @ credits / weights.sum())
        elif facts and abstains(view, number):
            recalls[number] = 0.0
    return recalls


@pytest.fixture
def planted(tmp_path):
    task = write_task(tmp_path / "task", COUNT)
    rows = [
        NuggetRow(f"q{number}", f"n{place}", fact, vital, "task" if number % 3 else "")
        for number in range(COUNT)
        for place, (fact, vital) in enumerate(facts_of(number))
    ]
    write_nuggets(tmp_path / "nuggets.jsonl", rows)
    calls = []

    def counted_judge(request):
        calls.append(request)
        return judge(request)

    add_model(scripted(answer, "writer"))
    add_model(scripted(counted_judge, "judge"))
    words = ["rag", "--llm", "writer", "--judge", "judge", "--arms", "closed", "gold", "--k", "3", "--tasks", str(task)]
    return [*words, "--nuggets", str(tmp_path / "nuggets.jsonl")], calls, tmp_path


def call(*words: str, code: int = 0) -> str:
    done = CliRunner().invoke(app, words)
    assert done.exit_code == code, done.output + repr(done.exception)
    return done.stdout if code == 0 else f"{done.exception}\n{done.output}"


def test_every_figure_of_nuggets_comes_out_as_planted(planted):
    words, calls, _ = planted
    report = json.loads(call(*words, "--json"))
    arms = {arm["arm"]: arm["nuggets"] for arm in report["arms"]}
    for view, figures in arms.items():
        with_facts = [number for number in range(COUNT) if facts_of(number)]
        lost = [number for number in with_facts if unread(view, number) and not abstains(view, number)]
        counts = {"questions": 32, "without": 8, "answers": 32, "unread": len(lost)}
        assert {name: figures[name] for name in counts} == counts
        assert figures["unread_share"] == pytest.approx(len(lost) / 32)
        for kind in RECALLS:
            recalls = expected(view, range(COUNT), kind)
            figure = figures["recall"][kind]
            assert figure["mean"] == pytest.approx(np.mean(list(recalls.values())))
            assert figure["low"] < figure["mean"] < figure["high"]
    assert arms["gold"]["unread"] > 0
    for kind in RECALLS:
        before, after = (expected(view, range(COUNT), kind) for view in ("closed", "gold"))
        changes = [after[number] - before[number] for number in after if number in before]
        change = arms["gold"]["differences"][kind]
        assert (change["queries"], change["mean"]) == (len(changes), pytest.approx(np.mean(changes)))
        assert change["low"] < change["mean"] < change["high"]
        assert arms["closed"]["differences"][kind] is None
    # Passages help here, and the interval knows it.
    assert arms["gold"]["differences"]["strict_all"]["low"] > 0
    # One request of the judge for each answer to a question with nuggets, and one more for its verdict.
    asked_for = [request for request in calls if "The facts:" in request.messages[-1].content]
    answered = [(view, n) for view in arms for n in range(COUNT) if facts_of(n) and not abstains(view, n)]
    assert len(asked_for) == len(answered)
    prompts = {request.messages[-1].content for request in asked_for}
    assert all(text.count("</response>") == 1 for text in prompts)
    assert any(
        "whole answer in one paragraph" in text
        for text in [json.loads(call(*words, "--dry-run", "--json"))["first_prompt"]]
    )


def test_the_figures_are_the_same_everywhere_and_nothing_is_asked_twice(planted):
    words, calls, _ = planted
    texts = {form: call(*words, *form) for form in ((), ("--json",), ("--format", "md"), ("--format", "latex"))}
    for arm in json.loads(texts["--json",])["arms"]:
        star, title = "*" if arm["nuggets"]["unread"] else "", arm["arm"] + " (oracle)" * arm["oracle"]
        figures = [f"{100 * arm['nuggets']['recall'][kind]['mean']:.2f}{star}" for kind in RECALLS]
        assert re.search(rf"(?m)^ {re.escape(title)} +{' +'.join(map(re.escape, figures))}", texts[()])
        assert f"| {title} | {' | '.join(figures).replace('*', chr(92) + '*')}" in texts["--format", "md"]
        assert " & ".join([title, *figures]) in texts["--format", "latex"]
    assert "Left out: 8 questions without nuggets." in texts[()]
    options = {"judge": "judge", "nuggets": words[-1], "arms": ["closed", "gold"], "k": 3}
    report = r2med.rag(llm="writer", tasks=words[words.index("--tasks") + 1], **options)
    assert json.loads(json.dumps(report.as_dict()["arms"])) == json.loads(texts["--json",])["arms"]
    unread_ones = {r.key() for r in calls if unread(*view_of(r))}
    others = [request.key() for request in calls if request.key() not in unread_ones]
    assert len(others) == len(set(others))  # only what could not be read is asked again
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(
            "r2med.answers.nuggets.bundled", lambda *_: Template("{nuggets} {response} {question}", source="x")
        )
        assert json.loads(call(*words, "--json"))["study"] != json.loads(texts["--json",])["study"]


def view_of(request) -> tuple[str, int]:
    text = request.messages[-1].content
    match = re.search(r"<response>\n(\w+) of (\d+)\.", text)
    return (match[1], int(match[2])) if match and "The facts:" in text else ("", 0)


def test_nuggets_make_another_study_and_none_leave_the_old_one_as_it_was(planted):
    *_, folder = planted
    with_nuggets = StudyOptions("writer", "judge", nuggets=str(folder / "nuggets.jsonl"))
    without = StudyOptions("writer", "judge")
    assert "nuggets" not in without.facts()
    assert len({with_nuggets.key, without.key}) == 2
    before = with_nuggets.key
    rows = list(read_nuggets(folder / "nuggets.jsonl").rows.values())
    write_nuggets(folder / "nuggets.jsonl", rows[1:])
    assert StudyOptions("writer", "judge", nuggets=str(folder / "nuggets.jsonl")).key != before


def test_a_model_writes_nuggets_once_for_each_question_at_most_twenty(tmp_path, monkeypatch):
    facts = [{"text": f"Fact {n // 2}{'.' if n % 2 else ''}", "vital": n > 40} for n in range(60)]
    answers = {"q0": json.dumps({"nuggets": facts}), "q1": '{"nuggets": [{"text": "It is gout", "vital": true}]}'}
    mended = False

    def say(prompt: str, nth: int) -> Say:
        name = re.search(r"<question>\n(q\d)", prompt)[1]
        assert "<correct_answer>" in prompt
        assert f"passage r of case{name[1:]}" in prompt
        return Say(text=answers.get(name, '{"nuggets": [{"text": "late", "vital": false}]}' if mended else "No facts."))

    task, out = write_task(tmp_path / "task", 3), tmp_path / "nuggets.jsonl"
    with ChatServer(say) as server:
        monkeypatch.setenv("OPENAI_BASE_URL", server.url)
        monkeypatch.setenv("OPENAI_API_KEY", "sk-test")
        words = ["rag", "--llm", "gpt-4o", "--tasks", str(task), "--write-nuggets", str(out)]
        plan = json.loads(call(*words, "--dry-run", "--json"))
        assert (plan["requests"], plan["cached"], server.attempts, out.exists()) == (3, 0, 0, False)
        assert plan["cost"] > 0
        first = json.loads(call(*words, "--json"))
        counts = {"nuggets": 21, "vital": 10, "questions": 2, "kept": 0, "unread": 1, "failed": 0}
        assert {name: first[name] for name in counts} == counts
        rows = list(read_nuggets(out).rows.values())
        texts = [row.text for row in rows if row.query_id == "q0"]
        assert len(texts) == len({text.strip(".") for text in texts}) == 20
        vital = [row.vital for row in rows if row.query_id == "q0"]
        assert vital == sorted(vital, reverse=True)
        # What people changed stays, and only the question without nuggets is asked about again.
        write_nuggets(out, [rows[0], rows[-1]])
        mended, attempts = True, server.attempts
        again = json.loads(call(*words, "--json"))
        assert server.attempts == attempts + 1
        assert (again["nuggets"], again["questions"], again["kept"]) == (3, 3, 2)
        assert [row.text for row in read_nuggets(out).rows.values()] == [rows[0].text, rows[-1].text, "late"]


def test_writing_that_was_stopped_goes_on_and_pays_for_nothing_twice(tmp_path):
    calls = []

    def say(request):
        calls.append(request.key())
        return '{"nuggets": [{"text": "gout", "vital": true}]}'

    model = scripted(say, "paid")
    add_model(replace(model, price=(1000.0, 1000.0), sampling=replace(model.sampling, max_tokens=50)))
    task, out = write_task(tmp_path / "task", 10), tmp_path / "nuggets.jsonl"
    words = ["rag", "--llm", "paid", "--tasks", str(task), "--write-nuggets", str(out)]
    plan = json.loads(call(*words, "--dry-run", "--json"))
    call(*words, "--max-cost", str(plan["cost"] / 2), code=1)
    assert not out.exists()
    assert 0 < len(calls) < 10
    assert json.loads(call(*words, "--dry-run", "--json"))["cached"] == len(calls)
    call(*words)
    assert len(calls) == len(set(calls)) == 10 == len(read_nuggets(out).rows)


def test_nuggets_go_from_the_file_over_the_desk_into_a_study(planted):
    words, _, folder = planted
    task = words[words.index("--tasks") + 1]
    call("review", "new", "facts", "--from", task, str(folder / "nuggets.jsonl"))
    grades = {}
    with ReviewStore.open("facts") as store:
        assert store.project.open_answer
        assert store.project.unit == "nugget"
        people = [store.add_reviewer(name, PERSON).id for name in ("Ada", "Ben")]
        questions = {question.number: question for question in store.questions()}
        for item in store.items():
            number = int(questions[item.question].query[1:])
            assert questions[item.question].answer == f"disease {number}"
            assert (item.text, item.facts["label"] == 2) in facts_of(number)
            grades[item.number] = 0 if "fact c" in item.text else 1 if number == 3 else 2
        store.record_all(people[0], [(n, DraftDecision(GRADED, grade)) for n, grade in grades.items()])
        differing = [(n, DraftDecision(GRADED, 2 - grade if n == 1 else grade)) for n, grade in grades.items()]
        store.record_all(people[1], differing)
    done = json.loads(
        call("review", "export", "facts", "--to", "nuggets", "--out", str(folder / "checked.jsonl"), "--json")
    )
    wrong = sum(not grade for number, grade in grades.items() if number != 1)
    assert done["notes"][0] == f"{wrong} nuggets left out: wrong"
    assert "1 item is left out" in done["notes"][1]
    rows = read_nuggets(folder / "checked.jsonl").rows.values()
    assert len(rows) == done["labels"] == sum(grade > 0 for number, grade in grades.items() if number != 1)
    assert {row.query_id for row in rows if not row.vital} == {"q3"}
    assert not any("fact c" in row.text for row in rows)
    checked = [*words[:-1], str(folder / "checked.jsonl"), "--json"]
    arms = {arm["arm"]: arm["nuggets"] for arm in json.loads(call(*checked))["arms"]}
    closed = arms["closed"]
    by_question: dict[str, list] = {}
    for row in rows:
        by_question.setdefault(row.query_id, []).append(row)
    values = []
    for query, nuggets in by_question.items():
        number = int(query[1:])
        vital = [nugget for nugget in nuggets if nugget.vital]
        if vital:
            hits = [held("closed", nugget.text) == "s" and not abstains("closed", number) for nugget in vital]
            values.append(np.mean(hits))
    assert closed["recall"]["strict_vital"]["mean"] == pytest.approx(np.mean(values))
    assert closed["questions"] == len(by_question)
    # Forms of passages are refused, and the other way round.
    assert "is of nuggets" in call("review", "export", "facts", "--to", "trec", "--out", "x", code=1)


GOOD = '{"query_id": "q1", "nugget_id": "a", "text": "gout", "vital": true}'


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        ([GOOD, "not JSON"], "nuggets.jsonl:2: not readable as JSON"),
        ([GOOD, "", '{"query_id": "q1", "nugget_id": "b", "text": "x"}'], "nuggets.jsonl:3: vital is missing"),
        ([GOOD.replace("gout", " ")], "nuggets.jsonl:1: text is empty"),
        ([GOOD.replace("true", '"yes"')], "nuggets.jsonl:1: vital must be true or false, not 'yes'"),
        ([GOOD, GOOD], "nuggets.jsonl:2: question 'q1' has the nugget 'a' on line 1 already"),
        ([GOOD, GOOD[:-1] + ', "task": "task"}'], "nuggets.jsonl:2: question 'q1' has the nugget 'a' above already"),
        ([GOOD, GOOD.replace("q1", "q77")], "nuggets.jsonl:2: .* has no question 'q77'"),
        ([GOOD[:-1] + ', "task": "other"}'], "has no nugget of task; its tasks are other"),
        ([GOOD[:-1] + ', "weight": 1}'], "nuggets.jsonl:1: weight is not a known key"),
        ([""], "nuggets.jsonl: holds no nuggets"),
    ],
)
def test_a_bad_file_of_nuggets_is_one_line(planted, lines, message):
    words, calls, folder = planted
    (folder / "nuggets.jsonl").write_text("\n".join(lines) + "\n")
    text = call(*words, code=1)
    assert re.search(message, text)
    assert calls == []
    task = words[words.index("--tasks") + 1]
    assert re.search(message, call("review", "new", "facts", "--from", task, str(folder / "nuggets.jsonl"), code=1))


def test_what_does_not_go_together_is_said(planted):
    *_, folder = planted
    file = str(folder / "nuggets.jsonl")
    assert "name one with --judge" in call("rag", "bm25", "--llm", "writer", "--nuggets", file, code=1)
    assert "answers nothing" in call("rag", "bm25", "--llm", "writer", "--write-nuggets", file, code=2)
    assert "leave out --queue" in call("review", "new", "facts", "--from", file, "--items", "3", code=1)
    assert "names no task" in call("review", "new", "facts", "--from", file, code=1)
    call("review", "new", "passages", "--from", "sample/Biology", "--items", "3")
    refused = call("review", "export", "passages", "--to", "nuggets", "--out", "x", code=1)
    assert "is of passages; choose --to trec" in refused
