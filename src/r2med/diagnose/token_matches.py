"""Which tokens made a late-interaction model score a document as it did, read from the vectors that it kept."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache

from r2med.diagnose.loaded_runs import LoadedRun
from r2med.encode.late_interaction import LateInteraction
from r2med.encode.token_alignment import TokenMatch, align
from r2med.errors import R2medError
from r2med.pipeline.registry import build_system
from r2med.retrieve.colbert import ColBERT
from r2med.retrieve.query_text import joined_text


@lru_cache(maxsize=16)
def _late_stage(spec: str) -> LateInteraction | None:
    """The last late-interaction model of a system, also inside other stages; None where there is none."""
    try:
        return next((stage for stage in [*build_system(spec).walk()][::-1] if isinstance(stage, LateInteraction)), None)
    except R2medError:
        return None


def matched_tokens(opened: LoadedRun, query: str, documents: Sequence[str]) -> Mapping[str, Sequence[TokenMatch]]:
    """For each document the best match of every token of the query.

    Nothing for a system without a late-interaction model, and for texts whose vectors are no longer kept.
    """
    stage = _late_stage(opened.entry.system)
    if stage is None:
        return {}
    collection = opened.dataset.collection
    text = collection.queries.text(query)
    if isinstance(stage, ColBERT):
        text = joined_text(text, opened.generations.get(query, ()), stage.join)
    try:
        return align(stage.encoder, text, {name: collection.documents.text(name) for name in documents}, stage.store)
    except R2medError:
        return {}
