"""A study in sections: a heading, a table and sentences below it, on a terminal, as Markdown and as LaTeX alike."""

from __future__ import annotations

import unicodedata
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import zip_longest
from typing import TYPE_CHECKING

import click

from r2med.formatting import money
from r2med.render.table import Cell, Column, Table, cells, key, numbers, output, plain

if TYPE_CHECKING:
    from rich.console import Console

    from r2med.llm.steps import StepEstimate

PRICED = (
    "Steps are priced as if every question got through and every pool were as large as it can be; replies that are"
    " asked for again come on top. ? is a price that is not known."
)


def show_estimate(steps: Sequence[StepEstimate], console: Console, note: str = PRICED) -> None:
    """Print what each step that asks a model would take."""
    headings = ("items", "requests", "answered already", "tokens read", "tokens written", "dollars", "at most")
    table = Table(key("step"), *numbers(*headings))
    for step in steps:
        guess = step.guess
        counts = (step.items, guess.requests, guess.cached, guess.prompt_tokens, guess.completion_tokens)
        table.add(step.step, *(f"{count:,}" for count in counts), money(guess.cost), money(guess.cost_limit))
    table.rule()
    columns = [[getattr(step.guess, name) for step in steps] for name in ("cost", "cost_limit")]
    table.add("sum", *[""] * 5, *(money(None if None in costs else sum(costs)) for costs in columns))
    table.show(console)
    console.print(note, style="dim")
    if assumed := [step.step for step in steps if step.guess.is_default]:
        console.print(
            f"No reply to such requests is kept yet, so that tokens written are a default: {', '.join(assumed)}.",
            style="dim",
        )


SIGNS = {
    "\\": r"\textbackslash{}", "&": r"\&", "%": r"\%", "$": r"\$", "#": r"\#", "_": r"\_", "{": r"\{", "}": r"\}",
    "~": r"\textasciitilde{}", "^": r"\textasciicircum{}", "<": r"\textless{}", ">": r"\textgreater{}",
    "|": r"\textbar{}", '"': r"\texttt{\char34}", "`": r"\textasciigrave{}", "†": r"$\dagger$", "‡": r"$\ddagger$",
    "≠": r"$\neq$", "≥": r"$\geq$", "≤": r"$\leq$", "≈": r"$\approx$", "±": r"$\pm$", "×": r"$\times$",
    "→": r"$\rightarrow$", "←": r"$\leftarrow$", "∞": r"$\infty$", "·": r"$\cdot$", "°": r"$^{\circ}$",
    "µ": r"$\mu$", "–": "--{}", "—": "---{}", "…": r"\ldots{}", "‘": "`{}", "’": "'{}", "“": "``{}", "”": "''{}",
    "ß": r"\ss{}", "æ": r"\ae{}", "Æ": r"\AE{}", "œ": r"\oe{}", "Œ": r"\OE{}", "ø": r"\o{}", "Ø": r"\O{}",
    "ł": r"\l{}", "Ł": r"\L{}", "ı": r"\i{}", "ο": "o", "§": r"\S{}", "²": "$^{2}$", "³": "$^{3}$",
}  # fmt: skip
_ACCENTS = {
    "\u0300": "`", "\u0301": "'", "\u0302": "^", "\u0303": "~", "\u0304": "=", "\u0306": "u", "\u0307": ".",
    "\u0308": '"', "\u030a": "r", "\u030b": "H", "\u030c": "v", "\u0327": "c", "\u0323": "d", "\u0331": "b",
}  # fmt: skip
_LIGATURES = "-',"  # two of these in a row would become another sign
_BREAKS = "/_,()=:"  # what a name may be broken after; TeX itself breaks after hyphens
_UNBROKEN = 14


def escaped(text: str) -> str:
    r"""Write text that LaTeX prints as it is; a sign that its fonts lack is named by its code point.

    >>> escaped("hyde(gpt-4o) >> my_model & 5%")
    'hyde(gpt-4o) \\textgreater{}\\textgreater{} my\\_model \\& 5\\%'
    >>> escaped("café ≥ 中")
    "caf\\'{e} $\\geq$ \\texttt{[U+4E2D]}"
    """
    return "".join(_pieces(text))


def breakable(text: str) -> str:
    r"""Write the same for a narrow column: it may be broken after signs such as a slash, and inside what has none.

    >>> breakable("BAAI/bge-m3")
    'BAAI/\\allowbreak{}bge-m3'
    """
    pieces = _pieces(text)
    parts: list[str] = []
    length = 0
    for piece, after in zip_longest(pieces, pieces[1:], fillvalue=" "):
        parts.append(piece)
        length += len("[U+0000]") if piece.startswith(r"\texttt{[") else 1
        if after == " " or piece in (" ", "-"):
            length = 0
        elif length >= _UNBROKEN or piece[-1] in _BREAKS:
            parts.append(r"\allowbreak{}")
            length = 0
    return "".join(parts)


def unprintable(text: str) -> list[str]:
    """Return the signs of a text that are named by their code points, each once.

    >>> unprintable("é 中 中")
    ['中']
    """
    signs = dict.fromkeys(unicodedata.normalize("NFC", text))
    return [sign for sign in signs if not sign.isspace() and _named(sign) == _sign(sign)]


def one_line(text: str) -> str:
    """Replace all white space by single blanks, so that a text cannot leave a comment or a cell."""
    return " ".join(text.split())


def _pieces(text: str) -> list[str]:
    """Return the LaTeX of each sign."""
    plain = one_line(unicodedata.normalize("NFC", text))
    return [
        "{}" * (before == sign and sign in _LIGATURES) + _sign(sign)
        for before, sign in zip(" " + plain, plain, strict=False)
    ]


def _sign(sign: str) -> str:
    if sign in SIGNS:
        return SIGNS[sign]
    if " " <= sign <= "~":
        return sign
    parts = unicodedata.normalize("NFD", sign)
    base, accent = parts[0], _ACCENTS.get(parts[1:])
    if accent and base.isascii() and base.isalpha():
        return rf"\{accent}{{{chr(92) + base if base in 'ij' else base}}}"
    return _named(sign)


def _named(sign: str) -> str:
    return rf"\texttt{{[U+{ord(sign):04X}]}}"


@dataclass(frozen=True)
class Section:
    """A heading, a table below it and sentences below that."""

    title: str
    headings: Sequence[str] = ()
    rows: Sequence[Sequence[Cell]] = ()
    sentences: Sequence[str] = field(default_factory=tuple)
    total: bool = False  # whether the last row sums up the others
    words: Sequence[str] = ()  # the headings, beside the first, of columns that hold words rather than figures

    @property
    def columns(self) -> list[Column]:
        """Return the columns of the table."""
        return [
            key(heading) if not place else Column(heading, right=heading not in self.words)
            for place, heading in enumerate(self.headings)
        ]

    @classmethod
    def of(
        cls,
        title: str,
        columns: Sequence[Column],
        rows: Iterable[object],
        sentences: Sequence[str] = (),
        *,
        total: bool = False,
    ) -> Section:
        """Build a section from columns that read and format the values of rows."""
        headings = [column.heading for column in columns]
        return cls(title, headings, [cells(columns, row) for row in rows], sentences, total)


def show_sections(sections: Sequence[Section], console: Console) -> None:
    """Print sections."""
    for section in sections:
        console.print(section.title, style="bold")
        if section.rows:
            table = Table(*section.columns)
            for row in section.rows[:-1]:
                table.add(*row)
            if section.total:
                table.rule()
            table.add(*section.rows[-1], style="bold" if section.total else "")
            table.show(console)
        for sentence in section.sentences:
            console.print(sentence)
        console.print()


def write_sections(form: str | None, title: str, sections: Sequence[Section], notes: Sequence[str] = ()) -> None:
    """Print sections: as Markdown (`md`), as LaTeX, or as tables on the terminal."""
    if form is None:
        show_sections(sections, output())
    else:
        text = markdown_sections(title, sections, notes) if form == "md" else latex_sections(sections)
        click.echo(text, nl=False)


def markdown_sections(title: str, sections: Sequence[Section], notes: Sequence[str] = ()) -> str:
    """Write sections for a page or an issue."""
    return "\n\n".join([f"# {escape_markdown(title)}", *markdown_blocks(sections, notes)]) + "\n"


def markdown_blocks(sections: Sequence[Section], notes: Sequence[str] = (), level: int = 2) -> list[str]:
    """Write sections below headings of a level, as headings, tables and paragraphs of their own."""
    blocks = []
    for section in sections:
        blocks.append(f"{'#' * level} {escape_markdown(section.title)}")
        if section.rows:
            rules = ["---:" if column.right else "---" for column in section.columns]
            rows = [section.headings, rules, *section.rows]
            blocks.append("\n".join(f"| {' | '.join(map(escape_markdown, map(plain, row)))} |" for row in rows))
        blocks += map(escape_markdown, section.sentences)
    return [*blocks, *(f"Note: {escape_markdown(note)}" for note in notes)]


def escape_markdown(text: str) -> str:
    r"""Escape a text so that Markdown shows it as it is.

    >>> escape_markdown("a_b | c")
    'a\\_b \\| c'
    """
    for sign in "\\|*_<`":
        text = text.replace(sign, f"\\{sign}")
    return " ".join(text.split())


def latex_sections(sections: Sequence[Section]) -> str:
    """Write sections as tables for a paper, with booktabs; what has no table becomes a paragraph."""
    return "% \\usepackage{booktabs}\n" + "\n".join(_latex_table(section) for section in sections)


def _latex_table(section: Section) -> str:
    def line(cells: Sequence[Cell]) -> str:
        return " & ".join(escaped(plain(cell)) for cell in cells) + r" \\"

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
