"""The tables of training data and of trainings."""

from __future__ import annotations

from typing import TYPE_CHECKING

from r2med.construction.package import remarks
from r2med.formatting import counted, money
from r2med.render.table import Table, key, numbers, say
from r2med.training.cards import held_out_text, steps_taken

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rich.console import Console

    from r2med.llm.items import Count
    from r2med.training.data import MadeData
    from r2med.training.run import TrainedModel


def show_made_data(made: MadeData, counts: Sequence[Count], console: Console) -> None:
    """Print the steps that made the data, its content, and the result of the gate."""
    table = Table(key("step"), *numbers("items", "kept", "requests", "dollars"))
    for count in counts:
        asked = [f"{count.spent.requests:,}", money(count.spent.cost)] if count.spent.requests else ["", ""]
        table.add(count.step, f"{count.items:,}", f"{count.kept:,}", *asked)
    table.show(console)
    for count in counts:
        for remark in remarks(count):
            say(console, f"{count.step}: {remark}")
    _show_rows(made, console)
    _show_gate(made, console)


def _show_rows(made: MadeData, console: Console) -> None:
    rows = made.record["rows"]
    table = Table(*numbers("train", "dev", "positives", "negatives"))
    table.add(*(f"{rows[name]:,}" for name in ("train", "dev", "positives", "negatives")))
    table.show(console)
    types = Table(key("why wrong"), *numbers("negatives"))
    for name, count in made.record["types"].items():
        types.add(name or "(not asked)", f"{count:,}")
    types.show(console)
    say(console, f"held out: {held_out_text(made.record)}")
    judged = made.record["sources_judged_positive"]
    if judged is not None:
        say(console, f"judges call {judged:.0%} of the passages that questions were written from evidence")


def _show_gate(made: MadeData, console: Console) -> None:
    gate = made.gate
    table = Table(key("compared with"), *numbers("queries", "positives"))
    for task in gate.report.tasks if gate.report else ():
        table.add(task.task, *(f"{each.affected:,}/{each.total:,}" for each in (task.queries, task.positives)))
    if gate.report:
        table.show(console)
    if gate.unchecked:
        first, rest = list(gate.unchecked)[:3], len(gate.unchecked) - 3
        more = f" and {counted(rest, 'more task')}" if rest > 0 else ""
        say(console, f"not compared, as --allow-unchecked says: {', '.join(first)}{more}")
    if gate.affected:
        done = "left out" if gate.dropped else "kept, as --allow-leakage says"
        say(console, f"rows that hold what systems are measured on: {len(gate.affected):,}, {done}")


def show_training(trained: TrainedModel, console: Console) -> None:
    """Print the measures on the held-out questions before and after."""
    record = trained.record
    questions = record["questions"]
    told = f"{questions['train']:,} questions, {steps_taken(record)} of {record['loss']}"
    say(console, f"{record['kind']} from {record['base']['name']}: {told}")
    if not record["dev"]["after"]:
        say(console, "no question is held out, so that nothing was measured")
        return
    table = Table(key("held out"), *numbers("base", "95%", "trained", "95%"))
    for measure, after in record["dev"]["after"].items():
        cells = [cell for ends in (record["dev"]["before"][measure], after) for cell in _cells(ends)]
        table.add(f"{measure} x 100", *cells)
    table.show(console)
    say(console, f"{questions['dev']:,} held-out questions")


def _cells(ends: Sequence[float]) -> list[str]:
    mean, low, high = (100 * value for value in ends)
    return [f"{mean:.2f}", f"{low:.2f} to {high:.2f}"]
