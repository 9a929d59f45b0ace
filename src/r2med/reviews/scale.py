"""The scale of grades with their meanings, and the guideline by sentences."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from r2med.errors import R2medError
from r2med.lexical.segmentation import sentences as sentence_places
from r2med.settings import read_toml

MOST_GRADES = 10
"""A grade has one key: 0 to 9."""


@dataclass(frozen=True)
class Grade:
    """A grade as it stands under its key."""

    value: int
    name: str
    meaning: str


@dataclass(frozen=True)
class GradeScale:
    """The grades that can be given, the lowest first, and the grade from which a passage counts as relevant.

    >>> DEFAULT_SCALE.grade(3).name, DEFAULT_SCALE.relevant_from
    ('Decisive', 2)
    """

    grades: tuple[Grade, ...]
    relevant_from: int
    """A passage with at least this grade is relevant in the judgements that are written."""

    def grade(self, value: int) -> Grade:
        """Return the grade with a value; any other value is an error."""
        for grade in self.grades:
            if grade.value == value:
                return grade
        raise R2medError(f"the scale has no grade {value}; it has {', '.join(str(each.value) for each in self.grades)}")

    @property
    def values(self) -> tuple[int, ...]:
        """Return the values of all grades."""
        return tuple(grade.value for grade in self.grades)

    def as_dict(self) -> dict[str, Any]:
        """Return the scale as it is stored."""
        grades = [{"value": each.value, "name": each.name, "meaning": each.meaning} for each in self.grades]
        return {"grades": grades, "relevant_from": self.relevant_from}

    @classmethod
    def from_dict(cls, kept: Mapping[str, Any]) -> GradeScale:
        """Build a scale from the result of `as_dict`."""
        return cls(tuple(Grade(**each) for each in kept["grades"]), kept["relevant_from"])


DEFAULT_SCALE = GradeScale(
    (
        Grade(0, "Not relevant", "Says nothing that helps to answer, even if it shares words with the question."),
        Grade(1, "Related", "About the same subject, but a reader would not come nearer to the answer."),
        Grade(2, "Helpful", "Holds a fact or a step that the way from the question to the answer needs."),
        Grade(3, "Decisive", "Holds the answer itself, or the evidence that settles it."),
    ),
    2,
)
DEFAULT_GUIDELINE = """\
Read the question first, then the passage to its end. Judge whether the passage helps somebody who has to answer this \
question, not whether it is well written. Shared words alone make no passage relevant. A passage that names the answer \
without any reason is helpful, not decisive. A passage about another patient counts when its findings and its \
conclusion carry over. Do not look anything up to decide; what you know as a physician is enough. If you cannot \
decide, say that you are unsure and write down why.
"""


def read_scale(path: Path) -> GradeScale:
    """Read a scale from a TOML file: `relevant_from`, and a table `[[grade]]` with value, name and meaning for each."""
    found = read_toml(path, ("relevant_from", "grade"))
    tables = found.get("grade")
    if not isinstance(tables, list) or not 2 <= len(tables) <= MOST_GRADES:
        raise R2medError(f"{path}: a scale needs from 2 to {MOST_GRADES} tables [[grade]]")
    grades = sorted((_grade(path, place, table) for place, table in enumerate(tables, 1)), key=lambda each: each.value)
    values = [grade.value for grade in grades]
    if len(set(values)) < len(values):
        raise R2medError(f"{path}: two grades have the same value")
    relevant = found.get("relevant_from", values[1])
    if relevant not in values[1:]:
        raise R2medError(f"{path}: relevant_from must be one of the grades {', '.join(map(str, values[1:]))}")
    return GradeScale(tuple(grades), relevant)


def _grade(path: Path, place: int, table: Any) -> Grade:
    if not isinstance(table, dict) or set(table) != {"value", "name", "meaning"}:
        raise R2medError(f"{path}: [[grade]] number {place} must have value, name and meaning")
    value, texts = table["value"], (table["name"], table["meaning"])
    if type(value) is not int or not 0 <= value < MOST_GRADES:
        raise R2medError(f"{path}: the value of [[grade]] number {place} must be a whole number from 0 to 9")
    if not all(isinstance(text, str) and text.strip() for text in texts):
        raise R2medError(f"{path}: name and meaning of [[grade]] number {place} must be texts")
    return Grade(value, *(" ".join(text.split()) for text in texts))


def read_guideline(path: Path) -> str:
    """Read the text of a guideline."""
    try:
        text = path.read_text("utf-8").strip()
    except (OSError, UnicodeDecodeError) as error:
        raise R2medError(f"{path}: cannot be read: {getattr(error, 'strerror', None) or error}") from error
    if not text:
        raise R2medError(f"{path}: the guideline is empty")
    return text


def omit_grades(guideline: str) -> str:
    """Return a guideline without its list of grades and the line that introduces it.

    The judges of a build grade on two axes by numbers of their own; people grade by the scale of the review.

    >>> omit_grades("# Relevant\\n\\nIt helps.\\n\\nGrades:\\n\\n- 3: outright.\\n- 0: not at all.\\n\\nRead it all.")
    '# Relevant\\n\\nIt helps.\\n\\nRead it all.'
    """
    lines: list[str] = []
    in_list = False
    for line in guideline.splitlines():
        if re.match(r"\s*(?:[-*]\s+)?\d+\s*[:=]", line):
            while not in_list and lines and not lines[-1].strip():
                lines.pop()
            if not in_list and lines and lines[-1].endswith(":"):
                lines.pop()
            in_list = True
        elif not (in_list and re.match(r"\s+\S", line)):
            in_list = in_list and not line.strip()
            lines.append(line)
    return re.sub(r"\n{3,}", "\n\n", "\n".join(lines)).strip()


def sentences(guideline: str) -> Sequence[str]:
    """Return the sentences of a guideline, which reviewers can name as unclear; headings stand alone.

    >>> sentences("# How to judge\\n\\nRead all of it. Is it e.g. a case? Then judge.\\n- One point\\n")
    ['How to judge', 'Read all of it.', 'Is it e.g. a case?', 'Then judge.', 'One point']
    """
    found: list[str] = []
    for block in re.split(r"\n\s*\n|\n(?=\s*(?:[-*#]|\d+[.)])\s)", guideline):
        text = re.sub(r"^\s*(?:[-*]|#+|\d+[.)])\s+", "", " ".join(block.split()))
        found += [text[start:end] for start, end in sentence_places(text)]
    return found
