"""Lint of relevant documents: planted faults that are found, sound documents that are flagged, and seconds.

python benchmarks/lint_positives.py path/to/scifact path/to/medline
"""

from __future__ import annotations

import random
import sys
import time
from collections import Counter

from r2med.data.dataset import Texts
from r2med.data.lint import find_flaws
from r2med.data.loader import load

EACH, NEAR, LARGE, REPEATED = 25, 0.8, 57_359, 7_925


def plant(texts: dict[str, str], positives: list[str], chance: random.Random) -> dict[str, set[str]]:
    """Plant faults of every kind in as many relevant documents; return which were given which."""
    kinds = ("one-word", "links-only", "cut-html", "unlabelled-copy", "near-copy")
    places = iter(chance.sample(positives, len(kinds) * EACH))
    planted = {kind: {next(places) for _ in range(EACH)} for kind in kinds}
    for kind, names in planted.items():
        for name in names:
            words = texts[name].split()
            if kind == "one-word":
                texts[name] = f"Term{name}"
            elif kind == "links-only":
                texts[name] = f"Source: https://example.org/{chance.randrange(9999)}"
            elif kind == "cut-html":
                texts[name] = f"<div>{texts[name]}</div>"[: -chance.randrange(1, 7)]
            elif kind == "unlabelled-copy":
                texts[f"copy of {name}"] = " ".join(words).upper().replace(".", " ;")
            else:
                edited = {chance.randrange(len(words)) for _ in range(1 + len(words) // 50)}
                texts[f"copy of {name}"] = " ".join("x" if n in edited else word for n, word in enumerate(words))
    return planted


def main(*folders: str) -> None:
    """Print a table for each collection, and how long a large one takes."""
    for folder in folders:
        dataset, chance = load(folder), random.Random(1)
        texts, qrels = dict(dataset.collection.documents), dataset.gold.qrels
        every = Texts(list(texts), list(texts.values()))
        flagged = find_flaws(every, {name: {name: 1} for name in texts}, NEAR)
        print(f"{folder}: {len(flagged)} of {len(texts)} documents flagged if all are relevant")
        positives = sorted({name for judged in qrels.values() for name, grade in judged.items() if grade > 0})
        planted = plant(texts, positives, chance)
        found: dict[str, set[str]] = {kind: set() for kind in planted}
        for flaw in find_flaws(Texts(list(texts), list(texts.values())), qrels, NEAR):
            found[flaw.kind].add(flaw.document)
        for kind, names in planted.items():
            print(f"| {kind} | {len(names & found[kind])} of {len(names)} | {len(found[kind] - names)} |")
    words = " ".join(load(folders[0]).collection.documents.texts).split()
    starts = [chance.randrange(len(words) - 115) for _ in range(LARGE)]
    texts = [" ".join(words[start : start + 115]) for start in starts]
    texts[-REPEATED:] = texts[:REPEATED]
    documents = Texts([f"d{place}" for place in range(LARGE)], texts)
    judged = {f"q{n}": {f"d{chance.randrange(LARGE)}": 1 for _ in range(4)} for n in range(100)}
    for near in (0.0, NEAR):
        started = time.perf_counter()
        counts = Counter(flaw.kind for flaw in find_flaws(documents, judged, near))
        print(
            f"{LARGE:,} documents of 115 words, --near {near:g}: {time.perf_counter() - started:.1f} s, {dict(counts)}"
        )


if __name__ == "__main__":
    main(*sys.argv[1:])
