"""Documents that an encoder can read: those with any text."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from r2med.data.dataset import Texts
from r2med.data.rows import shorten
from r2med.errors import R2medError, counted

if TYPE_CHECKING:
    from r2med.data.dataset import Collection
    from r2med.pipeline.stage import Context


def searchable(collection: Collection, context: Context) -> Collection:
    """The collection without the documents that have no text, for those have no vector; how many is said."""
    documents = with_text(collection.documents)
    empty = len(collection.documents) - len(documents)
    if not empty:
        return collection
    if not len(documents):
        raise R2medError(f"{collection.task.name}: no document has any text")
    first = next(name for name in collection.documents.ids if name not in documents.position)
    context.warn(f"{counted(empty, 'document')} without text cannot be found by vectors, the first {shorten(first)!r}")
    return replace(collection, documents=documents)


def with_text(documents: Texts) -> Texts:
    """The documents that are not empty or blank."""
    empty = [place for place, text in enumerate(documents.texts) if not text or text.isspace()]
    return documents.without(empty) if empty else documents
