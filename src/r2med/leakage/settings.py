"""What counts as the same text."""

from __future__ import annotations

from dataclasses import dataclass

from r2med.errors import R2medError, suggest

METHODS = ("exact", "normalised", "near", "ngram")
"""How a text may be found, the surest way first; a pair is reported under the first that applies."""
KINDS = ("query", "positive", "document")
"""What a text of a task is; a positive is a document that is relevant to some query."""
GRAM = 13
"""How many words in a row two texts must share to be found by `ngram`."""
SHINGLE = 2
"""How many words in a row make a shingle; near-duplicates are texts with nearly the same set of shingles."""
COMMON = 20
"""A run of words that more texts of a task than this have is a formula (a licence, a heading), nobody's content."""
LEAST_THRESHOLD = 0.5
"""Below this, so many pairs would have to be compared that hashing gains nothing."""


@dataclass(frozen=True)
class Settings:
    """What to look for."""

    methods: tuple[str, ...] = METHODS
    threshold: float = 0.6
    """The least Jaccard similarity of the shingles of near-duplicates. A text with a tenth of its words replaced has
    about 0.68, one with its sentences in another order 0.8 and more, two different abstracts 0.01."""
    overlap: float = 0.0
    """The least share of a text's runs of 13 words that must be found; at 0, one run is enough."""
    min_words: int = 5
    """Texts with fewer words are not compared: `A` or `Introduction` in training data says nothing."""
    fields: tuple[str, ...] = ()
    """The fields of training rows to look at; all of them when none is named."""

    def __post_init__(self) -> None:
        for method in self.methods:
            if method not in METHODS:
                raise R2medError(f"no method {method!r}{suggest(method, METHODS)}")
        if not self.methods:
            raise R2medError(f"name a method: {', '.join(METHODS)}")
        if not LEAST_THRESHOLD <= self.threshold <= 1:
            raise R2medError(f"the threshold must be from {LEAST_THRESHOLD} to 1, not {self.threshold}")
        if not 0 <= self.overlap <= 1:
            raise R2medError(f"the overlap must be from 0 to 1, not {self.overlap}")
        if self.min_words < 1:
            raise R2medError(f"min_words must be 1 or more, not {self.min_words}")
