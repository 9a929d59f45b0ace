"""Disks that are full or cannot be written, and the command line as a process of its own."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

NOBODY = 65534


@contextmanager
def small_disk(folder: Path, size: int) -> Iterator[Path]:
    """A disk of so many bytes; the test is skipped where nobody may mount one."""
    folder.mkdir(parents=True, exist_ok=True)
    mount = ["mount", "-t", "tmpfs", "-o", f"size={size},mode=777", "tmpfs", str(folder)]
    if sys.platform != "linux" or os.geteuid() != 0 or subprocess.run(mount, check=False).returncode:
        pytest.skip("only root on Linux can mount a small disk")
    try:
        yield folder
    finally:
        subprocess.run(["umount", "-l", str(folder)], check=True)


def fill(folder: Path, left: int = 0) -> Path:
    """A file that takes all room but `left` bytes."""
    status = os.statvfs(folder)
    room = status.f_bavail * status.f_frsize - left
    file = folder / "filler"
    file.write_bytes(bytes(max(0, room)))
    return file


def r2med(*arguments: str, home: Path | str | None = None, **env: str) -> subprocess.CompletedProcess[str]:
    """The command line, run as a user runs it."""
    where = {} if home is None else {"R2MED_HOME": str(home)}
    return subprocess.run(
        [sys.executable, "-m", "r2med", *arguments],
        capture_output=True, text=True, errors="replace", env={**os.environ, **where, **env}, check=False, timeout=300,
    )  # fmt: skip


def one_line(done: subprocess.CompletedProcess[str]) -> str:
    """The error of a command that failed as it should: the last line of stderr, without a traceback."""
    assert "Traceback" not in done.stderr, done.stderr
    assert done.returncode == 1, (done.returncode, done.stdout, done.stderr)
    return done.stderr.strip().splitlines()[-1]
