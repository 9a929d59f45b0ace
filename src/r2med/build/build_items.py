"""What flows through a build: questions, documents and the passages that documents are cut into."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Question:
    """A question as it was read, and what the steps so far have made of it."""

    id: str
    original: str
    """As it was read."""
    answer: str
    options: tuple[str, ...] = ()
    sources: tuple[str, ...] = ()
    """The documents, links or files that it was made from, as the questions' file names them."""
    text: str = ""
    """As it is asked: rewritten, or the original."""
    intent: str = ""
    reasoning: str = ""
    """The path from question to answer."""

    @property
    def with_options(self) -> str:
        """The original with its options below it."""
        listed = [f"{chr(ord('A') + place)}. {option}" for place, option in enumerate(self.options)]
        return "\n".join([self.original, *listed])

    def view(self, name: str) -> str:
        """The text that a search from this view is made with."""
        return {"question": self.text, "answer": self.answer, "reasoning": self.reasoning}[name]


@dataclass(frozen=True)
class Heading:
    """A heading in a document's text."""

    start: int
    """Where its line begins."""
    end: int
    text: str


@dataclass(frozen=True)
class Document:
    """A document as it was read."""

    id: str
    title: str
    text: str
    source: str
    """The link or file that it came from."""
    headings: tuple[Heading, ...] = ()
    also: tuple[str, ...] = ()
    """The ids of documents that were folded into this one."""


@dataclass(frozen=True)
class Passage:
    """A part of a document: what is searched, judged and put into the corpus."""

    id: str
    title: str
    text: str
    document: str
    source: str
    start: int
    """Where it stands in the document's text."""
    end: int

    @property
    def shown(self) -> str:
        """The passage as systems and judges see it, and as a reader of the built task joins it."""
        return f"{self.title} {self.text}" if self.title else self.text
