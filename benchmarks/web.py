"""How fast the server answers with a large ledger, and how large and slow a large report is.

Makes a ledger of 200 systems on the eight tasks (876 queries, lists of 100) with all causes of failure known, and
documents of the usual length, runs `r2med board`, asks a real server on the loopback, and prints medians and the
slowest of many answers, what a browser has to load, and the processor time that a page takes by itself, which other
work on the machine disturbs less than the clock. With --report it writes a report of 20 systems x 876 queries x 10
documents too, and with Chromium at hand measures how long that takes to open. `--profile PAGE` says where the time of
a page goes instead.

    python benchmarks/web.py [--systems 200] [--report] [--profile workbench]
"""

from __future__ import annotations

import argparse
import asyncio
import cProfile
import hashlib
import multiprocessing
import os
import pstats
import re
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from urllib.parse import urlencode

import numpy as np
from starlette.requests import Request

from r2med.comparison import page as compare_page
from r2med.data.dataset import Collection, Dataset, Gold, Texts
from r2med.data.run import Run
from r2med.data.tasks import groups
from r2med.diagnosis.attribution import save_diagnosis
from r2med.diagnosis.causes import Cause, Diagnosis, Placed, QueryCause
from r2med.leaderboard import page as board_page
from r2med.pipeline.named_runs import share
from r2med.runs.ledger import Entry, Ledger
from r2med.runs.record import DataIdentity, RunRecord, StageRecord
from r2med.web import app
from r2med.web.library import Library
from r2med.workbench import query_page, run_page

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
            ledger.add(Entry(key, *facts, scores=scores), Run.from_lists(lists))


def diagnosed(ledger: Ledger, datasets: Sequence[Dataset], generator: np.random.Generator) -> None:
    """Have the causes of every run known, as `r2med diagnose` leaves them."""
    known = {dataset.name: dataset.gold.qrels for dataset in datasets}
    causes = list(Cause)[:-1]
    for entry in ledger.entries():
        drawn = iter(
            generator.choice(len(causes), 4 * len(entry.queries), p=[0.3, 0.25, 0.05, 0.25, 0.05, 0.1]).tolist()
        )
        queries = [
            QueryCause(query, tuple(Placed(name, causes[next(drawn)], None, 7) for name in known[entry.task][query]))
            for query in entry.queries
        ]
        save_diagnosis(entry, Diagnosis(entry.system, entry.task, 100, queries))


def measure(client: object, path: str, times: int) -> tuple[float, float, float]:
    """The first answer, the median and the slowest of the rest, in milliseconds."""
    taken = []
    for _ in range(times):
        started = time.perf_counter()
        answer = client.get(path)  # type: ignore[attr-defined]
        taken.append(1000 * (time.perf_counter() - started))
        assert answer.status_code == 200, (path, answer.status_code)
    return taken[0], statistics.median(taken[1:]), max(taken[1:])


def ask(path: Path, datasets: Sequence[Dataset], profile: str = "") -> None:
    """Ask a real server for every page; with the name of a page, say where its time goes instead."""
    import httpx2 as httpx

    sys.path.insert(0, str(Path(__file__).parents[1] / "tests" / "web"))
    from webparts import TOKEN, served

    library = Library(path)
    for dataset in datasets:
        library.put("data", dataset.name, dataset)
    started = time.perf_counter()
    app.prepare(library)
    print(f"before the server listens: {time.perf_counter() - started:.2f} s", end="; ")
    board_page.read_ahead(library)
    print(f"the intervals of further pages, which it computes while it serves: {time.perf_counter() - started:.2f} s")
    entry = library.entries()[0]
    both = {"a": "bm25(k1=0.01)", "b": "bm25(k1=0.02)"}
    asked = {"group": "full", **both}
    pages = {
        "board": "/",
        "board, page 2": "/?page=2",
        "board, sorted": "/?sort=Biology",
        "workbench": "/query?" + urlencode({"task": entry.task, "query": entry.queries[3], **both}),
        "another query": "/query?" + urlencode({"task": entry.task, "query": entry.queries[9], **both}),
        "to 100": "/query?" + urlencode({"task": entry.task, "query": entry.queries[9], **both, "depth": 100}),
        "six lists": "/query?" + urlencode({"task": entry.task, **both, "also": SIX}, doseq=True),
        "all tasks": "/query?" + urlencode({**asked, "sort": "gained"}),
        "by causes": "/query?" + urlencode({**asked, "from": "bridge missing", "to": "found"}),
        "run": f"/run/{entry.id}",
        "runs": "/runs",
        "compare": "/compare?" + urlencode(asked),
    }
    others = [f"/query?{urlencode({'task': entry.task, 'query': query, **both})}" for query in entry.queries[20:60]]
    if profile:
        show_profile(library, pages[profile], others)
        return
    known = {"authorization": f"Bearer {TOKEN}"}
    with served(path, library) as address, httpx.Client(base_url=address, timeout=60, headers=known) as client:
        print(
            f"{'page':16} {'first':>8} {'median':>8} {'slowest':>8} ms {'CPU':>7} ms {'packed':>7} {'unpacked':>9} kB"
        )
        for name, page in pages.items():
            times = "{:8.1f} {:8.1f} {:8.1f}   ".format(*measure(client, page, 31))
            print(f"{name:16} {times} {processor_time(library, [page] * 20):7.1f}   ", *size_of(client, page))
        taken = [measure(client, page, 2)[0] for page in others]
        print(
            f"40 queries never asked for before: median {statistics.median(taken):.1f}, slowest {max(taken):.1f} ms",
            end="; ",
        )
        again = [page.replace(both["b"].partition("=")[2][:-1], "0.03") for page in others]
        print(f"40 more in another pair of lists: {processor_time(library, again):.1f} ms of processor time each")
        # In a process of its own: the server shares its processor with nobody who asks.
        with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as elsewhere:
            busy = time.process_time()
            last, median = elsewhere.submit(at_once, address, known, list(pages.values())).result()
            busy = time.process_time() - busy
        print(f"200 at once: all answered in {last:.2f} s, the median in {median:.2f} s; {5 * busy:.1f} ms of CPU each")


SIX = [f"bm25(k1={number / 100})" for number in (3, 4, 5, 6)]


def endpoint(library: Library, path: str) -> int:
    """Make a page as the server does, without the network; returns its size."""
    place, _, query = path.partition("?")
    views = {"/": board_page.board_page, "/query": query_page.query_page, "/compare": compare_page.compare_page,
             "/runs": run_page.runs_page}  # fmt: skip
    scope = {"type": "http", "method": "GET", "path": place, "query_string": query.encode(), "headers": []}
    if place.startswith("/run/"):
        views[place], scope["path_params"] = run_page.run_page, {"id": place.removeprefix("/run/")}
    page, status = app.render_page(library, views[place], "", Request(scope))
    assert status == 200, path
    return len(page.encode())


def processor_time(library: Library, paths: Sequence[str]) -> float:
    """The median of the processor time that pages take, in milliseconds."""
    taken = []
    for path in paths:
        started = time.thread_time()
        endpoint(library, path)
        taken.append(1000 * (time.thread_time() - started))
    return statistics.median(taken)


def size_of(client: object, path: str) -> tuple[str, str]:
    """What a browser loads to show a page for the first time, all its files with it, packed and unpacked, in kB."""
    packed, unpacked, names = 0, 0, [path]
    page = client.get(path)  # type: ignore[attr-defined]
    names += re.findall(r'(?:href|src)="(/static/[^"]+)"', page.text)
    for name in names:
        with client.stream("GET", name) as answer:  # type: ignore[attr-defined]
            raw = b"".join(answer.iter_raw())
        packed += len(raw)
        unpacked += len(client.get(name).content)  # type: ignore[attr-defined]
    return f"{packed / 1000:7.0f}", f"{unpacked / 1000:9.0f}"


def at_once(address: str, headers: Mapping[str, str], pages: Sequence[str]) -> tuple[float, float]:
    """200 requests at once, over all pages: the seconds until the last is answered, and the median."""
    import httpx2 as httpx

    async def one(client: httpx.AsyncClient, page: str, started: float) -> float:
        answer = await client.get(page)
        assert answer.status_code == 200, page
        return time.perf_counter() - started

    async def every() -> list[float]:
        several = [*pages] * 20
        limits = httpx.Limits(max_connections=200)
        async with httpx.AsyncClient(base_url=address, headers=headers, timeout=60, limits=limits) as client:
            started = time.perf_counter()
            return list(await asyncio.gather(*(one(client, page, started) for page in several[:200])))

    taken = asyncio.run(every())
    return max(taken), statistics.median(taken)


def show_profile(library: Library, page: str, others: Sequence[str]) -> None:
    """Where the time goes: of a page that was asked for before, and of many that were not."""
    endpoint(library, page)
    for name, several in (("again", [page] * 20), ("other queries", others)):
        watch = cProfile.Profile()
        watch.enable()
        for each in several:
            endpoint(library, each)
        watch.disable()
        print(f"== {name}: {len(several)} pages")
        pstats.Stats(watch).sort_stats("cumulative").print_stats(45)


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

    from r2med.leaderboard.report_file import ReportChoice, report

    known = {dataset.name: dataset for dataset in datasets}
    with patch("r2med.data.loader.load", known.__getitem__):
        started = time.perf_counter()
        runs = share(ledger, [f"bm25(k1={number / 100})" for number in range(20)])
        page = report(ledger, ReportChoice(runs, causes=False))
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
        page.wait_for_selector("#queries li.here")
        print(f"report: opens in {opened:.2f} s, first queries after {time.perf_counter() - started:.2f} s more")
        browser.close()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--systems", type=int, default=200)
    parser.add_argument("--report", action="store_true")
    parser.add_argument("--profile", default="", metavar="PAGE")
    asked = parser.parse_args()
    generator = np.random.default_rng(7)
    words = vocabulary(generator)
    with tempfile.TemporaryDirectory() as folder:
        os.environ["R2MED_HOME"] = folder
        datasets = [make_dataset(name, words, generator) for name in QUERIES]
        path = Path(folder) / "ledger.sqlite"
        with Ledger(path) as ledger:
            fill(ledger, datasets, asked.systems, generator)
            diagnosed(ledger, datasets, generator)
            print(
                f"{asked.systems} systems x {sum(QUERIES.values())} queries, ledger {path.stat().st_size / 1e6:.0f} MB"
            )
            if not asked.profile:
                time_board()
            ask(path, datasets, asked.profile)
            if asked.report:
                write_report(ledger, datasets, Path(folder))


if __name__ == "__main__":
    main()
