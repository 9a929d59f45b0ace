"""The board: own runs beside the published ones, ranked by one rule, groups and sources never mixed."""

from __future__ import annotations

import csv
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from io import StringIO
from pathlib import Path

import numpy as np
import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

import r2med
from ledgers import add_everywhere, add_run
from r2med.data.tasks import groups
from r2med.errors import R2medError
from r2med.leaderboard.board import agree, board, joined, ranked
from r2med.measure.bootstrap import average_intervals
from r2med.measure.significance import difference
from r2med.render.scores.model import Board, BoardRow, SystemParts, View
from r2med.render.scores.report import parts_of
from r2med.render.scores.text import FORMATS, show_board
from r2med.runs.ledger import Ledger
from r2med.runs.record import StageRecord
from r2med.web.library import Library

FULL = [task.name for task in groups()["full"]]


@pytest.fixture
def ledger() -> Iterator[Ledger]:
    with Ledger() as found:
        yield found


def line_of(found: Board, name: str) -> BoardRow:
    return next(line for line in found.lines if line.name == name)


def names(found: Board) -> list[str]:
    return [line.name for line in found.lines]


def test_own_runs_stand_among_the_published_ones_and_are_marked(ledger: Ledger) -> None:
    add_everywhere(ledger, "mine", "full", 0.9)
    add_everywhere(ledger, "poor", "full", 0.151)
    found = board(ledger, View())
    first = found.lines[0]
    assert (first.name, first.own, first.rank) == ("mine", True, 1)
    assert first.average == pytest.approx(0.9)
    ranks = {line.name: line.rank for line in found.lines}
    assert ranks["poor"] is not None
    assert ranks["poor"] == ranks["base/bm25"] + 1, "15.10 comes after the published 15.13"
    assert [line.name for line in found.lines if line.own] == ["mine", "poor"]


def test_own_and_published_can_be_seen_alone(ledger: Ledger) -> None:
    add_everywhere(ledger, "mine", "full", 0.9)
    assert names(board(ledger, View(published=False))) == ["mine"]
    assert "mine" not in names(board(ledger, View(own=False)))
    assert {line.sources for line in board(ledger, View(sources=("page",))).lines} == {("page",)}
    assert {line.sources for line in board(ledger, View(sources=("page", "own"))).lines} == {("own",), ("page",)}


def test_a_system_without_a_task_is_listed_and_not_ranked(ledger: Ledger) -> None:
    for task in FULL[:-1]:
        add_run(ledger, "partial", task, [0.99])
    found = board(ledger, View())
    line = line_of(found, "partial")
    assert (line.rank, line.average) == (None, None)
    assert line.values[FULL[0]] == 0.99
    assert found.lines.index(line) > 100, "after everything that has a rank"
    assert found.lines[0].rank == 1


def test_a_published_average_without_tasks_is_shown_and_not_ranked(ledger: Ledger) -> None:
    found = board(ledger, View())
    line = line_of(found, "InsertRank")
    assert (line.rank, line.average, line.stated) == (None, None, 0.511)
    assert "InsertRank: an average of 51.10 was published, without figures by task" in found.notes


def test_an_oracle_is_never_ranked(ledger: Ledger) -> None:
    add_everywhere(ledger, "oracle-answer >> bm25", "full", 1.0, oracle=True)
    found = board(ledger, View())
    line = line_of(found, "oracle-answer >> bm25")
    assert line.rank is None
    assert line.average == 1.0
    assert found.lines[0].name == "reranker/grouprank-32b/diver"
    assert line.parts.kind == "oracle"


def test_groups_never_share_a_board(ledger: Ledger) -> None:
    add_everywhere(ledger, "everywhere", "full", 0.1)
    add_everywhere(ledger, "everywhere", "nano", 0.2)
    add_everywhere(ledger, "everywhere", "sample", 0.3)
    for group, value in (("full", 0.1), ("nano", 0.2), ("sample", 0.3)):
        found = board(ledger, View(group=group))
        assert set(found.tasks) == {task.name for task in groups()[group]}
        assert line_of(found, "everywhere").average == pytest.approx(value)
    assert names(board(ledger, View(group="nano", own=False))) == ["nano/dense", "nano/hybrid", "nano/bm25"]
    assert names(board(ledger, View(group="sample", own=False))) == []


def test_recall_of_the_nano_lists_is_another_measure_and_does_not_mix_in(ledger: Ledger) -> None:
    assert names(board(ledger, View(group="nano", own=False, measure="Recall@100"))) == []
    assert len(board(ledger, View(group="nano", own=False, measure="Hit@10")).lines) == 3


def test_the_run_that_was_made_last_counts_whatever_its_date(ledger: Ledger) -> None:
    add_everywhere(ledger, "mine", "full", 0.1, created="2026-01-01T00:00:00+00:00")
    add_everywhere(ledger, "mine", "full", 0.2, created="2026-03-01T00:00:00+00:00")
    add_everywhere(ledger, "mine", "full", 0.3, created="2026-02-01T00:00:00+00:00")
    assert line_of(board(ledger, View()), "mine").average == pytest.approx(0.3)


def test_incomplete_queries_are_counted_and_said(ledger: Ledger) -> None:
    add_everywhere(ledger, "mine", "full", 0.1, incomplete={"q0": "trace not closed"})
    found = board(ledger, View(published=False))
    assert found.lines[0].incomplete == 8
    assert "mine: 8 of 16 queries incomplete" in found.notes


def test_a_system_that_saw_other_data_has_no_rank_in_any_format(ledger: Ledger) -> None:
    add_everywhere(ledger, "one", "full", 0.9)
    add_everywhere(ledger, "two", "full", 0.2)
    view = View(published=False)
    assert [line.rank for line in board(ledger, view).lines] == [1, 2]
    add_run(ledger, "two", "Biology", [0.3, 0.3], data={"fingerprint": "other", "revision": ""})
    found = board(ledger, view)
    assert [(line.name, line.rank, line.other_data) for line in found.lines] == [
        ("two", 1, ()),
        ("one", None, ("Biology",)),
    ]
    assert found.notes == [
        "° on Biology measured on other data than it has now, so without a rank: one;"
        " r2med run 'one' --tasks Biology measures it on the present data"
    ]
    shown = {name: write([found]) for name, write in FORMATS.items()}
    assert "| - | one | 90.00° | **90.00** |" in shown["md"]
    assert "| 1 | two | **30.00** |" in shown["md"]
    assert r"90.00\rlap{$^\circ$}" in shown["latex"]
    rows = list(csv.DictReader(StringIO(shown["csv"])))
    columns = [[row[name] for name in ("system", "rank", "other_data")] for row in rows]
    assert columns == [["two", "1", ""], ["one", "", "Biology"]]
    lines = orjson.loads(shown["json"])["lines"]
    assert [(line["rank"], line.get("other_data")) for line in lines] == [(1, None), (None, ["Biology"])]
    console = Console(file=StringIO(), width=160)
    show_board(found, console)
    assert "90.00°" in console.file.getvalue()
    # A further run on the old data makes that the present one again, for both.
    add_run(ledger, "one", "Biology", [0.9, 0.9], note="again")
    assert [line.rank for line in board(ledger, view).lines] == [1, 2]


def test_a_system_without_one_complete_query_has_no_rank(ledger: Ledger) -> None:
    add_everywhere(ledger, "all", "full", 0.5, incomplete={"q0": "no answer", "q1": "no answer"})
    add_everywhere(ledger, "some", "full", 0.4, incomplete={"q0": "no answer"})
    found = board(ledger, View(published=False))
    assert [(line.name, line.rank) for line in found.lines] == [("some", 1), ("all", None)]
    assert "all: all 16 queries incomplete, so it has no rank" in found.notes
    assert [row["incomplete"] for row in csv.DictReader(StringIO(FORMATS["csv"]([found])))] == ["8", "16"]
    assert "some \\*" in FORMATS["md"]([found])


def test_any_measure_can_rank(ledger: Ledger) -> None:
    add_everywhere(ledger, "mine", "full", [0.5], seconds=2.0)
    found = board(ledger, View(measure="Recall@100"))
    best = next(line for line in found.lines if line.rank == 1)
    assert best.average == max(line.average for line in found.lines if line.average is not None)
    assert line_of(found, "base/bge").average == pytest.approx(
        (0.40968 + 0.69147 + 0.77707 + 0.22047 + 0.2849 + 0.51878 + 0.55848 + 0.59044) / 8
    )
    mine = line_of(found, "mine")
    assert (mine.rank, mine.values) == (None, {})
    assert any(note.startswith("not measured by Recall@100 everywhere: mine;") for note in found.notes)


STAGES = {
    "hyde(gpt-4o) >> bm25": [("hyde(gpt-4o)", "expander"), ("bm25", "retriever")],
    "hyde(qwq-32b) >> bge": [("hyde(qwq-32b)", "expander"), ("bge", "retriever")],
    "search-o1(qwq-32b) >> bm25": [("search-o1(qwq-32b)", "expander"), ("bm25", "retriever")],
    "replay(hub, method=search-r1, llm=qwen-3b-ins) >> nv": [
        ("replay(hub, method=search-r1, llm=qwen-3b-ins)", "expander"),
        ("nv", "retriever"),
    ],
    "rrf(bm25, bge)": [("rrf(bm25, bge)", "retriever"), ("bm25", "retriever"), ("bge", "retriever")],
    "bm25 >> listwise(deepseek-r1)": [("bm25", "retriever"), ("listwise(deepseek-r1)", "reranker")],
    "bge >> rankllama(depth=10)": [("bge", "retriever"), ("rankllama(depth=10)", "reranker")],
    "replay(my.tsv) >> bm25": [('replay("my.tsv")', "expander"), ("bm25", "retriever")],
    "wordllama": [("wordllama", "retriever")],
}
PARTS = {
    "hyde(gpt-4o) >> bm25": SystemParts("gar", ("bm25",), ("gpt-4o",)),
    "hyde(qwq-32b) >> bge": SystemParts("reasoning", ("bge",), ("qwq-32b",)),
    "search-o1(qwq-32b) >> bm25": SystemParts("agent", ("bm25",), ("qwq-32b",)),
    "replay(hub, method=search-r1, llm=qwen-3b-ins) >> nv": SystemParts("agent", ("nv",), ("qwen-3b-ins",)),
    "rrf(bm25, bge)": SystemParts("fusion", ("rrf", "bm25", "bge")),
    "bm25 >> listwise(deepseek-r1)": SystemParts("reranker", ("bm25",), ("deepseek-r1",), ("listwise",)),
    "bge >> rankllama(depth=10)": SystemParts("reranker", ("bge",), (), ("rankllama",)),
    "replay(my.tsv) >> bm25": SystemParts("gar", ("bm25",)),
    "wordllama": SystemParts("base", ("wordllama",)),
}


@pytest.mark.parametrize("system", STAGES)
def test_what_an_own_system_is_made_of_is_told_by_its_record(system: str) -> None:
    assert parts_of([StageRecord(*stage) for stage in STAGES[system]]) == PARTS[system]


def test_filters_choose_own_and_published_alike(ledger: Ledger) -> None:
    for system, stages in STAGES.items():
        add_everywhere(ledger, system, "full", 0.2, stages=[{"spec": spec, "kind": kind} for spec, kind in stages])
    by_llm = names(board(ledger, View(llm="gpt-4o")))
    assert "hyde(gpt-4o) >> bm25" in by_llm
    assert {"hyde/gpt4/bm25", "lamer/gpt4/nv", "query2doc/gpt4/bge"} <= set(by_llm)
    assert all("gpt" in name for name in by_llm)
    assert names(board(ledger, View(llm="GPT4"))) == [name for name in by_llm if name != "hyde(gpt-4o) >> bm25"]
    by_reranker = names(board(ledger, View(reranker="rankllama")))
    assert by_reranker == ["reranker/rankllama", "bge >> rankllama(depth=10)"]
    agents = names(board(ledger, View(kind="agent", retriever="bm25")))
    assert "search-o1(qwq-32b) >> bm25" in agents
    assert "search-o1/qwq-32b/bm25" in agents
    assert not any(name.endswith(("nv", "bge")) for name in agents)
    assert "rrf(bm25, bge)" in names(board(ledger, View(retriever="bge", published=False)))


def test_every_kind_can_be_chosen(ledger: Ledger) -> None:
    counts = {kind: len(board(ledger, View(kind=kind, sources=("paper",))).lines) for kind in ("base", "gar", "agent")}
    assert counts == {"base": 15, "gar": 33, "agent": 8}
    assert len(board(ledger, View(kind="reranker", sources=("paper",))).lines) == 3
    assert len(board(ledger, View(kind="reasoning", sources=("paper",))).lines) == 12


def test_a_family_has_its_own_columns_and_average(ledger: Ledger) -> None:
    found = board(ledger, View(family="clinical-case"))
    assert list(found.tasks) == ["PMC-Clinical", "IIYi-Clinical"]
    line = line_of(found, "base/grit")
    assert line.average == pytest.approx((line.values["PMC-Clinical"] + line.values["IIYi-Clinical"]) / 2)
    assert "InsertRank" not in names(found), "its average is over all tasks and says nothing about two"
    assert all(note.startswith("sources disagree") for note in found.notes)


@pytest.mark.parametrize(
    ("view", "message"),
    [
        (View(retriever="bge-larg"), "no system on this board has the retriever 'bge-larg'"),
        (View(llm="gpt-9"), "no system on this board has the llm 'gpt-9'"),
        (View(reranker="rankllam"), "did you mean rankllama?"),
        (View(family="clinical"), "no family 'clinical'"),
        (View(sources=("papers",)), "no source 'papers'; did you mean paper?"),
        (View(baseline="bm25"), "the baseline 'bm25' is not an own system with all tasks of this table"),
    ],
)
def test_names_that_nothing_has_are_one_line(ledger: Ledger, view: View, message: str) -> None:
    with pytest.raises(R2medError) as caught:
        board(ledger, view)
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_limit_cuts_lines_and_keeps_ranks(ledger: Ledger) -> None:
    whole, cut = board(ledger, View()), board(ledger, View(limit=5))
    assert names(cut) == names(whole)[:5]
    assert cut.left_out == len(whole.lines) - 5


def test_intervals_are_those_of_the_bootstrap(ledger: Ledger) -> None:
    generator = np.random.default_rng(7)
    scores = {name: {task: generator.random(20 + place) for place, task in enumerate(FULL)} for name in ("a", "b")}
    scores["c"] = {task: generator.random(5) for task in FULL}
    for name, tasks in scores.items():
        for task, values in tasks.items():
            add_run(ledger, name, task, values.tolist())
    found = board(ledger, View(intervals=True))
    for name, tasks in scores.items():
        assert line_of(found, name).intervals[""] == pytest.approx(average_intervals(list(tasks.values()))[0])
    assert not line_of(found, "base/bge").intervals
    assert not board(ledger, View()).lines[0].intervals


def test_marks_are_those_of_the_paired_test(ledger: Ledger) -> None:
    generator = np.random.default_rng(3)
    base = {task: generator.random(40) * 0.5 for task in FULL}
    better = {task: values + 0.3 * generator.random(40) for task, values in base.items()}
    noise = {task: values + generator.normal(0, 0.01, 40) for task, values in base.items()}
    for name, tasks in (("base", base), ("better", better), ("noise", noise), ("worse", better)):
        sign = -1 if name == "worse" else 1
        for task, values in tasks.items():
            shifted = base[task] + sign * (values - base[task])
            add_run(ledger, name, task, shifted.tolist())
    found = board(ledger, View(baseline="base", published=False))
    marks = {line.name: line.marks for line in found.lines}
    assert set(marks["better"].values()) == {"†"}
    assert set(marks["worse"].values()) == {"‡"}
    assert set(marks["better"]) == {*FULL, ""}
    assert marks["base"] == {}
    assert difference([noise[task] - base[task] for task in FULL]).randomisation > 0.05
    assert "" not in marks["noise"]
    assert found.notes[-1].startswith("† better, ‡ worse than base")


def test_the_baseline_need_not_be_shown(ledger: Ledger) -> None:
    for place, name in enumerate(["best", "good", "base"]):
        add_everywhere(ledger, name, "full", 0.9 - 0.3 * place)
    for limits in ({"limit": 1}, {"limit": 2}, {"kind": "base", "limit": 1}):
        found = board(ledger, View(baseline="base", published=False, **limits))
        assert "base" not in [line.name for line in found.lines]
        assert all(set(line.marks.values()) == {"†"} for line in found.lines)


def test_other_data_than_the_baselines_gets_no_mark(ledger: Ledger) -> None:
    add_everywhere(ledger, "base", "full", [0.1] * 30)
    add_everywhere(ledger, "same", "full", [0.9] * 30)
    add_everywhere(ledger, "other", "full", [0.9] * 30, data={"fingerprint": "elsewhere", "revision": ""})
    found = board(ledger, View(baseline="base", published=False))
    assert line_of(found, "same").marks
    assert not line_of(found, "other").marks


def test_costs_are_added_up_over_tasks(ledger: Ledger) -> None:
    account = {"requests": 2, "prompt_tokens": 100, "completion_tokens": 10, "reasoning_tokens": 5, "cost": 0.25}
    unknown = {**account, "cost": None}
    add_everywhere(ledger, "paid", "full", 0.1, work=[{"search": 0.5, "account": account}], seconds=3.0)
    add_everywhere(ledger, "own", "full", 0.1, work=[{"account": unknown}])
    paid = line_of(board(ledger, View()), "paid").cost
    assert (paid.requests, paid.tokens, paid.dollars, paid.seconds) == (16, 880, 2.0, 24.0)
    assert paid.seconds_per_query == pytest.approx(0.25)
    assert line_of(board(ledger, View()), "own").cost.dollars is None
    assert line_of(board(ledger, View()), "base/bge").cost is None


def test_the_runs_of_an_evaluation_are_on_the_board() -> None:
    report = r2med.evaluate(["bm25", "rrf(bm25, bm25-classic)"], "sample")
    with Ledger() as ledger:
        found = board(ledger, View(group="sample", intervals=True))
    for line in found.lines:
        assert line.average == pytest.approx(report.average(line.name, "sample", "nDCG@10"))
        assert line.intervals == report.intervals("sample", "nDCG@10")[line.name]
    with Ledger() as ledger:
        sure = board(ledger, View(group="sample", published=False, sort="interval", limit=1))
    assert [line.name for line in sure.lines] == [max(found.lines, key=lambda line: line.intervals[""].low).name]
    assert sure.left_out == 1
    assert line_of(found, "rrf(bm25, bm25-classic)").parts == SystemParts("fusion", ("rrf", "bm25", "bm25-classic"))


TASKS = ("A", "B")
SHARES = st.floats(0, 1) | st.sampled_from([0.25, 0.5])
ROWS = st.lists(
    st.builds(
        BoardRow,
        name=st.text("abc", min_size=1, max_size=3),
        sources=st.just(("own",)),
        values=st.dictionaries(st.sampled_from(TASKS), SHARES),
        oracle=st.booleans(),
    ),
    max_size=8,
)


@given(ROWS)
def test_ranks_follow_the_averages_of_those_that_have_one(rows: list[BoardRow]) -> None:
    lines = ranked(rows, TASKS)
    unranked = [replace(line, average=None, rank=None) for line in lines]
    assert sorted(map(repr, rows)) == sorted(map(repr, unranked)), "every row once"
    for line in lines:
        complete = set(line.values) == set(TASKS)
        assert (line.average is not None) == complete
        assert (line.rank is not None) == (complete and not line.oracle)
    able = [line for line in lines if line.rank is not None]
    assert lines[: len(able)] == able, "what has no rank comes last"
    for line in able:
        assert line.rank == 1 + sum(other.average > line.average for other in able)


PUBLISHED = st.lists(
    st.builds(
        BoardRow,
        name=st.sampled_from(["x", "y"]),
        sources=st.sampled_from([("paper",), ("page",), ("mteb",)]),
        values=st.fixed_dictionaries({"A": st.sampled_from([0.1, 0.10004, 0.1001, 0.2])}),
        system=st.sampled_from(["", "bge"]),
    ),
    max_size=6,
)


@given(PUBLISHED)
def test_joining_loses_no_source_and_changes_no_figure(rows: list[BoardRow]) -> None:
    kept = joined(rows)
    assert sum(len(row.sources) for row in kept) == len(rows)
    figures = [row.values for row in rows]
    for row in kept:
        assert row.values in figures
    systems = {id(row): row.system or row.name for row in [*rows, *kept]}
    for row in kept:
        same = sum(systems[id(other)] == systems[id(row)] for other in rows)
        assert len(row.sources) <= same, "what is not known to be the same system is never joined"
    for place, row in enumerate(kept):
        assert not any(agree(row, other) and systems[id(row)] == systems[id(other)] for other in kept[:place])


def command(*arguments: str, columns: int = 160) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "r2med", "board", *arguments],
        capture_output=True,
        text=True,
        encoding="utf-8",
        env={**os.environ, "COLUMNS": str(columns), "NO_COLOR": "1"},
        timeout=60,
        check=False,
    )


def test_the_command_shows_marks_and_notes(ledger: Ledger) -> None:
    add_everywhere(ledger, "bm25(k1=1.2)", "full", 0.9)
    done = command("--limit", "3")
    assert done.returncode == 0, done.stderr
    rows = [line for line in done.stdout.splitlines() if "bm25(k1=1.2)" in line]
    assert len(rows) == 1
    assert rows[0].split()[:4] == ["1", "▸", "bm25(k1=1.2)", "own"]
    assert "160 more systems are not shown" in done.stdout
    for chosen in (("paper", "mteb"), ("own", "mteb")):
        shown = json.loads(command("--format", "json", "--measure", "recall_at_10", "--source", *chosen).stdout)
        assert shown["measure"] == "Recall@10"
        assert {source for line in shown["lines"] for source in line["sources"]} == set(chosen)


@pytest.mark.parametrize("columns", [80, 100, 109, 110, 200])
def test_the_average_is_whole_on_a_narrow_terminal(ledger: Ledger, columns: int) -> None:
    add_everywhere(ledger, "bm25(k1=1.2)", "full", 0.98765)
    done = command("--limit", "3", columns=columns)
    assert max(map(len, done.stdout.splitlines())) <= columns
    first = next(line for line in done.stdout.splitlines() if line.split()[:2] == ["1", "▸"])
    assert first.split()[-9:] == ["98.8" if columns < 100 else "98.77"] * 9


def test_the_command_imports_nothing_heavy(ledger: Ledger) -> None:
    add_everywhere(ledger, "mine", "full", 0.5)
    code = (
        "import sys; sys.argv = ['r2med', 'board', '--ci']\n"
        "from r2med.cli.main import main\n"
        "try: main()\n"
        "except SystemExit: pass\n"
        "heavy = {'polars', 'scipy', 'huggingface_hub', 'torch', 'httpx2'} & set(sys.modules)\n"
        "assert not heavy, heavy"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr


def test_wrong_options_are_one_line() -> None:
    for arguments, said in (
        (("--measure", "NDGC@10"), "did you mean nDCG@10?"),
        (("--retriever", "bmm25"), "did you mean bm25?"),
        (("--kind", "other"), "Invalid value for '--kind'"),
    ):
        done = command(*arguments)
        assert done.returncode != 0
        assert said in done.stderr
        assert "Traceback" not in done.stderr


def own_folder(folder: Path, text: str = "gout") -> str:
    folder.mkdir(exist_ok=True)
    rows = {"corpus": {"id": "d", "text": text}, "query": {"id": "q", "text": "gout"}}
    rows["qrels"] = {"q_id": "q", "p_id": "d", "score": 1}
    for part, row in rows.items():
        (folder / f"{part}.jsonl").write_text(json.dumps(row) + "\n")
    return str(folder)


def test_a_folder_edited_after_a_run_marks_the_figure_as_of_other_data(tmp_path: Path, ledger: Ledger) -> None:
    folder = own_folder(tmp_path / "ward")
    r2med.evaluate("bm25", folder)
    library = Library()

    def lines() -> list[tuple[str, int | None, tuple[str, ...]]]:
        views = View(group="custom", tasks=(folder,)), View(group="custom")
        boards = [*(board(ledger, view) for view in views), *map(library.board, views)]
        rows = [[(line.name, line.rank, line.other_data) for line in each.lines] for each in boards]
        assert all(row == rows[0] for row in rows)
        return rows[0]

    assert lines() == [("bm25", 1, ())]
    own_folder(tmp_path / "ward", "asthma")
    assert lines() == [("bm25", None, (folder,))]
    shown = command("--tasks", folder).stdout
    assert "100.00°" in shown
    assert "measured on other data than it has now" in " ".join(shown.split())
    r2med.evaluate("bm25-classic", folder)
    assert lines() == [("bm25-classic", 1, ()), ("bm25", None, (folder,))]
    own_folder(tmp_path / "ward")  # as it was when bm25 was run
    assert lines() == [("bm25", 1, ()), ("bm25-classic", None, (folder,))]
    shutil.rmtree(folder)  # then the last run tells which data the task has
    assert lines() == [("bm25-classic", 1, ()), ("bm25", None, (folder,))]


def test_folders_have_no_average_and_no_rank_unless_they_are_chosen(tmp_path: Path, ledger: Ledger) -> None:
    folders = [own_folder(tmp_path / name) for name in ("ward", "clinic")]
    r2med.evaluate(["bm25", "bm25-classic"], folders)
    view = View(group="custom", intervals=True, baseline="bm25", sort="interval")
    for found in (board(ledger, view), Library().board(View(group="custom"))):
        assert [(line.name, line.rank, line.average) for line in found.lines] == [
            ("bm25", None, None),
            ("bm25-classic", None, None),
        ]
        assert all("" not in {**line.intervals, **line.marks} for line in found.lines)
        assert found.columns == tuple(sorted(folders))
        assert any("no average" in note for note in found.notes)
        written = {name: write([found]) for name, write in FORMATS.items()}
        assert "avg" not in written["md"]
        assert "Avg." not in written["latex"]
        assert all(row["average"] == "" for row in csv.DictReader(StringIO(written["csv"])))
        assert all(line["average"] is None for line in json.loads(written["json"])["lines"])
    assert "avg" not in command("--group", "custom").stdout
    chosen = board(ledger, View(group="custom", tasks=tuple(folders)))
    assert [(line.rank, line.average) for line in chosen.lines] == [(1, 1.0), (1, 1.0)]


def test_own_folders_have_a_board_of_their_own(tmp_path: Path) -> None:
    folders = [own_folder(tmp_path / name) for name in ("ward", "clinic")]
    r2med.evaluate("bm25", folders)
    r2med.evaluate("bm25-classic", folders[0])

    def shown(*options: str) -> list[tuple[str, int | None]]:
        lines = json.loads(command(*options, "--format", "json").stdout)["lines"]
        return [(line["system"], line["rank"]) for line in lines]

    assert shown("--group", "custom") == [("bm25", None), ("bm25-classic", None)]
    assert shown("--tasks", *folders) == [("bm25", 1), ("bm25-classic", None)]
    assert shown("--tasks", folders[0]) == [("bm25", 1), ("bm25-classic", 1)]
    assert shown("--tasks", "Biology", "--kind", "base", "--source", "paper")
    assert "a board has tasks of one group" in command("--tasks", folders[0], "Biology").stderr


def test_own_ranks_rest_on_queries_and_published_ones_on_tasks(ledger: Ledger) -> None:
    generator = np.random.default_rng(4)
    hard = generator.random(40) / 2
    for name, lead in (("best", 0.3), ("twin", 0.1), ("other twin", 0.1 + 1e-9)):
        add_everywhere(ledger, name, "full", list(hard + lead + generator.normal(0, 0.02, 40)))
    add_everywhere(ledger, "gold", "full", list(hard + 0.5), oracle=True)
    found = board(ledger, View(details=("ranks",)))
    own = {line.name: line.ranks for line in found.lines if line.own and line.ranks is not None}
    assert {name: (ranks.by, ranks.of) for name, ranks in own.items()} == dict.fromkeys(
        ("best", "twin", "other twin"), ("queries", 3)
    )
    assert (own["best"].low, own["best"].high) == (1, 1)
    assert own["best"].above == {"twin": 1.0, "other twin": 1.0}
    published = [line for line in found.lines if not line.own and line.rank is not None]
    assert all(line.ranks is not None and line.ranks.text.startswith("~") for line in published)
    assert {line.ranks.of for line in published if line.ranks} == {sum(line.rank is not None for line in found.lines)}
    assert line_of(found, "gold").ranks is None
    assert sum(note.startswith(("ranks", "~")) for note in found.notes) == 2
    # Nothing is computed where it was not asked for.
    assert all(line.ranks is None for line in board(ledger, View()).lines)


def test_ranks_are_in_every_output(ledger: Ledger) -> None:
    for place in range(3):
        add_everywhere(ledger, f"own {place}", "sample", [0.1 * place, 0.3, 0.2])
    found = board(ledger, View(group="sample", details=("ranks",)))
    line = json.loads(FORMATS["json"]([found]))["lines"][0]
    assert line["ranks"]["by"] == "queries"
    assert set(line["ranks"]["above"]) == {"own 0", "own 1"}
    row = next(csv.DictReader(StringIO(FORMATS["csv"]([found]))))
    assert (row["rank_low"], row["ranked_among"], row["ranks_by"]) == (str(line["ranks"]["low"]), "3", "queries")
    assert f"{line['ranks']['low']}-{line['ranks']['high']} of 3" in FORMATS["md"]([found])


def test_one_system_alone_has_no_interval_of_ranks(ledger: Ledger) -> None:
    add_everywhere(ledger, "alone", "sample", [0.1, 0.3])
    found = board(ledger, View(group="sample", details=("ranks",)))
    assert found.lines[0].ranks is None
    assert any("none can be given" in note for note in found.notes)


def test_contamination_is_stated_and_costs_no_rank(ledger: Ledger, tmp_path: Path) -> None:
    from r2med.store.cache import home

    plain = board(ledger, View(kind="base"))
    (home() / "contamination.toml").write_text('[model.nv]\ntrained_on = ["Biology"]\nsource = "its card"\n')
    training = tmp_path / "train.txt"
    query = r2med.load("sample/Biology").collection.queries.texts[0]
    training.write_text(query + "\n")
    options = ["--tasks", "sample", "--methods", "exact", "--model"]
    for model in ("leaky", "rrf"):
        subprocess.run([sys.executable, "-m", "r2med", "leakage", str(training), *options, model], check=False)
    training.write_text("nothing of the kind stands in these data\n")
    subprocess.run([sys.executable, "-m", "r2med", "leakage", str(training), *options, "clean"], check=True)
    found = board(ledger, View(kind="base", details=("contamination",)))
    assert [line.rank for line in found.lines] == [line.rank for line in plain.lines]
    stated = line_of(found, "base/nv").contamination
    assert stated is not None
    assert (stated.status, stated.tasks, stated.source) == ("trained on it", ("Biology",), "its card")
    statuses = {line.name: line.contamination.status for line in found.lines if line.contamination}
    assert (statuses["base/bge"], statuses["base/bm25"]) == ("not known", "not trained")
    assert json.loads(FORMATS["json"]([found]))["lines"][0]["contamination"]["status"] == "not known"
    assert "trained on it: Biology" in FORMATS["md"]([found])
    for name in ("leaky", "clean", "other"):
        add_everywhere(ledger, name, "sample", 0.5, stages=({"spec": name, "kind": "retriever"},))
    own = board(ledger, View(group="sample", details=("contamination",)))
    assert {line.name: line.details["contamination"] for line in own.lines} == {
        "leaky": "overlap found: sample/Biology",
        "clean": "no overlap found: sample/Biology, sample/Bioinformatics, 6 more",
        "other": "not known",
    }


def test_a_faulty_statement_is_one_line(ledger: Ledger) -> None:
    from r2med.store.cache import home

    (home() / "contamination.toml").write_text('[model.nv]\ntrained = ["Biology"]\n')
    with pytest.raises(R2medError, match=r"contamination.toml:2: \[model.nv\] trained is not a known key"):
        board(ledger, View(details=("contamination",)))
