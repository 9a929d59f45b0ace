"""The token of the pages: kept in `R2MED_HOME` for its owner alone, so that a restart disturbs no open page."""

from __future__ import annotations

import os
import re
import secrets
import stat
from contextlib import suppress
from pathlib import Path

from r2med.storage.home import home

_NAME = "serve-token"
_FORM = re.compile(r"[0-9a-f]{48}")


def token_path() -> Path:
    """Where the token is kept."""
    return home() / _NAME


def kept_token() -> str:
    """The token of this home, made when there is none; of a home that cannot be written, one for this time alone.

    A token that others could have read is no secret any more, and a new one takes its place.
    """
    path = token_path()
    with suppress(OSError):
        for _ in range(2):
            found = _read(path)
            if found:
                return found
            _make(path)
        return _read(path) or _new()
    return _new()


def _read(path: Path) -> str:
    """A token that only its owner could read; nothing for anything else, which is removed."""
    try:
        facts = path.lstat()
        text = path.read_text("ascii", "replace").strip() if stat.S_ISREG(facts.st_mode) else ""
    except FileNotFoundError:
        return ""
    private = os.name == "nt" or (facts.st_mode & 0o077 == 0 and facts.st_uid == os.getuid())
    if private and _FORM.fullmatch(text):
        return text
    path.unlink()
    return ""


def _make(path: Path) -> None:
    """Write a token whole, and only where there is none: of two servers that start at once, both use the first."""
    draft = path.with_name(f".{_NAME}.{secrets.token_hex(4)}")
    try:
        handle = os.open(draft, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600)
        with os.fdopen(handle, "w", encoding="ascii") as file:
            file.write(_new() + "\n")
        with suppress(FileExistsError):
            os.link(draft, path)
    finally:
        draft.unlink(missing_ok=True)


def _new() -> str:
    return secrets.token_hex(24)
