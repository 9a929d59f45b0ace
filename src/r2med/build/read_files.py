"""Documents from folders of .txt, .md, .html and .pdf files: plain text with the places of its headings."""

from __future__ import annotations

import hashlib
import io
import logging
import os
import re
from collections.abc import Callable, Mapping
from pathlib import Path

from r2med.build.build_items import Document, Heading
from r2med.errors import DataError, require_extra

Read = tuple[str, str, tuple[Heading, ...]]
"""Title, text and headings of a file."""


class UnreadableFile(Exception):
    """A file without a text that can be used; why, in a few words."""


def list_files(folder: Path) -> list[Path]:
    """The files that can be read, in the order of their names; hidden ones are left alone."""
    if not folder.is_dir():
        raise DataError(f"{folder}: no such file or folder")
    files = [
        path
        for path in sorted(folder.rglob("*"))
        if path.suffix.lower() in READERS and path.is_file() and not _hidden(path.relative_to(folder))
    ]
    if not files:
        raise DataError(f"{folder}: holds no {', '.join(READERS)} file, and is no BEIR or R2MED folder")
    for path in files:
        if str(path) != str(path).encode("utf-8", "replace").decode():
            shown = os.fsencode(path).decode("utf-8", "backslashreplace")
            raise DataError(f"{shown}: the name of the file is not UTF-8; rename it")
    for suffix in {path.suffix.lower() for path in files} & _LIBRARIES.keys():
        require_extra("build", _LIBRARIES[suffix])
    return files


def file_hash(path: Path) -> str:
    """A hash of a file's bytes; empty when it cannot be read, which reading it will say."""
    try:
        with path.open("rb") as stream:
            return hashlib.file_digest(stream, "sha256").hexdigest()
    except OSError:
        return ""


def read_file(path: Path, folder: Path) -> Document:
    """The document of a file, known by its path in the folder."""
    name = path.relative_to(folder).as_posix()
    try:
        title, text, headings = READERS[path.suffix.lower()](path.read_bytes())
    except OSError as error:
        raise UnreadableFile(f"cannot be read ({error.strerror})") from error
    if not text.strip():
        raise UnreadableFile("no text in it")
    # Files of ranked lists have spaces between their columns: no id may hold one.
    return Document(re.sub(r"\s+", "_", name), title or Path(name).stem, text, name, headings)


def _hidden(path: Path) -> bool:
    return any(part.startswith(".") for part in path.parts)


def _decoded(content: bytes) -> str:
    """A text in UTF-8, or in the encoding of old Windows files, which any bytes can be read as."""
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError:
        text = content.decode("cp1252", "replace")
    if "\0" in text:
        raise UnreadableFile("not a text file")
    return text.replace("\r\n", "\n").replace("\r", "\n")


def _plain(content: bytes) -> Read:
    return "", _decoded(content), ()


def _markdown(content: bytes) -> Read:
    """Text with headings that begin with #; what stands between fences has none."""
    text = _decoded(content)
    headings, start, fenced = [], 0, False
    for line in text.splitlines(keepends=True):
        fenced ^= line.lstrip().startswith(("```", "~~~"))
        match = re.match(r"#{1,6}\s+(.*?)\s*#*\s*$", line)
        if match and not fenced:
            headings.append(Heading(start, start + len(line), match[1]))
        start += len(line)
    return (headings[0].text if headings else ""), text, tuple(headings)


_BLOCKS = {
    "p", "div", "li", "tr", "br", "section", "article", "table", "ul", "ol", "blockquote", "pre", "dt", "dd", "td",
    "th",
}  # fmt: skip
_HEADINGS = {f"h{level}" for level in range(1, 7)}


def _html(content: bytes) -> Read:
    """The words of a page without its scripts and styles, a line for each block."""
    from selectolax.lexbor import LexborHTMLParser

    tree = LexborHTMLParser(content)
    tree.strip_tags(["script", "style", "noscript", "template", "nav", "svg"])
    named = tree.css_first("title")
    title = " ".join(named.text().split()) if named is not None else ""
    lines: list[tuple[str, bool]] = []
    if tree.body is not None:
        _walk(tree.body, lines)
    headings, parts, place = [], [], 0
    for words, is_heading in lines:
        if is_heading:
            headings.append(Heading(place, place + len(words) + 1, words))
        parts.append(words + "\n")
        place += len(words) + 1
    return title or (headings[0].text if headings else ""), "".join(parts), tuple(headings)


def _walk(body: object, lines: list[tuple[str, bool]]) -> None:
    """Lines of a page in the order of reading, each with whether it is a heading."""
    words: list[str] = []

    def end(heading: bool = False) -> None:
        line = " ".join("".join(words).split())
        if line:
            lines.append((line, heading))
        words.clear()

    def visit(node: object) -> None:
        for child in node.iter(include_text=True):  # type: ignore[attr-defined]
            tag = child.tag
            if tag == "-text":
                words.append(child.text(deep=False) or "")
            elif tag in _HEADINGS:
                end()
                words.append(child.text(separator=" "))
                end(heading=True)
            else:
                if tag in _BLOCKS:
                    end()
                visit(child)
                if tag in _BLOCKS:
                    end()

    visit(body)
    end()


def _pdf(content: bytes) -> Read:
    """The text of all pages; lines that are broken inside a sentence are joined."""
    from pypdf import PdfReader

    logging.getLogger("pypdf").setLevel(logging.CRITICAL)
    try:
        reader = PdfReader(io.BytesIO(content))
        pages = [page.extract_text() or "" for page in reader.pages]
        title = str((reader.metadata and reader.metadata.title) or "")
    except Exception as error:  # a broken file breaks the library in ways of its own
        said = " ".join(str(error).split())[:80] or type(error).__name__
        raise UnreadableFile(f"not a readable PDF ({said})") from error
    # Broken fonts give halves of characters, which no file can hold.
    pages = [page.encode("utf-8", "replace").decode() for page in pages]
    text = "\n\n".join(re.sub(r"(\w)-\n(\w)", r"\1\2", page).replace("\n", " ") for page in pages)
    return title.strip(), text, ()


READERS: Mapping[str, Callable[[bytes], Read]] = {
    ".txt": _plain,
    ".md": _markdown,
    ".html": _html,
    ".htm": _html,
    ".pdf": _pdf,
}
_LIBRARIES: Mapping[str, str] = {".html": "selectolax", ".htm": "selectolax", ".pdf": "pypdf"}
