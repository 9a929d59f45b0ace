"""The corpus of a build: documents read, duplicates folded into the first of them, and passages cut."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from r2med.construction.files import READER, READERS, UnreadableFile, file_hash, list_files, list_other_files, read_file
from r2med.construction.items import Document, Heading, Passage, Span, cut, passages_of
from r2med.construction.mining import PassageCorpus, names_of
from r2med.construction.plan import BuildPlan
from r2med.construction.sources import is_task_folder, read_table_documents
from r2med.data.dataset import text_fingerprint
from r2med.errors import DataError
from r2med.lexical.near_duplicates import find_duplicates
from r2med.llm.items import Count, ItemStore, Outcome, count_reasons
from r2med.llm.steps import Step, run_step, step_key
from r2med.pipeline.executor.local import Executor


def fold(documents: Sequence[Document], duplicates: Mapping[str, str]) -> list[Document]:
    """Return the documents that stay, each with the ids of those that were folded into it."""
    also: dict[str, list[str]] = {}
    for identifier, first in duplicates.items():
        also.setdefault(first, []).append(identifier)
    return [
        replace(document, also=tuple(also[document.id])) if document.id in also else document
        for document in documents
        if document.id not in duplicates
    ]


_NO_TEXT = "no text in it"


@dataclass(frozen=True)
class CorpusReader:
    """Reader of the corpus that a build searches, in the steps documents, fold and chunk."""

    plan: BuildPlan
    store: ItemStore
    executor: Executor
    step: Callable[[Step[Path], Sequence[Path]], dict[str, Outcome]]
    """Runs a step whose outcomes the build keeps."""
    done: Callable[[Count], None]
    """Is told how a step went."""

    def read(self) -> PassageCorpus:
        """Read, fold and cut; results of earlier passes are reused."""
        documents = self._read_documents()
        folded = self._find_folded(documents)
        stay = fold(documents, folded)
        return PassageCorpus(self._chunk(stay), names_of(documents, folded))

    def _read_documents(self) -> list[Document]:
        source = self.plan.documents
        if source.path.is_file() or is_task_folder(source.path):
            documents = read_table_documents(source)
            self.done(count_reasons("documents", ["" if each.text else _NO_TEXT for each in documents]))
            found = [document for document in documents if document.text]
        else:
            files = [*list_files(source.path), *list_other_files(source.path)]

            def make(batch: Sequence[Path]) -> list[Outcome]:
                return [_read_one(path, source.path) for path in batch]

            def identify(path: Path) -> str:
                return path.relative_to(source.path).as_posix()

            outcomes = self.step(Step("documents", identify, _file_key, make=make, batch=16), files)
            found = [_document(outcome.value) for outcome in outcomes.values() if not outcome.dropped]
        if not found:
            raise DataError(f"{source.path}: holds no document with a text")
        return found

    def _find_folded(self, documents: Sequence[Document]) -> dict[str, str]:
        """Return the documents that repeat an earlier one, with the id of that one."""
        near = self.plan.documents.near
        ids, texts = [each.id for each in documents], [each.text for each in documents]

        def make(_: Sequence[str]) -> list[Outcome]:
            found = find_duplicates(texts, near)
            return [Outcome({"duplicates": {ids[place]: [ids[first], how] for place, (first, how) in found.items()}})]

        step = Step("fold", str, lambda _: step_key("fold", near=near, data=text_fingerprint(ids, texts)), make=make)
        folded = run_step(step, ["documents"], self.store, self.executor)["documents"].value["duplicates"]
        self.done(count_reasons("fold", [folded[name][1] if name in folded else "" for name in ids]))
        return {name: first for name, (first, _) in folded.items()}

    def _chunk(self, documents: Sequence[Document]) -> list[Passage]:
        passages: dict[str, Passage] = {}
        for document, spans in zip(documents, self._find_spans(documents), strict=True):
            for passage in passages_of(document, [Span(*span) for span in spans]):
                if passages.setdefault(passage.id, passage) is not passage:
                    raise DataError(f"two passages would have the id {passage.id!r}; give the documents other ids")
        first = {passage.shown: passage.id for passage in reversed(passages.values())}
        repeats = {name for name, passage in passages.items() if first[passage.shown] != name}
        self.done(count_reasons("chunk", ["same text" if name in repeats else "" for name in passages]))
        return [passage for name, passage in passages.items() if name not in repeats]

    def _find_spans(self, documents: Sequence[Document]) -> list[Any]:
        """Return the spans of each document's passages: one item, which is faster to look up than sixty thousand."""
        tokens = self.plan.chunk.tokens
        headings = [[(heading.start, heading.end, heading.text) for heading in each.headings] for each in documents]

        def make(_: Sequence[str]) -> list[Outcome]:
            return [Outcome({"spans": [cut(document, tokens) for document in documents]})]

        def key(_: str) -> str:
            texts = text_fingerprint([document.text for document in documents])
            return step_key("chunk", tokens=tokens, texts=texts, at=headings)

        found = run_step(Step("chunk", str, key, make=make), ["documents"], self.store, self.executor)
        return list(found["documents"].value["spans"])


def _file_key(path: Path) -> str:
    if path.suffix.lower() not in READERS:  # they may be large, and what is in them does not matter
        return step_key("documents", kind=path.suffix.lower(), reader=READER)
    return step_key("documents", content=file_hash(path), kind=path.suffix.lower(), reader=READER)


def _read_one(path: Path, folder: Path) -> Outcome:
    if path.suffix.lower() not in READERS:
        return Outcome(dropped=f"{path.suffix.lower().lstrip('.') or 'no ending'}: files of this kind are not read")
    try:
        return Outcome(asdict(read_file(path, folder)))
    except UnreadableFile as error:
        return Outcome(dropped=f"{path.suffix.lower().lstrip('.')}: {error}")


def _document(value: Mapping[str, Any]) -> Document:
    headings = tuple(Heading(**heading) for heading in value["headings"])
    return Document(value["id"], value["title"], value["text"], value["source"], headings)
