"""A review that decides which system is better: what it deals to whom, when it stops, what it says, and to whom."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

import r2med
from r2med.cli.main import app
from r2med.errors import R2medError
from r2med.measure.metrics import Measure
from r2med.measure.score import score
from r2med.reviews.access import invite, withdraw
from r2med.reviews.deciding import Decider, DecidingDealer
from r2med.reviews.desk import Desk
from r2med.reviews.rows import DraftDecision
from r2med.reviews.sampling import ReviewSettings, new_review
from r2med.reviews.store import ReviewStore
from r2med.runs.ledger import Ledger

TASK, PAIR = "sample/Biology", ("bm25", "wordllama")


@pytest.fixture
def ledger():
    r2med.evaluate([*PAIR, "bm25-classic"], TASK)
    with Ledger() as opened:
        yield opened


def make(ledger: Ledger, name: str = "which", systems=PAIR, **settings) -> ReviewStore:
    store, _ = new_review(ledger, name, [TASK, *systems], ReviewSettings(queue="decide", fresh=True, **settings))
    store.rows("PRAGMA synchronous = OFF")
    return store


def grade(store: ReviewStore, number: int) -> int:
    """The grade by the task's own labels."""
    return 3 if store.item(number).facts["label"] else 0


def judge(store: ReviewStore, *names: str, most: int = 10_000) -> dict[str, list[int]]:
    """Have people judge in turns by the task's own labels; what each was dealt, in order."""
    dealer, people = DecidingDealer(store), [store.add_reviewer(name) for name in names]
    dealt: dict[str, list[int]] = {name: [] for name in names}
    for turn in range(most):
        person = people[turn % len(people)]
        if (place := dealer.next_open(person)) is None:
            break
        store.record(person.id, place.position, DraftDecision("graded", grade(store, place.item)), f"t{place.position}")
        dealt[person.name].append(place.item)
    return dealt


def call(*words: str, code: int = 0) -> str:
    done = CliRunner().invoke(app, ["review", *words])
    assert done.exit_code == code, done.output + repr(done.exception)
    return done.stdout if code == 0 else str(done.exception) + done.output


def differences(ledger: Ledger, store: ReviewStore) -> float:
    """The difference of the two systems under the full labels of the pool."""
    qrels: dict[str, dict[str, int]] = {}
    for item in store.items():
        qrels.setdefault(store.question(item.question).query, {})[item.document] = int(bool(item.facts["label"]))
    runs = {entry.name: ledger.run(entry) for entry in ledger.entries() if entry.task == TASK}
    a, b = (score(runs[name], qrels, [Measure("nDCG", 10)]).mean(Measure("nDCG", 10)) for name in PAIR)
    return a - b


def test_it_stops_when_it_is_decided_says_who_is_better_and_asks_for_what_tells_most(ledger):
    with make(ledger, overlap=0.0, error=0.01) as store:
        first = Decider(store).next_items()[0]
        dealt = judge(store, "Ada")["Ada"]
        decision = Decider(store).report()
        assert dealt[0] == first
        assert decision.decided
        assert decision.labels == len(dealt) == len(set(dealt)) <= decision.pool == len(store.items())
        assert decision.error <= 0.01
        truth = differences(ledger, store)
        ahead = decision.pairs[0].difference
        assert ahead * truth > 0 or decision.pairs[0].alike > decision.pairs[0].ahead
        dealer = DecidingDealer(store)
        assert dealer.next_open(store.reviewer("Ada")) is None
        assert dealer.next_open(store.add_reviewer("Ben")) is None
        store.undo(store.reviewer("Ada").id, "back")
        assert dealer.next_open(store.reviewer("Ada")).item == dealt[-1]


def test_stopped_and_continued_it_deals_the_same(ledger):
    with make(ledger, "whole", overlap=0.0, repeat=0.2) as whole:
        dealt = judge(whole, "Ada", most=12)["Ada"]
    with make(ledger, "parts", overlap=0.0, repeat=0.2):
        pass
    parts = []
    for _ in range(6):
        with ReviewStore.open("parts") as store:
            parts += judge(store, "Ada", most=2)["Ada"]
    assert parts == dealt


def test_two_people_share_what_all_judge_and_divide_the_rest_and_repeats_come_later(ledger):
    with make(ledger, overlap=0.3, repeat=0.15, error=0.001) as store:
        dealt = judge(store, "Ada", "Ben", most=60)
        shared = {item.number for item in store.items() if item.shared}
        firsts = {name: set(items) for name, items in dealt.items()}
        assert firsts["Ada"] & firsts["Ben"] <= shared
        assert len((firsts["Ada"] ^ firsts["Ben"]) & shared) <= 2, "at the end one may be behind"
        rows = store.rows("SELECT reviewer, item, position, again FROM deal ORDER BY reviewer, position")
        repeats = [(who, item, place) for who, item, place, again in rows if again]
        assert repeats
        first = {(who, item): place for who, item, place, again in rows if not again}
        assert all(place - first[who, item] >= 10 for who, item, place in repeats)
        for name in dealt:
            assert len(dealt[name]) - len(firsts[name]) == sum(who == store.reviewer(name).id for who, *_ in repeats)


def test_what_somebody_who_is_withdrawn_holds_goes_to_others_and_models_do_not_count(ledger):
    with make(ledger, overlap=0.0) as store:
        invite(store, "Ada")
        dealer, ada = DecidingDealer(store), store.reviewer("Ada")
        held = dealer.next_open(ada).item
        assert dealer.next_open(store.add_reviewer("Ben")).item != held
        withdraw(store, "Ada")
        assert dealer.next_open(store.add_reviewer("Eve")).item == held
        model = store.add_reviewer("m", "model")
        store.record_all(model.id, [(item.number, DraftDecision("graded", 3)) for item in store.items()])
        assert Decider(store).report().labels == 0


def test_nothing_on_the_desk_tells_where_a_passage_is_from_or_how_many_are_left(ledger):
    with make(ledger) as store:
        judge(store, "Ada", most=3)
        desk, ada = Desk(store), store.reviewer("Ada")
        card = desk.card(ada, 1)
        assert card["left"] is None
        assert "sources" not in [*card["hidden"], *card["revealed"]]
        with pytest.raises(R2medError, match="cannot be shown"):
            desk.reveal(ada, 1, "sources", ruling=False)


def test_labels_of_the_task_count_unless_it_is_fresh(ledger):
    call("new", "given", "--from", TASK, *PAIR, "--queue", "decide")
    with ReviewStore.open("given") as given, make(ledger) as fresh:
        assert all(item.facts["label"] is None for item in given.items())
        assert len(given.items()) < len(fresh.items())
        relevant = sum(gains[0] for _, gains in given.project.rule.given)
        qrels = r2med.load(TASK).gold.qrels
        assert relevant == sum(grade > 0 for judged in qrels.values() for grade in judged.values())
        store_truth = score_of_task(ledger)
        model = given.add_reviewer("Ada")
        given.record_all(model.id, [(item.number, DraftDecision("graded", 0)) for item in given.items()])
        assert Decider(given).report().means == pytest.approx(store_truth)


def score_of_task(ledger: Ledger) -> list[float]:
    qrels = r2med.load(TASK).gold.qrels
    runs = {entry.name: ledger.run(entry) for entry in ledger.entries() if entry.task == TASK}
    return [score(runs[name], qrels, [Measure("nDCG", 10)]).mean(Measure("nDCG", 10)) for name in PAIR]


def test_the_owner_sees_who_leads_and_three_systems_are_compared_in_pairs(ledger):
    options = ("--queue", "decide", "--fresh", "--json")
    done = json.loads(call("new", "three", "--from", TASK, *PAIR, "bm25-classic", *options))
    decision = done["decision"]
    assert len(decision["pairs"]) == 3
    assert (decision["decided"], decision["labels"], decision["pool"]) == (False, 0, done["items"])
    assert 0 < decision["more"] <= decision["pool"]
    with ReviewStore.open("three") as store:
        judge(store, "Ada", "Ben")
    text = call("show", "three")
    assert "decided by" in text
    assert "P ahead" in text
    assert any("decided by" in note for note in json.loads(call("agreement", "three", "--json"))["notes"])
    assert json.loads(call("list", "--json"))[0]["decision"] is None


def test_wrong_input_is_one_line(ledger, tmp_path: Path):
    def new(*words: str) -> str:
        return call("new", "bad", "--queue", "decide", "--from", *words, code=1)

    assert "needs two systems at least, not bm25 alone" in new(TASK, "bm25")
    assert "--from names none" in new(TASK)
    assert "no run of 'minilm'" in new(TASK, "bm25", "minilm")
    assert "compares on one task, not on 2" in new(TASK, "sample/MedQA-Diag", *PAIR) or "no run" in new(
        TASK, "sample/MedQA-Diag", *PAIR
    )
    assert "nothing to decide" in new(TASK, "bm25", "bm25")
    assert "not by MAP@10" in new(TASK, *PAIR, "--measure", "MAP@10")
    assert "between 0 and 50%" in new(TASK, *PAIR, "--error", "50%")
    gold = tmp_path / "gold.tsv"
    gold.write_text("query-id\tcorpus-id\tscore\n")
    assert "does not go with" in new(TASK, *PAIR, "--gold", str(gold))


def test_runs_made_on_another_version_of_the_labels_are_refused(tmp_path: Path):
    folder = tmp_path / "task"
    folder.mkdir()
    texts = {f"d{n}": f"gums bleed {n} scurvy" for n in range(4)}
    (folder / "corpus.jsonl").write_text("".join(json.dumps({"id": d, "text": t}) + "\n" for d, t in texts.items()))
    (folder / "query.jsonl").write_text(json.dumps({"id": "q", "text": "why do gums bleed 1"}) + "\n")
    (folder / "qrels.jsonl").write_text(json.dumps({"q_id": "q", "p_id": "d1", "score": 1}) + "\n")
    r2med.evaluate([*PAIR], str(folder))
    (folder / "qrels.jsonl").write_text(json.dumps({"q_id": "q", "p_id": "d2", "score": 1}) + "\n")
    message = call("new", "bad", "--queue", "decide", "--from", str(folder), *PAIR, code=1)
    assert "\n" not in message.strip().splitlines()[0]
    assert "has changed since run" in message
