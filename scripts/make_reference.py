"""Write what is made from the program: every verb, every card, how to cite, and the output shown on the pages.

    python scripts/make_reference.py

The tests compare the files with what this gives; `make reference` renews them.
"""

from __future__ import annotations

import inspect
import itertools
import os
import re
import shlex
import shutil
import tempfile
import textwrap
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path

import click
import page_blocks
from click.testing import CliRunner
from page_blocks import blocks
from schemas import SHAPES, schema_file

import r2med
from r2med.cli.main import SECTIONS, VERBS, app
from r2med.data.loader import load
from r2med.encode.cards import cards as encoders
from r2med.encode.late_cards import late_cards
from r2med.llm.cards import find_model, model_names
from r2med.rerank.cards import api_cards as reranking_servers
from r2med.rerank.cards import cards as rerankers
from r2med.rerank.cards import served_cards
from r2med.web.citation import PAPER

ROOT = page_blocks.ROOT
STAR = "\\*"
MADE = "<!-- Written by scripts/make_reference.py from the program itself; renew it with: make reference -->"


def reference_page() -> str:
    """Every verb with its help, examples, options and defaults."""
    top = click.Context(app, info_name="r2med", **app.context_settings)
    parts = [f"# Reference\n\n{MADE}", *_paragraphs(app)]
    for heading, verbs in SECTIONS.items():
        listed = [f"- [`{verb}`](#r2med-{verb}): {line}" for verb, (_, line) in verbs.items()]
        parts += [f"**{heading}**", "\n".join(listed)]
    for verb in VERBS:
        command = app.get_command(top, verb)
        assert command is not None
        parts += _verb(command, click.Context(command, info_name=verb, parent=top), "##")
    return "\n\n".join(parts) + "\n"


def _verb(command: click.Command, context: click.Context, heading: str) -> Iterator[str]:
    usage = " ".join([context.command_path, *command.collect_usage_pieces(context)])
    yield f"{heading} {context.command_path}"
    yield f"```\n{usage}\n```"
    yield from _paragraphs(command)
    options = [
        _option(*record) for param in command.params if (record := param.get_help_record(context)) and any(record[1:])
    ]
    if options:
        yield "\n".join(options)
    if isinstance(command, click.Group):
        for name in command.list_commands(context):
            below = command.get_command(context, name)
            assert below is not None
            yield from _verb(below, click.Context(below, info_name=name, parent=context), heading + "#")


def _option(names: str, text: str) -> str:
    return _wrapped(f"- `{names}`" + (f": {_prose(text)}" if text else ""))


def _paragraphs(command: click.Command) -> Iterator[str]:
    """The help text: paragraphs as prose, and what click must not wrap as it stands."""
    for text in (command.help, command.epilog):
        for paragraph in inspect.cleandoc(text or "").split("\n\n"):
            if paragraph.startswith("\b"):
                yield from _unwrapped(paragraph.removeprefix("\b").strip("\n").splitlines())
            elif paragraph:
                yield _wrapped(_prose(paragraph))


def _unwrapped(lines: Sequence[str]) -> Iterator[str]:
    if lines[0].endswith(":") and not lines[0].startswith(" "):
        yield lines[0]
        lines = lines[1:]
    if lines:
        yield "```\n" + inspect.cleandoc("\n".join(lines)) + "\n```"


def _prose(text: str) -> str:
    """Text that Markdown shows as it is, except for what stands in backquotes already."""
    parts = text.split("`")
    for place in range(0, len(parts), 2):
        for sign in "\\<*_[]":
            parts[place] = parts[place].replace(sign, f"\\{sign}")
    return "`".join(parts)


def _wrapped(text: str) -> str:
    indent = "  " if text.startswith("- ") else ""
    return textwrap.fill(text, 118, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False)


def cards_page() -> str:
    """Tables of all bundled cards."""
    parts = [
        f"# Cards\n\n{MADE}",
        _wrapped(
            "Models that r2med knows by name. Any other model works too: [Embedding models](encoders.md), "
            "[Rerankers](rerankers.md) and [Generation](generation.md) say how. A file in `R2MED_HOME` adds cards or "
            "replaces these: `encoders.toml`, `rerankers.toml`, `llms.toml`. An asterisk after a name marks weights "
            "that the hub gives only to users who have accepted a licence."
        ),
        "## Encoders",
        "`r2med models show NAME` prints any card of this page in full. Lengths are in tokens.",
        _encoders(),
        "## Late-interaction models",
        _wrapped(
            "Used as `colbert(NAME)`: [Late interaction](late-interaction.md). The checkpoint's own files decide how a "
            "text is read; this is what is published. A dash stands for what is not."
        ),
        _late_models(),
        "## Rerankers",
        _rerankers(),
        "Language models that were trained to rerank, used as `STAGE(NAME)` with a server that has the weights:",
        _served(),
        "Rerankers behind an API, used as `api-rerank(NAME)`:",
        _table(("name", "model", "key"), ((c.name, c.id, f"`{c.key_env}`") for c in reranking_servers().values())),
        "## Language models",
        _wrapped(
            "Prices are in US dollars for a million tokens of prompt and of completion: list prices, gathered from "
            "public pages in 2026. They age, and what counts is the provider's bill. Weights that you serve yourself "
            "have no price. `local` is a small model that r2med can start itself, `NAME@http://host:port/v1` any model "
            "of any server."
        ),
        _language_models(),
    ]
    return "\n\n".join(parts) + "\n"


def _encoders() -> str:
    heads = ("name", "model", "parameters", "backend", "pooling", "query / document", "similarity", "licence")
    return _table(
        heads,
        (
            (
                f"{card.name}{STAR * card.gated}",
                card.id,
                _millions(card.parameters),
                card.backend,
                card.pooling if card.backend != "api" else "-",
                f"{card.max_query} / {card.max_document}" if card.max_document else "-",
                card.similarity,
                card.licence or "-",
            )
            for card in encoders().values()
        ),
    )


def _late_models() -> str:
    heads = ("name", "model", "parameters", "dimension", "query / document", "licence", "remarks")
    return _table(
        heads,
        (
            (
                card.name,
                card.id,
                _millions(card.parameters),
                str(card.dimension),
                f"{card.query_length or '-'} / {card.document_length or '-'}",
                card.licence,
                card.notes or "-",
            )
            for card in late_cards().values()
        ),
    )


def _rerankers() -> str:
    heads = ("name", "model", "adapter", "parameters", "tokens", "licence", "remarks")
    return _table(
        heads,
        (
            (
                f"{card.name}{STAR * card.gated}",
                card.id,
                card.adapter or "-",
                _millions(card.parameters),
                f"{card.max_length:,}",
                card.licence or "-",
                card.notes or "-",
            )
            for card in rerankers().values()
        ),
    )


def _served() -> str:
    heads = ("name", "model", "parameters", "stage", "answers by", "licence", "remarks")
    return _table(
        heads,
        (
            (
                card.name,
                find_model(card.name).id,
                _millions(card.parameters),
                f"`{card.stage}`",
                card.answer,
                card.licence or "-",
                card.notes or "-",
            )
            for card in served_cards().values()
        ),
    )


def _language_models() -> str:
    heads = ("name", "model", "reasons first", "prompt", "completion", "key")
    models = [find_model(name) for name in model_names() if name != "local"]
    return _table(
        heads,
        (
            (
                model.name,
                model.id,
                "yes" if model.reasoning else "no",
                *(map("{:g}".format, model.price) if model.price else ("?" if model.needs_key else "-",) * 2),
                f"`{model.key_env}`" if model.needs_key else "-",
            )
            for model in models
        ),
    )


def _millions(parameters: float) -> str:
    if not parameters:
        return "-"
    return f"{parameters / 1000:g}B" if parameters >= 1000 else f"{parameters:g}M"


def _table(heads: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [heads, ["---"] * len(heads), *rows]
    return "\n".join("| " + " | ".join(cell.replace("|", "\\|") for cell in line) + " |" for line in lines)


def page_with_outputs(path: str) -> str:
    """A page with the output of its commands as it is now; files that the page shows are there for them.

    Before a block, `<!-- from: TEXT -->` leaves out what is printed before that text, `<!-- without: PATTERN -->` the
    lines that match.
    """
    text = (ROOT / path).read_text("utf-8")
    back = Path.cwd()
    with tempfile.TemporaryDirectory() as scratch:
        for name, task in re.findall(r"<!-- folder: (\S+) is (\S+) -->", text):
            folder = load(task).task.folder
            assert folder is not None
            shutil.copytree(folder, Path(scratch, name))
        for block in blocks(path):
            if block.file:
                Path(scratch, block.file).write_text(block.text, "utf-8")
        os.chdir(scratch)
        try:
            return re.sub(_CONSOLE, _shown, text)
        finally:
            os.chdir(back)


_CONSOLE = re.compile(
    r"(?P<head>(?:^<!-- from: (?P<start>.+) -->\n)?(?:^<!-- without: (?P<without>.+) -->\n)?^```console\n)"
    r"\$ (?P<command>.*)\n(?:.*\n)*?(?=```$)",
    re.MULTILINE,
)


def _shown(block: re.Match[str]) -> str:
    env = {"R2MED_HOME": str(Path.cwd() / ".home"), "COLUMNS": "120", "NO_COLOR": "1"}
    words = shlex.split(_demo() if block["command"] == "make demo" else block["command"])
    done = CliRunner().invoke(app, words[1:], env=env, catch_exceptions=False)
    assert done.exit_code == 0 or "failed: " in done.stdout, done.output
    lines = [line.rstrip() for line in done.stdout.strip("\n").splitlines()]
    if block["start"]:
        lines = ["...", *itertools.dropwhile(lambda line: not line.startswith(block["start"]), lines)]
    if block["without"]:
        lines = list(_without(lines, re.compile(block["without"])))
    return block["head"] + "\n".join([f"$ {block['command']}", *lines, ""])


def _demo() -> str:
    """What `make demo` runs, as `r2med ...`."""
    recipe = re.search(r"(?m)^demo:.*\n\t\$\(BIN\)/(r2med .*)$", (ROOT / "Makefile").read_text("utf-8"))
    assert recipe is not None
    return recipe[1]


def _without(lines: Iterable[str], pattern: re.Pattern[str]) -> Iterator[str]:
    """The lines that do not match, with dots for those that do."""
    for left_out, group in itertools.groupby(lines, lambda line: pattern.search(line) is not None):
        yield from [" ..."] if left_out else group


def schemas_page() -> str:
    """A table of everything that `--json` prints."""
    rows = (
        (", ".join(f"`{command}`" for command in commands.split(", ")), f"[{name}.json](../schemas/{name}.json)", text)
        for name, (commands, text, _) in SHAPES.items()
    )
    text = _wrapped(
        "What `--json` prints, command by command, as [JSON Schema](https://json-schema.org). The tests check that "
        "what is printed is what is described."
    )
    return "\n\n".join(["# JSON schemas", MADE, text, _table(("command", "schema", "what it prints"), rows)]) + "\n"


def package_stub() -> str:
    """The names of the package for type checkers, which cannot see what is imported when it is first used."""
    ordered = sorted(r2med.PUBLIC.items(), key=lambda item: (item[1], not item[0].isupper(), item[0]))
    lines = [f"from {module} import {name} as {name}" for name, module in ordered]
    return "\n".join([f"# {MADE[5:-4]}", "", *lines, "", "__version__: str", ""])


def citation_file() -> str:
    """The text of CITATION.cff: this software with its version, and the paper that is to be cited."""
    authors = "".join(f"  - family-names: {family}\n    given-names: {given}\n" for given, family in PAPER.authors)
    paper = (
        f'type: article\ntitle: "{PAPER.title}"\nauthors:\n{authors}year: {PAPER.year}\n'
        f'notes: "arXiv:{PAPER.arxiv}; second version, {PAPER.revised}"\nurl: "{PAPER.url}"\n'
    )
    return (
        "cff-version: 1.2.0\n"
        'title: "r2med: a toolkit for reasoning-driven medical retrieval"\n'
        'message: "If you use this software, cite it, and cite the benchmark paper below."\n'
        "type: software\n"
        "license: MIT\n"
        f"version: {r2med.__version__}\n"
        "authors:\n"
        '  - name: "The r2med authors"\n'
        f"references:\n  - {textwrap.indent(paper, '    ').lstrip()}"
        f"preferred-citation:\n{textwrap.indent(paper, '  ')}"
    )


SHOWING = [page for page in page_blocks.PAGES if "\n```console\n$ " in (ROOT / page).read_text("utf-8")]
"""The pages that show what commands print."""
PAGES: Mapping[str, Callable[[], str]] = {
    "docs/reference/verbs.md": reference_page,
    "docs/reference/cards.md": cards_page,
    "docs/reference/schemas.md": schemas_page,
    "CITATION.cff": citation_file,
    "src/r2med/__init__.pyi": package_stub,
    **{path: partial(page_with_outputs, path) for path in SHOWING},
    **{f"docs/schemas/{name}.json": partial(schema_file, name) for name in SHAPES},
}
"""Every file that is made, and what makes it."""


def main() -> None:
    """Write all files; cards of the user's own stay out."""
    with tempfile.TemporaryDirectory() as home:
        os.environ["R2MED_HOME"] = home
        for path, make in PAGES.items():
            (ROOT / path).write_text(make(), "utf-8")


if __name__ == "__main__":
    main()
