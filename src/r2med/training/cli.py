"""`r2med train`: training data that keeps the reasoning, and retrievers trained on it."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click
from msgspec.structs import replace
from rich.console import Console

from r2med.cli.execution import asking, asking_options, show_foreseen
from r2med.cli.options import ManyValues, json_option, write_json
from r2med.construction.cli import show_funnel
from r2med.formatting import counted, human_size, percent, percent_range
from r2med.llm.items import Count
from r2med.measure.figure import Figure
from r2med.pipeline.executor.local import Executor
from r2med.render.table import Table, key, messages, numbers, output, say
from r2med.store.typed import read_text
from r2med.training.cards import held_out_text, steps_taken
from r2med.training.data import DataMaker, GateRules, MadeData
from r2med.training.formats import FORMATS, FormatSettings, export
from r2med.training.rows import read_training_files
from r2med.training.run import TrainedModel, TrainingPlan, train
from r2med.training.settings import KINDS, QUERIES, QUESTION, RERANKER, read_run_settings, read_settings, with_models

_FILE = click.Path(path_type=Path)
_SEARCHED = "What is trained to search: the question, with the bridge behind it, or each of the two."


@click.group("train")
def train_command() -> None:
    """Make training data that keeps the way from question to evidence, and train retrievers on it.

    \b
    Examples:
      r2med train data --from documents --llm gpt-4o --out bridge.parquet --licence "CC BY 4.0" --max-cost 20
      r2med train export bridge.parquet --to flagembedding --out flag
      r2med train run bridge.parquet --base minilm --kind dense --out my-retriever
    """


@train_command.command("data", short_help="Write questions from documents, with the reasoning.", cls=ManyValues)
@click.option("--from", "source", required=True, metavar="DOCUMENTS|BUILD", help="Documents, or a folder of a build.")
@click.option("--llm", "writer", default="", metavar="MODEL", help="Who writes questions and types negatives.")
@click.option("--judge", default="", metavar="MODEL", help="Who judges candidates (the same model).")
@click.option("--out", required=True, type=_FILE, metavar="FILE.parquet", help="The data; its card is FILE.md.")
@click.option(
    "--questions", type=click.IntRange(0), metavar="N", help="How many are written (200); 0 for all passages."
)
@click.option("--systems", multiple=True, metavar="SYSTEM...", help="Who mines candidates (bm25).")
@click.option("--licence", default="", metavar="TEXT", help="Of the documents, for every row.")
@click.option("--guideline", type=_FILE, metavar="FILE", help="What relevant means, for the judge.")
@click.option("--settings", type=_FILE, metavar="FILE.toml", help="Everything else, table by table.")
@click.option("--against", multiple=True, metavar="TASK...", help="Check for leakage of these, too.")
@click.option("--drop-leaking", is_flag=True, help="Leave out rows that hold what systems are measured on.")
@click.option("--allow-leakage", is_flag=True, help="Keep them, and record so.")
@click.option("--allow-unchecked", is_flag=True, help="Write although some tasks cannot be had here; recorded.")
@click.option("--dry-run", is_flag=True, help="Ask nothing; show what each step would ask and cost.")
@click.option("--max-cost", type=click.FloatRange(0), metavar="DOLLARS", help="Stop before more than this is spent.")
@asking_options
@json_option()
def make_data(source: str, out: Path, dry_run: bool, max_cost: float | None, as_json: bool, **given: Any) -> None:
    """Write questions from documents whose answers must be inferred, find and judge their evidence, and keep the way.

    Documents are a table, a BEIR or R2MED folder, or a folder of .txt, .md, .html, .pdf and .docx files. The passage
    that a question was written from is never its positive: candidates are mined and judged as by `r2med build`, and
    negatives are typed by why they are wrong. Of a folder of `r2med build`, questions, reasoning and judgements are
    taken over and, without --llm, nothing is asked.

    Nothing is written before it was compared with R2MED, NanoR2MED and the tasks of --against. Stopped at any moment,
    the same command goes on; no reply is paid for twice.

    \b
    Examples:
      r2med train data --from documents --llm scripted:writer.toml --out bridge.parquet --dry-run
      r2med train data --from documents --llm scripted:writer.toml --out bridge.parquet --allow-unchecked
    """
    rules = GateRules(*(given.pop(name) for name in ("against", "allow_leakage", "allow_unchecked", "drop_leaking")))
    changes: dict[str, dict[str, Any]] = {}
    if (questions := given.pop("questions")) is not None:
        changes["write"] = {"questions": questions}
    if systems := given.pop("systems"):
        changes["mine"] = {"systems": list(systems)}
    settings = with_models(read_settings(given.pop("settings"), changes), given.pop("writer"), given.pop("judge"))
    guideline = read_text(file) if (file := given.pop("guideline")) else settings.guideline
    settings = replace(settings, licence=given.pop("licence"), guideline=guideline)
    with asking(max_cost=max_cost, dry_run=dry_run, **given) as executor:
        maker = DataMaker(source, out, settings, executor)
        if dry_run:
            note = "Priced as if every question were written at once and every pool were as large as it can be."
            show_foreseen(maker.estimate(), as_json, f"{note} ? is a price that is not known.")
            return
        data = maker.run(rules)
    if as_json:
        write_json(data.as_dict())
    else:
        show_made_data(data, maker.counts, output())
    left = sum(count.left for count in maker.counts)
    if left:
        click.echo(f"note: {left:,} items have no answer that can be used; run the same command to ask again", err=True)
    click.echo(f"wrote {out} and its card {out.with_suffix('.md')}", err=True)


@train_command.command("export", short_help="Write training data for other trainers.")
@click.argument("data", nargs=-1, required=True, metavar="DATA.parquet...", type=_FILE)
@click.option(
    "--to", "form", required=True, type=click.Choice(list(FORMATS)), metavar="FORMAT", help="Whose trainer reads it."
)
@click.option("--out", required=True, type=_FILE, metavar="DIR", help="A new folder.")
@click.option("--query", "queries", type=click.Choice(QUERIES), default=QUESTION, show_default=True, help=_SEARCHED)
@click.option("--negatives", type=click.IntRange(1), metavar="N", help="Of a question, where all have the same number.")
@click.option(
    "--instruction", default="", metavar="TEXT", help="Before a question, where the format has a place for it."
)
@json_option()
def export_data(data: tuple[Path, ...], form: str, out: Path, as_json: bool, **given: Any) -> None:
    """Write training data as other trainers read it: a file for each part, and the record of the leakage check.

    Formats are sentence-transformers (bi-encoders, sparse and multi-vector encoders), cross-encoder (pairs),
    cross-encoder-lists, flagembedding, tevatron, ms-swift, ms-swift-reranker, pylate and gritlm. Where all rows must
    have the same number of negatives, they have as many as every question has, unless --negatives says otherwise;
    questions with fewer are left out then.

    \b
    Example:
      r2med train export bridge.parquet --to flagembedding --out flag
    """
    done = export(read_training_files(data), form, out, FormatSettings(**given))
    if as_json:
        write_json(done)
        return
    table = Table(key("file"), *numbers("size"))
    for name, size in done.files.items():
        table.add(name, human_size(size))
    table.show(output())
    counts = ", ".join(f"{count:,} {part}" for part, count in done.questions.items())
    click.echo(f"wrote {out} for {FORMATS[form].reads}: questions {counts}", err=True)


@train_command.command("run", short_help="Train a retriever or a reranker.")
@click.argument("data", nargs=-1, required=True, metavar="DATA.parquet...", type=_FILE)
@click.option("--base", required=True, metavar="MODEL", help="A card such as minilm, hf:ORG/NAME, or a folder.")
@click.option("--kind", required=True, type=click.Choice(KINDS), help="What it becomes.")
@click.option("--out", required=True, type=_FILE, metavar="DIR", help="The trained model; a new folder.")
@click.option("--settings", type=_FILE, metavar="FILE.toml", help="Rate, loss, adapter, checkpoints and the rest.")
@click.option("--seed", type=int, help="In place of the settings' seed.")
def train_model(
    data: tuple[Path, ...], base: str, kind: str, out: Path, settings: Path | None, seed: int | None
) -> None:
    """Train a retriever or a reranker on data of `r2med train data`, by sentence-transformers' trainers.

    Questions that are held out (part `dev`) are measured before, meanwhile and after. DIR is a system at once, and its
    README.md says what it was made of. Killed at any moment, the same command goes on from the last checkpoint. On
    several GPUs: torchrun --nproc-per-node 4 -m r2med train run ...

    \b
    Examples:
      r2med train run bridge.parquet --base minilm --kind dense --out my-retriever
      r2med train run bridge.parquet --base minilm --kind reranker --out my-reranker --settings training.toml
    """
    run_settings = read_run_settings(settings)
    if seed is not None:
        run_settings = replace(run_settings, train=replace(run_settings.train, seed=seed))
    plan = TrainingPlan(read_training_files(data), base, kind, run_settings)
    trained = train(plan, out, Executor(messages()))
    if trained.first:
        show_training(trained, output())
        folder = str(out) if out.is_absolute() else f"./{out}"
        system = f'"bm25 >> {folder}"' if kind == RERANKER else folder
        click.echo(f"now: r2med run {system}", err=True)


def show_made_data(data: MadeData, counts: Sequence[Count], console: Console) -> None:
    """Print the steps that made the data, its content, and the result of the gate."""
    show_funnel(counts, console)
    rows = data.record["rows"]
    table = Table(*numbers("train", "dev", "positives", "negatives"))
    table.add(*(f"{rows[name]:,}" for name in ("train", "dev", "positives", "negatives")))
    table.show(console)
    types = Table(key("why wrong"), *numbers("negatives"))
    for name, count in data.record["types"].items():
        types.add(name or "(not asked)", f"{count:,}")
    types.show(console)
    say(console, f"held out: {held_out_text(data.record)}")
    judged = data.record["sources_judged_positive"]
    if judged is not None:
        say(console, f"judges call {judged:.0%} of the passages that questions were written from evidence")
    gate = data.gate
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
        cells = [text for figure in figures for text in (percent(figure.value), percent_range(figure))]
        table.add(f"{measure} x 100", *cells)
    table.show(console)
    say(console, f"{questions['dev']:,} held-out questions")
