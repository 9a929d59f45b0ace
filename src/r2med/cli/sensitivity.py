"""`r2med sensitivity`: how a system's figure moves with the number of tokens that its models read."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from r2med.cli.asking import asking, asking_options
from r2med.cli.options import ManyValues, json_option, output, write_json
from r2med.data.tasks import resolve
from r2med.diagnose.truncation import measure_sensitivity
from r2med.errors import require_extra
from r2med.measure.metrics import DEFAULT, Measure
from r2med.pipeline.evaluate import Options
from r2med.render.plots import ENDINGS, save
from r2med.render.truncation_tables import sensitivity_chart, show_sensitivity

if TYPE_CHECKING:
    Lengths = click.ParamType[tuple[int, ...]]
else:
    Lengths = click.ParamType


class LengthList(Lengths):
    """Numbers of tokens with commas between them: 512,2048,8192."""

    name = "lengths"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> tuple[int, ...]:
        """The numbers."""
        if isinstance(value, tuple):
            return value
        try:
            found = tuple(int(part) for part in str(value).split(","))
        except ValueError:
            self.fail(f"{value!r} is not a list of whole numbers such as 512,2048", param, ctx)
        if min(found) < 1:
            self.fail(f"a model reads at least 1 token, not {min(found)}", param, ctx)
        return found


@click.command("sensitivity", cls=ManyValues)
@click.argument("system")
@click.option(
    "--max-length",
    "lengths",
    type=LengthList(),
    multiple=True,
    required=True,
    metavar="N,N...",
    help="The limits, in tokens.",
)
@click.option("--tasks", multiple=True, metavar="NAME|GROUP|PATH...", help="What to run on (default: sample).")
@click.option("--metric", default="nDCG@10", show_default=True, metavar="MEASURE", help="The figure.")
@click.option("--plot", type=click.Path(path_type=Path, dir_okay=False), metavar="FILE", help="Draw the curves.")
@asking_options
@json_option()
def command(
    system: str,
    lengths: tuple[tuple[int, ...], ...],
    tasks: tuple[str, ...],
    metric: str,
    plot: Path | None,
    as_json: bool,
    **hard: Any,
) -> None:
    """How does a figure move with truncation?

    The system is run at every limit, set in each of its stages that has one (encoders, cross-encoders), and compared
    with the longest limit, paired by query: the difference with its 95% interval, the p-value after Holm over the
    limits, and the share of texts that were cut. Runs are kept in the ledger. A limit that a model cannot read is
    said and left out.

    \b
    Examples:
      r2med sensitivity wordllama --max-length 16,64,256 --tasks sample/Biology sample/MedQA-Diag
      r2med sensitivity diver --max-length 512,2048,8192 --tasks full --plot diver.svg
    """
    if plot is not None:
        require_extra("plots", "matplotlib")
        if plot.suffix.lower() not in ENDINGS:
            raise click.UsageError(f"--plot must end in {', '.join(ENDINGS)}")
    measure = Measure.parse(metric)
    every = [length for several in lengths for length in several]
    with asking(**hard) as engine:
        options = Options(measures=tuple(dict.fromkeys([measure, *DEFAULT])), shown=(measure,), engine=engine)
        found = measure_sensitivity(system, every, resolve(tasks or ("sample",)), measure, options)
    if as_json:
        write_json(found.as_dict())
    else:
        show_sensitivity(found, output())
    if plot is not None:
        save(sensitivity_chart(found), plot)
        click.echo(f"the figure is in {plot}", err=True)
