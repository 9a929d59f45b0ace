"""`r2med`: the commands, imported only when they are used, and errors as one line."""

from __future__ import annotations

import os
import shlex
import signal
import sys
import warnings
from collections.abc import Mapping
from contextlib import AbstractContextManager, nullcontext
from importlib import import_module
from io import TextIOWrapper
from pathlib import Path
from typing import Any

import click

import r2med
from r2med.errors import R2medError, StoreWarning, debug, set_debugging, suggest
from r2med.formatting import one_line
from r2med.store.plugins import load_plugin, plugins
from r2med.store.processes import foreign_output

SECTIONS: Mapping[str, Mapping[str, tuple[str, str]]] = {
    "Run and measure": {
        "run": ("cli.run", "Run retrieval systems over tasks and print one table."),
        "eval": ("exchange.cli", "Score run files of any tool, and keep them if asked."),
        "search": ("workbench.cli", "Search a task's documents with a question of your own."),
        "compare": ("comparison.cli", "Is one system better than another, and how sure is that?"),
        "board": ("leaderboard.cli", "Every published result with your own runs beside it."),
        "reproduce": ("leaderboard.publishing", "Run a published row again and compare the figures."),
        "tune": ("tuning.cli", "Choose options on some queries, measure on the others."),
    },
    "Understand": {
        "inspect": ("workbench.cli", "Look at queries of a run one by one."),
        "diagnose": ("diagnosis.cli", "Why does a system fail, and what would help?"),
        "answers": ("answers.cli", "Are generated answers right, and does retrieval matter?"),
        "rag": ("answers.cli", "Does retrieval change the answer, for better or for worse?"),
        "frontier": ("tuning.cli", "Which systems are worth their price? What would routing save?"),
        "sensitivity": ("diagnosis.cli", "How does a figure move with the number of tokens read?"),
        "label": ("diagnosis.labelling", "Sort queries into classes by a language model."),
        "analyze": ("cli.tasks", "Show the tokens that BM25 sees."),
        "plot": ("leaderboard.plot", "Draw boards, differences, costs and causes as figures."),
        "serve": ("cli.serve", "Look at the ledger in a browser: board, live search."),
    },
    "Make and check a benchmark": {
        "tasks": ("cli.tasks", "List tasks; sizes and problems of tasks or folders."),
        "build": ("construction.cli", "Make a judged task from your questions and documents."),
        "nano": ("nano.cli", "Build small tasks from large ones, and check them."),
        "review": ("reviews.cli", "Have people and models judge passages, blind."),
        "audit": ("audit.cli", "Can the labels of a task be trusted?"),
        "correct": ("audit.cli", "What would scores be if no label were missing?"),
        "leakage": ("leakage.cli", "Does training data hold what is evaluated on?"),
        "train": ("training.cli", "Make training data, and train retrievers on it."),
    },
    "Publish": {
        "report": ("leaderboard.publishing", "Runs as one HTML file that needs nothing else."),
        "site": ("leaderboard.publishing", "A static leaderboard site of runs and published figures."),
        "export": ("exchange.cli", "Write runs in the formats of other tools."),
        "submit": ("exchange.cli", "Pack runs, results and a description for a leaderboard."),
        "verify": ("exchange.cli", "Check a submission: every byte and every figure."),
    },
    "Set up": {
        "runs": ("cli.runs", "List, show or remove the runs of the ledger."),
        "models": ("cli.models", "List models and all about one; export to ONNX."),
        "engines": ("engines.cli", "List search engines; push a task's documents into one."),
        "cache": ("cli.cache", "Sizes of indexes and vectors, and how to remove them."),
        "doctor": ("cli.doctor", "Versions, extras, devices, caches, and what is missing."),
    },
}
"""Every verb as a newcomer meets it: its module, and the line that `--help` shows."""
VERBS = {verb: line for verbs in SECTIONS.values() for verb, (_, line) in verbs.items()}
HOMES = {verb: home for verbs in SECTIONS.values() for verb, (home, _) in verbs.items()}


class Verbs(click.Group):
    """A group that imports a verb's module only when that verb is called."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """List the verbs as a new user meets them, then those of other distributions."""
        return [*VERBS, *(name for name in plugins("r2med.verbs") if name not in VERBS)]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import and return a command."""
        if cmd_name not in VERBS:
            return load_plugin("r2med.verbs", cmd_name, click.Command)
        command: click.Command = getattr(import_module(f"r2med.{HOMES[cmd_name]}"), f"{cmd_name}_command")
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Resolve a command by name, with the nearest one suggested for a wrong name."""
        if args and args[0] not in VERBS and not args[0].startswith("-"):
            verbs = self.list_commands(ctx)
            if args[0] not in verbs:
                ctx.fail(f"no verb {args[0]!r}{suggest(args[0], verbs)}")
        return super().resolve_command(ctx, args)

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """List the verbs in their sections, without importing any; the options stand in the usage."""
        for heading, verbs in SECTIONS.items():
            with formatter.section(heading):
                formatter.write_dl([(f"{verb:11}", line) for verb, (_, line) in verbs.items()])
        others = {name: point for name, point in plugins("r2med.verbs").items() if name not in VERBS}
        if others:
            with formatter.section("Of other packages"):
                formatter.write_dl([(f"{name:11}", f"from {point.value}") for name, point in others.items()])


@click.group(
    cls=Verbs,
    context_settings={"help_option_names": ["-h", "--help"]},
    options_metavar="[--version] [--debug]",
    subcommand_metavar="VERB ... (VERB --help says more)",
)
@click.version_option(r2med.__version__, prog_name="r2med")
@click.option("--debug", is_flag=True, help="Show where errors came from, with every line; after any verb, too.")
def app(debug: bool) -> None:
    """Measure how well a search system finds the medical evidence that a question only implies. A research instrument,
    not a clinical decision system. Start with: r2med run bm25 bm25-classic
    """


def main() -> None:
    """Run the program: user errors are one line on stderr, and a closed pipe is not an error."""
    # Before numpy is imported: its OpenBLAS starts threads that wait for their first task by spinning, a tenth of a
    # second of processor time in every process. As a power of two of clock ticks, this is about two milliseconds.
    os.environ.setdefault("OPENBLAS_THREAD_TIMEOUT", "22")
    _prepare_streams()
    # What batch systems send before they kill is met like Ctrl-C: what is under way may finish and is kept.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    arguments = sys.argv[1:]
    before_dashes = arguments[: arguments.index("--")] if "--" in arguments else arguments
    if "--debug" in before_dashes:
        set_debugging(True)
        arguments.remove("--debug")
    try:
        announced: AbstractContextManager[None] = nullcontext()
        # Neither a list of verbs nor the server of the live page is work to be shown there.
        if next((word for word in arguments if word in VERBS), "serve") != "serve":
            announced = import_module("r2med.store.jobs").reporter.command(shlex.join(["r2med", *arguments]))
        with announced:
            status: Any = app.main(arguments, standalone_mode=False)
        sys.stdout.flush()
    except click.ClickException as error:
        error.show()
        status = error.exit_code
    except (click.Abort, KeyboardInterrupt) as error:
        # click takes the end of a file for the end of the user's patience.
        cut = isinstance(error.__cause__, EOFError)
        click.echo("r2med: a file ended too early" if cut else "stopped; what was finished is kept", err=True)
        status = 1 if cut else 130
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        status = 0
    except (R2medError, MemoryError, OSError) as error:
        debug(error)
        click.echo(f"r2med: {one_line(error)}", err=True)
        status = 1
    sys.exit(status if isinstance(status, int) else 0)


def _prepare_streams() -> None:
    """Escape what the terminal cannot show instead of failing, and print warnings about cached values as one line."""
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:  # it was closed before the command began
            setattr(sys, name, Path(os.devnull).open("w"))  # noqa: SIM115
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")
    foreign_output.redirected = True
    plain = warnings.showwarning

    def show(message: Warning | str, category: type[Warning], *rest: Any, **more: Any) -> None:
        if issubclass(category, StoreWarning):
            click.echo(f"warning: {message}", err=True)
        else:
            plain(message, category, *rest, **more)

    warnings.showwarning = show
