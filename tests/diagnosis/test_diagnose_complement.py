"""What systems find that others do not: counts that add up."""

from __future__ import annotations

from itertools import combinations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from planted import opened
from r2med.diagnosis.complement import complementarity, summed

NAMES = [f"d{n}" for n in range(14)]
LISTS = st.lists(st.sampled_from(NAMES), unique=True, max_size=14)
GRADES = st.dictionaries(st.sampled_from(NAMES), st.integers(1, 2), min_size=1, max_size=6)
ROWS = st.lists(st.tuples(GRADES, LISTS, LISTS, LISTS), min_size=1, max_size=5)


def three(rows: list) -> list:
    relevant = {f"q{n}": row[0] for n, row in enumerate(rows)}
    return [opened({f"q{n}": row[place] for n, row in enumerate(rows)}, relevant, f"s{place}") for place in (1, 2, 3)]


@given(ROWS)
def test_counts_add_up_and_the_union_is_a_ceiling(rows: list) -> None:
    systems = three(rows)
    found = complementarity(systems)
    assert [(pair.a, pair.b) for pair in found.pairs] == [("s1", "s2"), ("s1", "s3"), ("s2", "s3")]
    relevant = {(n, name) for n, row in enumerate(rows) for name in row[0]}
    hits = [{(n, name) for n, row in enumerate(rows) for name in row[place][:10]} & relevant for place in (1, 2, 3)]
    for pair, (a, b) in zip(found.pairs, combinations(hits, 2), strict=True):
        assert pair.relevant == len(relevant)
        assert (pair.only_a, pair.only_b, pair.both) == (len(a - b), len(b - a), len(a & b))
        assert pair.neither == len(relevant - a - b)
        assert max(pair.recall_a, pair.recall_b) <= pair.union <= found.union + 1e-12
        assert pair.union <= pair.recall_a + pair.recall_b + 1e-12
        assert 0 <= pair.overlap <= 1
    turned = complementarity([systems[1], systems[0]]).pairs[0]
    first = found.pairs[0]
    assert (turned.only_a, turned.only_b, turned.both) == (first.only_b, first.only_a, first.both)
    alone = complementarity([systems[0], systems[0]]).pairs[0]
    assert alone.only_a == alone.only_b == 0
    assert alone.overlap == 1.0


@given(ROWS, ROWS)
def test_tasks_are_added_up(one: list, other: list) -> None:
    found = [complementarity(three(rows)) for rows in (one, other)]
    whole = summed(found)
    for place, pair in enumerate(whole.pairs):
        parts = [each.pairs[place] for each in found]
        assert pair.relevant == sum(part.relevant for part in parts)
        assert pair.union == pytest.approx(sum(part.union for part in parts) / 2)


def test_known_lists() -> None:
    relevant = {"q1": {"d1": 1, "d2": 1, "d3": 1}, "q2": {"d4": 1}}
    a = opened({"q1": ["d1", "d2"], "q2": []}, relevant, "a")
    b = opened({"q1": ["d2", "d9"], "q2": ["d4"]}, relevant, "b")
    pair = complementarity([a, b]).pairs[0]
    assert (pair.only_a, pair.only_b, pair.both, pair.neither) == (1, 1, 1, 1)
    assert (pair.recall_a, pair.recall_b) == (pytest.approx(1 / 3), pytest.approx(2 / 3))
    assert pair.union == pytest.approx((2 / 3 + 1) / 2)
    assert pair.overlap == pytest.approx((1 / 2 + 0) / 2)


def test_what_stands_too_deep_is_not_found() -> None:
    names = [f"d{n:02}" for n in range(14)]
    relevant = {"q": {names[9]: 1, names[10]: 1}}
    pair = complementarity([opened({"q": names}, relevant, "a"), opened({"q": []}, relevant, "b")]).pairs[0]
    assert (pair.only_a, pair.neither) == (1, 1), "the cutoff is 10 in so small a collection"
