"""`r2med`: the commands, imported only when they are used, and errors as one line."""

from __future__ import annotations

import os
import shlex
import signal
import sys
import warnings
from contextlib import AbstractContextManager, nullcontext
from importlib import import_module
from io import TextIOWrapper
from pathlib import Path
from typing import Any

import click

import r2med
from r2med.errors import R2medError, StoreWarning, debug, set_debugging, suggest
from r2med.formatting import one_line
from r2med.store.foreign_output import foreign_output

VERBS = {
    "run": "Run retrieval systems over tasks and print one table.",
    "eval": "Score run files made by any tool.",
    "import": "Put a run file of any tool into the ledger, under a name.",
    "compare": "Is one system better than another, and how sure is that?",
    "board": "Every published result with your own runs beside it.",
    "reproduce": "Run a published row again and compare the figures.",
    "export": "Write runs in the formats of other tools.",
    "submit": "Pack runs, results and a description for a leaderboard.",
    "verify": "Check a submission: every byte and every figure.",
    "answers": "Are the generated answers right, and does that go with retrieval?",
    "rag": "Does retrieval change the answer, for better or for worse?",
    "search": "Search a task's documents with a question of your own.",
    "inspect": "Look at queries of a run one by one.",
    "diagnose": "Why does a system fail, and what would help?",
    "audit": "Can the labels of a task be trusted, and what changes if not?",
    "review": "Have people and models judge passages, blind, and keep every decision.",
    "frontier": "Which systems are worth their price, and what would routing save?",
    "sensitivity": "How does a figure move with the number of tokens that are read?",
    "tune": "Choose a system's options on some queries, and measure it on the others.",
    "label": "Sort queries into classes by a language model.",
    "report": "Runs as one HTML file that needs nothing else.",
    "serve": "Look at the ledger in a browser: board, comparisons, live search.",
    "site": "A static leaderboard site of chosen runs and published figures.",
    "plot": "Draw boards, differences, costs and causes as figures.",
    "tasks": "List the tasks and groups.",
    "stats": "Sizes, lengths and duplicates of tasks or folders.",
    "validate": "Find every problem in data folders, with file and line.",
    "analyze": "Show the tokens that BM25 sees.",
    "build": "Make a judged task from your own questions and documents.",
    "train": "Make training data that keeps the reasoning, and train retrievers on it.",
    "nano": "Build small tasks from large ones, and see how well they stand for them.",
    "leakage": "Does training data hold what is evaluated on?",
    "runs": "List, show or remove the runs of the ledger.",
    "models": "List embedding models, rerankers and language models; export to ONNX.",
    "index": "Push a task's documents into a search engine.",
    "engines": "List the search engines that can be asked, and how each is asked.",
    "cache": "Sizes of indexes and vectors, and how to remove them.",
    "doctor": "Versions, extras, devices, caches, and what is missing.",
}
"""Every verb with the line that `--help` shows."""


_HOMES = {
    "analyze": "cli.tasks",
    "tasks": "cli.tasks",
    "run": "cli.run",
    "eval": "exchange.cli",
    "import": "exchange.cli",
    "compare": "comparison.cli",
    "board": "leaderboard.cli",
    "reproduce": "leaderboard.publishing",
    "export": "exchange.cli",
    "submit": "exchange.cli",
    "verify": "exchange.cli",
    "answers": "answers.cli",
    "rag": "answers.cli",
    "search": "workbench.cli",
    "inspect": "workbench.cli",
    "diagnose": "diagnosis.cli",
    "audit": "audit.cli",
    "review": "reviews.cli",
    "frontier": "tuning.cli",
    "sensitivity": "diagnosis.cli",
    "tune": "tuning.tune",
    "label": "diagnosis.label",
    "report": "leaderboard.publishing",
    "serve": "cli.serve",
    "site": "leaderboard.publishing",
    "plot": "leaderboard.plot",
    "build": "construction.cli",
    "train": "training.cli",
    "nano": "nano.cli",
    "leakage": "leakage.cli",
    "runs": "cli.runs",
    "models": "cli.models",
    "index": "engines.index",
    "engines": "engines.cli",
    "cache": "cli.cache",
    "doctor": "cli.doctor",
}
"""Modules of the verbs; those of others are in `cli.data`."""


class Verbs(click.Group):
    """A group that imports a verb's module only when that verb is called."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """List the commands in the order in which a new user needs them."""
        return list(VERBS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import and return a command."""
        if cmd_name not in VERBS:
            return None
        module = _HOMES.get(cmd_name, "cli.data")
        command: click.Command = getattr(import_module(f"r2med.{module}"), f"{cmd_name}_command")
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Resolve a command by name, with the nearest one suggested for a wrong name."""
        if args and args[0] not in VERBS and not args[0].startswith("-"):
            ctx.fail(f"no verb {args[0]!r}{suggest(args[0], VERBS)}")
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """List the commands, without importing any."""
        with formatter.section("Verbs"):
            formatter.write_dl(list(VERBS.items()))


@click.group(cls=Verbs, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(r2med.__version__, prog_name="r2med")
@click.option("--debug", is_flag=True, help="Show where errors came from, with every line; after any verb, too.")
def app(debug: bool) -> None:
    """Measure how well a search system finds the medical evidence that a question only implies.

    Start with:  r2med run bm25 bm25-classic

    A research instrument, not a clinical decision system.
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
    own = arguments[: arguments.index("--")] if "--" in arguments else arguments
    if "--debug" in own:
        set_debugging(True)
        arguments.remove("--debug")
    try:
        with _announced(arguments):
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


def _announced(arguments: list[str]) -> AbstractContextManager[None]:
    """Show what runs on the live page; neither a list of verbs nor the server of that page is work."""
    verb = next((word for word in arguments if word in VERBS), "serve")
    if verb == "serve":
        return nullcontext()
    typed = shlex.join(["r2med", *arguments])
    announced: AbstractContextManager[None] = import_module("r2med.store.jobs").reporter.command(typed)
    return announced


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
