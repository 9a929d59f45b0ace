"""The errors a person meets: one line that says what is wrong, where, and what to do."""

from __future__ import annotations

import importlib.util
from collections.abc import Iterable
from difflib import get_close_matches


class R2medError(Exception):
    """Base of every error that is the input's or the set-up's fault; the command line prints it as one line."""


class DataError(R2medError):
    """A data file that cannot be used, with the place in it where that shows."""


class SpecError(R2medError):
    """A system description that does not parse, or names something that does not exist."""


class MissingExtra(R2medError):
    """An optional dependency that is needed now and not installed."""


class StoreWarning(UserWarning):
    """What a person should know of kept values: one is damaged and made again or left out, or one cannot be kept."""


def require_extra(extra: str, *modules: str) -> None:
    """Raise `MissingExtra` with the one line that mends it, unless every module can be imported.

    >>> require_extra("core", "json")
    """
    missing = [module for module in modules if importlib.util.find_spec(module) is None]
    if missing:
        raise MissingExtra(f"this needs {', '.join(missing)}: pip install 'r2med[{extra}]'")


def counted(number: int, one: str, many: str = "") -> str:
    """A number with its noun, or with the beginning of a sentence.

    >>> counted(1, "query", "queries"), counted(2400, "error")
    ('1 query', '2,400 errors')
    """
    return f"{number:,} {one if number == 1 else many or f'{one}s'}"


def one_line(error: BaseException) -> str:
    """What a person can make use of, of an error that may come from anywhere.

    >>> one_line(MemoryError()), one_line(OSError(28, "No space left on device", "/x"))
    ('not enough memory', '/x: No space left on device')
    """
    text = " ".join(str(error).split())
    if isinstance(error, MemoryError):
        return f"not enough memory ({text})" if text else "not enough memory"
    if isinstance(error, OSError) and error.filename and error.strerror:
        return f"{error.filename}: {error.strerror}"
    return text or type(error).__name__


def suggest(name: str, known: Iterable[str]) -> str:
    """The tail of an error message about an unknown name: the nearest known one, or all of them when few.

    >>> suggest("bm52", ["bm25", "bge"])
    '; did you mean bm25?'
    >>> suggest("NDGC@10", ["nDCG@10", "MAP@10"])
    '; did you mean nDCG@10?'
    >>> suggest("zzz", ["bm25", "bge"])
    '; known: bge, bm25'
    """
    names = sorted(known)
    spelled = {known_name.lower(): known_name for known_name in names}
    near = get_close_matches(name.lower(), spelled, n=1, cutoff=0.6)
    if near:
        return f"; did you mean {spelled[near[0]]}?"
    return f"; known: {', '.join(names)}" if len(names) <= 24 else ""
