"""Problems of data files: their kinds as a table, and the list that readers add to.

Readers never stop at a problem, they note it; `load` raises the first error as one line, `validate` shows everything.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from r2med.errors import DataError

ERROR = "error"
WARNING = "warning"


class ProblemKind(NamedTuple):
    """Kind of a problem: its severity, and a summary of several of them."""

    severity: str
    summary: str
    harmless: bool = False  # whether only `validate` reports it
    strict: bool = False  # whether the row is left out, and an error with `strict`


KINDS: Mapping[str, ProblemKind] = {  # by code
    "missing-file": ProblemKind(ERROR, "files that are missing"),
    "unreadable-file": ProblemKind(ERROR, "files that cannot be opened"),
    "damaged-file": ProblemKind(ERROR, "files that are cut short or damaged"),
    "empty-file": ProblemKind(ERROR, "files without any row"),
    "bad-encoding": ProblemKind(ERROR, "lines that are not UTF-8"),
    "broken-json": ProblemKind(ERROR, "lines that are not JSON objects"),
    "repeated-key": ProblemKind(ERROR, "lines that give a key twice"),
    "missing-field": ProblemKind(ERROR, "rows that lack a field"),
    "wrong-type": ProblemKind(ERROR, "fields of the wrong type"),
    "wrong-columns": ProblemKind(ERROR, "lines with the wrong number of columns"),
    "conflicting-id": ProblemKind(ERROR, "rows that repeat an id with another text"),
    "unknown-column": ProblemKind(ERROR, "rows whose grade cannot be told"),
    "bad-grade": ProblemKind(ERROR, "grades that are not integers"),
    "bad-weight": ProblemKind(ERROR, "weights of aspects that are not numbers above 0, or not the same in all rows"),
    "conflicting-grade": ProblemKind(ERROR, "judgements repeated with another grade"),
    "unknown-query": ProblemKind(ERROR, "judgements of a query that does not exist"),
    "unknown-document": ProblemKind(ERROR, "lists of candidates with a document that does not exist"),
    "no-queries": ProblemKind(ERROR, "tasks without a query that has a relevant document"),
    "empty-query": ProblemKind(WARNING, "queries without text", strict=True),
    "missing-document": ProblemKind(WARNING, "judgements of a document that is not in the corpus", strict=True),
    "bom": ProblemKind(WARNING, "files that start with a byte order mark, which was skipped"),
    "crlf": ProblemKind(WARNING, "files with Windows line ends (CRLF), which were accepted", harmless=True),
    "empty-document": ProblemKind(WARNING, "documents without text, which nothing can find"),
    "number-as-id": ProblemKind(WARNING, "ids written as numbers, which were read as text"),
    "repeated-id": ProblemKind(WARNING, "rows that repeat an id with the same text, which were folded into one"),
    "repeated-judgement": ProblemKind(WARNING, "repeated judgements, which were counted once"),
    "no-positive": ProblemKind(WARNING, "queries without a relevant document, which were left out"),
    "other-split": ProblemKind(WARNING, "queries that only other splits may judge, which were left out", harmless=True),
    "shared-id": ProblemKind(WARNING, "tasks in which queries and documents share ids", harmless=True),
    "one-word": ProblemKind(WARNING, "relevant documents of one word", harmless=True),
    "links-only": ProblemKind(WARNING, "relevant documents that hold links only", harmless=True),
    "cut-html": ProblemKind(WARNING, "relevant documents that are HTML cut off in a tag or element", harmless=True),
    "unlabelled-copy": ProblemKind(WARNING, "relevant documents whose words an unjudged one has, too", harmless=True),
    "near-copy": ProblemKind(WARNING, "relevant documents whose words an unjudged one nearly has", harmless=True),
    "unexpected-count": ProblemKind(WARNING, "counts that differ from the published ones"),
    "unused-field": ProblemKind(WARNING, "answers or reasoning paths that are not strings, which were left out"),
}


class Problem(NamedTuple):
    """Problem and its place.

    >>> print(Problem("broken-json", "corpus.jsonl", 3, "not JSON"))
    corpus.jsonl:3: not JSON
    """

    code: str
    file: str
    line: int
    """The line, or in a parquet file the row, counted from 1; 0 if it concerns the file as a whole."""
    message: str

    @property
    def severity(self) -> str:
        """Return "error" or "warning"."""
        return KINDS[self.code].severity

    def is_error(self, *, strict: bool) -> bool:
        """Return whether it makes the data unusable, with `strict` or always."""
        return self.severity == ERROR or (strict and KINDS[self.code].strict)

    def __str__(self) -> str:
        return f"{place(self.file, self.line)}: {self.message}"


def place(file: str | Path, line: int) -> str:
    """Return `file:line`, or the file alone for line 0."""
    return f"{file}:{line}" if line else str(file)


@dataclass
class Findings:
    """Problems met so far, in the order in which they were met."""

    problems: list[Problem] = field(default_factory=list)
    errors: int = 0  # number of errors among them

    def add(self, code: str, file: str | Path, line: int, message: str) -> None:
        """Add a problem."""
        self.problems.append(Problem(code, str(file), line, message))
        self.errors += KINDS[code].severity == ERROR

    def extend(self, other: Findings) -> None:
        """Add the problems of others."""
        self.problems += other.problems
        self.errors += other.errors

    def lost_a_file(self, since: int) -> bool:
        """Return whether a file could not be read to its end, among the problems from this one on."""
        return any(problem.code in ("unreadable-file", "damaged-file") for problem in self.problems[since:])

    def of(self, severity: str) -> Iterator[Problem]:
        """Return the problems of a severity."""
        return (problem for problem in self.problems if problem.severity == severity)

    def raise_errors(self, source: str | Path, *, strict: bool = False) -> None:
        """Raise the first error as one line; if there are more, it says how many and how to see them."""
        errors = [problem for problem in self.problems if problem.is_error(strict=strict)]
        if errors:
            from shlex import quote

            listed = f"r2med tasks validate {quote(str(source))}{' --strict' * strict}"
            more = f" (and {len(errors) - 1} more, see: {listed})" if errors[1:] else ""
            raise DataError(f"{errors[0]}{more}")

    def warnings(self, folder: Path | None = None) -> tuple[str, ...]:
        """Return the warnings for the user, one counted sentence per kind and file, which is named from the folder."""
        groups: dict[tuple[str, str, str], list[Problem]] = {}
        for problem in self.of(WARNING):
            if not KINDS[problem.code].harmless:
                # A message about a file as a whole is given in full.
                message = "" if problem.line else problem.message
                groups.setdefault((problem.file, problem.code, message), []).append(problem)
        sentences = []
        for first, *others in groups.values():
            if folder is not None and Path(first.file).is_relative_to(folder):
                first = first._replace(file=str(Path(first.file).relative_to(folder)))
            kind = KINDS[first.code]
            left_out = ", which were left out" * kind.strict
            many = f"{1 + len(others):,} {kind.summary}{left_out}; the first in line {first.line}"
            sentences.append(f"{first.file}: {many}" if others else f"{first}{', left out' * kind.strict}")
        return tuple(sentences)


class Spot(NamedTuple):
    """Place of a row, to note problems at."""

    file: Path
    line: int
    found: Findings

    def note(self, code: str, message: str) -> None:
        """Add a problem of this row."""
        self.found.add(code, self.file, self.line, message)
