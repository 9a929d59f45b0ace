"""How much of one text stands in another, each word weighted by how rare it is among the documents."""

from __future__ import annotations

import math
from collections.abc import Iterable, Set
from functools import cached_property

from r2med.data.dataset import Texts
from r2med.pipeline.engine import Engine, quiet
from r2med.pipeline.stage import Context
from r2med.retrieve.bm25 import open_index
from r2med.retrieve.bm25_scorer import Scorer
from r2med.retrieve.inverted_index import InvertedIndex
from r2med.storage.cache import Cache
from r2med.text import analyze


class Rarity:
    """The idf of terms in a collection: that of BM25, from the same cached index.

    >>> rarity = Rarity.of(Texts(["a", "b"], ["scurvy and gums", "gums bleed"]))
    >>> rarity.idf("scurvi") > rarity.idf("gum") > 0
    True
    >>> rarity.coverage("gums?", "Gums bleed."), rarity.coverage("the", "gums")
    (1.0, None)
    """

    def __init__(self, index: InvertedIndex) -> None:
        self.index = index
        self._known: dict[str, float] = {}

    @classmethod
    def of(cls, documents: Texts, engine: Engine | None = None) -> Rarity:
        """The rarity of terms among some documents; their index is built when it is not there."""
        return cls(open_index(documents, Context(Cache.default(), engine or quiet())))

    @cached_property
    def _scorer(self) -> Scorer:
        return Scorer(self.index, 0.9, 0.4)

    def idf(self, term: str) -> float:
        """How rare a term is; one that no document holds is rarer than all others."""
        if term not in self._known:
            number = self.index.number(term)
            unheard = math.log(len(self.index.lengths) + 1.0) - math.log(0.5)
            self._known[term] = self._scorer.idf(number) if number >= 0 else unheard
        return self._known[term]

    def weight(self, terms: Iterable[str]) -> float:
        """The sum of the idf of different terms."""
        return math.fsum(self.idf(term) for term in set(terms))

    @staticmethod
    def terms(text: str) -> frozenset[str]:
        """The different terms of a text."""
        return frozenset(analyze(text))

    def share(self, terms: Set[str], others: Set[str]) -> float | None:
        """The share of the terms' weight that is among the others, from 0 to 1; None where there are no terms."""
        whole = self.weight(terms)
        return min(1.0, self.weight(terms & others) / whole) if whole > 0 else None

    def coverage(self, text: str, other: str) -> float | None:
        """The share of a text's weight whose terms stand in the other; None for a text without terms."""
        return self.share(self.terms(text), self.terms(other))
