"""Questions and documents of a plan, and the corpus: documents read, duplicates folded, and passages cut.

What was fetched from the hub once is read from this machine from then on.
"""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
from msgspec.structs import replace

from r2med.construction.files import READER, READERS, UnreadableFile, file_hash, list_files, list_other_files, read_file
from r2med.construction.items import Document, Passage, Question, cut, passages_of
from r2med.construction.mining import PassageCorpus, names_of
from r2med.construction.plan import PLAN, BuildPlan, DocumentSource, QuestionSource
from r2med.data.dataset import text_fingerprint
from r2med.data.formats import Row, read_rows
from r2med.data.layout import choose_part, listing
from r2med.data.loader import HUB
from r2med.data.problems import ERROR, Findings
from r2med.data.tasks import HUB_PREFIX
from r2med.data.texts import read_documents
from r2med.errors import DataError, suggest
from r2med.formatting import describe, shorten
from r2med.lexical.near_duplicates import find_duplicates
from r2med.llm.items import Count, ItemStore, Outcome, count_reasons
from r2med.llm.steps import Step, run_step, step_key
from r2med.pipeline.executor.local import Executor
from r2med.store.hub import Snapshot

_PLACE = re.compile(rf"{HUB_PREFIX}([^/@\s]+/[^/@\s]+)(?:/([^@]+))?(?:@(\S+))?")


class HubPlace(NamedTuple):
    """A dataset on the hub, or one file of it."""

    repo: str
    file: str
    revision: str


def hub_place(text: str) -> HubPlace | None:
    """Parse a path of a plan as a place on the hub; None for a local path.

    >>> hub_place("hf:org/exams/data/train.parquet@v2")
    HubPlace(repo='org/exams', file='data/train.parquet', revision='v2')
    """
    if not text.startswith(HUB_PREFIX):
        return None
    match = _PLACE.fullmatch(text)
    if match is None:
        raise DataError(f"{text}: not a place on the hub; write {HUB_PREFIX}ORG/NAME/FILE or {HUB_PREFIX}ORG/NAME")
    return HubPlace(match[1], match[2] or "", match[3] or "main")


def fetch_sources(plan: BuildPlan) -> BuildPlan:
    """Fetch what a plan takes from the hub, and return the plan with local paths and the origin of the files."""
    origins, sources = {}, {}
    for name, source in (("questions", plan.questions), ("documents", plan.documents)):
        place = hub_place(source.path.as_posix())
        if place is None:
            continue
        if not place.file and name == "questions":
            raise DataError(f"{plan.folder / PLAN}: [questions] path must name a file: hf:{place.repo}/FILE")
        snapshot = _fetch_files(place, [place.file]) if place.file else _fetch_corpus(place)
        origins[name] = f"{HUB_PREFIX}{place.repo}{'/' * bool(place.file)}{place.file}@{snapshot.commit}"
        sources[name] = replace(source, path=snapshot.folder / place.file)
    return replace(plan, **sources, origins=origins)


def _fetch_files(place: HubPlace, names: list[str]) -> Snapshot:
    cached = HUB.cached(place.repo, place.revision)
    if cached is not None and all((cached.folder / name).is_file() for name in names):
        return cached
    revision = place.revision if cached is None else cached.commit
    offered = HUB.names(place.repo, revision)
    if absent := next((name for name in names if name not in offered), ""):
        raise DataError(f"{place.repo} at {revision} has no file {absent!r}")
    return HUB.download(place.repo, revision, names)


def _fetch_corpus(place: HubPlace) -> Snapshot:
    cached = HUB.cached(place.repo, place.revision)
    if cached is not None and (files := document_files(cached.folder)) and all(map(Path.is_file, files)):
        return cached
    names = choose_part("documents", sorted(HUB.names(place.repo, place.revision)))
    if not names:
        advice = f"name its file: {HUB_PREFIX}{place.repo}/FILE"
        raise DataError(f"{place.repo} at {place.revision} has no documents in BEIR's or R2MED's layout; {advice}")
    return _fetch_files(place, list(names))


TABLES = (".jsonl", ".gz", ".csv", ".tsv", ".parquet")  # the endings of tables; what is gzipped is JSON lines


def read_questions(source: QuestionSource) -> tuple[list[Question], dict[str, str]]:
    """Read the questions of a file, and the reason for each that cannot be used, by its place."""
    questions: dict[str, Question] = {}
    unusable: dict[str, str] = {}
    columns = (source.id, source.question, source.answer, source.options, source.source, source.reasoning)
    for place, row in _rows(source.path, columns):
        identifier, text, answer = (_text(row, name, place) for name in (source.id, source.question, source.answer))
        faults = {
            "without an id": not identifier,
            "with the id of another question": identifier in questions,
            "with a tab or line break in the id": bool(re.search(r"[\t\r\n]", identifier)),
            "without text": not text,
            "without an answer": not answer,
        }
        if why := next((why for why, faulty in faults.items() if faulty), ""):
            unusable[f"{place} {shorten(identifier)}".rstrip()] = why
            continue
        options, sources = _split(row.get(source.options)), _split(row.get(source.source))
        reasoning = _text(row, source.reasoning, place)
        questions[identifier] = Question(identifier, text, answer, options, sources, text, reasoning=reasoning)
    if not questions:
        reasons = {*unusable.values()}
        why = f": all {len(unusable):,} are {reasons.pop()}" if len(reasons) == 1 else ""
        raise DataError(f"{source.path}: holds no question that can be used{why}")
    return list(questions.values()), unusable


def read_table_documents(source: DocumentSource) -> list[Document]:
    """Read the documents of a file, or of a folder in BEIR's or R2MED's layout."""
    if source.path.is_dir():
        problems = Findings()
        table = read_documents(document_files(source.path), problems)
        problems.raise_errors(source.path)
        return [Document(identifier, "", text, "") for identifier, text in zip(table.ids, table.texts, strict=True)]
    documents: dict[str, Document] = {}
    columns = (source.id, source.title, source.text, source.source)
    for place, row in _rows(source.path, columns):
        identifier, title, text, origin = (_text(row, column, place) for column in columns)
        if not identifier:
            raise DataError(f"{place}: a document without an id")
        document = documents.setdefault(identifier, Document(identifier, title, text, origin))
        if document.text != text:
            raise DataError(f"{place}: repeats the id {shorten(identifier)!r} with another text")
    return list(documents.values())


def is_task_folder(path: Path) -> bool:
    """Return whether a folder has documents in BEIR's or R2MED's layout."""
    return path.is_dir() and bool(document_files(path))


def document_files(folder: Path) -> list[Path]:
    """Return the files of a folder in BEIR's or R2MED's layout that hold its documents."""
    return [folder / name for name in choose_part("documents", listing(folder))]


def _rows(path: Path, columns: Sequence[str]) -> Iterator[tuple[str, Row]]:
    """Yield the rows of a table with their places; the named columns must exist, empty ones are not used."""
    if not path.is_file():
        raise DataError(f"{path}: no such file")
    if path.suffix not in TABLES:
        raise DataError(f"{path}: not a table; expected {', '.join(TABLES[:-1])} or {TABLES[-1]}")
    problems = Findings()
    numbered = _csv_rows(path) if path.suffix in (".csv", ".tsv") else read_rows(path, problems)
    seen: set[str] = set()
    for number, row in numbered:
        absent = [] if seen else [name for name in columns if name and name not in row]
        if absent:
            advice = f"{suggest(absent[0], row)}; the plan says which column holds what"
            raise DataError(f"{path}:{number}: no column {absent[0]!r}{advice}")
        seen.update(row)
        yield f"{path.name}:{number}", row
    for problem in problems.of(ERROR):
        raise DataError(str(problem))
    if not seen:
        raise DataError(f"{path}: holds no rows")


def _csv_rows(path: Path) -> Iterator[tuple[int, dict[str, Any]]]:
    try:
        text = path.read_text("utf-8-sig")
    except UnicodeDecodeError as error:
        raise DataError(f"{path}: not UTF-8: byte 0x{error.object[error.start]:02x}; save it as UTF-8") from error
    except OSError as error:
        raise DataError(f"{path}: cannot be read: {error.strerror}") from error
    reader = csv.DictReader(io.StringIO(text, newline=""), delimiter="\t" if path.suffix == ".tsv" else ",")
    try:
        for row in reader:
            if None in row:
                raise DataError(f"{path}:{reader.line_num}: more cells than the header has columns")
            yield reader.line_num, row
    except csv.Error as error:
        raise DataError(f"{path}:{reader.line_num}: not readable as CSV: {error}") from error


def _text(row: Row, column: str, place: str) -> str:
    value = row.get(column)
    if isinstance(value, bool | list | dict):
        raise DataError(f"{place}: {column} must be a text, not {describe(value)}")
    return "" if value is None else str(value).strip()


def _split(value: object) -> tuple[str, ...]:
    """Return the texts of a cell: a list, an object, or a text split at lines or bars."""
    if isinstance(value, dict):
        value = list(value.values())
    parts = value if isinstance(value, list) else re.split(r"[\n|]", str(value or ""))
    return tuple(str(part).strip() for part in parts if part is not None and str(part).strip())


@dataclass(frozen=True)
class CorpusReader:
    """Reader of the corpus that a build searches, in the steps documents, fold and chunk."""

    plan: BuildPlan
    store: ItemStore
    executor: Executor
    step: Callable[[Step[Path], Sequence[Path]], dict[str, Outcome]]
    done: Callable[[Count], None]

    def read(self) -> PassageCorpus:
        """Read, fold and cut; results of earlier passes are reused."""
        documents = self._read_documents()
        folded = self._find_folded(documents)
        passages = self._chunk([document for document in documents if document.id not in folded])
        return PassageCorpus(passages, names_of(documents, folded))

    def _read_documents(self) -> list[Document]:
        source = self.plan.documents
        if source.path.is_file() or is_task_folder(source.path):
            documents = read_table_documents(source)
            self.done(count_reasons("documents", ["" if document.text else "no text in it" for document in documents]))
            documents = [document for document in documents if document.text]
        else:
            files = [*list_files(source.path), *list_other_files(source.path)]

            def read(path: Path) -> Outcome:
                kind = path.suffix.lower().lstrip(".")
                try:
                    return Outcome(asdict(read_file(path, source.path)))
                except UnreadableFile as error:
                    return Outcome(dropped=f"{kind or 'no ending'}: {error}")

            def key(path: Path) -> str:
                kind = path.suffix.lower()
                # Files of other kinds may be large, and what is in them does not matter.
                content = file_hash(path) if kind in READERS else ""
                return step_key("documents", content=content, kind=kind, reader=READER)

            def name(path: Path) -> str:
                return path.relative_to(source.path).as_posix()

            step = Step("documents", name, key, make=lambda batch: list(map(read, batch)), batch=16)
            kept = [outcome.value for outcome in self.step(step, files).values() if not outcome.dropped]
            documents = msgspec.convert(kept, list[Document])
        if not documents:
            raise DataError(f"{source.path}: holds no document with a text")
        return documents

    def _find_folded(self, documents: Sequence[Document]) -> dict[str, str]:
        near = self.plan.documents.near
        ids, texts = [document.id for document in documents], [document.text for document in documents]

        def make(_: Sequence[str]) -> list[Outcome]:
            twins = find_duplicates(texts, near).items()
            return [Outcome({"duplicates": {ids[place]: [ids[first], how] for place, (first, how) in twins}})]

        step = Step("fold", str, lambda _: step_key("fold", near=near, data=text_fingerprint(ids, texts)), make=make)
        folded = run_step(step, ["documents"], self.store, self.executor)["documents"].value["duplicates"]
        self.done(count_reasons("fold", [folded[name][1] if name in folded else "" for name in ids]))
        return {name: first for name, (first, _) in folded.items()}

    def _chunk(self, documents: Sequence[Document]) -> list[Passage]:
        tokens = self.plan.chunk.tokens

        def make(_: Sequence[str]) -> list[Outcome]:
            return [Outcome({"spans": [cut(document, tokens) for document in documents]})]

        # One item for all documents, which is faster to look up than sixty thousand.
        headings = [[(h.start, h.end, h.text) for h in document.headings] for document in documents]
        texts = text_fingerprint([document.text for document in documents])
        step = Step("chunk", str, lambda _: step_key("chunk", tokens=tokens, texts=texts, at=headings), make=make)
        outcomes = run_step(step, ["documents"], self.store, self.executor)
        passages: dict[str, Passage] = {}
        for document, spans in zip(documents, outcomes["documents"].value["spans"], strict=True):
            for passage in passages_of(document, spans):
                if passages.setdefault(passage.id, passage) is not passage:
                    raise DataError(f"two passages would have the id {passage.id!r}; give the documents other ids")
        first = {passage.shown: passage.id for passage in reversed(passages.values())}
        repeats = {name for name, passage in passages.items() if first[passage.shown] != name}
        self.done(count_reasons("chunk", ["same text" if name in repeats else "" for name in passages]))
        return [passage for name, passage in passages.items() if name not in repeats]
