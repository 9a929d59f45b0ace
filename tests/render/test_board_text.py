"""Boards and reports as Markdown, LaTeX, CSV and JSON: whole tables, the right figures marked, all text escaped."""

from __future__ import annotations

import csv
import io
import json
import re

import pytest

import r2med
from r2med.leaderboard.board import board, ranked
from r2med.render.scores.model import BEST, SECOND, Board, BoardRow, View, leaders
from r2med.render.scores.report import boards_from_report, format_report
from r2med.render.scores.text import FORMATS, markdown
from r2med.runs.cost import Cost
from r2med.runs.ledger import Ledger
from r2med.runs.report import Failure, Report

TASKS = ("Biology", "MedQA-Diag")


def small(**more: object) -> Board:
    rows = [
        BoardRow("own(a=1) >> b_c", ("own",), {"Biology": 0.5, "MedQA-Diag": 0.25}, cost=Cost(requests=3, dollars=1.5)),
        BoardRow("base/bge", ("paper", "page"), {"Biology": 0.3, "MedQA-Diag": 0.5}, system="bge"),
        BoardRow("oracle-answer >> bm25", ("own",), {"Biology": 0.9, "MedQA-Diag": 0.9}, oracle=True),
        BoardRow("part | of * it", ("mteb",), {"Biology": 0.5}),
        BoardRow("average only", ("page",), {}, stated=0.511),
    ]
    return Board("full", "nDCG@10", TASKS, ranked(rows, TASKS), ("sources <disagree>",), **more)


def table_rows(text: str) -> list[list[str]]:
    """The cells of a Markdown table; a bar with a backslash before it is text."""
    return [
        [cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1]]
        for line in text.splitlines()
        if line.startswith("|")
    ]


def test_markdown_is_a_whole_table_with_the_leaders_marked() -> None:
    rows = table_rows(markdown(small()))
    assert rows[0] == ["rank", "system", "source", "Bio", "MedQA", "avg"]
    assert {len(row) for row in rows} == {6}
    found = {row[1]: row for row in rows[2:]}
    assert found["base/bge"] == ["1", "base/bge", "paper, page", "<u>30.00</u>", "**50.00**", "**40.00**"]
    assert found["**own(a=1) >> b\\_c**"][3:] == ["**50.00**", "<u>25.00</u>", "<u>37.50</u>"]
    assert found["**oracle-answer >> bm25 (oracle)**"][3:] == ["90.00", "90.00", "90.00"], "never the best"
    assert found["part \\| of \\* it"][3:] == ["**50.00**", "-", "-"]
    assert found["average only"][3:] == ["-", "-", "(51.10)"]
    assert "- sources \\<disagree>" in markdown(small())


def test_figures_that_look_equal_lead_together() -> None:
    rows = [BoardRow(name, ("own",), {"A": value}) for name, value in (("a", 0.123449), ("b", 0.12341), ("c", 0.1))]
    found = leaders(Board("custom", "nDCG@10", ("A",), ranked(rows, ("A",))))
    assert found["A"] == {"12.34": BEST, "10.00": SECOND}


def test_csv_reads_back_with_every_digit() -> None:
    rows = list(csv.DictReader(io.StringIO(FORMATS["csv"]([small(cost=True)]))))
    assert [row["system"] for row in rows][:2] == ["base/bge", "own(a=1) >> b_c"]
    assert float(rows[0]["Biology"]) == 0.3
    assert rows[0]["sources"] == "paper+page"
    assert rows[0]["spec"] == "bge"
    assert (rows[1]["requests"], rows[1]["dollars"]) == ("3", "1.5")
    unranked = {row["system"]: row for row in rows}["part | of * it"]
    assert (unranked["rank"], unranked["average"], unranked["MedQA-Diag"]) == ("", "", "")


def test_json_has_all_that_is_known() -> None:
    found = json.loads(FORMATS["json"]([small()]))
    lines = {line["name"]: line for line in found["lines"]}
    assert lines["base/bge"]["rank"] == 1
    assert lines["oracle-answer >> bm25"]["oracle"] is True
    assert lines["average only"]["published_average"] == 0.511
    assert found["tasks"] == list(TASKS)


@pytest.mark.parametrize("name", FORMATS)
def test_the_whole_published_board_goes_through_every_format(name: str) -> None:
    with Ledger() as ledger:
        found = board(ledger, View())
    text = FORMATS[name]([found])
    assert all(
        word in text for word in ("InsertRank", "reasonrank-32b", "31.43" if name in ("md", "latex") else "0.314")
    )


def test_a_report_has_a_table_for_each_group_and_measure() -> None:
    report = r2med.evaluate(["bm25", "bm25-classic"], ["sample/Biology", "sample/MedQA-Diag"])
    found = boards_from_report(report, ["nDCG@10", "MAP@100"], View(intervals=True))
    assert [(each.group, each.measure) for each in found] == [("sample", "nDCG@10"), ("sample", "MAP@100")]
    for each in found:
        for line in each.lines:
            assert line.average == report.average(line.name, "sample", each.measure)
            assert line.intervals == report.intervals("sample", each.measure)[line.name]
    rows = table_rows(format_report(report, "md"))
    assert rows[0] == ["system", "Bio", "MedQA", "avg"], "no ranks and no sources in one's own table"
    assert [row[0] for row in rows[2:]] == ["bm25", "bm25-classic"], "in the order they were asked for"
    assert json.loads(format_report(report, "json"))["averages"]["bm25"]
    header, *lines = csv.reader(io.StringIO(format_report(report, "csv", ["nDCG@10", "MAP@100"])))
    assert len(lines) == 4
    assert header[:4] == ["group", "measure", "rank", "system"]


def test_marks_of_a_report_are_against_the_baseline_in_any_spelling() -> None:
    report = r2med.evaluate(["bm25(k1=2)", "bm25-classic"], "sample")
    text = format_report(report, "latex", view=View(baseline="bm25( k1 = 2.0 )"))
    assert "worse than bm25( k1 = 2.0 )" in text
    with pytest.raises(r2med.R2medError, match="is not an own system with all tasks"):
        format_report(report, "latex", view=View(baseline="bge"))


def test_a_report_with_failures_says_so_and_shows_the_rest() -> None:
    report = r2med.evaluate("bm25", "sample/Biology")
    whole = Report(report.results, [Failure("bge", "sample/Biology", "no torch")])
    for name in ("md", "latex"):
        assert "failed: bge on sample/Biology: no torch" in format_report(whole, name)
    assert len(boards_from_report(whole)[0].lines) == 1
