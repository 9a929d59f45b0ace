"""Redirection of what user classes and libraries print, out of the output of a command, which may be one JSON document.

A command redirects it to stderr; in a program that imports r2med it goes where that program's output goes.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TextIO

_LOCK = threading.Lock()


class ForeignOutput:
    """State of the redirection: blocks of several threads may overlap, and the last one to end restores stdout."""

    def __init__(self) -> None:
        self.redirected = False
        """Whether this process is a command, whose stdout is for its results."""
        self._blocks = 0
        self._stdout: TextIO | None = None

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
                if not self._blocks and self._stdout is not None:
                    sys.stdout = self._stdout


foreign_output = ForeignOutput()
