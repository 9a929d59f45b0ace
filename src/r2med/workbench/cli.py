"""`r2med inspect`: queries of a run, looked at one by one."""

from __future__ import annotations

import sys
from dataclasses import asdict
from io import StringIO
from pathlib import Path
from typing import Any

import click

from r2med.cli.options import ManyValues, json_option, remark, write_json
from r2med.data.loader import load
from r2med.data.tasks import resolve
from r2med.pipeline.loaded_runs import open_shared
from r2med.pipeline.named_runs import select
from r2med.pipeline.registry import build_system
from r2med.pipeline.search import find_documents
from r2med.render.table import Column, Table, key, numbers, output, written_to
from r2med.runs.ledger import Ledger
from r2med.runs.selection import in_any_group, with_query
from r2med.store.files import write_file
from r2med.workbench.cases import CaseChoice, look
from r2med.workbench.cases_page import page, show_cases


@click.command("inspect", cls=ManyValues)
@click.argument("run")
@click.option("--tasks", multiple=True, metavar="NAME|GROUP|PATH...", help="Which tasks (default: all).")
@click.option("--query", default="", metavar="ID", help="One query.")
@click.option("--failures", type=click.IntRange(1), metavar="N", help="Queries with nothing relevant in the first 10.")
@click.option("--worst", type=click.IntRange(1), metavar="N", help="Lowest scores; with --against, largest losses.")
@click.option("--sample", type=click.IntRange(1), metavar="N", help="Queries drawn at random, the same every time.")
@click.option("--against", metavar="RUN", help="Another run to compare with.")
@click.option("--docs", default=10, show_default=True, type=click.IntRange(1), help="Documents of each list to show.")
@click.option("--words", default=40, show_default=True, type=click.IntRange(0), help="Words of a document; 0 for all.")
@click.option("--html", type=click.Path(path_type=Path, dir_okay=False), help="Write a page with whole texts here.")
@json_option()
def inspect_command(run: str, tasks: tuple[str, ...], against: str | None, **given: Any) -> None:
    """Look at queries one by one: what was asked, written and found, and where the relevant documents are.

    RUN is a spec or the id of a run in the ledger. Queries come with the lowest nDCG@10 first. Words that match
    the query, generated text or the gold answer by their stems are highlighted.

    \b
    Examples:
      r2med inspect bm25 --tasks sample/MedQA-Diag --failures 10
      r2med inspect bm25 --query mqd-q01
      r2med inspect "replay >> bm25" --against bm25 --worst 5 --html cases.html
    """
    names = [run, against] if against else [run]
    counts = {kind: given[kind] for kind in ("failures", "worst", "sample") if given[kind] is not None}
    if len(counts) + bool(given["query"]) > 1:
        raise click.UsageError("choose one of --query, --failures, --worst and --sample")
    kind, count = next(iter(counts.items()), ("all", None))
    choice = CaseChoice(given["query"], kind, count, given["docs"])
    with Ledger() as ledger:
        shared = in_any_group(with_query(select(ledger, names, [task.name for task in resolve(tasks)]), choice.query))
        remark(shared.notes)
        cases = look(open_shared(ledger, shared), choice)
    if given["html"] is not None:
        path = given["html"]
        write_file(path, page(cases, " against ".join(names)), parents=True)
        click.echo(f"{len(cases)} queries are in {path}", err=True)
    if given["as_json"]:
        write_json([asdict(case) for case in cases])
    elif given["html"] is None and not cases:
        click.echo("no query is like that")
    elif given["html"] is None and sys.stdout.isatty():
        text = StringIO()
        show_cases(cases, written_to(text, output().width, styled=True), given["words"])
        click.echo_via_pager(text.getvalue(), color=True)
    elif given["html"] is None:
        show_cases(cases, output(), given["words"])


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
    hits = find_documents(build_system(system), load(task), question, k)
    if as_json:
        write_json({"system": hits.system, "query": hits.query, "task": task, "hits": [vars(hit) for hit in hits]})
        return
    if not hits:
        click.echo("nothing was found", err=True)
        return
    table = Table(Column("#", right=True), key("document"), *numbers("score"), Column("text", folds=True))
    for hit in hits:
        text = " ".join(hit.text.split())
        excerpt = text if whole or len(text) <= _BEGINNING else text[: _BEGINNING - 1] + "…"
        table.add(str(hit.rank), hit.document, f"{hit.score:.3f}", excerpt)
    table.show(output())
