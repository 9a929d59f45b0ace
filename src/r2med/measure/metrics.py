"""Measures as values: `nDCG@10` parses from and prints to the same string, in the command line, tables and JSON alike.

All of them follow trec_eval: a document is relevant from grade 1 on, nDCG's gain is the grade itself, average precision
divides by all relevant documents, precision by its cutoff. Unjudged and negatively judged documents gain nothing.
alpha-nDCG (as ndeval's, alpha 0.5) and the recall of aspects take the aspects that relevant documents cover.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from r2med.errors import R2medError, suggest

Floats = NDArray[np.float64]
NOVELTY = 0.5  # 1 - alpha: the share that an aspect still gains each time that it is covered again


class AspectGains(NamedTuple):
    """Aspects of one query, a column for each: which of them a document covers."""

    ranked: NDArray[np.bool_]  # a row per rank of the list
    pool: NDArray[np.bool_]  # a row per document that covers any
    weights: Floats

    def gains(self, covered: NDArray[np.bool_], times: NDArray[np.int64]) -> Floats:
        """Return the gain of documents if each aspect was covered so many times before."""
        return np.asarray((covered * self.weights * NOVELTY**times).sum(axis=1))


@dataclass(frozen=True, eq=False)
class Gains:
    """Gains of the ranked lists of queries, a row per query: all that a measure needs to know."""

    found: Floats  # grade of the document at each rank, 0 where it is not relevant or the list has ended
    ideal: Floats  # grades of all relevant documents, best first, padded with 0
    relevant: NDArray[np.int64]  # number of relevant documents, at least 1
    aspects: Sequence[AspectGains] = ()  # those of each query, if a measure needs them

    @property
    def hits(self) -> NDArray[np.bool_]:
        """Return whether the document at each rank is relevant."""
        return np.asarray(self.found > 0)

    def cut(self, depth: int | None) -> Gains:
        """Return the gains with only the first `depth` ranks of both the list and the ideal list."""
        aspects = [query._replace(ranked=query.ranked[:depth]) for query in self.aspects]
        return Gains(self.found[:, :depth], self.ideal[:, :depth], self.relevant, aspects)


def _dcg(gains: Floats) -> Floats:
    return np.asarray((gains / np.log2(np.arange(2, gains.shape[1] + 2))).sum(axis=1))


def _average_precision(gains: Gains, _: int | None) -> Floats:
    hits = gains.hits
    precisions = np.cumsum(hits, axis=1) / np.arange(1, hits.shape[1] + 1)
    return np.asarray(np.where(hits, precisions, 0.0).sum(axis=1) / gains.relevant)


def _reciprocal_rank(gains: Gains, _: int | None) -> Floats:
    hits = gains.hits
    if not hits.shape[1]:
        return np.zeros(len(hits))
    return np.where(hits.any(axis=1), 1.0 / (hits.argmax(axis=1) + 1), 0.0)


def _alpha_ndcg(gains: Gains, cutoff: int | None) -> Floats:
    """Divide the discounted novelty of each list by that of the list that always takes the best document next."""
    values = []
    for query in gains.aspects:
        before: NDArray[np.int64] = np.cumsum(query.ranked, axis=0) - query.ranked
        pool, seen = query.pool, np.zeros(len(query.weights), dtype=np.int64)
        ideal: list[float] = []
        while len(pool) and len(ideal) < (cutoff or 1):
            best = query.gains(pool, seen)
            place = int(best.argmax())
            ideal.append(best[place])
            seen, pool = seen + pool[place], np.delete(pool, place, axis=0)
        values.append(_dcg(query.gains(query.ranked, before)[None])[0] / _dcg(np.array([ideal]))[0])
    return np.array(values)


def _aspect_recall(gains: Gains, _: int | None) -> Floats:
    shares = [query.weights[query.ranked.any(axis=0)].sum() / query.weights.sum() for query in gains.aspects]
    return np.array(shares)


class _Kind(NamedTuple):
    compute: Callable[[Gains, int | None], Floats]
    aliases: tuple[str, ...]
    whole: bool = False  # whether it is also defined without a cutoff, over the whole list
    of_aspects: bool = False


_KINDS: Mapping[str, _Kind] = {
    "nDCG": _Kind(lambda gains, _: _dcg(gains.found) / _dcg(gains.ideal), ("ndcg", "ndcg_cut"), whole=True),
    "MAP": _Kind(_average_precision, ("map", "ap", "map_cut"), whole=True),
    "MRR": _Kind(_reciprocal_rank, ("mrr", "rr", "recip_rank", "mrr_cut", "recip_rank_cut"), whole=True),
    "Recall": _Kind(lambda gains, _: gains.hits.sum(axis=1) / gains.relevant, ("recall", "r")),
    "P": _Kind(lambda gains, cutoff: gains.hits.sum(axis=1) / float(cutoff or 1), ("p", "precision", "prec")),
    "Hit": _Kind(
        lambda gains, _: gains.hits.any(axis=1).astype(float), ("hit", "hits", "hit_rate", "success", "accuracy")
    ),
    "alpha-nDCG": _Kind(_alpha_ndcg, ("alpha-ndcg", "alpha_ndcg"), of_aspects=True),
    "aspect-recall": _Kind(_aspect_recall, ("aspect-recall", "aspect_recall", "strec", "strecall"), of_aspects=True),
}
_NAMES: Mapping[str, str] = {alias: name for name, kind in _KINDS.items() for alias in kind.aliases}


@dataclass(frozen=True, repr=False)
class Measure:
    """Measure and its cutoff.

    >>> Measure("nDCG@10"), Measure.parse("ndcg_cut_10"), Measure("Recall", 5)
    (Measure('nDCG@10'), Measure('nDCG@10'), Measure('Recall@5'))
    >>> str(Measure.parse("recall_at_100")), str(Measure("MAP"))
    ('Recall@100', 'MAP')
    """

    name: str
    cutoff: int | None = None  # number of documents of each list that count; None for all of them

    def __post_init__(self) -> None:
        if not isinstance(self.name, str):
            raise R2medError(f"a measure is a text such as 'nDCG@10', not {self.name!r}")
        if self.cutoff is None and self.name not in _KINDS:
            parsed = Measure.parse(self.name)
            object.__setattr__(self, "name", parsed.name)
            object.__setattr__(self, "cutoff", parsed.cutoff)
        if self.name not in _KINDS:
            raise R2medError(f"unknown measure {self.name!r}{suggest(self.name, _KINDS)}")
        if self.cutoff is None and not _KINDS[self.name].whole:
            raise R2medError(f"{self.name} needs a cutoff, such as {self.name}@10")
        if self.cutoff is not None and (type(self.cutoff) is not int or self.cutoff < 1):
            raise R2medError(f"{self.name}@{self.cutoff}: the cutoff must be a whole number from 1 on")

    @classmethod
    def parse(cls, text: str) -> Measure:
        """Parse a measure in any usual spelling: nDCG@10, ndcg_at_10, ndcg_cut.10, recip_rank, Success@5."""
        plain = text.strip().lower()
        if plain in _NAMES:
            return cls(_NAMES[plain])
        # At the @ if there is one, else at the last mark between words.
        match = re.fullmatch(r"([^@]*)@(.*)", plain) or re.fullmatch(r"(.+?)(?:_at)?[_.]([^_.]*)", plain)
        name, cutoff = map(str.strip, match.groups() if match else (plain, ""))
        if name not in _NAMES:
            tail = f"@{cutoff}" if cutoff else ""
            near = [known + (tail or ("" if kind.whole else "@10")) for known, kind in _KINDS.items()]
            raise R2medError(f"unknown measure {text!r}{suggest(plain, near)}")
        if not re.fullmatch(r"[0-9]{1,9}", cutoff):
            raise R2medError(f"{text!r}: the cutoff must be a whole number from 1 on, as in {_NAMES[name]}@10")
        return cls(_NAMES[name], int(cutoff))

    def __str__(self) -> str:
        return self.name if self.cutoff is None else f"{self.name}@{self.cutoff}"

    def __repr__(self) -> str:
        return f"Measure({str(self)!r})"

    @property
    def of_aspects(self) -> bool:
        """Return whether it is computed from the aspects of judgements."""
        return _KINDS[self.name].of_aspects

    def values(self, gains: Gains) -> Floats:
        """Return its value for each query."""
        return _KINDS[self.name].compute(gains.cut(self.cutoff), self.cutoff)


def parse_all(texts: Iterable[str]) -> tuple[Measure, ...]:
    """Parse measures in the order they are named, each once.

    >>> parse_all(["ndcg@10", "MAP", "nDCG@10"])
    (Measure('nDCG@10'), Measure('MAP'))
    """
    return tuple(dict.fromkeys(map(Measure.parse, texts)))


DEFAULT = tuple(Measure.parse(text) for text in ("nDCG@10", "Recall@100", "MAP@100", "MRR@10", "Hit@10", "P@10"))
"""The default measures; the first is the headline."""
