"""`r2med board --factors`: how much of the variance of a board is due to task, retriever, language model and method."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from itertools import product
from typing import Any

import numpy as np

from r2med.data.published import published, sources
from r2med.errors import R2medError, SpecError
from r2med.formatting import counted
from r2med.measure.factors import Effect, LevelMean, level_means, variance_shares
from r2med.pipeline.spec import parse
from r2med.render.scores.model import Board, BoardRow
from r2med.render.sections import Section
from r2med.render.table import column, key, percent, signed_interval, signed_percent
from r2med.store.typed import Typed

PARTS = ("retriever", "llm", "method")
"""The factors of a system; the task comes beside them."""
_NO_PART = "none"
_Combination = tuple[str, ...]  # a level of each of `PARTS`


class Factors(Typed, frozen=True):
    """Variance of the figures of a board by factor."""

    group: str
    measure: str
    levels: dict[str, tuple[str, ...]]
    """The factors of the balanced block, with their levels."""
    cells: int
    """Figures in the block: one for each combination of levels."""
    systems: int
    """Systems that the means are estimated from: those of the block, and others with the same factors."""
    shared: int
    """Systems that were left out since another one has the same parts: local runs stand before published figures, and
    the benchmark's own sources before others."""
    effects: tuple[Effect, ...]
    """Shares of the variance in the block, the largest first, and what is left."""
    means: tuple[LevelMean, ...]
    """Mean of each level, by a mixed model in which tasks are random."""


def study_factors(board: Board) -> Factors:
    """Share out the variance of a whole board: over the largest block that has every combination of levels."""
    if len(board.tasks) < 2 or not board.averaged:
        raise R2medError("--factors needs at least two tasks that belong together: choose them with --tasks or --group")
    rows: dict[_Combination, BoardRow] = {}
    order, ranked = ["own", "submitted", *sources()], [row for row in board.lines if row.rank is not None]
    for row in sorted(ranked, key=lambda row: (order.index(row.sources[0]), row.name)):
        rows.setdefault(_parts(row), row)
    levels = balanced_block(rows)
    crossed = [name for name in PARTS if len(levels[name]) > 1]
    if not crossed:
        raise R2medError(
            f"{counted(len(rows), 'system')} with a rank on this board, and no two differ in one of"
            f" {', '.join(PARTS)} alone: run more of them, or drop filters"
        )
    axes = [levels[name] for name in PARTS]
    tasks = list(board.tasks)
    block = np.array([[rows[parts].values[task] for task in tasks] for parts in product(*axes)])
    shape = [len(levels[name]) for name in crossed]
    effects = variance_shares(block.reshape(*shape, len(tasks)), (*crossed, "task"))
    # Others with the same factors: a system without a language model says nothing of language models.
    alike = [parts for parts in rows if all(_belongs(level, axis) for level, axis in zip(parts, axes, strict=True))]
    columns = {name: [parts[PARTS.index(name)] for parts in alike] for name in crossed}
    scores = np.array([[rows[parts].values[task] for task in tasks] for parts in alike])
    means = level_means(scores, columns, {name: levels[name] for name in crossed})
    return Factors(
        board.group,
        board.measure,
        {**{name: levels[name] for name in crossed}, "task": tuple(tasks)},
        block.size,
        len(alike),
        len(ranked) - len(rows),
        tuple(effects),
        tuple(sorted(means, key=lambda mean: (crossed.index(mean.factor), -mean.mean))),
    )


def _belongs(level: str, axis: Sequence[str]) -> bool:
    return level in axis or (len(axis) > 1 and level != _NO_PART)


def _parts(row: BoardRow) -> _Combination:
    """Return the levels of a system; language models by the benchmark's names."""
    aliases = {row.generate.partition("(")[2].partition(")")[0]: row.llm for row in published() if row.generate}
    parts = row.parts
    llms = [aliases.get(name, name) for name in parts.llms]
    method = "+".join(parts.rerankers)
    if llms and not method:
        try:
            first = parse(row.system).calls[0]
            method = str(dict(first.options).get("method", first.name))
        except SpecError:
            method = row.name.partition("/")[0]
    return "+".join(parts.retrievers) or _NO_PART, llms[0] if llms else _NO_PART, method or _NO_PART


def balanced_block(combinations: Iterable[_Combination]) -> dict[str, tuple[str, ...]]:
    """Return the levels of the block with the most factors of several levels, and among these the most systems.

    >>> rows = [(r, m, "hyde") for r in ("bm25", "bge") for m in ("a", "b")] + [("nv", "a", "lamer")]
    >>> balanced_block(rows)
    {'retriever': ('bge', 'bm25'), 'llm': ('a', 'b'), 'method': ('hyde',)}
    """
    by_method: dict[str, set[_Combination]] = {}
    for retriever, llm, method in combinations:
        by_method.setdefault(method, set()).add((retriever, llm))
    best: tuple[tuple[int, int], dict[str, tuple[str, ...]]] = ((-1, 0), dict.fromkeys(PARTS, ()))
    for pairs in _intersections(by_method.values()):
        methods = [method for method, others in by_method.items() if pairs <= others]
        by_llm: dict[str, set[str]] = {}
        for retriever, llm in pairs:
            by_llm.setdefault(llm, set()).add(retriever)
        for retrievers in _intersections(by_llm.values()):
            llms = [llm for llm, others in by_llm.items() if retrievers <= others]
            axes = [tuple(sorted(axis)) for axis in (retrievers, llms, methods)]
            size = (sum(len(axis) > 1 for axis in axes), len(retrievers) * len(llms) * len(methods))
            best = max(best, (size, dict(zip(PARTS, axes, strict=True))), key=lambda one: one[0])
    return best[1]


def _intersections(sets: Collection[Collection[Any]]) -> list[frozenset[Any]]:
    """Return every set that is an intersection of some of these, the empty one left out, in a fixed order."""
    closed: set[frozenset[Any]] = set()
    for one in map(frozenset, sets):
        closed |= {one, *(one & other for other in closed)}
    return sorted((one for one in closed if one), key=lambda one: (-len(one), sorted(one)))


_EFFECTS = (key("variance", "effect"), column("freedom", "df"), column("share", "eta squared", "{:.4f}".format))
_MEANS = (
    key("level"),
    column("systems"),
    column("mean", form=percent),
    column("difference", "diff", signed_percent),
    column("", "95% interval", signed_interval, get=lambda mean: mean),
)


def factor_sections(factors: Factors) -> list[Section]:
    """Lay the study out: a table of shares, and one of means for each factor."""
    size = " x ".join(counted(len(levels), name) for name, levels in factors.levels.items())
    left = f" {counted(factors.shared, 'system')} with the parts of another left out." * bool(factors.shared)
    sections = [
        Section.of(
            f"{factors.measure}: shares of the variance of {factors.cells} figures",
            _EFFECTS,
            factors.effects,
            [f"The largest block of this board with every combination: {size}.{left}"],
        )
    ]
    note = (
        "mean: with each level of the other factors in the block; diff: from the mean of the block. Tasks are random."
    )
    names = [name for name in factors.levels if name in PARTS]
    for name in names:
        title = f"{factors.measure} x 100 by {name}, mixed model over {counted(factors.systems, 'system')}"
        rows = [mean for mean in factors.means if mean.factor == name]
        sections.append(Section.of(title, _MEANS, rows, [note] * (name == names[-1])))
    return sections
