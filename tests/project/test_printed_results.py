"""Results in Python print as the tables of their verbs, and their reprs are one line."""

from __future__ import annotations

import pytest

import r2med

TASK = "sample/Biology"


@pytest.fixture
def report():
    return r2med.evaluate(["bm25", "wordllama"], TASK, measures=["P@5", "nDCG@10"])


def test_a_report_prints_a_table_for_each_measure_that_was_asked_for(report):
    assert str(report).index("P@5 x 100") < str(report).index("nDCG@10 x 100")
    assert "Recall" not in str(report)
    assert report.per_query().columns == ["system", "task", "query", "P@5", "nDCG@10"]
    assert report._repr_html_().count("<table") == 2


def test_other_results_print_as_tables_too(report):
    (pair,) = r2med.compare("bm25", "wordllama", tasks=TASK, measure="P@5")
    (causes,) = r2med.diagnose("bm25", TASK)
    tuned = r2med.tune("bm25", TASK, over={"k1": [0.9, 1.2]})
    for result, words in ((pair, "P@5 x 100"), (causes, "bridge missing"), (tuned, "measured on")):
        assert words in str(result)
        assert words in result._repr_html_()


def test_reprs_are_short(report):
    dataset = r2med.load(TASK)
    tuned = r2med.tune("bm25", TASK, over={"k1": [0.9, 1.2]})
    for value in (report, dataset, dataset.collection, dataset.gold, tuned):
        assert len(repr(value)) < 120
        assert "\n" not in repr(value)
