"""Addresses of servers: checked once, written in one way, and grouped where the user says that several are equal.

Which server answered is part of every answer, vector and score that is kept. Servers that hold the same weights may
share what they answer when `r2med.toml` (or `config.toml` in `R2MED_HOME`) gives them one name:

    [servers]
    vllm-farm = ["http://gpu1:8000/v1", "http://gpu2:*/v1"]
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from fnmatch import fnmatchcase
from urllib.parse import urlsplit

from r2med.config.names import server_sets
from r2med.errors import R2medError, SpecError
from r2med.pipeline.engine import at_command_start

_PORTS = {"http": 80, "https": 443}


def check_url(name: str, url: str, key_env: str, form: str = "NAME@http://host:port/v1") -> str:
    """A server's base URL in its usual form; a `SpecError` of one line when it is none or holds a secret.

    >>> check_url("m", "HTTP://Host:80/v1/", "KEY")
    'http://host/v1'
    """
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError as error:
        raise SpecError(f"the address of {name} is no URL ({error}); write {form}") from error
    if parts.username or parts.password:
        raise SpecError(f"the address of {name} holds a user or password; set {key_env} in the environment instead")
    if parts.query or parts.fragment:
        raise SpecError(
            f"the address of {name} has something after ? or #, which would be stored with every result;"
            f" leave it out, and set {key_env} in the environment if it is a key"
        )
    if not parts.hostname or parts.scheme not in _PORTS or not url.isprintable() or " " in url:
        raise SpecError(f"the address of {name} is no URL: {url!r}; write {form}")
    host = f"[{parts.hostname}]" if ":" in parts.hostname else parts.hostname
    place = host if port in (None, _PORTS[parts.scheme]) else f"{host}:{port}"
    return f"{parts.scheme}://{place}{parts.path.rstrip('/')}"


def server_name(url: str) -> str:
    """What a kept answer, vector or score knows its server by: the set that the user put it in, or its address."""
    for name, patterns in server_sets().items():
        if any(fnmatchcase(url, pattern.rstrip("/")) for pattern in patterns):
            return name
    return url


class ServerError(R2medError):
    """A server that cannot be used at all: wrong key, unknown model, nobody there."""


@dataclass
class Health:
    """How one model at one address has fared: once dead, it is not asked again."""

    answered: bool = False
    failures: int = 0
    """Requests in a row that came to nothing."""
    dead: str = ""
    """Why nothing more is asked; empty while it lives."""

    def check(self) -> None:
        """Raise when the model is known to be dead."""
        if self.dead:
            raise ServerError(self.dead)

    def give_up(self, reason: str) -> ServerError:
        """Ask no more, and say why."""
        self.dead = reason
        return ServerError(reason)


HEALTH: defaultdict[str, Health] = defaultdict(Health)
"""How embedding and rerank servers have fared in this process since the command began."""
at_command_start(HEALTH.clear)
