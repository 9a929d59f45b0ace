"""Marks of processes, unique on a machine, and whether the process of a mark is still alive."""

from __future__ import annotations

import os
from contextlib import suppress
from functools import cache
from pathlib import Path

_BOOT, _PROCESSES = Path("/proc/sys/kernel/random/boot_id"), Path("/proc/self/ns/pid")


def process_mark() -> str:
    """Return a mark that no other process has; empty if the system does not tell enough."""
    machine = _machine()
    started = _started(os.getpid())
    return f"{machine} {os.getpid()} {started}" if machine and started else ""


def is_gone(mark: str) -> bool:
    """Return whether the process with a mark has surely ended; one of another machine, or without a mark, may be alive.

    >>> is_gone(process_mark()), is_gone("")
    (False, False)
    """
    machine, _, process = mark.rpartition(" ")[0].rpartition(" ")
    if not machine or machine != _machine() or not process.isdigit():
        return False
    return _started(int(process)) != mark.rpartition(" ")[2]


def is_here(mark: str) -> bool:
    """Return whether the process with a mark is, or was, one of this machine that this process can see.

    >>> is_here(process_mark()), is_here("elsewhere 12 34")
    (True, False)
    """
    return bool(_machine()) and mark.startswith(f"{_machine()} ")


@cache
def _machine() -> str:
    """Return the boot of this machine and the namespace of its process ids; empty if the system does not tell."""
    with suppress(OSError):
        return f"{_BOOT.read_text().strip()} {_PROCESSES.readlink()}"
    return ""


def _started(process: int) -> str:
    """Return the start time of a process, in the clock of the system; empty if it does not run or is a zombie."""
    with suppress(OSError, IndexError):
        fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
        return "" if fields[0] in "ZX" else fields[19]
    return ""
