"""Layouts of a task in a folder or a hub repository: the files of its parts as a table, and the choice among them."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from fnmatch import fnmatchcase
from functools import cache
from pathlib import Path
from typing import NamedTuple

from r2med.data.formats import PATTERNS
from r2med.data.problems import Findings
from r2med.errors import DataError

DEFAULT_SPLIT = "test"
_SHARD = re.compile(r"-\d+-of-(\d+)\.parquet$")


class TaskFiles(NamedTuple):
    """Files of a task, relative to its folder; a part that was not found has none."""

    documents: tuple[str, ...]
    queries: tuple[str, ...]
    qrels: tuple[str, ...]

    @property
    def files(self) -> tuple[str, ...]:
        """Return all files."""
        return self.documents + self.queries + self.qrels


def choose(names: Iterable[str], split: str = DEFAULT_SPLIT, patterns: TaskFiles | None = None) -> TaskFiles:
    """Choose the files to read among those that exist; a task may have its own patterns, with * for any letters.

    >>> choose(["corpus.jsonl", "queries.jsonl", "qrels/dev.tsv", "qrels/test.tsv"]).files
    ('corpus.jsonl', 'queries.jsonl', 'qrels/test.tsv')
    """
    ordered = sorted(names)
    if patterns is None:
        return TaskFiles(*(choose_part(part, ordered, split) for part in PATTERNS))
    matching = [
        [tuple(name for name in ordered if fnmatchcase(name, pattern)) for pattern in getattr(patterns, part)]
        for part in PATTERNS
    ]
    return TaskFiles(*(next((files for files in part if files and _is_whole(files)), ()) for part in matching))


def folders_of(patterns: TaskFiles | None) -> list[str]:
    """Return the folders that patterns of a task look into."""
    named = patterns.files if patterns is not None else ()
    return sorted({name.partition("/")[0] for name in named if "/" in name})


def choose_part(part: str, names: Sequence[str], split: str = DEFAULT_SPLIT) -> tuple[str, ...]:
    """Choose the files of one part among those that exist; none if there are none, or if pieces of one are missing."""
    for pattern in PATTERNS[part]:
        if "{split}" in pattern:
            if files := _split_files(pattern, names, split):
                return files
        # Judgements without a split of their own cannot be those of a split asked for by name.
        elif (part != "qrels" or split == DEFAULT_SPLIT) and (by_split := _matches(pattern, names)):
            return tuple(by_split[""][:1])
    return ()


def _split_files(pattern: str, names: Sequence[str], split: str) -> tuple[str, ...]:
    """Return the files of a split, or of one named like the part, or, if no split was asked for, of the only one."""
    by_split = _matches(pattern, names)
    files = by_split.get(split) or by_split.get(pattern.partition("/")[0])
    if files is None and len(by_split) == 1 and split == DEFAULT_SPLIT and pattern.endswith(".parquet"):
        [files] = by_split.values()
    return tuple(files) if files and _is_whole(files) else ()


def splits(names: Iterable[str], part: str = "qrels") -> list[str]:
    """Return the splits by which a part is stored; empty if it is not stored by splits."""
    ordered = sorted(names)
    return sorted({split for one in PATTERNS[part] if "{split}" in one for split in _matches(one, ordered)})


def config_files(config: str, names: Sequence[str], split: str) -> tuple[str, ...]:
    """Return the files of a further config, such as a list of candidates, in a folder or repository that has configs.

    >>> config_files("bm25", ["bm25/A-00000-of-00001.parquet", "bm25/B-00000-of-00001.parquet"], "B")
    ('bm25/B-00000-of-00001.parquet',)
    """
    patterns = (f"{config}/{{split}}.parquet", f"{config}/{{split}}/{{shard}}.parquet")
    return next(filter(None, (_split_files(pattern, names, split) for pattern in patterns)), ())


def listing(folder: Path, *configs: str) -> list[str]:
    """List the names in a folder that could be a part or belong to one of these configs, relative to it."""
    folders = {pattern.partition("/")[0] for patterns in PATTERNS.values() for pattern in patterns if "/" in pattern}
    folders.update(configs)
    names = []
    try:
        for entry in sorted(folder.iterdir()):
            if entry.name in folders and entry.is_dir():
                names += [file.relative_to(folder).as_posix() for file in sorted(entry.rglob("*")) if not file.is_dir()]
            else:
                names.append(entry.name)
    except OSError as error:
        raise DataError(f"{folder}: cannot be read: {error.strerror}") from error
    return names


def locate(folder: Path, split: str, findings: Findings, patterns: TaskFiles | None = None) -> TaskFiles:
    """Find the parts in a folder; note what is missing with the name it should have."""
    names = listing(folder, *folders_of(patterns))
    parts = choose(names, split, patterns)
    for part in PATTERNS:
        if not getattr(parts, part):
            findings.add("missing-file", folder, 0, missing(part, names, split, patterns))
    return parts


def missing(part: str, names: Sequence[str], split: str, patterns: TaskFiles | None = None) -> str:
    """Return the message about a part that could not be chosen."""
    if patterns is not None:
        return f"no {part}; expected {' or '.join(getattr(patterns, part))}"
    pieces = [name for pattern in PATTERNS[part] for name in _matches(pattern, names).get(split, [])]
    if pieces:
        return f"{part} are incomplete: {len(pieces)} of {_SHARD.findall(pieces[0])[0].lstrip('0')} pieces"
    if present := splits(names, part):
        return f"no {part} for the split {split!r}; splits here: {', '.join(present)}"
    if whole := choose_part(part, names):
        return f"no {part} for the split {split!r}; {whole[0]} has no splits"
    plain = [pattern for pattern in PATTERNS[part] if "{shard}" not in pattern]
    return f"no {part}; expected {', '.join(plain[:-1])} or {plain[-1]}".replace("{split}", split)


@cache
def _regex(pattern: str) -> re.Pattern[str]:
    text = re.escape(pattern).replace(r"\{split\}", r"(?P<split>[^/]+?)").replace(r"\{shard\}", r"[^/]+")
    if pattern.endswith("{split}.parquet"):
        text = text.replace(r"\.parquet", r"(?:-\d+-of-\d+)?\.parquet")
    return re.compile(text + (r"(?:\.gz)?" if not pattern.endswith(".parquet") else ""))


def _matches(pattern: str, names: Sequence[str]) -> dict[str, list[str]]:
    """Return the names that match a pattern, by split ("" if it has none)."""
    by_split: dict[str, list[str]] = {}
    for name in names:
        if match := _regex(pattern).fullmatch(name):
            by_split.setdefault(match.groupdict().get("split") or "", []).append(name)
    return by_split


def _is_whole(names: Sequence[str]) -> bool:
    totals = {int(count) for name in names for count in _SHARD.findall(name)}
    return not totals or totals == {len(names)}
