"""Looking hashes up in bulk is looking them up in a dict."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from r2med.leakage.match import HashFilter
from r2med.lexical.shingles import HashTable

numbers = st.one_of(
    st.integers(0, 9),
    st.integers(0, 20).map(lambda slot: slot << 48),
    st.sampled_from([1 << 63, (1 << 64) - 1]),
    st.integers(0, (1 << 64) - 1),
)


def column(values: list[int]) -> np.ndarray:
    return np.array(values, dtype=np.uint64)


@given(st.lists(numbers, max_size=30), st.lists(numbers, max_size=30))
def test_finding_is_a_dict_of_lists(keys: list[int], asked: list[int]) -> None:
    known: dict[int, list[int]] = {}
    for owner, key in enumerate(keys):
        known.setdefault(key, []).append(owner)
    places, owners = HashTable.of(column(keys), np.arange(len(keys))).find(column(asked))
    wanted = [(place, owner) for place, key in enumerate(asked) for owner in known.get(key, [])]
    assert list(zip(places.tolist(), owners.tolist(), strict=True)) == wanted


@given(st.lists(st.lists(numbers, max_size=40), max_size=4), st.lists(numbers, max_size=20))
def test_what_is_in_a_table_passes_the_filter(tables: list[list[int]], asked: list[int]) -> None:
    made = HashFilter([column(sorted(keys)) for keys in tables])
    for keys in tables:
        assert made.passes(column(keys)).all()
    slots = {key >> 48 for keys in tables for key in keys}
    assert made.passes(column(asked)).tolist() == [key >> 48 in slots for key in asked]


def test_few_foreign_hashes_pass_the_filter() -> None:
    generator = np.random.default_rng(0)
    keys, foreign = (generator.integers(0, 1 << 64, 100_000, dtype=np.uint64) for _ in range(2))
    assert HashFilter([np.sort(keys[:50_000]), np.sort(keys[50_000:])]).passes(foreign).mean() < 0.065
