"""Zip files that are the same bytes wherever they are made, and that can be read without trusting who made them.

Members are stored as they are, in order, with a fixed date: the archive of given files is one sequence of bytes. A file
is read by taking it apart, making it again and comparing, so a changed byte anywhere is found, in the container too.
Nothing is ever unpacked onto the disk, and nothing is decompressed beyond a limit.
"""

from __future__ import annotations

import gzip
import re
import zipfile
import zlib
from collections.abc import Mapping
from io import BytesIO
from pathlib import Path

from r2med.errors import DataError

MOST_BYTES = 1 << 29
"""What an archive may hold, and what a member may become when it is unzipped."""
MOST_MEMBERS = 5_000
_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]*(?:/[A-Za-z0-9_][A-Za-z0-9_.-]*)*")
_DATE = (1980, 1, 1, 0, 0, 0)


def archive_bytes(files: Mapping[str, bytes]) -> bytes:
    """The archive of these files, in their order.

    >>> archive_bytes({"a.txt": b"x"}) == archive_bytes({"a.txt": b"x"})
    True
    """
    stream = BytesIO()
    with zipfile.ZipFile(stream, "w", zipfile.ZIP_STORED) as archive:
        for name, content in files.items():
            member = zipfile.ZipInfo(name, _DATE)
            member.create_system = 3  # the same on every system
            member.external_attr = 0o644 << 16
            archive.writestr(member, content)
    return stream.getvalue()


def read_archive(path: Path) -> dict[str, bytes]:
    """The files of an archive that `archive_bytes` made; anything else is refused, with the reason."""
    try:
        if path.stat().st_size > MOST_BYTES:
            raise DataError(f"{path}: more than {MOST_BYTES >> 20} MB, which no submission needs")
        data = path.read_bytes()
    except OSError as error:
        raise DataError(f"{path}: cannot be read ({error.strerror})") from error
    try:
        with zipfile.ZipFile(BytesIO(data)) as archive:
            _check(path, archive.infolist(), len(data))
            files = {member.filename: archive.read(member) for member in archive.infolist()}
    except (zipfile.BadZipFile, EOFError, RuntimeError, ValueError) as error:
        raise DataError(f"{path}: not a whole zip file ({error})") from error
    if archive_bytes(files) != data:
        raise DataError(f"{path}: changed since it was packed, or packed by something else than r2med submit")
    return files


def _check(path: Path, members: list[zipfile.ZipInfo], size: int) -> None:
    """Refuse names that lead elsewhere, and sizes that cannot be."""
    if len(members) > MOST_MEMBERS:
        raise DataError(f"{path}: {len(members):,} files in it, more than any submission has")
    names = [member.filename for member in members]
    for member in members:
        if not _NAME.fullmatch(member.filename):
            raise DataError(f"{path}: refused for the name {member.filename[:80]!r} in it")
        if member.compress_type != zipfile.ZIP_STORED or member.flag_bits & 0x1:
            raise DataError(f"{path}: {member.filename} is compressed or encrypted, which r2med submit never does")
    if len(set(names)) != len(names):
        raise DataError(f"{path}: a name appears twice in it")
    if sum(member.file_size for member in members) > size:
        raise DataError(f"{path}: claims to hold more than it is long")


def zipped(content: bytes) -> bytes:
    """Content, deflated."""
    return gzip.compress(content, compresslevel=6, mtime=0)


def unzipped(data: bytes, name: str) -> bytes:
    """What `zipped` was given; refused when it would grow beyond all measure.

    >>> unzipped(zipped(b"x" * 1000), "x") == b"x" * 1000
    True
    """
    inflater = zlib.decompressobj(wbits=31)
    try:
        content = inflater.decompress(data, MOST_BYTES)
    except zlib.error as error:
        raise DataError(f"{name}: not gzip data ({error})") from error
    if inflater.unconsumed_tail:
        raise DataError(f"{name}: more than {MOST_BYTES >> 20} MB when unzipped, which no run needs")
    if not inflater.eof or inflater.unused_data:
        raise DataError(f"{name}: the gzip data is cut short or followed by something")
    return content
