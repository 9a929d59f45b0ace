"""The code of a user's own classes, by its hash: a run is made again when it was changed."""

from __future__ import annotations

import hashlib
import inspect
import sys
from collections.abc import Iterator
from pathlib import Path
from types import CodeType
from typing import Any

_PACKAGED = {"r2med", *sys.stdlib_module_names}


def source_hash(kind: Any) -> str:
    """A hash of the file that a class or a function is in, or of its code where it is in none, as in a notebook."""
    file = source_file(kind)
    data = file.read_bytes() if file else "\n".join(_code_of(kind)).encode()
    return hashlib.blake2b(data, digest_size=16).hexdigest()


def source_file(kind: Any) -> Path | None:
    """The file that a class or a function is in; None where it is in none."""
    try:
        file = inspect.getsourcefile(kind)
    except (TypeError, OSError):
        return None
    return Path(file) if file and Path(file).is_file() else None


def _code_of(kind: Any) -> Iterator[str]:
    """What a class or a function does, as text that is the same in every process."""
    yield getattr(kind, "__qualname__", type(kind).__qualname__)
    for name, value in sorted({**getattr(kind, "__dict__", {}), "": kind}.items()):
        code = getattr(getattr(value, "fget", None) or getattr(value, "__func__", value), "__code__", None)
        yield from (name, *instructions(code)) if code is not None else ()


def instructions(code: CodeType) -> Iterator[str]:
    """What a function does, as text that is the same in every process."""
    yield f"{code.co_code.hex()} {code.co_names} {code.co_varnames}"
    for constant in code.co_consts:
        yield from instructions(constant) if isinstance(constant, CodeType) else (_constant(constant),)


def _constant(value: Any) -> str:
    """A constant as text; the order in which a set shows its members is chance."""
    return repr(sorted(map(repr, value)) if isinstance(value, frozenset) else value)


def user_code(kind: type) -> str:
    """A hash of all code that a class has from outside this package: the version it states, or its files."""
    outside = [each for each in kind.__mro__ if each.__module__.partition(".")[0] not in _PACKAGED]
    if not outside:
        return ""
    stated = getattr(kind, "version", "")
    hashes = [stated] if isinstance(stated, str) and stated else [source_hash(each) for each in outside]
    return hashlib.blake2b("\n".join(hashes).encode("utf-8", "surrogatepass"), digest_size=16).hexdigest()
