"""A plan as a person reads it: stages with their settings and needs, then what is left to do on the tasks."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from r2med.pipeline.plan import Plan, PlannedStage, PlannedTask

_PROMPT = "first prompt"
_WIDTH = 100


def show_plan(plan: Plan, *, prompts: bool = False) -> None:
    """Print the plan of one system, with the first prompt of each of its stages, or with that of every task."""
    shown: set[str] = set()
    click.secho(plan.system, bold=True)
    for number, stage in enumerate(plan.stages, 1):
        click.echo(f"  {number}. {stage.spec} ({stage.kind})")
        _list({name.replace("_", " "): value for name, value in stage.settings.items()} | _needs(stage))
    for state, tasks in _by_state(plan.tasks).items():
        names = ", ".join(task.task for task in tasks)
        click.echo(textwrap.fill(f"{names}: {state}", _WIDTH, initial_indent="  ", subsequent_indent="    "))
        for task in tasks:
            _forecast(task, len(tasks) > 1, set() if prompts else shown)
    for spec, facts in _totals(plan.tasks).items():
        click.echo(f"  in all, {spec}: {_facts(facts)}")
    click.echo()


def _by_state(tasks: Sequence[PlannedTask]) -> dict[str, list[PlannedTask]]:
    """Tasks of which the same is to be said, in the order of the first of them."""
    found: dict[str, list[PlannedTask]] = {}
    for task in tasks:
        found.setdefault(task.state, []).append(task)
    return found


def _forecast(task: PlannedTask, several: bool, shown: set[str]) -> None:
    """What is left to do on a task; the prompts of stages that were shown before are left out."""
    for spec, facts in task.forecast.items():
        click.echo(f"    {f'{task.task}, ' if several else ''}{spec}: {_facts(facts)}")
        if _PROMPT in facts and spec not in shown:
            shown.add(spec)
            click.echo(textwrap.indent(str(facts[_PROMPT]), "      | ", lambda line: True))


def _totals(tasks: Sequence[PlannedTask]) -> dict[str, dict[str, float]]:
    """What a stage takes on all tasks together, of stages that have work on several."""
    found: dict[str, list[Mapping[str, Any]]] = {}
    for task in tasks:
        for spec, facts in task.forecast.items():
            found.setdefault(spec, []).append(facts)
    return {
        spec: {name: sum(facts[name] for facts in several) for name in several[0] if _countable(name, several)}
        for spec, several in found.items()
        if len(several) > 1 and any(_countable(name, several) for name in several[0])
    }


def _countable(name: str, several: Sequence[Mapping[str, Any]]) -> bool:
    return all(type(facts.get(name)) in (int, float) for facts in several)


def _facts(facts: Mapping[str, Any]) -> str:
    return ", ".join(f"{name} {_said(fact) or '?'}" for name, fact in facts.items() if name != _PROMPT)


def _needs(stage: PlannedStage) -> dict[str, str]:
    """What must be at hand, in words."""
    needs = stage.needs
    words = [f"pip install 'r2med[{needs['extra']}]'"] if "extra" in needs else []
    words += [f"the key {needs['key']}"] if "key" in needs else []
    words += [f"{repository} from the hub" for repository in needs.get("hub", ())]
    words += ["a GPU"] if "gpu" in needs else []
    return {"needs": ", ".join(words)} if words else {}


def _list(facts: Mapping[str, Any]) -> None:
    shown = {name: text for name, value in facts.items() if (text := _said(value))}
    wide = max(map(len, shown), default=0)
    for name, text in shown.items():
        lead = f"     {name:<{wide}}  "
        click.echo(textwrap.fill(text, _WIDTH, initial_indent=lead, subsequent_indent=" " * len(lead)))


def _said(value: Any) -> str:
    """A value in words; nothing for what is not set."""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return f"{value:.4g}"
    if isinstance(value, Mapping):
        return ", ".join(f"{name.replace('_', ' ')} {_said(each)}" for name, each in value.items())
    if isinstance(value, str):
        return "\\n".join(value.splitlines()) if value.strip() else ""
    return ", ".join(_items(value)) if isinstance(value, Sequence) else f"{value:,}" if value is not None else ""


def _items(values: Sequence[Any]) -> Iterator[str]:
    return (text for value in values if (text := _said(value)))
