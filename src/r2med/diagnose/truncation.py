"""What an encoder never reads: whether the part of a document that matches the answer was cut off.

Only a system whose every retriever is an encoder with a limit can cut anything off; of several the one that reads
furthest counts.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from r2med.data.model import Dataset
from r2med.diagnose.oracle import bare
from r2med.diagnose.terms import Rarity
from r2med.encode.base import Encoder, Role
from r2med.retrieve.dense import Dense
from r2med.retrieve.fusion import Fusion, Views
from r2med.stage import Retriever
from r2med.system import System

MOST = 0.5
"""A document counts as truncated away when more than this share of what it has in common with the answer is cut."""
_WORD_END = re.compile(r"\S(?=\s|$)")


def beyond_reach(system: System, dataset: Dataset, wanted: Mapping[str, Sequence[str]]) -> dict[tuple[str, str], float]:
    """For documents that some encoder reads only in part: how much of what they share with the answer it never reads.

    The share is of weight, each term counted once by its rarity; a term that also stands in what is read is not lost.
    Documents that are read whole, or have no term of the answer, are left out.
    """
    encoders = _encoders(system, dataset)
    names = list(dict.fromkeys(document for documents in wanted.values() for document in documents))
    if not encoders or not names:
        return {}
    texts = [dataset.collection.documents.text(name) for name in names]
    read = [max(prefixes, key=len) for prefixes in zip(*(read_part(each, texts) for each in encoders), strict=True)]
    cut = {name: (part, text) for name, part, text in zip(names, read, texts, strict=True) if len(part) < len(text)}
    rarity = Rarity.of(dataset.collection.documents) if cut else None
    shares: dict[tuple[str, str], float] = {}
    for query, documents in wanted.items():
        for document in documents:
            if rarity is not None and document in cut:
                share = _unread_share(dataset.gold.answers[query], *cut[document], rarity)
                if share is not None:
                    shares[query, document] = share
    return shares


def _encoders(system: System, dataset: Dataset) -> list[Encoder]:
    """The encoders of a system that searches with nothing else, none when one of them reads everything."""
    searching = [stage for stage in bare(system).walk() if isinstance(stage, Retriever)]
    leaves = [stage for stage in searching if not isinstance(stage, Fusion | Views)]
    encoders = [stage.encoder(dataset.task) for stage in leaves if isinstance(stage, Dense)]
    limited = all(encoder.limit(Role.DOCUMENT) for encoder in encoders)
    return encoders if limited and len(encoders) == len(leaves) else []


def _unread_share(answer: str, read: str, text: str, rarity: Rarity) -> float | None:
    shared = rarity.terms(answer) & rarity.terms(text)
    share = rarity.share(shared, rarity.terms(read))
    return None if share is None else 1 - share


def read_part(encoder: Encoder, texts: Sequence[str]) -> list[str]:
    """The longest start of each text, up to the end of a word, that the encoder reads as a document."""
    limit = encoder.limit(Role.DOCUMENT)
    if not limit:
        return list(texts)
    ends = [[0, *(match.end() for match in _WORD_END.finditer(text))] for text in texts]
    fits = [0] * len(texts)
    tokens = encoder.lengths(texts, Role.DOCUMENT).tolist()
    too_long = [len(places) if count > limit else 0 for places, count in zip(ends, tokens, strict=True)]
    # All texts are halved in step, so that the tokenizer is asked about many at a time.
    while open_places := [place for place in range(len(texts)) if too_long[place] - fits[place] > 1]:
        middles = [(fits[place] + too_long[place]) // 2 for place in open_places]
        starts = [texts[place][: ends[place][middle]] for place, middle in zip(open_places, middles, strict=True)]
        counts = encoder.lengths(starts, Role.DOCUMENT).tolist()
        for place, middle, count in zip(open_places, middles, counts, strict=True):
            if count <= limit:
                fits[place] = middle
            else:
                too_long[place] = middle
    return [
        text[: places[fit]] if count > limit else text
        for text, places, fit, count in zip(texts, ends, fits, tokens, strict=True)
    ]
