"""The prompts of a build: text files beside this module, or the plan's own."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from importlib import resources

from r2med.build.build_plan import BuildPlan
from r2med.errors import DataError, suggest
from r2med.models.prompts import Template

PLACES: Mapping[str, Sequence[str]] = {
    "intent": ("query", "classes"),
    "answer": ("question",),
    "rewrite": ("question", "answer"),
    "check": ("original", "rewritten", "answer"),
    "reason": ("question", "answer"),
    "judge": ("guideline", "question", "answer", "passage", "low", "high"),
}
"""Every prompt with the places that it must have; a plan's own may leave out none of them."""


def prompt(name: str, plan: BuildPlan) -> Template:
    """A prompt by its name: the plan's own file, or the one that comes with r2med."""
    if name in plan.prompts:
        return _own(name, plan)
    file = resources.files("r2med.build").joinpath("prompts", f"{name}.txt")
    return Template(file.read_text("utf-8").strip(), source=f"{name}.txt")


def check_prompts(plan: BuildPlan) -> None:
    """Refuse prompts that cannot be used before anything is asked."""
    for name in plan.prompts:
        if name not in PLACES:
            raise DataError(f"{plan.folder / 'plan.toml'}: [prompts] has no {name!r}{suggest(name, PLACES)}")
        prompt(name, plan)


def _own(name: str, plan: BuildPlan) -> Template:
    path = plan.folder / plan.prompts[name]
    try:
        text = path.read_text("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "not UTF-8"
        raise DataError(f"{path}: the prompt cannot be read: {reason}") from error
    missing = [f"{{{place}}}" for place in PLACES[name] if f"{{{place}}}" not in text]
    if missing:
        raise DataError(f"{path}: a prompt for {name} must have {' and '.join(missing)} in it")
    return Template(text.strip(), source=plan.prompts[name])
