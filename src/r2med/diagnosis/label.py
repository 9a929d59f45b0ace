"""`r2med label`: queries sorted into classes by a language model."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from r2med.cli.execution import asking, asking_options
from r2med.cli.options import ManyValues, json_option, write_json
from r2med.data.labels import write_labels
from r2med.data.loader import load
from r2med.data.problems import Findings
from r2med.data.tasks import resolve
from r2med.data.texts import read_queries
from r2med.diagnosis.labelling import Labelled, counts, label_queries, scheme
from r2med.errors import R2medError
from r2med.llm.cards import find_model
from r2med.pipeline.executor.local import every_share, postponed_as

if TYPE_CHECKING:
    from r2med.data.dataset import Texts


@click.command("label", cls=ManyValues)
@click.argument("queries", nargs=-1, required=True, metavar="QUERIES...")
@click.option("--by", default="body-system", show_default=True, metavar="SCHEME|FILE.toml", help="Into which classes.")
@click.option("--llm", required=True, metavar="MODEL", help="Such as gpt-4o, NAME@http://host:port/v1 or local.")
@click.option("--out", required=True, type=click.Path(path_type=Path, dir_okay=False), help="The table to write.")
@asking_options
@json_option()
def label_command(queries: tuple[str, ...], by: str, llm: str, out: Path, as_json: bool, **settings: Any) -> None:
    """Sort queries into classes by a language model, for r2med diagnose --slices --labels.

    QUERIES are tasks, groups, folders, or a file of queries (query.jsonl). The table has a line for each query that
    the model named exactly one class for; the others are counted, never guessed. Answers are kept, so that the same
    command asks for what is missing only. A file of your own has classes = ["...", "..."], and a prompt with {classes}
    and {query} in it where the usual one does not say enough.

    \b
    Examples:
      r2med label sample --by body-system --llm gpt-4o --out body_system.tsv
      r2med label sample --by urgency.toml --llm gpt-4o --out urgency.tsv
    """
    chosen, model = scheme(by), find_model(llm)
    rows: list[tuple[str, str, str]] = []
    lost: dict[str, dict[str, str]] = {"unparsable": {}, "failed": {}}
    money: float | None = 0.0
    with asking(**settings) as executor:

        def ask_about(task: str, texts: Texts) -> tuple[str, Labelled]:
            name = task or "queries"
            with executor.progress(f"label {name}", len(texts)) as bar, postponed_as(name):
                return task, label_queries(texts, chosen, model, bar)

        labelled = every_share(partial(ask_about, *each) for each in _texts(queries))
    for task, found in labelled:
        rows += [(task, query, label) for query, label in found.labels.items()]
        prefix = f"{task} " if task else ""
        lost["unparsable"] |= {prefix + query: said for query, said in found.unparsable.items()}
        lost["failed"] |= {prefix + query: why for query, why in found.failed.items()}
        money = None if money is None or found.account.cost is None else money + found.account.cost
    if not rows:
        (query, why), *others = (lost["unparsable"] | lost["failed"]).items()
        raise R2medError(
            f"none of {len(others) + 1:,} queries got a label, so that {out} is not written;"
            f" the first is {query}: {why!r}"
        )
    write_labels(out, rows)
    summary = counts((label for _, _, label in rows), chosen.classes)
    if as_json:
        write_json({"labels": summary, **lost, "cost": money, "file": str(out)})
        return
    for label, count in summary.items():
        click.echo(f"{count:6,}  {label}")
    for what, queries_lost in lost.items():
        if queries_lost:
            first, said = next(iter(queries_lost.items()))
            click.echo(f"{len(queries_lost):6,}  {what}, the first {first}: {said!r}")
    price = "at an unknown price" if money is None else f"for ${money:.4f}"
    click.echo(f"{len(rows)} labels are in {out}, {price}", err=True)


def _texts(names: tuple[str, ...]) -> Iterator[tuple[str, Texts]]:
    """Yield the queries of each task, or of each file, which belongs to no task."""
    for name in names:
        if Path(name).is_file():
            found = Findings()
            table = read_queries([Path(name)], found)
            found.raise_errors(name)
            yield "", table.column()
        else:
            for task in resolve([name]):
                yield task.name, load(task).collection.queries
