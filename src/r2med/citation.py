"""Who wrote the benchmark's paper, and how to cite it: the one place that everything else is made from."""

from __future__ import annotations

from dataclasses import dataclass

import r2med


@dataclass(frozen=True)
class Author:
    """One author of a paper."""

    given: str
    family: str


@dataclass(frozen=True)
class Paper:
    """A paper on arXiv."""

    title: str
    authors: tuple[Author, ...]
    year: int
    arxiv: str
    revised: str = ""
    """The month of its latest version, where there is more than one."""

    @property
    def url(self) -> str:
        """Where it can be read."""
        return f"https://arxiv.org/abs/{self.arxiv}"

    @property
    def short(self) -> str:
        """The authors, the year and the number, as they stand in running text.

        >>> PAPER.short
        'Li, Zhou, Liu and Zhang, 2025, arXiv:2505.14558'
        """
        *first, last = [author.family for author in self.authors]
        return f"{', '.join(first)} and {last}, {self.year}, arXiv:{self.arxiv}"

    @property
    def bibtex(self) -> str:
        """An entry for a bibliography."""
        names = " and ".join(f"{author.family}, {author.given}" for author in self.authors)
        note = f"\n  note          = {{Second version, {self.revised}}}," if self.revised else ""
        return (
            f"@misc{{{self.authors[0].family.lower()}{self.year}r2med,\n"
            f"  title         = {{{{{self.title}}}}},\n"
            f"  author        = {{{names}}},\n"
            f"  year          = {{{self.year}}},\n"
            f"  eprint        = {{{self.arxiv}}},\n"
            f"  archivePrefix = {{arXiv}},{note}\n"
            f"  url           = {{{self.url}}}\n"
            "}"
        )


PAPER = Paper(
    title="R2MED: A Benchmark for Reasoning-Driven Medical Retrieval",
    authors=(Author("Lei", "Li"), Author("Xiao", "Zhou"), Author("Zheng", "Liu"), Author("Xiangxu", "Zhang")),
    year=2025,
    arxiv="2505.14558",
    revised="April 2026",
)


def citation_file() -> str:
    """The text of CITATION.cff: this software with its version, and the paper that is to be cited."""
    return (
        "cff-version: 1.2.0\n"
        'title: "r2med: a toolkit for reasoning-driven medical retrieval"\n'
        'message: "If you use this software, cite it, and cite the benchmark paper below."\n'
        "type: software\n"
        "license: MIT\n"
        f"version: {r2med.__version__}\n"
        "authors:\n"
        '  - name: "The r2med authors"\n'
        f"references:\n  - {_cff(PAPER, '    ').lstrip()}"
        f"preferred-citation:\n{_cff(PAPER, '  ')}"
    )


def _cff(paper: Paper, indent: str) -> str:
    authors = [f"  - family-names: {a.family}\n{indent}    given-names: {a.given}" for a in paper.authors]
    version = f"; second version, {paper.revised}" if paper.revised else ""
    lines = [
        "type: article",
        f'title: "{paper.title}"',
        "authors:",
        *authors,
        f"year: {paper.year}",
        f'notes: "arXiv:{paper.arxiv}{version}"',
        f'url: "{paper.url}"',
    ]
    return "".join(f"{indent}{line}\n" for line in lines)
