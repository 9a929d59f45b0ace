"""Write the published figures that the package ships, from a folder of the tables they were collected in.

    python scripts/make_published.py FOLDER [OUT.tsv]

FOLDER holds published_scores.csv, leaderboard_page.csv, mteb_scores.csv, later_results.csv and nano_scores.csv.
The result is `src/r2med/data/published.tsv`; `r2med.data.published` says what is in it.
"""

from __future__ import annotations

import csv
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import astuple, dataclass, field
from decimal import Decimal
from functools import partial
from pathlib import Path

OUT = Path(__file__).resolve().parent.parent / "src" / "r2med" / "data" / "published.tsv"
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
    ("grouprank", "full", "3", "GroupRank, tables 2 and 5", "https://arxiv.org/abs/2511.11653"),
    ("reasonrank", "full", "4", "ReasonRank, table 2", "https://arxiv.org/abs/2508.07050"),
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
RETRIEVER_TOKENS = {
    "contriever": (512, 512), "medcpt": (512, 512), "bge": (512, 512), "bmr-410m": (512, 512), "bmr-2b": (1024, 1024),
    "bmr-7b": (2048, 2048), "e5": (2048, 2048), "sfr": (2048, 2048), "grit": (512, 2048), "nv": (4096, 4096),
    "voyage": (16_000, 16_000), "openai": (6_000, 6_000),
}  # fmt: skip
"""How many tokens of a query and of a document the benchmark's authors let each model read, where they say so."""
RERANKER_TOKENS = {"bge-reranker": 512, "monobert": 512, "rankllama": 1024}
"""How many tokens of a query and a document together."""
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
    "DIVER-Retriever-4B": "diver",
    "ReasonEmbed-Qwen3-4B": "reason-embed-4b",
    "ReasonEmbed-Qwen3-8B": "reason-embed-8b",
}
LATER_NAMES = {
    "DIVER-Retriever": "DIVER-Retriever-4B",
    "Diver-Retriever-4B": "DIVER-Retriever-4B",
    "E5-mistral": "base/e5",
}
"""First stages, which other sources have too: one name for one system."""
LATER_NOTES = {
    ("reasonembed", "DIVER-Retriever-4B"): "an earlier release of the model, texts cut at 512 tokens",
    ("grouprank", "DIVER-Retriever-4B"): "as its authors run it",
}
"""What is known beyond the tables of how a figure was made."""
LATER_TOKENS = {("reasonembed", "DIVER-Retriever-4B"): (512, 512)}
FIRST_STAGES = {"DIVER-Retriever-4B": "diver", "e5-mistral": "e5"}
ZERO_SHOT = {
    "Qwen2.5-32B-Instruct": ("qwen-32b", "qwen-32b"), "Qwen3-32B (no think)": ("qwen3-32b-no-think", "qwen3-32b"),
    "Qwen3-32B (think)": ("qwen3-32b-think", "qwen3-32b"), "DeepSeek-V3.1": ("deepseek-v3.1", "deepseek-v3.1"),
}  # fmt: skip
"""Chat models that rerank groups without training for it: their part of a row's name, and the model's name."""
CHAT_CARDS = {"qwen3-32b-think": "qwen3-32b", "qwen3-32b-no-think": "qwen3-32b-no-think"}
"""The card of a chat model whose row says more than its name."""
SERVED = {
    "grouprank-7b": "groupwise", "grouprank-32b": "groupwise",
    "reasonrank-7b": "listwise", "reasonrank-32b": "listwise", "rank-k-32b": "listwise",
    "rank1-7b": "pointwise", "rank1-14b": "pointwise", "rank1-32b": "pointwise",
    "erank-4b": "pointwise", "erank-14b": "pointwise", "erank-32b": "pointwise",
}  # fmt: skip
"""Rerankers that r2med has a card for, and the stage that asks each."""
FUSED = "0.5"
"""The share of the first stage's scores in a groupwise row; the published one is not known."""
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
    max_query: str = ""
    """How many tokens of a query the retriever read; empty where nobody said."""
    max_document: str = ""
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


def tokens(limits: tuple[int, int] | None) -> dict[str, str]:
    """The fields of a system that say how much of a text was read."""
    return {"max_query": str(limits[0]), "max_document": str(limits[1])} if limits else {}


def benchmark_system(source: str, expander: str, llm: str, retriever: str, note: str = "") -> System:
    """A row of the benchmark's own tables."""
    note = note or (MEDCPT if retriever == "medcpt" else "")
    limits = tokens(RETRIEVER_TOKENS.get(retriever)) if source == "paper" else {}
    if not expander:
        return System(source, f"base/{retriever}", "base", retriever, system=retriever, note=note, **limits)
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
        **limits,
    )


def paper(rows: Iterable[Mapping[str, str]]) -> Table:
    """The result files of the benchmark's repository."""
    found: Table = {}
    for row in rows:
        system = benchmark_system("paper", row["expander"], row["llm"], row["retriever"])
        if row["reranker"]:
            reranker, retriever, depth = row["reranker"], row["retriever"], row["depth"]
            spec = f"{retriever} >> {reranker}(depth={depth})"
            limit = f"{RERANKER_TOKENS[reranker]} tokens of query and document together"
            note = f"{_first_stage(retriever, depth)}, {limit}"
            limits = tokens(RETRIEVER_TOKENS.get(retriever))
            system = System(
                "paper", f"reranker/{reranker}", "reranker", retriever,
                reranker=reranker, system=spec, note=note, **limits,
            )  # fmt: skip
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
            note = f"reasoning listwise; {_first_stage(retriever)}"
            system = System(
                "page", f"reranker/reasonrank-32b/{retriever}", "reranker", retriever,
                reranker="reasonrank-32b", system=served_spec(retriever, "reasonrank-32b"), size="32B", note=note,
            )  # fmt: skip
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
    return {LATER[row["source"]](row): {"nDCG@10": _wide(row)} for row in rows}


def insertrank_system(row: Mapping[str, str]) -> System:
    """The one row of InsertRank's abstract."""
    return System(
        "insertrank", "InsertRank", "reranker", "bm25", "deepseek-r1", "listwise",
        system="bm25 >> listwise(deepseek-r1, scores=true)", size=row["size"],
        note="only the average was published; the prompt of r2med's listwise is not InsertRank's own",
    )  # fmt: skip


def later_retriever(source: str, row: Mapping[str, str], note: str) -> System:
    """A retriever alone, in a paper that came after the benchmark."""
    name = LATER_NAMES.get(row["system"], row["system"])
    spec = name.removeprefix("base/") if name.startswith("base/") else LATER_SYSTEMS.get(name, "")
    note = "; ".join(part for part in (note, LATER_NOTES.get((source, name), "")) if part)
    limits = tokens(LATER_TOKENS.get((source, name)))
    return System(source, name, "base", spec or name, system=spec, size=row["size"], note=note, **limits)


def reasonembed_system(row: Mapping[str, str]) -> System:
    """A row of ReasonEmbed's table."""
    return later_retriever("reasonembed", row, row["note"])


def reranked_system(source: str, row: Mapping[str, str]) -> System:
    """A row of a table of rerankers that share a first stage, whose note says which; or that first stage itself."""
    how, _, over = row["note"].partition("; reranks ")
    if how.startswith("first stage"):
        return later_retriever(source, row, how)
    first_stage, _, depth = over.partition(" top ")
    retriever = FIRST_STAGES[first_stage]
    note = f"{how}; {_first_stage(retriever, depth)}"
    if row["system"] in ZERO_SHOT:
        part, llm = ZERO_SHOT[row["system"]]
        name = f"groupwise/{part}/{retriever}"
        spec = f"{retriever} >> groupwise({CHAT_CARDS.get(part, llm)}, fuse={FUSED})"
        return System(
            source, name, "reranker", retriever, llm, "groupwise",
            system=spec, size=row["size"], note=note,
        )  # fmt: skip
    model, _, variant = row["system"].casefold().partition(" (")
    size = row["size"].casefold()
    reranker = model if model.endswith(f"-{size}") else f"{model}-{size}"
    part = f"{reranker}-sorted" if variant.startswith("sorted") else reranker
    return System(
        source, f"reranker/{part}/{retriever}", "reranker", retriever,
        reranker=reranker, system=served_spec(retriever, part), size=row["size"], note=note,
    )  # fmt: skip


def served_spec(retriever: str, part: str) -> str:
    """A reranker with a card of its own as r2med says it over a first stage; empty for one without."""
    reranker = part.removesuffix("-sorted")
    if reranker not in SERVED:
        return ""
    if SERVED[reranker] != "groupwise":
        return f"{retriever} >> {SERVED[reranker]}({reranker})"
    how = "groups=sorted, " if part != reranker else ""
    return f"{retriever} >> groupwise({reranker}, {how}fuse={FUSED})"


def _first_stage(retriever: str, depth: str = "100") -> str:
    return f"reranks the first {depth} documents of {retriever}"


LATER: Mapping[str, Callable[[Mapping[str, str]], System]] = {
    "arXiv 2510.08252 table 3": reasonembed_system,
    "arXiv 2506.14086 abstract": insertrank_system,
    "arXiv 2511.11653 table 2": partial(reranked_system, "grouprank"),
    "arXiv 2508.07050 table 2": partial(reranked_system, "reasonrank"),
}
"""What makes a system of a row, by the table that the row comes from."""


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
