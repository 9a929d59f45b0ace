"""Addresses of pages: what they ask for, and where pages link to."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qs

from starlette.requests import ClientDisconnect, Request

from r2med.errors import R2medError, nearest, suggest
from r2med.render.html import address

if TYPE_CHECKING:
    from starlette.datastructures import QueryParams

SIZE = 50  # lines of a page
PageContent = tuple[str, dict[str, Any]]  # a template and its values


class UnknownName(R2medError):
    """Unknown name in an address, with the nearest known one."""

    def __init__(self, what: str, name: str, known: Sequence[str]) -> None:
        super().__init__(f"no {what} {name!r}{suggest(name, known)}")
        self.nearest = nearest(name, known)


@dataclass(frozen=True)
class Correction:
    """Error in an address, and the address that was perhaps meant."""

    message: str
    nearest: str = ""
    link: str = ""

    @classmethod
    def of(cls, error: UnknownName, place: str, asked: Mapping[str, str], name: str) -> Correction:
        """Return the error, and the same address with the nearest name in place of the wrong one."""
        link = address(place, **{**asked, name: error.nearest}) if error.nearest and name else ""
        return cls(str(error), error.nearest, link)


class NotFound(R2medError):
    """Missing page or object of an address, with the nearest known ones."""

    def __init__(self, message: str, choices: Sequence[tuple[str, str]] = ()) -> None:
        super().__init__(message)
        self.choices = choices  # names, and where they lead


def several_like(name: str, known: Iterable[str], most: int = 5) -> list[str]:
    """Return the known names that are most like another one, those that contain it first.

    >>> several_like("bm2", ["bge", "bm25", "bm25-classic", "nv"])
    ['bm25', 'bm25-classic', 'bge']
    """
    names = list(dict.fromkeys(known))
    holding = [other for other in names if name and name.casefold() in other.casefold()]
    return list(dict.fromkeys((*holding, *get_close_matches(name, names, n=most, cutoff=0.3))))[:most]


def one_of(value: str, known: Sequence[str], what: str) -> str:
    """Return a value that must be one of some; anything else is an error that suggests one."""
    if value not in known:
        raise UnknownName(what, value, known)
    return value


def same_task(task: str, tasks: Sequence[str]) -> str:
    """Return the task of a group that another group calls otherwise; empty if it has no such task.

    >>> same_task("sample/Biology", ["Bioinformatics", "Biology"]), same_task("none", ["Biology"])
    ('Biology', '')
    """
    same = (name for name in tasks if name.rpartition("/")[2] == task.rpartition("/")[2])
    return task if task in tasks else next(same, "")


@dataclass(frozen=True)
class Pages:
    """Part of a long list that is shown."""

    number: int
    count: int
    total: int

    @classmethod
    def of(cls, total: int, wanted: int, size: int = SIZE) -> Pages:
        """Return the page with a number, or the nearest that there is.

        >>> Pages.of(101, 9)
        Pages(number=3, count=3, total=101)
        """
        count = max(1, -(-total // size))
        return cls(min(max(1, wanted), count), count, total)

    def cut(self, size: int = SIZE) -> slice:
        """Return the places of the page."""
        return slice((self.number - 1) * size, self.number * size)


@dataclass(frozen=True)
class SortLinks:
    """The addresses behind a table's headings: a second click turns the order round."""

    path: str
    asked: dict[str, str]
    sort: str
    ascending: bool

    def of(self, sort: str) -> str:
        """Return the address that sorts by a column."""
        turned = "up" if sort == self.sort and not self.ascending else ""
        return address(self.path, **{**self.asked, "sort": "" if sort == "rank" else sort, "order": turned, "page": ""})

    def page(self, number: int) -> str:
        """Return the address of another page of the list."""
        return address(self.path, **{**self.asked, "page": number if number > 1 else ""})


def sort_links(request: Request, default: str) -> SortLinks:
    """Return the addresses behind the headings of the requested page."""
    asked = dict(request.query_params)
    return SortLinks(request.url.path, asked, asked.get("sort", "") or default, asked.get("order") == "up")


def page_number(asked: QueryParams, name: str) -> int:
    """Return the page number of an address; 1 if it is not a number."""
    return whole_number(asked.get(name)) or 1


def system_address(system: str, group: str) -> str:
    """Return the address of the page of a system."""
    return address("/system", system=system, group=group)


LONGEST = 100_000  # bytes of a form


class TooLong(R2medError):
    """A form with more bytes than any page sends."""


FORM_TIMEOUT = 30.0  # seconds that a form may take to arrive


async def read_form(request: Request) -> dict[str, str]:
    """Read the fields of a form, the first value of each."""
    body = b""
    try:
        async with asyncio.timeout(FORM_TIMEOUT):
            async for piece in request.stream():
                body += piece
                if len(body) > LONGEST:
                    raise TooLong(f"a form may have at most {LONGEST:,} bytes")
    except TimeoutError as error:
        raise R2medError(f"the form did not arrive within {FORM_TIMEOUT:.0f} seconds; send it again") from error
    except ClientDisconnect as error:
        raise R2medError("the browser went away before the form was there; send it again") from error
    fields = parse_qs(body.decode("utf-8", "replace"), keep_blank_values=True)
    return {name: values[0] for name, values in fields.items()}


def whole_number(text: str | None) -> int | None:
    """Return the number in a field; None if there is none.

    >>> whole_number("12"), whole_number(""), whole_number("1e9"), whole_number("-3")
    (12, None, None, None)
    """
    return int(text) if text and text.isascii() and text.isdigit() and len(text) < 16 else None
