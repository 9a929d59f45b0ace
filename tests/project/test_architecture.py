"""What the pages say of the code is so: modules, folders and files that they name exist, on the floors they name."""

from __future__ import annotations

import re
import tomllib
from collections import Counter
from importlib import import_module

import pytest
from page_blocks import PAGES, ROOT

from r2med.cli.main import HOMES

SOURCE = ROOT / "src" / "r2med"
PARTS = {path.stem for path in SOURCE.iterdir() if (path / "__init__.py").is_file() or path.suffix == ".py"} - {
    "__init__",
    "__main__",
}
"""Folders of the package, and modules beside them."""
ENTRY_POINTS = ("r2med.stages", "r2med.encoders", "r2med.verbs")
NO_MODULES = ("r2med.toml", "r2med.json", "r2med.github.io", *ENTRY_POINTS)


def text_of(page: str) -> str:
    return (ROOT / page).read_text("utf-8")


def find(name: str) -> object:
    """What a dotted name stands for: a module, or something in one."""
    parts = name.split(".")
    found: object = import_module(parts[0])
    for end, part in enumerate(parts[1:], 2):
        found = getattr(found, part, None) or import_module(".".join(parts[:end]))
    return found


@pytest.mark.parametrize("page", [*PAGES, "benchmarks/README.md"])
def test_modules_and_files_that_a_page_names_exist(page: str) -> None:
    text = text_of(page)
    for name in set(re.findall(r"(?<![\w/.@-])r2med(?:\.\w+)+(?![\w:])", text)) - set(NO_MODULES):
        find(name)
    for path in set(re.findall(r"(?<![\w/.])(?:src|scripts|tests|benchmarks|docs)/[\w./-]*\w", text)):
        assert (ROOT / path).exists() or (ROOT / "docs" / path).exists(), f"{page} names {path}"


@pytest.mark.parametrize("page", ["CONTRIBUTING.md", "docs/project/architecture.md", "docs/images/house.svg"])
def test_every_folder_is_named(page: str) -> None:
    words = set(re.findall(r"\w+", text_of(page)))
    assert PARTS - words == set()


def test_the_page_has_the_floors_and_studies_of_the_contract() -> None:
    contracts = tomllib.loads(text_of("pyproject.toml"))["tool"]["importlinter"]["contracts"]
    layers = next(contract["layers"] for contract in contracts if contract["type"] == "layers")
    order = [name for layer in layers for name in re.findall(r"\w+", layer)]
    page = text_of("docs/project/architecture.md")
    rows = re.findall(r"(?m)^\| (\d) \| (`.+?`) \|", page)
    floors = {name: int(floor) for floor, names in rows for name in re.findall(r"`(\w+)`", names)}
    assert [floors[name] for name in order] == sorted(floors.values(), reverse=True)
    studies = next(contract["modules"] for contract in contracts if contract["type"] == "independence")
    assert set(re.findall(r"(?m)^\| `(\w+)` \|", page)) == {name.removeprefix("r2med.") for name in studies}
    assert {*order, *(name.removeprefix("r2med.") for name in studies), "api", "cli", "web"} == PARTS


def test_every_study_has_the_verbs_of_the_page() -> None:
    rows = re.findall(r"(?m)^\| `(\w+)` \| [^|]+ \| (.+) \|$", text_of("docs/project/architecture.md"))
    homes = {verb: home.partition(".")[0] for verb, home in HOMES.items()}
    listed = {verb: study for study, verbs in rows for verb in re.findall(r"`(\w+)`", verbs)}
    assert {verb: home for verb, home in homes.items() if home != "cli"} == listed


def test_what_is_kept_lies_where_the_page_says() -> None:
    source = "\n".join(file.read_text("utf-8") for file in SOURCE.rglob("*.py"))
    table = text_of("docs/project/architecture.md").partition("## What is kept")[2]
    places = re.findall(
        r"`(?:cache/)?([\w-]+(?:\.sqlite)?)/?`", "\n".join(re.findall(r"(?m)^\|[^|]*\|([^|]*)\|", table))
    )
    assert len(places) >= 18
    assert [name for name in places if f'"{name}"' not in source] == []


def test_a_public_class_has_a_name_of_its_own() -> None:
    files = [path.read_text("utf-8") for path in SOURCE.rglob("*.py")]
    classes = Counter(re.findall(r"(?m)^class ([A-Z]\w*)", "\n".join(files)))
    assert [name for name, count in classes.items() if count > 1] == []
