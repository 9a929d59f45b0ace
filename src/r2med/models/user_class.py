"""Classes of the user's own, named in a spec as `my.module:MyClass`: imported, checked and constructed."""

from __future__ import annotations

import importlib
import inspect
import re
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from r2med.errors import R2medError, SpecError, blame, suggest
from r2med.runs.user_source import source_file, whole_hash
from r2med.storage.foreign_output import foreign_output

_CLASS = re.compile(r"[A-Za-z_][\w.]*:[A-Za-z_]\w*")


def is_class(name: str) -> bool:
    """Whether a name is that of a user's own class.

    >>> is_class("my.module:MyEncoder"), is_class("hf:BAAI/bge-m3"), is_class("bge")
    (True, False, False)
    """
    return bool(_CLASS.fullmatch(name)) and not name.startswith("hf:")


def import_class(address: str) -> Any:
    """What `module:Class` or `module:function` names; modules beside where the command was started are found too."""
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
    found = getattr(module, attribute, None)
    if not callable(found) and not callable(getattr(found, "search", None)):
        near = suggest(attribute, [name for name, value in vars(module).items() if callable(value)])
        raise SpecError(f"{address}: {module_name} has no class or function {attribute}{near}")
    return found


def parameters(kind: Any) -> Mapping[str, inspect.Parameter]:
    """What the constructor of a user's class takes."""
    try:
        return inspect.signature(kind).parameters
    except (TypeError, ValueError) as error:
        raise SpecError(f"{kind!r} is no class of yours: nobody can tell what options it takes") from error


def option_names(kind: Any, given: Mapping[str, Any]) -> frozenset[str]:
    """Return the options that the constructor of a user's class takes, those given to `**options` too."""
    starred = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
    return frozenset(name for name, each in parameters(kind).items() if each.kind not in starred) | given.keys()


def check_arguments(address: str, kind: Any, options: Mapping[str, Any]) -> None:
    """Refuse options that the constructor of a user's class does not take."""
    parameters(kind)
    try:
        inspect.signature(kind).bind_partial(**options)
    except TypeError as error:
        takes = ", ".join(name for name in parameters(kind) if name != "task") or "no options"
        raise SpecError(f"{address}: {error}; it takes {takes}") from error


def construct(address: str, kind: Any, options: Mapping[str, Any]) -> Any:
    """An object of a user's class."""
    try:
        with foreign_output.apart():
            return kind(**options)
    except R2medError:
        raise
    except Exception as error:  # whatever a user's code may raise is the user's to see, as one line
        raise R2medError(f"{address} cannot be made: {blame(error)}") from error


def class_content(address: str, kind: Any, version: str = "") -> dict[str, str]:
    """Return the file that a class or a function is in, or its name where it is in none, with what names its code."""
    file = source_file(kind)
    return {str(file.resolve()) if file else address: version or class_version(kind)}


def class_version(kind: Any) -> str:
    """The version that a class states, or else a hash of the file it is in and of what that imports."""
    return str(getattr(kind, "version", "") or whole_hash(kind))
