"""Pointwise judging: a model reads one passage at a time and says yes or no, or gives a grade."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice

from r2med.data.dataset import Collection
from r2med.data.run import Run
from r2med.data.tasks import Task
from r2med.errors import SpecError, suggest
from r2med.llm.client import current_client
from r2med.llm.parsing import TOP_GRADE, excerpt, read_grade
from r2med.llm.stage import Exchange
from r2med.llm.types import Failed, Reply, Request, Token
from r2med.models.templates import Template
from r2med.pipeline.stage import Context
from r2med.rerank.candidates import CandidateList, Outcome, candidates, in_order, reranked
from r2med.rerank.llm import ModelReranker


def yes_or_no(tokens: Sequence[Token]) -> float | None:
    """Return the log odds of yes against no at the token where the answer is first given.

    Spellings of a word are added up. A word that is not even among the alternatives is taken to be as likely as the
    least likely of them, which is the most it can be.

    >>> round(yes_or_no([Token("Yes", -0.1, (("Yes", -0.1), (" yes", -3.0), ("No", -2.5)))]), 3)
    2.454
    """
    for token in tokens:
        if _word(token.text) in ("yes", "no"):
            return _odds([(token.text, token.logprob), *token.top])
    return _odds(tokens[0].top) if tokens and any(_word(text) in ("yes", "no") for text, _ in tokens[0].top) else None


def true_or_false(tokens: Sequence[Token], text: str) -> float | None:
    """Return the log odds of true against false if a model ends with one of them; 1 or -1 by the word alone.

    >>> round(true_or_false([Token(" so", -0.1), Token(" true", -0.1, ((" true", -0.1), (" false", -2.4)))], "true"), 3)
    2.3
    """
    answer = _word(text)
    if answer not in ("true", "false"):
        return None
    for token in reversed(tokens):
        if _word(token.text) == answer and token.top:
            return _odds([(token.text, token.logprob), *token.top], ("true", "false"))
    return 1.0 if answer == "true" else -1.0


def whole_number(tokens: Sequence[Token], text: str) -> float | None:
    """Read a reply that is a whole number from 0 to 10, and multiply it by its probability if the tokens give it.

    >>> round(whole_number([Token("<answer>", 0.0), Token(" 8", -0.5)], "8"), 3)
    4.852
    """
    match = _WHOLE.fullmatch(text.strip())
    if match is None or int(match[1]) > TOP_GRADE:
        return None
    spelled, logs = "", 0.0
    for token in reversed(tokens):
        part = _word(token.text)
        if part.isdigit():
            spelled, logs = part + spelled, logs + token.logprob
        elif spelled:
            break
    return int(match[1]) * (math.exp(logs) if spelled == match[1] else 1.0)


_WHOLE = re.compile(r"(\d{1,2})(?:\.0)?[.\s]*")


def _word(token: str) -> str:
    return token.strip(" \t\n\r*\"'.,!_▁Ġ").lower()


def _odds(alternatives: Iterable[tuple[str, float]], words: tuple[str, str] = ("yes", "no")) -> float:
    log_probabilities = dict(alternatives)
    floor = min(log_probabilities.values())

    def likelihood(word: str) -> float:
        logs = [value for text, value in log_probabilities.items() if _word(text) == word] or [floor]
        highest = max(logs)
        return highest + math.log(sum(math.exp(value - highest) for value in logs))

    return likelihood(words[0]) - likelihood(words[1])


_TRAINED = {"true or false": true_or_false, "whole number": whole_number}
"""How the answers of models that were trained to rerank become scores."""
MODES = ("auto", "logprobs", "grade")
_ALTERNATIVES = 20  # how many of the likeliest tokens are asked for: the most that servers give
_ANSWER_TOKENS = 8  # enough for a yes or a no with some marks around it


@dataclass(frozen=True)
class Pointwise(ModelReranker):
    """Reranker whose language model judges each passage alone.

    With log probabilities the score is the logarithm of the odds of yes against no. If the server gives none, or the
    model reasons first, it is a grade from 0 to 10; passages with equal grades stay in the order they had.

    >>> str(Pointwise("gpt-4o", depth=20))
    'pointwise(gpt-4o, depth=20)'
    """

    mode: str = "auto"  # logprobs, grade, or auto to find out with the first pair

    name = "pointwise"
    needed = ("query", "passage")

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.mode not in MODES:
            raise SpecError(f"pointwise: unknown mode {self.mode!r}{suggest(self.mode, MODES)}")
        if self.served and self.mode != "auto":
            raise SpecError(f"pointwise: {self.served.name} answers in a way of its own; leave mode out")
        if self.prompt and self.mode == "auto" and not self.served:
            raise SpecError("pointwise: with a prompt of your own, say what it asks for: mode=logprobs or mode=grade")

    def templates(self) -> tuple[Template, ...]:
        """Return the prompts of the modes that may be used."""
        if self.served:
            return (self.template(self.served.prompt),)
        names = {"logprobs": ("pointwise",), "grade": ("pointwise-grade",)}
        return tuple(map(self.template, names.get(self.mode, ("pointwise", "pointwise-grade"))))

    def describe(self) -> Mapping[str, object]:
        """Return the settings that a plan shows."""
        return {**super().describe(), "mode": self.mode}

    def requests_a_query(self, documents: int) -> int:
        """Return one request per passage."""
        return documents

    def example(self, task: Task, query: str, texts: Sequence[str]) -> Request:
        """Build the request for a passage of median length."""
        typical = sorted(texts, key=len)[len(texts) // 2]
        mode = self.answer or ("grade" if self.model.reasoning else "logprobs") if self.mode == "auto" else self.mode
        return self._request(query, typical, task, mode)

    def rerank(self, collection: Collection, run: Run, context: Context) -> Run:
        """Ask about every pair at once, and order each list by the scores of the replies."""
        lists = candidates(collection, run, self.depth)
        mode = self._mode(lists, collection.task)
        requests = [self._request(row.text, text, collection.task, mode) for row in lists for text in row.texts]
        exchange = Exchange()
        with context.executor.progress(str(self), sum(map(len, lists))) as bar:
            replies = exchange.ask(requests, bar)
        self.note(exchange, context)
        context.notes.facts |= {"mode": mode, "pairs": len(requests)}
        scores = [_score(reply, mode) for reply in replies]
        current_client().reject(reply for reply, score in zip(replies, scores, strict=True) if isinstance(score, str))
        rest = iter(scores)
        outcomes = [_outcome(row, list(islice(rest, len(row)))) for row in lists]
        return reranked(self, run, lists, outcomes, context)

    def _mode(self, shown: Sequence[CandidateList], task: Task) -> str:
        """Return the mode of the options, or the one that works for the first pair; one for all pairs."""
        if self.served:
            return self.answer
        if self.mode != "auto" or not shown:
            return self.mode
        if self.model.reasoning:
            return "grade"
        probe = self._request(shown[0].text, shown[0].texts[0], task, "logprobs")
        reply = current_client().ask_all([probe], probing=True)[0]
        return "grade" if yes_or_no(reply.logprobs) is None else "logprobs"

    def _request(self, query: str, text: str, task: Task, mode: str) -> Request:
        template = self.templates()[-1 if mode == "grade" else 0]
        request = self.request(task, query, template, {"passage": self.passage(text)})
        if mode == "grade":
            return request
        if mode == "logprobs" and self.max_tokens is None and not request.model.reasoning:
            request = replace(request, sampling=replace(request.sampling, max_tokens=_ANSWER_TOKENS))
        return replace(request, logprobs=_ALTERNATIVES)


def _outcome(shown: CandidateList, results: Sequence[float | str]) -> Outcome:
    for document, score in zip(shown.documents, results, strict=True):
        if isinstance(score, str):
            return f"{document}: {score}"
    scores = [float(score) for score in results]
    return in_order(sorted(range(len(scores)), key=lambda place: (-scores[place], place)), scores)


def _score(reply: Reply | Failed, mode: str) -> float | str:
    if reply.incomplete and mode != "logprobs":
        return reply.incomplete
    if mode in _TRAINED:
        score, what = _TRAINED[mode](reply.logprobs, reply.text), mode
    elif mode == "grade":
        score, what = read_grade(reply.text), mode
    else:
        score, what = yes_or_no(reply.logprobs), "yes or no"
    return reply.incomplete or f"no {what} in the reply {excerpt(reply.text)}" if score is None else score
