"""From a call to a reranker that has no stage name of its own: a card, `ce:ORG/NAME`, a folder, a user's class.

A name is recognised without the code of any reranker, for most names that are asked about are those of encoders.
"""

from __future__ import annotations

from typing import Any

from r2med.models.user_class import import_class, is_class
from r2med.pipeline.registry import bind, named
from r2med.pipeline.spec import Call
from r2med.pipeline.stage import Reranker
from r2med.rerank.reranker_cards import PREFIX, cards, folder_is_reranker
from r2med.storage.files import expanded


def find_reranker(call: Call) -> Reranker | None:
    """The reranker of a call whose name is a reranker's, or None.

    >>> str(find_reranker(Call("monobert", (), (("depth", 10),)))), find_reranker(Call("bge"))
    ('monobert(depth=10)', None)
    """
    name = call.name
    if name in cards() or name.startswith(PREFIX) or _holds_reranker(name):
        kind: type[Reranker] = named("r2med.rerank.cross_encoder:CrossEncoder")
        return bind(kind, Call(name, (name, *call.args), call.options))
    if is_class(name) and scores_pairs(import_class(name)):
        found: Reranker = named("r2med.rerank.user_reranker:OwnReranker").from_call(call)
        return found
    return None


def _holds_reranker(name: str) -> bool:
    folder = expanded(name)
    return folder.is_dir() and folder_is_reranker(folder)


def scores_pairs(kind: Any) -> bool:
    """Whether a class has the one method of a reranker."""
    return callable(getattr(kind, "score", None))
