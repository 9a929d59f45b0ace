"""Mining: a committee of systems searches from several views of each question, and the pool is the union."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, partial

from r2med.construction.items import Document, Passage, Question
from r2med.construction.plan import BuildPlan
from r2med.data.dataset import Collection, Texts
from r2med.data.run import Run
from r2med.data.tasks import Task
from r2med.llm.items import Outcome
from r2med.llm.steps import Step, step_key
from r2med.pipeline.executor.local import Executor, every_share
from r2med.pipeline.registry import build_system
from r2med.pipeline.stage import Context
from r2med.store.cache import Cache

SOURCE = "source"
Finding = tuple[str, str, int]
"""One hit of a candidate: the system, the view and the rank, from 1; `source` and 0 for the known source."""


@dataclass(frozen=True)
class PassageCorpus:
    """The passages that are searched, and the documents among them by the names that questions use."""

    passages: Sequence[Passage]
    named: Mapping[str, str]  # ids, links and file names, to the id of the document that stayed

    @cached_property
    def of_document(self) -> Mapping[str, list[str]]:
        """Return the ids of each document's passages."""
        of_document: dict[str, list[str]] = {}
        for passage in self.passages:
            of_document.setdefault(passage.document, []).append(passage.id)
        return of_document

    @cached_property
    def _by_id(self) -> Mapping[str, Passage]:
        return {passage.id: passage for passage in self.passages}

    def passage(self, identifier: str) -> Passage:
        """Return the passage with an id."""
        return self._by_id[identifier]

    def source_documents(self, question: Question) -> list[str]:
        """Return the documents that a question was made from, as far as the corpus holds them."""
        documents = [self.named[name] for name in question.sources if name in self.named]
        return list(dict.fromkeys(document for document in documents if document in self.of_document))


def names_of(documents: Sequence[Document], folded: Mapping[str, str]) -> dict[str, str]:
    """Map the names that questions use for a document to the id of the one that stayed; an id wins over a link or file.

    >>> names_of([Document("d1", "", "x", "http://a/b.html")], {})["b.html"]
    'd1'
    """
    named: dict[str, str] = {}
    for document in documents:
        for name in (document.source, document.source.rpartition("/")[2]):
            if name:
                named.setdefault(name, document.id)
    named |= {document.id: document.id for document in documents}
    return {name: folded.get(identifier, identifier) for name, identifier in named.items()}


def mining_step(plan: BuildPlan, corpus: PassageCorpus, executor: Executor) -> Step[Question]:
    """Return the step that makes the pool of each question."""
    depth, systems = plan.mine.depth, {name: build_system(name) for name in plan.mine.systems}
    shallow = {name: system for name, system in systems.items() if system.retriever.depth < depth}
    systems |= {name: system.with_option("depth", depth) for name, system in shallow.items()}
    committee = [system.key() for system in systems.values()]
    views, context = plan.views, Context(Cache.default(), executor)
    documents = Texts([passage.id for passage in corpus.passages], [passage.shown for passage in corpus.passages])
    task = Task(plan.task.name, plan.task.name, "custom", **plan.task.words)

    def pool_of(question: Question, runs: Mapping[str, Run]) -> Outcome:
        pool: dict[str, list[Finding]] = {}
        for view in views:
            for system, run in runs.items():
                for rank, passage in enumerate(run[f"{question.id}\t{view}"].documents[:depth], 1):
                    pool.setdefault(passage, []).append((system, view, rank))
        sources = corpus.source_documents(question)
        passages = [name for document in sources for name in corpus.of_document[document]]
        # Of the known source the best ranked passages, then those that come first in the document.
        passages.sort(key=lambda name: min((rank for *_, rank in pool.get(name, ())), default=depth + 1))
        for passage in passages[: plan.mine.source_passages]:
            pool.setdefault(passage, []).append((SOURCE, SOURCE, 0))
        marks = ("the source is not among the documents",) if question.sources and not sources else ()
        return Outcome({"candidates": pool}, "" if pool else "no candidate was found", marks=marks)

    def make(questions: Sequence[Question]) -> list[Outcome]:
        ids = [f"{question.id}\t{view}" for question in questions for view in views]
        texts = [question.view(view) for question in questions for view in views]
        collection = Collection(task, documents, Texts(ids, texts))
        runs = every_share(partial(system.run, collection, context) for system in systems.values())
        context.memo.clear()
        named = dict(zip(systems, runs, strict=True))
        return [pool_of(question, named) for question in questions]

    def key(question: Question) -> str:
        texts = [question.view(view) for view in views]
        sources, limits = corpus.source_documents(question), (depth, plan.mine.source_passages)
        asked = {"views": views, "texts": texts, "sources": sources, "limits": limits, "words": task.words}
        return step_key("mine", systems=committee, data=documents.fingerprint, **asked)

    return Step("mine", lambda question: question.id, key, make=make)


def is_free(plan: BuildPlan) -> bool:
    """Return whether mining sends no request that may be billed."""
    return not any(stage.billed for name in plan.mine.systems for stage in build_system(name).walk())


def guessed_pool(plan: BuildPlan, corpus: PassageCorpus, number: int) -> list[str]:
    """Return a pool as large as it can become, for estimates: passages spread over the corpus."""
    size = len(plan.mine.systems) * len(plan.views) * plan.mine.depth
    count = min(size, len(corpus.passages))
    stride = max(1, len(corpus.passages) // max(1, count))
    places = [(number + step * stride) % len(corpus.passages) for step in range(count)]
    return [corpus.passages[place].id for place in dict.fromkeys(places)]
