"""The corpus of a build: documents read, duplicates folded into the first of them, and passages cut."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
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
        stay = [document for document in documents if document.id not in folded]
        return PassageCorpus(self._chunk(stay), names_of(documents, folded))

    def _read_documents(self) -> list[Document]:
        source = self.plan.documents
        if source.path.is_file() or is_task_folder(source.path):
            documents = read_table_documents(source)
            self.done(count_reasons("documents", ["" if document.text else "no text in it" for document in documents]))
            documents = [document for document in documents if document.text]
        else:
            files = [*list_files(source.path), *list_other_files(source.path)]

            def make(batch: Sequence[Path]) -> list[Outcome]:
                return [_read_one(path, source.path) for path in batch]

            def identify(path: Path) -> str:
                return path.relative_to(source.path).as_posix()

            def key(path: Path) -> str:
                kind = path.suffix.lower()
                # Files of other kinds may be large, and what is in them does not matter.
                content = file_hash(path) if kind in READERS else ""
                return step_key("documents", content=content, kind=kind, reader=READER)

            outcomes = self.step(Step("documents", identify, key, make=make, batch=16), files)
            values = (outcome.value for outcome in outcomes.values() if not outcome.dropped)
            documents = [
                Document(v["id"], v["title"], v["text"], v["source"], tuple(Heading(**h) for h in v["headings"]))
                for v in values
            ]
        if not documents:
            raise DataError(f"{source.path}: holds no document with a text")
        return documents

    def _find_folded(self, documents: Sequence[Document]) -> dict[str, str]:
        """Return the documents that repeat an earlier one, with the id of that one."""
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
        headings = [[(h.start, h.end, h.text) for h in document.headings] for document in documents]

        def make(_: Sequence[str]) -> list[Outcome]:
            return [Outcome({"spans": [cut(document, tokens) for document in documents]})]

        def key(_: str) -> str:
            texts = text_fingerprint([document.text for document in documents])
            return step_key("chunk", tokens=tokens, texts=texts, at=headings)

        outcomes = run_step(Step("chunk", str, key, make=make), ["documents"], self.store, self.executor)
        return list(outcomes["documents"].value["spans"])


def _read_one(path: Path, folder: Path) -> Outcome:
    kind = path.suffix.lower()
    if kind not in READERS:
        return Outcome(dropped=f"{kind.lstrip('.') or 'no ending'}: files of this kind are not read")
    try:
        return Outcome(asdict(read_file(path, folder)))
    except UnreadableFile as error:
        return Outcome(dropped=f"{kind.lstrip('.')}: {error}")
