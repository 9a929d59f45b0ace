"""Lint of relevant documents: texts that answer nothing, and texts that documents without a label repeat."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Mapping
from typing import NamedTuple

from r2med.data.dataset import Qrels, Texts
from r2med.formatting import shorten
from r2med.lexical.near_duplicates import SAME, find_copies
from r2med.lexical.segmentation import segment

ONE_WORD, LINKS, CUT_HTML, COPY, NEAR_COPY = KINDS = "one-word links-only cut-html unlabelled-copy near-copy".split()
_LINK = re.compile(
    r"!?\[[^\[\]]*\]\([^()\s]*\)|<a\s[^<>]*>[^<>]*</a>|<?(?:https?://|www\.)\S+|\bdoi:\s?\S+|\b10\.\d{4,9}/\S+",
    re.IGNORECASE,
)
_WORD = re.compile(r"[^\W_]+")
_PAIRED = frozenset(  # elements that HTML always closes
    "a abbr article aside b big blockquote button caption center code div em figcaption figure font footer form h1 h2"
    " h3 h4 h5 h6 header i iframe label main nav ol pre s script section select small span strong style sub sup svg"
    " table textarea title u ul".split()
)
_NAMES = _PAIRED | frozenset(
    "body br dd dt head hr html img input li link meta option p tbody td tfoot th thead tr".split()
)
_TAG = re.compile(r"<(/?)([a-z][a-z0-9]*)(?:\s[^<>]*)?>", re.IGNORECASE)
_LAST = re.compile(r"<(/?)([a-z][a-z0-9]*)(\s+[\w:-]+\s*=[^<>]*)?\Z", re.IGNORECASE)
_FIRST = re.compile(r"\A[^<>]*[\w:-]\s*=\s*(\"[^\"<>]*\"|'[^'<>]*')\s*/?>")


class Flaw(NamedTuple):
    """Relevant document of a query that looks wrong."""

    kind: str
    query: str
    document: str
    message: str
    copies: tuple[str, ...] = ()  # documents with its text that the query does not judge


def find_flaws(documents: Texts, qrels: Qrels, near: float = 0.0) -> list[Flaw]:
    """Find relevant documents that are one word, links only or cut HTML, or that unlabelled documents repeat.

    With `near`, also those with that share of their pairs of words in common. Takes time linear in the collection.
    """
    pairs = [(query, document) for query, judged in qrels.items() for document, grade in judged.items() if grade > 0]
    pairs = [(query, document) for query, document in pairs if document in documents.position]
    names = list(dict.fromkeys(document for _, document in pairs))
    texts = [documents.text(name) for name in names]
    of_text = {
        name: [kind for kind, check in _CHECKS.items() if check(text)] for name, text in zip(names, texts, strict=True)
    }
    copies: dict[str, dict[str, str]] = {name: {} for name in names}
    for one, other, how in find_copies(texts, documents.texts, near):
        copies[names[one]][documents.ids[other]] = COPY if how == SAME else NEAR_COPY
    flaws = []
    for query, document in pairs:
        named = f"the relevant document {shorten(document)!r} of {shorten(query)!r}"
        extract = shorten(" ".join(documents.text(document).split()))
        flaws += [Flaw(kind, query, document, f"{named} {_SAYS[kind]}: {extract!r}") for kind in of_text[document]]
        for kind in (COPY, NEAR_COPY):
            some = tuple(name for name, how in copies[document].items() if how == kind and name not in qrels[query])
            if some:
                more = f" and {len(some) - 1:,} more" if some[1:] else ""
                message = f"{named} {_SAYS[kind]} {shorten(some[0])!r}{more}, which {shorten(query)!r} does not judge"
                flaws.append(Flaw(kind, query, document, message, some))
    return flaws


def unlabelled_copies(flaws: list[Flaw], qrels: Qrels) -> dict[str, dict[str, int]]:
    """Return the judgements that copies of relevant documents would have: the best grade of what they repeat."""
    grades: dict[str, dict[str, int]] = {}
    for flaw in flaws:
        for name in flaw.copies:
            judged = grades.setdefault(flaw.query, {})
            judged[name] = max(judged.get(name, 0), qrels[flaw.query][flaw.document])
    return grades


def _is_one_word(text: str) -> bool:
    # Scripts without spaces have many words in one run of letters.
    return bool(text.strip()) and len(_WORD.findall(text)) < 2 and len(segment(text)) < 2


def _is_links(text: str) -> bool:
    rest, links = _LINK.subn(" ", text)
    return links > 0 and len(_WORD.findall(rest)) <= links


def _is_cut_html(text: str) -> bool:
    """Return whether a tag is cut off at either end, or an element is opened and never closed, or the reverse."""
    last, balance = _LAST.search(text), Counter[str]()
    if last and last[2].lower() in _NAMES and (last[1] or last[3] or len(last[2]) > 1):
        return True
    for closing, name in _TAG.findall(text):
        balance[name.lower()] += -1 if closing else 1
    return bool(_FIRST.match(text)) or any(count for name, count in balance.items() if name in _PAIRED)


_CHECKS: Mapping[str, Callable[[str], bool]] = {ONE_WORD: _is_one_word, LINKS: _is_links, CUT_HTML: _is_cut_html}
_SAYS: Mapping[str, str] = {
    ONE_WORD: "is one word",
    LINKS: "holds links only",
    CUT_HTML: "is HTML that was cut",
    COPY: "has the same words as",
    NEAR_COPY: "has nearly the same words as",
}
