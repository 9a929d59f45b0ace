"""Intervals and tests of a large board: the same bits, whoever computes them and however the systems are dealt."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from r2med.board import spread_resampling
from r2med.board.spread_resampling import large_board_intervals, large_board_tests
from r2med.engine.spreading import SpreadingEngine, spreading
from r2med.errors import Postponed
from r2med.measure.bootstrap import board_intervals, exact_sums, split_table
from r2med.measure.significance import randomisation_tests
from spreading import SentShards

DRAWN = np.random.default_rng(7)
BOARD = {"A": DRAWN.random((23, 40)), "B": np.round(DRAWN.random((23, 9)), 1)}
DIFFERENCES = [[table[place] - table[0] for table in BOARD.values()] for place in range(23)]


@pytest.mark.parametrize("systems", [5, 23])
def test_a_board_is_the_same_in_any_blocks(systems: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("R2MED_HOME", str(tmp_path))
    monkeypatch.setattr(spread_resampling, "_SYSTEMS", systems)
    monkeypatch.setattr(spread_resampling, "_LEAST", 1)
    done: list[str] = []
    for number in (1, 2, 1, 2, 0):
        shard = SentShards(number, 2)
        try:
            with spreading(SpreadingEngine(shard)):
                found = large_board_intervals(BOARD), large_board_tests(DIFFERENCES)
        except Postponed as share:
            done.append(str(share))
    assert found == (board_intervals(BOARD), randomisation_tests(DIFFERENCES))
    assert systems == 23 or done, "two commands shared the work"
    assert not [file for file in (tmp_path / "blocks").rglob("*") if file.is_file()]


def test_a_small_board_is_computed_here() -> None:
    with spreading(SpreadingEngine(SentShards(1, 2))):
        assert large_board_intervals(BOARD) == board_intervals(BOARD)
        assert large_board_tests([]) == []


@settings(max_examples=40, deadline=None)
@given(st.lists(st.floats(-1e6, 1e6), min_size=3, max_size=12), st.randoms(use_true_random=False))
def test_sums_do_not_depend_on_order_or_neighbours(values: list[float], drawn) -> None:
    counts = np.array([[drawn.randrange(9) for _ in values] for _ in range(4)], dtype=np.float64)
    order = drawn.sample(range(len(values)), len(values))
    table = np.array([values])
    alone = exact_sums(counts, split_table(table))[:, 0]
    among = np.concatenate([np.full((1, len(values)), 1e9), table[:, order], np.zeros((1, len(values)))])
    assert exact_sums(counts[:, order], split_table(among))[:, 1].tobytes() == alone.tobytes()
    scale = max(1e-300, np.abs(table).max() * counts.sum(axis=1).max())
    assert np.abs(alone - counts @ table[0]).max() <= 1e-14 * scale
