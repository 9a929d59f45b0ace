"""Types of stages' arguments: the same for a spec and for Python, with one sentence if a value does not fit."""

from __future__ import annotations

from abc import ABCMeta
from collections.abc import Callable, Mapping
from dataclasses import Field, fields
from functools import cache
from inspect import Signature, get_annotations, signature
from typing import Any, NamedTuple, TypeVar

from r2med.errors import SpecError


class Kind(NamedTuple):
    """Kind of plain value: its name in messages, and its test."""

    words: str
    fits: Callable[[Any], bool]


KINDS: Mapping[type, Kind] = {
    bool: Kind("true or false", lambda value: isinstance(value, bool)),
    int: Kind("a whole number", lambda value: isinstance(value, int) and not isinstance(value, bool)),
    float: Kind("a number", lambda value: isinstance(value, int | float) and not isinstance(value, bool)),
    str: Kind("a name or text", lambda value: isinstance(value, str)),
}
_NAMES = {kind.__name__: known for kind, known in KINDS.items()}


class StageType(ABCMeta):
    """Metaclass of all stages: invalid arguments of built-in stages are refused in one sentence.

    >>> from r2med import BM25
    >>> BM25(k1="high")
    Traceback (most recent call last):
    r2med.errors.SpecError: BM25: k1 must be a number, not 'high'
    """

    def __call__(cls, *args: Any, **options: Any) -> Any:
        """Build a stage."""
        if cls.__module__.startswith("r2med."):
            declared = _signature(cls)
            try:
                given = declared.bind(*args, **options).arguments
            except TypeError as error:
                raise SpecError(f"{cls.__name__}: {error}; it takes {', '.join(declared.parameters)}") from None
            kinds = _kinds(cls)
            for name, value in (given | dict(options)).items():
                if name in kinds and value is not None and not kinds[name].fits(value):
                    raise SpecError(f"{cls.__name__}: {name} must be {kinds[name].words}, not {value!r}")
        return super().__call__(*args, **options)


@cache
def _signature(cls: type) -> Signature:
    """Return the signature of the constructor; that of the class would be the metaclass's, which takes anything."""
    whole = signature(cls.__init__)  # type: ignore[misc]  # only its signature is read, it is never called
    return whole.replace(parameters=list(whole.parameters.values())[1:])


@cache
def _kinds(cls: type) -> dict[str, Kind]:
    """Return the arguments that are plain values or None: those of the constructor, or fields that it passes on."""
    fields = {name: hint for base in reversed(cls.__mro__) for name, hint in get_annotations(base).items()}
    hints = fields | {name: each.annotation for name, each in _signature(cls).parameters.items()}
    plain = {name: _NAMES.get(str(hint).removesuffix(" | None")) for name, hint in hints.items()}
    return {name: kind for name, kind in plain.items() if kind is not None}


Changed = TypeVar("Changed")


def settings_of(stage: Any) -> list[Field[Any]]:
    """Return the fields of a stage, or of its class, that a spec may set: every stage is a dataclass."""
    return [field for field in fields(stage) if field.init]


def with_fields(stage: Changed, changes: Mapping[str, Any]) -> Changed:
    """Return the same stage with other values in some of its fields."""
    if not changes:
        return stage
    declared = settings_of(stage)
    values = {field.name: getattr(stage, field.name) for field in declared} | dict(changes)
    rest = next((field.name for field in declared if field.metadata.get("rest")), None)
    return type(stage)(*values.pop(rest), **values) if rest is not None else type(stage)(**values)
