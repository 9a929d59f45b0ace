"""A hook of mkdocs: pages from outside docs/ join the site, and links of the checkout become links of the site."""

from __future__ import annotations

import posixpath
import re
from pathlib import Path

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

ROOT = Path(__file__).resolve().parent.parent
PLACES = {
    "README.md": "index.md",
    "docs/README.md": "index.md",
    "CHANGELOG.md": "changelog.md",
    "CONTRIBUTING.md": "contributing.md",
    "benchmarks/README.md": "benchmarks.md",
    "CITATION.cff": "CITATION.cff",
}
"""Files of the checkout that the site has under another name."""
_LINK = re.compile(r"(?<=\]\()(?!#|[a-z]+:)([^)#\s]+)")


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add what is not in docs/."""
    for path, place in PLACES.items():
        if path != "docs/README.md":
            files.append(File.generated(config, place, content=(ROOT / path).read_text("utf-8")))
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Turn links of the checkout into links of the site; a link in a block of code is text."""
    place = page.file.src_uri
    source = next((path for path, there in PLACES.items() if there == place), f"docs/{place}")
    parts = re.split(r"(^```.*?^```$)", markdown, flags=re.MULTILINE | re.DOTALL)
    return "".join(part if part.startswith("```") else _links(part, source, place) for part in parts)


def _links(text: str, source: str, place: str) -> str:
    def moved(link: re.Match[str]) -> str:
        target = posixpath.normpath(posixpath.join(posixpath.dirname(source), link[0]))
        there = PLACES.get(target, target.removeprefix("docs/"))
        return posixpath.relpath(there, posixpath.dirname(place) or ".")

    return _LINK.sub(moved, text)
