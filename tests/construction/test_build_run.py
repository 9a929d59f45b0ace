"""A whole build: its steps, its funnel, its files; stopped, gone on with, changed and priced."""

from __future__ import annotations

import html
import json
import os
import random
import sqlite3
import subprocess
import sys
import time
import urllib.request
from hashlib import blake2b
from pathlib import Path
from urllib.parse import urlencode

import polars as pl
import pytest
from click.testing import CliRunner

import r2med
from building import CHOICE, EASY, OTHER, brain, files_of, judgement, part, sample, write_plan
from chat_server import ChatServer, Say
from r2med.cli.main import app
from r2med.construction.builder import Builder, show, status
from r2med.data.loader import load
from r2med.data.run import Run
from r2med.data.validate import validate
from r2med.errors import R2medError
from r2med.llm.budget import Limits
from r2med.llm.cards import add_model
from r2med.llm.client import session
from r2med.llm.items import ItemStore, Outcome
from r2med.llm.scripted import scripted
from r2med.llm.types import LimitReached, Request
from r2med.measure.metrics import Measure
from r2med.measure.score import positive, score
from r2med.pipeline.system import System
from r2med.reviews.store import ReviewStore
from r2med.runs.ledger import Ledger
from r2med.store.cache import home
from web.webparts import TOKEN, served

SOURCE = Path(__file__).parents[2] / "src"


class Counted:
    """A scripted model that counts what it is asked."""

    def __init__(self, say=None, name: str = "thinker") -> None:
        self.say, self.asked, self.name = say or brain(), [], name
        add_model(scripted(self._answer, name))

    def _answer(self, request: Request) -> str:
        prompt = request.messages[-1].content
        self.asked.append(prompt)
        return self.say(prompt)


def counts(built) -> dict[str, tuple[int, int]]:
    return {count.step: (count.items, count.kept) for count in built.counts}


def verbs_take(task: Path, place: Path) -> None:
    """Every verb that looks at a task looks at this one."""
    query = next(iter(load(task).collection.queries.ids))
    rows = [json.dumps({"text": text}) + "\n" for _, text in load(task).collection.queries]
    (place / "training.jsonl").write_text("".join(rows))

    def call(*words: object, status: int = 0) -> str:
        done = CliRunner().invoke(app, [*map(str, words)])
        assert done.exit_code == status, (words, done.output)
        return done.stdout

    result = json.loads(call("run", "bm25", "--tasks", task, "--json"))["results"][0]
    assert result["metrics"]["nDCG@10"] > 0
    for form in ("md", "latex"):
        assert "guide-bench" in call("run", "bm25", "--tasks", task, "--format", form)
    assert "fine; 0 errors, 0 warnings" in call("tasks", "validate", task)
    assert json.loads(call("tasks", "stats", task, "--json"))
    assert len(json.loads(call("diagnose", "bm25", "--gap", "--tasks", task, "--json")))
    leaked = json.loads(call("leakage", place / "training.jsonl", "--tasks", task, "--json", status=1))
    assert query in json.dumps(leaked)
    call("nano", "build", task, "--docs", "40", "--dense", "wordllama", "--out", place / "nano")
    assert validate(place / "nano").ok
    call("label", task, "--llm", "thinker", "--out", place / "labels.tsv")
    assert "nervous" in (place / "labels.tsv").read_text()
    with served(home() / "ledger.sqlite") as url:
        asked = urlencode({"task": result["task"], "query": query, "token": TOKEN})
        opener = urllib.request.build_opener(urllib.request.HTTPCookieProcessor())
        with opener.open(f"{url}/query?{asked}") as answer:
            assert html.escape(dict(load(task).collection.queries)[query][:40], quote=False) in answer.read().decode()


def test_a_build_of_the_sample_is_a_task_that_every_verb_takes(tmp_path):
    model = Counted()
    labels = {"model": "thinker", "by": ["body-system"]}
    folder = write_plan(tmp_path / "b", "thinker", label=labels, task={"name": "guide-bench"})
    said = model.say
    model.say = lambda prompt: "Class: nervous" if "body system" in prompt.lower() else said(prompt)
    built = Builder(folder).run()
    found = counts(built)
    queries = len(sample().collection.queries)
    assert found["read"] == found["rules"] == found["intent"][:1] * 2 == (queries, queries)
    assert found["intent"] == (queries, queries - 1)
    assert found["difficulty"] == (queries - 1, queries - 2)
    assert found["rewrite"] == found["reason"] == found["mine"] == (queries - 2, queries - 2)
    by_step = {count.step: count for count in built.counts}
    assert by_step["intent"].dropped == {"class other": 1}
    assert by_step["difficulty"].dropped == {"answered by 1 or more of 1 small models": 1}
    assert by_step["judge"].marks["a judge's quote is not in the passage"] > 0
    assert sum(count.spent.requests for count in built.counts) == len(model.asked)
    task = folder / "task"
    report = validate(task)
    assert report.ok
    assert not report.problems
    dataset = load(task)
    truth = sample().gold.qrels
    assert {OTHER, EASY}.isdisjoint(dataset.collection.queries.ids)
    for query, judged in dataset.gold.qrels.items():
        assert {document for document, grade in judged.items() if grade > 0} <= set(truth[query])
    assert dataset.gold.reasoning
    assert dataset.collection.queries.text(CHOICE).endswith("Name it.")
    frame = pl.read_parquet(task / "judgements.parquet")
    assert set(frame["verdict"]) == {"positive", "negative"}
    positives = frame.filter(pl.col("verdict") == "positive")
    assert set(positives["quote_state"]) == {"found"}
    assert set(frame.filter(pl.col("verdict") == "negative")["quote_state"]) == {"invented"}
    assert set(frame["view"].explode()) == {"question", "answer", "reasoning"}
    assert (task / "labels.tsv").read_text().count("\tnervous\n") == len(dataset.collection.queries)
    verbs_take(task, tmp_path)
    card = (task / "README.md").read_text("utf-8")
    assert "1 dropped: class other" in card
    assert "You judge whether" in card
    assert status(folder).counts == built.counts


def test_show_has_everything_about_a_question(tmp_path):
    Counted()
    folder = write_plan(tmp_path / "b", "thinker")
    Builder(folder).run()
    found = show(folder, CHOICE)
    assert found["steps"]["rewrite"]["text"].endswith("Name it.")
    assert found["steps"]["read"]["original"] in found["steps"]["rewrite"]["text"]
    assert {way["view"] for each in found["candidates"] for way in each["found"]} <= {"question", "answer", "reasoning"}
    positive = next(each for each in found["candidates"] if each["verdict"] == "positive")
    assert positive["answers"] == positive["supports"] == 3
    assert positive["opinions"][0]["reason"] == "It is so."
    assert show(folder, EASY)["dropped"].startswith("difficulty: answered by")
    with pytest.raises(R2medError, match=f"no question 'mqd-q4'; did you mean {CHOICE}"):
        show(folder, "mqd-q4")
    done = CliRunner().invoke(app, ["build", "show", str(folder), CHOICE])
    assert "positive (answers 3, supports 3)" in done.output


def test_a_second_run_asks_nothing_and_writes_the_same_bytes(tmp_path):
    model = Counted()
    folder = write_plan(tmp_path / "b", "thinker")
    made = Builder(folder).run()
    task = folder / "task"
    first = files_of(task)
    model.asked.clear()
    when = (task / "corpus.jsonl").stat().st_mtime_ns
    again = Builder(folder).run()
    assert (again.task, again.counts) == (made.task, made.counts)
    # Nothing has changed: not even the files are written again.
    assert (task / "corpus.jsonl").stat().st_mtime_ns == when
    (task / "qrels.jsonl").write_text("")
    Builder(folder).run()
    assert files_of(task) == first
    (task / "query.jsonl").unlink()
    Builder(folder).run()
    assert files_of(task) == first
    assert model.asked == []


def test_judgements_that_are_missing_stale_damaged_or_of_no_pair_are_put_right_and_no_other_is_asked_for(tmp_path):
    model = Counted()
    folder = write_plan(tmp_path / "b", "thinker")
    with session():
        Builder(folder).run()
    task, rows = files_of(folder / "task"), judge_rows(folder)
    names = sorted(rows)
    missing, stale, damaged = names[::3], names[1::3], names[2]
    with sqlite3.connect(folder / "build.sqlite") as file:
        file.executemany("DELETE FROM item WHERE step = 'judge' AND id = ?", [(name,) for name in missing])
        file.execute("UPDATE item SET value = X'7B7D' WHERE step = 'judge' AND id = ?", (damaged,))
        file.execute("DELETE FROM item WHERE step = 'finished'")
    with ItemStore(folder) as store:
        store.put("judge", [(name, "another", Outcome({"unread": 0})) for name in (*stale, "no question\tno passage")])
    (home() / "llm.sqlite").unlink()
    model.asked.clear()
    with session():
        Builder(folder).run()
    assert judge_rows(folder) == rows
    assert files_of(folder / "task") == task
    assert len(model.asked) == len(missing) + len(stale) + 1


def judge_rows(folder: Path) -> dict[str, tuple[object, ...]]:
    with sqlite3.connect(folder / "build.sqlite") as file:
        return {row[1]: row for row in file.execute("SELECT * FROM item WHERE step = 'judge'")}


def test_the_seed_sets_the_order_in_which_pairs_are_asked_about(tmp_path):
    asked = []
    for seed in (0, 1):
        model = Counted()
        folder = write_plan(tmp_path / str(seed), "thinker", judge={"models": ["thinker"], "seed": seed})
        with session(Limits(concurrency=1)):
            Builder(folder).run()
        (home() / "llm.sqlite").unlink()
        ids = sorted(judge_rows(folder), key=lambda name: blake2b(f"{seed}\t{name}".encode(), digest_size=8).digest())
        texts = dict(load(folder / "task").collection.documents)
        asked.append([prompt for prompt in model.asked if prompt.startswith("You judge")])
        assert len(asked[-1]) == len(ids)
        assert all(texts[name.partition("\t")[2]] in prompt for name, prompt in zip(ids, asked[-1], strict=True))
    assert asked[0] != asked[1]
    assert sorted(asked[0]) == sorted(asked[1])


@pytest.mark.parametrize("changed", ["questions.jsonl", "guideline.md", "plan.toml"])
def test_a_finished_build_is_made_again_where_anything_that_it_is_made_of_has_changed(tmp_path, changed):
    Counted()
    folder = write_plan(tmp_path / "b", "thinker", intent={"model": ""}, difficulty={"models": []})
    before = Builder(folder).run()
    manifest = (folder / "task" / "build.json").read_bytes()
    text = (folder / changed).read_text("utf-8")
    new = {"questions.jsonl": "".join(text.splitlines(keepends=True)[1:]), "guideline.md": f"{text} Mind the age."}
    (folder / changed).write_text(new.get(changed, text.replace("depth = 4", "depth = 3")), "utf-8")
    after = Builder(folder).run()
    assert (folder / "task" / "build.json").read_bytes() != manifest
    assert (counts(after) == counts(before)) == (changed == "guideline.md")


def test_a_changed_setting_makes_again_only_what_depends_on_it(tmp_path):
    model = Counted()
    folder = write_plan(tmp_path / "b", "thinker")
    Builder(folder).run()
    asked = len(model.asked)
    plan = folder / "plan.toml"
    plan.write_text(plan.read_text() + "\n[select]\nanswers = 3.0\nband_answers = 0.0\n")
    Builder(folder).run()
    assert len(model.asked) == asked
    assert "band" in set(pl.read_parquet(folder / "task" / "judgements.parquet")["verdict"])
    plan.write_text(plan.read_text().replace("depth = 4", "depth = 6"))
    Builder(folder).run()
    new = model.asked[asked:]
    assert new
    assert all(prompt.startswith("You judge whether") for prompt in new)
    (folder / "guideline.md").write_text("Other rules.")
    pairs = counts(Builder(folder).run())["judge"][0]
    assert len(model.asked) == asked + len(new) + pairs


def test_the_committee_searches_by_the_words_of_the_plan_and_again_when_they_change(tmp_path, monkeypatch):
    searched = []
    run = System.run

    def record(system, collection, context):
        searched.append(collection.task.sentence)
        return run(system, collection, context)

    monkeypatch.setattr(System, "run", record)
    Counted()
    folder = write_plan(tmp_path / "b", "thinker", task={"noun": "case", "purpose": "name the disease"})
    Builder(folder).run("mine")
    plan = folder / "plan.toml"
    plan.write_text(plan.read_text().replace("name the disease", "name the drug"))
    Builder(folder).run("mine")
    sentence = "Given a case, retrieve relevant passages that help name the"
    assert searched == [f"{sentence} disease", f"{sentence} drug"]


def test_a_dry_run_after_a_changed_depth_counts_the_pairs_that_are_new(tmp_path):
    """Mining costs nothing, so that the pool is known; the oracle is what the same build then asks."""
    model = Counted()
    folder = write_plan(tmp_path / "b", "thinker")
    Builder(folder).run()
    asked, plan = len(model.asked), folder / "plan.toml"
    plan.write_text(plan.read_text().replace("depth = 4", "depth = 6"))
    with session(Limits()):
        foreseen = {step.step: step for step in Builder(folder).estimate()}
    assert len(model.asked) == asked
    Builder(folder).run()
    assert foreseen["judge"].guess.requests == foreseen["judge"].items == len(model.asked) - asked > 0


def test_a_dry_run_prices_every_step_and_asks_nothing(tmp_path):
    model = Counted()
    folder = write_plan(tmp_path / "b", "thinker")
    with session(Limits()):
        foreseen = {step.step: step for step in Builder(folder).estimate()}
    assert model.asked == []
    queries = len(sample().collection.queries)
    assert list(foreseen) == ["intent", "difficulty", "rewrite", "reason", "judge"]
    assert foreseen["difficulty"].guess.requests == 2 * queries
    assert foreseen["rewrite"].guess.requests == 2
    # Three views to a depth of four, at the most.
    assert foreseen["judge"].guess.requests == 12 * queries
    assert foreseen["judge"].guess.prompt_tokens > 12 * queries * 200
    Builder(folder).run()
    with session(Limits()):
        assert [step.items for step in Builder(folder).estimate()] == [0] * 5


def test_until_stops_after_the_step_and_refuses_one_that_is_off(tmp_path):
    model = Counted()
    folder = write_plan(tmp_path / "b", "thinker", intent={"model": ""})
    built = Builder(folder).run("rewrite")
    assert built.counts[-1].step == "rewrite"
    assert built.task is None
    assert not any(prompt.startswith("You judge") for prompt in model.asked)
    with pytest.raises(R2medError, match="the plan has intent off"):
        Builder(folder).run("intent")
    with pytest.raises(R2medError, match="no step 'rewite'; did you mean rewrite"):
        Builder(folder).run("rewite")


def test_a_finished_build_shows_its_whole_funnel_whatever_was_run_since(tmp_path):
    Counted()
    folder = write_plan(tmp_path / "b", "thinker")
    built = Builder(folder).run()
    again = Builder(folder).run("read")
    assert again.counts == built.counts
    assert again.task == built.task
    assert status(folder).counts == built.counts
    plan = (folder / "plan.toml").read_text()
    (folder / "plan.toml").write_text(plan.replace("tokens = ", "tokens = 1"))
    Builder(folder).run("chunk")
    Builder(folder).estimate()
    (folder / "plan.toml").write_text(plan)
    assert Builder(folder).run().counts == built.counts
    assert status(folder).counts == built.counts


def test_judges_that_answer_in_prose_or_outside_of_the_scale_are_asked_again_then_counted(tmp_path):
    said = brain()
    target = sample().gold.answers["mqd-q01"]

    def say(prompt: str) -> str:
        if prompt.startswith("You judge") and part(prompt, "Correct answer:") == target:
            return "Rather relevant, I would say."
        if prompt.startswith("You judge") and part(prompt, "Correct answer:") == sample().gold.answers["mqd-q05"]:
            return judgement(7, 3)
        return said(prompt)

    model = Counted(say)
    folder = write_plan(tmp_path / "b", "thinker", judge={"models": ["thinker"], "retries": 1})
    built = {count.step: count for count in Builder(folder).run().counts}
    lost = built["judge"].dropped["no judge could be read"]
    assert lost == sum(len(show(folder, name)["candidates"]) for name in ("mqd-q01", "mqd-q05"))
    asked = sum(part(prompt, "Correct answer:") == target for prompt in model.asked if prompt.startswith("You judge"))
    assert asked == 2 * len(show(folder, "mqd-q01")["candidates"])
    assert {each["verdict"] for each in show(folder, "mqd-q01")["candidates"]} == {"unjudged"}
    assert built["select"].marks["a pair could not be judged"] == 2
    frame = pl.read_parquet(folder / "task" / "judgements.parquet").filter(pl.col("verdict") == "unjudged")
    assert len(frame) == lost
    assert frame["answers"].null_count() == frame["judge"].null_count() == lost


def test_several_judges_are_combined_by_the_rule_and_asked_again_near_a_cut(tmp_path):
    Counted()
    strict = Counted(lambda prompt: judgement(1, 1), "strict")
    change = {"models": ["thinker", "strict"], "combine": "mean", "near": 0.0, "extra": 2}
    folder = write_plan(tmp_path / "b", "thinker", judge=change)
    Builder(folder).run()
    opinions = [each for name in ("mqd-q01", CHOICE) for each in show(folder, name)["candidates"]]
    # (3 + 1) / 2 lies on the cut and is asked about again: two more of each.
    near = [each for each in opinions if each["answers"] == 2]
    assert near
    assert {len(each["opinions"]) for each in near} == {6}
    assert {each["verdict"] for each in near} == {"positive"}
    assert {len(each["opinions"]) for each in opinions if each["answers"] < 2} == {2}
    assert strict.asked


def test_a_cheap_judge_spares_the_dear_one(tmp_path):
    dear = Counted()
    Counted(brain(), "cheap")
    folder = write_plan(tmp_path / "b", "thinker", judge={"models": ["thinker"], "first": "cheap", "first_drop": 1.0})
    built = {count.step: count for count in Builder(folder).run().counts}
    judged = [prompt for prompt in dear.asked if prompt.startswith("You judge")]
    spared = built["judge"].dropped["surely irrelevant, by the first judge"]
    assert len(judged) == built["judge"].items - spared
    assert spared > 0


def test_a_budget_stops_the_build_and_a_larger_one_goes_on(tmp_path):
    model = Counted()
    folder = write_plan(tmp_path / "b", "thinker")
    with pytest.raises(LimitReached), session(Limits(max_tokens=30_000)):
        Builder(folder).run()
    first = len(model.asked)
    assert first
    assert status(folder).counts
    Builder(folder).run()
    assert len(model.asked) == len(set(model.asked))


def test_a_split_shares_no_document_and_the_band_may_be_left_out(tmp_path):
    Counted()
    change = {"dev": 0.4, "band_answers": 0.0, "band_supports": 1.0, "band": "drop", "corpus": 1}
    folder = write_plan(tmp_path / "b", "thinker", select=change)
    Builder(folder).run()
    task = folder / "task"
    dev, test = (load(task, split=name) for name in ("dev", "test"))
    documents = [{name for judged in positive(each.gold.qrels).values() for name in judged} for each in (dev, test)]
    assert documents[0]
    assert documents[1]
    assert documents[0].isdisjoint(documents[1])
    # Every pair that is no positive lies in the band here.
    assert set(test.collection.documents.ids) == documents[0] | documents[1]


def serving(delay: float = 0.01) -> ChatServer:
    said = brain()
    return ChatServer(lambda prompt, nth: Say(text=said(prompt), delay=delay))


def command(folder: Path, home: Path) -> subprocess.Popen[bytes]:
    environment = {**os.environ, "PYTHONPATH": str(SOURCE), "R2MED_HOME": str(home)}
    line = [sys.executable, "-m", "r2med", "build", "run", str(folder), "--concurrency", "4"]
    return subprocess.Popen(line, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)


def test_killed_at_any_moment_a_build_goes_on_pays_nothing_twice_and_ends_with_the_same_bytes(tmp_path):
    with serving(0.02) as server:
        model = f"tiny@{server.url}"
        whole = command(write_plan(tmp_path / "whole", model), tmp_path / "home-1")
        assert whole.wait(120) == 0, whole.stderr.read()
        expected, requests = files_of(tmp_path / "whole" / "task"), server.attempts
        server.asked.clear()
        folder, moments, kills = write_plan(tmp_path / "killed", model), random.Random(5), 0
        for _ in range(4):
            last_one = server.attempts + moments.randint(3, 20)
            process = command(folder, tmp_path / "home-2")
            while process.poll() is None and server.attempts < last_one:
                time.sleep(0.005)
            kills += process.poll() is None
            process.kill()
            process.wait()
        last = command(folder, tmp_path / "home-2")
        assert last.wait(120) == 0, last.stderr.read()
        assert kills >= 3
        assert files_of(folder / "task") == expected
        # What was on its way when the process died may be asked again: four at a time.
        assert requests <= server.attempts <= requests + 4 * kills


def test_servers_that_fail_now_and_then_leave_items_that_the_next_run_asks_about(tmp_path):
    said = brain()
    broken = [True]

    def plan(prompt: str, nth: int) -> Say:
        down = broken[0] and prompt.startswith("You judge") and len(prompt) % 3 == 0
        return Say(status=400) if down else Say(text=said(prompt))

    with ChatServer(plan) as server:
        folder = write_plan(tmp_path / "b", f"tiny@{server.url}")
        first = {count.step: count for count in Builder(folder).run().counts}
        failed = sum(first["judge"].failed.values())
        assert failed > 0
        broken[0] = False
        before = server.attempts
        second = {count.step: count for count in Builder(folder).run().counts}
        assert second["judge"].failed == {}
        assert server.attempts == before + failed


def test_the_command_line_speaks_in_one_line_and_in_json(tmp_path):
    Counted()
    folder = write_plan(tmp_path / "b", "thinker")
    run = CliRunner().invoke
    assert "nothing is built yet" in str(run(app, ["build", "status", str(folder)]).exception)
    done = run(app, ["build", "run", str(folder), "--json"])
    assert done.exit_code == 0, done.output
    value = json.loads(done.stdout)
    assert value["task"] == str(folder / "task")
    assert [step["step"] for step in value["steps"]][:4] == ["read", "documents", "fold", "chunk"]
    assert json.loads(run(app, ["build", "status", str(folder), "--json"]).stdout) == value
    priced = json.loads(run(app, ["build", "run", str(folder), "--dry-run", "--json"]).stdout)
    assert {step["requests"] for step in priced} == {0}
    assert "intent: 1 dropped: class other" in run(app, ["build", "status", str(folder)], env={"COLUMNS": "80"}).output
    assert "exists already" in str(run(app, ["build", "init", str(folder)]).exception)


def test_a_build_runs_from_python(tmp_path):
    write_plan(tmp_path / "made", "nobody@http://127.0.0.1:9/v1")
    built = r2med.build(tmp_path / "made", until="read")
    assert built.task is None
    assert (built.counts[0].step, built.counts[0].kept) == ("read", len(sample().gold.answers))
    assert repr(built) == f"BuildProgress('{tmp_path / 'made'}': {built.counts[-1].kept} kept by read)"
    with pytest.raises(r2med.R2medError, match="no step 'raed'; did you mean read"):
        r2med.build(str(tmp_path / "made"), until="raed")


def test_a_built_task_keeps_what_its_judges_called_irrelevant(tmp_path):
    Counted()
    folder = write_plan(tmp_path / "b", "thinker", select={"band_answers": 0.0, "band_supports": 1.0})
    Builder(folder).run()
    task = folder / "task"
    dataset = load(task)
    frame = pl.read_parquet(task / "judgements.parquet").unique(["query_id", "passage_id"])
    verdicts = {
        (query, passage): verdict
        for query, passage, verdict in frame.select("query_id", "passage_id", "verdict").iter_rows()
        if query in dataset.gold.qrels
    }
    written = [json.loads(line) for line in (task / "qrels.jsonl").read_text().splitlines()]
    assert {(row["q_id"], row["p_id"]): row["verdict"] for row in written} == verdicts
    assert {row["verdict"]: row["score"] for row in written} == {"positive": 1, "band": 0}
    assert json.loads((task / "build.json").read_text())["positives"] == sum(row["score"] for row in written)
    assert validate(task).ok
    # Scores are those of the positives alone.
    run = {query: ([d for d, _ in dataset.collection.documents][:20], [float(-n) for n in range(20)])
           for query in dataset.gold.qrels}  # fmt: skip
    measures = [Measure("nDCG", 10), Measure("Recall", 20), Measure("MAP", 20), Measure("P", 5), Measure("MRR", 10)]
    whole, alone = (
        score(Run.from_lists(run), qrels, measures) for qrels in (dataset.gold.qrels, positive(dataset.gold.qrels))
    )
    for measure in measures:
        assert whole.values(measure).tolist() == alone.values(measure).tolist()
    # What was judged is not a hole, and can be compared with what people say.
    call("run", "bm25", "--tasks", str(task))
    coverage = json.loads(call("diagnose", "bm25", "--tasks", str(task), "--coverage", "--json"))
    assert '"positives_only": false' in json.dumps(coverage)
    with Ledger() as ledger:
        (entry,) = [each for each in ledger.entries() if each.task == dataset.name]
        lists = ledger.run(entry)
    tops = {(query, document) for query in dataset.gold.qrels for document in lists[query].documents[:10]}
    open_pairs = tops - set(verdicts)
    assert tops & set(verdicts)
    call("review", "new", "gaps", "--from", str(task), "bm25", "--queue", "holes", "--items", "500")
    with ReviewStore.open("gaps") as store:
        asked = {each.number: each.query for each in store.questions()}
        assert {(asked[item.question], item.document) for item in store.items()} == open_pairs
    sets = json.loads(call("audit", str(task), "--labels", "task", str(task / "judgements.parquet"), "--json"))["sets"]
    for each in sets:
        assert (each["judged"], each["relevant"]) == (len(verdicts), sum(row["score"] for row in written))


def call(*words: str) -> str:
    done = CliRunner().invoke(app, words)
    assert done.exit_code == 0, f"{done.output} {done.exception!r}"
    return done.stdout
