"""Which joins an expander may ask for; how they are done is the retriever's business."""

from __future__ import annotations

from r2med.errors import SpecError
from r2med.retrieve.joining import query_copies


def check_join(stage: str, join: str) -> None:
    """Refuse a join that no retriever knows; whether the retriever that follows knows it is its own business."""
    if join not in ("", "mean"):
        try:
            query_copies(join)
        except SpecError as error:
            raise SpecError(f'{stage}: join must be replace, concat, mean or "repeat(n)", not {join!r}') from error
