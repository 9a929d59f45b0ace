"""The end of every expander: its texts go to the collection, and what is missing is counted."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from r2med.errors import R2medError

if TYPE_CHECKING:
    from r2med.data.model import Collection, Generation
    from r2med.stage import Context, Stage


CUT = "the text was cut by max_tokens"


def keep(
    stage: Stage,
    collection: Collection,
    rows: Sequence[Sequence[Generation]],
    context: Context,
    cut: Sequence[int] = (),
) -> Collection:
    """The collection with these generations, one row a query.

    A query without a usable text is searched with its own; one whose text was cut by the limit on its length is
    searched with what there is of it (`cut` counts such texts a query). Both are incomplete: they are counted, and an
    error where the context is strict.
    """
    ids = collection.queries.ids
    reasons = {query: _reason(row) for query, row in zip(ids, rows, strict=True)}
    for query, row, count in zip(ids, rows, cut or [0] * len(ids), strict=True):
        if count and not reasons[query]:
            reasons[query] = CUT if len(row) == 1 else f"{count} of {len(row)} samples: {CUT}"
    if any(cut):
        total = sum(map(len, rows))
        context.warn(f"{stage}: {sum(cut)} of {total} texts were cut by max_tokens; give the stage a larger one")
    incomplete = {query: reason for query, reason in reasons.items() if reason}
    context.notes.incomplete |= incomplete
    if incomplete and context.strict:
        query, reason = next(iter(incomplete.items()))
        raise R2medError(
            f"{stage}: {len(incomplete)} of {len(ids)} queries are incomplete, and strict was asked for;"
            f" the first is {query}: {reason}"
        )
    return collection.expanded(rows)


def _reason(row: Sequence[Generation]) -> str:
    """Why a query is incomplete; with several samples, how many of them."""
    reasons = [generation.incomplete for generation in row if generation.incomplete]
    if not reasons or len(row) == 1:
        return reasons[0] if reasons else ""
    return f"{len(reasons)} of {len(row)} samples: {reasons[0]}"
