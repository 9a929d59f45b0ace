"""The version and the paper are named in one place, and everything that repeats them agrees."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import yaml

import r2med
from r2med.web.citation import PAPER

ROOT = Path(__file__).parents[2]


def test_the_citation_file_has_the_version_and_the_paper():
    text = (ROOT / "CITATION.cff").read_text("utf-8")
    facts = yaml.safe_load(text)
    assert facts["version"] == r2med.__version__
    assert facts["preferred-citation"] == facts["references"][0]
    named = [(row["given-names"], row["family-names"]) for row in facts["preferred-citation"]["authors"]]
    assert named == list(PAPER.authors)
    assert facts["preferred-citation"]["url"] == PAPER.url


def test_the_readme_cites_the_paper_as_the_program_does():
    text = (ROOT / "README.md").read_text("utf-8")
    *first, last = [family for _, family in PAPER.authors]
    short = f"{', '.join(first)} and {last}, {PAPER.year}, arXiv:{PAPER.arxiv}"
    assert short in " ".join(text.split())
    assert f"```bibtex\n{PAPER.bibtex}\n```" in text
    assert ("Xiangxu", "Zhang") in list(PAPER.authors)


def test_the_number_of_the_paper_is_the_same_wherever_it_stands():
    pages = [ROOT / "README.md", ROOT / "CITATION.cff", ROOT / "pyproject.toml", *(ROOT / "docs").rglob("*.md")]
    numbers = {found for page in pages for found in re.findall(r"\b2505\.\d{5}\b", page.read_text("utf-8"))}
    assert numbers == {PAPER.arxiv}


def test_the_version_is_declared_once():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))
    assert "version" not in project["project"]
    assert project["tool"]["hatch"]["version"]["path"] == "src/r2med/__init__.py"
