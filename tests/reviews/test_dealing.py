"""Who is dealt what: everybody in an order of their own, shared items to all, the others to one, repeats among new."""

from __future__ import annotations

from itertools import groupby

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from r2med.reviews.access import invite, withdraw
from r2med.reviews.batches import Dealer
from r2med.reviews.rows import DealtItem, DraftDecision
from reviewing import make_project


def judge(store, person, most: int = 10_000) -> list[DealtItem]:
    """Decide on what a person is dealt, in order; what they were dealt."""
    dealer, found = Dealer(store), []
    while len(found) < most and (place := dealer.next_open(person)) is not None:
        store.record(person.id, place.position, DraftDecision("graded", 0), f"t{place.position}")
        found.append(place)
    return found


def deal_all(store, person) -> list[DealtItem]:
    """Everything that a person is dealt who judges nothing."""
    while Dealer(store).deal(person):
        pass
    rows = store.rows("SELECT position, item, again FROM deal WHERE reviewer = ? ORDER BY position", (person.id,))
    return [DealtItem(*row) for row in rows]


@settings(max_examples=3, deadline=None)
@given(
    overlap=st.sampled_from([0.0, 0.25, 0.5, 1.0]),
    repeat=st.sampled_from([0.0, 0.1, 0.25]),
    shape=st.tuples(st.integers(1, 6), st.integers(1, 5)),
    turns=st.lists(st.tuples(st.integers(0, 2), st.integers(1, 9)), max_size=12),
)
def test_everything_is_judged_and_shared_items_by_all(tmp_path_factory, overlap, repeat, shape, turns):
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("R2MED_HOME", str(tmp_path_factory.mktemp("deal")))
        with make_project("deal", *shape, overlap=overlap, repeat=repeat) as store:
            people = [store.add_reviewer(name) for name in ("Ada", "Ben", "Eve")]
            dealt = {person.id: [] for person in people}
            for who, many in [*turns, (0, 10_000), (1, 10_000), (2, 10_000)]:
                dealt[people[who].id] += judge(store, people[who], many)
            shared = {item.number for item in store.items() if item.shared}
            firsts = {who: [each.item for each in several if not each.again] for who, several in dealt.items()}
            for items in firsts.values():
                assert len(items) == len(set(items))
                assert shared <= set(items)
            private = [item for items in firsts.values() for item in items if item not in shared]
            assert sorted(private) == sorted({item.number for item in store.items()} - shared)
            for several in dealt.values():
                for place, each in enumerate(several):
                    assert not each.again or each.item in {before.item for before in several[:place]}
            assert all(Dealer(store).waiting(person) == 0 for person in people)


def test_orders_differ_by_person_repeat_by_seed_and_keep_questions_together():
    with make_project("one", 12, 3, overlap=1.0) as one, make_project("two", 12, 3, overlap=1.0) as two:
        orders = {}
        for store in (one, two):
            for name in ("Ada", "Ben"):
                orders[store.project.name, name] = [each.item for each in deal_all(store, store.add_reviewer(name))]
        assert orders["one", "Ada"] == orders["two", "Ada"]
        assert orders["one", "Ada"] != orders["one", "Ben"]
        asked = [one.item(item).question for item in orders["one", "Ada"]]
        assert len([key for key, _ in groupby(asked)]) == 12
        assert asked != sorted(asked)


def test_repeats_come_as_often_as_asked_and_stand_among_new_passages():
    with make_project("again", 300, 6, overlap=1.0, repeat=0.1) as store:
        dealt = deal_all(store, store.add_reviewer("Ada"))
        repeats = [each for each in dealt if each.again]
        assert 0.07 < len(repeats) / 1800 < 0.13
        first = {each.item: each.position for each in dealt if not each.again}
        assert min(each.position - first[each.item] for each in repeats) > 20
        blocks = [list(group) for _, group in groupby(dealt, key=lambda each: store.item(each.item).question)]
        with_repeats = [block for block in blocks if any(each.again for each in block)]
        assert all(any(not each.again for each in block) for block in with_repeats)
        # Nothing that a page could show tells them apart: neither the first nor the last of its block.
        assert {[each.again for each in block].index(True) for block in with_repeats} >= {0, 1, 2}


@pytest.mark.parametrize(("overlap", "repeat"), [(1.0, 0.0), (1.0, 0.2), (0.5, 0.2), (0.0, 0.25)])
def test_done_and_left_add_up_with_every_decision_a_repeat_or_not(overlap, repeat):
    with make_project("sum", 25, 5, overlap=overlap, repeat=repeat) as store:
        ada, dealer, repeats = store.add_reviewer("Ada"), Dealer(store), 0
        total = dealer.waiting(ada)
        assert dealer.done(ada) == 0
        assert 125 <= total <= 125 * (1 + 2 * repeat)
        number = 0
        while (place := dealer.next_open(ada)) is not None:
            number += 1
            repeats += place.again
            verdict = DraftDecision("skipped") if number == 7 else DraftDecision("graded", 0)
            store.record(ada.id, place.position, verdict, f"t{number}")
            decided = number - (number >= 7)
            assert (dealer.done(ada), dealer.waiting(ada)) == (decided, total - decided)
        assert (number, repeats > 0) == (total, repeat > 0)


def test_what_is_left_grows_less_and_never_more_while_others_judge():
    with make_project("many", 20, 5, overlap=0.2, repeat=0.1) as store:
        people, dealer = [store.add_reviewer(name) for name in ("Ada", "Ben")], Dealer(store)
        left = {person.id: dealer.waiting(person) for person in people}
        for turn in range(60):
            for person in people[: 1 + turn % 2]:
                judge(store, person, 2)
            now = {person.id: dealer.done(person) + dealer.waiting(person) for person in people}
            assert all(now[who] <= left[who] for who in now)
            left = now
        assert [dealer.waiting(person) for person in people] == [0, 0]


def test_what_a_person_who_is_withdrawn_did_not_look_at_goes_to_others():
    with make_project("gone", 10, 4, overlap=0.25) as store:
        invite(store, "Ada")
        ada, ben = store.reviewer("Ada"), store.add_reviewer("Ben")
        mine = judge(store, ada, 5)
        links, released = withdraw(store, "Ada")
        assert links == 1
        assert released > 0
        others = {each.item for each in judge(store, ben)}
        assert others >= {item.number for item in store.items()} - {each.item for each in mine}
        assert {row.item for row in store.standing() if row.reviewer == ada.id} == {each.item for each in mine}
        assert judge(store, ada), "somebody who is invited again goes on with what everybody judges"
