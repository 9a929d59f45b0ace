"""`r2med audit`: whether labels can be trusted, and how results change under other labels."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from r2med.audit.label_sets import ReviewedLabels
from r2med.audit.study import AuditOptions, audit
from r2med.audit.tables import sections, stability_chart
from r2med.cli.options import ManyValues, json_option, near_option, remark, write_json
from r2med.data.loader import load
from r2med.measure.metrics import Measure
from r2med.pipeline.registry import named
from r2med.render.charts.files import check_chart_file, save
from r2med.render.sections import write_sections
from r2med.runs.ledger import Ledger


@click.command("audit", cls=ManyValues)
@click.argument("task")
@click.option(
    "--labels",
    multiple=True,
    required=True,
    metavar="task|FILE|review:NAME...",
    help="Label sets: `task` (its own), files of judgements or of reviewers, a review, one of its reviewers"
    " (review:NAME:REVIEWER) or each of them (review:NAME:*), `duplicates` (unjudged copies of relevant documents).",
)
@click.option("--systems", multiple=True, metavar="RUN...", help="Systems or runs (default: the ten best here).")
@click.option("--measure", default="nDCG@10", show_default=True, metavar="MEASURE", help="What systems are scored by.")
@click.option("--binary", is_flag=True, help="Count every grade from 1 on as 1.")
@click.option("--fill", "filled", is_flag=True, help="Count pairs that only one set judges as 0 in the other.")
@click.option("--overlay", "overlaid", is_flag=True, help="Score by the first set as corrected by the other.")
@click.option("--holes", is_flag=True, help="Only fill what the first set does not judge, by the other.")
@near_option()
@click.option("--plot", type=click.Path(path_type=Path), metavar="FILE", help="Draw how stable the order is.")
@click.option("--format", "form", type=click.Choice(["md", "latex"]), help="Write Markdown or LaTeX.")
@json_option()
def audit_command(
    task: str, labels: tuple[str, ...], plot: Path | None, form: str | None, as_json: bool, **given: Any
) -> None:
    """Can the labels of a task be trusted, and what changes if not?

    Label sets are compared on the pairs of a question and a document that two of them judged: raw agreement,
    kappas, Krippendorff's alpha, Gwet's AC1 and AC2, each with a 95% interval over questions, and which grades are
    given for which. Every system is scored under both sets: the change, who changes places, which
    conclusions of `compare` flip, how much of the first ten nobody judged, and how often the order would stay if
    labels were wrong as often as the two sets disagree. The first set is A, every other one is compared with it.

    A set that lists relevant documents only (as R2MED's) has few pairs in common with another: --fill counts what
    it does not list as 0. A review of some pairs is not a full set: --overlay scores by A, corrected by it. Where one
    set has more grades than another, --binary counts only relevant or not. With --holes, the other set says only what
    A does not: documents at the top of a list that nobody judged, and the scores before and after.

    Relevant documents that look wrong are counted: one word, links only, HTML that was cut, texts that documents
    without a judgement repeat. `--labels task duplicates --holes` scores as if these were judged as what they repeat.

    \b
    Examples:
      r2med audit sample/Biology --labels task review:pilot --holes --binary
      r2med audit sample/Biology --labels "review:pilot:*"
      r2med audit sample/Biology --labels task --labels review.csv --overlay
      r2med audit sample/Biology --labels task second.qrels --fill --systems bm25 wordllama
      r2med audit sample/Biology --labels reviewers.csv --format md
      r2med audit path/to/folder --labels task duplicates --holes --near 0.9
    """
    if as_json and form:
        raise click.UsageError("--json and --format exclude each other")
    if given["holes"] and (given["filled"] or given["overlaid"]):
        raise click.UsageError("--holes goes with neither --fill nor --overlay")
    if given["filled"] and given["overlaid"]:
        # What only the first set judges would become 0 in the other, and that 0 would correct the first.
        raise click.UsageError("--fill and --overlay exclude each other: a filled 0 would correct the first set")
    measure = Measure.parse(given.pop("measure"))
    if plot is not None:
        check_chart_file("--plot", plot)
    dataset = load(task)
    sources: list[str] = []
    reviewed: dict[str, ReviewedLabels] = {}
    for source in labels:
        read = named(_REVIEWS)(source, dataset.name) if source.startswith("review:") else {}
        sources += read or [source]
        reviewed |= read
    with Ledger() as ledger:
        result = audit(ledger, dataset, sources, AuditOptions(measure, **given), reviewed)
    remark(result.notes)
    if as_json:
        write_json(result.as_dict())
    else:
        write_sections(form, f"Audit of the labels of {dataset.name}", sections(result), result.notes)
    if plot:
        save(stability_chart(result), plot)
        click.echo(f"the figure is in {plot}", err=True)


_REVIEWS = "r2med.reviews.labels:labels_by_source"  # by name: reviews import audits, not the other way round
