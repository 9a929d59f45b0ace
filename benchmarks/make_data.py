"""Make folders of the size and shape of R2MED's tasks, for measuring speed and memory.

    python benchmarks/make_data.py FOLDER [--task PMC-Clinical ...]
    python benchmarks/make_data.py FOLDER --passages 1000000 [--processes 2]

Every document is a row of real sentences, drawn from the abstracts of SciFact and Medline, so words have natural
frequencies and the text natural punctuation, numbers, Greek letters and so on. Lengths follow a log-normal law
around the task's average. Sentences drawn from 1.3 million words alone would repeat one small vocabulary, while a
real corpus keeps meeting new words (in these abstracts the number of distinct pieces between spaces and punctuation
grows with the 0.56th power of the length: 66 thousand now, about 380 thousand at 29 million words). So a share of
the words is replaced by rare forms (measured values, gene-like symbols, prefixed words, misspellings) drawn from an
endless list with a heavy tail, the share chosen to meet that law at PMC-Clinical's size.

A query's sentences are taken in part from the documents judged relevant to it. The same folder name and task always
give the same bytes. Nothing here says anything about quality: the judgements are arbitrary.

With --passages, FOLDER/passages-N gets so many documents of 84 words, written in a stream, and three kinds of 100
queries each: short questions, vignettes of 115 words (the task's own) and expanded queries of 300. A smaller
collection is the beginning of a larger one, and the queries and judgements of all sizes are the same.
"""

from __future__ import annotations

import itertools
import math
import random
import re
import zlib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from multiprocessing import Pool
from pathlib import Path

import click
import orjson

SHARED = Path(__file__).resolve().parents[2] / "shared" / "data"
RARE_SHARE = 0.033
"""How many of a hundred words are replaced by a rare form."""
RARE_GROWTH = 0.92
"""The number of distinct rare forms grows with this power of the number drawn."""
PREFIXES = "non anti hyper hypo pre post micro poly inter intra multi pseudo sub trans neuro cyto immuno hepato".split()


@dataclass(frozen=True)
class Size:
    """How large a task is: counts, and average lengths in words."""

    queries: int
    documents: int
    judgements: int
    query_words: float
    document_words: float


SIZES = {
    "Biology": Size(103, 57_359, 374, 115.2, 83.6),
    "Bioinformatics": Size(77, 47_473, 227, 273.8, 150.5),
    "Medical-Sciences": Size(88, 34_810, 244, 107.1, 122.7),
    "MedXpertQA-Exam": Size(97, 61_379, 292, 233.2, 154.9),
    "MedQA-Diag": Size(118, 56_250, 522, 167.8, 179.7),
    "PMC-Treatment": Size(150, 28_954, 315, 449.3, 149.3),
    "PMC-Clinical": Size(114, 60_406, 248, 182.8, 480.4),
    "IIYi-Clinical": Size(129, 10_449, 457, 602.3, 1273.0),
}


class Writer:
    """Draws sentences, and texts made of them, from one seeded stream."""

    def __init__(self, sentences: list[list[str]], seed: int) -> None:
        self.sentences = sentences
        self.words = sorted({word for sentence in sentences for word in sentence if word.isalpha() and len(word) > 4})
        self.random = random.Random(seed)

    def rare_form(self) -> str:
        """One of endlessly many forms: low numbers come again and again, most others once."""
        number = int(self.random.paretovariate(1 / RARE_GROWTH - 1)) % (1 << 40)
        kind, rest = number % 4, number // 4
        word = self.words[rest * 7919 % len(self.words)]
        if kind == 0:
            return f"{rest % 9973 / 10 if rest % 2 else rest % 99991 / 1000}"
        if kind == 1:
            letters = "".join(chr(65 + rest // 26**place % 26) for place in range(3))
            return f"{letters}{rest // 26**3 % 100}"
        if kind == 2:
            return PREFIXES[rest // len(self.words) % len(PREFIXES)] + word
        place = 1 + rest // len(self.words) % (len(word) - 2)
        return word[:place] + word[place + 1] + word[place] + word[place + 2 :]

    def sentence(self) -> list[str]:
        """A real sentence, a few of its words replaced."""
        words = self.random.choice(self.sentences)
        expected = RARE_SHARE * len(words)
        replaced = int(expected) + (self.random.random() < expected % 1)
        if replaced:
            words = words.copy()
            for _ in range(replaced):
                words[self.random.randrange(len(words))] = self.rare_form()
        return words

    def text(self, average: float) -> str:
        """A text of sentences, about as long as the average says; its last sentence may be cut."""
        spread = 0.6
        length = max(1, round(average * math.exp(self.random.gauss(-spread * spread / 2, spread))))
        return " ".join(self.words_up_to(length))

    def words_up_to(self, length: int) -> list[str]:
        """Sentences cut to so many words."""
        words: list[str] = []
        while len(words) < length:
            words += self.sentence()
        return words[:length]


def real_sentences(shared: Path) -> list[list[str]]:
    """The sentences of SciFact's and Medline's documents, as words."""
    found = []
    for name in ("scifact", "medline"):
        for line in (shared / name / "corpus.jsonl").read_bytes().splitlines():
            row = orjson.loads(line)
            text = f"{row.get('title', '')} {row['text']}"
            found += [sentence.split() for sentence in re.split(r"(?<=[.?!])\s+", text) if sentence.strip()]
    return found


def make_task(name: str, size: Size, folder: Path, sentences: list[list[str]]) -> None:
    """Write the three files of a task."""
    writer = Writer(sentences, zlib.crc32(name.encode()))
    folder.mkdir(parents=True, exist_ok=True)
    documents = [writer.text(size.document_words) for _ in range(size.documents)]
    _write(folder / "corpus.jsonl", ({"id": f"d{place}", "text": text} for place, text in enumerate(documents)))
    # Each query has one judgement, the rest fall where they may.
    owners = [*range(size.queries), *writer.random.choices(range(size.queries), k=size.judgements - size.queries)]
    chosen = writer.random.sample(range(size.documents), size.judgements)
    judged = sorted(zip(owners, chosen, strict=True))
    _write(folder / "qrels.jsonl", ({"q_id": f"q{q}", "p_id": f"d{d}", "score": 1} for q, d in judged))
    queries = []
    for query, pairs in itertools.groupby(judged, key=lambda pair: pair[0]):
        hints = " ".join(" ".join(documents[document].split()[:12]) for _, document in pairs)
        queries.append({"id": f"q{query}", "text": f"{hints} {writer.text(size.query_words)}"})
    _write(folder / "query.jsonl", queries)


PASSAGE_WORDS = 84
PORTION = 10_000
"""How many passages are made from one seed, and in how many the judged ones lie."""
QUERY_WORDS = {"short": 10, "query": 115, "expanded": 300}
"""The files of queries, and about how many words those of each have."""


def portion(sentences: list[list[str]], number: int, size: int) -> list[str]:
    """The texts of one portion of the passages."""
    writer = Writer(sentences, zlib.crc32(b"passages %d" % number))
    return [writer.text(PASSAGE_WORDS) for _ in range(size)]


def passages(count: int, sentences: list[list[str]], processes: int) -> Iterator[str]:
    """Texts without end, in a stream; what is made of a portion does not depend on the number of processes."""
    sizes = [min(PORTION, count - start) for start in range(0, count, PORTION)]
    with Pool(processes) as pool:
        portions = pool.imap(partial(_portion, sentences), enumerate(sizes))
        for texts in portions:
            yield from texts


def _portion(sentences: list[list[str]], part: tuple[int, int]) -> list[str]:
    return portion(sentences, *part)


def make_passages(count: int, folder: Path, sentences: list[list[str]], processes: int) -> None:
    """Write a large task: `count` passages, and the same queries at every size from 10,000."""
    folder.mkdir(parents=True, exist_ok=True)
    rows = ({"id": f"d{place}", "text": text} for place, text in enumerate(passages(count, sentences, processes)))
    _write(folder / "corpus.jsonl", rows)
    writer = Writer(sentences, zlib.crc32(b"queries"))
    first = portion(sentences, 0, min(PORTION, count))
    judged = writer.random.sample(range(len(first)), 100)
    _write(folder / "qrels.jsonl", ({"q_id": f"q{q}", "p_id": f"d{d}", "score": 1} for q, d in enumerate(judged)))
    for name, words in QUERY_WORDS.items():
        hinted = min(6, words // 2)
        texts = (
            " ".join([*first[document].split()[:hinted], *writer.words_up_to(words - hinted)]) for document in judged
        )
        _write(folder / f"{name}.jsonl", ({"id": f"q{q}", "text": text} for q, text in enumerate(texts)))


def _write(path: Path, rows: Iterable[Mapping[str, object]]) -> None:
    with path.open("wb") as file:
        file.writelines(orjson.dumps(row) + b"\n" for row in rows)


@click.command()
@click.argument("folder", type=click.Path(file_okay=False, path_type=Path))
@click.option("--task", "tasks", multiple=True, type=click.Choice(list(SIZES)), help="Only these; all by default.")
@click.option("--passages", "counts", multiple=True, type=click.IntRange(200), help="A large task of so many passages.")
@click.option("--processes", default=1, show_default=True, type=click.IntRange(1), help="Used for large tasks.")
@click.option("--shared", default=SHARED, type=click.Path(path_type=Path), help="Where scifact/ and medline/ lie.")
def main(folder: Path, tasks: tuple[str, ...], counts: tuple[int, ...], processes: int, shared: Path) -> None:
    """Write a folder a task under FOLDER, which should lie outside the repository."""
    sentences = real_sentences(shared)
    for count in counts:
        make_passages(count, folder / f"passages-{count}", sentences, processes)
        click.echo(f"passages-{count}: {count:,} documents")
    if counts and not tasks:
        return
    for name in tasks or SIZES:
        make_task(name, SIZES[name], folder / name, sentences)
        click.echo(f"{name}: {SIZES[name].documents:,} documents")


if __name__ == "__main__":
    main()
