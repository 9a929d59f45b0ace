"""What the address of a page asks for, and the addresses that pages lead to."""

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

SIZE = 50
"""Lines of a page."""
PageContent = tuple[str, dict[str, Any]]
"""A template and its values."""


class UnknownName(R2medError):
    """Something of an address that there is not, with what was perhaps meant."""

    def __init__(self, what: str, name: str, known: Sequence[str]) -> None:
        super().__init__(f"no {what} {name!r}{suggest(name, known)}")
        self.nearest = nearest(name, known)


@dataclass(frozen=True)
class Correction:
    """What is wrong with an address, and the address that was perhaps meant."""

    message: str
    nearest: str = ""
    link: str = ""

    @classmethod
    def of(cls, error: UnknownName, place: str, asked: Mapping[str, str], name: str) -> Correction:
        """What is wrong, and the same address with the nearest in the place of a name."""
        link = address(place, **{**asked, name: error.nearest}) if error.nearest and name else ""
        return cls(str(error), error.nearest, link)


class NotThere(R2medError):
    """Something that an address asks for and that there is not, with what was probably meant."""

    def __init__(self, message: str, choices: Sequence[tuple[str, str]] = ()) -> None:
        super().__init__(message)
        self.choices = choices
        """Names, and where they lead."""


def several_like(name: str, known: Iterable[str], most: int = 5) -> list[str]:
    """The known names that are most like another one, those that contain it first.

    >>> several_like("bm2", ["bge", "bm25", "bm25-classic", "nv"])
    ['bm25', 'bm25-classic', 'bge']
    """
    names = list(dict.fromkeys(known))
    holding = [each for each in names if name and (name.casefold() in each.casefold())]
    return list(dict.fromkeys((*holding, *get_close_matches(name, names, n=most, cutoff=0.3))))[:most]


def one_of(value: str, known: Sequence[str], what: str) -> str:
    """A value that must be one of some; anything else is an error that suggests one."""
    if value not in known:
        raise UnknownName(what, value, known)
    return value


def same_task(task: str, tasks: Sequence[str]) -> str:
    """The task of a group that another group calls otherwise; nothing where it has no such task.

    >>> same_task("sample/Biology", ["Bioinformatics", "Biology"]), same_task("none", ["Biology"])
    ('Biology', '')
    """
    if task in tasks:
        return task
    return next((name for name in tasks if name.rpartition("/")[2] == task.rpartition("/")[2]), "")


@dataclass(frozen=True)
class Pages:
    """Which part of a long list is shown."""

    number: int
    count: int
    total: int

    @classmethod
    def of(cls, total: int, wanted: int, size: int = SIZE) -> Pages:
        """The page with a number, or the nearest that there is.

        >>> Pages.of(101, 9)
        Pages(number=3, count=3, total=101)
        """
        count = max(1, -(-total // size))
        return cls(min(max(1, wanted), count), count, total)

    def cut(self, size: int = SIZE) -> slice:
        """The places of the page."""
        return slice((self.number - 1) * size, self.number * size)


@dataclass(frozen=True)
class SortLinks:
    """The addresses behind a table's headings: a second click turns the order round."""

    path: str
    asked: dict[str, str]
    sort: str
    ascending: bool

    def of(self, sort: str) -> str:
        """The address that sorts by a column."""
        turned = "up" if sort == self.sort and not self.ascending else ""
        return address(self.path, **{**self.asked, "sort": "" if sort == "rank" else sort, "order": turned, "page": ""})

    def page(self, number: int) -> str:
        """The address of another page of the list."""
        return address(self.path, **{**self.asked, "page": number if number > 1 else ""})


def sort_links(request: Request, default: str) -> SortLinks:
    """The addresses behind the headings of the page that is asked for."""
    asked = dict(request.query_params)
    return SortLinks(request.url.path, asked, asked.get("sort", "") or default, asked.get("order") == "up")


def page_number(asked: QueryParams, name: str) -> int:
    """A number that an address asks for; 1 where it is none."""
    text = asked.get(name, "1")
    return int(text) if text.isascii() and text.isdigit() and len(text) < 7 else 1


def search_address(task: str) -> str:
    """Where one searches a task."""
    return address("/search", task=task)


def system_address(system: str, group: str) -> str:
    """Where one reads about a system."""
    return address("/system", system=system, group=group)


LONGEST = 100_000
"""Bytes of a form."""


class TooLong(R2medError):
    """A form with more bytes than any page sends."""


PATIENCE = 30.0
"""Seconds that a form may take to arrive."""


async def read_form(request: Request) -> dict[str, str]:
    """The fields of a form, the first value of each."""
    body = b""
    try:
        async with asyncio.timeout(PATIENCE):
            async for piece in request.stream():
                body += piece
                if len(body) > LONGEST:
                    raise TooLong(f"a form may have at most {LONGEST:,} bytes")
    except TimeoutError as error:
        raise R2medError(f"the form did not arrive within {PATIENCE:.0f} seconds; send it again") from error
    except ClientDisconnect as error:
        raise R2medError("the browser went away before the form was there; send it again") from error
    fields = parse_qs(body.decode("utf-8", "replace"), keep_blank_values=True)
    return {name: several[0] for name, several in fields.items()}


def whole_number(text: str | None) -> int | None:
    """A number that a field holds; None where it holds none.

    >>> whole_number("12"), whole_number(""), whole_number("1e9"), whole_number("-3")
    (12, None, None, None)
    """
    return int(text) if text and text.isascii() and text.isdigit() and len(text) < 16 else None
