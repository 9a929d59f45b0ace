"""One flipped bit in a kept file, many times: is the damage ever believed?

    python benchmarks/bitflips.py [--flips 100] [--seed 0]

Every kind of kept file: the ledger, answers, scores of a reranker, the BM25 index, the copy of a large corpus,
vectors, the leakage index. A home is filled once by real systems (models answer on loopback), copied for each flip, and
asked again for everything that rests on the damaged file. What comes back must be what was measured, bit for bit, or
the damage must be named: a number that differs without a word is believed damage, and so is any traceback.
Half of the flips in SQLite files hit a stored value, the others any place. About two minutes.
"""

from __future__ import annotations

import argparse
import os
import random
import shutil
import sqlite3
import sys
import tempfile
import traceback
import warnings
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, NamedTuple

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))
sys.path.insert(0, str(Path(__file__).parents[1] / "tests" / "llm"))
sys.path.insert(0, str(Path(__file__).parents[1] / "tests" / "rerank"))

import orjson

import r2med
from chat_server import ChatServer
from r2med.data.loader import load
from r2med.errors import R2medError
from r2med.leakage.check import check
from r2med.pipeline.evaluate import Options
from r2med.runs.ledger import Ledger
from rerank_server import RerankServer

LARGE = 4_200_000
"""Bytes of a corpus that is copied to the cache."""
TASK = "sample/Biology"


class Kind(NamedTuple):
    """A kind of kept file: where it lies, what rests on it, and its stored values where it is a database."""

    pattern: str
    ask: Callable[[World], Any]
    values: str = ""


class World(NamedTuple):
    """What is measured, and with what."""

    folder: Path
    systems: Mapping[str, str]


def results(world: World, *names: str, fresh: bool = True) -> Any:
    """Every list and every per-query score of systems, as bytes."""
    task = str(world.folder / "large") if "large" in names else TASK
    chosen = [world.systems[name] for name in names if name != "large"] or ["bm25"]
    report = r2med.evaluate(chosen, task, Options(fresh=fresh))
    if report.failures:
        raise R2medError(report.failures[0].message)
    with Ledger() as ledger:
        lists = [ledger.run(ledger.get(result.run_id)) for result in report.results]
    scores = [{name: values.tobytes() for name, values in result.scores.items()} for result in report.results]
    return scores, [(list(run.queries), list(run.documents), run.scores.tobytes()) for run in lists]


def remembered(world: World) -> Any:
    """What the ledger says: as runs, as a table of means, as lists, as texts."""
    found = results(world, "bm25", "answers", "scores", fresh=False)
    with Ledger() as ledger:
        entries = ledger.entries()
        means = ledger.means()
        texts = [ledger.generations(entry) for entry in entries]
        every = [(entry.id, entry.system, entry.record, means[entry.id], len(ledger.run(entry))) for entry in entries]
    return found, sorted(every), repr(texts)


def leaks(world: World) -> Any:
    report = check([world.folder / "train.jsonl"], [TASK])
    return report.as_dict()


KINDS = {
    "ledger": Kind("ledger.sqlite", remembered, "SELECT per_query FROM scores UNION SELECT data FROM rankings"),
    "answers": Kind("llm.sqlite", lambda world: results(world, "answers"), "SELECT answer FROM answers"),
    "scores": Kind("scores/*/*", lambda world: results(world, "scores")),
    "BM25 index": Kind("cache/bm25/*/*", lambda world: (results(world, "bm25"), results(world, "large"))),
    "copy of a corpus": Kind("cache/corpus/*/*", lambda world: results(world, "large")),
    "vectors": Kind("vectors/*/*", lambda world: results(world, "vectors")),
    "leakage index": Kind("cache/leakage*/*/*", leaks),
}


@contextmanager
def world(folder: Path) -> Iterator[World]:
    """Data, servers, and a home that holds every kind of file."""
    with ExitStack() as stack:
        chat = stack.enter_context(ChatServer())
        pairs = stack.enter_context(RerankServer())
        systems = {
            "bm25": "bm25",
            "answers": f"hyde(tiny@{chat.url}) >> bm25",
            "scores": f"bm25(depth=20) >> api-rerank(tiny@{pairs.url}, depth=20)",
            "vectors": "wordllama",
        }
        yield write_data(World(folder, systems))


def write_data(made: World) -> World:
    data = load(TASK)
    documents = list(zip(data.collection.documents.ids, data.collection.documents.texts, strict=True))
    large = made.folder / "large"
    large.mkdir(parents=True)
    rows, copy = [], 0
    while sum(map(len, rows)) < LARGE:
        again = f"-{copy}" if copy else ""
        rows += [orjson.dumps({"id": name + again, "text": text + again}) for name, text in documents]
        copy += 1
    (large / "corpus.jsonl").write_bytes(b"\n".join(rows))
    queries = zip(data.collection.queries.ids, data.collection.queries.texts, strict=True)
    (large / "query.jsonl").write_bytes(b"\n".join(orjson.dumps({"id": name, "text": text}) for name, text in queries))
    judged = [(query, document) for query, found in data.gold.qrels.items() for document in found]
    (large / "qrels.jsonl").write_bytes(b"\n".join(orjson.dumps({"q_id": q, "p_id": d, "score": 1}) for q, d in judged))
    texts = [*data.collection.queries.texts[:3], *data.collection.documents.texts[:3]]
    (made.folder / "train.jsonl").write_bytes(b"\n".join(orjson.dumps({"text": text}) for text in texts))
    return made


def flip(home: Path, kind: Kind, chance: random.Random) -> str:
    """Flip one bit of a file of this kind; where it was."""
    files = [path for path in sorted(home.glob(kind.pattern)) if path.is_file() and path.stat().st_size]
    file = chance.choice(files)
    data = bytearray(file.read_bytes())
    place = chance.randrange(len(data))
    if kind.values and chance.random() < 0.5:
        place = value_place(file, kind.values, bytes(data), chance)
    data[place] ^= 1 << chance.randrange(8)
    file.write_bytes(data)
    return f"{file.relative_to(home)}:{place}"


def value_place(file: Path, query: str, data: bytes, chance: random.Random) -> int:
    """A byte of a stored value."""
    connection = sqlite3.connect(file)
    found = [row[0] if isinstance(row[0], bytes) else row[0].encode() for row in connection.execute(query)]
    connection.close()
    value = chance.choice([each for each in found if each])
    start = data.find(value[:24])
    # What follows a pair of texts in its row is their score.
    return start + chance.randrange(min(len(value) + 8, 400)) if start >= 0 else chance.randrange(len(data))


def trial(kind: Kind, made: World, truth: Any) -> str:
    """What became of a flip: unnoticed, mended, named, or believed."""
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        try:
            found = kind.ask(made)
        except R2medError:
            return "named"
        except Exception:
            traceback.print_exc()
            return "TRACEBACK"
    if found == truth:
        return "named, mended" if said else "mended or without effect"
    return "named" if said else "BELIEVED"


def measure(flips: int, seed: int, folder: Path) -> dict[str, Counter[str]]:
    """The outcomes of so many flips, by kind."""
    chance = random.Random(seed)
    outcomes: dict[str, Counter[str]] = {name: Counter() for name in KINDS}
    with world(folder) as made:
        os.environ["R2MED_HOME"] = str(folder / "home")
        results(made, "bm25", "answers", "scores", "vectors")
        truth = {name: kind.ask(made) for name, kind in KINDS.items()}
        truth["ledger"] = KINDS["ledger"].ask(made)
        for number in range(flips):
            name = list(KINDS)[number % len(KINDS)]
            home = folder / "flipped"
            shutil.rmtree(home, ignore_errors=True)
            shutil.copytree(folder / "home", home)
            where = flip(home, KINDS[name], chance)
            os.environ["R2MED_HOME"] = str(home)
            outcome = trial(KINDS[name], made, truth[name])
            outcomes[name][outcome] += 1
            if outcome.isupper():
                print(f"{outcome}: {where}")
    return outcomes


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--flips", type=int, default=100)
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="r2med-flips-") as folder:
        outcomes = measure(arguments.flips, arguments.seed, Path(folder))
    heads = ("mended or without effect", "named, mended", "named", "BELIEVED", "TRACEBACK")
    print(f"| file | flips | {' | '.join(head.lower() for head in heads)} |\n|{'---|' * (len(heads) + 2)}")
    for name, counts in outcomes.items():
        print(f"| {name} | {sum(counts.values())} | {' | '.join(str(counts[head]) for head in heads)} |")


if __name__ == "__main__":
    main()
