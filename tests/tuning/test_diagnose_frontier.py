"""Costs: what the records say, and which systems are worth it."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

import r2med
from ledgers import add_run
from r2med.errors import R2medError
from r2med.llm.budget import Limits
from r2med.llm.cards import add_model
from r2med.llm.client import session
from r2med.llm.scripted import scripted
from r2med.runs.ledger import Entry, Ledger
from r2med.runs.record import RunRecord
from r2med.tuning.frontier import COSTS, Bill, Priced, bill, frontier, left_out, price

NUMBERS = st.sampled_from([0.0, 0.1, 0.2, 0.5, 1.0])
SYSTEMS = st.lists(
    st.builds(
        Priced,
        st.uuids().map(str),
        NUMBERS,
        st.builds(Bill, st.none() | NUMBERS, st.none() | NUMBERS, st.none() | NUMBERS),
        st.booleans(),
    ),
    max_size=12,
    unique_by=lambda each: each.system,
)


def beats(one: Priced, other: Priced, by: str) -> bool:
    a, b = one.cost(by), other.cost(by)
    assert a is not None
    assert b is not None
    return a <= b and one.score >= other.score and (a, one.score) != (b, other.score)


@given(SYSTEMS, st.sampled_from(list(COSTS)))
def test_nothing_on_the_frontier_is_beaten_and_all_else_is(systems: list[Priced], by: str) -> None:
    found = frontier(systems, by)
    known = [each for each in systems if not each.oracle and each.cost(by) is not None]
    assert all(each in known for each in found)
    for each in known:
        beaten = any(beats(other, each, by) for other in known)
        twin = any((other.cost(by), other.score) == (each.cost(by), each.score) for other in found)
        assert (each in found) <= (not beaten)
        assert beaten or twin
    assert [each.score for each in found] == sorted(each.score for each in found)


def entry(work: list[dict[str, object]], stages: list[dict[str, object]] | None = None, cores: int = 2) -> Entry:
    record = {"work": work, "stages": stages or [{"spec": "bm25"}], "machine": {"platform": "linux", "cores": cores}}
    return Entry("k", "s", "t", "custom", ("q1", "q2"), 9.0, RunRecord.from_json(record))


def step(search: float, **more: object) -> dict[str, object]:
    return {"load": 5.0, "index": 3.0, "search": search, "ask": 0.5, **more}


def account(cost: float | None, prompt: int, completion: int, seconds: float) -> dict[str, object]:
    return {"account": {"cost": cost, "prompt_tokens": prompt, "completion_tokens": completion, "seconds": seconds}}


def test_a_bill_is_a_query_s_share_of_the_cost() -> None:
    work = [step(1.0, **account(3.0, 100, 60, 4.0)), step(0.5, **account(1.0, 30, 10, 2.0))]
    found = bill([entry(work), entry([step(0.5)])])
    assert found == Bill(4.0 / 4, 200 / 4, (1.0 + 4.0 + 0.5 + 2.0 + 0.5) / 4, "linux 2")


def test_a_price_that_is_not_known_is_not_nothing() -> None:
    unpriced = entry([step(1.0, **account(None, 30, 10, 2.0))])
    assert bill([unpriced]).money is None
    assert bill([unpriced]).tokens == 20
    assert bill([entry([step(1.0)], [{"spec": "replay"}])]) == Bill(None, None, None, "linux 2")
    served = bill([entry([step(3.0)], [{"spec": "x@http://h/v1", "backend": "api"}])])
    assert served == Bill(None, None, 1.5, "linux 2")


def test_seconds_compare_only_where_they_were_timed_alike() -> None:
    here = [Priced(name, score, bill([entry([step(1.0)])])) for name, score in (("a", 0.3), ("b", 0.2))]
    there = Priced("elsewhere", 0.9, bill([entry([step(1.0)], cores=64)]))
    cached = Priced("cached", 0.9, bill([entry([step(0.1, reused=["scores of pairs"])])]))
    mixed = Priced("mixed", 0.9, bill([entry([step(0.1)]), entry([step(0.1)], cores=64)]))
    assert mixed.bill.seconds is None, "seconds of two machines have no sum"
    systems = [*here, there, cached, mixed]
    assert [each.system for each in frontier(systems, "seconds")] == ["a"]
    assert left_out(systems, "seconds").endswith(": elsewhere, cached, mixed.")
    assert left_out(systems, "money") == ""
    assert left_out(here, "seconds") == ""


def test_answers_that_were_kept_cost_what_they_cost_at_first() -> None:
    add_model(scripted(lambda request: "crystals", "cheap"))
    with session(Limits(retries=0)):
        r2med.evaluate("hyde(cheap) >> bm25", "sample/Biology")
        with Ledger() as ledger:
            before = price(ledger)[0].bill
        r2med.evaluate("hyde(cheap) >> bm25", "sample/Biology", r2med.pipeline.evaluate.Options(fresh=True))
    with Ledger() as ledger:
        after = price(ledger)[0].bill
    assert after.tokens == before.tokens
    assert after.tokens is not None
    assert after.tokens > 0
    assert after.money == 0.0


def test_a_board_has_only_complete_systems_and_knows_oracles() -> None:
    r2med.evaluate(["bm25", "oracle-answer >> bm25"], ["sample/Biology", "sample/MedQA-Diag"])
    r2med.evaluate("bm25-classic", "sample/Biology")
    with Ledger() as ledger:
        found = {each.system: each.oracle for each in price(ledger)}
        assert found == {"bm25": False, "oracle-answer >> bm25": True}
        assert len(price(ledger, tasks=["sample/Biology"])) == 3
        assert [each.system for each in frontier(price(ledger), "money")] == ["bm25"]
        with pytest.raises(R2medError, match="was not measured by nDCG@7"):
            price(ledger, measure="nDCG@7")
        with pytest.raises(R2medError, match="no system of the ledger"):
            price(ledger, tasks=["sample/IIYi-Clinical"])


def test_groups_are_not_mixed(tmp_path) -> None:
    from planted import write_task

    r2med.evaluate("bm25", ["sample/Biology", write_task(tmp_path / "t", {"d": "a"}, {"q": "a"}, {"q": ["d"]})])
    with Ledger() as ledger, pytest.raises(R2medError, match="several groups"):
        price(ledger)


def test_a_route_is_known_by_its_stages_and_not_by_its_spelling() -> None:
    with Ledger() as ledger:
        add_run(ledger, "mine[route(x]", "sample/Biology", [0.5, 0.5])
        add_run(ledger, "named", "sample/Biology", [0.4, 0.4], stages=[{"spec": "route(a, b)", "kind": "retriever"}])
        assert {each.system: each.routes for each in price(ledger)} == {"mine[route(x]": False, "named": True}
