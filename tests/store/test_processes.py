"""A process at the side of this one says what it is asked, and never outlives its caller."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

import pytest

CALLER = """
import sys, time
from r2med.store.processes import ChildProcess
print(ChildProcess(sys.argv[1]).number, flush=True)
time.sleep(600)
"""


@pytest.mark.parametrize("module", ["r2med.encode.workers"])
def test_a_process_does_not_outlive_a_killed_caller(module):
    caller = subprocess.Popen([sys.executable, "-c", CALLER, module], stdout=subprocess.PIPE)
    process = Path("/proc") / caller.stdout.readline().decode().strip() / "cmdline"
    deadline = time.monotonic() + 60
    while not (command := process.read_bytes()) and time.monotonic() < deadline:
        time.sleep(0.01)  # for a moment after its start a process has no command line
    assert module.encode() in command
    caller.kill()
    caller.wait()
    while process.exists() and process.read_bytes():
        assert time.monotonic() < deadline, "it is still there"
        time.sleep(0.02)
