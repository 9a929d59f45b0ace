"""Hashes of users' code: a run is made again if a class, function or object that it used has changed."""

from __future__ import annotations

import ast
import hashlib
import importlib
import inspect
import re
import sys
from collections.abc import Iterator, Mapping
from contextlib import suppress
from functools import lru_cache, partial
from pathlib import Path
from types import BuiltinFunctionType, CodeType, FunctionType, MethodType, ModuleType
from typing import Any
from uuid import uuid4

import numpy as np

from r2med.errors import R2medError, SpecError, blame, code_of_others, suggest
from r2med.store.processes import foreign_output

_PACKAGED = {"r2med", *sys.stdlib_module_names}


def _digest(data: bytes) -> str:
    return hashlib.blake2b(data, digest_size=16).hexdigest()


def whole_hash(kind: Any) -> str:
    """Hash the file of a class or function with all of the user's files that it imports, directly or not.

    Of what has no file, as in a notebook, hash the code.
    """
    file = source_file(kind)
    if file is None:
        return _digest("\n".join(_code_of(kind)).encode())
    digests: dict[Path, str] = {}
    waiting = [file]
    while waiting:
        path = waiting.pop()
        if path not in digests:
            digests[path] = _digest(path.read_bytes())
            waiting += _imported_files(path, digests[path])
    return digests[file] if len(digests) == 1 else _digest("\n".join(sorted(digests.values())).encode())


@lru_cache(maxsize=4096)
def _imported_files(path: Path, digest: str) -> tuple[Path, ...]:
    """Return the user's files that a file of that content imports."""
    try:
        tree = ast.parse(path.read_bytes())
    except (SyntaxError, ValueError):
        return ()
    steps = [step for step in ast.walk(tree) if isinstance(step, ast.Import | ast.ImportFrom)]
    return tuple(dict.fromkeys(file for step in steps for file in _named_by(step, path)))


def _named_by(step: ast.Import | ast.ImportFrom, path: Path) -> Iterator[Path]:
    """Yield the files that one import names: modules, the packages around them, and modules imported from a package."""
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
    """Return the file of a module if it is the user's: as it was loaded, or else where it would be found."""
    loaded = None if relative else sys.modules.get(name)
    if loaded is not None:
        file = _users_file(loaded)
        return file if file and file.is_file() else None
    stem = folder.joinpath(*name.split(".")) if name else folder
    places = [stem / "__init__.py", *([stem.with_suffix(".py")] if name else [])]
    return next((place for place in places if (name or relative) and place.is_file()), None)


def _users_file(module: ModuleType) -> Path | None:
    """Return the file of a module if it is the user's, so that it may be edited."""
    file = getattr(module, "__file__", None) or ""
    return Path(file) if file.endswith(".py") and not file.startswith(code_of_others()) else None


def source_file(kind: Any) -> Path | None:
    """Return the file that a class or a function is in; None if there is none."""
    try:
        file = inspect.getsourcefile(kind)
    except (TypeError, OSError):
        return None
    return Path(file) if file and Path(file).is_file() else None


def _code_of(kind: Any) -> Iterator[str]:
    """Yield the code of a class or a function as text that is the same in every process."""
    yield getattr(kind, "__qualname__", type(kind).__qualname__)
    for name, value in sorted({**getattr(kind, "__dict__", {}), "": kind}.items()):
        code = getattr(getattr(value, "fget", None) or getattr(value, "__func__", value), "__code__", None)
        yield from (name, *instructions(code)) if code is not None else ()


def instructions(code: CodeType) -> Iterator[str]:
    """Yield the code of a function as text that is the same in every process."""
    yield f"{code.co_code.hex()} {code.co_names} {code.co_varnames}"
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from instructions(constant)
        else:
            yield repr(sorted(map(repr, constant)) if isinstance(constant, frozenset) else constant)


def user_code(kind: type) -> str:
    """Hash all code of a class from outside this package: the version it states, or its files."""
    outside = [base for base in kind.__mro__ if base.__module__.partition(".")[0] not in _PACKAGED]
    if not outside:
        return ""
    stated = getattr(kind, "version", "")
    hashes = [stated] if isinstance(stated, str) and stated else [whole_hash(base) for base in outside]
    return _digest("\n".join(hashes).encode("utf-8", "surrogatepass"))


_CLASS = re.compile(r"[A-Za-z_][\w.]*:[A-Za-z_]\w*")


def is_class(name: str) -> bool:
    """Return whether a name is that of a user's class.

    >>> is_class("my.module:MyEncoder"), is_class("hf:BAAI/bge-m3"), is_class("bge")
    (True, False, False)
    """
    return bool(_CLASS.fullmatch(name)) and not name.startswith("hf:")


def import_class(address: str) -> Any:
    """Import `module:Class` or `module:function`; modules in the working directory are found too."""
    module_name, _, attribute = address.partition(":")
    here = str(Path.cwd())
    added = here not in sys.path
    if added:
        sys.path.insert(0, here)
    try:
        with foreign_output.apart():
            module = importlib.import_module(module_name)
    except ImportError as error:
        raise SpecError(f"{address}: cannot import {module_name} ({error})") from error
    except Exception as error:
        raise SpecError(f"{address}: cannot import {module_name}: {blame(error)}") from error
    finally:
        if added:
            sys.path.remove(here)
    target = getattr(module, attribute, None)
    if not callable(target) and not callable(getattr(target, "search", None)):
        near = suggest(attribute, [name for name, value in vars(module).items() if callable(value)])
        raise SpecError(f"{address}: {module_name} has no class or function {attribute}{near}")
    return target


def parameters(kind: Any) -> Mapping[str, inspect.Parameter]:
    """Return the parameters of the constructor of a user's class."""
    try:
        return inspect.signature(kind).parameters
    except (TypeError, ValueError) as error:
        raise SpecError(f"{kind!r} is not a class of yours: cannot tell what options it takes") from error


def option_names(kind: Any, given: Mapping[str, Any]) -> frozenset[str]:
    """Return the options that the constructor of a user's class takes, those given to `**options` too."""
    starred = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
    plain = [name for name, parameter in parameters(kind).items() if parameter.kind not in starred]
    return frozenset([*plain, *given])


def check_arguments(address: str, kind: Any, options: Mapping[str, Any]) -> None:
    """Refuse options that the constructor of a user's class does not take."""
    takes = ", ".join(name for name in parameters(kind) if name != "task") or "no options"
    try:
        inspect.signature(kind).bind_partial(**options)
    except TypeError as error:
        raise SpecError(f"{address}: {error}; it takes {takes}") from error


def construct(address: str, kind: Any, options: Mapping[str, Any]) -> Any:
    """Build an object of a user's class."""
    try:
        with foreign_output.apart():
            return kind(**options)
    except R2medError:
        raise
    except Exception as error:  # whatever a user's code may raise is the user's to see, as one line
        raise R2medError(f"{address} cannot be made: {blame(error)}") from error


def class_content(address: str, kind: Any, version: str = "") -> dict[str, str]:
    """Return the file of a class or a function, or its name if it has none, with its version or hash."""
    file = source_file(kind)
    return {str(file.resolve()) if file else address: version or class_version(kind)}


def class_version(kind: Any) -> str:
    """Return the version that a class states, or else a hash of its file and of that file's imports."""
    return str(getattr(kind, "version", "") or whole_hash(kind))


_SESSION: dict[int, tuple[Any, str]] = {}
"""Objects of unknown content, each with a mark of this process; kept, so that no id is given twice."""


def live_hash(target: Any, version: str = "") -> str:
    """Hash a function, a class or an object: its file, its code and the values that it holds.

    What holds something that cannot be compared (a connection, a model) is different in every process, unless a
    `version` is stated for it, which its author raises if it changes. Of globals that cannot be compared, the file
    that made them counts if there is one.
    """
    kind = target if inspect.isroutine(target) or inspect.isclass(target) else type(target)
    reader = _Reader(stated=bool(version), in_file=source_file(kind) is not None)
    parts = [whole_hash(kind), version, *reader.parts(target, kind)]
    return _digest("\n".join(parts).encode("utf-8", "surrogatepass"))


class _Reader:
    """Reader of values as text that is the same in every process, each object once."""

    def __init__(self, *, stated: bool, in_file: bool) -> None:
        self.stated, self.in_file = stated, in_file
        self.seen: set[int] = set()

    def parts(self, target: Any, kind: Any) -> Iterator[str]:
        if isinstance(target, FunctionType | MethodType):
            yield from self.function(target)
        elif target is not kind:
            held = getattr(target, "__dict__", None)
            yield self.untold(target) if held is None else self.text(held)
        if inspect.isclass(kind) and not self.in_file:
            for _, method in inspect.getmembers_static(kind, inspect.isfunction):
                yield from self.function(method)

    def function(self, target: FunctionType | MethodType) -> Iterator[str]:
        if isinstance(target, MethodType):
            yield self.text(target.__self__)
        function: Any = getattr(target, "__func__", target)
        yield from instructions(function.__code__)
        yield self.text([function.__defaults__, function.__kwdefaults__])
        for cell in function.__closure__ or ():
            with suppress(ValueError):  # a variable that has no value yet
                yield self.text(cell.cell_contents)
        used = function.__globals__
        for name in sorted(set(_names(function.__code__)) & used.keys()):
            yield f"{name}={self.text(used[name], lenient=self.in_file)}"

    def text(self, value: Any, *, lenient: bool = False) -> str:
        if value is None or isinstance(value, bool | int | float | complex | str | bytes | Path | np.generic):
            return repr(value)
        if id(value) in self.seen:
            return "again"
        self.seen.add(id(value))
        as_text = partial(self.text, lenient=lenient)
        if isinstance(value, list | tuple):
            return f"[{', '.join(map(as_text, value))}]"
        if isinstance(value, set | frozenset):
            return f"{{{', '.join(sorted(map(as_text, value)))}}}"
        if isinstance(value, dict):
            return f"{{{', '.join(as_text(part) for pair in value.items() for part in pair)}}}"
        if isinstance(value, np.ndarray) and value.dtype != object:
            return f"{value.dtype} {value.shape} {_digest(np.ascontiguousarray(value).tobytes())}"
        if isinstance(value, ModuleType):
            return "\n".join([value.__name__, *([whole_hash(value)] if _users_file(value) else [])])
        if isinstance(value, BuiltinFunctionType):
            return value.__name__
        if isinstance(value, FunctionType | MethodType):
            parts = self.function(value) if source_file(value) is None or value.__closure__ else ()
            return "\n".join([whole_hash(value), *parts])
        return whole_hash(value) if inspect.isclass(value) else self.untold(value, lenient)

    def untold(self, value: Any, lenient: bool = False) -> str:
        if lenient or self.stated:
            return type(value).__qualname__
        return _SESSION.setdefault(id(value), (value, uuid4().hex))[1]


def _names(code: CodeType) -> Iterator[str]:
    """Yield every name that a function uses, including those of functions inside it."""
    yield from code.co_names
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _names(constant)
