"""Documents from folders of .txt, .md, .html, .pdf and .docx files: plain text with the places of its headings."""

from __future__ import annotations

import codecs
import hashlib
import os
import re
from collections.abc import Callable, Mapping
from pathlib import Path

from r2med.construction.items import Document
from r2med.construction.markup import Markup, read_docx, read_html, read_markdown
from r2med.construction.pdf import read_pdf
from r2med.errors import DataError, require_extra

READER = 2  # the version of the readers below: a file that an earlier one has read is read again


class UnreadableFile(Exception):
    """A file without a text that can be used; why, in a few words."""


def list_files(folder: Path) -> list[Path]:
    """Return the files that can be read, ordered by name; hidden ones are left out."""
    if not folder.is_dir():
        raise DataError(f"{folder}: no such file or folder")
    files = [path for path in _visible_files(folder) if path.suffix.lower() in READERS]
    if not files:
        raise DataError(f"{folder}: holds no {', '.join(READERS)} file, and is not a BEIR or R2MED folder")
    for path in files:
        if str(path) != str(path).encode("utf-8", "replace").decode():
            name = os.fsencode(path).decode("utf-8", "backslashreplace")
            raise DataError(f"{name}: the name of the file is not UTF-8; rename it")
    for suffix in {path.suffix.lower() for path in files} & _LIBRARIES.keys():
        require_extra("build", _LIBRARIES[suffix])
    return files


def list_other_files(folder: Path) -> list[Path]:
    """Return the files of a folder of kinds that are not read."""
    return [path for path in _visible_files(folder) if path.suffix.lower() not in READERS]


def _visible_files(folder: Path) -> list[Path]:
    paths = sorted(path for path in folder.rglob("*") if path.is_file())
    return [p for p in paths if not any(part.startswith(".") for part in p.relative_to(folder).parts)]


def file_hash(path: Path) -> str:
    """Return a hash of a file's bytes; empty if it cannot be read, which reading the file reports."""
    try:
        with path.open("rb") as stream:
            return hashlib.file_digest(stream, "sha256").hexdigest()
    except OSError:
        return ""


def read_file(path: Path, folder: Path) -> Document:
    """Read a file as a document, identified by its path in the folder."""
    name, kind = path.relative_to(folder).as_posix(), path.suffix.lower()
    if kind not in READERS:
        raise UnreadableFile("files of this kind are not read")
    try:
        content = path.read_bytes()
    except OSError as error:
        raise UnreadableFile(f"cannot be read ({error.strerror})") from error
    try:
        title, text, headings = READERS[kind](content)
    except UnreadableFile:
        raise
    except Exception as error:  # a broken file breaks a library in ways of its own
        program = {".docx": "Word file", ".pdf": "PDF"}.get(kind, "file")
        reason = " ".join(str(error).split())[:80] or type(error).__name__
        raise UnreadableFile(f"not a readable {program} ({reason})") from error
    if not text.strip():
        raise UnreadableFile("no text in it")
    if not title.strip() or _NO_TITLE.fullmatch(title.strip()):
        title = next((heading.text for heading in headings), "")
    # Files of ranked lists have spaces between their columns: no id may hold one.
    return Document(re.sub(r"\s+", "_", name), title or Path(name).stem, text, name, headings)


_NO_TITLE = re.compile(
    r"\(?(untitled|unbenannt|no title|document|dokument|new page)[\s\d)]*(document|page)?"
    r"|.*\.(docx?|pdf|indd|qxd|tex|dvi|html?|rtf|odt)",
    re.IGNORECASE,
)
"""Titles that programs write into a file and that do not describe it: "untitled", or a file's name."""


def _html(content: bytes) -> Markup:
    named = _CHARSET.search(re.sub(rb"<!--.*?-->", b"", content[:4096], flags=re.DOTALL))
    return read_html(decode(content, named[1].decode() if named else ""))


_BOMS = {
    codecs.BOM_UTF8: "utf-8-sig", codecs.BOM_UTF32_LE: "utf-32", codecs.BOM_UTF32_BE: "utf-32",
    codecs.BOM_UTF16_LE: "utf-16", codecs.BOM_UTF16_BE: "utf-16",
}  # fmt: skip
_AS_BROWSERS_READ = {
    "iso8859-1": "cp1252", "ascii": "cp1252", "iso8859-9": "cp1254", "shift_jis": "cp932", "euc_kr": "cp949",
    "gb2312": "gb18030", "gbk": "gb18030", "utf-16": "utf-8", "utf-16-le": "utf-8", "utf-16-be": "utf-8",
}  # fmt: skip
"""What pages mean by a charset they declare; a declaration that can be read as ASCII is none of UTF-16."""
_CHARSET = re.compile(
    rb"""<(?:meta\b[^>]*?\bcharset|\?xml\b[^>]*?\bencoding)\s*=\s*["']?\s*([\w.:-]+)""", re.IGNORECASE
)


def decode(content: bytes, declared: str = "") -> str:
    """Return a text by its byte order mark, its declared charset, as UTF-8, or by what its letters make likely."""
    charset = next((name for mark, name in _BOMS.items() if content.startswith(mark)), "")
    if declared and not charset:
        try:
            charset = codecs.lookup(declared.removeprefix("x-")).name
        except LookupError as error:
            raise UnreadableFile(f"declares a charset that is not known ({declared})") from error
        charset = _AS_BROWSERS_READ.get(charset, charset)
    try:
        text = content.decode(charset or "utf-8")
    except UnicodeDecodeError as error:
        if charset:
            place = f"byte 0x{error.object[error.start]:02x} at {error.start:,}"
            raise UnreadableFile(f"not the {declared or charset} that it says it is ({place})") from error
        text = _guessed(content)
    if "\0" in text:
        raise UnreadableFile("not a text file")
    return text.replace("\r\n", "\n").replace("\r", "\n")


_LATIN = ["cp1252", "cp1250", "cp1254"]
_OTHER_SCRIPTS = "cp932 euc_jp gb18030 big5 cp949 cp1251 koi8_r cp1253 cp1255 cp1256".split()


def _guessed(content: bytes) -> str:
    """Return a text in the charset that fits clearly best; one for which two fit is refused."""
    from charset_normalizer import from_bytes

    foreign = sum(byte > 127 for byte in content) / len(content)
    fits = list(from_bytes(content, cp_isolation=_LATIN if foreign < 0.2 else _OTHER_SCRIPTS))
    if not fits or b"\0" in content:
        raise UnreadableFile("not a text file")
    best = min(fits, key=lambda fit: (fit.chaos, -fit.coherence))
    rivals = [
        fit.encoding
        for fit in fits
        if fit.chaos < best.chaos + 0.05 and fit.coherence > best.coherence - 0.1 and str(fit) != str(best)
    ]
    if rivals:
        raise UnreadableFile(f"not UTF-8, and could be {' or '.join([best.encoding, *rivals])}: save it as UTF-8")
    return str(best)


READERS: Mapping[str, Callable[[bytes], Markup]] = {
    ".txt": lambda content: ("", decode(content), ()),
    ".md": lambda content: read_markdown(decode(content)),
    ".html": _html,
    ".htm": _html,
    ".pdf": lambda content: (*read_pdf(content), ()),
    ".docx": read_docx,
}
_LIBRARIES = {
    ".md": "selectolax", ".html": "selectolax", ".htm": "selectolax", ".pdf": "pypdfium2", ".docx": "mammoth",
}  # fmt: skip
