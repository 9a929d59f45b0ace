"""The spec language: a whole retrieval system as one line that parses and prints to the same string.

    system := call (">>" call)*
    call   := NAME [ "(" [ argument ("," argument)* ] ")" ]
    argument := [ NAME "=" ] value
    value  := number | true | false | none | "text" | NAME | "[" value, ... "]" | system | call (">" | "<") number

A bare NAME as an argument is a plain string, quoted only where it must be: `replay("my file.tsv")`, `hyde(gpt-4o)`.
Numbers are finite. A call without arguments keeps its brackets as a value, `rrf(bm25())`: `bm25` alone is a string.
"""

from __future__ import annotations

import json
import math
import re
from dataclasses import dataclass
from typing import Union

from r2med.errors import SpecError

Value = Union[str, int, float, bool, None, "Call", "Chain", "Condition", tuple["Value", ...]]
_NAME = r"[A-Za-z_./~][\w.:/@+~-]*"
_TOKEN = re.compile(
    rf"""\s*(?:
        (?P<then>>>) | (?P<mark>[()\[\],=<>]) |
        (?P<number>[-+]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?(?![\w.:/@+~-])) |
        (?P<text>"(?:[^"\\]|\\.)*"|'(?:[^'\\]|\\.)*') |
        (?P<name>{_NAME}|\d[\w.:/@+~-]*)
    )""",
    re.VERBOSE,
)
_BARE = re.compile(rf"(?!\.\d){_NAME}\Z")
_DEEPEST = 50
_LARGEST = 2**63 - 1
"""The largest whole number that a result can record."""
_LONGEST = 255
"""Bytes of a name: no file and no model has a longer one."""
_UNWRITABLE = re.compile("[\0\ud800-\udfff]")
"""Characters that no file can hold as text."""
_WORDS: dict[str, bool | None] = {"true": True, "false": False, "none": None}


@dataclass(frozen=True)
class Call:
    """Name with arguments: one stage, or a value shaped like one.

    >>> str(Call("bm25", (), (("k1", 1.2),)))
    'bm25(k1=1.2)'
    """

    name: str
    args: tuple[Value, ...] = ()
    options: tuple[tuple[str, Value], ...] = ()

    def __str__(self) -> str:
        parts = [_show(value) for value in self.args]
        parts += [f"{name}={_show(value)}" for name, value in self.options]
        return f"{self.name}({', '.join(parts)})" if parts else self.name


@dataclass(frozen=True)
class Chain:
    """Calls joined by `>>`.

    >>> str(parse("hyde( 'gpt-4o' )>>bm25(k1 = 1.20)"))
    'hyde(gpt-4o) >> bm25(k1=1.2)'
    """

    calls: tuple[Call, ...]

    def __str__(self) -> str:
        return " >> ".join(map(str, self.calls))


@dataclass(frozen=True)
class Condition:
    """Condition: a quantity above or below a number.

    >>> str(Condition("score-gap", ">", 0.3))
    'score-gap>0.3'
    """

    quantity: str | Call
    sign: str
    limit: float

    def __post_init__(self) -> None:
        object.__setattr__(self, "limit", float(self.limit) + 0.0)  # there is no -0 in the language

    def __str__(self) -> str:
        whole = self.limit.is_integer() and abs(self.limit) < _LARGEST
        return f"{_show(self.quantity)}{self.sign}{int(self.limit) if whole else self.limit}"


def parse(text: str) -> Chain:
    """Parse a whole system; the inverse of `str`."""
    reader = _Reader(text)
    chain = reader.chain()
    kind, rest, _ = reader.tokens[reader.place]
    if kind != "end":
        raise reader.error(f"unexpected {rest!r}")
    return chain


def _show(value: Value) -> str:
    if value is None or isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, tuple):
        return f"[{', '.join(map(_show, value))}]"
    if isinstance(value, str):
        bare = _BARE.match(value) and value not in _WORDS
        return value if bare else json.dumps(value, ensure_ascii=False)
    # The brackets keep a nested call apart from a bare name, which is a string.
    return f"{value.name}()" if isinstance(value, Call) and not (value.args or value.options) else str(value)


class _Reader:
    """Recursive-descent parser over the tokens of one spec."""

    def __init__(self, text: str) -> None:
        self.source = text
        self.tokens: list[tuple[str, str, int]] = []
        place = 0
        stripped = text.rstrip()
        while place < len(stripped):
            match = _TOKEN.match(text, place)
            if match is None:
                column = place + len(text[place:]) - len(text[place:].lstrip())
                raise self.error(f"unexpected {text[column : column + 12]!r}", column)
            kind = match.lastgroup or ""
            self.tokens.append((kind, match[kind], match.start(kind)))
            place = match.end()
        self.tokens.append(("end", "", len(text)))
        self.place = 0
        self.depth = 0

    def error(self, what: str, column: int | None = None) -> SpecError:
        at = self.tokens[self.place][2] if column is None else column
        source = self.source if len(self.source) <= 200 else self.source[:200] + "..."
        return SpecError(f"cannot read the system {source!r}: {what} at column {at + 1}")

    def peek(self, *marks: str) -> bool:
        kind, text, _ = self.tokens[self.place]
        return kind in ("mark", "then") and text in marks

    def take(self, mark: str) -> None:
        if not self.peek(mark):
            text = self.tokens[self.place][1]
            raise self.error(f"expected {mark!r}" + (f", found {text!r}" if text else ", found the end"))
        self.place += 1

    def chain(self) -> Chain:
        calls = [self.call()]
        while self.peek(">>"):
            self.place += 1
            calls.append(self.call())
        return Chain(tuple(calls))

    def call(self) -> Call:
        kind, name, _ = self.tokens[self.place]
        if kind != "name":
            raise self.error("expected the name of a stage" + (f", found {name!r}" if name else ""))
        if len(name.encode()) > _LONGEST:
            raise self.error(f"a name of {len(name)} letters, {name[:12]}...,")
        self.place += 1
        return self.arguments(name) if self.peek("(") else Call(name)

    def arguments(self, name: str) -> Call:
        self.take("(")
        args: list[Value] = []
        options: dict[str, Value] = {}
        while not self.peek(")"):
            key = self.option_name()
            if key is not None and key in options:
                raise self.error(f"{key} is given twice")
            if key is None and options:
                raise self.error("a value without a name after one with a name")
            value = self.value()
            if key is None:
                args.append(value)
            else:
                options[key] = value
            if not self.peek(")"):
                self.take(",")
        self.take(")")
        return Call(name, tuple(args), tuple(options.items()))

    def option_name(self) -> str | None:
        kind, text, _ = self.tokens[self.place]
        if kind != "name" or self.tokens[self.place + 1][:2] != ("mark", "="):
            return None
        self.place += 2
        return text

    def value(self) -> Value:
        if self.depth >= _DEEPEST:
            raise self.error(f"more than {_DEEPEST} values inside one another")
        self.depth += 1
        value = self.plain_value()
        self.depth -= 1
        return value

    def plain_value(self) -> Value:
        kind, text, _ = self.tokens[self.place]
        if self.peek("["):
            return self.items()
        if kind == "number":
            return self.number(text)
        if kind == "text":
            self.place += 1
            return self.unquote(text)
        if kind != "name":
            raise self.error(f"expected a value, found {text!r}" if text else "expected a value")
        quantity = self.named()
        if not self.peek(">", "<"):
            return quantity
        if not isinstance(quantity, str | Call):
            raise self.error("a condition compares one quantity")
        sign = self.tokens[self.place][1]
        self.place += 1
        kind, text, _ = self.tokens[self.place]
        if kind != "number":
            raise self.error(f"expected a number after {sign!r}")
        return Condition(quantity, sign, self.number(text))

    def number(self, text: str) -> int | float:
        try:
            value = float(text) if re.search(r"[.eE]", text) else int(text)
        except ValueError as error:  # Python refuses to read thousands of digits
            raise self.error(f"the number {text[:12]}... is too long") from error
        if abs(value) > _LARGEST if isinstance(value, int) else not math.isfinite(value):
            raise self.error(f"the number {text} is too large")
        self.place += 1
        return value

    def named(self) -> Value:
        name = self.tokens[self.place][1]
        plain = self.tokens[self.place + 1][:2] != ("mark", "(")
        chain = self.chain()
        if len(chain.calls) > 1:
            return chain
        return _WORDS.get(name, name) if plain else chain.calls[0]

    def items(self) -> Value:
        self.take("[")
        values: list[Value] = []
        while not self.peek("]"):
            values.append(self.value())
            if not self.peek("]"):
                self.take(",")
        self.take("]")
        return tuple(values)

    def unquote(self, text: str) -> str:
        if text[0] == "'":
            # JSON knows only double quotes: ' loses its backslash, " gains one, every other escape stays.
            quotes = {"\\'": "'", '"': '\\"'}
            text = '"' + re.sub(r"\\.|\"", lambda sign: quotes.get(sign[0], sign[0]), text[1:-1], flags=re.DOTALL) + '"'
        column = self.tokens[self.place - 1][2]
        try:
            value = str(json.loads(text, strict=False))
        except ValueError as error:
            raise self.error(f"bad escape in {text!r}", column) from error
        if _UNWRITABLE.search(value):
            raise self.error(f"a character that no text can hold in {text!r}", column)
        return value
