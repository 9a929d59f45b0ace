"""Conversations of a search agent: the turns of both sides, the searches, and the answer or the reason for its lack.

A model's text is parsed into moves: a search, an answer, or neither. Servers differ at a stop string: most remove it,
some leave it in, a few ignore it and let the model go on and invent its own results. All three read the same here: a
text counts up to the first tag that closes a move.
"""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass, field, replace
from enum import Enum
from typing import NamedTuple

from r2med.llm.reasoning import FORMATS, REFUSED, TraceFormat, split_trace
from r2med.llm.types import Failed, Message, Model, Reply, Request, chat

NO_TOKENS = "the token limit came before an answer"
NO_TURNS = "no answer within the turns allowed"
LATER = ", later turn"  # what the kind of a request has in every turn but the first


@dataclass
class Trajectory:
    """State of one conversation, which takes replies and results until it is `done`."""

    query: str
    question: str
    prompt: str
    sample: int
    model: Model
    tags: Tags
    pieces: list[Message] = field(default_factory=list)  # text of the model (`assistant`) and results (`user`)
    turns: int = 0  # requests that were answered
    tokens: int = 0
    found: dict[str, str] = field(default_factory=dict)  # what each search so far brought, by the search's words
    counts: Counter[str] = field(default_factory=Counter)
    answer: str = ""
    incomplete: str = ""
    done: bool = False
    _thinking: bool = False

    def __post_init__(self) -> None:
        self._thinking = self._format.always and bool(self._format.opening)

    @property
    def _format(self) -> TraceFormat:
        """Return the marks of this model's reasoning; think tags if its card has none."""
        marks = FORMATS[self.model.trace]
        return marks if marks.closing else FORMATS["think-tags"]

    @property
    def _begins_thinking(self) -> bool:
        """Return whether the next text starts inside reasoning, left open by the last one or opened anew."""
        return self._thinking if self.model.continues else self._format.always and bool(self._format.opening)

    @property
    def text(self) -> str:
        """Return the whole conversation, for users to read."""
        return "".join(text for _, text in self.pieces).strip()

    @property
    def reasoning(self) -> str:
        """Return what the model wrote so far, without what it was given."""
        return "".join(text for role, text in self.pieces if role == "assistant").strip()

    def request(self) -> Request:
        """Build the next request: the model continues its own text if it can, or else gets a message."""
        sampling = self.model.sampling
        if sampling.max_tokens is not None:
            sampling = replace(sampling, max_tokens=sampling.max_tokens - self.tokens)
        # A reasoning model quotes the tags it was told about; to stop at those of the answer would cut its thoughts.
        quoting = self._begins_thinking and not self.tags.anywhere
        stop = (self.tags.call[1],) if quoting else (self.tags.call[1], self.tags.answer[1])
        messages = list(chat(str(self.prompt)))
        if self.pieces and self.model.continues:
            # The mark that the chat template put before the model's first word must be put back.
            opening = self._format.opening if self._format.always else ""
            marked = not opening or self.pieces[0].content.lstrip().startswith(opening)
            text = "".join(text for _, text in self.pieces)
            messages.append(Message("assistant", text if marked else f"{opening}\n{text}"))
        else:
            for role, text in self.pieces:
                if messages[-1].role == role:
                    messages[-1] = Message(role, messages[-1].content + "\n\n" + text.strip())
                elif text.strip():
                    messages.append(Message(role, text.strip()))
        kind = f"{getattr(self.prompt, 'kind', '')}{LATER if self.pieces else ''}"
        return Request(self.model, tuple(messages), sampling, stop, sample=self.sample, kind=kind)

    def hear(self, reply: Reply | Failed) -> Move | None:
        """Add a reply; return the move that it makes, or None if the conversation is over."""
        if isinstance(reply, Failed):
            self.counts["failed"] += 1
            self.stop(reply.incomplete)
            return None
        self.turns += 1
        self.tokens += reply.usage.completion_tokens
        written = reply.raw
        if reply.reasoning and reply.reasoning not in reply.raw:
            # The server keeps the reasoning in a separate field.
            written = f"{self._format.opening}\n{reply.reasoning}"
            written += f"\n{self._format.closing}\n{reply.raw}" if reply.raw.strip() else ""
        move = read_move(written, self.tags, cut=reply.finish == "length", answer_from=self._reasoned(written))
        self.pieces.append(Message("assistant", move.written))
        if move.kind is MoveKind.UNCLEAR:
            move = self._unmarked(move, reply)
        if move.kind is MoveKind.ANSWER:
            self.answer, self.done = move.text, True
            refused = split_trace(move.text, "none").incomplete
            if refused:
                self.stop(refused)
        elif move.kind is MoveKind.CUT:
            self.stop(NO_TOKENS)
        elif move.kind is MoveKind.UNCLEAR and reply.incomplete == REFUSED:
            self.stop(REFUSED)
        return None if self.done else move

    def tell(self, text: str) -> None:
        """Add a text for the model, between the tags of results."""
        opening, closing = self.tags.result
        self.pieces.append(Message("user", f"\n\n{opening}{text.strip()}{closing}\n\n"))

    def stop(self, reason: str) -> None:
        """End the conversation without an answer."""
        self.answer, self.incomplete, self.done = "", reason, True

    def _reasoned(self, written: str) -> int:
        """Return the place at which reasoning ends in a text, after which an answer may come."""
        rule, began = self._format, self._begins_thinking
        end = written.rfind(rule.closing)
        self._thinking = rule.opening in written[end + 1 :] or (began and end < 0)
        if self.tags.anywhere:
            return 0
        if self._thinking:
            return len(written)
        return end + len(rule.closing) if end >= 0 else 0

    def _unmarked(self, move: Move, reply: Reply) -> Move:
        """Take the last words of a reasoning model as its answer, tags or not, once its reasoning is closed."""
        if self.tags.anywhere or self._thinking or self._format.closing not in move.written or reply.finish == "length":
            return move
        trace = split_trace(move.written, self.model.trace)
        marks = (*self.tags.call, *self.tags.answer)
        if trace.incomplete or any(mark in trace.answer for mark in marks):
            return move
        return Move(MoveKind.ANSWER, trace.answer, move.written)


class MoveKind(Enum):
    """Kind of a model's move."""

    SEARCH = "search"
    ANSWER = "answer"
    EMPTY = "empty"
    UNCLEAR = "unclear"  # neither a search nor an answer, or half of one
    CUT = "cut"  # the token limit came before either was complete


class Tags(NamedTuple):
    """Marks of one protocol, each an opening and a closing string."""

    call: tuple[str, str]
    result: tuple[str, str]
    answer: tuple[str, str] = ("<answer>", "</answer>")
    anywhere: bool = False  # whether an answer's tags count inside reasoning too: some models are trained to write them


class Move(NamedTuple):
    """A step of a model."""

    kind: MoveKind
    text: str  # the query or the answer
    written: str  # what the model is taken to have written: up to the end of the move, with its closing tag


class Turn(NamedTuple):
    """A part of a conversation as it was written down."""

    kind: str  # `thought`, `search`, `result` or `answer`
    text: str


def read_turns(text: str, tags: Tags) -> list[Turn]:
    """Split a conversation that was written down as one text into its turns; blank ones are left out.

    >>> tags = Tags(("<search>", "</search>"), ("<information>", "</information>"))
    >>> for turn in read_turns("Hm. <search>scurvy</search> <information>gums</information> <answer>C</answer>", tags):
    ...     print(*turn)
    thought Hm.
    search scurvy
    result gums
    answer C
    """
    kinds = {"search": tags.call, "result": tags.result, "answer": tags.answer}
    ways = [f"{re.escape(start)}(?P<{kind}>.*?){re.escape(end)}" for kind, (start, end) in kinds.items()]
    turns, done = [], 0
    for match in re.finditer("|".join(ways), text, re.DOTALL):
        kind = str(match.lastgroup)
        turns += [Turn("thought", text[done : match.start()].strip()), Turn(kind, match[kind].strip())]
        done = match.end()
    return [turn for turn in (*turns, Turn("thought", text[done:].strip())) if turn.text]


_LONGEST_OPEN_QUERY = 500  # characters after a search tag that was never closed; more is prose that mentions the tag
_PLACEHOLDERS = {"", "and", "or", "query", "your query", "search query", "answer", "your answer", "passage", "report"}
"""What stands between the tags when a model quotes its instructions."""


def read_move(text: str, tags: Tags, *, cut: bool = False, answer_from: int = 0) -> Move:
    """Read the first move in a text. `cut`: the token limit ended it; `answer_from`: the end of the reasoning.

    >>> tags = Tags(("<search>", "</search>"), ("<information>", "</information>"))
    >>> read_move("I wonder. <search> vitamin C", tags).text
    'vitamin C'
    >>> read_move("<search>vitamin C</search><information>invented", tags).written
    '<search>vitamin C</search>'
    """
    (call, end_call), (answer, end_answer) = tags.call, tags.answer
    searched, answered = text.find(end_call), -1
    opening = text.find(answer, answer_from)
    # The first answer that is not a quotation of the instructions.
    while opening >= 0 and (closing := text.find(end_answer, opening)) >= 0:
        if not _quoted(text[opening:closing].rpartition(answer)[2]):
            answered = closing
            break
        opening = text.find(answer, closing)
    if searched >= 0 and not 0 <= answered < searched:
        written = text[: searched + len(end_call)]
        _, opened, query = text[:searched].rpartition(call)
        return _search(query, written, tags) if opened else Move(MoveKind.UNCLEAR, "", written)
    if answered >= 0:
        start = text.rfind(answer, answer_from, answered) + len(answer)
        return _answer(text[start:answered], text[: answered + len(end_answer)])
    if cut:
        return Move(MoveKind.CUT, "", text)
    # The server may have removed the closing tag as its stop string.
    search, start = text.rfind(call), text.rfind(answer, answer_from)
    passage = text[start + len(answer) :]
    if start > search and end_answer not in passage and not _quoted(passage):
        return _answer(passage, text.rstrip() + end_answer)
    query = text[search + len(call) :]
    if search >= 0 and len(query.strip()) <= _LONGEST_OPEN_QUERY:
        return _search(query, text.rstrip() + end_call, tags)
    return Move(MoveKind.UNCLEAR, "", text)


def _search(query: str, written: str, tags: Tags) -> Move:
    for mark in (*tags.call, *tags.result, *tags.answer):
        query = query.replace(mark, " ")
    query = " ".join(query.split()).strip("\"'“” ")
    return Move(MoveKind.EMPTY if _quoted(query) else MoveKind.SEARCH, query, written)


def _answer(answer: str, written: str) -> Move:
    answer = answer.strip()
    return Move(MoveKind.UNCLEAR if _quoted(answer) else MoveKind.ANSWER, answer, written)


def _quoted(text: str) -> bool:
    """Return whether a text says nothing: it has no letter or digit, or only a word of the instructions."""
    return " ".join(re.findall(r"\w+", text.casefold())) in _PLACEHOLDERS


def same_search(query: str) -> str:
    """Return the key that equal searches share: their words, ignoring case and punctuation.

    >>> same_search("Vitamin-C  deficiency?") == same_search("vitamin c deficiency")
    True
    """
    return " ".join(re.findall(r"\w+", query.casefold()))
