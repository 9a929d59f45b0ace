"""The verifiability ceiling: planted verifiers give ceilings in closed form, and what they rank last is reviewed."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from zlib import crc32

import numpy as np
import pytest
from click.testing import CliRunner

import r2med
from chat_server import ChatServer, Say
from planted import opened, write_task
from r2med.cli.main import app
from r2med.data.dataset import Collection
from r2med.data.run import Run
from r2med.diagnosis.verification import TaskVerification, VerificationStudy, verify
from r2med.pipeline.executor.local import Executor
from r2med.pipeline.loaded_runs import LoadedRun
from r2med.pipeline.spec import Call
from r2med.pipeline.stage import Context, Reranker, note_incomplete
from r2med.reviews.store import ReviewStore
from r2med.runs.ledger import Ledger

Score = Callable[[str, str], float]


@dataclass(frozen=True)
class Planted(Reranker):
    """A reranker that scores by a function of the ids of query and document, and fails for some queries."""

    score: Score
    name: str = "planted"
    failing: tuple[str, ...] = ()

    @property
    def spec(self) -> Call:
        return Call(self.name)

    def rerank(self, collection: Collection, run: Run, context: Context) -> Run:
        assert set(collection.documents.ids) == {name for _, row in run for name in row.documents}
        note_incomplete(self, dict.fromkeys(self.failing, "no reply"), len(run), context)
        return Run.from_lists({q: (row.documents, [self.score(q, d) for d in row.documents]) for q, row in run})


def knowing(relevant: Mapping[str, Sequence[str]], name: str = "planted", **scores: float) -> Planted:
    """A verifier that knows every relevant document, except for those whose scores are given."""
    return Planted(lambda query, document: scores.get(document, float(document in relevant[query])), name)


def gain(places: Sequence[int]) -> float:
    """DCG@10 of relevant documents of grade 1 in these places, from the definition."""
    return sum(1 / math.log2(place + 1) for place in places if place <= 10)


def best(count: int) -> float:
    """The same where they come first."""
    return gain(range(1, count + 1))


def planted(lists: Mapping[str, Sequence[str]], relevant: Mapping[str, Sequence[str]], system: str = "a") -> LoadedRun:
    """A run whose own scores are computed from the definition."""
    run = opened(lists, {query: dict.fromkeys(several, 1) for query, several in relevant.items()}, system)
    places = {q: [place for place, name in enumerate(lists[q], 1) if name in relevant[q]] for q in relevant}
    return replace(run, values={query: gain(places[query]) / best(len(relevant[query])) for query in relevant})


def measure(runs: Sequence[LoadedRun], *verifiers: Reranker, distractors: int = 100) -> TaskVerification:
    return verify(runs, verifiers, distractors, Executor())


LISTS = {
    "q1": ["x1", "r1", *[f"x{n}" for n in range(2, 40)]],
    "q2": [*[f"y{n}" for n in range(1, 9)], "s1", *[f"y{n}" for n in range(9, 40)]],
    "q3": [f"z{n}" for n in range(1, 41)],
}
RELEVANT = {"q1": ["r1", "r2", "r3"], "q2": ["s1"], "q3": ["t1", "t2"]}


def test_a_perfect_verifier_has_a_ceiling_of_1_and_the_parts_are_what_is_missing_and_what_stands_low() -> None:
    (row,) = measure([planted(LISTS, RELEVANT)], knowing(RELEVANT)).systems
    score = np.mean([gain([2]) / best(3), gain([9]), 0])
    reachable = np.mean([best(1) / best(3), 1, 0])  # with the relevant documents of the list first
    assert row.ceiling == (1, 1, 1)
    assert row.score.value == pytest.approx(score)
    assert row.distance.value == pytest.approx(1 - score)
    assert row.retrieval.value == pytest.approx(1 - reachable)
    assert row.verification.value == pytest.approx(reachable - score)
    assert row.distance.low < row.distance.value < row.distance.high


@pytest.mark.parametrize(("place", "part"), [(None, "retrieval"), (15, "verification")])
def test_it_says_in_which_part_a_task_fails(place: int | None, part: str) -> None:
    relevant = {f"q{n}": [f"r{n}"] for n in range(30)}
    lists = {query: [f"{query}-{n}" for n in range(20)] for query in relevant}
    for query in relevant if place else ():
        lists[query].insert(place, relevant[query][0])
    study = VerificationStudy([measure([planted(lists, relevant)], knowing(relevant))])
    assert [row.fails_in for row in study.tasks[0].systems] == [part]
    assert f"a on t: fails in {part}; 100.0 points to the ceiling of planted, 100.0" in study.sentences[0]


@pytest.mark.parametrize("guess", [lambda *pair: crc32(str(pair).encode()), lambda *_: 0.0])
def test_a_verifier_that_knows_nothing_has_the_ceiling_of_chance(guess: Score) -> None:
    """With R of n documents relevant, each place has a gain with a probability of R/n; ties are no advantage."""
    queries, count, pool = 2000, 3, 23
    relevant = {f"q{n}": [f"r{m}" for m in range(count)] for n in range(queries)}
    lists = {query: [f"x{m}" for m in range(50)] for query in relevant}
    result = measure([planted(lists, relevant)], Planted(guess), distractors=pool - count)
    values = np.array([row.ceiling for row in result.queries])
    chance = count / pool * best(10) / best(count)
    assert abs(values.mean() - chance) < 4 * values.std() / math.sqrt(queries)
    assert values.std() > 0.1, "orders differ from query to query"
    assert result.distractors == pool - count


def test_distractors_are_the_first_others_of_all_systems_in_turn() -> None:
    every = ["a1", "a2", "a3", "b1", "b2", "r", "s"]
    relevant = {"q": ["r", "s"], "other": ["r"]}
    first = planted({"q": ["a1", "r", "a2", "a3"], "other": every}, relevant)
    second = planted({"q": ["b1", "a1", "b2"], "other": every}, relevant, "b")
    pools: list[set[str]] = []

    class Looking(Planted):
        def rerank(self, collection: Collection, run: Run, context: Context) -> Run:
            pools.append(set(run["q"].documents))
            return super().rerank(collection, run, context)

    measure([first, second], Looking(lambda *_: 0.0), distractors=3)
    assert pools == [{"r", "s", "a1", "b1", "a2"}]


def test_only_what_every_verifier_ranks_last_is_suspected() -> None:
    lists = {"q1": [f"x{n}" for n in range(20)], "q2": [f"y{n}" for n in range(20)]}
    relevant = {"q1": ["r1", "wrong1"], "q2": ["r2", "wrong2"]}
    run = planted(lists, relevant)
    one = knowing(relevant, "one", wrong1=-1, wrong2=-1)
    two = knowing(relevant, "two", wrong1=-1)
    assert [(pair.query, pair.document) for pair in measure([run], one).unverified] == [
        ("q1", "wrong1"),
        ("q2", "wrong2"),
    ]
    assert measure([run], one, two).unverified == [("q1", "wrong1", 1.0)]
    assert measure([run], knowing(relevant)).unverified == []
    # In the middle of the distractors is not last.
    middle = knowing(relevant, "middle", wrong1=0.5, **{f"x{n}": n / 20 for n in range(20)})
    assert measure([run], one, middle).unverified == []


def test_queries_that_a_verifier_could_not_order_are_left_out_and_suspect_nothing() -> None:
    run = planted(LISTS, RELEVANT)
    sound, failing = knowing(RELEVANT, "sound", t1=-1), replace(knowing(RELEVANT, "failing", t1=-1), failing=("q3",))
    result = measure([run], sound, failing)
    assert [row.queries for row in result.systems] == [3, 2]
    assert result.systems[1].score.value == pytest.approx((gain([2]) / best(3) + gain([9])) / 2)
    assert result.left_out == {"sound": {}, "failing": {"q3": "no reply"}}
    assert result.unverified == []
    with pytest.raises(r2med.errors.R2medError, match="failing ordered no pool of t: no reply"):
        measure([run], replace(failing, failing=tuple(RELEVANT)))


MODULE = """
class Strong:
    def score(self, query, documents):
        return [-1.0 if "mistake" in text else float(f"proves {query}" in text) for text in documents]

class Weak:
    def score(self, query, documents):
        return [float(f"proves {query}" in text) for text in documents]

class Broken:
    def score(self, query, documents):
        raise ValueError("out of tune")
"""
TOPICS = ("gout", "scurvy", "rickets", "anthrax")


@pytest.fixture
def task(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A task with a run of bm25, one positive of which does not belong, in a folder with verifiers."""
    documents = {f"{topic}-{n}": f"{topic} number {n} of many" for topic in TOPICS for n in range(15)}
    documents |= {f"{topic}-proof": f"this passage proves {topic}" for topic in TOPICS}
    documents["gout-mistake"] = "this mistake proves gout"
    relevant = {topic: [f"{topic}-proof"] for topic in TOPICS} | {"gout": ["gout-proof", "gout-mistake"]}
    write_task(tmp_path / "ward", documents, {topic: topic for topic in TOPICS}, relevant)
    (tmp_path / "verifiers.py").write_text(MODULE)
    monkeypatch.chdir(tmp_path)
    r2med.evaluate("bm25", tmp_path / "ward")
    return str(tmp_path / "ward")


def call(*words: str, code: int = 0) -> str:
    done = CliRunner().invoke(app, list(words), env={"COLUMNS": "200", "NO_COLOR": "1"})
    assert done.exit_code == code, done.output + repr(done.exception)
    return done.stdout if code == 0 else str(done.exception) + done.output


def test_the_queue_has_exactly_the_positive_that_was_ranked_last(task: str) -> None:
    advice = f"r2med diagnose SYSTEM --verify RERANKER --tasks {task}"
    assert advice in call("review", "new", "early", "--from", task, "--queue", "unverified", code=1)
    with Ledger() as ledger:
        before = [entry.id for entry in ledger.entries()]
    shown = call("diagnose", "bm25", "--verify", "verifiers:Strong", "--tasks", task)
    assert "(oracle)" in shown
    assert "1 document; r2med review new --queue unverified has them judged" in shown
    with Ledger() as ledger:
        assert [entry.id for entry in ledger.entries()] == before, "an oracle is not a run"
    call("review", "new", "late", "--from", task, "--queue", "unverified", "--overlap", "100%")
    with ReviewStore.open("late") as store:
        assert [(item.document, item.drawn) for item in store.items()] == [("gout-mistake", "unverified")]
    # The last verification counts: a second verifier puts the document first.
    call("diagnose", "bm25", "--verify", "verifiers:Strong", "verifiers:Weak", "--tasks", task)
    assert advice in call("review", "new", "never", "--from", task, "--queue", "unverified", code=1)


def test_tables_json_markdown_and_latex_show_the_same_ceiling(task: str) -> None:
    words = ("diagnose", "bm25", "--verify", "verifiers:Weak", "--tasks", task)
    study = json.loads(call(*words, "--json"))
    (row,) = study["overall"]
    assert study["oracle"] is True
    assert row["ceiling"] == {"mean": 1, "low": 1, "high": 1}
    assert row["distance"]["mean"] == pytest.approx(row["retrieval"]["mean"] + row["verification"]["mean"])
    for form in ("md", "latex"):
        text = call(*words, "--format", form)
        assert "100.00" in text
        assert f"{100 * row['score']['mean']:.2f}" in text
        assert "(oracle)" in text
        assert "A ceiling, not a system." in text


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--verify", "bm25"), r"bm25 is not a reranker \(retriever\); --verify takes one that reads documents"),
        (("--verify", "bm25 >> bge-reranker"), r"is not a reranker \(retriever >> reranker\)"),
        (("--verify", "bge-rerankr"), "unknown stage 'bge-rerankr'; did you mean bge-reranker"),
        (("--verify", "verifiers:Strong", "--tasks", "sample/Biology"), "bm25 has no run on sample/Biology"),
        (("--verify", "verifiers:Broken"), "verifiers:Broken ordered no pool of .*ward: .*ValueError: out of tune"),
        (("--verify", "verifiers:Weak", "--gap", "--dry-run"), "--dry-run goes with --verify alone"),
        (("--format", "md"), "--format goes with --verify alone"),
        (("--verify", "verifiers:Weak", "--format", "md", "--json"), "--json and --format exclude each other"),
        (("--verify", "verifiers:Weak", "--distractors", "0"), "0 is not in the range x>=1"),
    ],
)
def test_bad_input_is_one_line(task: str, words: tuple[str, ...], message: str) -> None:
    text = call(
        "diagnose",
        "bm25",
        *words,
        code=2 if "goes with" in message or "exclude" in message or "range" in message else 1,
    )
    assert re.search(message, text)


def test_a_task_that_lost_its_judgements_is_one_line(task: str) -> None:
    (Path(task) / "qrels.jsonl").unlink()
    assert "qrels" in call("diagnose", "bm25", "--verify", "verifiers:Weak", "--tasks", task, code=1)


def test_a_model_is_asked_once_for_each_pair_however_often_it_is_stopped(task: str) -> None:
    def grade(prompt: str, nth: int) -> Say:
        return Say(text=f"Grade: {9 if 'proves' in prompt else 1}")

    with ChatServer(grade) as server:
        words = ("diagnose", "bm25", "--verify", f"pointwise(tiny@{server.url}, mode=grade)", "--tasks", task)
        plan = json.loads(call(*words, "--dry-run", "--json"))
        assert server.attempts == 0
        (forecast,) = plan[0]["tasks"][0]["forecast"].values()
        stopped = call(*words, "--max-tokens", "10700", "--concurrency", "1", code=1)
        assert "run the same command to go on" in stopped
        some = server.attempts
        study = json.loads(call(*words, "--json"))
        pairs = sum(15 + len(several) for several in [["p"], ["p"], ["p"], ["p", "m"]])
        assert 0 < some < server.attempts == pairs <= forecast["requests at most"]
        assert max(server.asked.values()) == 1
    assert study["overall"][0]["ceiling"]["mean"] == 1
    assert study["tasks"][0]["left_out"] == {study["overall"][0]["verifier"]: {}}
