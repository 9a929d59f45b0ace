"""Output that is not UTF-8, and memory that runs out: one line, never a traceback."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest
from disks import one_line, r2med


@pytest.mark.parametrize("encoding", ["ascii", "latin-1"])
@pytest.mark.parametrize("verb", [["runs"], ["board", "--tasks", "sample/Biology"], ["board", "--published"]])
def test_what_the_terminal_cannot_show_is_escaped(verb, encoding, measured):
    done = r2med(*verb, home=measured, PYTHONIOENCODING=encoding, PYTHONUTF8="0")
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout


def test_too_little_memory_is_one_line():
    code = (
        "import numpy as np; from r2med.cli import main, tasks\ntasks.command.callback = lambda **_: np.ones(1 << 40)\n"
    )
    code += "import sys; sys.argv = ['r2med', 'tasks']; main.main()"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert one_line(done).startswith("r2med: not enough memory (Unable to allocate")


def test_a_file_that_ends_early_is_not_taken_for_ctrl_c():
    code = "from r2med.cli import main, tasks\ndef cut(**_): raise EOFError\ntasks.command.callback = cut\n"
    code += "import sys; sys.argv = ['r2med', 'tasks']; main.main()"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert one_line(done) == "r2med: a file ended too early"


def test_what_other_code_prints_is_not_in_the_json(tmp_path):
    (tmp_path / "talkative.py").write_text(
        "import numpy\nclass Encoder:\n"
        "    def encode_queries(self, texts):\n        print('hello')\n        return numpy.ones((len(texts), 2))\n"
        "    encode_documents = encode_queries\n"
    )
    command = [sys.executable, "-OO", "-m", "r2med", "run", "talkative:Encoder", "--tasks", "sample/Biology", "--json"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "hello" in done.stderr
    assert json.loads(done.stdout)["results"]
