"""Pages that many ask for at once: made once, and never older than the request."""

from __future__ import annotations

import asyncio
import threading

import pytest

pytest.importorskip("starlette")

from r2med.errors import R2medError
from r2med.web.server import SharedPages


def test_those_who_wait_share_a_page_that_is_newer_than_all_of_them() -> None:
    made: list[str] = []
    state, begun, go_on = ["old"], threading.Event(), threading.Event()

    def make() -> str:
        seen = state[0]
        made.append(seen)
        begun.set()
        assert go_on.wait(10)
        return seen

    async def ask() -> list[str]:
        pages: SharedPages[str] = SharedPages(threads=1)
        first = asyncio.ensure_future(pages.get("/a", make))
        while not begun.is_set():
            await asyncio.sleep(0.001)
        state[0] = "new"  # as a form changes it, while the first page is made
        others = [asyncio.ensure_future(pages.get("/a", make)) for _ in range(20)]
        await asyncio.sleep(0.01)
        others[3].cancel()
        go_on.set()
        return [await each for each in (first, *others[:3], *others[4:])]

    assert asyncio.run(ask()) == ["old", *["new"] * 19]
    assert made == ["old", "new"]


def test_an_error_is_everybodys() -> None:
    def fail() -> str:
        raise R2medError("no such run")

    async def ask() -> list[BaseException | str]:
        pages: SharedPages[str] = SharedPages()
        return await asyncio.gather(*(pages.get("/a", fail) for _ in range(3)), return_exceptions=True)

    assert [str(each) for each in asyncio.run(ask())] == ["no such run"] * 3
