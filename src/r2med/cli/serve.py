"""`r2med serve`: the ledger in a browser."""

from __future__ import annotations

import click

from r2med.errors import require_extra


@click.command("serve")
@click.option("--port", default=8421, show_default=True, type=click.IntRange(1, 65535), help="On the loopback.")
def command(port: int) -> None:
    """Look at the ledger in a browser: board, comparisons, queries, live search, runs and their progress.

    Only this machine can reach it. Stop it with Ctrl-C.

    \b
    Example:
      r2med serve --port 8421
    """
    require_extra("web", "starlette", "uvicorn")
    from r2med.web.app import serve

    serve(port, lambda: click.echo(f"http://127.0.0.1:{port}  (Ctrl-C stops it)", err=True))
