"""Text of numbers, errors and values, the same in tables, messages and pages, and free of control characters."""

from __future__ import annotations

import re
from typing import Protocol


def percent(value: float | None, digits: int = 2, sign: str = "") -> str:
    """Format a share times 100, rounded as the published tables are; a dash for what is missing.

    >>> percent(0.10905), percent(0.5, 1, sign="+"), percent(-0.0), percent(None)
    ('10.90', '+50.0', '0.00', '-')
    """
    return "-" if value is None else f"{100 * value:{sign}z.{digits}f}"


class Ends(Protocol):
    """An interval, by whichever type has its ends."""

    @property
    def low(self) -> float | None:
        """Return the lower end."""

    @property
    def high(self) -> float | None:
        """Return the upper end."""


def percent_range(ends: Ends | None, digits: int = 2, sign: str = "") -> str:
    """Format the ends of an interval times 100; a dash for what is missing.

    >>> from r2med.measure.figure import Figure
    >>> percent_range(Figure(0.5, 0.41, 0.583)), percent_range(Figure(0, -0.1, 0.2), 1, sign="+")
    ('41.00 to 58.30', '-10.0 to +20.0')
    """
    if ends is None or ends.low is None or ends.high is None:
        return "-"
    return f"{percent(ends.low, digits, sign)} to {percent(ends.high, digits, sign)}"


def describe(value: object) -> str:
    """Describe a value as an error message names it.

    >>> describe(None), describe([1]), describe(0.5)
    ('null', 'a list', 'the number 0.5')
    """
    if value is None or isinstance(value, bool):
        return {None: "null", True: "true", False: "false"}[value]
    if isinstance(value, int | float):
        return f"the number {value}"
    if isinstance(value, str):
        return f"the text {shorten(value)!r}"
    return {"dict": "an object", "list": "a list"}.get(type(value).__name__, type(value).__name__)


def shorten(text: str) -> str:
    """Shorten a text so that it fits into one line of a message."""
    return text if len(text) <= 60 else f"{text[:57]}..."


def replace_surrogates(text: str) -> str:
    """Replace halves of surrogate pairs, which no file, server or tokenizer accepts."""
    return text.encode("utf-8", "replace").decode("utf-8")


def counted(number: int, one: str, many: str = "") -> str:
    """Format a number with its noun, or with the beginning of a sentence.

    >>> counted(1, "query", "queries"), counted(2400, "error")
    ('1 query', '2,400 errors')
    """
    return f"{number:,} {one if number == 1 else many or f'{one}s'}"


def one_line(error: BaseException) -> str:
    """Return an error of any origin as one line that a user can act on.

    >>> one_line(MemoryError()), one_line(OSError(28, "No space left on device", "/x"))
    ('not enough memory', '/x: No space left on device')
    """
    text = " ".join(str(error).split())
    if isinstance(error, MemoryError):
        return f"not enough memory ({text})" if text else "not enough memory"
    if isinstance(error, OSError) and error.filename and error.strerror:
        return f"{error.filename}: {error.strerror}"
    return text or type(error).__name__


def first_line(error: BaseException) -> str:
    """Return the first line of the message of another library's error, or its type if the message is empty.

    >>> first_line(ValueError("no such file\\ntry another")), first_line(KeyError())
    ('no such file', 'KeyError')
    """
    return (str(error).strip().splitlines() or [type(error).__name__])[0]


def p_text(probability: float) -> str:
    """Format a p-value for a table.

    >>> p_text(0.0123), p_text(0.0), p_text(1 / 10_001)
    ('0.0123', '<0.0001', '<0.0001')
    """
    return "<0.0001" if probability < 0.0001 else f"{probability:.4f}"


def p_words(probability: float, *, at_floor: bool = False) -> str:
    """Format a p-value for a sentence; at the floor of a test it is a bound.

    >>> p_words(0.0123), p_words(1 / 10_001), p_words(3 / 10_001, at_floor=True)
    ('p = 0.0123', 'p < 0.0001', 'p ≤ 0.0003')
    """
    if probability < 0.0001:
        return "p < 0.0001"
    return f"p {'≤' if at_floor else '='} {probability:.4f}"


def signed(value: float) -> str:
    """Format a difference x 100 with its sign.

    >>> signed(0.1234), signed(-0.1), signed(0.0)
    ('+12.34', '−10.00', '0.00')
    """
    text = percent(value, sign="+").replace("-", "\N{MINUS SIGN}")
    return "0.00" if text == "+0.00" else text


def start_of(text: str, letters: int) -> str:
    """Return a short text whole, and of a longer one the first words with an ellipsis.

    >>> start_of("swollen, bleeding gums", 18), start_of("swollen gums", 18)
    ('swollen, bleeding …', 'swollen gums')
    """
    if len(text) <= letters:
        return text
    return re.sub(r"\s+\S{0,40}$", "", text[: letters + 1]) + " …"


def dollars_text(value: float) -> str:
    """Format dollars with two places, more for small amounts that would round to zero.

    >>> dollars_text(1.234), dollars_text(0.00421), dollars_text(0.0)
    ('1.23', '0.0042', '0.00')
    """
    return f"{value:.2f}" if value >= 0.01 or not value else f"{value:.2g}"


def money(cost: float | None) -> str:
    """Format a cost in dollars; an unknown price is a question mark.

    >>> money(None), money(1.5), money(0.00012)
    ('?', '1.50', '0.0001')
    """
    if cost is None:
        return "?"
    return f"{cost:,.2f}" if cost >= 1 or not cost else f"{cost:.4f}"


def seconds_text(value: float) -> str:
    """Format seconds with three places, more for times that would round to zero.

    >>> seconds_text(1.25), seconds_text(0.00042)
    ('1.250', '0.00042')
    """
    return f"{value:.3f}" if value >= 0.001 or not value else f"{value:.5f}"


def human_size(size: float) -> str:
    """Format a number of bytes in a readable unit.

    >>> human_size(1536), human_size(12)
    ('1.5 KB', '12 B')
    """
    for unit in ("B", "KB", "MB", "GB"):
        if size < 1024:
            return f"{size:.0f} B" if unit == "B" else f"{size:.1f} {unit}"
        size /= 1024
    return f"{size:.1f} TB"


_HARMFUL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069\ud800-\udfff]")


def harmless(text: str) -> str:
    """Replace the characters that control a terminal, reorder text or cannot be encoded by replacement marks.

    >>> harmless("red\\x1b[31m\\ttab")
    'red\ufffd[31m\\ttab'
    """
    return text if text.isprintable() else _HARMFUL.sub("\ufffd", text)
