"""`r2med search`: a question of one's own, and what a system finds for it."""

from __future__ import annotations

import click

from r2med.api import search
from r2med.cli.options import ManyValues, json_option, write_json
from r2med.render.table import Column, Table, key, numbers, output

_BEGINNING = 300  # characters of a text; --whole shows all of it


@click.command("search", cls=ManyValues)
@click.argument("system")
@click.argument("question")
@click.option("--task", required=True, metavar="NAME|PATH", help="Whose documents to search.")
@click.option("-k", default=10, show_default=True, type=click.IntRange(1), help="How many documents to show.")
@click.option("--whole", is_flag=True, help="Show whole texts, not only how they begin.")
@json_option()
def search_command(system: str, question: str, task: str, k: int, whole: bool, as_json: bool) -> None:
    """Search the documents of a task with a question of your own.

    Any system can be asked: also one that expands the question by a language model or reranks what it finds.
    Nothing is written into the ledger.

    \b
    Examples:
      r2med search bm25 "fatigue and golden-brown rings around the cornea" --task sample/MedQA-Diag
      r2med search "rrf(bm25, wordllama)" "why do joggers get red urine?" --task sample/Biology -k 3 --whole
    """
    hits = search(system, task, question, k=k)
    if as_json:
        write_json({"system": hits.system, "query": hits.query, "task": task, "hits": [vars(hit) for hit in hits]})
        return
    if not hits:
        click.echo("nothing was found", err=True)
        return
    table = Table(Column("#", right=True), key("document"), *numbers("score"), Column("text", folds=True))
    for hit in hits:
        text = " ".join(hit.text.split())
        shown = text if whole or len(text) <= _BEGINNING else text[: _BEGINNING - 1] + "…"
        table.add(str(hit.rank), hit.document, f"{hit.score:.3f}", shown)
    table.show(output())
