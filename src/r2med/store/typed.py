"""Typed values: what comes from TOML, JSON or a spec becomes a struct in one step, or one line says what is wrong.

    class Judge(Typed):
        models: tuple[str, ...]
        grades: Annotated[int, Meta(ge=2)] = 3

A field without a default must be given, and a field that a struct lacks is refused. `__post_init__` may raise
`FieldError`. A file of ours carries its format: `class Manifest(Typed, tag_field="format", tag=2)`.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterable, Mapping, Sequence
from copy import deepcopy
from pathlib import Path
from typing import Any, TypeVar

import msgspec
from msgspec import inspect

from r2med.errors import DataError, R2medError, suggest
from r2med.store.files import expanded, write_file

Kind = TypeVar("Kind")
Place = tuple[str | int, ...]  # keys and positions that lead to a value


class Typed(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Base of structs that are read: immutable, and every field of the input must be known."""


class FieldError(ValueError):
    """Error about a field, from `__post_init__` of a struct: its key and what is wrong with it."""

    def __init__(self, key: str, why: str) -> None:
        super().__init__(f"{key} {why}")
        self.key, self.why = key, why


def require(holds: bool, key: str, why: str) -> None:
    """Raise `FieldError` unless a condition holds."""
    if not holds:
        raise FieldError(key, why)


def convert(value: object, kind: type[Kind], where: str = "", error: type[R2medError] = DataError) -> Kind:
    """Convert plain values to a type; an error is one line that begins with `where`.

    >>> class Judge(Typed):
    ...     models: tuple[str, ...]
    >>> convert({"models": ["gpt-4o"]}, Judge)
    Judge(models=('gpt-4o',))
    >>> convert({"modles": []}, Judge, "build.toml")
    Traceback (most recent call last):
    r2med.errors.DataError: build.toml: modles is not a known key; did you mean models?
    """
    try:
        return _convert(value, kind)
    except msgspec.ValidationError as invalid:
        place, why = _explain(invalid, value, kind)
        raise error(f"{where}: {_written(place)} {why}".removeprefix(": ").replace(":  ", ": ")) from invalid


def read_toml(file: Path, kind: type[Kind], *, advice: str = "", error: type[R2medError] = DataError) -> Kind:
    """Read a TOML file; an error names the line. `advice` says what to do if there is no such file."""
    return parse_toml(read_text(file, advice, error), kind, str(file), error)


def parse_toml(
    text: str,
    kind: type[Kind],
    where: str,
    error: type[R2medError] = DataError,
    defaults: Mapping[str, Mapping[str, Any]] | None = None,
) -> Kind:
    """Parse the text of a TOML file, which messages call `where`; keys of `defaults` are those it does not have.

    >>> parse_toml("[judge]\\ngrades = 'x'", dict[str, dict[str, int]], "build.toml")
    Traceback (most recent call last):
    r2med.errors.DataError: build.toml:2: [judge] grades must be a whole number, not 'x'
    """
    value = toml_values(text, where, error)
    for name, default in (defaults or {}).items():
        changed = value.get(name, {})
        value[name] = {**default, **changed} if isinstance(changed, Mapping) else changed
    try:
        return _convert(value, kind)
    except msgspec.ValidationError as invalid:
        place, why = _explain(invalid, value, kind)
        table = f"[{_written(place[:-1])}] " if place[:-1] else ""
        raise error(f"{where}:{line_of(text, place)}: {table}{_written(place[-1:])} {why}") from invalid


def toml_values(text: str, where: str, error: type[R2medError] = DataError) -> dict[str, Any]:
    """Parse the text of a TOML file into plain values."""
    try:
        return tomllib.loads(text)
    except (ValueError, RecursionError) as invalid:
        raise error(f"{where}: not readable as TOML: {invalid}") from invalid


def read_json(file: Path, kind: type[Kind]) -> Kind:
    """Read a JSON file."""
    return parse_json(_read(file), kind, str(file))


def parse_json(content: bytes | str, kind: type[Kind], where: str, error: type[R2medError] = DataError) -> Kind:
    """Parse JSON, which messages call `where`.

    >>> parse_json('{"a": [1,\\n x]}', dict[str, list[int]], "a.json")
    Traceback (most recent call last):
    r2med.errors.DataError: a.json:2: not readable as JSON: invalid character
    """
    try:
        value = msgspec.json.decode(content)
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError) as invalid:
        data = content.encode() if isinstance(content, str) else content
        at = re.search(r"\(byte (\d+)\)", str(invalid))
        line = data.count(b"\n", 0, int(at[1]) if at else len(data)) + 1
        why = re.sub(r"JSON is malformed: | \(byte \d+\)", "", str(invalid))
        raise error(f"{where}:{line}: not readable as JSON: {why}") from invalid
    return convert(value, kind, where, error)


def plain(value: object) -> Any:
    """Turn structs, dataclasses, paths and arrays into what JSON has: objects, lists, texts and numbers.

    >>> class Judge(Typed):
    ...     models: tuple[str, ...]
    >>> plain(Judge(("gpt-4o",)))
    {'models': ('gpt-4o',)}
    """
    return msgspec.to_builtins(value, enc_hook=_written_custom, str_keys=True)


def json_bytes(value: object, indent: int = 0) -> bytes:
    """Encode a value as JSON: in one line, or indented and with a line break at the end."""
    content = msgspec.json.encode(value, enc_hook=_written_custom)
    return msgspec.json.format(content, indent=indent) + b"\n" if indent else content


def json_lines(rows: Iterable[object]) -> bytes:
    """Encode values as lines of JSON.

    >>> json_lines([{"id": "q1"}, {"id": "q2"}])
    b'{"id":"q1"}\\n{"id":"q2"}\\n'
    """
    return b"".join(json_bytes(row) + b"\n" for row in rows)


def read_json_lines(file: Path) -> list[Any]:
    """Read a file of JSON lines that r2med wrote."""
    try:
        return msgspec.json.Decoder().decode_lines(file.read_bytes())
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as invalid:
        raise DataError(f"{file}: not readable as JSON lines: {invalid}") from invalid


def write_json(file: Path, value: object) -> None:
    """Write a value as an indented JSON file, in one step."""
    write_file(file, json_bytes(value, indent=2))


def read_text(file: Path, advice: str = "", error: type[R2medError] = DataError) -> str:
    """Return the text of a file that a user names; an error says what to do if it is missing."""
    try:
        return _read(file, advice, error).decode("utf-8-sig")
    except UnicodeDecodeError as invalid:
        raise error(f"{file}: cannot be read: not UTF-8") from invalid


def _read(file: Path, advice: str = "", error: type[R2medError] = DataError) -> bytes:
    try:
        return file.read_bytes()
    except FileNotFoundError as missing:
        raise error(f"{file}: no such file{f'; {advice}' if advice else ''}") from missing
    except OSError as failed:
        raise error(f"{file}: cannot be read: {failed.strerror}") from failed


def line_of(text: str, place: Sequence[str | int]) -> int:
    """Return the line of a TOML file where a value is, or where the nearest table around it begins.

    >>> line_of("[a]\\nx = 1\\n[[b]]\\n[[b]]\\nx = 2", ("b", 1, "x")), line_of("[a]\\n[b]", ("b", "y"))
    (5, 2)
    """
    table: Place = ()
    lines: dict[Place, int] = {(): 1}
    for number, line in enumerate(text.splitlines(), 1):
        if heading := re.match(r"\s*(\[\[?)\s*([^\]]+?)\s*\]", line):
            table = _keys(heading[2])
            if heading[1] == "[[":
                table = (*table, sum(at[:-1] == table and isinstance(at[-1], int) for at in lines if at))
            lines.setdefault(table, number)
        elif setting := re.match(r"\s*([\w.\"'-]+)\s*=", line):
            lines.setdefault((*table, *_keys(setting[1])), number)
    return next(lines[tuple(place[:end])] for end in range(len(place), -1, -1) if tuple(place[:end]) in lines)


def _keys(dotted: str) -> Place:
    return tuple(key[1:-1] if key[0] in "\"'" else key for key in re.findall(r"\"[^\"]*\"|'[^']*'|[^.\s]+", dotted))


def _convert(value: object, kind: type[Kind]) -> Kind:
    config = getattr(kind, "__struct_config__", None)
    if config and config.tag is not None and isinstance(value, Mapping) and value.get(config.tag_field) != config.tag:
        raise msgspec.ValidationError(f"Invalid value - at `$.{config.tag_field}`")  # msgspec lets a missing tag pass
    return msgspec.convert(value, kind, dec_hook=_read_custom)


def _read_custom(kind: type, value: object) -> Any:
    if kind is Path and isinstance(value, str) and value:
        return expanded(value)
    raise ValueError("Expected `path`")


def _written_custom(value: Any) -> Any:
    if isinstance(value, Path | str):  # msgspec knows no subclass of str
        return str(value)
    if hasattr(value, "tolist"):  # numpy's numbers and arrays
        return value.tolist()
    raise TypeError(f"{type(value).__name__} cannot be written as JSON")


def _explain(invalid: msgspec.ValidationError, value: Any, kind: type) -> tuple[Place, str]:
    """Return the place of an invalid value and what is wrong with it."""
    message, _, path = str(invalid).partition(" - at `$")
    place = _located(invalid, path.rstrip("`"), value, kind)
    if message.startswith("Invalid value"):
        written = value.get(place[-1], "missing") if len(place) == 1 else _value_at(value, place)
        return place, f"is {_short(written)}: another version of r2med wrote this; make it again"
    if isinstance(invalid.__cause__, FieldError):
        return (*place, invalid.__cause__.key), invalid.__cause__.why
    expected = _type_at(inspect.type_info(kind), place)
    if named := re.fullmatch(r"Object (contains unknown|missing required) field `(.*)`", message):
        fields = [field.encode_name for field in expected.fields] if isinstance(expected, inspect.StructType) else []
        unknown = f"is not a known key{suggest(named[2], fields)}"
        return (*place, named[2]), unknown if named[1] == "contains unknown" else "is missing"
    if place and isinstance(place[-1], int) and not isinstance(expected, inspect.StructType):
        place = place[:-1]
        expected = _type_at(inspect.type_info(kind), place)
    content = _value_at(value, place)
    if message.startswith(("Expected", "Invalid enum")):
        return place, f"must be {_words(expected)}, not {_short(content)}"
    return place, message


def _located(invalid: Exception, path: str, value: Any, kind: type) -> Place:
    """Parse the path of an error; msgspec writes `[...]` for a key of a mapping, which is looked for."""
    place: Place = ()
    for name, index in re.findall(r"\.([^.\[]+)|\[(\d+|\.\.\.)\]", path):
        if index != "...":
            place = (*place, name or int(index))
            continue
        for key, content in _value_at(value, place).items():
            trial = deepcopy(value)
            mapping = _value_at(trial, place)
            mapping.clear()
            mapping[key] = content
            try:
                _convert(trial, kind)
            except msgspec.ValidationError as error:
                if str(error) == str(invalid):
                    place = (*place, key)
                    break
    return place


def _value_at(value: Any, place: Place) -> Any:
    for part in place:
        value = value[part]
    return value


def _type_at(expected: Any, place: Place) -> Any:
    for part in place:
        options = expected.types if isinstance(expected, inspect.UnionType) else (expected,)
        for option in options:
            fields = {field.encode_name: field.type for field in getattr(option, "fields", ())}
            inner = fields.get(part) or getattr(option, "value_type" if isinstance(part, str) else "item_type", None)
            if inner is None and isinstance(part, int):
                inner = dict(enumerate(getattr(option, "item_types", ()))).get(part)
            if inner is not None:
                expected = inner
                break
        else:
            return inspect.AnyType()
    return expected


_PLAIN: Mapping[type, tuple[str, str]] = {
    inspect.IntType: ("a whole number", "whole numbers"),
    inspect.FloatType: ("a number", "numbers"),
    inspect.StrType: ("a text", "texts"),
    inspect.BoolType: ("true or false", "values true or false"),
    inspect.CustomType: ("a path", "paths"),
    inspect.AnyType: ("a value", "values"),
}


def _words(expected: Any, plural: bool = False) -> str:
    """Describe a type to a person: `tuple[int, ...] | None` is a list of whole numbers."""
    if isinstance(expected, inspect.Metadata):
        return _words(expected.type, plural)
    if isinstance(expected, inspect.UnionType):
        options = {type(option): option for option in expected.types if not isinstance(option, inspect.NoneType)}
        if inspect.FloatType in options:
            options.pop(inspect.IntType, None)
        return " or ".join(_words(option, plural) for option in options.values())
    if isinstance(expected, inspect.LiteralType | inspect.EnumType):
        values = expected.values if isinstance(expected, inspect.LiteralType) else [item.value for item in expected.cls]
        return f"one of {', '.join(map(str, values))}"
    if isinstance(expected, inspect.TupleType):
        return f"a list of {len(expected.item_types)} {_words(expected.item_types[0], plural=True)}"
    if hasattr(expected, "item_type"):
        least = f" at least {expected.min_length}" if getattr(expected, "min_length", None) else ""
        return f"{'lists' if plural else 'a list'} of{least} {_words(expected.item_type, plural=True)}"
    described = _PLAIN.get(type(expected), ("a table", "tables"))[plural]
    low, above, high = (getattr(expected, name, None) for name in ("ge", "gt", "le"))
    if low is not None and high is not None:
        return f"{described} from {low:g} to {high:g}"
    words = {" of at least {:g}": low, " above {:g}": above, " of at most {:g}": high}
    bounds = "".join(text.format(bound) for text, bound in words.items() if bound is not None)
    if most := getattr(expected, "max_length", None):
        bounds += f" of at most {most:,} characters"
    return described + bounds + (" that is not empty" if getattr(expected, "min_length", None) else "")


def _short(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 120 else f"{text[:117]}..."


def _written(place: Place) -> str:
    """Write a place as `a.b[2].c`."""
    return "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in place).removeprefix(".")
