"""What the keeper and the adjudicator see is what the rows say, also while more are appended."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from reviewing import make_project

from r2med.review.dealing import Dealer
from r2med.review.review_progress import StandingDecisions
from r2med.review.review_rows import DraftDecision

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
            live = StandingDecisions(store)
            for number, (who, position, say) in enumerate(steps):
                if say == "undo":
                    store.undo(people[who].id, f"t{number}")
                else:
                    draft = DraftDecision("graded", say) if isinstance(say, int) else DraftDecision(say)
                    store.record(people[who].id, position, draft, f"t{number}")
                held = store.standing()
                assert sorted(live.current(), key=lambda row: row.id) == sorted(held, key=lambda row: row.id)
                assert live.contested() == disputed(held)


def disputed(held) -> list[int]:
    """The items that grades differ of, or that somebody is unsure about; by hand."""
    heard: dict[int, list[object]] = {}
    for row in held:
        if row.verdict != "skipped":
            heard.setdefault(row.item, []).append(row.grade if row.verdict == "graded" else "unsure")
    return sorted(item for item, said in heard.items() if len(set(said)) > 1 or "unsure" in said)
