"""Tuning measures only on queries that had no part in the choice; a frontier adds up from kept runs."""

from __future__ import annotations

import json
import re
from collections import Counter
from itertools import combinations

import numpy as np
import pytest
from click.testing import CliRunner
from hypothesis import given, settings
from hypothesis import strategies as st

import r2med
from planted import write_task
from r2med.cli.main import app
from r2med.errors import R2medError
from r2med.measure.bootstrap import SEED
from r2med.measure.metrics import Measure
from r2med.runs.ledger import Ledger
from r2med.tuning.charts import route_chart
from r2med.tuning.frontier import Bill
from r2med.tuning.routes import SHARES, read_pair, savings
from r2med.tuning.splits import draw_half, folds, linked
from r2med.tuning.study import OptionRange, TuneOptions, read_over, tune

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
    for split in [*splits, *(draw_half(groups, seed + number) for number in range(3))]:
        sides = [{d for place in side for d, grade in qrels[queries[place]].items() if grade > 0} for side in split]
        assert not sides[0] & sides[1]
        assert len(split.chosen_by) + len(split.measured_on) == len(queries)


def test_what_is_chosen_is_the_best_where_it_is_chosen_and_reported_where_it_is_not() -> None:
    """By hand: every candidate on all queries, then the choice and the mean of each fold."""
    specs = ["bm25(k1=0.2)", "bm25", "bm25(k1=3)"]
    found = tune("bm25", TASKS, {"k1": (0.2, 0.9, 3.0)}, TuneOptions(folds=3))
    report = r2med.evaluate(specs, TASKS)
    values = {
        (result.system, result.task): dict(zip(result.queries, result.scores["nDCG@10"], strict=True))
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


def figures(output: str, *heads: str) -> list[list[float]]:
    """The figures of the rows of a tuning's table that begin so."""
    rows = [line.strip() for line in output.splitlines() if line.strip().startswith(heads)]
    return [[float(cell.rstrip("%")) for cell in re.split(r"  +", row)[1:]] for row in rows]


@pytest.mark.parametrize("how", [[], ["--folds", "4"], ["--halves", "3"]])
@pytest.mark.parametrize(
    "system",
    [["bm25", "--over", "k1=0.2,0.9,3", "b=0.2,0.9"], ["route(bm25, replay >> bm25, by=nqc)", "--budget", ".5"]],
)
def test_the_last_row_of_a_tuning_adds_up_with_its_rows_and_its_sentences(system, how) -> None:
    arguments = ["tune", *system, *how, "--tasks", *TASKS]
    shown = CliRunner().invoke(app, arguments, env={"COLUMNS": "200"}).output
    content = json.loads(CliRunner().invoke(app, [*arguments, "--json"]).stdout)
    (total,) = figures(shown, "all splits")
    weights = [fold["weight"] for fold in content["folds"]]
    assert sum(weights) == pytest.approx(1)
    names = ["by", "on", "untuned", *(["sent", "random"] if "route" in system[0] else [])]
    for value, name in zip(total[1:], names, strict=True):
        expected = sum(fold["weight"] * fold[name] for fold in content["folds"])
        assert value == pytest.approx(100 * expected, abs=0.51 if name == "sent" else 0.0051)
    rows = figures(shown, "bm25(", "route(")
    for place in range(1, 4):
        shares = [sum(f["weight"] for f in content["folds"] if f["chosen"] == chosen)
                  for chosen, _ in Counter(f["chosen"] for f in content["folds"]).most_common()]  # fmt: skip
        mean = sum(share * row[place] for share, row in zip(shares, rows, strict=True))
        assert total[place] == pytest.approx(mean, abs=0.011)
    said = dict(re.findall(r"(Tuned minus as written|Minus a random choice)[^:]*: ([+-][\d.]+) points", shown))
    assert float(said["Tuned minus as written"]) == pytest.approx(total[2] - total[3], abs=0.011)
    assert content["gain_mean"] == pytest.approx((total[2] - total[3]) / 100, abs=0.00011)
    if "route" in system[0]:
        assert float(said["Minus a random choice"]) == pytest.approx(total[2] - total[5], abs=0.011)
    ((size, way),) = re.findall(r"looks ([\d.]+) points (better|worse)", shown)
    assert float(size) * (1 if way == "better" else -1) == pytest.approx(total[1] - total[2], abs=0.011)


def linked_task(folder, together: int, alone: int) -> str:
    """A task of some queries that share one relevant document, and others with their own."""
    names = [f"q{n:02}" for n in range(together + alone)]
    documents = {"shared": "gout crystal"} | {f"d-{name}": f"word{name} gout" for name in names}
    relevant = {name: ["shared"] if place < together else [f"d-{name}"] for place, name in enumerate(names)}
    return str(write_task(folder, documents, {name: f"word{name} gout crystal" for name in names}, relevant))


def test_one_split_is_never_shown_twenty_times(tmp_path) -> None:
    task = linked_task(tmp_path / "t", 16, 6)
    arguments = ["tune", "bm25", "--over", "b=0.1,0.9", "--halves", "20", "--tasks", task]
    found = json.loads(CliRunner().invoke(app, [*arguments, "--json"]).stdout)
    assert len(found["folds"]) == 2, "the large group on one side or on the other"
    shown = CliRunner().invoke(app, arguments, env={"COLUMNS": "300"}).output
    assert "Of 20 halves that were asked for only 2 are different." in shown
    assert "22 queries are 7 groups that share no relevant document, the largest of 16 (73%)" in shown
    assert "of 2 splits" in shown
    apart = CliRunner().invoke(app, [*arguments, "--split-queries"], env={"COLUMNS": "300"}).output
    assert "20 random halves" in apart
    assert "16 of 22 queries share relevant documents, and may be on both sides" in apart
    assert "are different" not in apart


def test_the_large_group_is_not_always_on_the_measured_side() -> None:
    groups = [list(range(16)), *([place] for place in range(16, 30))]
    sides = Counter(0 in split.measured_on for split in (draw_half(groups, SEED + number) for number in range(40)))
    assert 8 <= sides[True] <= 32


def test_queries_that_all_hang_together_can_be_split_on_request(tmp_path) -> None:
    task = linked_task(tmp_path / "t", 12, 0)
    for how in (["--halves", "4"], ["--folds", "3"]):
        arguments = ["tune", "bm25", "--over", "b=0.1,0.9", *how, "--tasks", task]
        refused = CliRunner().invoke(app, arguments)
        assert "--split-queries" in str(refused.exception)
        assert CliRunner().invoke(app, [*arguments, "--split-queries"]).exit_code == 0
    assert len(r2med.tune("bm25", task, over={"b": [0.1, 0.9]}, folds=3, split_queries=True).folds) == 3


def test_uneven_folds_are_one_mean_in_every_row(tmp_path) -> None:
    """One candidate is chosen on all splits: its row is the last row."""
    task = linked_task(tmp_path / "t", 16, 6)
    arguments = ["tune", "bm25", "--over", "depth=50,100", "--tasks", task]
    shown = CliRunner().invoke(app, arguments, env={"COLUMNS": "200"}).output
    (row,), (total,) = figures(shown, "bm25"), figures(shown, "all splits")
    assert row == total
    report = r2med.evaluate("bm25", task)
    assert total[2] == pytest.approx(100 * report.results[0].metrics["nDCG@10"], abs=0.0051)


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
        assert curve.points[-1].difference.value == 0
        line = [
            np.mean(
                [
                    t.cheap.mean() + t.weights(curve.signal, share).mean() * (t.strong - t.cheap).mean()
                    for t in pair.tasks
                ]
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


def test_the_random_line_is_of_as_many_queries_as_the_signals_are_given() -> None:
    """Of 9 queries "50%" is 5: the oracle is the mean over all ways to choose as many, by enumeration."""
    task = TASKS[0]
    report = r2med.evaluate(["bm25", "replay >> bm25"], task)
    cheap, strong = (np.array(result.scores["nDCG@10"]) for result in report.results)
    expected: dict[float, float] = {}
    for share in (0.1, 0.3, 0.5, 0.7):
        count = int(share * len(cheap) + 0.5)
        rows = [np.where(np.isin(np.arange(len(cheap)), chosen), strong, cheap).mean()
                for chosen in combinations(range(len(cheap)), count)]  # fmt: skip
        expected[share] = float(np.mean(rows))
    with Ledger() as ledger:
        found = savings(ledger, ("bm25", "replay >> bm25"), [task], NDCG, "tokens", 0.01)
    shown = CliRunner().invoke(app, ["frontier", "bm25", "replay >> bm25", "--tasks", task], env={"COLUMNS": "120"})
    row = next(line for line in shown.output.splitlines() if "random choice" in line).split()[2:]
    assert [float(cell) for cell in row] == pytest.approx([100 * value for value in expected.values()], abs=0.006)
    (pair,) = found.pairs
    for curve in pair.curves:
        for share, value in expected.items():
            point = next(point for point in curve.points if point.share == share)
            assert point.random == pytest.approx(value)
            assert point.sent == int(share * len(cheap) + 0.5) / len(cheap)
    line = route_chart(found).panels[0][1][-1]
    assert dict(zip(line.x, line.y, strict=True))[100 * 5 / 9] == pytest.approx(100 * expected[0.5])


def test_a_route_costs_what_the_queries_that_are_sent_on_cost() -> None:
    r2med.evaluate(["bm25", "replay >> bm25"], TASKS[:1])
    with Ledger() as ledger:
        bills = (Bill(0.0, 10.0, 0.0), Bill(0.0, 900.0, 0.0))
        pair = read_pair(ledger, ("bm25", "replay >> bm25"), TASKS[:1], NDCG, bills)
    curve = pair.curves[0]
    point = next(point for point in curve.points if point.share == 0.5)
    assert curve.cost(point, "tokens") == pytest.approx(10 + 900 * 5 / 9)


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
    assert all("oracle" not in route["strong"] for route in content["routes"])


OWN = """
import numpy as np

class Engine:
    def __init__(self, documents, seed=0, skip=0):
        self.names, self.seed = sorted(documents), seed

    def search(self, queries, k):
        order = np.random.default_rng(self.seed).permutation(len(self.names))
        return [[self.names[place] for place in order[:k]] for _ in queries]

def search(queries, k, documents, start=0):
    return [sorted(documents)[start : start + k] for _ in queries]

class Encoder:
    def __init__(self, columns=8, seed=0):
        self.columns, self.seed = columns, seed

    def encode_queries(self, texts):
        return [np.random.default_rng([self.seed, len(text)]).normal(size=self.columns) for text in texts]

    encode_documents = encode_queries

class Ranker:
    def __init__(self, sign=1):
        self.sign = sign

    def score(self, query, documents):
        return [self.sign * len(document) for document in documents]
"""


@pytest.mark.parametrize(
    ("system", "over", "specs"),
    [
        ("own_parts:Engine(seed=0)", "seed=0,1", ["own_parts:Engine(seed=0)", "own_parts:Engine(seed=1)"]),
        ("own_parts:Engine", "seed=0,1", ["own_parts:Engine(seed=0)", "own_parts:Engine(seed=1)"]),
        ("own_parts:search", "start=0,9", ["own_parts:search(start=0)", "own_parts:search(start=9)"]),
        ("own_parts:Encoder(columns=4)", "seed=1,2", ["own_parts:Encoder(columns=4, seed=1)",
                                                       "own_parts:Encoder(columns=4, seed=2)"]),
        ("rrf(bm25, own_parts:Encoder)", "columns=4,8", ["rrf(bm25, own_parts:Encoder(columns=4))",
                                                          "rrf(bm25, own_parts:Encoder(columns=8))"]),
        ("bm25 >> own_parts:Ranker", "sign=1,-1", ["bm25 >> own_parts:Ranker(sign=1)",
                                                    "bm25 >> own_parts:Ranker(sign=-1)"]),
    ],
)  # fmt: skip
def test_options_of_code_of_one_s_own_are_tuned(tmp_path, monkeypatch, system, over, specs) -> None:
    (tmp_path / "own_parts.py").write_text(OWN)
    monkeypatch.chdir(tmp_path)
    found = tune(system, TASKS[:1], read_over([over]), TuneOptions(folds=2))
    means = [result.metrics["nDCG@10"] for result in r2med.evaluate(specs, TASKS[0]).results]
    assert found.candidates == 2
    assert found.best == specs[int(np.argmax(means))]
    assert not found.idle
    with pytest.raises(R2medError, match="has an option 'speed'") as refused:
        tune(system, TASKS[:1], {"speed": (1, 2)})
    assert over.partition("=")[0] in str(refused.value)
    assert not {"address", "target", "options", "made"} & set(re.split(r"[ ,]+", str(refused.value)))


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["tune", "bm25"], "say which options of bm25 to tune"),
        (["tune", "bm25", "--over", "k1"], "--over takes NAME=VALUES"),
        (["tune", "bm25", "--over", "speed=1,2"], "has an option 'speed'"),
        (["tune", "bm25", "--over", "k1=3..1"], "runs backwards"),
        (["tune", "bm25", "--over", "k1=-1,2"], "k1 must be 0 or more"),
        (["tune", "oracle-answer >> bm25", "--over", "k1=1,2"], "is not a system to tune"),
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
    from r2med.render.charts.chart import draw
    from r2med.render.charts.lines import ChartLine, LineChart

    x = [0.0, 100.0]
    one, other = ChartLine("nqc", x, [1.0, 2.0], [0.5, 1.5], [1.5, 2.5]), ChartLine("wig", x, [1.0, 3.0])
    chance = ChartLine("random choice", x, [1.0, 2.0], straight=True)
    svg = draw(LineChart("t", "x", "y", [("a", [one, other, chance]), ("b", [other, one, chance])]))
    looks = re.findall(r'class="curve" (stroke="[^"]+"(?: stroke-dasharray="[^"]+")?)', svg)
    first, second, legend = looks[:3], looks[3:6], looks[6:]
    assert sorted(first) == sorted(second) == sorted(legend)
    assert first[0] == second[1]
    assert first[0] != first[1]
