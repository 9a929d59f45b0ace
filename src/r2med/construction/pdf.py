"""The text of PDF files in reading order: columns, table rows and superscripts by the positions of characters."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain, groupby, pairwise, zip_longest
from statistics import median
from typing import Any

_CELL_GAP = 1.2  # a gap between words that is wider than so many font sizes separates cells or columns
_MARGIN = 0.12  # the share of a page's height at its top and its bottom that running heads stand in
_BULLET = re.compile(r"[•◦▪·*\-–—]|\(?(\d+|[a-z])[.)]")
_RAISED = "\ue000"  # stands before a raised character until it is known whether a number follows
_COLUMN_LINES = 3
_PROSE_CHARACTERS = 18


@dataclass
class _Piece:
    """Characters beside each other on one line, without a wide gap between them."""

    left: float
    right: float
    base: float
    size: float
    text: str


_Line = list[_Piece]  # pieces on one line, from left to right


def _plain(line: _Line) -> str:
    return " ".join(piece.text for piece in line)


def _size(line: _Line) -> float:
    return max(piece.size for piece in line)


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


def _characters(page: Any) -> Iterator[tuple[int, bool, _Piece]]:
    """Yield each visible character of a page as the file draws them: its turn, whether a space is before it, itself.

    The turn is that of its line against the page in clockwise quarters; it is placed as if its line were level.
    """
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
        yield turn, after_space, _Piece(left, right, base, size, text)
        after_space = False
    textpage.close()


def _find_pieces(page: Any) -> list[list[_Piece]]:
    """Return the pieces of a page in the order in which the file draws them, turned ones apart from level ones."""
    turns: list[list[_Piece]] = [[], [], [], []]
    edge, raised, last_turn = 0.0, False, 0
    for turn, after_space, char in _characters(page):
        pieces = turns[turn]
        piece = pieces[-1] if pieces and turn == last_turn else None
        last_turn = turn
        # A power or an index is small beside its line.
        script = piece and char.size < 0.85 * piece.size and abs(char.base - piece.base) < 0.8 * piece.size
        on_line = piece and (script or abs(char.base - piece.base) < 0.2 * piece.size)
        if not piece or not on_line or not -0.5 * piece.size < char.left - edge < _CELL_GAP * piece.size:
            pieces.append(char)
            edge, raised = char.right, False
            continue
        lifted = bool(script) and char.base > piece.base + 0.1 * piece.size
        if after_space and char.left - edge > 0.05 * char.size:
            piece.text += " "
        elif lifted and not raised:
            piece.text += _RAISED
        piece.text += char.text
        piece.right, edge, raised = max(piece.right, char.right), char.right, lifted
    for piece in chain.from_iterable(turns):
        piece.text = re.sub(rf"(?<=\S){_RAISED}(?=[+\-−–]?\d)", "^", piece.text).replace(_RAISED, "")  # 10^9, not 109
    return turns


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
    lines: list[_Line] = []
    for piece in sorted(pieces, key=lambda piece: (-piece.base, piece.left)):
        if lines and abs(lines[-1][0].base - piece.base) < 0.4 * min(_size(lines[-1]), piece.size):
            lines[-1].append(piece)
        else:
            lines.append([piece])
    return [sorted(line, key=lambda piece: piece.left) for line in lines]


def _find_gutter(pieces: Sequence[_Piece]) -> float | None:
    """Return the middle of the empty stripe between two columns of prose, which lines fill unlike a table's cells."""
    if len(pieces) < 2 * _COLUMN_LINES:
        return None
    left, right = min(piece.left for piece in pieces), max(piece.right for piece in pieces)
    ranked = []
    for edge in {piece.right for piece in pieces}:
        start = min((piece.left for piece in pieces if piece.left >= edge), default=None)
        if start is not None and left + 0.2 * (right - left) < edge < left + 0.8 * (right - left):
            middle = (edge + start) / 2
            ranked.append((sum(piece.left < middle < piece.right for piece in pieces), edge - start, middle))
    if not ranked:
        return None
    middle = min(ranked)[2]
    for side in ([p for p in pieces if p.right <= middle], [p for p in pieces if p.left >= middle]):
        if len(side) < _COLUMN_LINES or median(len(piece.text) for piece in side) < _PROSE_CHARACTERS:
            return None
        width = max(piece.right for piece in side) - min(piece.left for piece in side)
        if median(piece.right - piece.left for piece in side) <= 0.6 * width:
            return None
    return middle


def _drop_running_heads(pages: Sequence[Sequence[_Line]], heights: Sequence[float]) -> list[list[_Line]]:
    """Return the pages without lines at the edge that stand at one place of half the pages, numbers of pages aside."""
    keyed = [[(line, _head_keys(line, n, heights[n])) for line in page] for n, page in enumerate(pages)]
    counts = Counter(key for page in keyed for key in set().union(*(keys for _, keys in page)))
    frequent = {key for key, count in counts.items() if count >= max(2, len(pages) // 2)}
    return [[line for line, keys in page if not keys & frequent] for page in keyed]


def _head_keys(line: _Line, page: int, height: float) -> set[tuple[str, int, int]]:
    """Return what another page must have in common: the same words, or words around a number that counts pages."""
    if _MARGIN * height < line[0].base < (1 - _MARGIN) * height:
        return set()
    text, place = _plain(line), round(line[0].base / 3)
    numbered = {
        (f"{text[: match.start()]}#{text[match.end() :]}", int(match[0]) - page, place)
        for match in re.finditer(r"\d{1,6}", text)
    }
    return {(text, 0, place)} | numbered


def _paragraphs(pages: Sequence[Sequence[_Line]]) -> Iterator[list[str]]:
    """Yield the lines of each paragraph; a row of a table is one by itself."""
    paragraph: list[str] = []
    for lines in pages:
        steps = [first[0].base - second[0].base for first, second in pairwise(lines) if first[0].base > second[0].base]
        step = median(steps) if steps else 0.0
        last: _Line | None = None
        # A row has several cells, and so has a neighbour.
        several = [len(line) > 1 and not _BULLET.fullmatch(line[0].text) for line in lines]
        neighbours = zip([False, *several], [*several[1:], False], strict=False)
        rows = [here and any(beside) for here, beside in zip(several, neighbours, strict=True)]
        for line, in_table in zip(lines, rows, strict=True):
            begins = in_table or bool(_BULLET.fullmatch(_plain(line).split(" ", 1)[0]))
            if paragraph and not begins and (last is None or line[0].base > last[0].base):
                begins = paragraph[-1].endswith((".", "!", "?", ":"))  # a new column or page may continue a sentence
            elif last is not None:
                begins |= last[0].base - line[0].base > 1.3 * step or abs(_size(line) - _size(last)) > 0.1 * _size(last)
            if paragraph and begins:
                yield paragraph
                paragraph = []
            if in_table:
                yield [" | ".join(piece.text for piece in line)]
            else:
                paragraph.append(_plain(line))
            last = line
    if paragraph:
        yield paragraph


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
    pairs = (zip_longest(lines, lines[1:], fillvalue="") for lines in listed)
    joined = ("".join(_lead_over(line, following, words) for line, following in lines) for lines in pairs)
    return "".join(text.replace(_SOFT, "") + "\n" for text in joined)


def _lead_over(line: str, following: str, words: Counter[str]) -> str:
    """Return a line as it stands before the following one: with a space, without its hyphen, or as it is."""
    if not following or line.endswith(_SOFT):
        return line
    broken, continued = _BROKEN.search(line), _CONTINUED.match(following)
    if broken and continued:
        first, second = broken[1], continued[0]
        if second in _LINKS:
            return f"{line} "
        whole, compound = words[(first + second).lower()], words[f"{first}-{second}".lower()]
        keeps = compound > whole
        if whole == compound:  # no syllable is a single letter, and none begins with a capital
            prefixed = len(first) == 1 or second[0].isupper() or first.lower() in _GREEK
            keeps = prefixed or bool(words[first.lower()] and words[second.lower()])
        return line if keeps else line[:-1]
    # 10-|20, IL-|6, 3-|fold, 10–|20, mg/|kg: parts of one expression; after a space the sign stands alone.
    return line if _UNFINISHED.search(line) and re.match(r"[\w(]", following) else f"{line} "
