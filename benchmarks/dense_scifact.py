"""all-MiniLM-L6-v2 on the whole of SciFact: nDCG@10, which MTEB has at 0.645.

    python benchmarks/dense_scifact.py [SPEC ...] [--data FOLDER]

Each SPEC is a system; `minilm` and its int8 form by default. Vectors are kept in R2MED_HOME, so a run that was
stopped goes on where it was, and a second one takes a moment. Needs the extras torch, onnx and minilm.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path

import click

SHARED = Path(__file__).resolve().parents[2] / "shared" / "data"
EXPECTED, WITHIN = 0.645, 0.005
DEFAULT = ("minilm", "minilm(dtype=int8)")


@click.command()
@click.argument("specs", nargs=-1)
@click.option("--data", default=SHARED / "scifact", type=click.Path(path_type=Path))
def main(specs: tuple[str, ...], data: Path) -> None:
    """Print a line for each system; the exit status is 1 when the first is not where it should be."""
    import r2med

    first = None
    for spec in specs or DEFAULT:
        started = time.perf_counter()
        report = r2med.evaluate(spec, data)
        if report.failures:
            raise click.ClickException(report.failures[0].message)
        score = report.results[0].metrics["nDCG@10"]
        first = score if first is None else first
        print(f"{spec:28}  nDCG@10 {score:.4f}  {time.perf_counter() - started:7.1f} s", flush=True)
    sys.exit(int(first is None or abs(first - EXPECTED) > WITHIN))


if __name__ == "__main__":
    main()
