"""`r2med cache`: what is kept on disk, and how to clear it."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress

import click

from r2med.cli.options import json_option, write_json
from r2med.encode.cards import cards as encoder_cards
from r2med.errors import R2medError, suggest
from r2med.formatting import counted, human_size
from r2med.llm.cards import find_model
from r2med.llm.reply_cache import ReplyCache
from r2med.render.table import Column, Table, numbers, output
from r2med.rerank.cards import api_cards
from r2med.rerank.cards import cards as reranker_cards
from r2med.store.arrays import clear_settings, list_settings
from r2med.store.cache import Cache, home


@click.group("cache", invoke_without_command=True)
@json_option()
@click.pass_context
def cache_command(ctx: click.Context, as_json: bool) -> None:
    """Sizes of what is kept beside the ledger: indexes, vectors, scores, answers of language models, replies of
    search engines.
    """
    if ctx.invoked_subcommand is not None:
        return
    rows = [(kind, "", f"{count} entries", size) for kind, (count, size) in Cache.default().sizes().items()]
    for vectors in list_settings():
        what = f"{vectors.model} ({vectors.role}, {vectors.precision})"
        rows.append(("vectors", what, f"{vectors.texts:,} texts", vectors.bytes))
    for scores in list_settings("scores"):
        what = f"{scores.model} at {scores.server}" if scores.server else scores.model
        rows.append(("scores", what, f"{scores.texts:,} pairs", scores.bytes))
    with _answers() as answers:
        for kept in answers.holdings() if answers is not None else []:
            holds = f"{kept.answers:,} answers{f', {kept.unusable:,} unusable' if kept.unusable else ''}"
            what = f"{kept.model} at {kept.server}" if kept.server else kept.model
            rows.append(("answers", what, holds, kept.bytes))
    for replies in list_settings("replies"):
        if replies.texts:
            rows.append(("replies", "search engines", f"{replies.texts:,} queries", replies.bytes))
    if as_json:
        write_json([{"kind": kind, "what": what, "holds": holds, "bytes": size} for kind, what, holds, size in rows])
        return
    table = Table(Column("kind", key=True), Column("what", folds=True), *numbers("holds", "size"))
    for kind, what, holds, size in rows:
        table.add(kind, what, holds, human_size(size))
    table.show(output())


@contextmanager
def _answers() -> Iterator[ReplyCache | None]:
    """Yield the file of cached answers, if there is one."""
    if not (home() / "llm.sqlite").is_file():
        yield None
        return
    answers = ReplyCache()
    try:
        yield answers
    finally:
        answers.close()


@cache_command.command("clear", short_help="Remove vectors, answers, scores or replies.")
@click.argument("what", required=False, metavar="MODEL|answers|scores|replies")
@click.option("--model", help="Of answers or scores, those of this model.")
@click.option(
    "--unusable", is_flag=True, help="Of answers, those that are empty, refused, filtered, cut or could not be read."
)
@click.option("--yes", is_flag=True, help="Do not ask before answers go that were paid for.")
@click.option("--all", "everything", is_flag=True, help="All vectors of all models, and all indexes.")
def clear(what: str | None, model: str | None, unusable: bool, yes: bool, everything: bool) -> None:
    """Forget the vectors of a model, kept answers, scores or replies of search engines, or with --all every vector
    and index.

    Answers are paid for, and engines may have changed: both go only when they are named, and of answers all that can
    be used only after a question (or with --yes).

    \b
    Examples:
      r2med cache clear minilm
      r2med cache clear answers --unusable
      r2med cache clear answers --model gpt-4o
      r2med cache clear scores
      r2med cache clear replies
    """
    if (what is None) != everything:
        raise click.UsageError("name a model, answers, scores or replies, or say --all")
    if (model is not None and what not in ("answers", "scores")) or (unusable and what != "answers"):
        raise click.UsageError("--model is for answers and scores, --unusable for answers")
    if what == "answers":
        _clear_answers(model or "", unusable, ask=not yes)
    elif what == "scores":
        _clear_scores(model or "")
    elif what == "replies":
        gone = sum(kept.texts for kept in clear_settings(kind="replies"))
        click.echo(f"removed {gone:,} {'reply' if gone == 1 else 'replies'} of search engines")
    else:
        model_ids = {name.lower(): card.id for name, card in encoder_cards().items()}
        for kept in clear_settings(model_ids.get((what or "").lower(), what or "")):
            click.echo(f"removed {kept.texts:,} vectors of {kept.model} ({kept.role}), {human_size(kept.bytes)}")
    if everything:
        shutil.rmtree(Cache.default().root, ignore_errors=True)
        click.echo("removed all indexes")


def _clear_answers(model: str, unusable: bool, *, ask: bool) -> None:
    with _answers() as answers:
        holdings = answers.holdings() if answers is not None else []
        models = {holding.model for holding in holdings}
        name = model
        if name and name not in models:
            with suppress(R2medError):  # the name that the server knows the model by
                name = find_model(name).id
        if name and name not in models:
            raise R2medError(f"no answers of {model!r} are kept{suggest(model, models)}")
        paid = sum(holding.answers for holding in holdings if name in ("", holding.model))
        if paid and ask and not unusable:
            whose = f" of {name}" if name else " of all models"
            click.confirm(f"remove {counted(paid, 'answer')}{whose}, to be paid for again?", abort=True, err=True)
        gone = answers.clear(name, unusable=unusable) if answers is not None else 0
    useless = "unusable " if unusable else ""
    click.echo(f"removed {gone:,} {useless}{'answer' if gone == 1 else 'answers'}{f' of {name}' if name else ''}")


def _clear_scores(model: str) -> None:
    models = {kept.model for kept in list_settings("scores")}
    ids = {name: card.id for name, card in api_cards().items()}
    ids |= {name: card.id for name, card in reranker_cards().items()}
    name = ids.get(model, model)
    if name and name.lower() not in {kept.lower() for kept in models}:
        raise R2medError(f"no scores of {model!r} are kept{suggest(model, models)}")
    gone = sum(kept.texts for kept in clear_settings(name, "scores"))
    click.echo(f"removed {gone:,} {'score' if gone == 1 else 'scores'}{f' of {name}' if name else ''}")
