"""The pages: those that are made from the program are what it gives now, and the site builds without a dead link."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import make_reference
import page_blocks
import pytest

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize("path", make_reference.PAGES)
def test_what_is_made_from_the_program_is_up_to_date(path: str):
    same = (ROOT / path).read_text("utf-8") == make_reference.PAGES[path]()
    assert same, f"{path} is not what the program gives now; renew it with: make reference"


def test_the_reference_has_every_verb_option_and_example():
    text = " ".join(make_reference.reference_page().split())
    assert "## r2med run ``` r2med run [OPTIONS] SYSTEM|EXPERIMENT.toml... ```" in text
    assert "`--tasks NAME|GROUP|PATH...`" in text
    assert "r2med run bm25 bm25-classic r2med run" in text
    assert "### r2med nano build" in text


def test_the_cards_are_all_there():
    text = make_reference.cards_page()
    kinds = (make_reference.encoders, make_reference.late_cards, make_reference.rerankers, make_reference.served_cards)
    cards = sum(len(kind()) for kind in (*kinds, make_reference.reranking_servers))
    languages = len(make_reference.model_names()) - len(["local"])
    assert len(re.findall(r"(?m)^\| (?!name|---)", text)) == cards + languages
    assert "| colbertv2 | colbert-ir/colbertv2.0 | 110M | 128 | 32 / 180 | MIT | - |" in text
    assert "| gpt-4o | gpt-4o-2024-11-20 | no | 2.5 | 10 | `OPENAI_API_KEY` |" in text
    assert "| bge | BAAI/bge-large-en-v1.5 | 335M | torch | cls | 512 / 512 | cosine | MIT |" in text


def build(checkout: Path, out: Path) -> subprocess.CompletedProcess[str]:
    """Build the site of a checkout."""
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(out)]
    env = os.environ | {"NO_MKDOCS_2_WARNING": "1"}
    return subprocess.run(command, cwd=checkout, env=env, capture_output=True, text=True, timeout=300)


def test_the_site_builds_and_loads_nothing_from_elsewhere(tmp_path: Path):
    done = build(ROOT, tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    pages = {str(page.relative_to(tmp_path)): page.read_text("utf-8") for page in tmp_path.rglob("*.html")}
    assert {"index.html", "reference/verbs.html", "reference/cards.html", "changelog.html", "benchmarks.html"} <= set(
        pages
    )
    assert 'href="benchmarks.html"' in pages["index.html"], "a link of the checkout became one of the site"
    for name, text in pages.items():
        assert not re.search(r"<(?:script|img|iframe)[^>]* src=.?(?:https?:)?//", text), name
        assert not re.search(r"<link[^>]* href=.?(?:https?:)?//", text), name


def test_a_dead_link_or_anchor_is_an_error(tmp_path: Path):
    for name in ("docs", "scripts"):
        shutil.copytree(ROOT / name, tmp_path / name, ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("mkdocs.yml", "README.md", "CHANGELOG.md", "CONTRIBUTING.md", "CITATION.cff", "benchmarks/README.md"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        shutil.copy(ROOT / name, tmp_path / name)
    with (tmp_path / "docs" / "reference" / "data.md").open("a", encoding="utf-8") as page:
        page.write("\nSee [one](absent.md) and [two](systems.md#absent).\n")
    done = build(tmp_path, tmp_path / "site")
    assert done.returncode != 0
    assert "'absent.md'" in done.stderr
    assert "'#absent'" in done.stderr


@pytest.mark.parametrize("page", [*page_blocks.PAGES, "benchmarks/README.md", "CHANGELOG.md", "SECURITY.md"])
def test_prose_is_wrapped(page: str):
    text = re.sub(r"(?ms)^```.*?^```$", "", (ROOT / page).read_text("utf-8"))
    long = [line for line in text.splitlines() if len(line) > 120 and not line.startswith(("|", "![", "<!--"))]
    assert long == [], f"{page}: wrap these lines at 120 characters"


def test_the_front_page_names_the_first_shelf_and_the_contents():
    front = (ROOT / "README.md").read_text("utf-8")
    for name in ("README.md", "start/install.md", "start/tutorial.md", "start/concepts.md"):
        assert f"(docs/{name})" in front


def test_every_page_is_in_the_contents_and_on_the_site():
    contents = (ROOT / "docs" / "README.md").read_text("utf-8")
    for page in (ROOT / "docs").rglob("*.md"):
        name = str(page.relative_to(ROOT / "docs"))
        assert name == "README.md" or f"]({name})" in contents, f"docs/README.md does not list {name}"
        assert name == "README.md" or name in (ROOT / "mkdocs.yml").read_text("utf-8"), (
            f"mkdocs.yml does not list {name}"
        )
