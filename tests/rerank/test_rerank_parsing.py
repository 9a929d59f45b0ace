"""What models write is read permissively, and never believed beyond what is there."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from r2med.llm.parsing import read_grade, read_grades, read_permutation
from r2med.llm.types import Token
from r2med.rerank.pointwise import yes_or_no

STYLES = {
    "brackets": lambda numbers: " > ".join(f"[{n}]" for n in numbers),
    "tight": lambda numbers: ">".join(f"[{n}]" for n in numbers),
    "commas": lambda numbers: ", ".join(f"[{n}]" for n in numbers),
    "lines": lambda numbers: "\n".join(f"[{n}]" for n in numbers),
    "list": lambda numbers: "\n".join(f"{place}. [{n}]" for place, n in enumerate(numbers, 1)),
    "bullets": lambda numbers: "\n".join(f"- [{n}]" for n in numbers),
    "words": lambda numbers: " > ".join(f"Passage [{n}]" for n in numbers),
    "wide": lambda numbers: " > ".join(f"【{n}】" for n in numbers),
    "json": lambda numbers: f"[{', '.join(map(str, numbers))}]",
    "bare": lambda numbers: " > ".join(map(str, numbers)),
    "bare words": lambda numbers: " > ".join(f"passage {n}" for n in numbers),
    "bare lines": lambda numbers: "\n".join(map(str, numbers)),
    "bold": lambda numbers: "**" + " > ".join(f"[{n}]" for n in numbers) + "**",
    "fenced": lambda numbers: "```\n" + " > ".join(f"[{n}]" for n in numbers) + "\n```",
}


@given(st.data(), st.sampled_from(sorted(STYLES)))
def test_a_whole_ranking_is_read_in_every_style(data: st.DataObject, style: str) -> None:
    wanted = data.draw(st.integers(2, 25).flatmap(lambda count: st.permutations(range(1, count + 1))))
    before = data.draw(
        st.sampled_from(["", "Ranking:\n", "I compared all of them. Here it is:\n\n", "[1] is about gout.\n"])
    )
    if style == "bare lines":
        before = ""
    found = read_permutation(before + STYLES[style](wanted), len(wanted))
    assert found is not None
    assert [place + 1 for place in found.order] == list(wanted)
    assert not found.repaired


@given(st.text(), st.integers(1, 30))
def test_any_text_gives_a_permutation_or_nothing(text: str, count: int) -> None:
    found = read_permutation(text, count)
    assert found is None or sorted(found.order) == list(range(count))


@given(st.lists(st.integers(0, 40), max_size=30), st.integers(1, 20), st.sampled_from(sorted(STYLES)))
def test_missing_repeated_and_invented_numbers(numbers: list[int], count: int, style: str) -> None:
    found = read_permutation(STYLES[style](numbers), count)
    named = list(dict.fromkeys(number - 1 for number in numbers if 1 <= number <= count))
    if not named or (style == "bare words" and len(numbers) < 2):
        assert found is None
        return
    if found is None:
        assert (style, len(numbers)) in (("bare", 1), ("json", 1))
        return
    rest = [place for place in range(count) if place not in named]
    assert list(found.order) == [*named, *rest]
    assert found.repaired == (len(named) != count or len(numbers) != count)


@pytest.mark.parametrize(
    ("text", "order"),
    [
        ("[11] > [2]", (10, 1)),
        ("Passage [3] deals with gout, [1] does not. Final: [2] > [3] > [1]", (1, 2, 0)),
        ("First I thought [1] > [2] > [3], but really [3] > [2] > [1]", (2, 1, 0)),
        ("[2] > [2] > [99] > [1]", (1, 0)),
        ("2", (1,)),
        ("The best is [3].", (2,)),
        ("3 1 2", (2, 0, 1)),
    ],
)
def test_rankings_of_replies_as_they_come(text: str, order: tuple[int, ...]) -> None:
    found = read_permutation(text, 12)
    assert found is not None
    assert found.order[: len(order)] == order


@pytest.mark.parametrize("text", ["", "I cannot rank 20 passages.", "banana", "[99] > [77]", "[0]", "[-1]", "[one]"])
def test_nothing_usable_is_nothing(text: str) -> None:
    assert read_permutation(text, 12) is None


@given(
    st.lists(st.integers(0, 10), min_size=1, max_size=15),
    st.sampled_from(
        [
            "[{n}]: {g}",
            "[{n}] {g}/10",
            "- [{n}] = {g}",
            "**[{n}]**: {g}",
            "Passage [{n}]: grade {g}",
            "{n}: {g}",
            "Passage {n}: {g}",
            '"{n}": {g},',
            "[{n}] - {g}.0",
        ]
    ),
)
def test_grades_are_read_in_every_style(grades: list[int], style: str) -> None:
    text = "\n".join(style.format(n=number, g=grade) for number, grade in enumerate(grades, 1))
    assert read_grades(text, len(grades)) == {place: float(grade) for place, grade in enumerate(grades)}


@given(st.text(), st.integers(1, 20))
def test_any_text_gives_grades_in_range_or_none(text: str, count: int) -> None:
    found = read_grades(text, count)
    assert all(0 <= place < count and 0 <= grade <= 10 for place, grade in found.items())


def test_the_last_grade_of_a_passage_counts_and_wild_ones_do_not() -> None:
    assert read_grades("[1]: 3\n[2]: 55\n[7]: 2\nFinal:\n[1]: 8", 3) == {0: 8.0}


@pytest.mark.parametrize(
    ("text", "grade"),
    [
        ("Grade: 7", 7.0),
        ("It is 3 of 5 criteria.\n\n**Grade: 8.5/10**", 8.5),
        ("10", 10.0),
        ("Grade: 11", None),
        ("seven", None),
        ("7 is too many words", None),
        ("", None),
        ("2024-07", None),
    ],
)
def test_one_grade(text: str, grade: float | None) -> None:
    assert read_grade(text) == grade


def test_yes_and_no_of_all_spellings_are_added_up() -> None:
    top = (("Yes", math.log(0.3)), (" yes", math.log(0.2)), ("No", math.log(0.25)), ("Maybe", math.log(0.05)))
    found = yes_or_no([Token("Yes", math.log(0.3), top)])
    assert found == pytest.approx(math.log(0.5 / 0.25))


def test_a_word_that_is_not_among_the_alternatives_is_at_most_the_least_of_them() -> None:
    found = yes_or_no([Token("**", -0.1, (("**", -0.1),)), Token("no", -0.01, (("no", -0.01), ("maybe", -6.0)))])
    assert found == pytest.approx(-6.0 + 0.01)


def test_an_answer_that_is_neither_is_none() -> None:
    assert yes_or_no([]) is None
    assert yes_or_no([Token("perhaps", -0.1, (("perhaps", -0.1),))]) is None
    hidden = yes_or_no([Token("Well", -0.1, (("Well", -0.1), ("No", -3.0), ("Yes", -4.0)))])
    assert hidden == pytest.approx(-1.0)
