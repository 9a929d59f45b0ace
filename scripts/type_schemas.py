"""The JSON Schema of a type: msgspec's, with what the type says of its fields."""

from __future__ import annotations

import ast
import inspect
import re
import textwrap
from collections.abc import Sequence
from contextlib import suppress
from functools import cache
from itertools import zip_longest
from pathlib import Path
from types import ModuleType
from typing import Any, get_args, get_type_hints

import msgspec
import numpy as np

Schema = dict[str, Any]


def type_schema(kind: Any) -> Schema:
    """Return the schema of a struct, a dataclass, or a list or mapping of them; every field has its description."""
    _import_for_types(inspect.getmodule(kind))
    (schema,), parts = msgspec.json.schema_components((kind,), schema_hook=_custom, ref_template="#/$defs/{name}")
    for name, types in _classes(kind).items():
        part = parts[name]
        part["description"] = _about(types)
        if not getattr(getattr(types, "__struct_config__", None), "omit_defaults", False):
            part["required"] = list(part["properties"])  # it is always printed, default or not
        for shape in part["properties"].values():
            shape.pop("default", None)
        for field, text in _descriptions(types).items():
            if field in part["properties"]:
                part["properties"][field] = {"description": text} | part["properties"][field]
    own = parts.pop(schema["$ref"].removeprefix("#/$defs/")) if schema.keys() == {"$ref"} else schema
    return own | ({"$defs": parts} if parts else {})


_COMPLETE: set[ModuleType | None] = set()


def _import_for_types(module: ModuleType | None) -> None:
    """Make the imports that a module has for its annotations alone, and those of the modules that it knows."""
    if module is None or module in _COMPLETE or not module.__name__.startswith("r2med"):
        return
    _COMPLETE.add(module)
    for node in ast.parse(inspect.getsource(module)).body:
        if isinstance(node, ast.If) and getattr(node.test, "id", "") == "TYPE_CHECKING":
            with suppress(ImportError):
                exec(compile(ast.Module(node.body, []), module.__name__, "exec"), vars(module))
    for value in list(vars(module).values()):
        if inspect.isclass(value):
            _import_for_types(inspect.getmodule(value))


def shape(kind: Any, *properties: str, without: Sequence[str] = (), **fields: Schema) -> Schema:
    """Return the schema of a type in one piece, with some properties of its class, and with other fields."""
    whole = type_schema(kind)
    schema: Schema = _inlined(whole, whole.get("$defs", {}))
    for name in properties:
        getter = getattr(kind, name)
        getter = getattr(getter, "fget", None) or getattr(getter, "func", getter)
        text = _about(getter).removeprefix("Return ").removeprefix("whether ")
        schema["properties"][name] = shape(get_type_hints(getter)["return"]) | {
            "description": text[:1].upper() + text[1:]
        }
    if "properties" not in schema:
        return schema
    schema["properties"] = {n: s for n, s in schema["properties"].items() if n not in without} | fields
    schema["required"] = list(schema["properties"])
    return schema


def _inlined(part: Any, parts: Schema) -> Any:
    """Replace references to parts by the parts."""
    if isinstance(part, list):
        return [_inlined(item, parts) for item in part]
    if not isinstance(part, dict):
        return part
    named = parts.get(str(part.get("$ref", "")).removeprefix("#/$defs/"), {})
    whole = {key: value for key, value in (named | part).items() if key not in ("$ref", "$defs")}
    # A class's name means nothing to a reader of JSON; a field may be called title.
    return {key: _inlined(value, parts) for key, value in whole.items() if key != "title" or isinstance(value, dict)}


def _custom(kind: type) -> Schema:
    if issubclass(kind, Path):
        return {"type": "string"}
    if issubclass(kind, np.ndarray):
        return {"type": "array"}
    raise NotImplementedError(kind)


def _classes(kind: Any) -> dict[str, type]:
    """Return the classes with fields that a type is made of, by name."""
    classes: dict[str, type] = {}
    waiting = [kind]
    while waiting:
        part = waiting.pop()
        waiting += get_args(part)
        if inspect.isclass(part) and part.__name__ not in classes and not get_args(part):
            hints = _hints(part)
            if hints:
                classes[part.__name__] = part
                waiting += hints.values()
    return classes


def _hints(kind: type) -> dict[str, Any]:
    if not (hasattr(kind, "__struct_fields__") or hasattr(kind, "__dataclass_fields__")):
        return {}
    known = msgspec.inspect.type_info(kind)
    names = [field.name for field in getattr(known, "fields", ())]
    hints: dict[str, Any] = msgspec._utils.get_class_annotations(kind)  # type: ignore[attr-defined]
    return {name: hints[name] for name in names}


@cache
def _descriptions(kind: type) -> dict[str, str]:
    """Return what a class, and those it inherits from, say of their fields, by their names in JSON.

    That is the string below a field, or a comment behind it that is a sentence, with a capital and a full stop.
    """
    texts: dict[str, str] = {}
    for base in reversed(kind.__mro__[:-1]):
        if not _hints(base):
            continue
        source = textwrap.dedent(inspect.getsource(base))
        (node,) = ast.parse(source).body
        assert isinstance(node, ast.ClassDef)
        for field, below in zip_longest(node.body, node.body[1:]):
            match field, below:
                case (
                    ast.AnnAssign(target=ast.Name(id=name)),
                    ast.Expr(value=ast.Constant(value=str(text))),
                ):
                    texts[name] = _line(text)
                case ast.AnnAssign(target=ast.Name(id=name), end_lineno=int(line), end_col_offset=int(column)), _:
                    behind = source.split("\n")[line - 1].encode()[column:].decode()
                    if comment := re.fullmatch(r"  # ([A-Z].*\.)", behind):
                        texts[name] = comment[1]
    names = dict(
        zip(getattr(kind, "__struct_fields__", ()), getattr(kind, "__struct_encode_fields__", ()), strict=True)
    )
    return {names.get(name, name): text for name, text in texts.items()}


def _about(kind: type) -> str:
    return _line((kind.__doc__ or "").partition("\n\n")[0])


def _line(text: str) -> str:
    return re.sub(r"\s+", " ", text).strip()
