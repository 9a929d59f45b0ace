"""What the owner and the adjudicator see is what the rows say, also while more are appended."""

from __future__ import annotations

import pytest
from click.testing import CliRunner
from hypothesis import given, settings
from hypothesis import strategies as st

from r2med.cli.main import app
from r2med.errors import R2medError
from r2med.reviews.agreement import review_agreement
from r2med.reviews.batches import Dealer
from r2med.reviews.desk import Desk
from r2med.reviews.progress import HitCount, contested_items, filter_items, review_progress
from r2med.reviews.rows import DraftDecision
from r2med.reviews.store import ReviewStore
from reviewing import make_project

SAY = st.one_of(st.integers(0, 3), st.sampled_from(["unsure", "skipped", "undo"]))


@settings(max_examples=4, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 1), st.integers(1, 4), SAY), max_size=16))
def test_what_was_appended_is_caught_up_with(tmp_path_factory, steps):
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("R2MED_HOME", str(tmp_path_factory.mktemp("caught-up")))
        with make_project(questions=1, passages=4, overlap=1.0) as store:
            people = [store.add_reviewer(name) for name in ("Ada", "Ben")]
            for person in people:
                Dealer(store).next_open(person)
            for number, (who, position, say) in enumerate(steps):
                if say == "undo":
                    store.undo(people[who].id, f"t{number}")
                else:
                    draft = DraftDecision("graded", say) if isinstance(say, int) else DraftDecision(say)
                    store.record(people[who].id, position, draft, f"t{number}")
                with ReviewStore.open("pilot") as other:
                    held = other.standing()
                assert sorted(store.standing(), key=lambda row: row.id) == sorted(held, key=lambda row: row.id)
                assert list(contested_items(store)) == disputed(held)


def disputed(held) -> list[int]:
    """The items that grades differ of, or that somebody is unsure about; by hand."""
    heard: dict[int, list[object]] = {}
    for row in held:
        if row.verdict != "skipped":
            heard.setdefault(row.item, []).append(row.grade if row.verdict == "graded" else "unsure")
    return sorted(item for item, said in heard.items() if len(set(said)) > 1 or "unsure" in said)


def judge_all(store, name: str, kind: str, grade) -> None:
    drafts = [(item.number, DraftDecision("graded", grade(item.number))) for item in store.items()]
    store.record_all(store.add_reviewer(name, kind).id, drafts)


@pytest.mark.parametrize("kind", ["model", "imported"])
def test_models_and_imports_never_count_as_people(kind: str):
    with make_project(questions=2, passages=4, overlap=1.0) as store:
        desk, adjudicator = Desk(store), store.add_reviewer("Cleo", role="adjudicator")
        for person, grade in (("Ada", 2), ("Ben", 3)):
            reviewer = store.add_reviewer(person)
            store.record_all(reviewer.id, [(1, DraftDecision("graded", 2)), (2, DraftDecision("graded", grade))])
        before, contested = review_progress(store), list(contested_items(store))
        assert (before.judged, before.by_two, before.disagreements, contested) == (2, 2, 1, [2])
        judge_all(store, "other", kind, lambda number: 0 if number != 2 else 3)
        after = review_progress(store)
        assert (after.judged, after.by_two, after.disagreements) == (2, 2, 1)
        assert (before.by_models, after.by_models) == (0, 8)
        assert list(contested_items(store)) == [2]
        assert len(desk.ruling_card(adjudicator, 2)["said"]) == 2
        with pytest.raises(R2medError, match="nobody disagrees"):
            desk.ruling_card(adjudicator, 1)
        rows = {each.name: each for each in after.people}
        for each in before.people[1:]:
            assert rows[each.name].agreement == each.agreement == HitCount(1, 2)
        assert rows["Ada"].models == HitCount(0, 2)
        assert rows["Ben"].models == HitCount(1, 2)
        assert (rows["other"].agreement, rows["other"].models) == (HitCount(1, 4), HitCount(0, 0))
        agreement = review_agreement(store)
        assert agreement.reviewers == ["Ada", "Ben"]
        assert agreement.items == 2
        assert filter_items(store, "open") == [3, 4, 5, 6, 7, 8]
        assert filter_items(store, "disagree") == [2]
    shown = CliRunner().invoke(app, ["review", "show", "pilot"]).stdout
    assert "judged: 2 items, 2 by two or more, 1 of them differently; 0 ruled on; models and imports: 8 items" in shown


def test_agreement_of_one_person_and_a_model_is_not_called_that_of_people():
    with make_project(questions=2, passages=4, overlap=1.0) as store:
        judge_all(store, "Ada", "person", lambda number: number % 4)
        judge_all(store, "gpt", "model", lambda number: number % 3)
        (note,) = review_agreement(store).notes
    assert "fewer than two people have judged" in note
    assert "gpt (not a person)" in note


@pytest.mark.parametrize("kind", ["model", "imported"])
def test_the_thirds_of_a_review_follow_the_decisions_of_people_alone(kind: str):
    with make_project(questions=1, passages=9, overlap=1.0) as store:
        for name in ("Ada", "Ben"):
            drafts = [(item, DraftDecision("graded", 3 if name == "Ben" and item > 6 else 0)) for item in range(1, 10)]
            store.record_all(store.add_reviewer(name).id, reversed(drafts))
        before = review_agreement(store).periods
        judge_all(store, "other", kind, lambda number: 0)
        after = review_agreement(store).periods
    for periods in (before, after):
        assert [row.coefficients["raw"].value for row in periods] == [0, 1, 1]
