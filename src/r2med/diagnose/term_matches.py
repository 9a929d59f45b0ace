"""Which terms made a learned sparse encoder find a document, read from the vectors that it kept."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import lru_cache

from r2med.data.dataset import Texts
from r2med.diagnose.loaded_runs import LoadedRun
from r2med.errors import R2medError
from r2med.pipeline.registry import build_system
from r2med.retrieve.sparse import MatchedTerm, Splade


@lru_cache(maxsize=16)
def _sparse_stage(spec: str) -> Splade | None:
    """The first learned sparse encoder of a system, also inside other stages; None where there is none."""
    try:
        return next((stage for stage in build_system(spec).walk() if isinstance(stage, Splade)), None)
    except R2medError:
        return None


def matched_terms(opened: LoadedRun, query: str, documents: Sequence[str]) -> Mapping[str, Sequence[MatchedTerm]]:
    """For each document the terms that the query shares with it, the weightiest first.

    Nothing for a system without a learned sparse encoder, and for texts whose vectors are no longer kept.
    """
    stage = _sparse_stage(opened.entry.system)
    if stage is None:
        return {}
    collection = opened.dataset.collection
    made = tuple(opened.generations.get(query, ()))
    asked = replace(collection, queries=Texts([query], [collection.queries.text(query)]), generations=(made,))
    try:
        return stage.matches(asked, query, documents)
    except R2medError:
        return {}
