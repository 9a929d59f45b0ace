"""A build from its plan to the finished task: the steps in order, what they would cost, what became of each item."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from importlib import resources
from pathlib import Path
from typing import Any, TypeVar

from r2med.build.build_items import Document, Heading, Passage, Question
from r2med.build.build_plan import GUIDELINE, PLAN, BuildPlan, read_plan
from r2med.build.build_seal import build_key, is_finished, seal_build
from r2med.build.chunks import Span, cut, passages_of
from r2med.build.fold_duplicates import find_duplicates, fold
from r2med.build.hub_sources import fetch_sources
from r2med.build.item_store import (
    KEPT,
    STORE,
    Count,
    ItemStore,
    Outcome,
    collector_paused,
    count_outcomes,
    count_reasons,
)
from r2med.build.judged_pool import TASK
from r2med.build.judging import Pair, foresee_judging, judging_step
from r2med.build.mining import PassageCorpus, guessed_pool, mining_step, names_of
from r2med.build.package import Package
from r2med.build.prompt_files import check_prompts
from r2med.build.question_steps import QuestionStep, label_step, question_steps
from r2med.build.read_files import UnreadableFile, file_hash, list_files, read_file
from r2med.build.read_tables import is_task_folder, read_questions, read_table_documents
from r2med.build.select_questions import Selection, select, select_question, verdict
from r2med.build.step_runner import Step, make_items, open_items, refuse_silence, run_step, step_key
from r2med.data.dataset import text_fingerprint
from r2med.errors import DataError, R2medError, suggest
from r2med.llm import Estimate, Request, current_client
from r2med.pipeline.engine import Engine, quiet
from r2med.storage.files import write_file

STEPS = (
    "read", "documents", "fold", "chunk", "rules", "intent", "difficulty", "rewrite", "reason", "mine", "judge",
    "select", "label",
)  # fmt: skip
"""Every step in order; those that the plan has no model for are passed over."""
_SAMPLE = 2000
"""Of more requests than this, a part is priced and the rest reckoned from it."""
_NO_TEXT = "no text in it"
Item = TypeVar("Item")


def init(folder: Path) -> list[Path]:
    """Write a plan with comments, a guideline and an example; what is there already is refused."""
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise R2medError(f"{folder}: exists already and is not empty; name a new folder")
    template = resources.files("r2med.build").joinpath("template")
    places = {
        PLAN: "plan.toml",
        GUIDELINE: "guideline.md",
        "questions.jsonl": "questions.jsonl",
        "documents/scurvy.md": "scurvy.md",
    }
    for name, source in places.items():
        write_file(folder / name, template.joinpath(source).read_bytes(), parents=True)
    return [folder / name for name in places]


@dataclass(frozen=True, repr=False)
class BuildProgress:
    """How far a build is."""

    folder: Path
    counts: Sequence[Count]
    task: Path | None = None
    """The finished task; None where the build ended before."""

    def as_dict(self) -> dict[str, Any]:
        """The build for JSON."""
        return {
            "folder": str(self.folder),
            "steps": [asdict(count) for count in self.counts],
            "task": str(self.task) if self.task else None,
        }

    def __repr__(self) -> str:
        last = f"{self.counts[-1].kept} kept by {self.counts[-1].step}" if self.counts else "nothing done"
        return f"BuildProgress({str(self.folder)!r}: {last}{', task written' if self.task else ''})"


class _Until(Exception):
    """The step after which the build shall end has ended."""


class Builder:
    """One pass over the steps of a plan; what is kept from earlier passes is taken over."""

    def __init__(self, folder: Path, engine: Engine | None = None, plan: BuildPlan | None = None) -> None:
        self._advice = "" if plan else f"; see: r2med build status {folder}"
        plan = plan or read_plan(folder)
        check_prompts(plan)
        self.plan = fetch_sources(plan)
        self.folder, self.engine = folder, engine or quiet()
        self.counts: list[Count] = []
        self.outcomes: dict[str, dict[str, Outcome]] = {}

    def run(self, until: str = "") -> BuildProgress:
        """Run the steps, to the end or to the named one; a finished build that nothing has changed is left alone."""
        steps = active_steps(self.plan)
        if until and until not in steps:
            off = until in STEPS
            raise R2medError(f"the plan has {until} off" if off else f"no step {until!r}{suggest(until, steps)}")
        task, key = self.folder / TASK, build_key(self.plan)
        with ItemStore(self.folder) as store:
            if not until and is_finished(store, key, task):
                finished = store.counts()
                return BuildProgress(self.folder, [finished[step] for step in steps if step in finished], task)
            self._store, self._until = store, until
            store.forget_counts()
            try:
                questions, corpus = self._read()
                selection = self._work(questions, corpus)
                Package(self.plan, corpus, selection, self.counts, self.outcomes, store).write(task)
            except _Until:
                return BuildProgress(self.folder, self.counts)
            if not any(count.failed for count in self.counts):
                seal_build(store, key, task)
        return BuildProgress(self.folder, self.counts, task)

    def read_corpus(self) -> PassageCorpus:
        """The passages of the plan's documents; questions are not looked at."""
        with ItemStore(self.folder) as store:
            self._store, self._until = store, ""
            corpus = self._read_corpus()
        self.counts = []  # a pass over all steps reads them again
        return corpus

    def estimate(self, asked: Sequence[Question] = ()) -> list[Foreseen]:
        """What each step that asks would take; nothing is asked, and only what is free is run.

        `asked` stands in for the plan's questions, where these are still to be written.
        """
        with ItemStore(self.folder) as store:
            self._store, self._until = store, ""
            questions, corpus = (list(asked), self._read_corpus()) if asked else self._read()
            found: list[Foreseen] = []
            for each in question_steps(self.plan):
                if each.step.work is None:
                    questions = self._pass(each, questions)
                else:
                    found.append(price_step(each.step, questions, each.foresee, self._store))
                    questions = self._guessed(each, questions)
            pairs = self._guessed_pairs(questions, corpus)
            found.append(price_step(judging_step(self.plan), pairs, foresee_judging(self.plan), self._store))
            if self.plan.label.model:
                labels = label_step(self.plan)
                found.append(price_step(labels.step, questions, labels.foresee, self._store))
        return found

    def _guessed(self, each: QuestionStep, questions: Sequence[Question]) -> list[Question]:
        """The questions as the next step will see them, or might."""
        kept = self._store.kept(each.step.name)
        open_ones = {question.id for question in open_items(each.step, questions, self._store)}
        found = []
        for question in questions:
            if question.id in open_ones:
                found.append(each.guess(question))
            elif not kept[question.id].outcome.dropped:
                found.append(each.advance(question, kept[question.id].outcome.value))
        return found

    def _guessed_pairs(self, questions: Sequence[Question], corpus: PassageCorpus) -> list[Pair]:
        """Pools as they are, or as large as they can become."""
        mined = self._store.kept("mine")
        step = mining_step(self.plan, corpus, self.engine)
        open_ones = {question.id for question in open_items(step, questions, self._store)}
        pairs = []
        for number, question in enumerate(questions):
            if question.id in open_ones:
                pool = guessed_pool(self.plan, corpus, number)
            else:
                pool = list(mined[question.id].outcome.value.get("candidates", ()))
            pairs += [Pair(question, corpus.passage(name)) for name in pool]
        return pairs

    def _done(self, count: Count) -> None:
        """Note a step that has ended, and stop where the build shall end with it."""
        self.counts.append(count)
        self._store.put_count(count)
        if count.step == self._until:
            raise _Until

    def _step(self, step: Step[Item], items: Sequence[Item]) -> dict[str, Outcome]:
        outcomes = run_step(step, items, self._store, self.engine)
        self.outcomes[step.name] = outcomes
        self._done(count_outcomes(step.name, outcomes.values()))
        return outcomes

    def _keep(self, step: str, outcomes: Mapping[str, Outcome]) -> None:
        """Keep what takes no time to make, as far as it is new."""
        keys = {name: step_key(step, value=outcome) for name, outcome in outcomes.items()}
        self._store.retain(step, keys)
        kept = self._store.kept(step)
        new = [name for name, key in keys.items() if name not in kept or kept[name].key != key]
        self._store.put(step, [(name, keys[name], outcomes[name]) for name in new])
        self.outcomes[step] = dict(outcomes)
        self._done(count_outcomes(step, outcomes.values()))

    def _read(self) -> tuple[list[Question], PassageCorpus]:
        questions, unusable = read_questions(self.plan.questions)
        outcomes = {question.id: Outcome(asdict(question)) for question in questions}
        self._keep("read", outcomes | {place: Outcome(dropped=why) for place, why in unusable.items()})
        return questions, self._read_corpus()

    def _read_corpus(self) -> PassageCorpus:
        documents = self._read_documents()
        folded = self._find_folded(documents)
        with collector_paused():
            stay = fold(documents, folded)
            return PassageCorpus(self._chunk(stay), names_of(documents, folded))

    def _read_documents(self) -> list[Document]:
        source = self.plan.documents
        if source.path.is_file() or is_task_folder(source.path):
            with collector_paused():
                documents = read_table_documents(source)
            self._done(count_reasons("documents", ["" if each.text else _NO_TEXT for each in documents]))
            found = [document for document in documents if document.text]
        else:
            files = list_files(source.path)

            def make(batch: Sequence[Path]) -> list[Outcome]:
                return [_read_one(path, source.path) for path in batch]

            def identify(path: Path) -> str:
                return path.relative_to(source.path).as_posix()

            outcomes = self._step(Step("documents", identify, _file_key, make=make, batch=16), files)
            found = [_document(outcome.value) for outcome in outcomes.values() if not outcome.dropped]
        if not found:
            raise DataError(f"{source.path}: holds no document with a text")
        return found

    def _find_folded(self, documents: Sequence[Document]) -> dict[str, str]:
        """Documents that repeat an earlier one, with which."""
        near = self.plan.documents.near
        ids, texts = [each.id for each in documents], [each.text for each in documents]

        def make(_: Sequence[str]) -> list[Outcome]:
            found = find_duplicates(texts, near)
            return [Outcome({"duplicates": {ids[place]: [ids[first], how] for place, (first, how) in found.items()}})]

        step = Step("fold", str, lambda _: step_key("fold", near=near, data=text_fingerprint(ids, texts)), make=make)
        folded = run_step(step, ["documents"], self._store, self.engine)["documents"].value["duplicates"]
        self._done(count_reasons("fold", [folded[name][1] if name in folded else "" for name in ids]))
        return {name: first for name, (first, _) in folded.items()}

    def _chunk(self, documents: Sequence[Document]) -> list[Passage]:
        passages: dict[str, Passage] = {}
        for document, spans in zip(documents, self._find_spans(documents), strict=True):
            for passage in passages_of(document, [Span(*span) for span in spans]):
                if passages.setdefault(passage.id, passage) is not passage:
                    raise DataError(f"two passages would have the id {passage.id!r}; give the documents other ids")
        first = {passage.shown: passage.id for passage in reversed(passages.values())}
        repeats = {name for name, passage in passages.items() if first[passage.shown] != name}
        self._done(count_reasons("chunk", ["same text" if name in repeats else "" for name in passages]))
        return [passage for name, passage in passages.items() if name not in repeats]

    def _find_spans(self, documents: Sequence[Document]) -> list[Any]:
        """Where the passages of each document are: one item, for they are looked up faster than sixty thousand."""
        tokens = self.plan.chunk.tokens
        headings = [[(heading.start, heading.end, heading.text) for heading in each.headings] for each in documents]

        def make(_: Sequence[str]) -> list[Outcome]:
            return [Outcome({"spans": [cut(document, tokens) for document in documents]})]

        def key(_: str) -> str:
            texts = text_fingerprint([document.text for document in documents])
            return step_key("chunk", tokens=tokens, texts=texts, at=headings)

        found = run_step(Step("chunk", str, key, make=make), ["documents"], self._store, self.engine)
        return list(found["documents"].value["spans"])

    def _pass(self, each: QuestionStep, questions: Sequence[Question]) -> list[Question]:
        """The questions that get through a step, with what it found."""
        outcomes = self._step(each.step, questions)
        found = [
            each.advance(question, outcomes[question.id].value)
            for question in questions
            if outcomes[question.id].state == KEPT
        ]
        self._refuse_none(each.step.name, found)
        return found

    def _refuse_none(self, step: str, questions: Sequence[Question]) -> None:
        if not questions:
            why = max(self.counts[-1].dropped.items(), key=lambda entry: entry[1], default=("failed", 0))[0]
            raise R2medError(f"no question is left after {step} (most often: {why}){self._advice}")

    def _work(self, questions: list[Question], corpus: PassageCorpus) -> Selection:
        for each in question_steps(self.plan):
            questions = self._pass(each, questions)
        pools = self._mine(questions, corpus)
        questions = list(pools)
        self._refuse_none("mine", questions)
        found = self._judge(pools, corpus)
        outcomes = {}
        for question, pool in pools.items():
            verdicts = {name: found[f"{question.id}\t{name}"] for name in pool}
            outcomes[question.id] = select_question(verdicts, self.plan.select)
        self._keep("select", outcomes)
        selection = select(questions, outcomes, corpus, self.plan.select)
        self._refuse_none("select", selection.questions)
        if self.plan.label.model:
            self._pass(label_step(self.plan), selection.questions)
        return selection

    def _mine(self, questions: Sequence[Question], corpus: PassageCorpus) -> dict[Question, list[str]]:
        """The candidates of each question that has any."""
        found: dict[str, list[str]] = {}

        def look(name: str, outcome: Outcome) -> None:
            if not outcome.dropped:
                found[name] = list(outcome.value["candidates"])

        self._large_step(mining_step(self.plan, corpus, self.engine), questions, look)
        return {question: found[question.id] for question in questions if question.id in found}

    def _judge(self, pools: Mapping[Question, Sequence[str]], corpus: PassageCorpus) -> dict[str, str]:
        """The verdict of each pair."""
        verdicts: dict[str, str] = {}

        def look(name: str, outcome: Outcome) -> None:
            verdicts[name] = verdict(outcome, self.plan.select)

        with collector_paused():
            pairs = [Pair(question, corpus.passage(name)) for question, pool in pools.items() for name in pool]
        self._large_step(judging_step(self.plan), pairs, look)
        return verdicts

    def _large_step(self, step: Step[Item], items: Sequence[Item], look: Callable[[str, Outcome], None]) -> None:
        """A step whose outcomes stay in the store, for they can be more than memory holds; each is looked at once."""
        make_items(step, items, self._store, self.engine)

        def outcomes() -> Iterator[Outcome]:
            for name, outcome in self._store.stream(step.name):
                look(name, outcome)
                yield outcome

        count = count_outcomes(step.name, outcomes())
        refuse_silence(count)
        self._done(count)


@dataclass(frozen=True)
class Foreseen:
    """What a step would take."""

    step: str
    items: int
    """Those that are not kept yet, or might have to be made."""
    guess: Estimate

    def as_dict(self) -> dict[str, Any]:
        """The estimate for JSON."""
        return {"step": self.step, "items": self.items, **asdict(self.guess)}


def price_step(
    step: Step[Item], items: Sequence[Item], foresee: Callable[[Item], list[Request]], store: ItemStore
) -> Foreseen:
    """What a step would take for the items that are not kept; of very many, a part is asked about."""
    missing = open_items(step, items, store)
    chosen = missing[:: max(1, len(missing) // _SAMPLE)]
    guess = current_client().estimate([request for item in chosen for request in foresee(item)])
    return Foreseen(step.name, len(missing), _scaled(guess, len(missing) / max(1, len(chosen))))


def _scaled(guess: Estimate, factor: float) -> Estimate:
    """An estimate of a part, for the whole."""
    return Estimate(
        round(guess.requests * factor),
        round(guess.cached * factor),
        round(guess.prompt_tokens * factor),
        round(guess.completion_tokens * factor),
        None if guess.cost is None else guess.cost * factor,
        None if guess.cost_limit is None else guess.cost_limit * factor,
    )


def _file_key(path: Path) -> str:
    return step_key("documents", content=file_hash(path), kind=path.suffix.lower())


def _read_one(path: Path, folder: Path) -> Outcome:
    try:
        return Outcome(asdict(read_file(path, folder)))
    except UnreadableFile as error:
        return Outcome(dropped=f"{path.suffix.lower().lstrip('.')}: {error}")


def _document(value: Mapping[str, Any]) -> Document:
    headings = tuple(Heading(**heading) for heading in value["headings"])
    return Document(value["id"], value["title"], value["text"], value["source"], headings)


def status(folder: Path) -> BuildProgress:
    """How far a build is, by what is kept of it; nothing is run."""
    plan = read_plan(folder)
    _check_begun(folder)
    with ItemStore(folder) as store:
        finished, counts = store.counts(), []
        for step in active_steps(plan):
            if step in finished:
                counts.append(finished[step])
                continue
            count = count_outcomes(f"{step} (so far)", (outcome for _, outcome in store.stream(step)))
            if count.items and step not in ("fold", "chunk"):
                counts.append(count)
            break
    task = folder / TASK
    return BuildProgress(folder, counts, task if task.is_dir() else None)


def active_steps(plan: BuildPlan) -> list[str]:
    """The steps that the plan has on, in order."""
    asked = [each.step.name for each in question_steps(plan)]
    label = ["label"] if plan.label.model else []
    return ["read", "documents", "fold", "chunk", *asked, "mine", "judge", "select", *label]


def _check_begun(folder: Path) -> None:
    if not (folder / STORE).is_file():
        raise R2medError(f"{folder}: nothing is built yet; run: r2med build run {folder}")


def show(folder: Path, identifier: str, top: int | None = None) -> dict[str, Any]:
    """Everything about one question: what each step made of it, and its candidates with their scores, best first."""
    plan = read_plan(folder)
    _check_begun(folder)
    with ItemStore(folder) as store:
        read = store.outcome("read", identifier)
        if read is None:
            raise R2medError(f"{folder}: no question {identifier!r}{suggest(identifier, store.kept('read'))}")
        steps = {step: store.outcome(step, identifier) for step in active_steps(plan) if step not in _IN_PARTS}
        mined, chosen = steps.pop("mine", None), steps.pop("select", None)
        verdicts = chosen.value["verdicts"] if chosen is not None else {}
        candidates = [
            _candidate(name, ways, store.outcome("judge", f"{identifier}\t{name}"), verdicts.get(name))
            for name, ways in (mined.value.get("candidates", {}) if mined is not None else {}).items()
        ]
    candidates.sort(key=lambda candidate: -candidate.get("answers", -1.0) - candidate.get("supports", -1.0))
    found = {step: _shown(outcome) for step, outcome in steps.items() if outcome is not None}
    ended = steps | {"mine": mined, "select": chosen}
    dropped = [f"{step}: {each.dropped}" for step, each in ended.items() if each is not None and each.dropped]
    return {"id": identifier, "steps": found, "candidates": candidates[:top], "dropped": "; ".join(dropped[:1])}


_IN_PARTS = ("documents", "fold", "chunk", "judge")
"""Steps whose items are not questions."""


def _shown(outcome: Outcome) -> dict[str, Any]:
    extra = {name: value for name in ("dropped", "failed") if (value := getattr(outcome, name))}
    return {**outcome.value, **extra}


def _candidate(name: str, ways: Sequence[Sequence[Any]], judged: Outcome | None, verdict: str | None) -> dict[str, Any]:
    return {
        "passage": name,
        "found": [dict(zip(("system", "view", "rank"), way, strict=True)) for way in ways],
        "verdict": verdict,
        **(_shown(judged) if judged is not None else {}),
    }
