"""`r2med models`: the encoders, one of them in full, and the export to ONNX."""

from __future__ import annotations

from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING

import click

from r2med.cli.options import json_option, output, write_json

if TYPE_CHECKING:
    from r2med.encode.cards import Card


@click.group("models", invoke_without_command=True)
@json_option()
@click.pass_context
def command(ctx: click.Context, as_json: bool) -> None:
    """List the embedding models that have a card; `show NAME` tells all about one, `export NAME` writes ONNX.

    Any other model works too: hf:ORG/NAME, a local folder, my.module:MyEncoder, NAME@http://host:port/v1.
    """
    if ctx.invoked_subcommand is not None:
        return
    from r2med.encode.models import list_models

    cards = list_models()
    if as_json:
        write_json([_plain(card) for card in cards])
        return
    from r2med.render.grid import Column, Table, key, numbers

    texts = [Column(heading) for heading in ("backend", "pooling")]
    table = Table(
        key("name"),
        Column("model", folds=True),
        *numbers("size"),
        *texts,
        Column("tokens q/d"),
        Column("licence", folds=True),
    )
    for card in cards:
        limits = f"{card.max_query}/{card.max_document}" if card.max_document else "-"
        size = f"{card.parameters:,.0f}M" if card.parameters else "-"
        table.add(card.name, card.id, size, card.backend, card.pooling, limits, card.licence)
    table.show(output())


def _plain(card: Card) -> dict[str, object]:
    """The card as JSON has it: a prompt as its text, or as texts by family."""
    from r2med.encode.prompts import Template

    found = {field.name: getattr(card, field.name) for field in fields(card)}
    return {name: value.plain() if isinstance(value, Template) else value for name, value in found.items()}


@command.command("show")
@click.argument("model")
@click.option("--task", default="MedQA-Diag", show_default=True, help="The task whose words the prompts are made of.")
@json_option()
def show(model: str, task: str, as_json: bool) -> None:
    """All about one model, with the exact strings that would be encoded for a task."""
    from r2med.data.tasks import task as find_task
    from r2med.encode.models import describe_model

    found = describe_model(model, find_task(task))
    facts = _plain(found.card)
    strings = {"query": found.query, "document": found.document, "passage": found.passage}
    if as_json:
        write_json({**facts, "task": found.task, "strings": strings})
        return
    for name, value in facts.items():
        if value not in ("", None, False, (), "main"):
            click.echo(f"{name:16} {value}")
    click.echo(f"what is encoded for {found.task} (a passage is what a language model wrote to answer the query):")
    for name, text in strings.items():
        click.echo(f"{name:16} {text!r}")


@command.command("export")
@click.argument("model")
@click.option("--int8", is_flag=True, help="Quantise dynamically to int8, per channel.")
@click.option("--out", type=click.Path(path_type=Path), help="A new folder; by default where backend=onnx looks.")
def export(model: str, int8: bool, out: Path | None) -> None:
    """Write a model as ONNX, in fp32 or int8."""
    from r2med.encode.models import export_model

    folder = export_model(model, out, int8=int8)
    click.echo(f"{folder}")
    if out is not None:
        click.echo(f"use it as a model: r2med run ./{out}" if not out.is_absolute() else f"r2med run {out}", err=True)
