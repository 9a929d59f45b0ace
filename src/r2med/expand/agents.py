"""Search agents: a model reasons, searches the task's own documents, reads, and goes on until it answers.

All queries advance together: each turn asks the model about every query that is not done, then makes all searches, so
that requests run side by side and the retriever works in batches.

There are the two published agents: Search-R1 reads documents as they are, Search-o1 has them condensed first.
"""

from __future__ import annotations

from abc import abstractmethod
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import reduce
from operator import add
from typing import TYPE_CHECKING, ClassVar, NamedTuple

from r2med.data.dataset import Texts
from r2med.errors import SpecError
from r2med.expand.conversation import LATER, NO_TOKENS, NO_TURNS, MoveKind, Tags, Trajectory, same_search
from r2med.expand.methods import BY_BM25, PASSAGE_WORDS, ModelExpander, attach_generations
from r2med.llm.budget import FollowUp
from r2med.llm.client import current_client
from r2med.llm.server import guess_tokens
from r2med.llm.stage import Exchange, estimate_requests, money_facts
from r2med.llm.types import Request
from r2med.models.templates import Template, bundled, numbered
from r2med.pipeline.registry import build_system
from r2med.pipeline.system import System

if TYPE_CHECKING:
    from r2med.data.dataset import Collection
    from r2med.pipeline.stage import Context


class AgentSearch(NamedTuple):
    """A search that a model made, and its results."""

    trajectory: Trajectory
    query: str
    documents: Sequence[str] = ()  # the texts that were found, best first


@dataclass
class Log(Exchange):
    """Log of an agent over all queries, with how often each thing happened."""

    counts: Counter[str] = field(default_factory=Counter)


@dataclass(frozen=True)
class Agent(ModelExpander):
    """Base of both agents: the loop. Subclasses decide how results come back to the model."""

    tool: System = BY_BM25  # what the model searches with: any system
    turns: int = 5  # requests for a query at the most; in the last one the model is told to answer
    docs: int = 3  # how many documents a search gives
    words: int = PASSAGE_WORDS  # how many words of each

    tags: ClassVar[Tags]

    def __post_init__(self) -> None:
        super().__post_init__()
        object.__setattr__(self, "tool", build_system(self.tool))
        self.tool.check()
        for option in ("turns", "docs", "words"):
            if (number := getattr(self, option)) < 1:
                raise SpecError(f"{self.name}: {option} must be 1 or more, not {number}")

    def describe(self) -> Mapping[str, object]:
        """Return the settings that a plan shows."""
        options = {"tool": self.tool.spec, "turns": self.turns, "docs": self.docs, "words": self.words}
        return {**super().describe(), **options}

    @abstractmethod
    def read(self, searches: Sequence[AgentSearch], log: Log) -> list[str]:
        """Return the text that the model is given of the documents of each search."""

    def requests(self, collection: Collection, context: Context) -> list[Request]:
        """Build the requests of the first turn; the number of later ones is up to the model."""
        return [trajectory.request() for trajectory in self._begin(collection, context)]

    def forecast(self, collection: Collection, context: Context) -> Mapping[str, object]:
        """Estimate the first turn, and further ones as in stored conversations, or else as many as are allowed."""
        facts = estimate_requests(self.requests(collection, context))
        prompt = {"first prompt": facts.pop("first prompt")}
        conversations = len(collection.queries) * self.samples
        follow_ups = self.follow_ups(self.template(collection.task))
        guess = reduce(add, (current_client().estimate_follow_up(follow, conversations) for follow in follow_ups))
        further = {"requests": guess.requests, **money_facts(guess)}
        return {
            **{f"{name} of the first turn": fact for name, fact in facts.items()},
            "turns at most": self.turns,
            **{f"{name} of further turns": fact for name, fact in further.items()},
            **prompt,
        }

    def follow_ups(self, template: Template) -> list[FollowUp]:
        """Return the requests that may follow the first turn of a conversation."""
        # Half of what all searches show has been shown in the middle of a conversation.
        read = guess_tokens(template.text) + self._search_tokens * self.turns // 2
        return [FollowUp(self.model, template.kind, f"{template.kind}{LATER}", self.turns - 1, read)]

    @property
    def _search_tokens(self) -> int:
        """Return the most tokens that a search shows, at one and a third tokens per word."""
        return self.docs * self.words * 4 // 3

    def expand(self, collection: Collection, context: Context) -> Collection:
        """Run every query's conversation to its end and add the answers."""
        trajectories = self._begin(collection, context)
        log, active = Log(), trajectories
        with context.executor.progress(str(self), len(trajectories)) as bar:
            while active:
                self._turn(active, collection, context, log)
                before, active = len(active), [trajectory for trajectory in active if not trajectory.done]
                bar.advance(before - len(active))
        self.note(collection.task, log, context)
        context.notes.facts["agent"] = dict(sum((trajectory.counts for trajectory in trajectories), log.counts))
        written = [self.generation(one.answer, one.text, one.incomplete) for one in trajectories]
        rows = [written[start : start + self.samples] for start in range(0, len(written), self.samples)]
        return attach_generations(self, collection, rows, context)

    def _begin(self, collection: Collection, context: Context) -> list[Trajectory]:
        model, template = self.model, self.template(collection.task)
        filled = [{**values, "turns": str(self.turns)} for values in self.values(collection, context)]
        return [
            Trajectory(query, values["query"], template.fill(values), sample, model, self.tags)
            for query, values in zip(collection.queries.ids, filled, strict=True)
            for sample in range(self.samples)
        ]

    def _turn(self, active: Sequence[Trajectory], collection: Collection, context: Context, log: Log) -> None:
        """Send one request for every query that is not done, and run one search for each that asks for one."""
        (call, end_call), (answer, end_answer) = self.tags.call, self.tags.answer
        searches: list[AgentSearch] = []
        replies = log.ask([trajectory.request() for trajectory in active])
        for trajectory, reply in zip(active, replies, strict=True):
            move = trajectory.hear(reply)
            limit = trajectory.model.sampling.max_tokens
            if move is None:
                continue
            if trajectory.turns >= self.turns:
                trajectory.stop(NO_TURNS)
                continue
            if limit is not None and trajectory.tokens >= limit:
                trajectory.stop(NO_TOKENS)
                continue
            trajectory.counts["searches" if move.kind is MoveKind.SEARCH else move.kind.value] += 1
            if move.kind is not MoveKind.SEARCH:
                empty = move.kind is MoveKind.EMPTY
                what = "The search was empty." if empty else "That was neither a search nor an answer."
                ways = f"Write {call}a few words{end_call} to search, or {answer}the passage{end_answer} to finish."
                self._tell(trajectory, f"{what} {ways}")
            elif earlier := trajectory.found.get(same_search(move.text)):
                trajectory.counts["repeated"] += 1
                self._tell(trajectory, f"You made this search before. It found:\n{earlier}")
            else:
                searches.append(AgentSearch(trajectory, move.text))
        results = self._search(searches, collection, context)
        for search, text in zip(results, self.read(results, log), strict=True):
            search.trajectory.counts["found_nothing"] += not search.documents
            search.trajectory.found[same_search(search.query)] = text
            self._tell(search.trajectory, text)

    def _search(self, searches: Sequence[AgentSearch], collection: Collection, context: Context) -> list[AgentSearch]:
        """Run the searches and add their documents; those of one sample run together under their queries' own ids.

        The ids are kept so that a tool that drops a document with the query's own id can do so.
        """
        documents, done = collection.documents, list(searches)
        for sample in sorted({search.trajectory.sample for search in searches}):
            places = [place for place, search in enumerate(searches) if search.trajectory.sample == sample]
            ids = [searches[place].trajectory.query for place in places]
            asked = Texts(ids, [searches[place].query for place in places])
            inner = context.for_stage()
            run = self.tool.run(replace(collection, queries=asked, generations=()), inner)
            context.notes.work |= inner.notes.work
            for place, query in zip(places, ids, strict=True):
                texts = [documents.text(document) for document in run[query].documents[: self.docs]]
                done[place] = searches[place]._replace(documents=texts)
        return done

    def _tell(self, trajectory: Trajectory, text: str) -> None:
        """Give the model a text; if only one request is left, with a notice."""
        if trajectory.turns >= self.turns - 1:
            opening, closing = self.tags.answer
            text += f"\nNo search is left. Finish now: write the passage inside {opening} and {closing}."
        trajectory.tell(text)


NOTHING = "Nothing was found. Try other words."
_REASONING_SHOWN = 500  # words of the reasoning, the latest ones, that the reader of documents is shown


def _condense_prompt() -> Template:
    return bundled("search-o1.condense", "r2med.expand")


@dataclass(frozen=True)
class SearchR1(Agent):
    """Agent that reasons, searches and answers in tags; documents come back as they are (arXiv 2503.09516).

    >>> str(SearchR1("search-r1-7b", turns=3))
    'search-r1(search-r1-7b, turns=3)'
    """

    name = "search-r1"
    tags = Tags(("<search>", "</search>"), ("<information>", "</information>"), anywhere=True)

    def read(self, searches: Sequence[AgentSearch], log: Log) -> list[str]:
        """Return the documents, numbered and cut."""
        return [numbered(search.documents, self.words) or NOTHING for search in searches]


@dataclass(frozen=True)
class SearchO1(Agent):
    """Agent that searches inside the reasoning; a separate request condenses the results (arXiv 2501.05366).

    >>> str(SearchO1("qwq-32b", docs=5))
    'search-o1(qwq-32b, docs=5)'
    """

    turns: int = 10
    docs: int = 10

    name = "search-o1"
    tags = Tags(
        ("<|begin_search_query|>", "<|end_search_query|>"), ("<|begin_search_result|>", "<|end_search_result|>")
    )

    def fingerprint(self) -> Mapping[str, object]:
        """Add the hash of the prompt that condenses documents."""
        return {**super().fingerprint(), "condense": _condense_prompt().hash}

    def read(self, searches: Sequence[AgentSearch], log: Log) -> list[str]:
        """Ask the model, in separate requests, for the useful parts of the documents."""
        requests = []
        for trajectory, query, documents in searches:
            if documents:
                values = {
                    "query": trajectory.question,
                    "reasoning": " ".join(trajectory.reasoning.split()[-_REASONING_SHOWN:]),
                    "search": query,
                    "documents": numbered(documents, self.words),
                }
                request = self.model.request(_condense_prompt().fill(values))
                requests.append(replace(request, sample=trajectory.sample))
        replies = iter(log.ask(requests))
        texts = []
        for search in searches:
            reply = next(replies) if search.documents else None
            if reply is None:
                texts.append(NOTHING)
            elif reply.incomplete:
                log.counts["condensing_failed"] += 1
                texts.append("The documents could not be read. Go on without them, or try other words.")
            else:
                texts.append(reply.text)
        return texts

    def follow_ups(self, template: Template) -> list[FollowUp]:
        """Return further turns, and the requests that condense the results of each search."""
        condense = _condense_prompt()
        read = guess_tokens(condense.text) + self._search_tokens + _REASONING_SHOWN * 4 // 3
        return [*super().follow_ups(template), FollowUp(self.model, template.kind, condense.kind, self.turns - 1, read)]
