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
    code = "import numpy as np; from r2med.cli import main, tasks\n"
    code += "tasks.tasks_command.callback = lambda **_: np.ones(1 << 40)\n"
    code += "import sys; sys.argv = ['r2med', 'tasks']; main.main()"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert one_line(done).startswith("r2med: not enough memory (Unable to allocate")


def test_a_file_that_ends_early_is_not_taken_for_ctrl_c():
    code = "from r2med.cli import main, tasks\ndef cut(**_): raise EOFError\ntasks.tasks_command.callback = cut\n"
    code += "import sys; sys.argv = ['r2med', 'tasks']; main.main()"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert one_line(done) == "r2med: a file ended too early"


def test_what_other_code_prints_is_not_in_the_json(tmp_path):
    (tmp_path / "talkative.py").write_text(
        "import numpy, sys\nprint('imported')\nclass Encoder:\n"
        "    def __init__(self):\n        print('made')\n"
        "    def encode_queries(self, texts):\n"
        "        sys.stdout.write('hello')\n        return numpy.ones((len(texts), 2))\n"
        "    encode_documents = encode_queries\n"
        "def search(query, k):\n    print('searched')\n    return []\n"
        "class Scorer:\n    def score(self, query, documents):\n"
        "        print('scored')\n        return [0.5] * len(documents)\n"
    )
    for system, said in (
        ("talkative:Encoder", ("imported", "made", "hello")),
        ("talkative:search", ("imported", "searched")),
        ("bm25 >> talkative:Scorer", ("imported", "scored")),
    ):
        command = [sys.executable, "-OO", "-m", "r2med", "run", system, "--tasks", "sample/Biology", "--json"]
        done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=tmp_path)
        assert done.returncode in (0, 1), done.stderr
        assert all(word in done.stderr for word in said), done.stderr
        assert "results" in json.loads(done.stdout)


def test_what_the_code_of_a_program_prints_stays_in_its_output(tmp_path):
    (tmp_path / "talkative.py").write_text("def search(query, k):\n    print('searched')\n    return []\n")
    code = "import r2med; r2med.evaluate('talkative:search', 'sample/Biology')"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False, cwd=tmp_path)
    assert "searched" in done.stdout, done.stderr
