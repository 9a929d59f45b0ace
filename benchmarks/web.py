"""How fast the server answers with a large ledger, and how large and slow a large report is.

Makes a ledger of 200 systems on the eight tasks (876 queries, lists of 100), with documents of the usual length, runs
`r2med board`, asks a real server on the loopback, and prints medians and the slowest of many answers. With --report it
writes a report of 20 systems x 876 queries x 10 documents too, and with Chromium at hand measures how long that takes
to open.

    python benchmarks/web.py [--systems 200] [--report]
"""

from __future__ import annotations

import argparse
import hashlib
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from urllib.parse import urlencode

import numpy as np

from r2med.data.dataset import Collection, Dataset, Gold, Texts
from r2med.data.run import Run
from r2med.data.tasks import groups
from r2med.runs.ledger import Entry, Finished, Ledger
from r2med.runs.record import DataIdentity, RunRecord, StageRecord

QUERIES = {"Biology": 103, "Bioinformatics": 77, "Medical-Sciences": 88, "MedXpertQA-Exam": 97, "MedQA-Diag": 118,
           "PMC-Treatment": 150, "PMC-Clinical": 114, "IIYi-Clinical": 129}  # fmt: skip
DOCUMENTS, WORDS, DEPTH = 6000, 160, 100


def vocabulary(generator: np.random.Generator) -> list[str]:
    letters = np.array(list("etaoinshrdlcumwfgypbvk"))
    return ["".join(generator.choice(letters, size)) for size in generator.integers(3, 11, 20_000)]


def make_dataset(name: str, words: Sequence[str], generator: np.random.Generator) -> Dataset:
    task = next(each for each in groups()["full"] if each.name == name)
    weights = 1 / np.arange(1, len(words) + 1)
    drawn = generator.choice(len(words), (DOCUMENTS, WORDS), p=weights / weights.sum())
    documents = Texts([f"{name}-{n}" for n in range(DOCUMENTS)], [" ".join(words[w] for w in row) for row in drawn])
    queries = Texts([f"q{n}" for n in range(QUERIES[name])], [documents.texts[n][:600] for n in range(QUERIES[name])])
    qrels = {q: {f"{name}-{n}": 1 for n in generator.choice(DOCUMENTS, 4, replace=False)} for q in queries.ids}
    return Dataset(Collection(task, documents, queries), Gold(qrels, dict(queries)))


def fill(ledger: Ledger, datasets: Sequence[Dataset], systems: int, generator: np.random.Generator) -> None:
    for dataset in datasets:
        ids, fingerprint = dataset.collection.documents.ids, dataset.fingerprint
        pools = [generator.choice(DOCUMENTS, 400, replace=False) for _ in dataset.collection.queries.ids]
        for number in range(systems):
            lists = {
                query: (
                    [ids[place] for place in generator.choice(pool, DEPTH, replace=False)],
                    np.linspace(9, 1, DEPTH),
                )
                for query, pool in zip(dataset.collection.queries.ids, pools, strict=True)
            }
            scores = {m: generator.beta(1, 3, len(lists)) for m in ("nDCG@10", "Recall@100", "MAP@100")}
            record = RunRecord(DataIdentity(fingerprint), stages=(StageRecord("bm25", "retriever"),))
            key = hashlib.sha256(f"{number} {dataset.name}".encode()).hexdigest()[:32]
            facts = (f"bm25(k1={number / 100})", dataset.name, "full", tuple(lists), 1.0 + number, record)
            ledger.add(Entry(key, *facts), Finished(Run.from_lists(lists), scores))


def measure(client: object, path: str, times: int) -> tuple[float, float, float]:
    """The first answer, the median and the slowest of the rest, in milliseconds."""
    taken = []
    for _ in range(times):
        started = time.perf_counter()
        answer = client.get(path)  # type: ignore[attr-defined]
        taken.append(1000 * (time.perf_counter() - started))
        assert answer.status_code == 200, (path, answer.status_code)
    return taken[0], statistics.median(taken[1:]), max(taken[1:])


def ask(path: Path, datasets: Sequence[Dataset]) -> None:
    import httpx

    sys.path.insert(0, str(Path(__file__).parents[1] / "tests" / "web"))
    from webparts import TOKEN, served

    from r2med.web.app import prepare, read_ahead
    from r2med.web.library import Library

    library = Library(path)
    for dataset in datasets:
        library.add_dataset(dataset)
    started = time.perf_counter()
    prepare(library)
    print(f"before the server listens: {time.perf_counter() - started:.2f} s", end="; ")
    read_ahead(library)
    print(f"the intervals of further pages, which it computes while it serves: {time.perf_counter() - started:.2f} s")
    entry = library.entries()[0]
    pages = {
        "board": "/",
        "board, page 2": "/?page=2",
        "board, sorted": "/?sort=Biology",
        "query": "/query?" + urlencode({"task": entry.task, "query": entry.queries[3]}),
        "another query": "/query?" + urlencode({"task": entry.task, "query": entry.queries[9]}),
        "run": f"/run/{entry.id}",
        "runs": "/runs",
        "compare": "/compare?" + urlencode({"group": "full", "a": "bm25(k1=0.01)", "b": "bm25(k1=0.02)"}),
    }
    known = {"authorization": f"Bearer {TOKEN}"}
    with served(path, library) as address, httpx.Client(base_url=address, timeout=60, headers=known) as client:
        print(f"{'page':16} {'first':>9} {'median':>9} {'slowest':>9}   ms, of 30")
        for name, page in pages.items():
            print("{:16} {:9.1f} {:9.1f} {:9.1f}".format(name, *measure(client, page, 31)))
        different = [f"/query?{urlencode({'task': entry.task, 'query': query})}" for query in entry.queries[20:60]]
        taken = [measure(client, page, 2)[0] for page in different]
        print(
            f"40 query pages never asked for before: median {statistics.median(taken):.1f}, slowest {max(taken):.1f} ms"
        )


def time_board() -> None:
    """How long `r2med board` takes as a command, interpreter included."""
    for options in ([], ["--ci"]):
        taken = []
        for _ in range(5):
            started = time.perf_counter()
            subprocess.run([sys.executable, "-m", "r2med", "board", *options], capture_output=True, check=True)
            taken.append(time.perf_counter() - started)
        name = " ".join(["r2med board", *options])
        print(f"{name}: median {statistics.median(taken):.2f} s, slowest {max(taken):.2f} s, of 5")


def write_report(ledger: Ledger, datasets: Sequence[Dataset], folder: Path) -> None:
    from unittest.mock import patch

    from r2med.web.report_file import ReportChoice, report

    known = {dataset.name: dataset for dataset in datasets}
    with patch("r2med.diagnose.loaded_runs.load", known.__getitem__):
        started = time.perf_counter()
        page = report(ledger, ReportChoice([f"bm25(k1={number / 100})" for number in range(20)], causes=False))
    path = folder / "report.html"
    path.write_text(page, "utf-8")
    print(f"report: {path.stat().st_size / 1e6:.1f} MB, made in {time.perf_counter() - started:.1f} s")
    chromium = shutil.which("chromium")
    if chromium:
        open_report(path, chromium)


def open_report(path: Path, chromium: str) -> None:
    from playwright.sync_api import sync_playwright

    with sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=chromium, args=["--headless", "--no-sandbox", "--disable-gpu"])
        page = browser.new_page()
        started = time.perf_counter()
        page.goto(path.as_uri())
        opened = time.perf_counter() - started
        page.locator("#browse").scroll_into_view_if_needed()
        started = time.perf_counter()
        page.wait_for_selector("#queries details")
        print(f"report: opens in {opened:.2f} s, first queries after {time.perf_counter() - started:.2f} s more")
        browser.close()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--systems", type=int, default=200)
    parser.add_argument("--report", action="store_true")
    asked = parser.parse_args()
    generator = np.random.default_rng(7)
    words = vocabulary(generator)
    with tempfile.TemporaryDirectory() as folder:
        os.environ["R2MED_HOME"] = folder
        datasets = [make_dataset(name, words, generator) for name in QUERIES]
        path = Path(folder) / "ledger.sqlite"
        with Ledger(path) as ledger:
            fill(ledger, datasets, asked.systems, generator)
            print(
                f"{asked.systems} systems x {sum(QUERIES.values())} queries, ledger {path.stat().st_size / 1e6:.0f} MB"
            )
            time_board()
            ask(path, datasets)
            if asked.report:
                write_report(ledger, datasets, Path(folder))


if __name__ == "__main__":
    main()
