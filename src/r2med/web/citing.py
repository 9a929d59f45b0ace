"""How to cite what a page shows: an entry for a bibliography, and the command that makes the same view."""

from __future__ import annotations

import hashlib
import re
import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

import r2med
from r2med.citation import PAPER
from r2med.render.latex import escaped


@dataclass(frozen=True)
class Citation:
    """What somebody needs who cites a page."""

    title: str
    command: str = ""
    """What to type for the same figures; empty where nothing shows them."""
    url: str = ""
    """Where the page can be read; empty where nobody said."""

    @property
    def bibtex(self) -> str:
        """An entry for the page, and one for the benchmark's paper."""
        now = datetime.now(UTC)
        key = hashlib.blake2b(self.command.encode("utf-8", "replace"), digest_size=4).hexdigest()
        return (
            f"@misc{{r2med-{key},\n"
            f"  title        = {{{{{escaped(self.title)}}}}},\n"
            f"  howpublished = {{r2med {r2med.__version__}, \\texttt{{{escaped(self.command)}}}}},\n"
            + (f"  url          = {{{self.url}}},\n" if self.url else "")
            + f"  note         = {{As of {now:%Y-%m-%d}}},\n"
            f"  year         = {{{now:%Y}}}\n"
            f"}}\n\n{PAPER.bibtex}"
        )


def citation(title: str, *words: str) -> Citation:
    """A citation with the command of these words.

    >>> citation("bm25", "runs", "show", "a b").command
    "r2med runs show 'a b'"
    """
    return Citation(title[:1].upper() + title[1:], shlex.join(["r2med", *words]))


_FOLDERS = re.compile(r"""(?<![\w/~.])(?:~|\.\.)?(?:/[^\s,()/'"]+)*/([^\s,()/'"]+)/?""")
"""A path that is not below the present folder, with its last name."""


def without_folders(command: str) -> str:
    """Write a command without the folders of the machine where it was typed, which concern no reader.

    >>> without_folders("r2med site 'rrf(bm25, /home/me/enc)' BAAI/bge --submissions /home/me/my subs --out ../public/")
    "r2med site 'rrf(bm25, enc)' BAAI/bge --submissions my subs --out public"
    """
    words = [Path(word).name if word.startswith("/") else _FOLDERS.sub(r"\1", word) for word in shlex.split(command)]
    return shlex.join(words)


def options(*pairs: tuple[str, str | Sequence[str]]) -> list[str]:
    """Options with their values, those without one left out.

    >>> options(("--kind", "base"), ("--llm", ""), ("--tasks", ["a", "b"]))
    ['--kind', 'base', '--tasks', 'a', 'b']
    """
    words: list[str] = []
    for name, value in pairs:
        if value:
            words += [name, *([value] if isinstance(value, str) else value)]
    return words
