"""The tree stays within its budget, and every run of the tests prints its size."""

from __future__ import annotations

import subprocess
import sys

from budget import LIMITS, describe_tree, measure_tree

RUN_MODULES = 55
"""In how many modules `r2med run bm25` may execute a function."""
TRACER = """
import sys, threading
modules = set()

def note(frame, event, arg):
    code = frame.f_code
    if event == "call" and "/src/r2med/" in code.co_filename and code.co_flags & 1 and code.co_qualname[0] != "<":
        modules.add(code.co_filename)

from r2med.cli.main import main
sys.argv = ["r2med", "run", "bm25", "--tasks", "sample"]
sys.setprofile(note), threading.setprofile(note)
try:
    main()
except SystemExit:
    sys.setprofile(None)
print(len(modules), file=sys.stderr)
"""


def test_the_tree_is_within_its_budget() -> None:
    size = measure_tree()
    assert {name: size[name] for name in LIMITS if size[name] > LIMITS[name]} == {}


def test_the_size_is_said_in_one_line() -> None:
    assert describe_tree().startswith("src: ")
    assert "\n" not in describe_tree()


def test_a_first_run_of_bm25_executes_functions_in_few_modules() -> None:
    """Class bodies and expressions of a module that is imported do not count."""
    done = subprocess.run([sys.executable, "-c", TRACER], capture_output=True, text=True, check=True)
    assert int(done.stderr.splitlines()[-1]) <= RUN_MODULES
