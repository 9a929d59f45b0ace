"""The published figures: all there, the averages right, every spec one that parses, sources kept apart."""

from __future__ import annotations

import csv
import importlib.util
import json
import re
from collections.abc import Mapping
from io import StringIO
from pathlib import Path
from types import ModuleType

import pytest

import needs
from r2med.data.published import KINDS, find_published, published, sources
from r2med.data.tasks import groups
from r2med.errors import R2medError
from r2med.leaderboard.board import board
from r2med.leaderboard.reproduce import reproductions
from r2med.measure.metrics import Measure
from r2med.pipeline.system import System
from r2med.render.scores.model import Board, BoardRow, View, board_table
from r2med.render.scores.text import FORMATS, show_board
from r2med.render.table import written_to
from r2med.rerank.cards import served_cards
from r2med.runs.ledger import Ledger

ROOT = Path(__file__).resolve().parents[2]
FULL = [task.name for task in groups()["full"]]

# Averages of nDCG@10 x 100 as printed in the paper and on the page, in the order of the paper's tables.
PRINTED = {
    "base/bm25": 15.13, "base/contriever": 11.76, "base/inst-l": 16.21, "base/inst-xl": 18.13, "base/bmr-410m": 18.10,
    "base/bmr-2b": 24.69, "base/bmr-7b": 30.18, "base/bge": 17.02, "base/e5": 24.92, "base/sfr": 30.65,
    "base/grit": 31.12, "base/nv": 31.43, "base/openai": 28.57, "base/voyage": 27.34,
    "reranker/bge-reranker": 25.55, "reranker/monobert": 26.47, "reranker/rankllama": 29.93,
}  # fmt: skip


def shown(**wanted: object) -> Board:
    with Ledger() as ledger:
        return board(ledger, View(**wanted))


def by_name(found: Board) -> Mapping[str, list[BoardRow]]:
    lines: dict[str, list[BoardRow]] = {}
    for line in found.lines:
        lines.setdefault(line.name, []).append(line)
    return lines


def test_every_system_of_every_source_is_there() -> None:
    counts = {name: sum(system.source.name == name for system in published()) for name in sources()}
    assert counts == {
        "paper": 71,
        "page": 68,
        "mteb": 26,
        "reasonembed": 15,
        "insertrank": 1,
        "grouprank": 18,
        "reasonrank": 11,
        "nano": 3,
    }
    for system in published():
        if system.name != "InsertRank":
            prefix = "nano/" if system.source.group == "nano" else ""
            assert list(system.figures["nDCG@10"].tasks) == [f"{prefix}{task}" for task in FULL]


def test_the_paper_has_all_its_figures() -> None:
    figures = [f for s in published() if s.source.name == "paper" for f in s.figures.values()]
    assert sum(len(found.tasks) for found in figures) == 11_576


@pytest.mark.parametrize(("name", "printed"), PRINTED.items())
def test_averages_are_the_printed_ones(name: str, printed: float) -> None:
    lines = by_name(shown(sources=("paper",)))[name]
    assert len(lines) == 1
    assert 100 * lines[0].average == pytest.approx(printed, abs=0.01)


def test_averages_of_the_page_are_the_printed_ones() -> None:
    page = [system for system in published() if system.source.name == "page"]
    lines = by_name(shown(sources=("page",)))
    for system in page:
        figures = system.figures["nDCG@10"]
        assert figures.average is not None
        mean = sum(figures.tasks.values()) / 8
        assert 100 * mean == pytest.approx(100 * figures.average, abs=0.01)
        assert f"{100 * lines[system.name][0].average:.2f}" == f"{100 * figures.average:.2f}"


def test_sources_ten_points_apart_are_marked_in_every_format() -> None:
    with Ledger() as ledger:
        found = board(ledger, View(retriever="diver", kind="base", details=("first stage", "tokens")))
        reranked = board(ledger, View(retriever="diver", kind="reranker"))
        near = board(ledger, View(retriever="medcpt", kind="base"))
    assert [f"{100 * line.apart:.2f}" for line in found.lines] == ["10.67", "10.67"]
    assert all(0 < line.apart < 0.1 for line in near.lines if line.disputed)
    assert "averages 10.67 apart" in found.notes[0]
    assert not any("apart" in note for note in near.notes)
    text = FORMATS["md"]([found])
    assert "| 1 | DIVER-Retriever-4B ≠10.7 | grouprank | - | - |" in text
    assert "| 2 | DIVER-Retriever-4B ≠10.7 | reasonembed | - | 512 |" in text
    assert "≠10.7" not in FORMATS["md"]([near])
    assert "≠" in FORMATS["md"]([near])
    lines = json.loads(FORMATS["json"]([found]))["lines"]
    assert [(round(line["apart"], 4), line.get("max_document")) for line in lines] == [(0.1067, None), (0.1067, 512)]
    rows = list(csv.DictReader(FORMATS["csv"]([reranked]).splitlines()))
    assert {row["first_stage"] for row in rows} == {"diver"}
    assert all(line["first_stage"] == "diver" for line in json.loads(FORMATS["json"]([reranked]))["lines"])
    show_board(found, written_to(screen := StringIO(), 140))
    assert re.search(r"DIVER-Retriever-4B ≠10.7 +reasonembed +- +512", screen.getvalue())
    show_board(reranked, written_to(screen := StringIO(), 200))
    assert "first stage" in " ".join(screen.getvalue().split())
    assert "≠ with a number: sources are so many points apart" in board_table(found).legend


def test_every_spec_parses_and_is_written_as_r2med_writes_it() -> None:
    specs = {spec for system in published() for spec in (system.system, system.generate) if spec}
    assert len(specs) > 150
    for spec in specs:
        assert System.parse(spec).spec == spec


def test_every_row_of_the_benchmark_has_a_spec_and_every_served_reranker_too() -> None:
    unsaid = [system for system in published() if not system.system]
    assert not {system.name for system in unsaid if system.source.name in ("paper", "page")}
    assert not {system.name for system in unsaid} & {system.name for system in published() if system.llm}
    assert {system.reranker for system in unsaid if system.reranker} & served_cards().keys() == set()
    groups = {row.name: row.system for row in find_published("table:grouprank") if "groupwise" in row.system}
    assert groups["groupwise/qwen3-32b-no-think/diver"] == "diver >> groupwise(qwen3-32b-no-think, fuse=0.5)"
    assert groups["reranker/grouprank-32b-sorted/diver"] == "diver >> groupwise(grouprank-32b, groups=sorted, fuse=0.5)"
    assert len(groups) == 7
    [made] = reproductions(["groupwise/deepseek-v3.1/diver"])
    assert any("fuse=0.5 is r2med's choice" in note for note in made.notes)


def test_names_kinds_and_specs_say_the_same() -> None:
    for system in published():
        assert system.kind in KINDS
        if system.source.name in ("paper", "page") and system.kind in ("gar", "reasoning", "agent"):
            method, llm, retriever = system.name.split("/")
            assert (llm, retriever) == (system.llm, system.retriever)
            assert system.system == f"replay(hub, method={method}, llm={llm}) >> {retriever}"
            assert system.generate.startswith(f"{method}(")
    assert find_published("hyde/gpt4/bm25")[0].generate == "hyde(gpt-4o) >> bm25"
    assert find_published("reranker/rankllama")[0].system == "nv >> rankllama(depth=10)"


def test_every_measure_is_one_that_r2med_knows() -> None:
    measures = {measure for system in published() for measure in system.figures}
    for measure in measures - {"micro-Recall@100"}:
        assert str(Measure.parse(measure)) == measure
    values = [v for s in published() for f in s.figures.values() for v in f.tasks.values()]
    assert all(0 <= value <= 1 for value in values)


def test_a_wrong_name_is_one_line_with_the_nearest_right_one() -> None:
    with pytest.raises(R2medError, match=r"nothing was published under the name 'base/bgee'; did you mean base/bge\?"):
        find_published("base/bgee")
    with pytest.raises(R2medError, match="no published table 'nothing'"):
        find_published("table:nothing")
    assert {row.name for row in find_published("TABLE:Reranker")} >= {
        "reranker/rankllama",
        "reranker/reasonrank-32b/e5",
    }
    assert len(find_published("table:mteb")) == 26


def test_sources_that_agree_share_a_line_and_those_that_do_not_are_both_shown() -> None:
    found = shown()
    lines = by_name(found)
    assert lines["base/nv"][0].sources == ("paper", "page")
    assert lines["base/bge"][0].sources == ("paper", "page", "mteb"), "the same name or not: it is the same system"
    medcpt = lines["base/medcpt"]
    assert sorted((line.sources, f"{100 * line.average:.2f}") for line in medcpt) == [
        (("page",), "9.02"),
        (("paper",), "7.87"),
    ]
    assert all(line.disputed for line in medcpt)
    assert not lines["base/nv"][0].disputed
    assert any(note.startswith("sources disagree about medcpt: page 9.02, paper 7.87 at 512") for note in found.notes)
    about = [note.split(":")[0].rpartition(" ")[2] for note in found.notes if note.startswith("sources disagree")]
    assert sorted(about) == ["diver", "e5", "grit", "gte-qwen2-7b", "medcpt", "sfr"]


def test_one_retriever_ten_points_apart_is_marked_and_the_note_says_at_how_many_tokens() -> None:
    found = shown()
    lines = by_name(found)["DIVER-Retriever-4B"]
    assert [(line.sources, f"{100 * line.average:.2f}") for line in lines] == [
        (("grouprank",), "42.90"),
        (("reasonembed",), "32.23"),
    ]
    assert all(line.disputed for line in lines)
    said = (
        "sources disagree about diver: grouprank 42.90, reasonembed 32.23 at 512 tokens (8 of 8 tasks differ,"
        " by 20.14 at the most; averages 10.67 apart)"
    )
    assert said in found.notes
    cut = shown(limit=20)
    assert [line.sources for line in by_name(cut)["DIVER-Retriever-4B"]] == [("grouprank",)]
    assert said in cut.notes, "a mark is explained though the other line is cut off"
    assert not any("about medcpt" in note for note in cut.notes)
    told = {line.sources: line.as_dict() for line in lines}
    assert told["reasonembed",]["max_document"] == 512
    assert "512 tokens" in told["reasonembed",]["note"]
    assert "max_document" not in told["grouprank",], "not known"
    assert by_name(found)["base/grit"][0].as_dict()["max_query"] == 512


def test_rerankers_of_later_papers_stand_with_their_first_stage() -> None:
    over = {name: by_name(shown(retriever=name, kind="reranker")) for name in ("diver", "e5")}
    assert [len(names) for names in over.values()] == [17, 10]
    best = next(iter(over["diver"].values()))[0]
    assert (best.name, f"{100 * best.average:.2f}") == ("reranker/grouprank-32b/diver", "52.30")
    [joint] = over["e5"]["reranker/reasonrank-32b/e5"]
    assert joint.sources == ("page", "reasonrank"), "the same figures of the same reranker over the same list"
    for name, first_stages in (("reasonrank-32b", 2), ("rank-r1-7b", 2), ("rank-r1-14b", 2), ("rank1-32b", 1)):
        rows = list(shown(reranker=name).lines)
        assert len({row.parts.retrievers for row in rows}) == len(rows) == first_stages
    chat = {line.name: line.parts.llms for line in shown(reranker="groupwise").lines}
    assert chat["groupwise/deepseek-v3.1/diver"] == ("deepseek-v3.1",)
    assert chat["groupwise/qwen3-32b-think/diver"] == chat["groupwise/qwen3-32b-no-think/diver"] == ("qwen3-32b",)
    assert not any(line.disputed for names in over.values() for lines in names.values() for line in lines)
    assert all(
        "reranks the first 100 documents of" in lines[0].note for rows in over.values() for lines in rows.values()
    )


def test_an_average_of_one_digit_is_shown_as_published() -> None:
    found = shown(sources=("grouprank", "reasonrank"))
    assert not any("not the mean of its tasks" in note for note in found.notes)
    assert all(line.average == line.stated for line in found.lines)


def test_one_source_alone_disagrees_with_nobody() -> None:
    found = shown(sources=("mteb",))
    assert len(found.lines) == 26
    assert not any(line.disputed for line in found.lines)
    assert not any("disagree" in note for note in found.notes)


def test_what_cannot_be_right_is_noted() -> None:
    assert all("article encoder read the queries too" in row.note for row in find_published("base/medcpt"))
    assert System.parse("medcpt-card").spec == "medcpt-card", "what the note tells to run instead"


class TestAgainstTheTables:
    """The file that ships is what the script makes of the tables."""

    def script(self) -> ModuleType:
        spec = importlib.util.spec_from_file_location("make_published", ROOT / "scripts" / "make_published.py")
        assert spec is not None
        assert spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        import sys

        sys.modules["make_published"] = module
        spec.loader.exec_module(module)
        return module

    def test_the_file_is_what_the_script_writes(self, tmp_path: Path) -> None:
        self.script().main([str(needs.facts("")), str(tmp_path / "out.tsv")])
        shipped = ROOT / "src" / "r2med" / "data" / "published.tsv"
        assert (tmp_path / "out.tsv").read_bytes() == shipped.read_bytes()

    def test_every_figure_of_the_paper_is_where_it_belongs(self) -> None:
        known = {system.name: system for system in published() if system.source.name == "paper"}
        with needs.facts("published_scores.csv").open(encoding="utf-8", newline="") as file:
            for row in csv.DictReader(file):
                parts = (
                    [row["expander"], row["llm"], row["retriever"]] if row["expander"] else ["base", row["retriever"]]
                )
                name = f"reranker/{row['reranker']}" if row["reranker"] else "/".join(parts)
                measure = str(Measure.parse(row["metric"]))
                assert known[name].figures[measure].tasks[row["task"]] == float(row["value"])

    def test_every_figure_of_the_page_is_there(self) -> None:
        rows = [system.figures["nDCG@10"] for system in published() if system.source.name == "page"]
        with needs.facts("leaderboard_page.csv").open(encoding="utf-8", newline="") as file:
            wanted = [[float(row[task]) for task in FULL] + [float(row["average"])] for row in csv.DictReader(file)]
        found = [[round(100 * f.tasks[task], 6) for task in FULL] + [round(100 * f.average, 6)] for f in rows]
        assert found == wanted
