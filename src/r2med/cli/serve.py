"""`r2med serve`: the ledger in a browser."""

from __future__ import annotations

import ipaddress
import socket
from typing import TYPE_CHECKING
from urllib.parse import quote

import click
from click.core import ParameterSource

from r2med.errors import R2medError, require_extra

if TYPE_CHECKING:
    from r2med.web.access import Access

_EVERY = ("0.0.0.0", "::")
"""Addresses that stand for all of this machine's."""
_SHORTEST = 8
"""Characters of a token that takes long enough to guess."""


@click.command("serve")
@click.option("--port", default=8421, show_default=True, type=click.IntRange(1, 65535), help="Where it listens.")
@click.option(
    "--host",
    default="127.0.0.1",
    show_default=True,
    metavar="ADDRESS",
    help="Listen on another address, for other machines to reach it; always with a token, and not encrypted.",
)
@click.option(
    "--token",
    envvar="R2MED_TOKEN",
    show_envvar=True,
    metavar="TEXT",
    help="A token of your own, instead of the one that is kept in R2MED_HOME. Others on this machine can read what"
    " stands in a command, so rather set the variable.",
)
@click.option("--no-token", is_flag=True, help="Let in everybody who reaches the address.")
@click.option(
    "--allow-host",
    "hosts",
    multiple=True,
    metavar="NAME",
    help="A host name under which a proxy shows the pages, with or without a port. May be repeated.",
)
@click.option(
    "--trust-proxy",
    default="",
    metavar="ADDRESS",
    help="Believe what a reverse proxy at this address says of who asks, and whether they ask by https.",
)
def serve_command(
    port: int, host: str, token: str | None, no_token: bool, hosts: tuple[str, ...], trust_proxy: str
) -> None:
    """Look at the ledger in a browser: board, comparisons, queries, live search, runs, and the review desk.

    The address that it prints ends in a token: open it once, and the browser is known for 30 days. Without the token
    nobody sees anything, not even others on this machine; a link of `r2med review invite` opens one desk and nothing
    else. Stop it with Ctrl-C.

    \b
    Examples:
      r2med serve --port 8421
      r2med serve --allow-host hub.example.org
    """
    require_extra("web", "starlette", "uvicorn")
    from r2med.web.app import serve

    named = click.get_current_context().get_parameter_source("token") is ParameterSource.COMMANDLINE
    if no_token and named:
        raise R2medError("--token and --no-token contradict each other; leave one of them out")
    from r2med.web.access import Access, is_host_name, is_loopback

    if no_token and not is_loopback(host):
        raise R2medError(f"--no-token would show everything to everybody who reaches {host}; leave it or --host out")
    for name in hosts:
        if not is_host_name(name):
            raise R2medError(f"--allow-host {name!r} is not a host name; give it as in hub.example.org or localhost:80")
    own = (socket.gethostname(),) if host in _EVERY else ()
    access = Access(None if no_token else _token(token), (*hosts, *own), host)
    serve(port, access, lambda: _tell(access, port), _proxy(trust_proxy))


def _proxy(address: str) -> str:
    """Return the address of a trusted proxy; a name is refused, since its lookup could be answered by anyone."""
    if address:
        try:
            ipaddress.ip_address(address)
        except ValueError:
            raise R2medError(f"--trust-proxy {address!r} is not an address such as 127.0.0.1") from None
    return address


def _token(wanted: str | None) -> str:
    """Return the token of the option, or the one of this home."""
    from r2med.web.server import kept_token

    if wanted is not None and len(wanted) < _SHORTEST:
        raise R2medError(
            f"a token needs at least {_SHORTEST} characters; without --token and R2MED_TOKEN a good one is made"
        )
    return wanted or kept_token()


def _tell(access: Access, port: int) -> None:
    host = socket.gethostname() if access.bound in _EVERY else access.bound
    place = f"[{host}]" if ":" in host else host
    secret = f"/?token={quote(access.token, safe='')}" if access.token else ""
    click.echo(f"http://{place}:{port}{secret}  (Ctrl-C stops it)", err=True)
    if not access.token:
        click.echo("warning: without a token everybody on this machine can read what the pages show", err=True)
