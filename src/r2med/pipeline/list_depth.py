"""How deep ranked lists go, and what is said of measures that look deeper: those measure the depth, not the system."""

from __future__ import annotations

from collections.abc import Iterable

from r2med.measure.metrics import Measure
from r2med.pipeline.spec import parse
from r2med.runs.ledger import Entry


def shallow_lists(measures: Iterable[Measure], depth: int, documents: int) -> list[str]:
    """The sentence about measures that look deeper than lists of a depth; lists of all documents are as deep as can be.

    >>> shallow_lists([Measure("nDCG", 10), Measure("Recall", 1000)], depth=100, documents=5000)
    ['Recall@1000 measured on lists of 100 documents; give the retriever depth=...']
    """
    deeper = [str(measure) for measure in measures if measure.cutoff is None or measure.cutoff > depth]
    if not deeper or documents <= depth:
        return []
    return [f"{', '.join(deeper)} measured on lists of {depth} documents; give the retriever depth=..."]


def shallow_run(measure: Measure, entry: Entry) -> list[str]:
    """The same for a run of the ledger; nothing where it does not say how deep its lists or how many the documents."""
    depth, documents = _depth(entry), entry.record.documents
    return [] if depth is None or documents is None else shallow_lists([measure], depth, documents)


def _depth(entry: Entry) -> int | None:
    """The depth of the one retriever that is not inside another stage."""
    outer = {str(call) for call in parse(entry.system).calls}
    stages = [stage for stage in entry.record.stages or () if stage.kind == "retriever" and stage.spec in outer]
    depth = stages[-1].settings.get("depth") if stages else None
    return depth if isinstance(depth, int) else None
