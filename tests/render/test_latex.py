"""Boards as LaTeX: whole tables, the right figures marked, any name as it is, and a document that compiles."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import product
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

import needs
import r2med
from r2med.data.tasks import AVERAGE
from r2med.leaderboard.board import board, ranked
from r2med.measure.figure import Figure
from r2med.render.scores.latex import latex
from r2med.render.scores.model import Board, BoardRow, View
from r2med.render.scores.report import format_report
from r2med.render.scores.significance import about_marks
from r2med.render.scores.text import FORMATS
from r2med.render.sections import breakable, escaped, one_line, unprintable
from r2med.runs.cost import Cost
from r2med.runs.ledger import Ledger

TASKS = (
    "Biology", "Bioinformatics", "Medical-Sciences", "MedXpertQA-Exam", "MedQA-Diag", "PMC-Treatment", "PMC-Clinical",
    "IIYi-Clinical",
)  # fmt: skip
NAMES = (
    r"a_b%c&d#e$f^g~h\i{j}k",
    r'answer("x", y="z") \| <tag>',
    "café naïve Ångström ≥ 5 µg × 中文 α — “q” …",
    "hyde(gpt-4o, samples=8) >> rrf(bm25(k1=0.9, b=0.4), qwen3-embedding-8b) >> listwise(gpt-4o, window=20)",
    "sentence-transformers/paraphrase-multilingual-MiniLM-L12-v2",
    "a" * 90,
    "a--b ---c ''d'' ,,e,, ?`!`",
    "\\\\ \\begin{table} \\input{x}",
    "😀 tab\there\nnew line\n\nnew paragraph",
    "[bracket] first",
    "*star first",
    " ",
)


def line(name: str, *values: float, **more: object) -> BoardRow:
    return BoardRow(name, ("own",), dict(zip(TASKS, values, strict=False)), **more)  # type: ignore[arg-type]


def hard(*, sources: bool, intervals: bool, cost: bool, more: int = 0, tasks: Sequence[str] = TASKS) -> Board:
    """Every kind of line, under names that mean something to TeX."""
    rows = [
        BoardRow(
            name,
            ("own",) if place % 2 or not sources else ("paper", "page"),
            {task: (7 * place + column) % 100 / 100 for column, task in enumerate(tasks[place == 2 :])},
            oracle=place == 3,
            incomplete=int(place == 4),
            cost=Cost(requests=1200 * place, prompt_tokens=123456 * place, dollars=1.5, seconds=9.0, queries=9),
        )
        for place, name in enumerate(NAMES)
    ]
    rows += [BoardRow("average only", ("page",) if sources else ("own",), {}, stated=0.511)]
    rows += [BoardRow(f"base/{place}", ("mteb",), dict.fromkeys(tasks, place / 200)) for place in range(more)]
    lines = [
        replace(
            each,
            disputed=place == 1,
            marks=dict.fromkeys((*tasks, AVERAGE), "†" if place % 2 else "‡"),
            intervals=dict.fromkeys((*tasks, AVERAGE), Figure(0.5, 0.41, 1.0)) if intervals and each.own else {},
        )
        for place, each in enumerate(ranked(rows, tasks))
    ]
    notes = [about_marks(NAMES[0]), "failed: a_b on c: first line\nsecond line & more"]
    return Board("full", "nDCG@10", tasks, lines, notes, left_out=3, cost=cost, baseline=NAMES[0])


def all_boards() -> Iterator[Board]:
    for sources, intervals, cost, more in product((False, True), (False, True), (False, True), (0, 60)):
        yield hard(sources=sources, intervals=intervals, cost=cost, more=more)
    two = ("own_task #1", "another & task")
    yield replace(hard(sources=False, intervals=True, cost=False, tasks=two), group="custom")
    unranked = [replace(each, rank=None) for each in hard(sources=False, intervals=False, cost=False, tasks=two).lines]
    for each in unranked:
        yield Board("sample", "MAP", two, [each, each])
    yield Board("nano", "MRR@10", two, [])


def checked(text: str) -> list[list[str]]:
    """The cells of a table's rows, after everything that must hold of a table."""
    code = [row for row in text.splitlines() if not row.startswith("%")]
    assert text.startswith("% \\usepackage{booktabs,")
    assert all(row.isascii() and "%" not in row.replace("\\%", "").removesuffix("%") for row in code)
    plain = re.sub(r"\\[\\{}]", "", "\n".join(code))
    assert plain.count("{") == plain.count("}")
    opened: list[str] = []
    for word, name in re.findall(r"\\(begin|end)\{(\w+)\}", plain):
        assert word == "begin" or opened.pop() == name
        opened += [name] * (word == "begin")
    assert not opened
    [begin] = [row for row in code if row.startswith(("\\begin{tabular}", "\\begin{longtable}"))]
    spec = re.sub(r">\{[^}]*\}|p\{[^}]*\}", lambda found: "p" * found[0].startswith("p"), begin.partition("}{")[2][:-1])
    assert re.fullmatch(r"r?[lp]l?r*", spec)
    rows = [row for row in code if re.search(r" \\\\(\*|\[2pt\])?$", row) and not row.startswith("\\label")]
    cells = [re.split(r"(?<!\\) & ", re.sub(r" \\\\(\*|\[2pt\])?$", "", row)) for row in rows]
    assert {len(each) for each in cells} == {len(spec)}
    assert not any(row.startswith(("*", "[")) for row in rows), "an option of the row above"
    assert code.count("\\bottomrule") == 1
    return cells


def test_a_table_has_the_leaders_marked() -> None:
    rows = [
        BoardRow("own(a=1) >> b_c", ("own",), {"Biology": 0.5, "MedQA-Diag": 0.25}, cost=Cost(requests=3, dollars=1.5)),
        BoardRow("base/bge", ("paper", "page"), {"Biology": 0.3, "MedQA-Diag": 0.5}),
        BoardRow("oracle-answer >> bm25", ("own",), {"Biology": 0.9, "MedQA-Diag": 0.9}, oracle=True),
        BoardRow("part of it", ("mteb",), {"Biology": 0.5}),
        BoardRow("average only", ("page",), {}, stated=0.511),
    ]
    tasks = ("Biology", "MedQA-Diag")
    text = latex(Board("full", "nDCG@10", tasks, ranked(rows, tasks), cost=True))
    head, *cells = checked(text)
    assert head == [
        "\\#",
        "System",
        "Source",
        "Bio",
        "MedQA",
        "Avg.",
        "Requests",
        "Tokens",
        "Reasoning",
        "\\$",
        "s/query",
    ]
    assert cells[0][:6] == [
        "1", "base/bge", "paper, page", "\\underline{30.00}", "\\textbf{50.00}", "\\textbf{40.00}",
    ]  # fmt: skip
    assert cells[1][1:4] == [
        "\\textit{own(a=1) \\textgreater{}\\textgreater{} b\\_c}", "own", "\\textbf{50.00}",
    ]  # fmt: skip
    found = {each[1]: each for each in cells}
    oracle = found["\\textit{oracle-answer \\textgreater{}\\textgreater{} bm25 (oracle)}"]
    assert (oracle[0], oracle[3:6]) == ("--", ["90.00"] * 3), "never the best"
    assert found["part of it"][4:6] == ["--", "--"]
    assert found["average only"][3:6] == ["--", "--", "(51.10\\rlap{)}"]
    caption = next(row for row in text.splitlines() if row.startswith("\\caption"))
    for meaning in ("Own runs in italics", "An oracle was shown", "In brackets", "A dash: no figure"):
        assert meaning in caption
    assert "sources disagree" not in caption, "only what is in the table"


def test_intervals_stand_below_and_marks_behind_the_figures() -> None:
    one = line("mine", 0.5, 0.5, intervals={"": Figure(0.5, 0.41, 0.58)}, marks={"": "†", "Biology": "‡"})
    text = latex(Board("custom", "MAP", TASKS[:2], [replace(one, average=0.5)], baseline="x"))
    _, figures, ranges = checked(text)
    marked = [f"\\textbf{{50.00}}\\rlap{{$^{{\\{sign}}}$}}" for sign in ("ddagger", "dagger")]
    assert figures == ["mine", marked[0], "\\textbf{50.00}", marked[1]]
    assert ranges == ["", "", "", "{\\scriptsize 41.0--58.0}"]
    assert "$\\dagger$ better, $\\ddagger$ worse than x: paired" in text


def test_every_board_is_a_whole_table() -> None:
    for each in all_boards():
        cells = checked(latex(each))
        head = 2 if "\\endhead" in latex(each) else 1
        below = sum(bool(one.intervals) for one in each.lines)
        assert len(cells) == head + len(each.lines) + below


def test_wide_tables_are_turned_and_long_ones_go_on() -> None:
    def packages(given: Board) -> str:
        return latex(given).splitlines()[0].partition("{")[2][:-1]

    few = Board("full", "nDCG@10", TASKS, [line("bm25", *[0.1] * 8)] * 3)
    assert packages(few) == "booktabs,array,graphicx"
    assert packages(hard(sources=True, intervals=True, cost=True)) == "booktabs,array,rotating"
    assert packages(replace(few, lines=list(few.lines) * 20, tasks=TASKS[:2])) == "booktabs,array,longtable"
    assert packages(hard(sources=True, intervals=False, cost=False, more=60)) == "booktabs,array,longtable,pdflscape"


def test_notes_and_signs_without_a_font_are_in_comments() -> None:
    text = latex(hard(sources=False, intervals=False, cost=False))
    assert "% failed: a_b on c: first line second line & more" in text.splitlines()
    assert "% \\texttt{[U+4E2D]} stands for 中, which the usual fonts lack" in text.splitlines()
    assert "13 of 16 systems" in text


@given(st.lists(st.text(), min_size=1, max_size=3), st.text(), st.text(min_size=1))
def test_no_name_breaks_a_table(names: list[str], note: str, task: str) -> None:
    lines = [BoardRow(name, ("own",), {task: 0.5}, average=0.5) for name in names]
    cells = checked(latex(Board("custom", "nDCG@10", (task,), lines, [note], baseline=note)))
    assert len(cells) == 1 + len(names)


WORDS = {
    r"\textbackslash{}": "\\", r"\textasciitilde{}": "~", r"\textasciicircum{}": "^", r"\textless{}": "<",
    r"\textgreater{}": ">", r"\textbar{}": "|", r"\texttt{\char34}": '"', r"\textasciigrave{}": "`",
    r"\allowbreak{}": "", "{}": "", **{f"\\{sign}": sign for sign in "&%$#_{}"},
}  # fmt: skip
PIECE = re.compile(r"\\texttt\{\\char34\}|\\[a-z]{2,}\{\}|\\[&%$#_{}]|\{\}|[^\\&%$#_{}~^<>|\"`]")


@given(st.text(st.characters(min_codepoint=32, max_codepoint=126)))
def test_every_ascii_text_is_printed_as_it_is(text: str) -> None:
    for written in (escaped(text), breakable(text)):
        pieces = PIECE.findall(written)
        assert "".join(pieces) == written, "no sign with a meaning but those"
        assert "".join(WORDS.get(piece, piece) for piece in pieces) == one_line(text)
        assert not re.search(r"--|''|,,", written), "ligatures"


@given(st.text())
def test_every_text_becomes_ascii_on_one_line(text: str) -> None:
    for written in (escaped(text), breakable(text)):
        assert written.isascii()
        assert written.isprintable()
    assert all(f"[U+{ord(sign):04X}]" in escaped(text) for sign in unprintable(text))


def test_what_it_takes_to_break_a_long_name() -> None:
    assert breakable("a" * 30).count("\\allowbreak{}") == 2
    assert breakable("BAAI/bge_m3 >> x") == (
        "BAAI/\\allowbreak{}bge\\_\\allowbreak{}m3 \\textgreater{}\\textgreater{} x"
    )


DOCUMENT = "\\documentclass{{article}}\n{packages}\n\\begin{{document}}\n{tables}\n\\end{{document}}\n"


def test_a_document_with_all_of_them_compiles(tmp_path: Path) -> None:
    pdflatex = needs.program("pdflatex")
    report = r2med.evaluate(["bm25", "oracle-answer >> bm25", "bm25(k1=2)"], "sample")
    shown = View(intervals=True, cost=True, baseline="bm25")
    texts = [format_report(report, "latex", ["nDCG@10", "Recall@100"], shown), *map(latex, all_boards())]
    with Ledger() as ledger:
        texts += [FORMATS["latex"]([board(ledger, view)]) for view in (View(), View(limit=15), View(group="nano"))]
    packages = dict.fromkeys(re.findall(r"(?m)^% (\\usepackage.*)$", "\n".join(texts)))
    document = DOCUMENT.format(packages="\n".join(packages), tables="\n\\clearpage\n".join(texts))
    (tmp_path / "paper.tex").write_text(document, "utf-8")
    command = [pdflatex, "-interaction=nonstopmode", "-halt-on-error", "-no-shell-escape", "paper.tex"]
    for _ in range(2):
        done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, errors="replace", timeout=300)
        if "booktabs.sty' not found" in done.stdout:
            pytest.skip("pdflatex is installed without booktabs")
        assert done.returncode == 0, done.stdout[-2000:]
    log = (tmp_path / "paper.log").read_text("utf-8", errors="replace")
    complaints = re.findall(
        r"(?m)^(?:Overfull|Missing character|! |LaTeX Warning: (?!Label|There were multiply)).*$", log
    )
    assert complaints == []
