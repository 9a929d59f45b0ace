"""Expansion by existing generations: the published ones beside the data or on the hub, or the user's file.

Files are JSON lines, TSV and the authors' own layout.
"""

from __future__ import annotations

import csv
from collections.abc import Collection as AbstractCollection
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import orjson

from r2med.data.dataset import Generation, Texts
from r2med.data.formats import lines, read_rows
from r2med.data.loader import HUB as TASK_HUB
from r2med.data.problems import ERROR, Findings, Spot, place
from r2med.data.tasks import registry
from r2med.data.texts import identifier_of
from r2med.errors import DataError, SpecError, suggest
from r2med.expand.methods import attach_generations
from r2med.formatting import describe, shorten
from r2med.llm.reasoning import split_trace
from r2med.pipeline.joins import TEXT_JOINS, check_join
from r2med.pipeline.registry import spec_of
from r2med.pipeline.spec import Call
from r2med.pipeline.stage import Context, Expander, Requirements
from r2med.store.files import expanded, spelled
from r2med.store.hashes import confirm_unchanged, file_digest

if TYPE_CHECKING:
    from r2med.data.dataset import Collection
    from r2med.data.tasks import Task

HYDOC = "query_with_hydoc.jsonl"  # the name of the published files
_HEADERS = {"id", "_id", "qid", "query_id", "query-id"}


@dataclass
class Written:
    """Content of a file: texts by query, and the queries' own texts if it has them."""

    path: Path
    whole: bool  # whether a text is the whole query to search with, not something to join with it
    texts: dict[str, tuple[str, ...]] = field(default_factory=dict)
    queries: dict[str, str] = field(default_factory=dict)
    content: str = ""
    """The hash of the file."""

    def add(self, query: str, texts: tuple[str, ...], spot: Spot) -> None:
        """Add a row; a repeated one is ignored, another text under the same id is noted as an error."""
        if self.texts.setdefault(query, texts) != texts:
            spot.note("conflicting-id", f"repeats the id {shorten(query)!r} with another text")


def read_written(path: Path, known: AbstractCollection[str]) -> Written:
    """Read a file by its ending. `known` are the ids of the queries it is meant for."""
    if not path.is_file():
        raise DataError(f"{path}: no such file; generations are read from a .jsonl or .tsv file")
    ending = Path(path.name.removesuffix(".gz")).suffix
    if ending not in (".jsonl", ".tsv"):
        raise DataError(f"{path}: generations are read from {HYDOC} (id, text, hy_doc) or a .tsv file of two columns")
    written, findings = _read_hydoc(path) if ending == ".jsonl" else _read_tsv(path, known)
    if findings.errors:
        more = f" (and {findings.errors - 1} more)" if findings.errors > 1 else ""
        raise DataError(f"{next(findings.of(ERROR))}{more}")
    if not written.texts:
        raise DataError(f"{path}: holds no rows")
    written.content = confirm_unchanged(path)
    return written


def hydoc_rows(queries: Texts, generations: Mapping[str, Sequence[Generation]]) -> bytes:
    """Format what was written for queries as the benchmark's rows (id, text, hy_doc); several texts are a list.

    A query without a usable text has no row.
    """
    rows = []
    for query, text in queries:
        texts = [one.text for one in generations.get(query, ()) if not one.incomplete]
        if texts:
            rows.append({"id": query, "text": text, "hy_doc": texts[0] if len(texts) == 1 else texts})
    return b"".join(orjson.dumps(row, option=orjson.OPT_APPEND_NEWLINE) for row in rows)


def _read_hydoc(path: Path) -> tuple[Written, Findings]:
    written, findings = Written(path, whole=False), Findings()
    for number, row in read_rows(path, findings):
        spot = Spot(path, number, findings)
        missing = [name for name in ("id", "hy_doc") if name not in row]
        if missing:
            names = shorten(", ".join(row)) or "no fields"
            spot.note("missing-field", f"no {' and no '.join(missing)}; the row has {names}")
            continue
        query = identifier_of(row["id"], "id", spot)
        # Several texts of a query that was asked about more than once.
        texts: list[Any] = row["hy_doc"] if isinstance(row["hy_doc"], list) else [row["hy_doc"]]
        if not texts or not all(isinstance(text, str) for text in texts):
            spot.note("wrong-type", f"hy_doc must be a text or a list of texts, not {describe(row['hy_doc'])}")
        elif query is not None:
            written.add(query, tuple(texts), spot)
            if isinstance(text := row.get("text"), str):
                written.queries[query] = text
    return written, findings


def _read_tsv(path: Path, known: AbstractCollection[str]) -> tuple[Written, Findings]:
    written, findings = Written(path, whole=True), Findings()

    def decoded() -> Iterator[str]:
        for number, line in lines(path, findings):
            try:
                yield line.decode("utf-8")
            except UnicodeDecodeError as error:
                reason = f"not UTF-8 (byte {error.start + 1}); save it as UTF-8"
                raise DataError(f"{place(path, number)}: {reason}") from error

    reader = csv.reader(decoded(), delimiter="\t")
    start = 1
    try:
        for row in reader:
            # A quoted text may span several lines.
            number, start = start, reader.line_num + 1
            spot = Spot(path, number, findings)
            if row and len(row) != 2:
                words = f"expected two columns, an id and a text with a tab between, found {len(row)}"
                spot.note("wrong-columns", words)
            elif row and (number > 1 or row[0] in known or row[0].casefold() not in _HEADERS):
                if any("\t" in line and line.partition("\t")[0] in known for line in row[1].split("\n")[1:]):
                    words = "a quote opens here and takes in the rows below; quote the whole text"
                    spot.note("wrong-columns", words)
                else:
                    written.add(row[0], (row[1],), spot)
    except csv.Error as error:
        raise DataError(f"{place(path, start)}: not a table of two columns: {error}") from error
    return written, findings


BESIDE, HUB = "beside", "hub"


@dataclass(frozen=True)
class Replay(Expander):
    """Expansion by existing texts, joined by the protocol of the method they were written for.

    >>> str(Replay("my file.tsv")), str(Replay(method="lamer", llm="gpt4"))
    ('replay("my file.tsv")', 'replay(method=lamer, llm=gpt4)')
    """

    source: str = BESIDE
    """A file; `beside` for the folder of the task's data; `hub` for the authors' generations of this task."""
    method: str = ""
    """Whose texts to take, and by whose protocol they join the query; hyde unless a path says otherwise."""
    llm: str = ""  # the model whose texts to take; may be left out where there is only one
    join: str = ""
    """How the text joins the query; empty for the method's way, and for a table: the text is the whole query."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "source", spelled(self.source))
        check_join("replay", self.join)
        if self.method and self.method not in TEXT_JOINS:
            raise SpecError(f"replay: unknown method {self.method!r}{suggest(self.method, TEXT_JOINS)}")
        if self._file is not None and self._file.name.removesuffix(".gz").endswith(".tsv") and self.method:
            raise SpecError("replay: a table's text is the whole query and has no method; say join=... to change that")

    @property
    def spec(self) -> Call:
        """Return the stage in the spec language, the source without a name."""
        options = dict(spec_of(self, "replay").options)
        source = (options.pop("source"),) if "source" in options else ()
        return Call("replay", source, tuple(options.items()))

    @property
    def _file(self) -> Path | None:
        return None if self.source in (BESIDE, HUB) else expanded(self.source)

    @property
    def _method(self) -> str:
        """Return the given method, or that of a published file's folders, or hyde."""
        above = self._file.parent.parent.name if self._file is not None else ""
        return self.method or (above if above in TEXT_JOINS else "hyde")

    @property
    def requirements(self) -> Requirements:
        """Return the hub if the authors' generations are asked for; which repository depends on the task."""
        return Requirements(hub=("R2MED/<task>",)) if self.source == HUB else Requirements()

    def fingerprint(self) -> Mapping[str, object]:
        """Return the hash of a named file; a file beside the data is in `inputs`."""
        return {"file": file_digest(self._file)} if self._file is not None else {}

    def local_content(self) -> Mapping[str, str]:
        """Return the named file, with a hash of it."""
        return {} if self._file is None else {str(self._file.resolve()): file_digest(self._file)}

    def inputs(self, collection: Collection) -> Mapping[str, object]:
        """Return the hash of the file beside a folder's data, on which the output depends."""
        if self.source == BESIDE and not collection.task.hub:
            return {"file": file_digest(self.locate(collection))}
        return {}

    def describe(self) -> Mapping[str, object]:
        """Return the settings that a plan shows."""
        return {"source": self.source, "method": self._method, "llm": self.llm, "join": self.join or "as published"}

    def locate(self, collection: Collection) -> Path:
        """Return the file for a task, downloading it if needed."""
        if self._file is not None:
            return self._file
        if self.source == HUB or collection.task.hub:
            task = published_task(collection.task)
            cached = TASK_HUB.cached(task.hub, task.revision)
            name = f"{self._method}/{self.llm}/{HYDOC}"
            if self.llm and cached is not None and (cached.folder / name).is_file():
                return cached.folder / name
            name = self._select(TASK_HUB.names(task.hub, task.revision), f"{task.hub} at {task.revision}")
            return TASK_HUB.download(task.hub, task.revision, [name]).folder / name
        if (folder := collection.origin) is None:
            raise DataError(f"{collection.task.name} was not read from a folder; name the file with the generations")
        names = [file.relative_to(folder).as_posix() for file in folder.glob(f"*/*/{HYDOC}")]
        return folder / self._select(names, str(folder))

    def _select(self, names: Sequence[str], where: str) -> str:
        """Select the one file of the method and model among those that exist."""
        paths = [name.split("/") for name in names if name.endswith(f"/{HYDOC}") and name.count("/") == 2]
        models = [llm for method, llm, _ in paths if method == self._method]
        if self.llm in models:
            return f"{self._method}/{self.llm}/{HYDOC}"
        if not self.llm and len(models) == 1:
            return f"{self._method}/{models[0]}/{HYDOC}"
        if models:
            problem = f"no {self._method} of {self.llm!r}" if self.llm else f"{self._method} of several models"
            raise DataError(f"{where} has {problem}; say llm=... with one of {', '.join(sorted(models))}")
        methods = sorted({method for method, _, _ in paths})
        others = f"; it has {', '.join(methods)}" if methods else ""
        raise DataError(f"{where} has no generations of {self._method} (METHOD/LLM/{HYDOC}){others}")

    def expand(self, collection: Collection, context: Context) -> Collection:
        """Add the texts of the file; a query that it lacks is counted."""
        queries = dict(collection.queries)
        written = read_written(self.locate(collection), queries)
        if not written.texts.keys() & queries.keys():
            raise DataError(
                f"{written.path} has no text for any query of {collection.task.name}:"
                f" it has {next(iter(written.texts))}, the task has {next(iter(queries), 'no queries')};"
                " is it another task's file?"
            )
        others = sum(written.queries.get(query, text).split() != text.split() for query, text in queries.items())
        if others:
            context.warn(
                f"{written.path}: {others} of {len(queries)} texts were written for other queries of the same id"
            )
        context.notes.facts |= {"file": str(written.path), "content": written.content}
        if written.whole:
            empty = Generation("", "replay", self.llm, join=self.join or "replace")
        else:
            empty = Generation("", self._method, self.llm or written.path.parent.name, join=self.join)
        rows = []
        for query in queries:
            row = [] if query in written.texts else [replace(empty, incomplete=f"not in {written.path.name}")]
            for text in written.texts.get(query, ()):
                if written.whole:
                    row.append(replace(empty, text=text, incomplete="" if text.strip() else "empty text"))
                else:
                    answer, reasoning, incomplete = split_trace(text)
                    row.append(replace(empty, text=answer, reasoning=reasoning, incomplete=incomplete))
            rows.append(row)
        return attach_generations(self, collection, rows, context)


def published_task(task: Task) -> Task:
    """Return the task of the benchmark whose repository holds the generations; for a nano task the full one."""
    if task.group == "full":
        return task
    if task.base not in registry():
        raise DataError(f"{task.name} is not a task of the benchmark and has no generations on the hub")
    return registry()[task.base]
