"""`search` and `compare` as a person types and reads them."""

from __future__ import annotations

import csv
import io
import json

import pytest
from click.testing import CliRunner

import r2med
from r2med.cli.main import app

FOUR = ("bm25", "bm25-classic", "wordllama", "replay >> bm25")


def _output(*words: str, columns: int = 80) -> str:
    result = CliRunner(env={"COLUMNS": str(columns)}).invoke(app, words, catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return result.output


@pytest.fixture
def runs():
    r2med.evaluate(list(FOUR), "sample")


def test_a_question_of_ones_own_finds_documents_with_their_texts():
    question = "fatigue and golden-brown rings around the cornea"
    hits = json.loads(_output("search", "bm25", question, "--task", "sample/MedQA-Diag", "-k", "2", "--json"))["hits"]
    expected = r2med.search("bm25", "sample/MedQA-Diag", question, k=2)
    assert [(hit["document"], hit["score"], hit["text"]) for hit in hits] == [
        (hit.document, hit.score, hit.text) for hit in expected
    ]
    table = _output("search", "bm25", question, "--task", "sample/MedQA-Diag", "-k", "2")
    assert "mqd-d029" in table
    assert max(map(len, table.splitlines())) <= 80


def test_search_wants_one_task_and_a_question():
    for words, message in (
        (("bm25", " ", "--task", "sample/MedQA-Diag"), "the query is empty"),
        (("bm25", "x", "--task", "sample"), "sample stands for 8 tasks"),
    ):
        with pytest.raises(r2med.R2medError, match=message):
            CliRunner().invoke(app, ["search", *words], catch_exceptions=False)


def test_many_systems_are_one_matrix_that_fits_a_terminal(runs):
    output = _output("compare", *FOUR)
    assert max(map(len, output.splitlines())) <= 80
    assert len(output.splitlines()) < 30
    pairs = {(one.b, one.a): one for one in r2med.compare(*FOUR, tasks="sample")}
    cell = f"{100 * pairs['replay >> bm25', 'bm25'].overall.mean:+.2f}*"
    assert cell in output
    assert cell.replace("+", "-") in output


def test_every_format_has_the_same_figures(runs):
    found = json.loads(_output("compare", *FOUR, "--json"))
    rows = {
        (row["a"], row["b"]): row
        for row in csv.DictReader(io.StringIO(_output("compare", *FOUR, "--format", "csv")))
        if row["task"] == "all"
    }
    markdown, latex = _output("compare", *FOUR, "--format", "md"), _output("compare", *FOUR, "--format", "latex")
    for one in found:
        row, overall = rows[one["a"], one["b"]], one["overall"]
        assert float(row["mean"]) == overall["mean"]
        assert float(row["holm"]) == overall["holm"]
        for text in (markdown, latex, _output("compare", *FOUR)):
            assert f"{100 * overall['mean']:+.2f}" in text


def test_each_pair_is_shown_by_task_on_request(runs):
    assert "sample/Biology" not in _output("compare", *FOUR, columns=200)
    assert _output("compare", *FOUR, "--by-task", columns=200).count("\n sample/Biology ") == 6
