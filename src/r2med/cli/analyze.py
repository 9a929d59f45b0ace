"""`r2med analyze`: what BM25 really sees."""

from __future__ import annotations

import sys

import click

from r2med.text import analyze


@click.command("analyze")
@click.argument("text", required=False)
def command(text: str | None) -> None:
    """Show the tokens that BM25 sees: for each line of TEXT (or of standard input) one line of tokens.

    \b
    Examples:
      r2med analyze "The patient's β-blocker wasn't working"
      cat notes.txt | r2med analyze -
    """
    if text is not None and text != "-":
        lines = text.split("\n")
    else:
        data = sys.stdin.buffer.read().decode("utf-8", "replace")
        lines = data.removesuffix("\n").split("\n") if data else []
    for line in lines:
        click.echo(" ".join(analyze(line.removesuffix("\r"))))
