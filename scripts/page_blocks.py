"""The blocks of code in a page of Markdown: what they are written in, which file they stand for, and where they are."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PAGES = ("README.md", "CONTRIBUTING.md", *sorted(str(page.relative_to(ROOT)) for page in (ROOT / "docs").rglob("*.md")))
"""Every page that may hold examples."""

_BLOCK = re.compile(
    r"(?:^<!-- file: (?P<file>\S+) -->\n)?^```(?P<language>\w*)\n(?P<text>.*?)^```$", re.MULTILINE | re.DOTALL
)


@dataclass(frozen=True)
class Block:
    """A fenced block: the page and line it stands at, its language, and the file that it is said to be."""

    page: str
    line: int
    language: str
    text: str
    file: str | None = None

    def __str__(self) -> str:
        return f"{self.page}:{self.line}"

    def commands(self) -> list[str]:
        """Its command lines that call r2med, without prompts and remarks."""
        lines = [line.removeprefix("$ ") for line in self.text.splitlines()]
        return [re.split(r"\s+# ", line)[0].strip() for line in lines if line.startswith("r2med ")]


def blocks(page: str) -> Iterator[Block]:
    """Every fenced block of a page, in order."""
    text = (ROOT / page).read_text("utf-8")
    for match in _BLOCK.finditer(text):
        line = text.count("\n", 0, match.start("text"))
        yield Block(page, line, match["language"], match["text"], match["file"])
