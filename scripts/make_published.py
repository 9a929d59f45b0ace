"""Write the published figures that the package ships, from a folder of the tables they were collected in.

    python scripts/make_published.py FOLDER [OUT.tsv]

FOLDER holds published_scores.csv, leaderboard_page.csv, mteb_scores.csv, later_results.csv and nano_scores.csv.
The result is `src/r2med/board/published.tsv`; `r2med.board.published` says what is in it.
"""

from __future__ import annotations

import csv
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import astuple, dataclass, field
from decimal import Decimal
from pathlib import Path

OUT = Path(__file__).resolve().parent.parent / "src" / "r2med" / "board" / "published.tsv"
TASKS = (
    "Biology", "Bioinformatics", "Medical-Sciences", "MedXpertQA-Exam",
    "MedQA-Diag", "PMC-Treatment", "PMC-Clinical", "IIYi-Clinical",
)  # fmt: skip

# name, group, digits after the point (as a share of 1), title, where
SOURCES = (
    ("paper", "full", "5", "R2MED, result files of its repository", "https://github.com/R2MED/R2MED"),
    ("page", "full", "4", "R2MED, leaderboard page", "https://r2med.github.io"),
    ("mteb", "full", "5", "MTEB results repository", "https://github.com/embeddings-benchmark/results"),
    ("reasonembed", "full", "4", "ReasonEmbed, table 3", "https://arxiv.org/abs/2510.08252"),
    ("insertrank", "full", "3", "InsertRank, abstract", "https://arxiv.org/abs/2506.14086"),
    ("nano", "nano", "10", "NanoR2MED, candidate lists", "https://huggingface.co/datasets/hakari-bench/NanoR2MED"),
)

MEASURES = {"ndcg": "nDCG", "map": "MAP", "mrr": "MRR", "recall": "Recall", "precision": "P", "hit": "Hit"}
REASONING = {"o3-mini", "huatuo-o1-70b", "r1-llama-70b", "r1-qwen-32b", "qwq-32b", "qwen3-32b"}
AGENTS = {"search-o1", "search-r1"}
LLMS = {"gpt4": "gpt-4o", "qwen-3b-ins": "search-r1-3b", "qwen-7b-ins": "search-r1-7b"}
"""What the benchmark's files call a model, and what r2med calls it where that differs."""

MEDCPT = (
    "Cannot be right: the article encoder read the queries too, and vectors were compared by cosine;"
    " medcpt-card is the model as its card says (one encoder for each side, dot product)."
)
MEDCPT_PAGE = (
    f"The page's figures are not those of the repository's files, and how they were made is not known. {MEDCPT}"
)
PAGE_RETRIEVERS = {
    "BM25": "bm25", "BGE-Large-en-v1.5": "bge", "NV-Embed-v2": "nv", "Text-embedding-3-large": "openai",
    "GritLM-7B": "grit", "SFR-Embedding-Mistral": "sfr", "BMRetriever-7B": "bmr-7b", "Voyage-3": "voyage",
    "E5-mistral-7b-instruct": "e5", "BMRetriever-2B": "bmr-2b", "InstructOR-XL": "inst-xl",
    "BMRETRIEVER-410M": "bmr-410m", "InstructOR-L": "inst-l", "Contriever": "contriever", "MedCPT": "medcpt",
}  # fmt: skip
PAGE_REWRITERS = {
    "-": ("", ""), "o3-mini": ("hyde", "o3-mini"), "GPT4o": ("hyde", "gpt4"),
    "HuatuoGPT-o1-70B": ("hyde", "huatuo-o1-70b"), "Llama3.1-70B-Ins": ("hyde", "llama-70b"),
    "DeepSeek-R1-Distill-Llama-70B": ("hyde", "r1-llama-70b"), "QwQ-32B": ("hyde", "qwq-32b"),
    "DeepSeek-R1-Distill-Qwen-32B": ("hyde", "r1-qwen-32b"), "Qwen2.5-32B-Ins": ("hyde", "qwen-32b"),
    "Qwen2.5-7B-Ins": ("hyde", "qwen-7b"),
    "Search-O1 (QwQ-32b)": ("search-o1", "qwq-32b"), "Search-O1 (Qwen3-32b)": ("search-o1", "qwen3-32b"),
    "Search-R1 (Qwen2.5-7b-it-em-ppo)": ("search-r1", "qwen-7b-ins"),
    "Search-R1 (Qwen2.5-3b-it-em-ppo)": ("search-r1", "qwen-3b-ins"),
}  # fmt: skip
MTEB_SYSTEMS = {
    "Alibaba-NLP/gte-Qwen2-1.5B-instruct": "gte-qwen2-1.5b",
    "Alibaba-NLP/gte-Qwen2-7B-instruct": "gte-qwen2-7b",
    "BAAI/bge-large-en-v1.5": "bge",
    "BAAI/bge-m3": "bge-m3",
    "BAAI/bge-small-en-v1.5": 'hf:BAAI/bge-small-en-v1.5(revision="{revision}")',
    "GritLM/GritLM-7B": "grit",
    "Salesforce/SFR-Embedding-Mistral": "sfr",
    "intfloat/e5-mistral-7b-instruct": "e5",
    "sentence-transformers/all-mpnet-base-v2": "mpnet",
    "sentence-transformers/paraphrase-multilingual-MiniLM-L12-v2": (
        "hf:sentence-transformers/paraphrase-multilingual-MiniLM-L12-v2(revision={revision})"
    ),
    **{
        f"intfloat/multilingual-e5-{size}": (
            f'hf:intfloat/multilingual-e5-{size}(query_prompt="query: ", document_prompt="passage: ", '
            "revision={revision})"
        )
        for size in ("small", "base", "large")
    },
}
"""Models of MTEB that r2med can name; the others need code of their own or prompts that are not known here."""
LATER_SYSTEMS = {
    "gte-Qwen2-7B-instruct": "gte-qwen2-7b",
    "Qwen3-Embedding-4B": "qwen3-embedding-4b",
    "Qwen3-Embedding-8B": "qwen3-embedding-8b",
    "ReasonIR-8B": "reasonir",
    "RaDeR-gte-Qwen2-7B": "rader",
    "DIVER-Retriever": "diver",
    "ReasonEmbed-Qwen3-4B": "reason-embed-4b",
    "ReasonEmbed-Qwen3-8B": "reason-embed-8b",
}
NANO = {
    "bm25": ("base", "bm25", "HAKARI-Bench's BM25"),
    "dense": ("base", "harrier", "microsoft/harrier-oss-v1-270m with its web-search prompt"),
    "hybrid": ("fusion", "rrf", "reciprocal rank fusion of the two with k=100"),
}


@dataclass(frozen=True)
class System:
    """A published row: what it is called, what it is made of, and how r2med says it."""

    source: str
    name: str
    kind: str
    retriever: str
    llm: str = ""
    reranker: str = ""
    system: str = ""
    generate: str = ""
    """The system that asks the model anew, where `system` replays what was published."""
    size: str = ""
    note: str = ""


@dataclass
class Figures:
    """The values of one system by one measure, as they were written, in shares of 1."""

    average: str = ""
    tasks: dict[str, str] = field(default_factory=dict)


Table = dict[System, dict[str, Figures]]


def read(file: Path) -> list[dict[str, str]]:
    """The rows of a table."""
    with file.open(encoding="utf-8", newline="") as stream:
        return list(csv.DictReader(stream))


def share(percent: str) -> str:
    """A figure that was published times 100, as a share of 1 with all its digits."""
    return f"{Decimal(percent) / 100:f}" if percent else ""


def measure(column: str) -> str:
    """`ndcg_at_10` as r2med writes it."""
    name, _, cutoff = column.partition("_at_")
    return f"{MEASURES[name]}@{cutoff}" if cutoff else MEASURES[name]


def benchmark_system(source: str, expander: str, llm: str, retriever: str, note: str = "") -> System:
    """A row of the benchmark's own tables."""
    note = note or (MEDCPT if retriever == "medcpt" else "")
    if not expander:
        return System(source, f"base/{retriever}", "base", retriever, system=retriever, note=note)
    kind = "agent" if expander in AGENTS else "reasoning" if llm in REASONING else "gar"
    return System(
        source,
        f"{expander}/{llm}/{retriever}",
        kind,
        retriever,
        llm,
        system=f"replay(hub, method={expander}, llm={llm}) >> {retriever}",
        generate=f"{expander}({LLMS.get(llm, llm)}) >> {retriever}",
        note=note,
    )


def paper(rows: Iterable[Mapping[str, str]]) -> Table:
    """The result files of the benchmark's repository."""
    found: Table = {}
    for row in rows:
        system = benchmark_system("paper", row["expander"], row["llm"], row["retriever"])
        if row["reranker"]:
            spec = f"{row['retriever']} >> {row['reranker']}(depth={row['depth']})"
            name = f"reranker/{row['reranker']}"
            system = System("paper", name, "reranker", row["retriever"], reranker=row["reranker"], system=spec)
        figures = found.setdefault(system, {}).setdefault(measure(row["metric"]), Figures())
        figures.tasks[row["task"]] = row["value"]
    return found


def page(rows: Iterable[Mapping[str, str]]) -> Table:
    """The leaderboard page."""
    found: Table = {}
    for row in rows:
        expander, llm = PAGE_REWRITERS[row["rewriter"]]
        retriever = PAGE_RETRIEVERS[row["retriever"]]
        system = benchmark_system("page", expander, llm, retriever, MEDCPT_PAGE if retriever == "medcpt" else "")
        if row["reranker"] == "ReasonRank(32B)":
            note = "ReasonRank-32B, listwise, on the first 100 documents"
            name = "reranker/reasonrank-32b"
            system = System("page", name, "reranker", retriever, reranker="reasonrank-32b", size="32B", note=note)
        elif row["reranker"] != "-":
            raise ValueError(f"an unknown reranker: {row['reranker']}")
        found[system] = {"nDCG@10": _wide(row)}
    return found


def _wide(row: Mapping[str, str]) -> Figures:
    return Figures(share(row["average"]), {task: share(row[task]) for task in TASKS})


def mteb(rows: Iterable[Mapping[str, str]]) -> Table:
    """The models of the MTEB results repository."""
    found: Table = {}
    for row in rows:
        model, revision = row["model"], row["revision"]
        spec = MTEB_SYSTEMS.get(model, "").format(revision=revision)
        retriever = spec if spec and ":" not in spec else model
        note = f"by mteb {row['mteb_version']} with its own prompts and lengths, revision {revision[:10]}"
        system = System("mteb", model, "base", retriever, system=spec, note=note)
        for column in ("ndcg_at_10", "recall_at_10", "recall_at_100", "map_at_100", "mrr_at_10"):
            figures = found.setdefault(system, {}).setdefault(measure(column), Figures())
            figures.tasks[row["task"]] = row[column]
    return found


def later(rows: Iterable[Mapping[str, str]]) -> Table:
    """Papers that came after the benchmark."""
    found: Table = {}
    for row in rows:
        name, note = row["system"], row["note"]
        if name.startswith("InsertRank"):
            system = System(
                "insertrank", "InsertRank", "reranker", "bm25", "deepseek-r1", "listwise",
                system="bm25 >> listwise(deepseek-r1, scores=true)", size=row["size"],
                note="only the average was published; the prompt of r2med's listwise is not InsertRank's own",
            )  # fmt: skip
        else:
            spec = LATER_SYSTEMS.get(name, "")
            system = System("reasonembed", name, "base", spec or name, system=spec, size=row["size"], note=note)
        found[system] = {"nDCG@10": _wide(row)}
    return found


def nano(rows: Iterable[Mapping[str, str]]) -> Table:
    """The profiles of NanoR2MED's candidate lists. Their recall is found over all relevant documents of a task."""
    splits = {f"NanoR2MED{task.replace('-', '')}": task for task in TASKS}
    found: Table = {}
    for row in rows:
        for name, (kind, retriever, note) in NANO.items():
            system = System("nano", f"nano/{name}", kind, retriever, system=f"candidates({name})", note=note)
            for column in ("ndcg_at_10", "hit_at_10", "recall_at_100"):
                label = "micro-Recall@100" if column == "recall_at_100" else measure(column)
                figures = found.setdefault(system, {}).setdefault(label, Figures())
                figures.tasks[splits[row["task"]]] = row[f"{name}_{column}"]
    return found


def lines(tables: Sequence[Table]) -> Iterator[Sequence[str]]:
    """The whole file as rows of cells: sources, systems, figures, with an empty row between them."""
    yield ("source", "group", "digits", "title", "where")
    yield from SOURCES
    yield ()
    yield tuple(System.__dataclass_fields__)
    for table in tables:
        yield from map(astuple, table)
    yield ()
    yield ("source", "name", "measure", "average", *TASKS)
    for table in tables:
        for system, measures in table.items():
            for label in sorted(measures, key=_order):
                figures = measures[label]
                yield (
                    system.source, system.name, label, figures.average,
                    *(figures.tasks.get(task, "") for task in TASKS),
                )  # fmt: skip


def _order(label: str) -> tuple[bool, str, int]:
    """The headline first, then by name and cutoff."""
    name, _, cutoff = label.partition("@")
    return label != "nDCG@10", name, int(cutoff or 0)


def main(arguments: Sequence[str]) -> None:
    """Read the folder, write the file."""
    folder, out = Path(arguments[0]), Path(arguments[1]) if len(arguments) > 1 else OUT
    tables = [
        paper(read(folder / "published_scores.csv")),
        page(read(folder / "leaderboard_page.csv")),
        mteb(read(folder / "mteb_scores.csv")),
        later(read(folder / "later_results.csv")),
        nano(read(folder / "nano_scores.csv")),
    ]
    rows = ["\t".join(cells) for cells in lines(tables)]
    if any("\n" in row or "\r" in row for row in rows):
        raise ValueError("a cell with a line break")
    out.write_text("\n".join(rows) + "\n", encoding="utf-8", newline="\n")
    sys.stdout.write(f"{out}: {sum(map(len, tables))} systems, {out.stat().st_size:,} bytes\n")


if __name__ == "__main__":
    main(sys.argv[1:])
