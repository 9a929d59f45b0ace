"""`r2med build translate`: the questions of a task in other languages."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import click

from r2med.cli.execution import asking, asking_options, show_foreseen
from r2med.cli.options import json_option, write_json
from r2med.data.loader import load
from r2med.formatting import money
from r2med.pipeline.executor.local import every_share
from r2med.render.table import Table, key, numbers, output
from r2med.retrieve.dense import ENCODER
from r2med.translation.translator import TranslatedTask, TranslationSettings, Translator, check_place, write_translation


@click.command("translate", short_help="Translate the questions of a task.")
@click.argument("task")
@click.option("--to", "languages", required=True, metavar="es,fr,zh", help="Languages, with commas between them.")
@click.option("--llm", "model", required=True, metavar="MODEL", help="Who translates, and translates back.")
@click.option("--judge", default="", metavar="MODEL", help="Who compares the back-translation (the same model).")
@click.option("--encoder", default=ENCODER, show_default=True, metavar="MODEL", help="Whose embeddings compare it too.")
@click.option("--near", default=0.7, show_default=True, type=click.FloatRange(0, 1), help="The least cosine of both.")
@click.option("--attempts", default=2, show_default=True, type=click.IntRange(1), help="Attempts per question.")
@click.option(
    "--failed",
    type=click.Choice(["drop", "mark"]),
    default="drop",
    show_default=True,
    help="Drop or mark questions that fail every attempt.",
)
@click.option("--out", required=True, type=click.Path(path_type=Path), metavar="DIR", help="A folder a language in it.")
@click.option("--dry-run", is_flag=True, help="Ask nothing; show what it would take.")
@click.option("--max-cost", type=click.FloatRange(0), metavar="DOLLARS", help="Stop before more than this is spent.")
@asking_options
@json_option()
def translate_task(task: str, languages: str, out: Path, dry_run: bool, as_json: bool, **given: Any) -> None:
    """Translate the questions of TASK into other languages; documents and judgements stay, so that scores compare.

    Numbers, units, doses, codes and names of drugs must survive, and a translation back into English must mean the
    same, by a judge and by an encoder. What fails is asked for again, then counted, and left out or marked. Stopped at
    any moment, the same command goes on. `r2med compare --languages` then shows what a language costs a system.

    \b
    Examples:
      r2med build translate sample/Medical-Sciences --to es --llm scripted:translator.toml --out translated --dry-run
      r2med build translate sample/Medical-Sciences --to es --llm scripted:translator.toml --out translated
    """
    names = ("model", "judge", "encoder", "near", "attempts", "failed")
    settings = TranslationSettings(**{name: given.pop(name) for name in names})
    codes = list(dict.fromkeys(filter(None, (code.strip() for code in languages.split(",")))))
    if not codes:
        raise click.UsageError("--to needs a language such as es, or several with commas between them")
    dataset = load(task)
    check_place(out)
    with asking(dry_run=dry_run, **given) as executor:
        translators = [Translator(dataset, code, settings, out) for code in codes]
        if dry_run:
            note = "As if every first translation passed. ? is a price that is not known."
            show_foreseen([translator.estimate() for translator in translators], as_json, note)
            return
        translations = every_share(partial(translator.run, executor) for translator in translators)
    folders = [write_translation(out, dataset, task, settings) for task in translations if task.kept]
    if as_json:
        write_json({"source": dataset.name, "folder": str(out), "languages": [task.as_dict() for task in translations]})
    else:
        _show(translations)
    if settings.judges_itself:
        click.echo(f"note: {settings.model} judges its own translations; name another model by --judge", err=True)
    for translation in translations:
        if not translation.kept:
            click.echo(f"note: no question passed in {translation.spoken.name}, so that there is no task", err=True)
    if folders:
        click.echo(f"now: r2med run bm25 --tasks {task} {out}; r2med compare bm25 --languages --tasks {out}", err=True)


def _show(translations: Sequence[TranslatedTask]) -> None:
    console = output()
    table = Table(key("language"), *numbers("questions", "passed", "in the task", "requests", "dollars"))
    for task in translations:
        counts = (len(task.questions), task.passed, len(task.kept), task.spent.requests)
        table.add(task.spoken.name, *(f"{count:,}" for count in counts), money(task.spent.cost))
    table.show(console)
    for task in translations:
        stopped = [question for question in task.questions if question.problems]
        for question in stopped[:10]:
            gate, what = question.problems[0]
            console.print(f"{task.spoken.code}: {question.id} stopped by {gate}: {what}")
        if len(stopped) > 10:
            console.print(f"{task.spoken.code}: {len(stopped) - 10:,} more are in translations.jsonl")
