"""Generated texts join the query as published, unless they or the stage say otherwise."""

from __future__ import annotations

from pathlib import Path

import pytest

from r2med.data.dataset import Collection, Generation, Texts
from r2med.data.tasks import folder_task
from r2med.errors import SpecError
from r2med.pipeline.joins import TEXT_JOINS, join_of, joined_text, query_copies, search_texts, usable


@pytest.mark.parametrize(
    ("method", "expected"),
    [
        ("hyde", "d"),
        ("answer", "d"),
        ("oracle-answer", "d"),
        ("search-o1", "d"),
        ("search-r1", "d"),
        ("replay", "d"),
        ("query2doc", "q q d"),
        ("lamer", "q d"),
        ("a method of one's own", "d"),
    ],
)
def test_published_protocol(method: str, expected: str) -> None:
    assert joined_text("q", [Generation("d", method)]) == expected


def test_generation_overrides_protocol_and_stage_overrides_both() -> None:
    made = Generation("d", "hyde", join="repeat(3)")
    assert joined_text("q", [made]) == "q q q d"
    assert joined_text("q", [made], "concat") == "q d"
    assert joined_text("q", [made], "replace") == "d"
    assert join_of(made, "", TEXT_JOINS) == "repeat(3)"


def test_several_generations_follow_the_query_in_order() -> None:
    made = [Generation("one", "hyde"), Generation("two", "lamer")]
    assert joined_text("q", made) == "q one two"
    assert joined_text("q", made, "replace") == "one two"


def test_unusable_generations_are_passed_over() -> None:
    lost = Generation("half a th", "query2doc", incomplete="cut off")
    blank = Generation(" \n", "lamer")
    assert usable([lost, blank]) == []
    assert joined_text("q", [lost, blank]) == "q"
    assert joined_text("q", [lost, Generation("d", "hyde"), blank]) == "d"
    assert joined_text("q", []) == "q"


@pytest.mark.parametrize(
    "join", ["mean", "repeat", "repeat()", "repeat(0)", "repeat(-1)", "repeat(9999)", "Concat", ""]
)
def test_unknown_joins_are_refused(join: str) -> None:
    with pytest.raises(SpecError, match="replace, concat or"):
        query_copies(join)


def test_a_generation_that_asks_for_the_mean_is_refused_with_the_reason() -> None:
    with pytest.raises(SpecError, match="dense retriever"):
        joined_text("q", [Generation("d", "hyde", join="mean")])


def test_search_texts_are_aligned_with_queries(tmp_path: Path) -> None:
    collection = Collection(folder_task(tmp_path), Texts(["d"], ["text"]), Texts(["q1", "q2"], ["one", "two"]))
    assert search_texts(collection) == ["one", "two"]
    expanded = collection.expanded([[Generation("d", "lamer")], []])
    assert search_texts(expanded) == ["one d", "two"]
