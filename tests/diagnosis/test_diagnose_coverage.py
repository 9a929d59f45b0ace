"""Judgements: holes are counted, and near-duplicates are found exactly."""

from __future__ import annotations

from dataclasses import replace
from random import Random

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from plain_shingles import jaccard, shingles
from planted import opened
from r2med.data.dataset import Texts
from r2med.diagnosis import coverage as searching
from r2med.diagnosis.coverage import THRESHOLD, coverage, near_duplicates

PIECES = [
    "a",
    "B",
    "b",
    "p_value",
    "Straße",
    "strasse",
    "ﬁrst",
    "first",
    "é",
    "e\u0301",
    "Ⅳ",
    "—",
    "...",
    "血管",
    "x" * 20,
]
SMALL = st.lists(st.sampled_from("abc"), max_size=14).map(" ".join)
MIXED = st.lists(st.sampled_from(PIECES), max_size=14).map(" ".join)
LONG = " ".join(f"w{n}" for n in range(60))


@given(
    st.lists(SMALL | MIXED, min_size=1, max_size=8),
    st.lists(SMALL | MIXED, max_size=8),
    st.sampled_from([0.3, 0.5, 0.8, 1.0]),
    st.sampled_from([1, 20, 1 << 20]),
)
@example([LONG], [LONG + " more", LONG.replace("w30", "x")], 0.8, 1 << 20)
@example(["", "..."], ["", "!"], 0.8, 1 << 20)
def test_no_pair_is_missed_and_none_is_invented(wanted: list[str], others: list[str], threshold: float, at_once: int):
    own = {f"p{n}": text for n, text in enumerate(wanted)}
    documents = [*own.items(), *((f"d{n}", text) for n, text in enumerate(others))]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(searching, "_CHARACTERS_AT_ONCE", at_once)
        patch.setattr(searching, "_CANDIDATES_AT_ONCE", at_once)
        found = list(near_duplicates(own, documents, threshold))
    expected = {
        (name, other): jaccard(shingles(text), shingles(theirs))
        for name, text in own.items()
        for other, theirs in documents
        if name != other and jaccard(shingles(text), shingles(theirs)) >= threshold
    }
    assert {(pair.document, pair.other): pair.jaccard for pair in found} == expected
    assert len(found) == len(expected)


def test_copies_with_some_words_changed_are_found_with_their_similarity() -> None:
    chance = Random(1)
    texts = {f"d{n}": [f"w{chance.randrange(3000)}" for _ in range(chance.randrange(1, 200))] for n in range(120)}
    copies = {}
    for place, (name, text) in enumerate(texts.items()):
        share = 0.01 * (place % 12)
        copies[f"copy of {name}"] = [word if chance.random() > share else "changed" for word in text]
    documents = [(name, " ".join(text)) for name, text in (texts | copies).items()]
    wanted = dict(documents[:120])
    sets = {name: shingles(text) for name, text in documents}
    expected = {
        (name, other, similarity)
        for name in wanted
        for other in sets
        if name != other and (similarity := jaccard(sets[name], sets[other])) >= THRESHOLD
    }
    assert 20 < len(expected) < 100
    assert {tuple(pair) for pair in near_duplicates(wanted, documents)} == expected


def with_texts(found, texts: dict[str, str]):
    ids = list(found.dataset.collection.documents.ids)
    documents = Texts(ids, [texts.get(name, f"only in {name} and in no other place") for name in ids])
    collection = replace(found.dataset.collection, documents=documents)
    return replace(found, dataset=replace(found.dataset, collection=collection))


def test_holes_come_by_how_many_systems_have_them() -> None:
    relevant = {"q1": {"d1": 1, "d2": 0}, "q2": {"d9": 1}}
    a = opened({"q1": ["d1", "d3", "d4"], "q2": ["d9"]}, relevant, "a")
    b = opened({"q1": ["d4", "d2"], "q2": []}, relevant, "b")
    found = coverage([a, b])
    assert [(hole.document, hole.systems, hole.best) for hole in found.holes] == [("d4", 2, 1), ("d3", 1, 2)]
    assert found.judged == {"a": (1 / 3 + 1) / 2, "b": (1 / 2 + 0) / 2}
    assert not found.positives_only


def test_a_twin_of_a_relevant_document_is_listed_for_review() -> None:
    relevant = {"q1": {"d1": 1, "same": 1, "zero": 0}, "q2": {"d1": 1, "twin": 1}}
    lists = {"q1": ["x", "twin"], "q2": []}
    near = LONG.replace("w59", "changed")
    texts = {"d1": LONG, "same": LONG, "twin": near, "zero": LONG, "x": "something else in quite other words"}
    found = coverage([with_texts(opened(lists, relevant), texts)])
    listed = {(twin.query, twin.document): twin for twin in found.twins}
    assert set(listed) == {("q1", "twin"), ("q1", "zero"), ("q2", "same"), ("q2", "zero")}
    assert listed["q1", "twin"].best == 2
    assert listed["q1", "twin"].judged is None
    assert listed["q1", "zero"].judged == 0
    assert THRESHOLD <= listed["q1", "twin"].jaccard < 1
    assert listed["q2", "zero"].positive == "d1", "the relevant document that it resembles most"
    assert found.twins[0].jaccard == 1.0
