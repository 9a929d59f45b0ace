"""What a function or an object of a user's own depends on, as far as that can be told: its code and its values.

A result must never be met again after its code was edited. The file that a function is in is not all of it: a function
may hold values (defaults, variables around it, plain globals) that differ from one session to the next.
"""

from __future__ import annotations

import hashlib
import inspect
from collections.abc import Iterator
from contextlib import suppress
from functools import partial
from pathlib import Path
from types import BuiltinFunctionType, CodeType, FunctionType, MethodType, ModuleType
from typing import Any
from uuid import uuid4

import numpy as np

from r2med.errors import code_of_others
from r2med.runs.user_source import instructions, source_file, whole_hash

_SESSION: dict[int, tuple[Any, str]] = {}
"""Objects whose content nobody can tell, each with a mark of this process; kept, so that no id is given twice."""


def live_hash(target: Any, version: str = "") -> str:
    """A hash of a function, a class or an object: its file, its code and the values that it holds.

    What holds something that cannot be compared (a connection, a model) is different in every process, unless a
    `version` is stated for it, by which its owner says when it changes. Of globals that cannot be compared, the file
    that made them counts where there is one.
    """
    kind = target if inspect.isroutine(target) or inspect.isclass(target) else type(target)
    reader = _Reader(stated=bool(version), in_file=source_file(kind) is not None)
    parts = [whole_hash(kind), version, *reader.parts(target, kind)]
    return hashlib.blake2b("\n".join(parts).encode("utf-8", "surrogatepass"), digest_size=16).hexdigest()


class _Reader:
    """Values as text that is the same in every process, each object once."""

    def __init__(self, *, stated: bool, in_file: bool) -> None:
        self.stated, self.in_file = stated, in_file
        self.seen: set[int] = set()

    def parts(self, target: Any, kind: Any) -> Iterator[str]:
        """What the target consists of beside its file."""
        if isinstance(target, FunctionType | MethodType):
            yield from self.function(target)
        elif target is not kind:
            held = getattr(target, "__dict__", None)
            yield self.untold(target, self.stated) if held is None else self.text(held)
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
        """A value as text."""
        if value is None or isinstance(value, bool | int | float | complex | str | bytes | Path | np.generic):
            return repr(value)
        if id(value) in self.seen:
            return "again"
        self.seen.add(id(value))
        shown = partial(self.text, lenient=lenient)
        if isinstance(value, list | tuple):
            return f"[{', '.join(map(shown, value))}]"
        if isinstance(value, set | frozenset):
            return f"{{{', '.join(sorted(map(shown, value)))}}}"
        if isinstance(value, dict):
            return f"{{{', '.join(shown(each) for pair in value.items() for each in pair)}}}"
        if isinstance(value, np.ndarray) and value.dtype != object:
            digest = hashlib.blake2b(np.ascontiguousarray(value).tobytes(), digest_size=16).hexdigest()
            return f"{value.dtype} {value.shape} {digest}"
        return self.code(value, lenient or self.stated)

    def code(self, value: Any, lenient: bool) -> str:
        if isinstance(value, ModuleType):
            return "\n".join([value.__name__, *([whole_hash(value)] if _is_own(value) else [])])
        if isinstance(value, BuiltinFunctionType):
            return value.__name__
        if isinstance(value, FunctionType | MethodType):
            own = self.function(value) if source_file(value) is None or value.__closure__ else ()
            return "\n".join([whole_hash(value), *own])
        return whole_hash(value) if inspect.isclass(value) else self.untold(value, lenient)

    @staticmethod
    def untold(value: Any, lenient: bool) -> str:
        if lenient:
            return type(value).__qualname__
        return _SESSION.setdefault(id(value), (value, uuid4().hex))[1]


def _is_own(module: ModuleType) -> bool:
    """Whether a module is the user's own, so that it may be edited."""
    file = getattr(module, "__file__", None) or ""
    return file.endswith(".py") and not file.startswith(code_of_others())


def _names(code: CodeType) -> Iterator[str]:
    """Every name that a function uses, the functions inside it included."""
    yield from code.co_names
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _names(constant)
