"""The text of PDF files in reading order: columns, table rows and superscripts by the positions of characters."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import chain, groupby, pairwise, zip_longest
from statistics import median
from typing import Any, NamedTuple

_CELL_GAP = 1.2
"""A gap between words that is wider than so many font sizes separates cells or columns."""
_MARGIN = 0.12
"""The share of a page's height at its top and its bottom that running heads stand in."""
_BULLET = re.compile(r"[•◦▪·*\-–—]|\(?(\d+|[a-z])[.)]")
_RAISED = "\ue000"
"""Stands before a raised character until it is known whether a number follows."""
_COLUMN_LINES = 3
_PROSE_CHARACTERS = 18


@dataclass
class _Piece:
    """Characters beside each other on one line, without a wide gap between them."""

    left: float
    right: float
    base: float
    size: float
    text: str = ""


@dataclass
class _Line:
    """Pieces on one line, from left to right."""

    pieces: list[_Piece] = field(default_factory=list)

    @property
    def base(self) -> float:
        return self.pieces[0].base

    @property
    def size(self) -> float:
        return max(piece.size for piece in self.pieces)

    @property
    def plain(self) -> str:
        return " ".join(piece.text for piece in self.pieces)


def read_pdf(content: bytes) -> tuple[str, str]:
    """Return the title of the file's metadata and the text of all pages."""
    import pypdfium2

    document = pypdfium2.PdfDocument(content)
    try:
        title = document.get_metadata_value("Title")
        heights, pages = [], []
        for page in document:
            heights.append(page.get_height())
            pages.append([line for pieces in _find_pieces(page) for line in _order(pieces)])
            page.close()
    finally:
        document.close()
    return title, join_lines(_paragraphs(_drop_running_heads(pages, heights)))


class _Character(NamedTuple):
    """A character, placed as if the page were turned until its line is level."""

    turn: int
    """Quarter turns of its line against the page, clockwise."""
    text: str
    left: float
    right: float
    base: float
    size: float
    after_space: bool


def _characters(page: Any) -> Iterator[_Character]:
    """Yield each visible character of a page in the order in which the file draws them."""
    import ctypes
    from math import pi

    import pypdfium2.raw as pdfium

    textpage = page.get_textpage()
    width, height = page.get_size()
    box, x, y = pdfium.FS_RECTF(), ctypes.c_double(), ctypes.c_double()
    first_half, after_space = 0, False
    raw = textpage.raw
    for place in range(textpage.count_chars()):
        code = pdfium.FPDFText_GetUnicode(raw, place)
        if 0xD800 <= code < 0xDC00:
            first_half = code
            continue
        if first_half and 0xDC00 <= code < 0xE000:
            code += 0x10000 + ((first_half - 0xD800) << 10) - 0xDC00
        first_half = 0
        # PDFium gives 2 or 0xFFFE for a hyphen at the end of a line; half a character can be written nowhere.
        text = "-" if code in (2, 0xFFFE) else "\ufffd" if code == 0 or 0xD800 <= code < 0xE000 else chr(code)
        if text.isspace():
            after_space = True
            continue
        pdfium.FPDFText_GetLooseCharBox(raw, place, box)
        pdfium.FPDFText_GetCharOrigin(raw, place, x, y)
        size = pdfium.FPDFText_GetFontSize(raw, place) or 1.0
        turn = round(pdfium.FPDFText_GetCharAngle(raw, place) / (pi / 2)) % 4
        left, right, base = (
            (box.left, box.right, y.value),
            (height - box.top, height - box.bottom, x.value),
            (width - box.right, width - box.left, height - y.value),
            (box.bottom, box.top, width - x.value),
        )[turn]
        yield _Character(turn, text, left, right, base, size, after_space)
        after_space = False
    textpage.close()


def _find_pieces(page: Any) -> list[list[_Piece]]:
    """Return the pieces of a page in the order in which the file draws them, turned ones apart from level ones."""
    turns: list[list[_Piece]] = [[], [], [], []]
    edge, raised, turn = 0.0, False, 0
    for each in _characters(page):
        pieces = turns[each.turn]
        piece = pieces[-1] if pieces and each.turn == turn else None
        turn = each.turn
        if piece is None or not _continues(piece, each, each.left - edge):
            pieces.append(_Piece(each.left, each.right, each.base, each.size, each.text))
            edge, raised = each.right, False
            continue
        lifted = _is_script(piece, each) and each.base > piece.base + 0.1 * piece.size
        if each.after_space and each.left - edge > 0.05 * each.size:
            piece.text += " "
        elif lifted and not raised:
            piece.text += _RAISED
        piece.text += each.text
        piece.right, edge, raised = max(piece.right, each.right), each.right, lifted
    for piece in chain.from_iterable(turns):
        piece.text = re.sub(rf"(?<=\S){_RAISED}(?=[+\-−–]?\d)", "^", piece.text).replace(_RAISED, "")  # 10^9, not 109
    return turns


def _is_script(piece: _Piece, each: _Character) -> bool:
    """Return whether a character is small beside its line, as a power or an index is."""
    return each.size < 0.85 * piece.size and abs(each.base - piece.base) < 0.8 * piece.size


def _continues(piece: _Piece, each: _Character, gap: float) -> bool:
    on_line = abs(each.base - piece.base) < 0.2 * piece.size or _is_script(piece, each)
    return on_line and -0.5 * piece.size < gap < _CELL_GAP * piece.size


def _order(pieces: Sequence[_Piece]) -> list[_Line]:
    """Return the lines of a page in reading order: what spans columns in its place, else column after column."""
    gutter = _find_gutter(pieces)
    if gutter is None:
        return _lines(pieces)
    ordered: list[_Line] = []
    ranked = sorted(pieces, key=lambda piece: -piece.base)
    for spans, group in groupby(ranked, key=lambda piece: piece.left < gutter < piece.right):
        part = list(group)
        if spans:
            ordered += _lines(part)
        else:
            ordered += _order([piece for piece in part if piece.right <= gutter])
            ordered += _order([piece for piece in part if piece.left >= gutter])
    return ordered


def _lines(pieces: Iterable[_Piece]) -> list[_Line]:
    """Return pieces put together to lines, from top to bottom."""
    lines: list[_Line] = []
    for piece in sorted(pieces, key=lambda piece: (-piece.base, piece.left)):
        if lines and abs(lines[-1].base - piece.base) < 0.4 * min(lines[-1].size, piece.size):
            lines[-1].pieces.append(piece)
        else:
            lines.append(_Line([piece]))
    for line in lines:
        line.pieces.sort(key=lambda piece: piece.left)
    return lines


def _find_gutter(pieces: Sequence[_Piece]) -> float | None:
    """Return the middle of the empty stripe between two columns of prose; None if there is none.

    Cells of a table leave such stripes too, but do not fill the width of their column as lines of prose do.
    """
    if len(pieces) < 2 * _COLUMN_LINES:
        return None
    left, right = min(piece.left for piece in pieces), max(piece.right for piece in pieces)
    best: tuple[int, float, float] | None = None
    for edge in sorted({piece.right for piece in pieces}):
        if not left + 0.2 * (right - left) < edge < left + 0.8 * (right - left):
            continue
        starts = [piece.left for piece in pieces if piece.left >= edge]
        if not starts:
            continue
        middle = (edge + min(starts)) / 2
        crossing = sum(piece.left < middle < piece.right for piece in pieces)
        rank = (crossing, edge - min(starts), middle)
        best = min(best, rank) if best else rank
    if best is None:
        return None
    middle = best[2]
    sides = [
        [piece for piece in pieces if piece.right <= middle],
        [piece for piece in pieces if piece.left >= middle],
    ]
    return middle if all(map(_is_prose, sides)) else None


def _is_prose(pieces: Sequence[_Piece]) -> bool:
    if len(pieces) < _COLUMN_LINES:
        return False
    width = max(piece.right for piece in pieces) - min(piece.left for piece in pieces)
    filled = median(piece.right - piece.left for piece in pieces) > 0.6 * width
    return filled and median(len(piece.text) for piece in pieces) >= _PROSE_CHARACTERS


def _drop_running_heads(pages: Sequence[Sequence[_Line]], heights: Sequence[float]) -> list[list[_Line]]:
    """Return the pages without lines at the edge that stand at one place of half the pages, numbers of pages aside."""
    found = [
        [(line, _head_keys(line, number, heights[number])) for line in lines] for number, lines in enumerate(pages)
    ]
    counts = Counter(key for page in found for key in set().union(*(keys for _, keys in page)))
    enough = max(2, len(pages) // 2)
    return [[line for line, keys in page if not any(counts[key] >= enough for key in keys)] for page in found]


def _head_keys(line: _Line, page: int, height: float) -> set[tuple[str, int, int]]:
    """Return what another page must have in common: the same words, or words around a number that counts pages."""
    if _MARGIN * height < line.base < (1 - _MARGIN) * height:
        return set()
    text, place = line.plain, round(line.base / 3)
    numbered = {
        (f"{text[: match.start()]}#{text[match.end() :]}", int(match[0]) - page, place)
        for match in re.finditer(r"\d{1,6}", text)
    }
    return {(text, 0, place)} | numbered


def _paragraphs(pages: Sequence[Sequence[_Line]]) -> Iterator[list[str]]:
    """Yield the lines of each paragraph; a row of a table is one by itself."""
    paragraph: list[str] = []
    for lines in pages:
        steps = [first.base - second.base for first, second in pairwise(lines) if first.base > second.base]
        step = median(steps) if steps else 0.0
        last: _Line | None = None
        for line, in_table in zip(lines, _in_tables(lines), strict=True):
            if paragraph and (in_table or _begins(line, last, step, paragraph[-1])):
                yield paragraph
                paragraph = []
            if in_table:
                yield [" | ".join(piece.text for piece in line.pieces)]
            else:
                paragraph.append(line.plain)
            last = line
    if paragraph:
        yield paragraph


def _begins(line: _Line, last: _Line | None, step: float, before: str) -> bool:
    """Return whether a line begins a paragraph; one goes on at the top of a column or page until a sentence ends."""
    if _BULLET.fullmatch(line.plain.split(" ", 1)[0]):
        return True
    if last is None or line.base > last.base:
        return before.endswith((".", "!", "?", ":"))
    return last.base - line.base > 1.3 * step or abs(line.size - last.size) > 0.1 * last.size


def _in_tables(lines: Sequence[_Line]) -> list[bool]:
    """Return for each line whether it is a row: it has several cells, and so has a neighbour."""
    several = [len(line.pieces) > 1 and not _BULLET.fullmatch(line.pieces[0].text) for line in lines]
    around = [False, *several, False]
    return [here and (before or after) for before, here, after in zip(around, several, around[2:], strict=False)]


_SOFT = "\u00ad"
_WORD = re.compile(r"[^\W\d_]+(?:-[^\W\d_]+)*")
_BROKEN = re.compile(r"([^\W\d_]+)-$")
_CONTINUED = re.compile(r"[^\W\d_]+")
_UNFINISHED = re.compile(r"\w[-‐‑–/]$")
_LINKS = {"and", "or", "to", "und", "oder", "bis", "et", "ou", "y", "o", "e"}
"""Before these a hyphen stands for the rest of a compound: short- and long-acting."""
_GREEK = {"alpha", "beta", "gamma", "delta", "epsilon", "kappa", "lambda", "mu", "omega", "sigma"}


def join_lines(paragraphs: Iterable[Sequence[str]]) -> str:
    """Return the paragraphs of a document, each in one line.

    >>> join_lines([["Give 10-", "20 mg of a beta-", "blocker by the treat-", "ment plan."]])
    'Give 10-20 mg of a beta-blocker by the treatment plan.\\n'
    """
    listed = [list(lines) for lines in paragraphs]
    unbroken = (re.sub(r"\S+-\n\S*", " ", "\n".join(lines)) for lines in listed)
    words = Counter(word.lower() for text in unbroken for word in _WORD.findall(text))
    return "".join(f"{_joined(lines, words)}\n" for lines in listed)


def _joined(lines: Sequence[str], words: Counter[str]) -> str:
    pairs = zip_longest(lines, lines[1:])
    parts = (line if following is None else _lead_over(line, following, words) for line, following in pairs)
    return "".join(parts).replace(_SOFT, "")


def _lead_over(line: str, following: str, words: Counter[str]) -> str:
    """Return a line as it stands before the following one: with a space, without its hyphen, or as it is."""
    if line.endswith(_SOFT):
        return line
    broken, continued = _BROKEN.search(line), _CONTINUED.match(following)
    if broken and continued:
        if continued[0] in _LINKS:
            return f"{line} "
        return line if _keeps_hyphen(broken[1], continued[0], words) else line[:-1]
    # 10-|20, IL-|6, 3-|fold, 10–|20, mg/|kg: parts of one expression; after a space the sign stands alone.
    return line if _UNFINISHED.search(line) and re.match(r"[\w(]", following) else f"{line} "


def _keeps_hyphen(first: str, second: str, words: Counter[str]) -> bool:
    """Return whether a hyphen at the end of a line belongs to the word, by the document's other words."""
    whole, compound = (first + second).lower(), f"{first}-{second}".lower()
    if words[whole] != words[compound]:
        return words[compound] > words[whole]
    # No syllable is a single letter, and none begins with a capital.
    if len(first) == 1 or second[0].isupper() or first.lower() in _GREEK:
        return True
    return bool(words[first.lower()] and words[second.lower()])
