"""What rerankers that ask a language model have in common: options, prompts, and what a result remembers of them.

Reading what language models write when they rank or grade: permissive about form, strict about what is usable.
"""

from __future__ import annotations

import math
import re
import time
from abc import abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, replace
from typing import TYPE_CHECKING, ClassVar, NamedTuple

from r2med.errors import SpecError
from r2med.llm import Failed, Model, Reply, Request, Sampling, Token, current_client
from r2med.llm.model_stage import AskingStage, note_account
from r2med.models.prompts import Template, bundled, cut_words, task_values, templates
from r2med.pipeline.stage import Context, Reranker
from r2med.rerank.candidate_lists import check_depth

if TYPE_CHECKING:
    from r2med.data.dataset import Collection
    from r2med.data.tasks import Task
    from r2med.pipeline.engine import Progress
    from r2med.rerank.candidate_lists import CandidateList


_REFERENCE = re.compile(r"\[(\d+)\]")


@dataclass(frozen=True)
class ModelReranker(AskingStage, Reranker):
    """A reranker with a model, a prompt and settings; what is asked is the business of its kinds."""

    llm: str
    """The model, as `find_model` takes it."""
    _: KW_ONLY
    depth: int = 100
    """How many documents of a list are reranked."""
    words: int = 300
    """How many words of a passage the model is shown."""
    prompt: str = ""
    """A file with a prompt of one's own; empty for the bundled one."""
    temperature: float | None = None
    """In place of 0, or of a reasoning model's own."""
    max_tokens: int | None = None
    """In place of the model's own."""

    needed: ClassVar[tuple[str, ...]] = ("query", "passages")
    """What a prompt must have a place for."""

    def __post_init__(self) -> None:
        check_depth(self.name, self.depth)
        if self.words < 1:
            raise SpecError(f"{self.name}: words must be 1 or more, not {self.words}")
        self.check_asking()

    def usual(self, model: Model) -> Sampling:
        """No chance in it, but for models that reason or take no temperature."""
        if model.sampling.temperature is None or model.reasoning:
            return model.sampling
        return replace(model.sampling, temperature=0.0, top_p=None)

    def templates(self) -> tuple[Template, ...]:
        """Every prompt that may be used."""
        return (self.template(self.name),)

    def template(self, name: str) -> Template:
        """The bundled prompt of a name, or the user's own."""
        if self.prompt:
            return templates(self.name, self.prompt, self.needed)["custom"]
        return bundled(name, "r2med.rerank")

    def prompt_hashes(self) -> list[str]:
        """In the order in which the stage knows its prompts."""
        return [template.hash for template in self.templates()]

    def describe(self) -> Mapping[str, object]:
        """What a plan shows."""
        return {
            **self.asked_model(),
            "prompt": ", ".join(template.source for template in self.templates()),
            "depth": self.depth,
            "words": self.words,
        }

    @abstractmethod
    def requests_a_query(self, documents: int) -> int:
        """How many requests a list of so many documents takes."""

    def forecast(self, collection: Collection, context: Context) -> Mapping[str, object]:
        """The most requests that this may take; which of them are answered already shows only with the lists."""
        each = self.requests_a_query(min(self.depth, len(collection.documents)))
        return {"requests at most": each * len(collection.queries)}

    def passage(self, text: str) -> str:
        """A passage as a prompt shows it: cut, on one line, and without anything that looks like our own numbers."""
        return _REFERENCE.sub(r"(\1)", cut_words(text, self.words))

    def passages(self, texts: Sequence[str]) -> str:
        """Passages as a prompt shows them, numbered from 1."""
        return "\n\n".join(f"[{number}] {self.passage(text)}" for number, text in enumerate(texts, 1))

    def request(self, task: Task, query: str, template: Template, values: Mapping[str, str]) -> Request:
        """A prompt for a query, as a request."""
        return self.model.request(template.fill({**task_values(task), "query": query, **values}))

    def note(self, first: Request | None, replies: Sequence[Reply | Failed], seconds: float, context: Context) -> None:
        """Remember what was asked, what it took, and the first prompt as it was sent."""
        context.notes.facts |= {
            **self.asked_model(),
            "prompts": [{"source": template.source, "hash": template.hash} for template in self.templates()],
            "first_prompt": first.messages[-1].content if first else "",
        }
        note_account(replies, seconds, context)


def ask(requests: Sequence[Request], bar: Progress) -> tuple[list[Reply | Failed], float]:
    """The replies to requests, and how long they took on the clock."""
    started = time.perf_counter()
    replies = current_client().ask_all(requests, bar)
    return replies, time.perf_counter() - started


def trouble(reply: Reply | Failed) -> str:
    """Why a reply cannot be used at all; empty when it may be."""
    return reply.reason if isinstance(reply, Failed) else reply.incomplete


def excerpt(text: str) -> str:
    """The beginning of a reply, for a message about it."""
    line = " ".join(text.split())
    return repr(line if len(line) <= 60 else line[:60] + "...")


def count_of(found: Sequence[CandidateList]) -> int:
    """How many candidates there are in all."""
    return sum(map(len, found))


_BRACKETED = re.compile(r"[\[【]\s*(\d{1,9})\s*[\]】]")
_BARE = re.compile(r"\d{1,9}")
_WORDS = r"(?:passages?|documents?|docs?|no\.?|#)"
# What may stand between two numbers of one ranking: marks, line breaks, the places of a numbered list, the word itself.
_BETWEEN = re.compile(rf"(?:[\s>,;=≥→*|&+\"'-]|{_WORDS}|(?:^|(?<=\n))\s*\d+[.)])*", re.IGNORECASE)
_BETWEEN_BARE = re.compile(rf"\s*(?:[>,;≥→]\s*)+{_WORDS}?\s*", re.IGNORECASE)
_ONLY_NUMBERS = re.compile(r"[\d\s]+")

_GAP = r"(?:\s|[:=|>*\"'–—]|-(?=\s)|grade|score|is)*"
_GRADE = r"(\d{1,3}(?:\.\d+)?)(?![\d.]*\d)"
_BRACKETED_GRADE = re.compile(rf"[\[【]\s*(\d{{1,9}})\s*[\]】]{_GAP}{_GRADE}", re.IGNORECASE)
_BARE_GRADE = re.compile(
    rf"(?:^|[\n,{{;])[\s*-]*{_WORDS}?\s*[\"']?(\d{{1,9}})[\"'*]*\s*[:=]{_GAP}{_GRADE}", re.IGNORECASE
)
_LAST_GRADE = re.compile(rf"(?:^|[\s:=*]){_GRADE}(?:\s*/\s*10)?[\s.*]*$")

TOP_GRADE = 10.0


class Permutation(NamedTuple):
    """An order that a reply gives, as places from 0."""

    order: tuple[int, ...]
    repaired: bool
    """Whether numbers were missing, repeated or invented."""


def read_permutation(text: str, count: int) -> Permutation | None:
    """The order in which a reply puts passages 1 to `count`; None when it names none of them.

    Numbers that do not exist are ignored, of a repeated one the first counts, and missing ones follow in the order
    they had. Where a reply holds several rankings, the one with the most numbers is meant; of equals, the last.

    >>> read_permutation("[3] > [1]", 3)
    Permutation(order=(2, 0, 1), repaired=True)
    >>> read_permutation("I would not know.", 3)
    """
    best: list[int] = []
    chosen: Sequence[int] = ()
    for numbers in _rankings(text):
        usable = list(dict.fromkeys(number - 1 for number in numbers if 1 <= number <= count))
        if usable and len(usable) >= len(best):
            best, chosen = usable, numbers
    if not best:
        return None
    missing = [place for place in range(count) if place not in set(best)]
    return Permutation((*best, *missing), bool(missing) or len(chosen) != len(best))


def _rankings(text: str) -> Iterable[list[int]]:
    """Every run of numbers that may be a ranking; those in brackets last, so that they win between equals."""
    if _ONLY_NUMBERS.fullmatch(text.strip()):
        return [[int(number) for number in _BARE.findall(text)]]
    bare = [chain for chain in _chains(text, _BARE, _BETWEEN_BARE) if len(chain) > 1]
    return [*bare, *_chains(text, _BRACKETED, _BETWEEN)]


def _chains(text: str, item: re.Pattern[str], between: re.Pattern[str]) -> Iterable[list[int]]:
    chain: list[int] = []
    end = 0
    for match in item.finditer(text):
        if chain and not between.fullmatch(text, end, match.start()):
            yield chain
            chain = []
        chain.append(int(match[1] if item.groups else match[0]))
        end = match.end()
    if chain:
        yield chain


def read_grades(text: str, count: int) -> dict[int, float]:
    """The grades of passages 1 to `count` in a reply, by place from 0; of two for a passage the last counts.

    >>> read_grades("[1]: 7\\n[2]: 0/10", 2), read_grades('{"1": 3, "2": 9.5}', 2), read_grades("no idea", 2)
    ({0: 7.0, 1: 0.0}, {0: 3.0, 1: 9.5}, {})
    """
    pairs = _BRACKETED_GRADE.findall(text) or _BARE_GRADE.findall(text)
    grades = [(int(number), float(grade)) for number, grade in pairs]
    return {number - 1: grade for number, grade in grades if 1 <= number <= count and grade <= TOP_GRADE}


def read_grade(text: str) -> float | None:
    """The one grade with which a reply ends; None when it ends with none.

    >>> read_grade("It fits well.\\nGrade: 8/10"), read_grade("7"), read_grade("Grade: 70")
    (8.0, 7.0, None)
    """
    match = _LAST_GRADE.search(text.strip())
    grade = float(match[1]) if match else math.inf
    return grade if grade <= TOP_GRADE else None


def yes_or_no(tokens: Sequence[Token]) -> float | None:
    """How much likelier yes is than no, as the logarithm of the odds, where the answer is first given.

    Spellings of a word are added up. A word that is not even among the alternatives is taken to be as likely as the
    least likely of them, which is the most it can be.

    >>> round(yes_or_no([Token("Yes", -0.1, (("Yes", -0.1), (" yes", -3.0), ("No", -2.5)))]), 3)
    2.454
    >>> yes_or_no([Token("Maybe", -0.1, (("Maybe", -0.1),))])
    """
    for token in tokens:
        if _word(token.text) in ("yes", "no"):
            return _odds([(token.text, token.logprob), *token.top])
    return _odds(tokens[0].top) if tokens and any(_word(text) in ("yes", "no") for text, _ in tokens[0].top) else None


def _word(token: str) -> str:
    return token.strip(" \t\n\r*\"'.,!_▁Ġ").lower()


def _odds(alternatives: Iterable[tuple[str, float]]) -> float:
    known = dict(alternatives)
    floor = min(known.values())

    def likelihood(word: str) -> float:
        logs = [value for text, value in known.items() if _word(text) == word] or [floor]
        highest = max(logs)
        return highest + math.log(sum(math.exp(value - highest) for value in logs))

    return likelihood("yes") - likelihood("no")
