"""Processes: marks that tell which process did something, a child process, and the output of other libraries.

The child is plain Python started afresh, not a fork: nothing of CUDA, of threads or of the caller's script is carried
over. Both sides talk in frames, a length and that many bytes. It ends when its input does, so that it cannot outlive a
caller that was killed. What user classes and libraries print goes to stderr in a command, whose output may be JSON.
"""

from __future__ import annotations

import os
import struct
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path
from typing import IO, cast

_LENGTH = struct.Struct("<Q")
_BOOT, _PROCESSES = Path("/proc/sys/kernel/random/boot_id"), Path("/proc/self/ns/pid")


def process_mark() -> str:
    """Return a mark that no other process has; empty if the system does not tell enough."""
    machine, started = _machine(), _started(os.getpid())
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


class Pipes:
    """Pipes from and to another process."""

    def __init__(self, received: IO[bytes], sent: IO[bytes]) -> None:
        self._received, self._sent = received, sent

    def send(self, content: bytes) -> None:
        """Write a frame."""
        self._sent.write(_LENGTH.pack(len(content)))
        self._sent.write(content)
        self._sent.flush()

    def receive(self) -> bytes:
        """Return the next frame; raise `EOFError` if the other process has ended."""
        return self._read(_LENGTH.unpack(self._read(_LENGTH.size))[0])

    def _read(self, count: int) -> bytes:
        data = self._received.read(count)
        if len(data) != count:
            raise EOFError
        return data


class ChildProcess(Pipes):
    """Handle of the child: `python -m MODULE`."""

    def __init__(self, module: str) -> None:
        # The process must find this very package, from wherever it was imported.
        package, path = str(Path(__file__).resolve().parents[2]), os.environ.get("PYTHONPATH")
        self._process = subprocess.Popen(
            [sys.executable, "-m", module],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env=os.environ | {"PYTHONPATH": os.pathsep.join([package, path] if path else [package])},
            # An interrupt at the keyboard is the caller's to handle.
            start_new_session=True,
        )
        super().__init__(cast(IO[bytes], self._process.stdout), cast(IO[bytes], self._process.stdin))
        self.number = self._process.pid

    def close(self) -> None:
        """Close its input, at which it exits by itself; kill a process that hangs."""
        with suppress(BrokenPipeError):
            self._sent.close()
        try:
            self._process.wait(timeout=10)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._received.close()

    def kill(self) -> None:
        """Kill it, whatever it is doing."""
        self._process.kill()
        self.close()


def caller_pipes() -> Pipes:
    """Return the pipes from and to the parent; output that a library prints does not get between the frames."""
    sent = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    return Pipes(sys.stdin.buffer, sent)


_LOCK = threading.Lock()


class ForeignOutput:
    """State of the redirection: blocks of several threads may overlap, and the last one to end restores stdout."""

    def __init__(self) -> None:
        self.redirected = False  # whether this process is a command, whose stdout is for its results
        self._blocks, self._stdout = 0, sys.stdout

    @contextmanager
    def apart(self) -> Iterator[None]:
        """Send to stderr what is printed in the block."""
        if not self.redirected:
            yield
            return
        with _LOCK:
            if not self._blocks:
                self._stdout, sys.stdout = sys.stdout, sys.stderr
            self._blocks += 1
        try:
            yield
        finally:
            with _LOCK:
                self._blocks -= 1
                if not self._blocks:
                    sys.stdout = self._stdout


foreign_output = ForeignOutput()
