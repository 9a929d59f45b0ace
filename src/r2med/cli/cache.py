"""`r2med cache`: what is kept on disk, and how to let go of it."""

from __future__ import annotations

import click

from r2med.cli.options import json_option, output, write_json


@click.group("cache", invoke_without_command=True)
@json_option()
@click.pass_context
def command(ctx: click.Context, as_json: bool) -> None:
    """Sizes of what is kept beside the ledger: indexes, vectors by model, answers of language models."""
    if ctx.invoked_subcommand is not None:
        return
    from r2med.doctor import human
    from r2med.encode.store import sizes
    from r2med.store.cache import Cache

    rows = [(kind, "", f"{count} entries", size) for kind, (count, size) in Cache.default().sizes().items()]
    rows += [
        ("vectors", f"{each.model} ({each.role}, {each.precision})", f"{each.texts:,} texts", each.bytes)
        for each in sizes()
    ]
    if as_json:
        write_json([{"kind": kind, "what": what, "holds": holds, "bytes": size} for kind, what, holds, size in rows])
        return
    from r2med.render.grid import Column, Table, numbers

    table = Table(Column("kind", key=True), Column("what", folds=True), *numbers("holds", "size"))
    for kind, what, holds, size in rows:
        table.add(kind, what, holds, human(size))
    table.show(output())


@command.command("clear")
@click.argument("model", required=False)
@click.option("--all", "everything", is_flag=True, help="All vectors of all models, and all indexes.")
def clear(model: str | None, everything: bool) -> None:
    """Forget the vectors of a model, or with --all everything that can be computed again."""
    import shutil

    from r2med.doctor import human
    from r2med.encode.store import clear as clear_vectors
    from r2med.store.cache import Cache

    if (model is None) != everything:
        raise click.UsageError("name a model, or say --all")
    removed = clear_vectors(model or "")
    for each in removed:
        click.echo(f"removed {each.texts:,} vectors of {each.model} ({each.role}), {human(each.bytes)}")
    if everything:
        shutil.rmtree(Cache.default().root, ignore_errors=True)
        click.echo("removed all indexes")
