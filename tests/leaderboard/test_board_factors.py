"""What the differences of a board are due to."""

from __future__ import annotations

import json

import pytest
from click.testing import CliRunner

from ledgers import add_everywhere
from r2med.cli.main import app
from r2med.errors import R2medError
from r2med.leaderboard.board import board
from r2med.leaderboard.factors import balanced_block, study_factors
from r2med.render.scores.model import View
from r2med.runs.ledger import Ledger


def test_the_block_of_the_paper_gives_the_known_shares() -> None:
    """216 cells, whose shares were computed with statsmodels elsewhere."""
    with Ledger() as ledger:
        study = study_factors(board(ledger, View(own=False)))
    assert study.cells == 216
    assert study.levels["method"] == ("hyde", "lamer", "query2doc")
    assert study.levels["llm"] == ("gpt4", "qwen-72b", "qwen-7b")
    shares = {effect.effect: effect.share for effect in study.effects}
    expected = {"task": 0.646, "retriever x task": 0.121, "retriever": 0.081, "llm": 0.051, "method": 0.0002}
    for name, share in expected.items():
        assert shares[name] == pytest.approx(share, abs=0.0006 if share > 0.01 else 0.00005), name
    assert sum(shares.values()) == pytest.approx(1)
    # Of a balanced part, the mixed model gives plain means.
    paper = {mean.level: mean.mean for mean in study.means if mean.factor == "method"}
    assert paper["hyde"] == pytest.approx(paper["lamer"], abs=0.01)


def test_the_block_is_the_largest_with_every_combination() -> None:
    full = [(r, m, k) for r in "ab" for m in "xy" for k in ("hyde", "lamer")]
    more = [(r, m, "hyde") for r in "abcdefgh" for m in "xyz"]
    block = balanced_block([*full, *more])
    assert block == {"retriever": ("a", "b"), "llm": ("x", "y"), "method": ("hyde", "lamer")}
    assert len(balanced_block(more)["retriever"]) == 8


def test_boards_without_factors_are_refused_in_one_line() -> None:
    with Ledger() as ledger:
        add_everywhere(ledger, "bm25", "sample", 0.3)
        with pytest.raises(R2medError, match="1 system with a rank on this board, and no two differ"):
            study_factors(board(ledger, View(group="sample")))
        with pytest.raises(R2medError, match="needs at least two tasks"):
            study_factors(board(ledger, View(tasks=("Biology",))))


def test_factors_are_shown_and_written() -> None:
    shown = CliRunner().invoke(app, ["board", "--source", "paper", "--kind", "gar", "--factors"])
    assert shown.exit_code == 0
    assert "0.6456" in shown.output
    assert "27 systems" not in shown.output  # the means rest on all 33 systems
    written = json.loads(CliRunner().invoke(app, ["board", "--published", "--factors", "--format", "json"]).output)
    assert {mean["factor"] for mean in written["means"]} == {"retriever", "llm", "method"}
    refused = CliRunner().invoke(app, ["board", "--factors", "--format", "csv"])
    assert refused.exit_code == 2
    assert "--factors goes with" in refused.output
