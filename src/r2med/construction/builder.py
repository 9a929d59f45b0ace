"""A build from its plan to the finished task: the steps in order, run or priced."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict
from importlib import resources
from pathlib import Path
from typing import TypeVar

from r2med.construction.items import Question
from r2med.construction.judging import Judging, Pair
from r2med.construction.mining import PassageCorpus, guessed_pool, is_free, mining_step
from r2med.construction.package import Package
from r2med.construction.plan import GUIDELINE, PLAN, BuildPlan, read_plan
from r2med.construction.pool import TASK
from r2med.construction.progress import STEPS, BuildProgress, active_steps, build_key, finished_counts, seal_build
from r2med.construction.question_steps import LabelStep, QuestionStep, question_steps
from r2med.construction.selection import Selection, select, select_question, verdict
from r2med.construction.sources import CorpusReader, fetch_sources, read_questions
from r2med.errors import R2medError, suggest
from r2med.formatting import counted
from r2med.llm import steps as llm
from r2med.llm.items import KEPT, Count, ItemStore, Outcome, count_files, count_outcomes
from r2med.llm.steps import Step, StepEstimate, open_items, price_step, step_key
from r2med.pipeline.executor.local import Executor, quiet
from r2med.store.files import write_file

Item = TypeVar("Item")
Part = TypeVar("Part")


def init(folder: Path) -> list[Path]:
    """Write a plan with comments, a guideline and an example; refuse a folder that is not empty."""
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise R2medError(f"{folder}: exists already and is not empty; name a new folder")
    template = resources.files("r2med.construction").joinpath("template")
    places = {
        PLAN: "plan.toml",
        GUIDELINE: "guideline.md",
        "questions.jsonl": "questions.jsonl",
        "documents/scurvy.md": "scurvy.md",
    }
    for name, source in places.items():
        write_file(folder / name, template.joinpath(source).read_bytes(), parents=True)
    return [folder / name for name in places]


class _Until(Exception):
    """Signal that the last requested step has ended."""


class Builder:
    """One pass over the steps of a plan, which reuses the results of earlier passes."""

    def __init__(self, folder: Path, executor: Executor | None = None, plan: BuildPlan | None = None) -> None:
        self._advice = "" if plan else f"; see: r2med build status {folder}"
        self.plan = fetch_sources(plan or read_plan(folder))
        self.folder, self.executor = folder, executor or quiet()
        self.counts: list[Count] = []
        self.outcomes: dict[str, dict[str, Outcome]] = {}

    def run(self, until: str = "") -> BuildProgress:
        """Run the steps, to the end or to the named one; a finished build without changes is left as it is."""
        steps = active_steps(self.plan)
        if until and until not in steps:
            off = until in STEPS
            raise R2medError(f"the plan has {until} off" if off else f"no step {until!r}{suggest(until, steps)}")
        task, key = self.folder / TASK, build_key(self.plan)
        with ItemStore(self.folder) as store:
            if (finished := finished_counts(store, key, task)) is not None:
                for count in finished:  # an attempt with another plan may have written others
                    store.put_count(count)
                return BuildProgress(self.folder, finished, task)
            self._store, self._until = store, until
            store.forget_counts()
            try:
                questions, corpus = self._read()
                selection = self._work(questions, corpus)
                Package(self.plan, corpus, selection, self.counts, self.outcomes, store).write(task)
            except _Until:
                return BuildProgress(self.folder, self.counts)
            if not any(count.left for count in self.counts):
                seal_build(store, key, task, self.counts)
        return BuildProgress(self.folder, self.counts, task)

    def read_corpus(self) -> PassageCorpus:
        """Return the passages of the plan's documents without reading the questions."""
        with ItemStore(self.folder) as store:
            self._store, self._until = store, ""
            corpus = self._read_corpus()
        self.counts = []  # a pass over all steps reads them again
        return corpus

    def estimate(self, asked: Sequence[Question] = ()) -> list[StepEstimate]:
        """Estimate each step that asks a model; nothing is asked, and only steps that cost nothing are run.

        `asked` stands in for the plan's questions, where these are still to be written.
        """
        with ItemStore(self.folder) as store:
            self._store, self._until = store, ""
            questions, corpus = (list(asked), self._read_corpus()) if asked else self._read()
            assumed = {question.id for question in asked}  # and those that a step could only guess at
            steps: list[StepEstimate] = []
            for step in question_steps(self.plan):
                if step.step.work is None:
                    questions = self._pass(step, questions)
                else:
                    steps.append(price_step(step.step, questions, step.requests, self._store))
                    kept = {name: row.outcome for name, row in self._store.kept(step.name).items()}
                    unasked = {question.id for question in open_items(step.step, questions, self._store)}
                    assumed |= unasked
                    questions = [
                        step.guess(q) if q.id in unasked else step.advance(q, kept[q.id].value)
                        for q in questions
                        if q.id in unasked or not kept[q.id].dropped
                    ]
            judging, pairs = Judging(self.plan), self._guessed_pairs(questions, corpus, assumed)
            steps.append(price_step(judging.step, pairs, judging.requests, self._store))
            if self.plan.label.model:
                labels = LabelStep(self.plan)
                steps.append(price_step(labels.step, questions, labels.requests, self._store))
        return steps

    def _guessed_pairs(self, questions: Sequence[Question], corpus: PassageCorpus, assumed: set[str]) -> list[Pair]:
        """Return the pairs of the pools as they are, or as large as they can become."""
        mined, step = self._store.kept("mine"), mining_step(self.plan, corpus, self.executor)
        open_ones = open_items(step, questions, self._store)
        unmined = {question.id for question in open_ones}
        outcomes = {name: row.outcome for name, row in mined.items() if name not in unmined}
        if mined and is_free(self.plan) and step.make is not None:  # mined again: that costs nothing, and is not stored
            certain = [question for question in open_ones if question.id not in assumed]
            for start in range(0, len(certain), step.batch):
                batch = certain[start : start + step.batch]
                outcomes |= {q.id: outcome for q, outcome in zip(batch, step.make(batch), strict=True)}
        pools = [
            outcomes[question.id].value.get("candidates", ())
            if question.id in outcomes
            else guessed_pool(self.plan, corpus, number)
            for number, question in enumerate(questions)
        ]
        return [Pair(q, corpus.passage(name)) for q, pool in zip(questions, pools, strict=True) for name in pool]

    def _done(self, count: Count) -> None:
        """Record a step that has ended, and stop if the build should end with it."""
        self.counts.append(count)
        self._store.put_count(count)
        if count.step == self._until:
            raise _Until

    def _step(self, step: Step[Item], items: Sequence[Item]) -> dict[str, Outcome]:
        outcomes = llm.run_step(step, items, self._store, self.executor)
        self.outcomes[step.name] = outcomes
        files = step.name == "documents"
        self._done(count_files(step.name, outcomes) if files else count_outcomes(step.name, outcomes.values()))
        return outcomes

    def _keep(self, step: str, outcomes: Mapping[str, Outcome]) -> None:
        """Store outcomes that take no time to make, if they are new."""
        keys = {name: step_key(step, value=outcome) for name, outcome in outcomes.items()}
        self._store.retain(step, keys)
        kept = {name: row.key for name, row in self._store.kept(step).items()}
        self._store.put(step, [(name, key, outcomes[name]) for name, key in keys.items() if kept.get(name) != key])
        self.outcomes[step] = dict(outcomes)
        self._done(count_outcomes(step, outcomes.values()))

    def _read(self) -> tuple[list[Question], PassageCorpus]:
        questions, unusable = read_questions(self.plan.questions)
        outcomes = {question.id: Outcome(asdict(question)) for question in questions}
        self._keep("read", outcomes | {place: Outcome(dropped=why) for place, why in unusable.items()})
        return questions, self._read_corpus()

    def _read_corpus(self) -> PassageCorpus:
        return CorpusReader(self.plan, self._store, self.executor, self._step, self._done).read()

    def _pass(self, step: QuestionStep, questions: Sequence[Question]) -> list[Question]:
        outcomes = self._step(step.step, questions)
        passed = [step.advance(q, outcomes[q.id].value) for q in questions if outcomes[q.id].state == KEPT]
        self._refuse_none(step.name, passed)
        return passed

    def _refuse_none(self, step: str, questions: Sequence[Question]) -> None:
        if not questions:
            count = self.counts[-1]
            why = max({**count.dropped, **count.failed}.items(), key=lambda entry: entry[1], default=("failed", 0))[0]
            left = sum(count.left for count in self.counts)
            again = f"; {counted(left, 'item')} without a usable answer: the same command asks again" if left else ""
            raise R2medError(f"no question is left after {step} (most often: {why}){again}{self._advice}")

    def _work(self, questions: list[Question], corpus: PassageCorpus) -> Selection:
        settings = self.plan.select
        for step in question_steps(self.plan):
            questions = self._pass(step, questions)

        def pool_of(outcome: Outcome) -> list[str]:
            return [] if outcome.dropped else list(outcome.value["candidates"])

        mined = self._large_step(mining_step(self.plan, corpus, self.executor), questions, pool_of)
        pools = {question: pool for question in questions if (pool := mined.get(question.id))}
        self._refuse_none("mine", list(pools))
        pairs = [Pair(question, corpus.passage(name)) for question, pool in pools.items() for name in pool]
        verdicts = self._large_step(Judging(self.plan).step, pairs, lambda outcome: verdict(outcome, settings))
        outcomes = {
            question.id: select_question({name: verdicts[f"{question.id}\t{name}"] for name in pool}, settings)
            for question, pool in pools.items()
        }
        self._keep("select", outcomes)
        selection = select(list(pools), outcomes, corpus, settings)
        self._refuse_none("select", selection.questions)
        if self.plan.label.model:
            self._pass(LabelStep(self.plan), selection.questions)
        return selection

    def _large_step(self, step: Step[Item], items: Sequence[Item], read: Callable[[Outcome], Part]) -> dict[str, Part]:
        """Run a step with more outcomes than memory may hold; return what is read of each."""
        llm.make_items(step, items, self._store, self.executor)
        parts: dict[str, Part] = {}

        def outcomes() -> Iterator[Outcome]:
            for name, outcome in self._store.stream(step.name):
                parts[name] = read(outcome)
                yield outcome

        count = count_outcomes(step.name, outcomes())
        llm.raise_if_all_failed(count)
        self._done(count)
        return parts
