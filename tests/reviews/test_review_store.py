"""The store of a review keeps every decision, in order, and says what holds."""

from __future__ import annotations

import sqlite3
import stat
import threading
from contextlib import closing

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from r2med.errors import R2medError, StoreWarning
from r2med.reviews.access import invite, withdraw
from r2med.reviews.batches import Dealer
from r2med.reviews.rows import (
    ANSWER,
    GRADED,
    SKIPPED,
    UNSURE,
    DecisionConflict,
    DraftDecision,
    ProofSpan,
    Ruling,
    review_path,
)
from r2med.reviews.store import ReviewStore, create_review
from r2med.store.sqlite import DamagedError
from reviewing import make_project


@pytest.fixture
def store():
    with make_project() as made:
        yield made


@pytest.fixture
def ada(store):
    person = store.add_reviewer("Ada")
    assert Dealer(store).next_open(person) is not None
    return person


def graded(value: int, **more) -> DraftDecision:
    return DraftDecision(GRADED, value, **more)


def test_a_decision_is_a_row_with_everything_about_it_and_another_process_reads_it(store, ada):
    store.reveal(ada.id, 1, ANSWER)
    made = store.record(
        ada.id, 1, graded(2, span=ProofSpan(0, 7), note="see 2nd line", sentence=1, seconds=3.5), "t1", 0
    )
    with ReviewStore.open("pilot") as other:
        assert other.decisions() == [made]
    assert (made.grade, made.span, made.note, made.sentence, made.seconds) == (2, (0, 7), "see 2nd line", 1, 3.5)
    assert [each.what for each in made.revealed] == [ANSWER]
    assert made.item == store.dealt(ada.id, 1).item
    assert store.labels() == {"Ada": {made.item: 2}}


def test_the_same_form_sent_twice_is_one_row(store, ada):
    first = store.record(ada.id, 1, graded(2), "t1", 0)
    assert store.record(ada.id, 1, graded(2), "t1", 0) == first
    with pytest.raises(DecisionConflict):
        store.record(ada.id, 1, graded(3), "t1", 0)
    assert store.undo(ada.id, "z1") == store.undo(ada.id, "z1")
    assert len(store.decisions()) == 2


def test_a_second_tab_is_told_that_the_item_was_decided_meanwhile(store, ada):
    store.record(ada.id, 1, graded(2), "t1", 0)
    with pytest.raises(DecisionConflict):
        store.record(ada.id, 1, graded(0), "t2", 0)
    held = store.standing_at(ada.id, 1)
    assert held.grade == 2
    assert store.record(ada.id, 1, graded(0), "t3", held.id).grade == 0


@settings(max_examples=5, deadline=None)
@given(st.lists(st.one_of(st.tuples(st.integers(1, 8), st.integers(0, 3)), st.just("undo")), max_size=14))
def test_what_holds_is_what_a_stack_of_decisions_would_hold(tmp_path_factory, steps):
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("R2MED_HOME", str(tmp_path_factory.mktemp("stack")))
        with make_project() as store:
            ada = store.add_reviewer("Ada")
            Dealer(store).next_open(ada)
            stack: list[tuple[int, int]] = []
            for number, step in enumerate(steps):
                if step != "undo":
                    store.record(ada.id, step[0], graded(step[1]), f"t{number}")
                    stack.append(step)
                elif stack:
                    assert store.undo(ada.id, f"t{number}").position == stack.pop()[0]
                else:
                    assert store.undo(ada.id, f"t{number}") is None
            held = {row.position: row.grade for row in store.standing()}
            assert held == dict(stack)
            assert Dealer(store).done(ada) == len(held)


def test_order_is_that_of_rows_whatever_the_clock_says(store, ada, monkeypatch):
    times = iter(["2026-01-02", "2025-01-01", "2024-01-01"])
    monkeypatch.setattr("r2med.reviews.store.now", lambda: next(times))
    for number, grade in enumerate((1, 2, 3)):
        store.record(ada.id, 1, graded(grade), f"t{number}")
    assert [row.grade for row in store.standing()] == [3]


@pytest.mark.parametrize(
    "draft",
    [
        graded(4),
        DraftDecision(GRADED),
        DraftDecision("perhaps"),
        graded(1, span=ProofSpan(5, 5)),
        graded(1, span=ProofSpan(0, 4000)),
        graded(1, sentence=400),
        graded(1, seconds=-1.0),
        graded(1, seconds=float("nan")),
    ],
)
def test_what_the_scale_or_the_passage_does_not_have_is_refused(store, ada, draft):
    with pytest.raises(R2medError):
        store.record(ada.id, 1, draft, "t", 0)
    assert store.decisions() == []


def test_nobody_decides_on_what_they_were_not_dealt(store, ada):
    for position in (999, 10**23):
        with pytest.raises(R2medError, match=f"no item {position}"):
            store.record(ada.id, position, graded(1), "t")


def test_a_damaged_decision_is_left_out_and_said_so(store, ada):
    store.record(ada.id, 1, graded(1), "t1")
    store.record(ada.id, 2, graded(2), "t2")
    sqlite3.connect(store.path).execute("UPDATE decision SET grade = 3 WHERE position = 1").connection.commit()
    with pytest.warns(StoreWarning, match="1 decisions are damaged"):
        assert [row.grade for row in store.standing()] == [2]
    sqlite3.connect(store.path).execute("UPDATE item SET text = 'other' WHERE number = 3").connection.commit()
    with pytest.raises(DamagedError, match="item 3 is damaged"):
        store.item(3)


@pytest.mark.parametrize(
    ("change", "what"),
    [
        ("UPDATE withdrawal SET invitation = invitation + 64", "withdrawal 65"),
        ("UPDATE invitation SET reviewer = 1 WHERE id = 2", "invitation 2"),
        ("UPDATE reveal SET position = position + 64", "revealed text 1"),
        ("UPDATE reveal SET reviewer = reviewer + 64", "revealed text 1"),
        ("UPDATE deal SET again = 1 WHERE position = 1", "dealt item 1"),
        ("UPDATE deal SET item = item + 1 WHERE position = 1", "dealt item 1"),
    ],
)
def test_a_flipped_bit_in_links_and_places_is_refused_in_a_line(store, ada, change, what):
    ben = store.add_reviewer("Ben")
    for secret in ("withdrawn", "held"):
        store.add_invitation(ada.id if secret == "withdrawn" else ben.id, secret)
    store.withdraw(ada.id)
    store.reveal(ada.id, 1, "answer")
    assert (store.admitted("withdrawn"), store.admitted("held")) == (None, ben)
    with closing(sqlite3.connect(store.path)) as connection:
        connection.execute("PRAGMA foreign_keys = OFF")
        assert connection.execute(change).rowcount
        connection.commit()
    with ReviewStore(store.path) as damaged, pytest.raises(DamagedError, match=f"{what} is damaged; restore"):
        # What desks and `review show` ask for.
        (damaged.admitted("withdrawn"), damaged.invitations(), damaged.revealed(ada.id, 1))


def test_models_and_imports_write_all_or_nothing_and_once(store):
    model = store.add_reviewer("gpt", "model", settings={"model": "gpt-4o"})
    drafts = [(1, graded(1)), (2, DraftDecision(UNSURE, note="?")), (3, graded(3))]
    assert store.record_all(model.id, drafts) == 3
    assert store.record_all(model.id, drafts) == 0
    with pytest.raises(R2medError):
        store.record_all(model.id, [(4, graded(0)), (5, graded(9))])
    assert store.labels() == {"gpt": {1: 1, 3: 3}}
    assert store.record_all(model.id, [(1, graded(2))]) == 1
    assert store.labels()["gpt"][1] == 2
    with pytest.raises(R2medError, match="choose another name"):
        store.add_reviewer("gpt")


def test_a_secret_is_kept_as_a_hash_belongs_to_one_person_and_can_be_withdrawn(store):
    one, two = invite(store, "Ada"), invite(store, "Ben")
    held = store.path.read_bytes() + store.path.with_name(f"{store.path.name}-wal").read_bytes()
    assert one.encode() not in held
    assert stat.S_IMODE(store.path.stat().st_mode) == 0o600
    assert store.admitted(one).name == "Ada"
    assert store.admitted(two).name == "Ben"
    assert store.admitted(one[:-1]) is None
    assert withdraw(store, "Ada") == (1, 0)
    assert store.admitted(one) is None
    assert store.admitted(two).name == "Ben"
    again = invite(store, "Ada")
    assert store.admitted(again).name == "Ada"
    assert store.admitted(one) is None


def damage(store: ReviewStore, statement: str) -> None:
    with closing(sqlite3.connect(store.path)) as connection:
        assert connection.execute(statement).rowcount
        connection.commit()


@pytest.mark.parametrize("changed", ["invitation = invitation + 64", "created = ''", "seal = seal + 1"])
def test_a_damaged_withdrawal_opens_no_link_again(changed, store):
    withdrawn, other = invite(store, "Ada"), invite(store, "Ben")
    withdraw(store, "Ada")
    damage(store, f"UPDATE withdrawal SET {changed}")
    for secret in (withdrawn, other):
        with pytest.raises(DamagedError, match=r"withdrawal .* is damaged; restore the file from a copy"):
            store.admitted(secret)
    with pytest.raises(DamagedError, match=r"withdrawal .* is damaged"):
        store.invitations()


def test_damaged_links_and_damaged_notes_of_what_was_revealed_are_not_believed(store, ada):
    invite(store, "Ada")
    store.reveal(ada.id, 1, ANSWER)
    damage(store, "UPDATE reveal SET what = 'sources'")
    with pytest.raises(DamagedError, match="revealed text 1 is damaged"):
        store.revealed(ada.id, 1)
    damage(store, "UPDATE invitation SET reviewer = 7")
    with pytest.raises(DamagedError, match="invitation 1 is damaged"):
        store.invitations()


def test_the_last_ruling_that_was_not_taken_back_holds(store):
    judge = store.add_reviewer("Eve", role="adjudicator")
    first = store.rule(Ruling(0, judge.id, 1, 2, "slip", None, "", None, ""), "t1")
    assert store.rule(Ruling(0, judge.id, 1, 3, "slip", None, "", None, ""), "t1") == first
    store.rule(Ruling(0, judge.id, 1, 3, "guideline", 2, "", 2.0, ""), "t2")
    last = store.rulings()[1]
    assert (last.grade, last.cause, last.sentence) == (3, "guideline", 2)
    store.rule(Ruling(0, judge.id, 1, None, "", None, "", None, "", last.id), "t3")
    assert store.rulings()[1].grade == 2
    assert len(store.all_rulings()) == 3


def test_many_threads_write_and_nothing_is_lost(store):
    people = [store.add_reviewer(f"p{number}") for number in range(6)]

    def work(person):
        dealer = Dealer(store)
        while (place := dealer.next_open(person)) is not None:
            store.record(person.id, place.position, graded(place.item % 4), f"t{place.position}", 0)

    threads = [threading.Thread(target=work, args=(person,)) for person in people]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    held = store.standing()
    private = [row.item for row in held if not store.item(row.item).shared]
    assert sorted(private) == [each.number for each in store.items() if not each.shared]
    for person in people:
        assert {row.item for row in held if row.reviewer == person.id} >= {e.number for e in store.items() if e.shared}


def test_a_name_is_taken_once_and_must_be_one(store):
    with pytest.raises(R2medError, match="already"):
        create_review(store.project, [], [])
    for name in ("../x", "", ".hidden", "a/b", "a" * 65):
        with pytest.raises(R2medError, match="is not a name"):
            review_path(name)
    with pytest.raises(R2medError, match="no review pilto; did you mean pilot"):
        ReviewStore.open("pilto")


def test_skipped_items_are_kept_apart_and_can_be_decided_later(store, ada):
    dealer = Dealer(store)
    store.record(ada.id, 1, DraftDecision(SKIPPED), "t1", 0)
    assert dealer.skipped(ada) == [1]
    assert dealer.done(ada) == 0
    store.record(ada.id, 1, graded(1), "t2")
    assert dealer.skipped(ada) == []
    store.undo(ada.id, "z")
    assert dealer.skipped(ada) == [1]
