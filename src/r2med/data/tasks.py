"""The registry: every task by name, the groups, and how names, groups and folders on the command line are resolved."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any, ClassVar

from r2med.data import layout
from r2med.data.formats import PATTERNS
from r2med.data.manifests import read_manifest, read_translation
from r2med.errors import DataError, suggest
from r2med.store.files import expanded

AVERAGE = ""
"""The name of the average's column, as in `Report.intervals`."""
HUB_PREFIX = "hf:"
"""Prefix of the name of a dataset or model on the hub."""
GROUPS = ("full", "nano", "sample")
OWN_NANO = "custom-nano"
"""The group of nano sets in folders, apart from both the published ones and from whole collections."""
FOLDER_GROUPS = ("custom", OWN_NANO)
"""The groups of folders, which may be unrelated to each other."""
_HERE = Path(__file__).parent
SAMPLE = _HERE / "sample"
"""The folder of the bundled demonstration."""
DROP_SELF = ("none", "dense", "all")
"""The systems that leave a document out of the list of the query that has the same id."""
TASK_FILE = "task.toml"
"""The file with which a folder describes its task."""


@dataclass(frozen=True)
class Task:
    """Facts about a task, known before its data is read.

    >>> task("biology").sentence
    'Given a Biology post, retrieve relevant passages that help answer the post'
    """

    WORDS: ClassVar = ("scenario", "noun", "target", "purpose", "subject")
    """The words that prompts may have in braces: each is a key of a folder's file and a part of the key of a run."""
    STATED: ClassVar = ("family", *WORDS, "drop_self")
    """What a folder's file states of its task."""

    name: str
    """The name in commands: `Biology`, `nano/Biology`, or the absolute path of a folder."""
    base: str
    """The name without its group."""
    group: str
    """`full`, `nano`, `sample`; for a folder `custom`, or `custom-nano` if it is a nano set. Scores of different
    groups never share a column."""
    family: str = "custom"
    """`qa-reference`, `clinical-evidence`, `clinical-case`, or `custom`."""
    scenario: str = ""
    noun: str = "question"
    """Noun for a query."""
    target: str = "relevant passages"
    """Noun for the relevant documents."""
    purpose: str = "answer the question"
    """The purpose of the search."""
    subject: str = "paragraph"
    """Noun for a document in Instructor's prompts."""
    drop_self: str = "none"
    """The systems that leave the document with the query's own id out of that query's list: `none`, `dense` (models of
    vectors, as published for IIYi-Clinical) or `all`. A document that is judged relevant to the query always stays."""
    hub: str = ""
    """The dataset repository; empty for a folder."""
    revision: str = ""
    """The pinned revision in it."""
    folder: Path | None = None
    """The folder of a local task; None for one from the hub."""
    split: str = layout.DEFAULT_SPLIT
    queries: int | None = None
    """The published number of queries; None if not published."""
    documents: int | None = None
    qrels: int | None = None
    query_length: float | None = None
    """The published average, in `length_unit`."""
    document_length: float | None = None
    length_unit: str = ""
    licence: str = ""
    """Licence on the hub's card, or of the bundled sample; empty if unknown."""
    source_licence: str = ""
    """Licence of the collection that the texts were taken from, if it is known to differ from the card's."""
    files: layout.TaskFiles | None = None
    """Patterns of its files, if their layout is unusual."""
    language: str = ""
    """Language of the queries, such as es; empty if not stated."""
    translates: str = ""
    """The task of the same documents and judgements whose queries these are in another language; empty for none."""

    @property
    def sentence(self) -> str:
        """Return the task in one sentence, from which instruction prefixes are made."""
        return f"Given a {self.noun}, retrieve {self.target} that help {self.purpose}"

    @property
    def words(self) -> dict[str, str]:
        """Return what the placeholders of a prompt stand for.

        >>> task("biology").words["noun"]
        'Biology post'
        """
        return {name: getattr(self, name) for name in (*self.WORDS, "sentence")}

    @property
    def family_title(self) -> str:
        """Return the display name of the family."""
        return families().get(self.family, self.family)


@cache
def _facts() -> Mapping[str, Any]:
    return _toml(_HERE / "tasks.toml")


def _are_mentioned(*names: str) -> bool:
    """Return whether any of the names may be known: a text search takes a tenth of the time that parsing TOML does."""
    text = (_HERE / "tasks.toml").read_text("utf-8").casefold()
    return any(f'"{name.casefold()}"' in text for name in names)


def _toml(file: Path) -> dict[str, Any]:
    import tomllib  # a folder of data rarely has any

    return tomllib.loads(file.read_text("utf-8"))


def families() -> Mapping[str, str]:
    """Return the families: their names in the command line, and their titles.

    >>> list(families())
    ['qa-reference', 'clinical-evidence', 'clinical-case']
    """
    titles: Mapping[str, str] = _facts()["families"]
    return titles


def candidate_configs() -> Mapping[str, str]:
    """Return the candidate lists of nano sets: their kinds here, and their configs on the hub.

    >>> candidate_configs()["bm25"]
    'bm25'
    """
    configs: Mapping[str, str] = _facts()["candidates"]
    return configs


@cache
def registry() -> Mapping[str, Task]:
    """Return every task that has a name, in the order of the paper: the full ones, the nano ones, the sample.

    >>> len(registry())
    24
    """
    made = [_MAKERS[group](entry) for group in GROUPS for entry in _facts()["task"]]
    return {each.name: each for each in made}


def _stated(entry: Mapping[str, Any]) -> dict[str, Any]:
    return {name: entry[name] for name in Task.STATED if name in entry}


def _licences(entry: Mapping[str, Any], group: str) -> dict[str, Any]:
    """Return the licence on the hub's card and, if it differs, that of the collection that the texts come from."""
    return {"licence": _facts()["licence"].get(group, ""), "source_licence": entry.get("source_licence", "")}


def _full(entry: Mapping[str, Any]) -> Task:
    base = entry["base"]
    hub = _facts()["hub"]["full"].format(base=base)
    return Task(
        base, base, "full", **_stated(entry), **_licences(entry, "full"), hub=hub, **entry["full"], length_unit="words"
    )


def _nano(entry: Mapping[str, Any]) -> Task:
    base, hub = entry["base"], _facts()["hub"]["nano"]
    # No commit of this repository was published: the first that this machine fetches is kept to, and recorded.
    pinned: dict[str, Any] = {"revision": "main", "length_unit": "characters", **_licences(entry, "nano")}
    return Task(f"nano/{base}", base, "nano", **_stated(entry), hub=hub, **pinned, **entry["nano"])


def _sample(entry: Mapping[str, Any]) -> Task:
    base = entry["base"]
    folder = SAMPLE / base
    files = {"queries": "query.jsonl", "documents": "corpus.jsonl", "qrels": "qrels.jsonl"}
    counted: dict[str, Any] = {name: _lines(folder / file) for name, file in files.items()}
    licence = _facts()["licence"]["sample"]
    return Task(f"sample/{base}", base, "sample", **_stated(entry), folder=folder, licence=licence, **counted)


_MAKERS = {"full": _full, "nano": _nano, "sample": _sample}


def _lines(file: Path) -> int | None:
    if not file.is_file():
        return None
    with file.open("rb") as stream:
        return sum(not line.isspace() for line in stream)


@cache
def other_tasks() -> Mapping[str, Task]:
    """Return tasks of other benchmarks by name, such as `cure/dermatology/es` or `cmirb/CovidRetrieval`.

    >>> task = other_tasks()["cure/dermatology/es"]
    >>> task.translates, task.files.queries
    ('cure/dermatology/en', ('dermatology/queries-es.jsonl',))
    """
    collections = _toml(_HERE / "other_tasks.toml")["collection"]
    made = [
        _other(entry, part, spoken) for entry in collections for part in entry["parts"] for spoken in entry["languages"]
    ]
    return {each.name: each for each in made}


def _other(entry: Mapping[str, Any], part: str, spoken: str) -> Task:
    split = entry.get("splits", {}).get(part, layout.DEFAULT_SPLIT)
    words = {"part": part, "language": spoken, "split": split}
    patterns = (tuple(each.format(**words) for each in entry[name]) for name in PATTERNS)
    several = len(entry["languages"]) > 1
    name, first = (
        f"{entry['name']}/{part}" + (f"/{code}" if several else "") for code in (spoken, entry["languages"][0])
    )
    return Task(
        name,
        part,
        entry["name"],
        **_stated(entry),
        hub=entry["hub"].format(**words),
        revision=entry["revision"],
        licence=entry.get("licence", ""),
        **entry.get("sizes", {}).get(part, {}),
        files=layout.TaskFiles(*patterns),
        language=spoken,
        translates=first if first != name else "",
    )


def _other_groups() -> Mapping[str, Sequence[Task]]:
    """Return collections, their parts, and all parts in one language: `cure`, `cure/dermatology`, `cure/es`."""
    found: dict[str, list[Task]] = {}
    for each in other_tasks().values():
        several = {f"{each.group}/{each.base}", f"{each.group}/{each.language}"} - {each.name}
        for name in (each.group, *sorted(several)):
            found.setdefault(name, []).append(each)
    return found


def task(name: str) -> Task:
    """Return the registered task of a name, in any case."""
    for known, found in (*registry().items(), *other_tasks().items()):
        if known.casefold() == name.casefold():
            return found
    raise DataError(f"unknown task {name!r}{suggest(name, registry())}")


@cache
def groups() -> Mapping[str, Sequence[Task]]:
    """Return every group: `full`, `nano`, `sample`; the families of the full tasks; `nano/clinical-case` and the like.

    >>> [task.base for task in groups()["clinical-case"]]
    ['PMC-Clinical', 'IIYi-Clinical']
    """
    found: dict[str, Sequence[Task]] = {
        group: tuple(each for each in registry().values() if each.group == group) for group in GROUPS
    }
    for family in families():
        for group in GROUPS:
            name = family if group == "full" else f"{group}/{family}"
            found[name] = tuple(each for each in found[group] if each.family == family)
    return found


def resolve(names: Iterable[str | Path | Task], *, split: str | None = None) -> list[Task]:
    """Resolve names, groups and folders to tasks, each once, in the order given.

    A registered name wins over a folder of the same name; write `./Biology` for the folder. A folder of several
    tasks stands for all of them. `split` chooses among the splits of a folder, which `FOLDER/SPLIT` does too.

    >>> [task.name for task in resolve(["sample/Biology", "SAMPLE/clinical-case"])]
    ['sample/Biology', 'sample/PMC-Clinical', 'sample/IIYi-Clinical']
    """
    found: dict[tuple[str, str], Task] = {}
    for name in names:
        for each in _resolve_task(name, split) if isinstance(name, Task) else _resolve_one(name, split):
            found.setdefault((each.name, each.revision), each)
    return list(found.values())


def _resolve_task(task: Task, split: str | None) -> Sequence[Task]:
    if split in (None, task.split):
        return [task]
    if task.folder is None or task.group in GROUPS:
        _refuse_split(task.name, split)
        return [task]
    return [folder_task(task.folder, split)]


def _refuse_split(name: str, split: str | None) -> None:
    if split not in (None, layout.DEFAULT_SPLIT):
        raise DataError(f"{name} has no split {split!r}: only folders have splits to choose from")


def hub_task(name: str, split: str | None = None) -> Task:
    """Build the task in any dataset of the hub that has a task's layout: `hf:ORG/NAME`, or `hf:ORG/NAME@REVISION`.

    >>> hub_task("hf:ward-7/handover").hub
    'ward-7/handover'
    """
    repo, _, revision = name.removeprefix(HUB_PREFIX).partition("@")
    if not re.fullmatch(r"[^/\s]+/[^/\s]+", repo):
        raise DataError(f"{name}: not the name of a dataset on the hub; write {HUB_PREFIX}ORG/NAME")
    base = repo.partition("/")[2]
    return Task(name, base, "custom", hub=repo, revision=revision or "main", split=split or layout.DEFAULT_SPLIT)


def _resolve_one(name: str | Path, split: str | None) -> Sequence[Task]:
    if isinstance(name, str) and name.startswith(HUB_PREFIX):
        return [hub_task(name, split)]
    if isinstance(name, str) and name.casefold() in _names():
        _refuse_split(name, split)
        return _names()[name.casefold()]
    path = expanded(name)
    try:
        found = _at(path, split) if str(name) else ()
    except OSError as error:
        raise DataError(f"{path}: cannot be read: {error.strerror}") from error
    if found:
        return found
    if isinstance(name, Path) or (name and path.exists()) or ({"/", os.sep} & set(name) and path.parent.is_dir()):
        what = "not a folder" if path.exists() else "no such folder"
        raise DataError(f"{path}: {what}; a task is a folder of files")
    if name in ("custom", OWN_NANO):
        raise DataError(f"{name} is the group of local folders and cannot be read as a whole; name the folders")
    raise DataError(
        f"no such task or folder: {name!r}{suggest(name, [*registry(), *groups(), *other_tasks(), *_other_groups()])}"
    )


def _at(path: Path, split: str | None) -> Sequence[Task]:
    """Return the tasks at a path; none if it does not exist."""
    if path.is_dir():
        return folder_tasks(path, split)
    if path.parent.is_dir() and path.name in layout.splits(layout.listing(path.parent)):
        if split not in (None, path.name):
            raise DataError(f"{path} is the split {path.name!r} and cannot be read as {split!r}; leave one of them out")
        return [folder_task(path.parent, path.name)]
    return ()


@cache
def _names() -> Mapping[str, Sequence[Task]]:
    tasks = {**registry(), **other_tasks()}
    known: dict[str, Sequence[Task]] = {name.casefold(): (found,) for name, found in tasks.items()}
    several = {**_other_groups(), **groups()}
    return known | {name.casefold(): members for name, members in several.items()}


def folder_tasks(folder: Path, split: str | None = None) -> list[Task]:
    """Return the tasks in a folder: itself, one per split of nano-shaped files, or the folders in it that are tasks.

    A split that is asked for applies to each of them.
    """
    wanted = split or layout.DEFAULT_SPLIT
    names = layout.listing(folder)
    if not any(layout.choose(names).files):
        folders = [path for path in sorted(folder.iterdir()) if path.is_dir()]
        inner = [path for path in folders if layout.choose(layout.listing(path)).files]
        if inner:
            return [folder_task(path, wanted) for path in inner]
        several = [each for each in layout.splits(names) if layout.choose(names, each).complete]
        if several and split is None:
            return [folder_task(folder, each) for each in several]
    return [folder_task(folder, wanted)]


def place_of_folder(folder: Path) -> Path:
    """Return the absolute path of a folder, by the names that the user gave: links are not followed."""
    return Path(os.path.normpath(folder.expanduser().absolute()))


def folder_task(folder: Path, split: str = layout.DEFAULT_SPLIT) -> Task:
    """Build the task of a folder: as described by its `task.toml`, or by its name if that is one of the eight."""
    _check_name(folder)
    base, stored = folder.resolve().name, _stored_split(folder, split)
    entries = _facts()["task"] if _are_mentioned(stored, base) else ()
    published = {each["nano"]["split"].casefold(): each for each in entries}
    known = {each["base"].casefold(): each for each in entries} | published
    entry = known.get(stored.casefold()) or known.get(base.casefold()) or {}
    # Named by its whole path: two folders of one name are two tasks, and a run finds its data from anywhere.
    name = str(place_of_folder(folder))
    if split != layout.DEFAULT_SPLIT:
        name, base = str(place_of_folder(folder) / split), entry.get("base", split)
    built = read_manifest(folder)
    group = "custom" if built is None and stored.casefold() not in published else OWN_NANO
    made = Task(name, base, group, **_stated(entry), folder=folder, split=split)
    facts = built.facts(stored, Task.STATED) if built else {}
    return replace(made, **facts | read_translation(folder) | _task_file(folder / TASK_FILE))


def _check_name(folder: Path) -> None:
    """Raise an error if the name is not UTF-8: it could not be written to a table or the ledger."""
    try:
        str(folder.resolve()).encode("utf-8")
    except UnicodeEncodeError as error:
        shown = os.fsencode(folder).decode("utf-8", "backslashreplace")
        raise DataError(f"{shown}: the name of the folder is not UTF-8; rename it") from error


def _stored_split(folder: Path, split: str) -> str:
    """Return the split that is read if none was asked for and there is only one."""
    present = layout.splits(layout.listing(folder)) if split == layout.DEFAULT_SPLIT and folder.is_dir() else []
    return present[0] if len(present) == 1 else split


def _task_file(file: Path) -> dict[str, Any]:
    if not file.is_file():
        return {}
    try:
        stated = _toml(file)
    except (ValueError, OSError, RecursionError) as error:
        raise DataError(f"{file}: cannot be read: {error}") from error
    for name, value in stated.items():
        if name not in ("name", *Task.STATED):
            raise DataError(f"{file}: unknown key {name!r}{suggest(name, ('name', *Task.STATED))}")
        if not isinstance(value, str) or not value:
            raise DataError(f"{file}: {name} must be a non-empty string")
    if stated.get("drop_self", "none") not in DROP_SELF:
        raise DataError(f"{file}: drop_self must be one of {', '.join(DROP_SELF)}, not {stated['drop_self']!r}")
    stated.pop("name", None)  # the heading of its column: a folder is known by its path
    return stated
