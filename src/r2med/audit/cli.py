"""`r2med audit`: whether labels can be trusted, and how results change under other labels."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
import numpy as np

from r2med.audit.corrected_scores import (
    JudgeLabels,
    SavedCorrection,
    check_pool,
    correct_scores,
    plan_widths,
    read_judge,
)
from r2med.audit.corrected_tables import corrected_sections, planned_section
from r2med.audit.correction import HolePool
from r2med.audit.label_sets import ReviewedLabels
from r2med.audit.study import AuditOptions, audit
from r2med.audit.tables import sections, stability_chart
from r2med.cli.execution import asking, asking_options
from r2med.cli.options import ManyValues, json_option, near_option, remark, typed_command, write_json
from r2med.data.loader import load
from r2med.measure.metrics import Measure
from r2med.measure.score import positive
from r2med.pipeline.named_runs import select
from r2med.pipeline.registry import named
from r2med.render.charts.files import check_chart_file, save
from r2med.render.sections import write_sections
from r2med.runs.ledger import Ledger
from r2med.runs.selection import check_data

if TYPE_CHECKING:
    from r2med.llm.budget import Estimate


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


@click.command("correct", cls=ManyValues)
@click.argument("systems", nargs=-1, required=True, metavar="SYSTEM...")
@click.option("--task", required=True, metavar="TASK", help="The task that the systems were run on.")
@click.option(
    "--judge", "judges", multiple=True, metavar="LLM|FILE...", help="Who labels holes: a model, or a file of labels."
)
@click.option("--people", default="", metavar="review:NAME", help="The review with people's labels of a random part.")
@click.option("--measure", default="nDCG@10", show_default=True, metavar="MEASURE", help="What systems are scored by.")
@click.option("--plan", "planned", is_flag=True, help="Only say how many human labels give which interval.")
@click.option(
    "--repeat", type=click.IntRange(1), default=1, metavar="N", help="Ask a model N times, for its own noise."
)
@click.option("--dry-run", is_flag=True, help="Ask nothing; show what asking would take.")
@click.option("--max-cost", type=click.FloatRange(0), metavar="DOLLARS", help="Stop before more than this is spent.")
@click.option("--max-tokens", type=click.IntRange(0), help="Stop before more tokens are used, read and written.")
@click.option("--format", "form", type=click.Choice(["md", "latex"]), help="Write Markdown or LaTeX.")
@asking_options
@json_option()
def correct_command(
    systems: tuple[str, ...], task: str, judges: tuple[str, ...], people: str, measure: str, planned: bool, repeat: int,
    dry_run: bool, form: str | None, as_json: bool, **settings: Any,
) -> None:  # fmt: skip
    """Score systems as published, with holes filled by a judge, and corrected by a few labels of people.

    A document that a task does not judge (a hole) counts as not relevant, so that what a new system finds is held
    against it. A judge, which is a language model or a file of labels, fills all holes among the first documents of the
    systems; people judge a few that a review drew at random, and these correct the judge. Each of the three scores has
    a 95% interval, and the order under each says which places are tied. The corrected interval holds how little was
    judged; the judge may be wrong.

    The review must have drawn at random, from all systems named here, and be finished. A model is asked as by
    `review judge`, by the guideline and scale of the review; with two judges, the second is compared with the first.

    \b
    Examples:
      r2med correct bm25 wordllama --task sample/Biology --plan
      r2med review new holes --queue random --items 200 --from sample/Biology bm25 wordllama
      r2med correct bm25 wordllama --task sample/Biology --people review:holes
      r2med correct bm25 wordllama --task sample/Biology --people review:holes --judge gpt-4o --repeat 3
    """
    if as_json and form:
        raise click.UsageError("--json and --format exclude each other")
    if people and not people.startswith("review:"):
        raise click.UsageError(
            f"--people takes a review, which knows how pairs were drawn: review:NAME, not {people!r}"
        )
    if len(judges) > 2:
        raise click.UsageError("--judge takes one judge, or two to be compared")
    dataset = load(task)
    with Ledger() as ledger:
        named_runs = {system.label: system.runs[dataset.name] for system in select(ledger, systems, [dataset.name])}
        for entry in named_runs.values():
            check_data(entry, dataset)
        runs = {label: ledger.run(entry) for label, entry in named_runs.items()}
    qrels = dataset.gold.qrels
    judged = {query: qrels[query] for query in positive(qrels)}
    pool = HolePool.of(judged, runs, Measure.parse(measure))
    check_pool(pool)
    sample = named(_RANDOM)(people, dataset) if people else None
    pairs = [pool.pairs[place] for place in pool.holes]
    labels: list[JudgeLabels] = []
    with asking(dry_run=dry_run, **settings) as executor:
        models = {
            name: named(_PAIRS)(name, people, dataset, pairs, repeat) for name in judges if not Path(name).is_file()
        }
        if dry_run:
            estimates = [model.estimate() for model in models.values()]
            if not estimates:
                raise click.UsageError("--dry-run prices a model: add --judge LLM")
            _show_price(sum(estimates[1:], estimates[0]), as_json)
            return
        for name in judges:
            replies = models[name].judge(executor) if name in models else [read_judge(name, pairs)]
            labels.append(JudgeLabels(name, np.array(replies)))
    names = {label: entry.name for label, entry in named_runs.items()}
    if planned:
        widths = plan_widths(pool, labels[0] if labels else None, sample, names)
        if as_json:
            write_json(widths)
        else:
            write_sections(form, f"Human labels for {dataset.name}", [planned_section(widths, str(pool.measure))])
        return
    specs = {label: entry.system for label, entry in named_runs.items()}
    result = correct_scores(dataset.name, pool, labels, sample, names, specs)
    SavedCorrection(typed_command(), result).save()
    remark(result.notes)
    if as_json:
        write_json(result.as_dict())
    else:
        write_sections(form, f"Corrected scores on {dataset.name}", corrected_sections(result), result.notes)


def _show_price(estimate: Estimate, as_json: bool) -> None:
    if as_json:
        write_json(estimate)
        return
    cost = "unknown" if estimate.cost is None else f"about ${estimate.cost:.4f}"
    click.echo(f"{estimate.requests:,} requests, {estimate.cached:,} answered already; cost: {cost}")


_RANDOM, _PAIRS = "r2med.reviews.labels:random_labels", "r2med.reviews.model:judge_of_pairs"
_REVIEWS = "r2med.reviews.labels:labels_by_source"  # by name: reviews import audits, not the other way round
