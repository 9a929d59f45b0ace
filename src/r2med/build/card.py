"""The dataset card of a nano set: the configs for the hub's loader, and what a reader must know."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from r2med.build.write import LAYOUT, LIST_COLUMNS, file_of

_POLICIES = {
    "source-order": "in the order of the source",
    "hard": "the documents that these systems rank highest without their being relevant: {systems}",
    "random": "drawn by a hash of the seed {seed} and the document's id",
}


def card(manifest: Mapping[str, Any]) -> str:
    """The text of README.md."""
    lists = manifest["candidates"]
    configs = [*LAYOUT, *(each["config"] for each in lists.values())]
    sections = [
        *_front_matter(configs, list(manifest["splits"])),
        "",
        "# A nano set",
        "",
        "Made with r2med from larger retrieval tasks, to be evaluated in minutes. It is easier than its source: scores",
        "on it compare with scores on the same set only. The terms of the source apply to its texts.",
        "",
        *_tasks(manifest["splits"]),
        "",
        "## Recipe",
        "",
        *_recipe(manifest),
        "",
        "## Configs",
        "",
        *_configs(lists),
        "",
        "`nano.json` has every parameter, the fingerprints of the sources and of the result, and the safeguards.",
        "",
        "```",
        "r2med run bm25 --tasks THIS/FOLDER",
        "r2med nano profile THIS/FOLDER",
        "```",
    ]
    return "\n".join(sections) + "\n"


def _front_matter(configs: Sequence[str], splits: Sequence[str]) -> Iterator[str]:
    """The block that tells the hub's loader which files belong together."""
    yield "---"
    yield "configs:"
    for config in configs:
        yield f"- config_name: {config}"
        yield "  data_files:"
        for split in splits:
            yield f"  - split: {split}"
            yield f"    path: {file_of(config, split)}"
    yield from ("task_categories:", "- text-retrieval", "tags:", "- information-retrieval", "- nano", "---")


def _tasks(splits: Mapping[str, Mapping[str, Any]]) -> Iterator[str]:
    yield "| split | source | queries | documents | positives | safeguards |"
    yield "|---|---|---:|---:|---:|---:|"
    for split, each in splits.items():
        source, counts = each["source"], each["counts"]
        name = source["name"] + (f" ({source['hub']}@{source['revision'][:12]})" if source["hub"] else "")
        numbers = [counts["queries"], counts["documents"], counts["positives"], len(each["safeguards"])]
        yield f"| {split} | {_cell(name)} | " + " | ".join(f"{number:,}" for number in numbers) + " |"


def _recipe(manifest: Mapping[str, Any]) -> Iterator[str]:
    recipe = manifest["recipe"]
    systems = ", ".join(f"`{text}`" for text in recipe.get("hard_systems", ()))
    policy = _POLICIES[recipe["policy"]].format(systems=systems, seed=recipe.get("seed"))
    yield f"1. The first {recipe['queries']:,} queries of the source at the most, each with a relevant document."
    yield "2. All their relevant documents; judgements are positive only and binary."
    yield f"3. Further documents up to {recipe['documents']:,}: {policy}."
    yield "4. Empty and repeated texts are skipped; the judgements of a repeated relevant document go to its twin."


def _configs(lists: Mapping[str, Mapping[str, Any]]) -> Iterator[str]:
    yield "| config | columns | content |"
    yield "|---|---|---|"
    content = {"corpus": "documents, the relevant ones first", "queries": "queries", "qrels": "judgements"}
    for config, columns in LAYOUT.items():
        yield f"| {config} | {', '.join(columns)} | {content[config]} |"
    for each in lists.values():
        yield f"| {each['config']} | {', '.join(LIST_COLUMNS)} | {_list_content(each)} |"


def _list_content(entry: Mapping[str, Any]) -> str:
    if "of" not in entry:
        return f"the {entry['depth']} best of `{_cell(entry['system'])}`"
    fused = " and ".join(entry["of"]) if len(entry["of"]) > 1 else f"{entry['of'][0]} alone"
    extra = f"where none of them is relevant, one relevant document more at rank {entry['depth'] + 1}"
    return f"reciprocal rank fusion (k = {entry['k']}) of {fused}, {entry['depth']} best; {extra}"


def _cell(text: str) -> str:
    return text.replace("|", "\\|")
