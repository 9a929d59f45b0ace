"""Characters that steer a terminal, turn a text round or cannot be written, wherever a text is shown."""

from __future__ import annotations

import re

_HARMFUL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069\ud800-\udfff]")


def harmless(text: str) -> str:
    """A text without what would steer a terminal or cannot be written: such characters become replacement marks.

    >>> harmless("red\\x1b[31m\\ttab")
    'red\ufffd[31m\\ttab'
    """
    return text if text.isprintable() else _HARMFUL.sub("\ufffd", text)
