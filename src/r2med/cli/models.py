"""`r2med models`: the models that have a card, one of them in full, and the export to ONNX."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from r2med.cli.options import json_option, write_json
from r2med.data.tasks import task as find_task
from r2med.encode.late_cards import late_cards
from r2med.encode.resolve import describe_model, export_model, list_models
from r2med.errors import SpecError, nearest
from r2med.llm.cards import find_model, model_names
from r2med.models.templates import Template, bundled
from r2med.render.table import Column, Table, key, numbers, output
from r2med.rerank.cards import api_cards, cards, served_cards

if TYPE_CHECKING:
    from r2med.encode.cards import EncoderCard


@click.group("models", invoke_without_command=True)
@click.option("--llm", "kind", flag_value="llm", help="Language models, with their prices.")
@click.option("--reranker", "kind", flag_value="reranker", help="Rerankers, those behind an API too.")
@click.option("--late", "kind", flag_value="late", help="Late-interaction models, for colbert(NAME).")
@click.option("--all", "kind", flag_value="all", help="Models of every kind.")
@json_option()
@click.pass_context
def models_command(ctx: click.Context, kind: str | None, as_json: bool) -> None:
    """List the embedding models that have a card; `show NAME` tells all about one, `export NAME` writes ONNX.

    Any other model works too: hf:ORG/NAME, a local folder, my.module:MyEncoder, NAME@http://host:port/v1.
    """
    if ctx.invoked_subcommand is not None:
        return
    kinds = list(_KINDS) if kind == "all" else [kind or "encoder"]
    facts_of_kind = {name: _KINDS[name]() for name in kinds}
    if as_json:
        write_json(facts_of_kind if kind == "all" else facts_of_kind[kinds[0]])
        return
    for name, facts in facts_of_kind.items():
        _table(name, facts).show(output())


def _rerankers() -> list[dict[str, Any]]:
    names = ("name", "id", "parameters", "context", "licence", "needs")
    rows: list[tuple[Any, ...]] = [
        (card.name, card.id, card.parameters or None, card.max_length, card.licence, "a GPU" if card.needs_gpu else "")
        for card in cards().values()
    ]
    for card in served_cards().values():
        model = (f"{card.stage}({card.name})", find_model(card.name).id)
        rows.append((*model, card.parameters or None, None, card.licence, "a server"))
    rows += [(f"api-rerank({card.name})", card.id, None, None, "", card.key_env) for card in api_cards().values()]
    return [dict(zip(names, row, strict=True)) for row in rows]


def _late_models() -> list[dict[str, Any]]:
    """Return what is published of each; an unpublished value is None."""
    lengths = ("dimension", "query_prefix", "document_prefix", "query_length", "document_length", "expansion")
    return [
        {"name": f"colbert({card.name})", "id": card.id, "parameters": card.parameters or None}
        | {name: getattr(card, name) or None for name in lengths}
        | {"licence": card.licence, "needs": "remote_code=true" if card.remote_code else ""}
        for card in late_cards().values()
    ]


def _llms() -> list[dict[str, Any]]:
    return [
        {"name": model.name, "id": model.id, "reasoning": model.reasoning}
        | dict(zip(("prompt_price", "completion_price"), model.price or (None, None), strict=True))
        | {"url": model.url, "needs": model.key_env if model.needs_key else ""}
        for model in map(find_model, model_names())
    ]


_KINDS: dict[str, Callable[[], list[dict[str, Any]]]] = {
    "encoder": lambda: list(map(_plain, list_models())),
    "reranker": _rerankers,
    "late": _late_models,
    "llm": _llms,
}


def _table(kind: str, facts: Sequence[Mapping[str, Any]]) -> Table:
    model = (key("name"), Column("model", folds=True))
    licence, needs = Column("licence", folds=True), Column("needs", folds=True)
    tables = {
        "llm": Table(*model, Column("reasoning"), *numbers("$/M prompt", "$/M completion"), needs),
        "reranker": Table(*model, *numbers("size", "tokens"), licence, needs),
        "late": Table(*model, *numbers("size", "dim"), Column("tokens q/d"), licence),
        "encoder": Table(*model, *numbers("size"), *map(Column, ("backend", "pooling", "tokens q/d")), licence),
    }
    table = tables[kind]
    for fact in facts:
        size = f"{fact['parameters']:,.0f}M" if fact.get("parameters") else "-"
        if kind == "llm":
            prices = ["?" if fact[name] is None else f"{fact[name]:g}" for name in ("prompt_price", "completion_price")]
            cells = ["yes" if fact["reasoning"] else "no", *prices, fact["needs"] or "-"]
        elif kind == "reranker":
            cells = [size, str(fact["context"] or "-"), fact["licence"] or "-", fact["needs"] or "-"]
        elif kind == "late":
            lengths = "/".join(str(fact[name] or "-") for name in ("query_length", "document_length"))
            cells = [size, str(fact["dimension"] or "-"), lengths, fact["licence"]]
        else:
            lengths = f"{fact['max_query']}/{fact['max_document']}" if fact["max_document"] else "-"
            cells = [size, fact["backend"], fact["pooling"], lengths, fact["licence"]]
        table.add(fact["name"], fact["id"], *cells)
    return table


def _plain(card: EncoderCard) -> dict[str, Any]:
    """Return the card for JSON: a prompt as its text, or as texts by family."""
    values = {field.name: getattr(card, field.name) for field in fields(card)}
    return {name: value.plain() if isinstance(value, Template) else value for name, value in values.items()}


@models_command.command("show", short_help="Show one model and the exact strings it reads.")
@click.argument("model")
@click.option("--task", default="MedQA-Diag", show_default=True, help="The task whose words the prompts are made of.")
@json_option()
def show(model: str, task: str, as_json: bool) -> None:
    """All about one model: the exact strings that an encoder reads for a task, how a reranker is asked and read.

    \b
    Examples:
      r2med models show bge --task PMC-Treatment
      r2med models show reasonrank-7b
    """
    others = _other_facts()
    if model in others:
        _show_facts(others[model], as_json)
        return
    asked = find_task(task)
    try:
        description = describe_model(model, asked)
    except SpecError as error:
        near = nearest(model, [*others, *(card.name for card in list_models())])
        if near in others and set(model).isdisjoint(":/@"):
            raise SpecError(f"unknown model {model!r}; did you mean {near}?") from error
        raise
    facts = _plain(description.card)
    strings = {"query": description.query, "document": description.document, "passage": description.passage}
    if as_json:
        write_json({**facts, "task": description.task, "strings": strings})
        return
    for name, value in facts.items():
        if value not in ("", None, False, (), "main"):
            click.echo(f"{name:16} {value}")
    click.echo(
        f"what is encoded for {description.task} (a passage is what a language model wrote to answer the query):"
    )
    for name, text in strings.items():
        click.echo(f"{name:16} {text!r}")


def _other_facts() -> dict[str, dict[str, Any]]:
    """Return the facts of every card that is not an encoder's, by its name and as systems write it."""
    forms = {name: {"prompt": prompt, "answer": answer, "notes": notes} for name, prompt, answer, notes in _forms()}
    nothing = {"prompt": None, "answer": None, "notes": ""}
    rows = [*_llms(), *({**row, **forms.get(row["name"], nothing)} for row in _rerankers()), *_late_models()]
    encoders = {card.name for card in list_models()}
    inside = {row["name"].rpartition("(")[2].removesuffix(")"): row for row in rows}
    return {name: row for name, row in inside.items() if name not in encoders} | {
        row["name"]: row for row in rows if row["name"] not in inside
    }


def _forms() -> Iterator[tuple[str, str, str, str]]:
    """Yield, for every local or served reranker, its name, its input, its answer format, and notes."""
    for card in cards().values():
        reads = "".join(card.pieces) or f"{card.query} and {card.document}, as a pair"
        answers = f"{' or '.join(card.answers)}, by their logits" if card.answers else f"logits ({card.head})"
        yield card.name, reads, answers, card.notes
    for served in served_cards().values():
        prompt = bundled(served.prompt, "r2med.rerank").text
        yield f"{served.stage}({served.name})", prompt, served.answer, served.notes


def _show_facts(facts: Mapping[str, Any], as_json: bool) -> None:
    """Print a card that is not an encoder's. For a late-interaction model, its own files decide what is encoded."""
    if as_json:
        write_json(facts)
        return
    for name, value in facts.items():
        if value not in ("", None) and name != "prompt":
            click.echo(f"{name:16} {value}")
    if facts.get("prompt"):
        click.echo(f"what it reads:\n\n{facts['prompt']}")
    if "dimension" in facts:
        click.echo("as published; the checkpoint's own files decide, and r2med run ... --dry-run shows what they say")


@models_command.command("export")
@click.argument("model")
@click.option("--int8", is_flag=True, help="Quantise dynamically to int8, per channel.")
@click.option("--out", type=click.Path(path_type=Path), help="A new folder; by default where backend=onnx looks.")
def export(model: str, int8: bool, out: Path | None) -> None:
    """Write a model as ONNX, in fp32 or int8."""
    folder = export_model(model, out, int8=int8)
    click.echo(f"{folder}")
    if out is not None:
        click.echo(f"use it as a model: r2med run ./{out}" if not out.is_absolute() else f"r2med run {out}", err=True)
