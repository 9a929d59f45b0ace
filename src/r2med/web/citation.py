"""Citations of the benchmark's paper and of pages: the one place that everything else is made from."""

from __future__ import annotations

import hashlib
import re
import shlex
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import chain
from pathlib import Path

import r2med
from r2med.formatting import counted
from r2med.render.sections import escaped
from r2med.runs.ledger import Entry
from r2med.runs.record import Machine, provenance


@dataclass(frozen=True)
class Paper:
    """A paper on arXiv."""

    title: str
    authors: tuple[tuple[str, str], ...]  # given and family names
    year: int
    arxiv: str
    revised: str  # the month of its latest version

    @property
    def url(self) -> str:
        """Return the address of the paper."""
        return f"https://arxiv.org/abs/{self.arxiv}"

    @property
    def bibtex(self) -> str:
        """Return an entry for a bibliography."""
        names = " and ".join(f"{family}, {given}" for given, family in self.authors)
        return (
            f"@misc{{{self.authors[0][1].lower()}{self.year}r2med,\n"
            f"  title         = {{{{{self.title}}}}},\n"
            f"  author        = {{{names}}},\n"
            f"  year          = {{{self.year}}},\n"
            f"  eprint        = {{{self.arxiv}}},\n"
            f"  archivePrefix = {{arXiv}},\n"
            f"  note          = {{Second version, {self.revised}}},\n"
            f"  url           = {{{self.url}}}\n"
            "}"
        )


PAPER = Paper(
    title="R2MED: A Benchmark for Reasoning-Driven Medical Retrieval",
    authors=(("Lei", "Li"), ("Xiao", "Zhou"), ("Zheng", "Liu"), ("Xiangxu", "Zhang")),
    year=2025,
    arxiv="2505.14558",
    revised="April 2026",
)


@dataclass(frozen=True)
class Citation:
    """Facts that a citation of a page needs."""

    title: str
    command: str = ""  # what to type for the same figures; empty where nothing shows them
    url: str = ""  # the address of the page; empty if not stated

    @property
    def bibtex(self) -> str:
        """Return an entry for the page, and one for the benchmark's paper."""
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
    """Return a citation with the command of these words.

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
    """Return options with their values, those without one left out.

    >>> options(("--kind", "base"), ("--llm", ""), ("--tasks", ["a", "b"]))
    ['--kind', 'base', '--tasks', 'a', 'b']
    """
    lists = ([name, *([value] if isinstance(value, str) else value)] for name, value in pairs if value)
    return list(chain.from_iterable(lists))


@dataclass(frozen=True)
class Colophon:
    """Time, command, data and software with which a file was made."""

    made: str
    command: str
    versions: str
    machine: str
    data: Mapping[str, str]  # task to the fingerprints of the data that its runs saw
    runs: Mapping[str, str]  # the versions and machines of the runs themselves, with how many they are


def colophon(entries: Iterable[Entry], command: str = "") -> Colophon:
    """Collect the facts of a file that is made now from some runs."""
    here = provenance()
    data: dict[str, dict[str, None]] = {}
    runs: Counter[str] = Counter()
    for entry in entries:
        data.setdefault(entry.task, {})[(entry.record.data.fingerprint or "?")[:16]] = None
        maker = entry.record.provenance
        runs[f"r2med {maker.r2med or '?'} on {_machine(maker.machine)}"] += 1
    packages = [f"{name} {version}" for name, version in (here.packages or {}).items()]
    return Colophon(
        datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC"),
        command,
        ", ".join([f"r2med {here.r2med}", f"Python {here.python}", *packages]),
        _machine(here.machine),
        {task: ", ".join(fingerprints) for task, fingerprints in data.items()},
        {where: counted(count, "run") for where, count in runs.items()},
    )


def _machine(machine: Machine | None) -> str:
    if machine is None:
        return "a machine that was not recorded"
    return f"{machine.platform or '?'}, {machine.architecture or '?'}, {machine.cores or '?'} cores"
