"""The scale of grades with their meanings, and the guideline by sentences."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

from msgspec import Meta

from r2med.errors import R2medError
from r2med.lexical.segmentation import sentences as sentence_places
from r2med.store.typed import Typed, read_text, read_toml, require

MOST_GRADES = 10  # a grade has one key: 0 to 9


class Grade(Typed, frozen=True):
    """A grade as it stands under its key."""

    value: Annotated[int, Meta(ge=0, lt=MOST_GRADES)]
    name: str
    meaning: str


class GradeScale(Typed, frozen=True):
    """The grades that can be given, the lowest first, and the grade from which a passage counts as relevant.

    >>> DEFAULT_SCALE.grade(3).name, DEFAULT_SCALE.relevant_from
    ('Decisive', 2)
    """

    grades: tuple[Grade, ...]
    relevant_from: int  # A passage with at least this grade is relevant in the judgements that are written.

    def grade(self, value: int) -> Grade:
        """Return the grade with a value; any other value is an error."""
        if value in self.values:
            return self.grades[self.values.index(value)]
        raise R2medError(f"the scale has no grade {value}; it has {', '.join(map(str, self.values))}")

    @property
    def values(self) -> tuple[int, ...]:
        """Return the values of all grades."""
        return tuple(grade.value for grade in self.grades)


class _ScaleFile(Typed, frozen=True):
    grade: Annotated[tuple[Grade, ...], Meta(min_length=2, max_length=MOST_GRADES)]
    relevant_from: int | None = None

    def __post_init__(self) -> None:
        values = sorted({grade.value for grade in self.grade})
        require(len(values) == len(self.grade), "grade", "has two grades of the same value")
        why = f"must be one of the grades {', '.join(map(str, values[1:]))}"
        require(self.relevant_from in (None, *values[1:]), "relevant_from", why)
        has_texts = all(grade.name.strip() and grade.meaning.strip() for grade in self.grade)
        require(has_texts, "grade", "has a name or a meaning without text")


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


NUGGET_SCALE = GradeScale(
    (
        Grade(0, "Wrong", "Not true, not an answer to this question, or the same as another fact in other words."),
        Grade(1, "Okay", "True and worth saying, but a good answer may lack it."),
        Grade(2, "Vital", "True, and an answer without it is not a good one."),
    ),
    1,
)
NUGGET_GUIDELINE = """\
Read the question and its gold answer first. In place of a passage you see one fact, which a model wrote for this \
question. Judge whether a good answer to the question must hold it. A fact that the gold answer contradicts is wrong. \
Of two facts that say the same, keep the better one and call the other wrong. Do not judge how it is worded. If you \
cannot decide, say that you are unsure and write down why.
"""


def read_scale(path: Path) -> GradeScale:
    """Read a scale from a TOML file: `relevant_from`, and a table `[[grade]]` with value, name and meaning for each."""
    content = read_toml(path, _ScaleFile)
    grades = sorted(content.grade, key=lambda grade: grade.value)
    tidy = (Grade(grade.value, " ".join(grade.name.split()), " ".join(grade.meaning.split())) for grade in grades)
    return GradeScale(tuple(tidy), content.relevant_from or grades[1].value)


def read_guideline(path: Path) -> str:
    """Read the text of a guideline."""
    text = read_text(path).strip()
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
    parts: list[str] = []
    for block in re.split(r"\n\s*\n|\n(?=\s*(?:[-*#]|\d+[.)])\s)", guideline):
        text = re.sub(r"^\s*(?:[-*]|#+|\d+[.)])\s+", "", " ".join(block.split()))
        parts += [text[start:end] for start, end in sentence_places(text)]
    return parts
