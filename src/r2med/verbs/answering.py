"""The verb `rag`, which asks a model with and without passages."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from r2med.errors import R2medError, suggest
from r2med.measure.metrics import Measure
from r2med.rag.arms import make_arms
from r2med.rag.rag_report import RagReport, make_report
from r2med.rag.sources import PromptRule
from r2med.rag.study import StudyOptions, run_study
from r2med.verbs.arguments import AnySystem, AnyTask, check_type, listed, run_name, task_names_of

_RULE = ("k", "budget", "order", "prompt")
_ASKING = ("judge", "judge_prompt", "samples", "temperature", "answer_tokens", "measure")


def rag(
    *systems: AnySystem,
    llm: str,
    tasks: AnyTask | Sequence[AnyTask] = "sample",
    arms: str | Sequence[str] = (),
    **how: Any,
) -> RagReport:
    """Answer the questions of tasks with and without passages; `how` are k, budget, order, prompt, judge, samples, ...

    >>> import r2med
    >>> from r2med.llm import add_model, scripted
    >>> model = add_model(scripted(lambda request: "Answer: Kawasaki disease\\nSources: none", "always-kawasaki"))
    >>> report = r2med.rag("bm25", llm="always-kawasaki", tasks="sample/MedQA-Diag", arms=["closed", "system"])
    >>> report
    RagReport('always-kawasaki', 2 arms on 1 tasks)
    >>> report.arm("closed").counts.right, report.arm("bm25").paired.fixed
    (1, 0)
    """
    for name in how:
        if name not in (*_RULE, *_ASKING):
            raise R2medError(f"rag takes no {name!r}{suggest(name, (*_RULE, *_ASKING))}")
    check_type(llm, (str,), "llm is the name of a model")
    if "measure" in how:
        how["measure"] = str(Measure.parse(how["measure"]))
    rule = PromptRule(**{name: how.pop(name) for name in _RULE if name in how})
    chosen = make_arms([run_name(system) for system in systems], listed(arms))
    return make_report(*run_study(chosen, task_names_of(tasks), StudyOptions(llm, rule=rule, **how)))
