"""The tables of training data and of trainings."""

from __future__ import annotations

from typing import TYPE_CHECKING

from r2med.construction.tables import show_funnel
from r2med.formatting import counted, percent, percent_range
from r2med.measure.figure import Figure
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
    show_funnel(counts, console)
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
    gate = made.gate
    if gate.report:
        tasks = Table(key("compared with"), *numbers("queries", "positives"))
        for task in gate.report.tasks:
            tasks.add(task.task, *(f"{share.affected:,}/{share.total:,}" for share in (task.queries, task.positives)))
        tasks.show(console)
    if gate.unchecked:
        more = f" and {counted(len(gate.unchecked) - 3, 'more task')}" if len(gate.unchecked) > 3 else ""
        say(console, f"not compared, as --allow-unchecked says: {', '.join(list(gate.unchecked)[:3])}{more}")
    if gate.affected:
        done = "left out" if gate.dropped else "kept, as --allow-leakage says"
        say(console, f"rows that hold what systems are measured on: {len(gate.affected):,}, {done}")


def show_training(trained: TrainedModel, console: Console) -> None:
    """Print the measures on the held-out questions before and after."""
    record = trained.record
    questions = record["questions"]
    facts = f"{questions['train']:,} questions, {steps_taken(record)} of {record['loss']}"
    say(console, f"{record['kind']} from {record['base']['name']}: {facts}")
    if not record["dev"]["after"]:
        say(console, "no question is held out, so that nothing was measured")
        return
    table = Table(key("held out"), *numbers("base", "95%", "trained", "95%"))
    for measure, after in record["dev"]["after"].items():
        figures = [Figure(*record["dev"]["before"][measure]), Figure(*after)]
        cells = [(percent(figure.value), percent_range(figure)) for figure in figures]
        table.add(f"{measure} x 100", *cells[0], *cells[1])
    table.show(console)
    say(console, f"{questions['dev']:,} held-out questions")
