"""Studies for tests: data of many questions, and models that answer by stated rates."""

from __future__ import annotations

import hashlib
import json
import re
from pathlib import Path

import numpy as np

QUESTION = re.compile(r"<question>\n(?:case )?(\w+)\b.*?\n</question>", re.S)


def share(*words: object) -> float:
    """A number from 0 to 1 that depends on the words alone."""
    return int(hashlib.sha256(repr(words).encode()).hexdigest()[:8], 16) / 0xFFFFFFFF


def write_task(folder: Path, queries: int = 400, seed: int = 3) -> Path:
    """A task whose documents name what they are: `d12r` is relevant to `q12`, `d12h` is not."""
    folder.mkdir(parents=True)
    documents, asked, judged = [], [], []
    for number in range(queries):
        documents += [{"id": f"d{number}{kind}", "text": f"passage {kind} of case{number}"} for kind in "rh"]
        text = f"q{number} is a case of {number} findings"
        asked.append(
            {"id": f"q{number}", "text": text, "answer": f"disease {number}", "synonyms": [f"morbus {number}"]}
        )
        judged.append({"q_id": f"q{number}", "p_id": f"d{number}r", "score": 1})
    for name, rows in (("corpus", documents), ("query", asked), ("qrels", judged)):
        (folder / f"{name}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows), "utf-8")
    return folder


def write_run(path: Path, queries: int, found: float, k: int = 3) -> Path:
    """A run that has the relevant document on top with a rate, and distractors elsewhere; scores say nothing of it."""
    lines = []
    for number in range(queries):
        names = [f"d{(number + step) % queries}h" for step in range(k)]
        if share("found", path.name, number) < found:
            names[0] = f"d{number}r"
        top = 1 + share("score", path.name, number)
        lines += [f"q{number} Q0 {name} {rank} {top - 0.1 * rank:.4f} planted" for rank, name in enumerate(names, 1)]
    path.write_text("\n".join(lines) + "\n", "utf-8")
    return path


def asked(request) -> str:
    """The question of a prompt."""
    return QUESTION.search(request.messages[-1].content)[1]


def sources(request) -> list[str]:
    """The sources of a prompt, in order."""
    return re.findall(r'<source id="\d+">\n(.*?)\n</source>', request.messages[-1].content, re.S)


def rates_model(rates):
    """A model that is right by a rate for what is in view (`closed`, `relevant`, `distractors`), and cites source 1.

    One question has one luck for all arms with the same view, so that what is planted can be computed.
    """

    def answer(request):
        query, seen = asked(request), sources(request)
        number = query[1:]
        view = (
            "closed"
            if not seen
            else "relevant"
            if any(f"passage r of case{number}" == text for text in seen)
            else "distractors"
        )
        right = share("luck", view, number, request.sample) < rates[view]
        if not right and share("kind", view, number) < rates.get("abstain", 0.0):
            return "Answer: not answerable from this\nSources: none"
        if share("broken", view, number) < rates.get("unparsable", 0.0):
            return "I would\nrather not say."
        said = f"disease {number}" if right else "gout"
        return f"So it is.\nAnswer: {said}{' [1]' if seen else ''}\nSources: {'[1], [9]' if seen else 'none'}"

    return answer


def expected(view: str, numbers, rates, sample: int = 0) -> np.ndarray:
    """Which of some questions the model of these rates has right."""
    return np.array([share("luck", view, str(number), sample) < rates[view] for number in numbers])
