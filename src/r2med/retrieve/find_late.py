"""From a folder to late interaction: `./DIR` alone means `colbert(./DIR)` where the folder gives each token a vector.

A name is recognised without the code of late interaction, for most names that are asked about are those of encoders.
"""

from __future__ import annotations

from r2med.encode.late_cards import source_is_late
from r2med.models.source import folder_is
from r2med.pipeline.registry import bind, named
from r2med.pipeline.spec import Call
from r2med.pipeline.stage import Retriever


def find_late(call: Call) -> Retriever | None:
    """The stage of a call whose name is the folder of a late-interaction model, or None."""
    if not folder_is(call.name, source_is_late):
        return None
    kind: type[Retriever] = named("r2med.retrieve.colbert:ColBERT")
    return bind(kind, Call("colbert", (call.name, *call.args), call.options))
