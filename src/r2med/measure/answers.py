"""Comparison of an answer's words with the gold answer's: without a model, in any case, without articles and signs."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable
from functools import lru_cache

_ARTICLES = {"a", "an", "the"}


def normalise_answer(text: str) -> str:
    """Return a text's words in lower case without articles and punctuation, for comparison.

    >>> normalise_answer("The Addison's disease (autoimmune).")
    'addison s disease autoimmune'
    """
    words = re.findall(r"\w+", unicodedata.normalize("NFKC", text).casefold())
    return " ".join(word for word in words if word not in _ARTICLES)


def matches(answer: str, gold: str, synonyms: Iterable[str] = ()) -> tuple[bool, bool]:
    """Return whether the words of both are equal, and whether the answer contains those of the gold in sequence.

    Words in brackets of the gold answer may be missing. A synonym is as good as the gold answer.

    >>> matches("It is Wilson disease.", "Wilson disease (hepatolenticular degeneration)")
    (False, True)
    >>> matches("hepatolenticular degeneration", "Wilson disease", ["Hepatolenticular degeneration"])
    (True, True)
    """
    wordings, given = _wordings(gold, tuple(synonyms)), normalise_answer(answer)
    return given in wordings, any(f" {words} " in f" {given} " for words in wordings)


_HEDGES = set("not no nor neither none without or versus vs unlikely exclude excluded excludes excluding rather than"
              " instead except but either differential".split())  # fmt: skip


def plainly_contains(answer: str, gold: str, synonyms: Iterable[str] = ()) -> bool:
    """Return whether an answer contains the gold answer and neither denies it nor names it among others.

    >>> [plainly_contains(text, "gout") for text in ("It is gout.", "It is not gout.", "gout or pseudogout")]
    [True, False, False]
    """
    given = f" {normalise_answer(answer)} "
    rests = [given.replace(f" {words} ", " ", 1) for words in _wordings(gold, tuple(synonyms)) if f" {words} " in given]
    return any(not _HEDGES & set(rest.split()) for rest in rests)


@lru_cache(4096)
def _wordings(gold: str, synonyms: tuple[str, ...]) -> frozenset[str]:
    texts = [wording for text in (gold, *synonyms) for wording in (text, re.sub(r"\([^()]*\)", " ", text))]
    return frozenset({normalise_answer(text) for text in texts} - {""})
