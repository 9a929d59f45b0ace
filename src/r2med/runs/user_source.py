"""The code of a user's own classes, by its hash: a run is made again when it was changed."""

from __future__ import annotations

import ast
import hashlib
import inspect
import sys
from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path
from types import CodeType
from typing import Any

from r2med.errors import code_of_others

_PACKAGED = {"r2med", *sys.stdlib_module_names}


def source_hash(kind: Any) -> str:
    """A hash of the file that a class or a function is in, or of its code where it is in none, as in a notebook."""
    file = source_file(kind)
    data = file.read_bytes() if file else "\n".join(_code_of(kind)).encode()
    return hashlib.blake2b(data, digest_size=16).hexdigest()


def whole_hash(kind: Any) -> str:
    """As `source_hash`, with all files of the user's own that the file imports, and those that they import."""
    file = source_file(kind)
    return source_hash(kind) if file is None else files_hash(file)


def files_hash(file: Path) -> str:
    """A hash of a file and of the user's own files that it imports; where it imports none, that of the file."""
    found: dict[Path, str] = {}
    waiting = [file]
    while waiting:
        path = waiting.pop()
        if path not in found:
            found[path] = hashlib.blake2b(path.read_bytes(), digest_size=16).hexdigest()
            waiting += _imported_files(path, found[path])
    if len(found) == 1:
        return found[file]
    return hashlib.blake2b("\n".join(sorted(found.values())).encode(), digest_size=16).hexdigest()


@lru_cache(maxsize=4096)
def _imported_files(path: Path, digest: str) -> tuple[Path, ...]:
    """The user's own files that a file of that content imports."""
    try:
        tree = ast.parse(path.read_bytes())
    except (SyntaxError, ValueError):
        return ()
    steps = [step for step in ast.walk(tree) if isinstance(step, ast.Import | ast.ImportFrom)]
    return tuple(dict.fromkeys(file for step in steps for file in _named_by(step, path)))


def _named_by(step: ast.Import | ast.ImportFrom, path: Path) -> Iterator[Path]:
    """The files that one import names: modules, the packages around them, and what is taken out of a package."""
    if isinstance(step, ast.Import):
        names, folder = [alias.name for alias in step.names], path.parent
    else:
        base = step.module or ""
        names = [base, *(f"{base}.{alias.name}".lstrip(".") for alias in step.names)]
        folder = path.parents[min(step.level, len(path.parents)) - 1] if step.level else path.parent
    relative = isinstance(step, ast.ImportFrom) and step.level > 0
    for name in names:
        parts = name.split(".") if name else []
        for end in range(len(parts) + 1):
            if file := _module_file(".".join(parts[:end]), folder, relative=relative):
                yield file


def _module_file(name: str, folder: Path, *, relative: bool) -> Path | None:
    """The file of a module if it is the user's own: as it was loaded, or else where it would be found."""
    loaded = None if relative else sys.modules.get(name)
    if loaded is not None:
        known = getattr(loaded, "__file__", None) or ""
        own = known.endswith(".py") and not known.startswith(code_of_others())
        return Path(known) if own and Path(known).is_file() else None
    stem = folder.joinpath(*name.split(".")) if name else folder
    places = [stem / "__init__.py", *([stem.with_suffix(".py")] if name else [])]
    return next((place for place in places if (name or relative) and place.is_file()), None)


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
    hashes = [stated] if isinstance(stated, str) and stated else [whole_hash(each) for each in outside]
    return hashlib.blake2b("\n".join(hashes).encode("utf-8", "surrogatepass"), digest_size=16).hexdigest()
