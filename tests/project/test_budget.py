"""The tree stays within its budget, and every run of the tests prints its size."""

from __future__ import annotations

from budget import LIMITS, describe_tree, measure_tree


def test_the_tree_is_within_its_budget() -> None:
    size = measure_tree()
    assert {name: size[name] for name in LIMITS if size[name] > LIMITS[name]} == {}


def test_the_size_is_said_in_one_line() -> None:
    assert describe_tree().startswith("src: ")
    assert "\n" not in describe_tree()
