"""Consoles and tables: a user's text is shown as it is, never read as markup or emoji codes."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from io import StringIO
from typing import IO, TYPE_CHECKING, Any, NamedTuple, TypeAlias

from rich.cells import cell_len
from rich.text import Text

from r2med import formatting
from r2med.formatting import Ends, percent_range

if TYPE_CHECKING:
    from rich.console import Console

_PIPE = 160  # columns of what is drawn across (rules, pages of cases) where nothing says how wide the reader is


def output() -> Console:
    """Return the console for results. In a pipe or a file nothing is wrapped, unless COLUMNS asks for a width."""
    return _make(wraps=sys.stdout.isatty() or "COLUMNS" in os.environ)


def messages() -> Console:
    """Return the console for progress and remarks, apart from the results."""
    return _make(wraps=sys.stderr.isatty(), stderr=True)


def written_to(stream: IO[str], width: int | None = None, *, styled: bool = False) -> Console:
    """Return a console that writes into a stream, without a width as into a pipe; `styled` writes colours too."""
    return _make(wraps=width is not None, file=stream, width=width, force_terminal=styled or None)


def print_plainly(show: Callable[[Any, Console], None], value: Any) -> str:
    """Return what a function prints of a value, as plain text."""
    buffer = StringIO()
    show(value, written_to(buffer))
    return buffer.getvalue().rstrip()


def _make(*, wraps: bool, width: int | None = None, **settings: Any) -> Console:
    from rich.console import Console

    return Console(
        highlight=False, emoji=False, markup=False, width=width if wraps else _PIPE, soft_wrap=not wraps, **settings
    )


def room(console: Console) -> int | None:
    """Return the number of columns that a table may have; None if nothing is wrapped."""
    return None if console.soft_wrap else console.width


def say(console: Console, line: str, style: str = "") -> None:
    """Print a message that must stay one line (`warning: ...`, `failed: ...`), however long it is."""
    console.print(line, style=style, soft_wrap=True)


class Number(NamedTuple):
    """A number with fewer digits for where there is little room."""

    wide: str
    narrow: str
    style: str = ""


Cell: TypeAlias = "str | Number | Text"
"""What stands in a table: plain text, a number of two lengths, or a text with styles."""


class Column(NamedTuple):
    """A column: its heading, how its cells are aligned, and where a row has its value and how that is written."""

    heading: str
    right: bool = False
    folds: bool = False  # whether its cells go over several lines where there is too little room
    key: bool = False  # whether it names the rows: it stands in every part of a table that is split
    short: str = ""  # the heading where there is little room
    name: str = ""  # the attribute of a row that has the value, and the value's key in JSON and CSV
    form: Callable[[Any], Cell] = str  # format a value
    get: Callable[[Any], Any] | None = None  # compute the value of a row that has no such attribute

    def value(self, row: object) -> Any:
        """Return the value of a row."""
        return self.get(row) if self.get is not None else getattr(row, self.name)

    def cell(self, row: object) -> Cell:
        """Return the value of a row as tables show it."""
        return self.form(self.value(row))


class _Form(NamedTuple):
    """One way to lay a table out."""

    short: bool = True  # headings short, and broken at spaces
    narrow: bool = False  # figures with fewer digits
    least: int = 12  # how narrow a column may become that folds


_NATURAL = _Form(short=False, least=1_000)
_FORMS = (_NATURAL, _Form(least=24), _Form(narrow=True, least=24), _Form(narrow=True))
"""Ways to lay a table out, the roomiest first."""
_BLOCKS = (_Form(least=24), _Form(), _Form(narrow=True))  # ways to lay out the parts of a table that is split
_HEADING = 12  # a word of a heading is not broken below this
_SIGN = re.compile(r"[\s/,;:@_+-]+")  # what a name may be broken behind
_SPACE = re.compile(r"\s+")  # what it is rather broken behind


def key(heading: str, name: str = "", get: Callable[[Any], Any] | None = None) -> Column:
    """Return the column that names the rows."""
    return Column(heading, folds=True, key=True, name=name or heading, get=get)


def numbers(*headings: str) -> list[Column]:
    """Return columns of figures."""
    return [Column(heading, right=True) for heading in headings]


def column(
    name: str,
    heading: str = "",
    form: Callable[[Any], Cell] = str,
    get: Callable[[Any], Any] | None = None,
    **layout: Any,
) -> Column:
    """Declare a column of figures once for terminal, Markdown, LaTeX, HTML, JSON and CSV.

    A row is an object whose attribute `name` has the value, or of which `get` computes it; `form` writes it in tables.

    >>> from types import SimpleNamespace
    >>> rows = [SimpleNamespace(system="bm25", mean=0.37156, wins=1200)]
    >>> columns = [key("system"), column("mean", "nDCG@10", percent), column("wins", form="{:,}".format)]
    >>> [cell if isinstance(cell, str) else cell.wide for cell in cells(columns, rows[0])]
    ['bm25', '37.16', '1,200']
    >>> records(columns, rows)
    [{'system': 'bm25', 'mean': 0.37156, 'wins': 1200}]
    """
    return Column(heading or name, **{"right": True, **layout}, name=name, form=form, get=get)


def cells(columns: Sequence[Column], row: object) -> list[Cell]:
    """Return the cells of a row."""
    return [column.cell(row) for column in columns]


def records(columns: Sequence[Column], rows: Iterable[object]) -> list[dict[str, Any]]:
    """Return the values of rows by the names of columns, for JSON and CSV."""
    return [{column.name: column.value(row) for column in columns if column.name} for row in rows]


def percent(value: float | None, style: str = "", sign: str = "") -> Number:
    """Format a share times 100 with two digits, one where there is little room; a dash for what is missing.

    >>> percent(0.37156), percent(None).wide
    (Number(wide='37.16', narrow='37.2', style=''), '-')
    """
    return Number(formatting.percent(value, 2, sign), formatting.percent(value, 1, sign), style)


def signed_percent(value: float | None) -> Number:
    """Format a difference times 100 as `percent` does, with its sign."""
    return percent(value, sign="+")


def interval(ends: Ends | None, sign: str = "") -> Number:
    """Format the ends of an interval times 100; a dash for what is missing.

    >>> from r2med.measure.figure import Figure
    >>> interval(Figure(0.5, 0.41, 0.583)).wide, interval(Figure(0, -0.1, 0.2), "+").narrow
    ('41.00 to 58.30', '-10.0 to +20.0')
    """
    return Number(percent_range(ends, 2, sign), percent_range(ends, 1, sign))


def signed_interval(ends: Ends | None) -> Number:
    """Format the ends of an interval of differences, with their signs."""
    return interval(ends, "+")


class Table:
    """Rows under headings, printed as wide as the console has room for."""

    def __init__(self, *columns: Column) -> None:
        keyed = any(column.key for column in columns)
        self._columns = columns if keyed else (columns[0]._replace(key=True), *columns[1:])
        self._rows: list[tuple[tuple[Cell, ...], str]] = []
        self._rules: set[int] = set()

    @classmethod
    def of(cls, columns: Sequence[Column], rows: Iterable[object]) -> Table:
        """Build a table of rows from columns that read and format their values."""
        table = cls(*columns)
        for row in rows:
            table.add(*cells(columns, row))
        return table

    def add(self, *cells: Cell, style: str = "") -> None:
        """Add a row."""
        self._rows.append((cells, style))

    def rule(self) -> None:
        """Draw a line below the rows so far."""
        self._rules.add(len(self._rows))

    def show(self, console: Console) -> None:
        """Print the table, at most as wide as the console if that is possible."""
        text = Text("\n", no_wrap=True, overflow="ignore", end="")
        for number, (places, widths, form) in enumerate(self._blocks(room(console))):
            text.append("\n" * bool(number))
            self._write(text, places, widths, form)
        console.print(text, soft_wrap=True)

    def _blocks(self, width: int | None) -> Iterator[tuple[Sequence[int], Sequence[int], _Form]]:
        """Yield the columns of each part of the table, their widths and their form."""
        everything = range(len(self._columns))
        if width is None:
            yield everything, self._widths(_NATURAL), _NATURAL
            return
        for form in _FORMS:
            widths = self._shrunk(self._widths(form), everything, width, form)
            if _total(widths) <= width:
                yield everything, widths, form
                return
        yield from self._split(width)

    def _split(self, width: int) -> Iterator[tuple[Sequence[int], Sequence[int], _Form]]:
        keys = [place for place, column in enumerate(self._columns) if column.key]
        others = [place for place, column in enumerate(self._columns) if not column.key]
        for form in _BLOCKS:
            widths = self._widths(form)
            widest = max((widths[place] for place in others if not self._columns[place].folds), default=form.least)
            narrowed = self._shrunk(widths, keys, width - max(widest + 2, width // 2), form)
            widths = [narrowed.pop(0) if column.key else widths[place] for place, column in enumerate(self._columns)]
            names = _total([widths[place] for place in keys])
            if names + widest + 2 <= width:
                break
        # As many columns in each part as go beside the names.
        blocks: list[list[int]] = [[]]
        for place in others:
            if blocks[-1] and names + _total([widths[other] for other in (*blocks[-1], place)]) > width:
                blocks.append([])
            blocks[-1].append(place)
        for block in blocks:
            yield [*keys, *block], self._shrunk(widths, [*keys, *block], width, _BLOCKS[-1]), form

    def _widths(self, form: _Form) -> list[int]:
        return [
            max(
                [
                    _heading_width(column, form),
                    *(cell_len(plain(cells[place], narrow=form.narrow)) for cells, _ in self._rows),
                ]
            )
            for place, column in enumerate(self._columns)
        ]

    def _shrunk(self, widths: Sequence[int], places: Sequence[int], width: int, form: _Form) -> list[int]:
        """Return the widths of columns, those that fold narrowed as far as needed and allowed, the widest first."""
        shrunk = {place: widths[place] for place in places}
        beyond = _total(list(shrunk.values())) - width
        folding = [place for place in places if self._columns[place].folds]
        while beyond > 0 and folding:
            place = max(folding, key=lambda place: shrunk[place])
            least = max(min(form.least, widths[place]), _heading_width(self._columns[place], form))
            if shrunk[place] <= least:
                folding.remove(place)
                continue
            others = max((shrunk[other] for other in folding if other != place), default=0)
            step = min(beyond, shrunk[place] - max(least, min(others, shrunk[place] - 1)))
            shrunk[place] -= step
            beyond -= step
        return list(shrunk.values())

    def _write(self, text: Text, places: Sequence[int], widths: Sequence[int], form: _Form) -> None:
        columns = [self._columns[place] for place in places]
        heads = [Text(column.short or column.heading if form.short else column.heading) for column in columns]
        for line in _lines(heads, widths, low=True):
            _add(text, columns, line, widths, "bold")
        rule = f" {'─' * (_total(widths) - 2)}\n"
        text.append(rule)
        for number, (row, style) in enumerate(self._rows):
            if number in self._rules:
                text.append(rule)
            cells = [_text(row[place], form) for place in places]
            for line in _lines(cells, widths) if any(cell.plain for cell in cells) else ():
                _add(text, columns, line, widths, style)


def _total(widths: Sequence[int]) -> int:
    return sum(widths) + 2 * len(widths)


def plain(cell: Cell, *, narrow: bool = False) -> str:
    """Return the text of a cell, of a number the longer one unless there is little room."""
    if isinstance(cell, Number):
        return cell.narrow if narrow else cell.wide
    return cell if isinstance(cell, str) else cell.plain


def _text(cell: Cell, form: _Form) -> Text:
    if isinstance(cell, Text):
        return cell
    return Text(plain(cell, narrow=form.narrow), cell.style if isinstance(cell, Number) else "")


def _heading_width(column: Column, form: _Form) -> int:
    if not form.short:
        return cell_len(column.heading)
    words = (column.short or column.heading).split()
    return max((cell_len(word) if len(word) <= _HEADING else _HEADING for word in words), default=0)


def _lines(cells: Sequence[Text], widths: Sequence[int], *, low: bool = False) -> list[list[Text]]:
    """Return a row as the lines it takes; short cells stand on the first of them, or `low` on the last."""
    if all(cell.cell_len <= width for cell, width in zip(cells, widths, strict=True)):
        return [list(cells)]
    folded = [_folded(cell, width) for cell, width in zip(cells, widths, strict=True)]
    most = max(map(len, folded))
    blanks = [[Text()] * (most - len(parts)) for parts in folded]
    columns = [(above + parts) if low else (parts + above) for parts, above in zip(folded, blanks, strict=True)]
    return [list(line) for line in zip(*columns, strict=True)]


def _folded(cell: Text, width: int) -> list[Text]:
    """Fold a text over several lines, broken behind signs where it has some."""
    if cell.cell_len <= width:
        return [cell]
    parts = list(cell.divide(_breaks(cell.plain, width)))
    for part in parts:
        part.rstrip()
    return [part[len(part.plain) - len(part.plain.lstrip()) :] for part in parts]


def _breaks(text: str, width: int) -> list[int]:
    """Return where lines of so many columns end: behind the last space of each, or the last sign, or within a word.

    >>> _breaks("sample/Medical-Sciences", 12)
    [7, 15]
    """
    breaks: list[int] = []
    start, used = 0, 0
    for place, sign in enumerate(text):
        used += cell_len(sign)
        if used > width and not (sign == " " and used == width + 1):
            ends = [match.end() for signs in (_SIGN, _SPACE) for match in signs.finditer(text, start, place)]
            start = ends[-1] if ends else place
            breaks.append(start)
            used = cell_len(text[start : place + 1].lstrip())
    return breaks


def _add(table: Text, columns: Sequence[Column], cells: Sequence[Text], widths: Sequence[int], style: str) -> None:
    """Append a line of cells to a table."""
    line = Text(style=style)
    for column, cell, width in zip(columns, cells, widths, strict=True):
        blank = " " * (width - cell.cell_len)
        before, behind = (f" {blank}", " ") if column.right else (" ", f"{blank} ")
        line.append(before).append_text(cell).append(behind)
    line.rstrip()
    table.append_text(line).append("\n")
