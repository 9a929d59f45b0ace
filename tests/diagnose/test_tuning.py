"""Tuning measures only on queries that had no part in the choice; a frontier adds up from kept runs."""

from __future__ import annotations

import json

import numpy as np
import pytest
from click.testing import CliRunner
from hypothesis import given, settings
from hypothesis import strategies as st

import r2med
from r2med.cli.main import app
from r2med.diagnose.query_splits import folds, halves, linked
from r2med.diagnose.route_curves import SHARES, read_pair
from r2med.diagnose.tuning import OptionRange, TuneOptions, read_over, tune
from r2med.errors import R2medError
from r2med.measure.metrics import Measure
from r2med.runs.ledger import Ledger

TASKS = ["sample/Biology", "sample/MedQA-Diag"]
NDCG = Measure("nDCG@10")

judged = st.dictionaries(
    st.sampled_from([f"q{n}" for n in range(8)]),
    st.dictionaries(st.sampled_from("abcdefghij"), st.integers(0, 2), max_size=3),
    min_size=2,
)


@given(judged, st.integers(2, 4), st.integers(0, 99))
def test_no_relevant_document_is_on_both_sides_of_a_split(qrels, count, seed) -> None:
    queries = list(qrels)
    groups = linked(queries, qrels)
    assert sorted(place for group in groups for place in group) == list(range(len(queries)))
    if len(groups) < count:
        with pytest.raises(R2medError, match="folds need"):
            folds(groups, count, seed)
        return
    splits = folds(groups, count, seed)
    assert sorted(place for split in splits for place in split.measured_on) == list(range(len(queries)))
    for split in [*splits, *halves(groups, 3, seed)]:
        sides = [{d for place in side for d, grade in qrels[queries[place]].items() if grade > 0} for side in split]
        assert not sides[0] & sides[1]
        assert len(split.chosen_by) + len(split.measured_on) == len(queries)


def test_what_is_chosen_is_the_best_where_it_is_chosen_and_reported_where_it_is_not() -> None:
    """By hand: every candidate on all queries, then the choice and the mean of each fold."""
    specs = ["bm25(k1=0.2)", "bm25", "bm25(k1=3)"]
    found = tune("bm25", TASKS, {"k1": (0.2, 0.9, 3.0)}, TuneOptions(folds=3))
    report = r2med.evaluate(specs, TASKS)
    values = {
        (result.system, result.task): dict(zip(result.query_ids, result.scores["nDCG@10"], strict=True))
        for result in report.results
    }
    for number, fold in enumerate(found.folds):
        by: dict[str, list[float]] = {spec: [] for spec in specs}
        on: dict[str, list[float]] = {spec: [] for spec in specs}
        for task in TASKS:
            data = r2med.load(task)
            queries = list(values["bm25", task])
            split = folds(linked(queries, data.gold.qrels), 3)[number]
            for spec in specs:
                row = np.array([values[spec, task][query] for query in queries])
                by[spec].append(row[split.chosen_by].mean())
                on[spec].append(row[split.measured_on].mean())
        best = max(specs, key=lambda spec: np.mean(by[spec]))
        assert fold.chosen == best
        assert fold.on == pytest.approx(np.mean(on[best]))
        assert fold.untuned == pytest.approx(np.mean(on["bm25"]))
    assert found.gain is not None
    assert found.gain.queries == sum(len(values["bm25", task]) for task in TASKS)


def test_an_option_that_does_nothing_is_said_to_do_nothing() -> None:
    found = tune("bm25", TASKS, {"depth": (50, 100), "k1": (0.2, 3.0)}, TuneOptions(folds=2))
    assert found.idle == ("depth",)
    shown = CliRunner().invoke(app, ["tune", "bm25", "--over", "depth=50,100", "--folds", "2", "--tasks", TASKS[0]])
    assert "The option depth does nothing here" in shown.output
    assert "+0.00 points" in shown.output


def test_a_route_is_tuned_by_a_threshold_of_the_queries_it_is_chosen_by() -> None:
    found = tune("route(bm25, replay >> bm25, by=nqc)", TASKS[:1], None, TuneOptions(halves=4, budget=0.5))
    assert found.gain is None
    for fold in found.folds:
        assert fold.sent is not None
        assert fold.random is not None
        assert "share=" in fold.chosen or "threshold=" in fold.chosen
    # The threshold that is printed is one that can be run.
    assert r2med.evaluate(found.best, TASKS[0]).results


def test_optuna_sees_only_the_queries_to_choose_by() -> None:
    pytest.importorskip("optuna")
    options = TuneOptions(folds=2, trials=4)
    found = tune("bm25", TASKS[:1], {"k1": OptionRange((0.2, 3.0))}, options)
    again = tune("bm25", TASKS[:1], {"k1": OptionRange((0.2, 3.0))}, options)
    assert found.as_dict() == again.as_dict()
    assert all(0.2 <= float(fold.chosen.split("k1=")[1].rstrip(")")) <= 3 for fold in found.folds)


def test_curves_end_at_the_two_systems_and_chance_is_the_line_between() -> None:
    report = r2med.evaluate(["bm25", "replay >> bm25", "wordllama"], TASKS)
    means = {system: np.mean([r.metrics["nDCG@10"] for r in report.results if r.system == system]) for system in
             ("bm25", "replay >> bm25")}  # fmt: skip
    with Ledger() as ledger:
        pair = read_pair(ledger, ("bm25", "replay >> bm25", "wordllama"), TASKS, NDCG)
    for curve in pair.curves:
        assert curve.points[0].score == pytest.approx(means["bm25"])
        assert curve.points[-1].score == pytest.approx(means["replay >> bm25"])
        assert curve.points[-1].difference.mean == 0
        line = [
            np.mean(
                [t.cheap.mean() + t.weights(curve.signal, share).mean() * (t.dear - t.cheap).mean() for t in pair.tasks]
            )
            for share in SHARES
        ]
        above = np.mean([point.score for point in curve.points]) - np.mean(line)
        assert curve.advantage.mean == pytest.approx(above, abs=1e-9)
    assert "agreement(wordllama)" in {curve.signal for curve in pair.curves}


def test_a_curve_is_what_running_the_route_gives() -> None:
    r2med.evaluate(["bm25", "replay >> bm25"], TASKS)
    with Ledger() as ledger:
        pair = read_pair(ledger, ("bm25", "replay >> bm25"), TASKS, NDCG)
    for curve in pair.curves:
        point = curve.points[6]
        ran = r2med.evaluate(curve.spec(point), TASKS)
        assert np.mean([result.metrics["nDCG@10"] for result in ran.results]) == pytest.approx(point.score)


def test_the_frontier_says_what_it_would_save_and_that_it_was_hindsight() -> None:
    r2med.evaluate(["bm25", "replay >> bm25", "oracle-answer >> bm25"], TASKS)
    runner = CliRunner()
    shown = runner.invoke(app, ["frontier", "--tasks", *TASKS])
    assert shown.exit_code == 0, shown.output
    assert "oracle-answer >> bm25 (oracle)" in shown.output
    assert "`r2med tune` measures them on others" in shown.output
    assert "random choice" in shown.output
    content = json.loads(runner.invoke(app, ["frontier", "--tasks", *TASKS, "--json"]).stdout)
    assert {route["cheap"] for route in content["routes"]} == {"bm25"}
    assert all("oracle" not in route["dear"] for route in content["routes"])


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["tune", "bm25"], "say which options of bm25 to tune"),
        (["tune", "bm25", "--over", "k1"], "--over takes NAME=VALUES"),
        (["tune", "bm25", "--over", "speed=1,2"], "has an option 'speed'"),
        (["tune", "bm25", "--over", "k1=3..1"], "runs backwards"),
        (["tune", "bm25", "--over", "k1=-1,2"], "k1 must be 0 or more"),
        (["tune", "oracle-answer >> bm25", "--over", "k1=1,2"], "no system to tune"),
        (["tune", "bm25", "--over", "k1=1,2", "--folds", "50", "--tasks", "sample/Biology"], "50 folds need"),
        (["frontier", "nothing"], "no run of 'nothing'"),
        (["frontier"], "no system of the ledger"),
    ],
)
def test_wrong_input_is_one_line(arguments, words) -> None:
    shown = CliRunner().invoke(app, arguments)
    assert shown.exit_code != 0
    assert words in shown.output + str(shown.exception)


@settings(deadline=None)
@given(st.lists(st.floats(-9, 9).map(lambda value: round(value, 2)), min_size=1, max_size=4))
def test_values_are_read_as_they_are_typed(values) -> None:
    assert read_over([f"k1={','.join(map(str, values))}"])["k1"] == tuple(values)


def test_a_signal_looks_the_same_in_every_panel_of_a_figure() -> None:
    pytest.importorskip("matplotlib")
    from r2med.render.charts import ChartLine, LineChart
    from r2med.render.plots import draw

    x = [0.0, 100.0]
    one, other = ChartLine("nqc", x, [1.0, 2.0], [0.5, 1.5], [1.5, 2.5]), ChartLine("wig", x, [1.0, 3.0])
    chance = ChartLine("random choice", x, [1.0, 2.0], straight=True)
    figure = draw(LineChart("t", "x", "y", [("a", [one, other, chance]), ("b", [other, one, chance])]))
    looks = [{(line.get_color(), line.get_linestyle()) for line in panel.lines} for panel in figure.axes]
    first = [[(line.get_color(), line.get_linestyle()) for line in panel.lines] for panel in figure.axes]
    assert looks[0] == looks[1]
    assert first[0][0] == first[1][1]
    assert first[0][0] != first[0][1]
