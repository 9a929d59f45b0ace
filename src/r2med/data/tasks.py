"""The registry: every task by name, the groups, and how names, groups and folders on the command line are resolved."""

from __future__ import annotations

import os
import re
import tomllib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from itertools import product
from pathlib import Path
from typing import Any, ClassVar

from r2med.data import layout
from r2med.data.formats import PATTERNS
from r2med.data.manifests import read_manifest, read_translation
from r2med.errors import DataError, suggest
from r2med.store.files import expanded

AVERAGE = ""  # the name of the average's column, as in `Report.intervals`
HUB_PREFIX = "hf:"  # prefix of the name of a dataset or model on the hub
GROUPS = ("full", "nano", "sample")
OWN_NANO = "custom-nano"  # the group of nano sets in folders, apart from published ones and from whole collections
FOLDER_GROUPS = ("custom", OWN_NANO)  # the groups of folders, which may be unrelated to each other
_HERE = Path(__file__).parent
SAMPLE = _HERE / "sample"  # the folder of the bundled demonstration
DROP_SELF = ("none", "dense", "all")  # the systems that leave a document out of the list of the query with its id
TASK_FILE = "task.toml"  # the file with which a folder describes its task


@dataclass(frozen=True)
class Task:
    """Facts about a task, known before its data is read.

    >>> task("biology").sentence
    'Given a Biology post, retrieve relevant passages that help answer the post'
    """

    WORDS: ClassVar = ("scenario", "noun", "target", "purpose", "subject")
    """The words that prompts may have in braces: each is a key of a folder's file and a part of the key of a run."""
    STATED: ClassVar = ("family", *WORDS, "drop_self")  # what a folder's file states of its task

    name: str  # the name in commands: `Biology`, `nano/Biology`, or the absolute path of a folder
    base: str  # the name without its group
    group: str
    """`full`, `nano`, `sample`; for a folder `custom`, or `custom-nano` if it is a nano set. Scores of different
    groups never share a column."""
    family: str = "custom"  # `qa-reference`, `clinical-evidence`, `clinical-case`, or `custom`
    scenario: str = ""
    noun: str = "question"  # the noun for a query
    target: str = "relevant passages"  # the noun for its relevant documents
    purpose: str = "answer the question"  # the purpose of the search
    subject: str = "paragraph"  # noun for a document in Instructor's prompts
    drop_self: str = "none"
    """The systems that leave the document with the query's own id out of that query's list: `none`, `dense` (models of
    vectors, as published for IIYi-Clinical) or `all`. A document that is judged relevant to the query always stays."""
    hub: str = ""  # the dataset repository; empty for a folder
    revision: str = ""
    folder: Path | None = None  # the folder of a local task; None for one from the hub
    split: str = layout.DEFAULT_SPLIT
    queries: int | None = None  # the published number; None if not published; the same for documents and judgements
    documents: int | None = None
    qrels: int | None = None
    query_length: float | None = None  # the published average, in `length_unit`
    document_length: float | None = None
    length_unit: str = ""
    licence: str = ""  # licence on the hub's card, or of the bundled sample; empty if unknown
    source_licence: str = ""  # licence of the collection the texts are from, if it differs from the card's
    files: layout.TaskFiles | None = None  # patterns of its files, if their layout is unusual
    language: str = ""  # language of the queries, such as es; empty if not stated
    translates: str = ""  # the task of the same documents and judgements whose queries these are translated from

    @property
    def sentence(self) -> str:
        """Return the task in one sentence, from which instruction prefixes are made."""
        return f"Given a {self.noun}, retrieve {self.target} that help {self.purpose}"

    @property
    def words(self) -> dict[str, str]:
        """Return what the placeholders of a prompt stand for."""
        return {name: getattr(self, name) for name in (*self.WORDS, "sentence")}

    @property
    def family_title(self) -> str:
        """Return the display name of the family."""
        return families().get(self.family, self.family)


@cache
def _facts() -> Mapping[str, Any]:
    return tomllib.loads((_HERE / "tasks.toml").read_text("utf-8"))


def families() -> Mapping[str, str]:
    """Return the families: their names in the command line, and their titles."""
    return dict(_facts()["families"])


def candidate_configs() -> Mapping[str, str]:
    """Return the candidate lists of nano sets: their kinds here, and their configs on the hub."""
    return dict(_facts()["candidates"])


@cache
def registry() -> Mapping[str, Task]:
    """Return every task that has a name, in the order of the paper: the full ones, the nano ones, the sample.

    >>> len(registry())
    24
    """
    facts = _facts()
    hub, licences, tasks = facts["hub"], facts["licence"], []
    for entry in facts["task"]:
        base = entry["base"]
        # The licence on the hub's card and, if it differs, that of the collection that the texts come from.
        stated = {**_stated(entry), "source_licence": entry.get("source_licence", "")}
        full = {"hub": hub["full"].format(base=base), "length_unit": "words", "licence": licences.get("full", "")}
        # No commit of this repository was published: the first that this machine fetches is kept to, and recorded.
        nano = {"hub": hub["nano"].format(base=base), "revision": "main", "length_unit": "characters"}
        sample = {"folder": SAMPLE / base, "licence": licences["sample"], "source_licence": ""}
        for part, file in (("queries", "query.jsonl"), ("documents", "corpus.jsonl"), ("qrels", "qrels.jsonl")):
            sample[part] = sum(not line.isspace() for line in (SAMPLE / base / file).read_bytes().splitlines())
        tasks += [
            Task(base, base, "full", **stated | full | entry["full"]),
            Task(f"nano/{base}", base, "nano", **stated | nano | entry["nano"] | {"licence": licences.get("nano", "")}),
            Task(f"sample/{base}", base, "sample", **stated | sample),
        ]
    return {task.name: task for group in GROUPS for task in tasks if task.group == group}


def _stated(entry: Mapping[str, Any]) -> dict[str, Any]:
    return {name: entry[name] for name in Task.STATED if name in entry}


@cache
def other_tasks() -> Mapping[str, Task]:
    """Return tasks of other benchmarks by name, such as `cure/dermatology/es` or `cmirb/CovidRetrieval`.

    >>> task = other_tasks()["cure/dermatology/es"]
    >>> task.translates, task.files.queries
    ('cure/dermatology/en', ('dermatology/queries-es.jsonl',))
    """
    tasks = {}
    for entry in tomllib.loads((_HERE / "other_tasks.toml").read_text("utf-8"))["collection"]:
        ending = "/{}" if len(entry["languages"]) > 1 else ""
        for part, language in product(entry["parts"], entry["languages"]):
            split = entry.get("splits", {}).get(part, layout.DEFAULT_SPLIT)
            words = {"part": part, "language": language, "split": split}
            patterns = (tuple(pattern.format(**words) for pattern in entry[name]) for name in PATTERNS)
            name, first = (f"{entry['name']}/{part}{ending.format(code)}" for code in (language, entry["languages"][0]))
            tasks[name] = Task(
                name,
                part,
                entry["name"],
                **_stated(entry),
                hub=entry["hub"].format(**words),
                revision=entry["revision"],
                licence=entry.get("licence", ""),
                **entry.get("sizes", {}).get(part, {}),
                files=layout.TaskFiles(*patterns),
                language=language,
                translates=first if first != name else "",
            )
    return tasks


def _other_groups() -> Mapping[str, Sequence[Task]]:
    """Return collections, their parts, and all parts in one language: `cure`, `cure/dermatology`, `cure/es`."""
    members: dict[str, list[Task]] = {}
    for task in other_tasks().values():
        several = {f"{task.group}/{task.base}", f"{task.group}/{task.language}"} - {task.name}
        for name in (task.group, *sorted(several)):
            members.setdefault(name, []).append(task)
    return members


def task(name: str) -> Task:
    """Return the registered task of a name, in any case."""
    for task in (*registry().values(), *other_tasks().values()):
        if task.name.casefold() == name.casefold():
            return task
    raise DataError(f"unknown task {name!r}{suggest(name, registry())}")


@cache
def groups() -> Mapping[str, Sequence[Task]]:
    """Return every group: `full`, `nano`, `sample`; the families of the full tasks; `nano/clinical-case` and so on."""
    members = {group: tuple(task for task in registry().values() if task.group == group) for group in GROUPS}
    families_of = {
        family if group == "full" else f"{group}/{family}": tuple(t for t in members[group] if t.family == family)
        for family, group in product(families(), GROUPS)
    }
    return {**members, **families_of}


def resolve(names: Iterable[str | Path | Task], *, split: str | None = None) -> list[Task]:
    """Resolve names, groups and folders to tasks, each once, in the order given.

    A registered name wins over a folder of the same name; write `./Biology` for the folder. A folder of several
    tasks stands for all of them. `split` chooses among the splits of a folder, which `FOLDER/SPLIT` does too.

    >>> [task.name for task in resolve(["sample/Biology", "SAMPLE/clinical-case"])]
    ['sample/Biology', 'sample/PMC-Clinical', 'sample/IIYi-Clinical']
    """
    tasks: dict[tuple[str, str], Task] = {}
    for name in names:
        for task in _resolve(name, split):
            tasks.setdefault((task.name, task.revision), task)
    return list(tasks.values())


def _refuse_split(name: str, split: str | None) -> None:
    if split not in (None, layout.DEFAULT_SPLIT):
        raise DataError(f"{name} has no split {split!r}: only folders have splits to choose from")


def _hub_task(name: str, split: str | None = None) -> Task:
    """Build the task in a dataset of the hub that has a task's layout: `hf:ORG/NAME`, or `hf:ORG/NAME@REVISION`."""
    repo, _, revision = name.removeprefix(HUB_PREFIX).partition("@")
    if not re.fullmatch(r"[^/\s]+/[^/\s]+", repo):
        raise DataError(f"{name}: not the name of a dataset on the hub; write {HUB_PREFIX}ORG/NAME")
    base = repo.partition("/")[2]
    return Task(name, base, "custom", hub=repo, revision=revision or "main", split=split or layout.DEFAULT_SPLIT)


def _resolve(name: str | Path | Task, split: str | None) -> Sequence[Task]:
    if isinstance(name, Task):
        if split is not None and split != name.split:
            if name.folder is not None and name.group not in GROUPS:
                return [folder_task(name.folder, split)]
            _refuse_split(name.name, split)
        return [name]
    if isinstance(name, str) and name.startswith(HUB_PREFIX):
        return [_hub_task(name, split)]
    if isinstance(name, str) and name.casefold() in _names():
        _refuse_split(name, split)
        return _names()[name.casefold()]
    path = expanded(name)
    try:
        if tasks := _tasks_at(path, split) if str(name) else ():
            return tasks
    except OSError as error:
        raise DataError(f"{path}: cannot be read: {error.strerror}") from error
    if isinstance(name, Path) or (name and path.exists()) or ({"/", os.sep} & set(name) and path.parent.is_dir()):
        what = "not a folder" if path.exists() else "no such folder"
        raise DataError(f"{path}: {what}; a task is a folder of files")
    if name in ("custom", OWN_NANO):
        raise DataError(f"{name} is the group of local folders and cannot be read as a whole; name the folders")
    raise DataError(
        f"no such task or folder: {name!r}{suggest(name, [*registry(), *groups(), *other_tasks(), *_other_groups()])}"
    )


def _tasks_at(path: Path, split: str | None) -> Sequence[Task]:
    """Return the tasks at a path: a folder, one per split of nano-shaped files, or the folders in it that are tasks."""
    if not path.is_dir():
        if not path.parent.is_dir() or path.name not in layout.splits(layout.listing(path.parent)):
            return ()
        if split not in (None, path.name):
            raise DataError(f"{path} is the split {path.name!r} and cannot be read as {split!r}; leave one of them out")
        return [folder_task(path.parent, path.name)]
    names, folders, splits = layout.listing(path), [path], [split or layout.DEFAULT_SPLIT]
    if not any(layout.choose(names).files):
        paths = [child for child in sorted(path.iterdir()) if child.is_dir()]
        inner = [child for child in paths if layout.choose(layout.listing(child)).files]
        if not inner and split is None:
            splits = [name for name in layout.splits(names) if all(layout.choose(names, name))] or splits
        folders = inner or folders
    return [folder_task(folder, name) for folder in folders for name in splits]


@cache
def _names() -> Mapping[str, Sequence[Task]]:
    tasks = {name: (task,) for name, task in {**registry(), **other_tasks()}.items()}
    return {name.casefold(): members for name, members in {**tasks, **_other_groups(), **groups()}.items()}


def place_of_folder(folder: Path) -> Path:
    """Return the absolute path of a folder, by the names that the user gave: links are not followed."""
    return Path(os.path.normpath(folder.expanduser().absolute()))


def folder_task(folder: Path, split: str = layout.DEFAULT_SPLIT) -> Task:
    """Build the task of a folder: as described by its `task.toml`, or by its name if that is one of the eight."""
    try:
        str(folder.resolve()).encode("utf-8")  # or it could not be written to a table or the ledger
    except UnicodeEncodeError as error:
        readable = os.fsencode(folder).decode("utf-8", "backslashreplace")
        raise DataError(f"{readable}: the name of the folder is not UTF-8; rename it") from error
    base, stored = folder.resolve().name, split
    if split == layout.DEFAULT_SPLIT and folder.is_dir():
        present = layout.splits(layout.listing(folder))
        stored = present[0] if len(present) == 1 else split  # what is read if no split was asked for
    published = {entry["nano"]["split"].casefold(): entry for entry in _facts()["task"]}
    entries = {entry["base"].casefold(): entry for entry in _facts()["task"]} | published
    entry = entries.get(stored.casefold()) or entries.get(base.casefold()) or {}
    # Named by its whole path: two folders of one name are two tasks, and a run finds its data from anywhere.
    name = str(place_of_folder(folder))
    if split != layout.DEFAULT_SPLIT:
        name, base = str(place_of_folder(folder) / split), entry.get("base", split)
    built = read_manifest(folder)
    group = "custom" if built is None and stored.casefold() not in published else OWN_NANO
    facts = _stated(entry) | (built.facts(stored, Task.STATED) if built else {})
    facts |= read_translation(folder) | _read_task_file(folder / TASK_FILE)
    return replace(Task(name, base, group, folder=folder, split=split), **facts)


def _read_task_file(file: Path) -> dict[str, Any]:
    if not file.is_file():
        return {}
    try:
        stated = tomllib.loads(file.read_text("utf-8"))
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
