"""What a form sends, read with care."""

from __future__ import annotations

import asyncio
from urllib.parse import parse_qs

from starlette.requests import ClientDisconnect, Request

from r2med.errors import R2medError

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
