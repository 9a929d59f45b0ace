"""A study in sections: a heading, a table and sentences below it, on a terminal, as Markdown and as LaTeX alike."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from r2med.render.grid import Cell, Figure, Table, key, numbers
from r2med.render.latex import escaped

if TYPE_CHECKING:
    from rich.console import Console


@dataclass(frozen=True)
class Section:
    """A heading, a table below it and sentences below that."""

    title: str
    headings: Sequence[str] = ()
    rows: Sequence[Sequence[Cell]] = ()
    sentences: Sequence[str] = field(default_factory=tuple)
    total: bool = False
    """Whether the last row sums up the others."""


def show_sections(sections: Sequence[Section], console: Console) -> None:
    """Print sections."""
    for section in sections:
        console.print(section.title, style="bold")
        if section.rows:
            table = Table(key(section.headings[0]), *numbers(*section.headings[1:]))
            for row in section.rows[:-1]:
                table.add(*row)
            if section.total:
                table.rule()
            table.add(*section.rows[-1], style="bold" if section.total else "")
            table.show(console)
        for sentence in section.sentences:
            console.print(sentence)
        console.print()


def markdown_sections(title: str, sections: Sequence[Section], notes: Sequence[str] = ()) -> str:
    """Sections for a page or an issue."""
    parts = [f"# {plain(title)}"]
    for section in sections:
        parts.append(f"## {plain(section.title)}")
        if section.rows:
            rows = [section.headings, ["---", *["---:"] * (len(section.headings) - 1)], *section.rows]
            parts.append("\n".join(f"| {' | '.join(map(plain, map(wide, row)))} |" for row in rows))
        parts += [plain(sentence) for sentence in section.sentences]
    parts += [f"Note: {plain(note)}" for note in notes]
    return "\n\n".join(parts) + "\n"


def plain(text: str) -> str:
    r"""A text that Markdown shows as it is.

    >>> plain("a_b | c")
    'a\\_b \\| c'
    """
    for sign in "\\|*_<`":
        text = text.replace(sign, f"\\{sign}")
    return " ".join(text.split())


def wide(cell: Cell) -> str:
    """A cell where there is room."""
    return cell if isinstance(cell, str) else cell.wide if isinstance(cell, Figure) else cell.plain


def latex_sections(sections: Sequence[Section]) -> str:
    """Sections as tables for a paper, with booktabs; what has no table becomes a paragraph."""
    return "% \\usepackage{booktabs}\n" + "\n".join(_latex_table(section) for section in sections)


def _latex_table(section: Section) -> str:
    def line(cells: Sequence[Cell]) -> str:
        return " & ".join(escaped(wide(cell)) for cell in cells) + r" \\"

    below = escaped(" ".join(section.sentences))
    if not section.rows:
        return rf"\paragraph{{{escaped(section.title)}}} {below}" + "\n"
    return "\n".join(
        [
            r"\begin{table}",
            r"\centering",
            rf"\caption{{{escaped(section.title)}.}}",
            rf"\begin{{tabular}}{{l{'r' * (len(section.headings) - 1)}}}",
            r"\toprule",
            line(section.headings),
            r"\midrule",
            *map(line, section.rows),
            r"\bottomrule",
            r"\end{tabular}",
            *([rf"\par\medskip{{\footnotesize {below}\par}}"] if below else []),
            r"\end{table}",
            "",
        ]
    )
