"""A build without any language model: its pool at the review desk, people's grades as its judgements."""

from __future__ import annotations

import html
import ipaddress
import json
import os
import re
import shutil
import socket
import subprocess
import sys
import time
import urllib.parse
import urllib.request
from contextlib import contextmanager
from pathlib import Path

import polars as pl
import pytest
from click.testing import CliRunner

from building import sample, write_rows, write_tables
from r2med.cli.main import app
from r2med.construction.builder import Builder, init
from r2med.data.loader import load
from r2med.errors import R2medError
from r2med.measure.agreement import Ratings, coefficients
from r2med.reviews.batches import Dealer
from r2med.reviews.rows import AGREED, DraftDecision, Ruling, review_names
from r2med.reviews.store import ReviewStore

HOOK = """
import sys

def watch(event, arguments, log=LOG):
    if event in ("socket.connect", "socket.bind", "socket.sendto") and isinstance(arguments[1], tuple):
        host = arguments[1][0]
    elif event == "socket.getaddrinfo":
        host = arguments[0]
    else:
        return
    log(event, host)

sys.addaudithook(watch)
"""
SOURCE = Path(__file__).parents[2] / "src"
watched: list[tuple[str, str]] = []
exec(HOOK, {"LOG": lambda *seen: watched.append(seen)})  # a hook cannot be removed: it lasts as long as the process


def run(*words: object, status: int = 0) -> str:
    done = CliRunner().invoke(app, [*map(str, words)])
    assert done.exit_code == status, (words, done.output)
    return done.stdout if status == 0 else str(done.exception)


def write_plan(folder: Path, review: str = "ward-7", **changes: dict[str, object]) -> Path:
    """The sample's cases and documents with a plan in which no model is named."""
    init(folder, review)
    dataset = sample()
    write_rows(
        folder / "questions.jsonl",
        [{"id": n, "question": text, "answer": dataset.gold.answers[n]} for n, text in dataset.collection.queries],
    )
    rows = [{"id": name, "text": text} for name, text in dataset.collection.documents]
    write_rows(folder / "documents.jsonl", rows)
    tables: dict[str, dict[str, object]] = {
        "task": {"name": "ward-task", "licence": "CC0"},
        "documents": {"path": "documents.jsonl"},
        "chunk": {"tokens": 0},
        "mine": {"systems": ["bm25", "wordllama"], "depth": 3},
        "people": {"review": review, "overlap": 0.3},
    }
    for name, settings in changes.items():
        tables[name] = tables.get(name, {}) | settings
    write_tables(folder, tables)
    return folder


@pytest.fixture(autouse=True)
def own_home(tmp_path, monkeypatch):
    monkeypatch.setenv("R2MED_HOME", str(tmp_path / "home"))


@pytest.fixture
def waiting(tmp_path):
    """A build whose pool waits at the desk."""
    folder = write_plan(tmp_path / "ward")
    built = Builder(folder).run()
    assert built.task is None
    assert built.people.open == built.people.pairs
    return folder


def grade_all(review: str, person: str, grade, most: int = 10_000) -> list[int]:
    """Have a person judge what they are dealt, by the store; the items in order."""
    items = []
    with ReviewStore.open(review) as store:
        store.rows("PRAGMA synchronous = OFF")
        reviewer, dealer = store.add_reviewer(person), Dealer(store)
        while len(items) < most and (place := dealer.next_open(reviewer)) is not None:
            item = store.item(place.item)
            value = grade(store.question(item.question).query, item.document)
            draft = DraftDecision("graded", value) if value is not None else DraftDecision("unsure")
            store.record(reviewer.id, place.position, draft, f"t{place.position}")
            items.append(place.item)
    return items


def expert(query: str, document: str) -> int:
    return 3 if document in sample().gold.qrels.get(query, {}) else 0


@contextmanager
def desk_server(place: Path):
    """The real server, whose every address is written down; its port."""
    place.mkdir(exist_ok=True)
    log = f'lambda *seen: print(*seen, sep="\\t", file=open({str(place / "seen.tsv")!r}, "a"))'
    (place / "sitecustomize.py").write_text(HOOK.replace("LOG", f"({log})"))
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [sys.executable, "-m", "r2med", "serve", "--port", str(port), "--token", "of-the-owner"]
    environment = os.environ | {"PYTHONPATH": f"{place}{os.pathsep}{SOURCE}"}
    with subprocess.Popen(command, env=environment, stderr=subprocess.DEVNULL) as server:
        try:
            for _ in range(600):
                with socket.socket() as tried:
                    if tried.connect_ex(("127.0.0.1", port)) == 0:
                        break
                assert server.poll() is None
                time.sleep(0.05)
            yield port
        finally:
            server.kill()


class Reader:
    """Somebody with a browser who knows the sample by heart, and goes by nothing but the page."""

    def __init__(self, port: int, name: str, errs: tuple[tuple[str, str], ...] = ()) -> None:
        self.url, self.errs = f"http://127.0.0.1:{port}", errs
        self.open = urllib.request.build_opener(urllib.request.HTTPCookieProcessor()).open
        link = run("review", "invite", "ward-7", name, "--url", self.url).split()[0]
        self.page = self.open(link).read().decode()
        dataset = sample()
        self.texts = [{_bare(text): name for name, text in part} for part in self._parts(dataset)]

    @staticmethod
    def _parts(dataset):
        return dataset.collection.queries, dataset.collection.documents

    def judge(self, most: int = 10_000) -> list[tuple[str, str]]:
        """Judge until the desk is empty; the pairs in order."""
        pairs = []
        while len(pairs) < most:
            with self.open(f"{self.url}/review/ward-7") as reply:
                address, page = reply.url, reply.read().decode()
            if address.endswith("/done"):
                break
            seen = _bare(page)
            query, document = (next(name for text, name in texts.items() if text in seen) for texts in self.texts)
            fields = dict(re.findall(r'<input type="hidden" name="(\w+)" value="([^"]*)"', page.partition("decide")[2]))
            grade = 0 if (query, document) in self.errs else expert(query, document)
            form = urllib.parse.urlencode(fields | {"say": grade}).encode()
            self.open(urllib.request.Request(address, form, {"Origin": self.url})).close()
            pairs.append((query, document))
        return pairs


def _bare(text: str) -> str:
    return "".join(html.unescape(re.sub(r"<[^>]*>", "", text)).split())


def test_people_make_a_task_through_the_desk_and_nothing_leaves_the_machine(tmp_path):
    folder, place = write_plan(tmp_path / "ward"), tmp_path / "server"
    watched.clear()
    foreseen = json.loads(run("build", "run", folder, "--dry-run", "--json"))
    assert [(step["step"], step["requests"]) for step in foreseen] == [("judge", 0)]
    assert review_names() == []
    first = json.loads(run("build", "run", folder, "--json"))
    assert first["task"] is None
    assert 50 < first["people"]["pairs"] == first["people"]["open"] <= foreseen[0]["items"]
    assert "no person has graded a pair" in run("build", "run", folder, "--partial", status=1)
    with desk_server(place) as port:
        ada = Reader(port, "Ada")
        early = ada.judge(10)
    with ReviewStore.open("ward-7") as store:
        agreed = {
            (store.question(item.question).query, item.document) for item in store.items() if item.drawn == AGREED
        }
    assert len(agreed) > 10
    assert set(early) <= agreed
    # The server was killed. What there is makes a task, and says how little it is.
    assert json.loads(run("build", "run", folder, "--json"))["task"] is None
    part = json.loads(run("build", "run", folder, "--partial", "--json"))
    assert part["people"]["labelled"] == 10
    assert "Labels were given by 1 person (Ada)" in (folder / "task" / "README.md").read_text()
    truth = sample().gold.qrels
    right = {pair for pair in early if expert(*pair)}
    assert positives(folder) == right
    wrong = tuple(sorted(set(truth_pairs(truth)) - set(early)))
    with desk_server(place) as port:
        Reader(port, "Ben", wrong).judge(20)
        ada = Reader(port, "Ada")
        ada.judge()
        Reader(port, "Ben", wrong).judge()
    people = json.loads(run("build", "status", folder, "--json"))["people"]
    assert (people["open"], people["labelled"], people["people"]) == (0, people["pairs"], ["Ada", "Ben"])
    agreement = json.loads(run("review", "agreement", "ward-7", "--json"))
    with ReviewStore.open("ward-7") as store:
        assert (agreement["at_random"], agreement["items"]) == (True, store.shared_count)
    whole = json.loads(run("build", "run", folder, "--json"))
    assert whole["people"] == people
    check_task(folder, people)
    made = (folder / "task" / "build.json").stat().st_mtime_ns
    run("build", "run", folder)
    assert (folder / "task" / "build.json").stat().st_mtime_ns == made
    hosts = {host for _, host in watched}
    hosts |= {line.split("\t")[1] for line in (place / "seen.tsv").read_text().splitlines()}
    assert "127.0.0.1" in hosts
    assert all(host == "localhost" or ipaddress.ip_address(host).is_loopback for host in hosts), hosts


def truth_pairs(qrels):
    return [(query, document) for query, judged in qrels.items() for document in judged]


def positives(folder: Path) -> set[tuple[str, str]]:
    qrels = load(folder / "task").gold.qrels
    return {(query, document) for query, judged in qrels.items() for document, grade in judged.items() if grade > 0}


def check_task(folder: Path, people) -> None:
    """What came of two people, of whom one overlooks what is relevant: by their labels as the review exports them."""
    out = folder.parent / "labels.csv"
    run("review", "export", "ward-7", "--to", "csv", "--out", out)
    given = pl.read_csv(out).filter(pl.col("given").is_not_null())
    grades: dict[tuple[str, str], list[int]] = {}
    for query, document, grade in given.select("query_id", "doc_id", "given").iter_rows():
        grades.setdefault((query, document), []).append(grade)
    assert len(grades) == people["pairs"]
    assert positives(folder) == {pair for pair, both in grades.items() if sum(both) / len(both) >= 2}
    frame = pl.read_parquet(folder / "task" / "judgements.parquet")
    kept = set(load(folder / "task").collection.queries.ids)
    between = {pair for pair, both in grades.items() if sorted(both) == [0, 3]}
    assert between
    banded = frame.filter(pl.col("verdict") == "band").select("query_id", "passage_id")
    assert set(banded.iter_rows()) == between
    assert set(frame["judge"]) == {"Ada", "Ben"}
    pairs = [both for (query, _), both in grades.items() if query in kept]
    table = [[float(grade) for grade in (*both, *[float("nan")] * (2 - len(both)))] for both in pairs]
    alpha = coefficients(Ratings.of(table, ["q"] * len(table)), ("alpha-ordinal",))["alpha-ordinal"].value
    card = (folder / "task" / "README.md").read_text()
    twice = sum(len(both) > 1 for both in pairs)
    assert f"Labels were given by 2 people (Ada, Ben), who read the gold answer: {len(pairs)} of {len(pairs)}" in card
    assert f"{twice} of them by two or more (Krippendorff's alpha {alpha:.2f})" in card
    assert "language models" not in card.partition("## Settings")[0]
    health = json.loads(run("build", "check", folder, "--json"))
    assert health["people"] == ["Ada", "Ben"]
    assert health["by_two"] == twice
    assert "people judged" in run("build", "check", folder, "--reask", "10%", status=1)
    assert "judgements.parquet" in run("build", "publish", folder, "--repo", "ward/task", "--dry-run")
    assert "fine; 0 errors, 0 warnings" in run("tasks", "validate", folder / "task")
    result = json.loads(run("run", "bm25", "--tasks", folder / "task", "--json"))["results"][0]
    assert result["metrics"]["nDCG@10"] > 0
    audit = json.loads(
        run("audit", folder / "task", "--labels", "task", "review:ward-7", "--systems", "bm25", "--json")
    )
    agreed = sum(len(set(both)) == 1 for both in pairs)  # of two who differ there is no majority
    assert [labels["judged"] for labels in audit["sets"]] == [len(pairs), agreed]
    best = json.loads(run("build", "show", folder, sorted(kept)[0], "--json"))["candidates"][0]
    assert best["verdict"] == "positive"
    assert {opinion["judge"] for opinion in best["opinions"]} <= {"Ada", "Ben"}


def test_what_all_members_found_is_dealt_first_to_everybody_and_the_rest_is_still_dealt(waiting):
    with ReviewStore.open("ward-7") as store:
        agreed = {item.number for item in store.items() if item.drawn == AGREED}
        shared = {item.number for item in store.items() if item.shared}
        for item in store.items():
            assert (item.drawn == AGREED) == (set(item.facts["ranks"]) == {"bm25", "wordllama"})
        assert round(0.3 * store.item_count) == len(shared)
        count, total = len(agreed), store.item_count
    assert 0 < count < total
    ada = grade_all("ward-7", "Ada", expert, 15)
    ben = grade_all("ward-7", "Ben", expert)
    ada += grade_all("ward-7", "Ada", expert)
    assert set(ada[:15]) <= agreed
    for items in (ada, ben):
        flags = [item in agreed for item in items]
        assert flags == sorted(flags, reverse=True)
        assert shared <= set(items)
    assert sorted({*ada, *ben}) == list(range(1, total + 1))


def test_unsure_people_and_models_give_no_label_and_a_ruling_goes_before_grades(waiting):
    with ReviewStore.open("ward-7") as store:
        first = store.items()[0]
        query = store.question(first.question).query
        model = store.add_reviewer("a-model", kind="model")
        store.record_all(model.id, [(item.number, DraftDecision("graded", 3)) for item in store.items()])
    assert Builder(waiting).run().people.labelled == 0
    doubtful = (query, store_document(first.number + 1))
    grade_all("ward-7", "Ada", lambda q, d: None if (q, d) == doubtful else expert(q, d))
    with ReviewStore.open("ward-7") as store:
        judge = store.add_reviewer("Eve", role="adjudicator")
        grade = 0 if expert(query, first.document) else 3
        store.rule(Ruling(0, judge.id, first.number, grade, "slip", None, "", None, ""), "token-0001")
    built = Builder(waiting).run()
    assert built.people.open == 0
    assert built.people.labelled == built.people.pairs - 1
    assert {count.step: count for count in built.counts}["judge"].dropped == {"people are unsure": 1}
    frame = pl.read_parquet(waiting / "task" / "judgements.parquet")
    verdicts = {(q, d): verdict for q, d, verdict in frame.select("query_id", "passage_id", "verdict").iter_rows()}
    assert verdicts.pop(doubtful) == "unjudged"
    assert verdicts.pop((query, first.document)) == ("positive" if grade == 3 else "negative")
    assert verdicts == {pair: "positive" if expert(*pair) else "negative" for pair in verdicts}


def store_document(number: int) -> str:
    with ReviewStore.open("ward-7") as store:
        return store.item(number).document


def test_labels_outlive_the_build_and_its_changes_that_keep_the_pool(waiting):
    grade_all("ward-7", "Ada", expert)
    first = Builder(waiting).run()
    labels = positives(waiting)
    assert first.task
    assert labels
    # A build that lost its store, and one whose cuts or depth changed, asks nobody again.
    (waiting / "build.sqlite").unlink()
    again = Builder(waiting).run()
    assert (again.people, positives(waiting)) == (first.people, labels)
    write_plan_again(waiting, mine={"depth": 2})
    smaller = Builder(waiting).run()
    assert smaller.people.open == 0
    assert smaller.people.pairs < first.people.pairs
    assert positives(waiting) < labels
    # A label that changes makes the task again.
    with ReviewStore.open("ward-7") as store:
        store.undo(store.reviewer("Ada").id, "undo-0001")
    assert Builder(waiting).run(partial=True).people.labelled >= smaller.people.labelled - 1


def write_plan_again(folder: Path, **changes) -> None:
    other = write_plan(folder.parent / "other", **changes)
    shutil.copy(other / "plan.toml", folder / "plan.toml")
    shutil.rmtree(other)


def test_a_shared_pair_waits_for_all_at_work_until_one_is_withdrawn(waiting):
    run("review", "invite", "ward-7", "Ben")
    grade_all("ward-7", "Ben", expert, 3)
    run("review", "invite", "ward-7", "Ada")
    run("review", "invite", "ward-7", "a person who never comes")
    grade_all("ward-7", "Ada", expert)
    assert Builder(waiting).run().people.open > 0
    run("review", "withdraw", "ward-7", "Ben")
    grade_all("ward-7", "Ada", expert)
    assert Builder(waiting).run().people.open == 0


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"judge": {"models": ["gpt-4o"]}}, "[judge] models must be empty where [people] judge; a model labels the"),
        ({"judge": {"first": "gpt-4o"}}, "[judge] first is for models, and [people] judge"),
        ({"judge": {"samples": 2}}, "[judge] samples is for models, and [people] judge"),
        ({"judge": {"scale": [0, 4]}}, "[judge] scale is for models, and [people] judge"),
        ({"select": {"answers": 3.0}}, "[select] supports must be 3 as answers: [people] give one grade"),
        ({"people": {"review": "../ward"}}, "[people] review '../ward' is not a name for a review"),
        ({"people": {"overlap": 2.0}}, "[people] overlap must be"),
        ({"people": {"review": ""}}, "[judge] models must name a model, or [people] a review"),
    ],
)
def test_a_plan_that_contradicts_itself_is_refused_with_file_line_and_key(tmp_path, changes, message):
    folder = write_plan(tmp_path / "ward")
    write_plan_again(folder, **changes)
    with pytest.raises(R2medError, match=r"plan\.toml:\d+: " + re.escape(message)) as error:
        Builder(folder)
    assert "\n" not in str(error.value)


def refusal(folder: Path) -> str:
    with pytest.raises(R2medError) as error:
        Builder(folder).run()
    assert "\n" not in str(error.value)
    return str(error.value)


def test_a_review_that_does_not_fit_the_build_is_refused_in_one_line(waiting, tmp_path):
    grade_all("ward-7", "Ada", expert)
    documents, guideline = (waiting / "documents.jsonl").read_text(), (waiting / "guideline.md").read_text()
    (waiting / "documents.jsonl").write_text(documents.replace('"text": "', '"text": "Revised in May. '))
    assert re.search(r": \d+ of \d+ pairs are not in the review ward-7 as they are now, the first: ", refusal(waiting))
    (waiting / "documents.jsonl").write_text(documents)
    write_plan_again(waiting, mine={"depth": 6})
    assert "pairs are not in the review ward-7 as they are now" in refusal(waiting)
    write_plan_again(waiting)
    (waiting / "guideline.md").write_text(guideline.replace("arrive at the answer", "guess the answer"))
    assert "guideline.md: changed since the review ward-7 began" in refusal(waiting)
    (waiting / "guideline.md").write_text(guideline)
    assert Builder(waiting).run().task
    # Reviews of another build, and of something that is no build.
    other = write_plan(tmp_path / "other")
    rows = [json.loads(line) for line in (other / "questions.jsonl").read_text().splitlines()]
    write_rows(other / "questions.jsonl", [row | {"id": f"x-{row['id']}"} for row in rows])
    assert f"the review ward-7 belongs to {waiting}; name another in [people] review" in refusal(other)
    run("review", "new", "pilot", "--from", "sample/MedQA-Diag", "--items", "5")
    assert "the review pilot belongs to sample/MedQA-Diag" in refusal(write_plan(tmp_path / "third", "pilot"))


def test_init_writes_a_plan_for_people_that_runs_as_it_is(tmp_path):
    assert "not a name for a review" in run("build", "init", tmp_path / "bad", "--people", "ward 7", status=1)
    assert not (tmp_path / "bad").exists()
    run("build", "init", tmp_path / "ward", "--people", "ward-8")
    built = Builder(tmp_path / "ward").run()
    assert built.people.review == "ward-8"
    assert built.people.open == built.people.pairs > 0
    assert (
        "--partial does not go with --dry-run"
        in CliRunner().invoke(app, ["build", "run", str(tmp_path / "ward"), "--partial", "--dry-run"]).stderr
    )
