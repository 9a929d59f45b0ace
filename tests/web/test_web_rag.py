"""Answers on pages: a study with the figures of its JSON, and one question's answers side by side."""

from __future__ import annotations

import json
import re

import pytest
from click.testing import CliRunner
from webparts import entered

from r2med.cli.main import app
from r2med.llm.cards import add_model
from r2med.llm.scripted import scripted
from r2med.web.library import Library
from ragging import rates_model, write_run, write_task

EVIL = "<script>alert(1)</script>"


@pytest.fixture
def study(tmp_path, own_home):
    """A task of 60 questions, answered by a model of known rates, and what `--json` says of it."""
    task = write_task(tmp_path / "task", 60)
    file = write_run(tmp_path / "ours.trec", 60, 0.6)
    rates = rates_model({"closed": 0.5, "relevant": 0.8, "distractors": 0.3})
    add_model(scripted(lambda request: rates(request).replace("gout", EVIL), "rates"))
    words = ["rag", "--llm", "rates", "--arms", "closed", "gold", f"ours={file}", "--tasks", str(task), "--k", "3"]
    return str(task), json.loads(CliRunner().invoke(app, [*words, "--json"]).stdout)


def test_a_study_and_its_questions_are_pages(study):
    task, said = study
    with entered(Library()) as client:
        page = client.get("/rag").text
        for arm in said["arms"]:
            name = arm["arm"] + " (oracle)" * arm["oracle"]
            figure = f"{100 * arm['accuracy']['mean']:.2f}"
            assert re.search(rf"<td>{re.escape(name)}</td><td class=\"n\">{figure}</td>", page)
        assert page.count('role="group"') == 6  # arms and flows, each in three layouts; one list makes no slope
        ours = next(arm for arm in said["arms"] if arm["arm"] == "ours")
        for change in ("fixed", "broken", "both right", "both wrong"):
            text = client.get("/rag", params={"arm": "ours", "change": change}).text
            rows = re.findall(r"/query\?task=[^\"]*query=(q\d+)&amp;tab=answers#answers", text)
            count = ours["paired"][change.replace(" ", "_")]
            assert len(rows) == min(50, count)
            assert f"ours: {change} {count} of 60" in text
        wrong = client.get("/rag", params={"arm": "our", "change": "fixd"})
        assert wrong.status_code == 404
        assert 'href="/rag?arm=ours&amp;change=fixd">Show ours</a>' in wrong.text
        assert "<option selected>fixed</option>" in wrong.text

        question = client.get("/query", params={"task": task, "query": "q7"}).text
        assert "q7 is a case of 7 findings" in question
        assert re.findall(r'<h3>(\w+)( <span class="tag warn">oracle)?', question) == [
            ("closed", ""),
            ("gold", ' <span class="tag warn">oracle'),
            ("ours", ""),
        ]
        links = re.findall(r'<a class="cite" href="#(source-[\w-]+)">\[1\]</a>', question)
        assert len(links) == 2
        assert all(f'<li id="{link}"' in question for link in links)
        assert question.count("[9] not shown") == 2
        assert question.count("Evidence in view") + question.count("No evidence in view") == 2
        assert len(re.findall(r'class="tag (?:good|warn)">(?:right|wrong)<', question)) == 3
        assert EVIL not in question
        assert EVIL not in page
        assert client.get("/query", params={"task": task, "query": "nosuch"}).status_code == 404
        others = [client.get("/query", params={"task": task, "query": f"q{number}"}).text for number in range(9)]
        assert any('<b dir="auto">&lt;script&gt;alert(1)&lt;/script&gt;</b>' in text for text in others)
        assert not any(EVIL in text for text in others)


def test_without_answers_the_page_says_how_to_get_some(tmp_path):
    with entered(Library(tmp_path / "ledger.sqlite")) as client:
        assert "The ledger has no answers yet" in client.get("/rag").text


def test_the_query_page_of_a_run_shows_the_answers_too(own_home, tmp_path):
    script = tmp_path / "say.jsonl"
    script.write_text(json.dumps({"reply": "Answer: Wilson disease [1]\nSources: [1]"}) + "\n")
    words = ["rag", "bm25", "--llm", f"scripted:{script}", "--tasks", "sample/MedQA-Diag", "--arms", "closed", "system"]
    assert CliRunner().invoke(app, words).exit_code == 0
    with entered(Library()) as client:
        page = client.get("/query", params={"task": "sample/MedQA-Diag", "query": "mqd-q04"}).text
    assert "All systems on this query" in page
    assert page.count('<b dir="auto">Wilson disease</b>') == 2


def test_nuggets_are_tables_of_the_study_and_a_list_below_each_answer(tmp_path, own_home):
    task = write_task(tmp_path / "task", 9)
    add_model(scripted(lambda request: "Answer: gout and more\nSources: none", "gout"))
    add_model(
        scripted(
            lambda request: (
                '{"1": "support", "2": "partial_support"}'
                if "The facts:" in request.messages[-1].content
                else "Verdict: no"
            ),
            "judge",
        )
    )
    rows = [
        {"query_id": "q7", "nugget_id": name, "text": f"{name} {EVIL}", "vital": name == "one"}
        for name in ("one", "two")
    ]
    (tmp_path / "nuggets.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows), "utf-8")
    words = ["rag", "--llm", "gout", "--judge", "judge", "--arms", "closed", "gold", "--tasks", str(task)]
    done = CliRunner().invoke(app, [*words, "--nuggets", str(tmp_path / "nuggets.jsonl")])
    assert done.exit_code == 0, done.output
    with entered(Library()) as client:
        page = client.get("/rag").text
        figures = "".join(f'<td class="n">{x}</td>' for x in ("100.00", "50.00", "66.67", "100.00", "75.00", "83.33"))
        assert f"<td>closed</td>{figures}" in page
        assert "Left out: 8 questions without nuggets." in page
        assert f"--nuggets={tmp_path / 'nuggets.jsonl'}" in page  # the command that makes the same again
        question = client.get("/query", params={"task": str(task), "query": "q7"}).text
        assert question.count("Nuggets: 1 of 2 said in full") == 2
        assert question.count('one &lt;script&gt;alert(1)&lt;/script&gt; <span class="soft">vital, said in full') == 2
        assert question.count('two &lt;script&gt;alert(1)&lt;/script&gt; <span class="soft">okay, said in part') == 2
        assert EVIL not in question
        assert "Nuggets" not in client.get("/query", params={"task": str(task), "query": "q1"}).text
