"""A build from its plan to the finished task: the steps in order, run or priced.

Its progress and the history of a question are read from the store; nothing is run for them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from importlib import resources
from pathlib import Path
from typing import Any, TypeVar

import r2med
from r2med.construction.files import READER, file_hash, list_files
from r2med.construction.health_report import CARD
from r2med.construction.items import Passage, Question
from r2med.construction.judging import Judging, Pair
from r2med.construction.mining import PassageCorpus, guessed_pool, is_free, mining_step
from r2med.construction.package import Package
from r2med.construction.people import PeopleJudging, PeopleProgress, ask_people, price_people, read_people
from r2med.construction.plan import GUIDELINE, PLACES, PLAN, BuildPlan, read_plan
from r2med.construction.pool import TASK
from r2med.construction.question_steps import LabelStep, QuestionStep, question_steps
from r2med.construction.selection import Selection, select, select_question, verdict
from r2med.construction.sources import CorpusReader, document_files, fetch_sources, is_task_folder, read_questions
from r2med.errors import R2medError, suggest
from r2med.formatting import counted
from r2med.llm import steps as llm
from r2med.llm.items import KEPT, STORE, Count, ItemStore, Outcome, count_files, count_outcomes, read_count
from r2med.llm.steps import Step, StepEstimate, open_items, price_step, step_key
from r2med.pipeline.executor.local import Executor, quiet
from r2med.pipeline.registry import build_system
from r2med.reviews.rows import review_path
from r2med.store.files import write_file
from r2med.store.hashes import checksum

STEPS = (
    "read", "documents", "fold", "chunk", "rules", "intent", "difficulty", "rewrite", "reason", "mine", "judge",
    "select", "label",
)  # fmt: skip
"""Every step in order; those that the plan has no model for are passed over."""


@dataclass(frozen=True, repr=False)
class BuildProgress:
    """Progress of a build."""

    folder: Path
    counts: Sequence[Count]
    task: Path | None = None  # the finished task; None where the build ended before
    people: PeopleProgress | None = None  # None where models judge, or the pool is not on the desk yet

    def as_dict(self) -> dict[str, Any]:
        """Return the progress for JSON."""
        steps = [count.as_dict() for count in self.counts]
        return {"folder": self.folder, "steps": steps, "task": self.task, "people": self.people}

    def __repr__(self) -> str:
        last = f"{self.counts[-1].kept} kept by {self.counts[-1].step}" if self.counts else "nothing done"
        return f"BuildProgress({str(self.folder)!r}: {last}{', task written' if self.task else ''})"


def status(folder: Path) -> BuildProgress:
    """Return the progress of a build from its store; nothing is run."""
    plan = read_plan(folder)
    with _open(folder) as store:
        finished, counts = store.counts(), []
        for step in active_steps(plan):
            if step in finished:
                counts.append(finished[step])
                continue
            so_far, rows = f"{step} (so far)", store.stream(step)
            files = step == "documents"
            count = count_files(so_far, dict(rows)) if files else count_outcomes(so_far, (row[1] for row in rows))
            if count.items and step not in ("fold", "chunk"):
                counts.append(count)
            break
    task, judging = folder / TASK, read_people(plan)
    return BuildProgress(folder, counts, task if task.is_dir() else None, judging.progress() if judging else None)


def active_steps(plan: BuildPlan) -> list[str]:
    """Return the names of the plan's active steps, in order."""
    off = {"rules", "intent", "difficulty", "rewrite", "reason"} - {step.name for step in question_steps(plan)}
    return [step for step in STEPS if step not in off and (step != "label" or plan.label.model)]


def _open(folder: Path) -> ItemStore:
    if not (folder / STORE).is_file():
        raise R2medError(f"{folder}: nothing is built yet; run: r2med build run {folder}")
    return ItemStore(folder)


def show(folder: Path, identifier: str, top: int | None = None) -> dict[str, Any]:
    """Return the history of one question: the result of each step, and its candidates with scores, best first."""
    plan = read_plan(folder)
    with _open(folder) as store:
        read = store.outcome("read", identifier)
        if read is None:
            raise R2medError(f"{folder}: no question {identifier!r}{suggest(identifier, store.kept('read'))}")
        steps = {step: store.outcome(step, identifier) for step in active_steps(plan) if step not in _IN_PARTS}
        mined, selected = steps.pop("mine", None), steps.pop("select", None)
        verdicts = selected.value["verdicts"] if selected else {}
        pool = mined.value.get("candidates", {}) if mined else {}
        candidates = [
            {
                "passage": name,
                "found": [dict(zip(("system", "view", "rank"), way, strict=True)) for way in ways],
                "verdict": verdicts.get(name),
                **_result(store.outcome("judge", f"{identifier}\t{name}")),
            }
            for name, ways in pool.items()
        ]
    candidates.sort(key=lambda candidate: -candidate.get("answers", -1.0) - candidate.get("supports", -1.0))
    results = {step: _result(outcome) for step, outcome in steps.items() if outcome is not None}
    ended = (steps | {"mine": mined, "select": selected}).items()
    dropped = (f"{step}: {outcome.dropped}" for step, outcome in ended if outcome and outcome.dropped)
    return {"id": identifier, "steps": results, "candidates": candidates[:top], "dropped": next(dropped, "")}


_IN_PARTS = ("documents", "fold", "chunk", "judge")


def _result(outcome: Outcome | None) -> dict[str, Any]:
    stopped = {name: why for name in ("dropped", "failed") if (why := getattr(outcome, name, ""))}
    return {**outcome.value, **stopped} if outcome else {}


_STEP, _ITEM = "finished", "task"
_QUESTION = Question("q", "question", "answer", ("option",), ("source",), "text", "intent", "reasoning")
_PASSAGE = Passage("p", "title", "text", "d", "source", 0, 4)
"""Made up: the key of a step says which models, prompts and settings it has, whatever the item."""


def build_key(plan: BuildPlan) -> str:
    """Return a hash of everything that the finished task depends on."""
    asked = [*question_steps(plan), *([LabelStep(plan)] if plan.label.model else [])]
    steps = [step.key(_QUESTION) for step in asked] + [build_system(name).key() for name in plan.mine.systems]
    judging = read_people(plan)
    steps += [step_key("people", state=judging.state) if judging else Judging(plan).key(Pair(_QUESTION, _PASSAGE))]
    prompts = [plan.prompt(name).text for name in PLACES]
    documents = plan.documents.path
    if documents.is_file():
        sources = [documents]
    else:
        sources = document_files(documents) if is_task_folder(documents) else list_files(documents)
    files = [(path.name, file_hash(path)) for path in (plan.questions.path, *sources)]
    parts = {"settings": (plan.settings, plan.guideline, plan.origins), "prompts": prompts, "steps": steps}
    return step_key("build", r2med=r2med.__version__, reader=READER, files=files, **parts)


def finished_counts(store: ItemStore, key: str, task: Path) -> list[Count] | None:
    """Return the counts of the steps if the task was made with this key and is unchanged; None otherwise."""
    row = store.kept(_STEP).get(_ITEM)
    if row is None or row.key != key or _checksums(task, row.outcome.value["files"]) != row.outcome.value["files"]:
        return None
    return [read_count(value) for value in row.outcome.value["counts"]]


def _checksums(task: Path, names: Iterable[str]) -> dict[str, int]:
    """Return the checksums of files; the card's is 0, for a check adds to it."""
    return {name: 0 if name == CARD else checksum(task / name) for name in names if (task / name).is_file()}


def seal_build(store: ItemStore, key: str, task: Path, counts: Sequence[Count]) -> None:
    """Record that the task is finished, with the counts of its steps."""
    files = sorted(path.relative_to(task).as_posix() for path in task.rglob("*") if path.is_file())
    sealed = {"files": _checksums(task, files), "counts": [count.as_dict() for count in counts]}
    store.put(_STEP, [(_ITEM, key, Outcome(sealed))])


Item = TypeVar("Item")
Part = TypeVar("Part")


def init(folder: Path, people: str = "") -> list[Path]:
    """Write a plan with comments, a guideline and an example; refuse a folder that is not empty.

    With `people`, the name of their review, they judge, and a static encoder of this machine joins the committee.
    """
    if people:
        review_path(people)
    changes = {'review = ""': f'review = "{people}"', 'systems = ["bm25"]  ': 'systems = ["bm25", "wordllama"]  '}
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise R2medError(f"{folder}: exists already and is not empty; name a new folder")
    template = resources.files("r2med.construction").joinpath("template")
    files = [folder / name for name in (PLAN, GUIDELINE, "questions.jsonl", "documents/scurvy.md")]
    for file in files:
        text = template.joinpath(file.name).read_text("utf-8")
        for usual, changed in changes.items() if people else ():
            text = text.replace(usual, changed)
        write_file(file, text.encode(), parents=True)
    return files


class _Until(Exception):
    """Signal that the last requested step has ended."""


class Builder:
    """One pass over the steps of a plan, which reuses the results of earlier passes."""

    def __init__(self, folder: Path, executor: Executor | None = None, plan: BuildPlan | None = None) -> None:
        self._advice = "" if plan else f"; see: r2med build status {folder}"
        self.plan = fetch_sources(plan or read_plan(folder))
        self.folder, self.executor = folder, executor or quiet()
        self.counts: list[Count] = []
        self._people: PeopleProgress | None = None
        self.outcomes: dict[str, dict[str, Outcome]] = {}

    def run(self, until: str = "", *, partial: bool = False) -> BuildProgress:
        """Run the steps, to the end or to the named one; a finished build without changes is left as it is.

        Where people judge, it ends after mining until they have judged all, or, with `partial`, any of the pairs.
        """
        steps = active_steps(self.plan)
        if until and until not in steps:
            off = until in STEPS
            raise R2medError(f"the plan has {until} off" if off else f"no step {until!r}{suggest(until, steps)}")
        task, key = self.folder / TASK, build_key(self.plan)
        with ItemStore(self.folder) as store:
            if (finished := finished_counts(store, key, task)) is not None:
                judging = read_people(self.plan)
                for count in finished:  # an attempt with another plan may have written others
                    store.put_count(count)
                return BuildProgress(self.folder, finished, task, judging.progress() if judging else None)
            self._store, self._until, self._partial = store, until, partial
            store.forget_counts()
            try:
                questions, corpus = self._read()
                selection = self._work(questions, corpus)
                Package(self.plan, corpus, selection, self.counts, self.outcomes, store).write(task)
            except _Until:
                return BuildProgress(self.folder, self.counts, people=self._people)
            if not any(count.left for count in self.counts):
                seal_build(store, key, task, self.counts)
        return BuildProgress(self.folder, self.counts, task, self._people)

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
            by_people = self.plan.people.review and price_people(self.plan, pairs)
            steps.append(by_people or price_step(judging.step, pairs, judging.requests, self._store))
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
        """Record a step that has ended; stop if the build ends with it."""
        self.counts.append(count)
        self._store.put_count(count)
        if count.step == self._until:
            raise _Until

    def _step(self, step: Step[Item], items: Sequence[Item]) -> dict[str, Outcome]:
        self.outcomes[step.name] = outcomes = llm.run_step(step, items, self._store, self.executor)
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
        judging = ask_people(self.plan, pairs, self._store) if self.plan.people.review else Judging(self.plan)
        if isinstance(judging, PeopleJudging):
            self._people = judging.progress([pair.id for pair in pairs])
        verdicts = self._large_step(judging.step, pairs, lambda outcome: verdict(outcome, settings))
        if self._people and self._people.open and not (self._partial and self._people.labelled):
            if self._partial:
                name = self._people.review
                raise R2medError(f"no person has graded a pair of {name} yet; first: r2med review invite {name} PERSON")
            raise _Until
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
