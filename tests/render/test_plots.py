"""Figures are drawn from real runs, as files that can be opened, and told apart without colour."""

from __future__ import annotations

import re
from itertools import combinations, pairwise
from pathlib import Path
from xml.etree import ElementTree

import pytest
from click.testing import CliRunner

pytest.importorskip("matplotlib")

import r2med
from r2med.cli.main import app
from r2med.comparison.charts import difference_chart
from r2med.comparison.study import compare
from r2med.data.loader import load
from r2med.diagnosis.attribution import diagnose
from r2med.diagnosis.causes import mean_shares
from r2med.diagnosis.charts import cause_chart, gap_chart
from r2med.diagnosis.gap import measure_gap
from r2med.errors import R2medError
from r2med.leaderboard.plot import ScoreSeries, average_chart, complete_systems, score_systems, task_chart
from r2med.measure.figure import Figure
from r2med.pipeline.loaded_runs import load_runs
from r2med.render.charts import files
from r2med.render.charts.chart import Chart
from r2med.render.charts.scale import legend_columns
from r2med.render.palette import shades
from r2med.runs.ledger import Ledger
from r2med.tuning.charts import frontier_chart
from r2med.tuning.frontier import Bill, Priced, price

SYSTEMS = ["bm25", "bm25-classic", "oracle-answer >> bm25"]
TASKS = ["sample/Biology", "sample/PMC-Clinical"]


@pytest.fixture
def charts(own_home: Path) -> dict[str, Chart]:
    r2med.evaluate(SYSTEMS, TASKS)
    with Ledger() as ledger:
        found = score_systems(ledger, SYSTEMS)
        by_task = [[diagnose(each, ledger) for each in several] for several in load_runs(ledger, SYSTEMS[:2])]
        return {
            "board": average_chart(found),
            "tasks": task_chart(found),
            "differences": difference_chart(compare(ledger, SYSTEMS[:2])[0], "nDCG@10"),
            "frontier": frontier_chart(price(ledger), "seconds", "nDCG@10"),
            "gap": gap_chart([measure_gap(load(task)) for task in TASKS]),
            "causes": cause_chart({each[0].system: mean_shares(each) for each in zip(*by_task, strict=True)}, "%"),
        }


def test_every_figure_is_a_whole_png_pdf_and_svg(charts: dict, tmp_path: Path) -> None:
    for name, chart in charts.items():
        for ending in files.ENDINGS:
            files.save(chart, tmp_path / f"{name}{ending}")
        assert (tmp_path / f"{name}.png").read_bytes()[:8] == b"\x89PNG\r\n\x1a\n"
        assert (tmp_path / f"{name}.pdf").read_bytes()[:5] == b"%PDF-"
        root = ElementTree.parse(tmp_path / f"{name}.svg").getroot()
        assert root.tag.endswith("svg")
        assert root.attrib["width"] == f"{files.WIDTH:g}pt", "paper size"
        words = [each.text for each in root.iter() if each.tag.endswith("}text")]
        assert any("sample" in word or "Bio" in word or "bm25" in word for word in words if word), "text stays text"
        assert [each.tag.rpartition("}")[2] for each in root][:2] == ["title", "desc"]
        assert (root[0].text, root[1].text) == (chart.title, chart.description)


def test_the_same_figure_is_the_same_file(tmp_path: Path) -> None:
    means = [Figure(0.2, 0.1, 0.3), Figure(0.4, 0.3, 0.5)]
    for name in ("one.svg", "two.svg"):
        chart = task_chart(ScoreSeries("nDCG@10", "custom", ["a", "b"], frozenset(), {"t": means}, means))
        files.save(chart, tmp_path / name)
    assert (tmp_path / "one.svg").read_bytes() == (tmp_path / "two.svg").read_bytes()


def test_no_text_is_cut_off_or_on_top_of_another(charts: dict) -> None:
    from matplotlib.backends.backend_agg import FigureCanvasAgg

    for name, chart in charts.items():
        figure = files.paint(files.paper_svg(chart))
        canvas = FigureCanvasAgg(figure)
        canvas.draw()
        width, height = figure.get_size_inches() * figure.dpi
        boxes = [text.get_window_extent(canvas.get_renderer()) for text in figure.axes[0].texts]
        assert len(boxes) > 5
        for box in boxes:
            assert -1 <= box.x0 <= box.x1 <= width + 1, name
            assert -1 <= box.y0 <= box.y1 <= height + 1, name
        for one, other in combinations(boxes, 2):
            assert not (one.padded(-1).overlaps(other.padded(-1))), name


def test_what_is_painted_is_what_is_drawn(charts: dict) -> None:
    for name, chart in charts.items():
        svg = files.paper_svg(chart)
        painted = files.paint(svg).axes[0]
        assert len(painted.texts) == svg.count("<text"), name
        shapes = re.findall(r"<(?:rect|line|circle|path)[^>]*>", re.sub("<defs>.*</defs>", "", svg))
        assert len(painted.patches) == sum("class=" in shape or "fill=" in shape for shape in shapes), name


@pytest.mark.parametrize("count", range(2, 9))
def test_shades_are_apart_in_greyscale(count: int) -> None:
    from matplotlib.colors import to_rgb

    luminance = [sum(weight * part for weight, part in zip((0.299, 0.587, 0.114), to_rgb(shade), strict=True))
                 for shade in shades(count)]  # fmt: skip
    assert all(later - earlier > 0.5 / count for earlier, later in pairwise(luminance))


def test_an_oracle_is_hollow_and_says_so(charts: dict) -> None:
    from matplotlib.colors import to_hex

    painted = files.paint(files.paper_svg(charts["board"])).axes[0]
    assert "oracle-answer >> bm25 (oracle)" in [text.get_text() for text in painted.texts]
    hollow = [mark for mark in painted.patches if to_hex(mark.get_facecolor()) == "#ffffff" and mark.get_fill()]
    assert len(hollow) == 1
    assert "(oracle)" not in files.paper_svg(charts["frontier"])


def test_a_spec_with_a_dollar_sign_is_no_formula(tmp_path: Path) -> None:
    name = r'replay("$\frac{$.tsv") >> bm25'
    means = [Figure(0.2, 0.1, 0.3)]
    chart = average_chart(ScoreSeries("nDCG@10", "custom", [name], frozenset(), {"t": means}, means))
    files.save(chart, tmp_path / "x.png")
    assert (tmp_path / "x.png").stat().st_size > 1000


def test_costs_of_nothing_and_of_little_have_a_place(tmp_path: Path) -> None:
    free, dear = Priced("free", 0.2, Bill(0.0, 0, 0.1)), Priced("dear", 0.4, Bill(0.002, 500, 9.0))
    unknown = Priced("unknown", 0.5, Bill(None, None, None))
    for by in ("money", "tokens", "seconds"):
        files.save(frontier_chart([free, dear, unknown], by, "nDCG@10"), tmp_path / f"{by}.png")
        files.save(frontier_chart([free], by, "nDCG@10"), tmp_path / f"{by}.svg")
    assert frontier_chart([unknown], "money", "nDCG@10") is None


def test_a_frontier_of_what_costs_the_same_is_refused(charts: dict, tmp_path: Path) -> None:
    done = CliRunner().invoke(
        app, ["plot", "frontier", *SYSTEMS[:2], "--by", "money", "--tasks", *TASKS, "--out", "x.png"]
    )
    assert isinstance(done.exception, R2medError)
    assert str(done.exception).startswith(
        "the systems all cost nothing in money, so there is no frontier; try --by tok"
    )


def test_a_legend_has_as_few_rows_as_there_is_room_for(charts: dict) -> None:
    names = [point.name for point in charts["tasks"].series]
    assert names == ["bm25", "bm25-classic", "oracle-answer >> bm25 (oracle)"]
    assert legend_columns(names) == 2
    assert legend_columns(["x" * 50] * 3) == 1
    assert [legend_columns(["short"] * count) for count in (1, 5, 8, 9)] == [1, 5, 8, 5]


def test_what_cannot_be_drawn_or_written_is_one_line(charts: dict, tmp_path: Path) -> None:
    with pytest.raises(R2medError, match=r"ends in \.png, \.svg, \.pdf"):
        files.save(charts["board"], tmp_path / "board.gif")
    (tmp_path / "file").write_text("in the way of a folder")
    with pytest.raises(R2medError, match="cannot be written"):
        files.save(charts["board"], tmp_path / "file" / "board.png")
    means = [Figure(0.2, 0.1, 0.3)] * 9
    with pytest.raises(R2medError, match="too many for bars"):
        task_chart(ScoreSeries("nDCG@10", "custom", [f"s{n}" for n in range(9)], frozenset(), {"t": means}, means))


def test_a_board_without_names_has_every_complete_system_but_oracles() -> None:
    r2med.evaluate(SYSTEMS, TASKS)
    r2med.evaluate("bm25(k1=2)", TASKS[:1])
    with Ledger() as ledger:
        assert sorted(complete_systems(ledger, TASKS)) == ["bm25", "bm25-classic"]
        with pytest.raises(R2medError, match="no system of the ledger"):
            complete_systems(ledger, ["sample/MedQA-Diag"])


def test_the_board_has_the_means_of_the_report() -> None:
    report = r2med.evaluate(SYSTEMS, TASKS)
    with Ledger() as ledger:
        found = score_systems(ledger, SYSTEMS)
    for system, mean in zip(found.systems, found.average, strict=True):
        assert mean.value == pytest.approx(report.average(system, "sample", "nDCG@10"))
    assert found.oracles == {"oracle-answer >> bm25"}


def test_a_frontier_without_a_known_cost_is_refused(own_home: Path, tmp_path: Path) -> None:
    r2med.evaluate("replay >> bm25", TASKS[:1])
    arguments = ["plot", "frontier", "replay >> bm25", "--tasks", TASKS[0], "--by", "money"]
    done = CliRunner().invoke(app, [*arguments, "--out", str(tmp_path / "x.png")])
    assert isinstance(done.exception, R2medError)
    assert str(done.exception).startswith("no system has a known cost in money; try one of")
