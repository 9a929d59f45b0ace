"""The text of HTML pages, and of Markdown and Word files by way of HTML: one line per block or table row."""

from __future__ import annotations

import io
import re
from itertools import accumulate
from typing import Any
from zipfile import ZipFile

from r2med.construction.items import Heading

Markup = tuple[str, str, tuple[Heading, ...]]  # title, text and headings
_BLOCKS = {
    "address", "article", "aside", "blockquote", "body", "br", "caption", "center", "dd", "details", "div", "dl", "dt",
    "fieldset", "figcaption", "figure", "footer", "form", "header", "hr", "legend", "li", "main", "ol", "p", "section",
    "summary", "table", "tbody", "td", "tfoot", "th", "thead", "tr", "ul",
}  # fmt: skip
_HEADINGS = {f"h{level}" for level in range(1, 7)}
_LEFT_OUT = {
    "button", "datalist", "del", "head", "iframe", "nav", "noscript", "object", "s", "script", "select", "strike",
    "style", "svg", "template", "textarea",
}  # fmt: skip
_PAGE_ROLES = {"banner", "contentinfo", "navigation", "search"}
_SECTIONS = {"article", "blockquote", "main", "section"}
_HIDDEN_STYLE = re.compile(r"(display\s*:\s*none|visibility\s*:\s*hidden)", re.IGNORECASE)
_POWER = re.compile(r"[+\-−–]?\d")
_INLINE = {
    "a", "abbr", "b", "bdi", "bdo", "big", "cite", "code", "data", "dfn", "em", "font", "i", "img", "ins", "kbd",
    "label", "mark", "q", "rp", "rt", "ruby", "samp", "small", "span", "strong", "sub", "sup", "time", "tt", "u", "var",
    "wbr",
}  # fmt: skip
_TAG = re.compile(r"""</?([a-zA-Z][\w-]*)(?:\s+[\w:-]+\s*=\s*(?:"[^"]*"|'[^']*'|[^\s"'>]+))*\s*/?>""")
_LESS, _TIMES, _GREATER = re.compile(r"<(?![!?])"), re.compile(r"(?<=[\d.)])\*(?=[\d.(])"), re.compile(r">(=|\.?\d)")
_DOCX_PARTS = re.compile(r"word/(document|footnotes|endnotes)\.xml")
_DOCX_WRAPPERS = re.compile(rb"(</?w:)(?:fldSimple|dir|bdo)\b")
_DOCX_RAISED = re.compile(rb"<w:position w:val=.[1-9]\d*.\s*/>")
_FRONT_MATTER = re.compile(r"\A---[ \t]*\n(.*?\n)?(---|\.\.\.)[ \t]*(\n|\Z)", re.DOTALL)


def read_html(page: str) -> Markup:
    """Return the words of a page without what is hidden, its scripts, its menus, and the page's header and footer."""
    from selectolax.lexbor import LexborHTMLParser

    tree = LexborHTMLParser(page)
    named = tree.css_first("head title")
    title = " ".join(named.text().split()) if named is not None else ""
    reader = _PageReader()
    if tree.body is not None:
        reader.visit(tree.body)
        reader.end_line()
    ends = list(accumulate(len(words) + 1 for words, _ in reader.lines))
    headings = (
        Heading(end - len(w) - 1, end, w) for (w, heading), end in zip(reader.lines, ends, strict=True) if heading
    )
    return title, "".join(f"{words}\n" for words, _ in reader.lines), tuple(headings)


def read_markdown(text: str) -> Markup:
    """Return the words of a Markdown file as a page made of it would show them; its front matter is left out.

    Signs between numbers are kept: 5*3*2, a line that begins with >5.5, <LLN and >ULN.
    """
    from markdown_it import MarkdownIt
    from markdown_it.rules_block import blockquote

    def read_star(state: Any, silent: bool) -> bool:
        return _keep_sign(state, silent, _TIMES)

    def read_less_than(state: Any, silent: bool) -> bool:
        tag = _TAG.match(state.src, state.pos)
        return not (tag and tag[1].lower() in _INLINE | _BLOCKS | _LEFT_OUT) and _keep_sign(state, silent, _LESS)

    def read_quote(state: Any, start: int, end: int, silent: bool) -> bool:
        place = state.bMarks[start] + state.tShift[start]
        return not _GREATER.match(state.src, place) and blockquote(state, start, end, silent)

    parser = MarkdownIt("commonmark", {"html": True}).enable("table")
    parser.inline.ruler.before("emphasis", "star", read_star)
    parser.inline.ruler.before("html_inline", "less_than", read_less_than)
    parser.block.ruler.at("blockquote", read_quote, {"alt": ["paragraph", "reference", "blockquote", "list"]})
    front = _FRONT_MATTER.match(text)
    named = re.search(r"(?m)^title[ \t]*:[ \t]*(.+?)[ \t]*$", front[1] or "") if front else None
    page = parser.render(text[front.end() :] if front else text)
    title, words, headings = read_html(f"<body>{page}</body>")
    return named[1].strip("\"'") if named else title, words, headings


def _keep_sign(state: Any, silent: bool, sign: re.Pattern[str]) -> bool:
    """Read one character as text where the pattern matches."""
    if not sign.match(state.src, state.pos):
        return False
    if not silent:
        state.pending += state.src[state.pos]
    state.pos += 1
    return True


def read_docx(content: bytes) -> Markup:
    """Return the words of a Word file, without the header and footer of its pages and without deleted text."""
    import mammoth

    # The elements that mammoth leaves out, replaced by equal ones that it reads.
    adapted = io.BytesIO()
    with ZipFile(io.BytesIO(content)) as archive, ZipFile(adapted, "w") as written:
        for info in archive.infolist():
            part = archive.read(info)
            if _DOCX_PARTS.fullmatch(info.filename):
                if b"<m:oMath" in part:
                    raise ValueError("it has equations: save it as PDF")
                part = _DOCX_WRAPPERS.sub(rb"\1smartTag", part)
                part = _DOCX_RAISED.sub(b'<w:vertAlign w:val="superscript"/>', part)
            written.writestr(info.filename, part)
    adapted.seek(0)
    done = mammoth.convert_to_html(adapted)
    for message in done.messages:
        if "w:sym" in message.message:
            raise ValueError(
                f"it has a symbol that is not known ({message.message.rpartition(': ')[2]}): save it as PDF"
            )
    return read_html(f"<body>{done.value}</body>")


class _PageReader:
    """Lines of a page in the order of reading, each with whether it is a heading."""

    def __init__(self) -> None:
        self.lines: list[tuple[str, bool]] = []
        self._words: list[str] = []

    def end_line(self, heading: bool = False) -> None:
        """End the line that is being read."""
        line = " ".join("".join(self._words).replace("\u00ad", "").split())
        if line:
            self.lines.append((line, heading))
        self._words.clear()

    def visit(self, node: Any, depth: tuple[str, ...] = ()) -> None:
        """Read what is inside of an element."""
        for child in node.iter(include_text=True):
            tag = child.tag
            if tag == "-text":
                self._words.append(child.text(deep=False) or "")
            elif tag.startswith(("-", "!")) or tag in _LEFT_OUT or _is_hidden(child):
                continue
            elif child.attributes.get("role") in _PAGE_ROLES or (
                tag in ("header", "footer") and not _SECTIONS.intersection(depth)
            ):  # of the page, not of an article in it
                for heading in child.css("h1"):
                    self.end_line()
                    self.visit(heading)
                    self.end_line(heading=True)
            else:
                self._visit_element(child, tag, (*depth, tag))

    def _visit_element(self, node: Any, tag: str, depth: tuple[str, ...]) -> None:
        if tag == "tr" and not node.css_matches("h1, h2, h3, h4, h5, h6, table"):
            self.end_line()
            cells = [_inline(cell) for cell in node.iter() if cell.tag in ("td", "th") and not _is_hidden(cell)]
            self.lines += [(" ".join(" | ".join(cells).split()), False)] if any(cells) else []
        elif tag == "pre":
            self.end_line()
            self.lines += [(line.rstrip(), False) for line in node.text().splitlines() if line.strip()]
        elif tag in ("sup", "msup", "mfrac"):
            self._words.append(_scripted(node, tag, "".join(self._words)))
        elif tag in _BLOCKS or tag in _HEADINGS:
            self.end_line()
            if tag == "li" and node.parent is not None and node.parent.tag == "ol":
                self._words.append(_item_mark(node))
            self.visit(node, depth)
            self.end_line(heading=tag in _HEADINGS)
        else:
            self.visit(node, depth)


def _inline(node: Any) -> str:
    reader = _PageReader()
    reader.visit(node, ("section",))
    reader.end_line()
    return " ".join(line for line, _ in reader.lines)


def _scripted(node: Any, tag: str, before: str) -> str:
    """Return a raised text or a fraction in one line: 10^9, 1 1/2."""
    if tag != "sup":
        first, second = ([_inline(child) for child in node.iter()] + ["", ""])[:2]
        return f"{first}^{second}" if tag == "msup" else f"{' ' * before[-1:].isalnum()}{first}/{second}"
    text = _inline(node)
    follows = node.next
    if follows is not None and follows.tag == "-text" and re.match(r"\s*[/⁄]\s*$", follows.text(deep=False) or ""):
        return f" {text}"
    return f"^{text}" if _POWER.match(text) and re.search(r"\S$|\d\s$", before) else text


def _item_mark(node: Any) -> str:
    start = node.parent.attributes.get("start") or "1"
    number = int(start) if start.lstrip("-").isdigit() else 1
    for item in node.parent.iter():
        given = item.attributes.get("value") or ""
        number = int(given) if given.isdigit() else number
        if item == node:
            break
        number += item.tag == "li"
    return f"{number}. "


def _is_hidden(node: Any) -> bool:
    attributes = node.attributes
    closed = node.tag == "dialog" and "open" not in attributes
    return closed or "hidden" in attributes or bool(_HIDDEN_STYLE.search(attributes.get("style") or ""))
