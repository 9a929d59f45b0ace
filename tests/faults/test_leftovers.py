"""What a process that was killed left behind is removed by the next one, and nothing of a process that lives is."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

import r2med
from r2med.cli.main import app
from r2med.store.cache import Cache
from r2med.store.files import draft_file, draft_folder
from r2med.store.jobs import ended_work, reporter, running_work

DIE = {
    "cache": "with draft_folder(root / 'cache' / 'bm25', 'abcd') as d: (d / 'big').write_bytes(bytes(5000)); {end}",
    "file": "with draft_file(root / 'pairs.jsonl') as d: d.write_text('half'); {end}",
    "folder": "with draft_folder(root, 'nano') as d: (d / 'half').write_text('half'); {end}",
}
WORK = {"work": "with reporter.cell('x', 'y'): {end}"}


def process(what: str, root: Path, end: str) -> subprocess.Popen[str]:
    """A process that is in the midst of writing; it says so, and then does what `end` says."""
    code = "\n".join(
        [
            "import os, signal, sys, time; from pathlib import Path",
            "from r2med.store.files import draft_file, draft_folder",
            "from r2med.store.jobs import reporter",
            f"root = Path({str(root)!r}); (root / 'cache' / 'bm25').mkdir(parents=True, exist_ok=True)",
            (DIE | WORK)[what].format(end=f"print('ready', flush=True); {end}"),
        ]
    )
    running = subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert running.stdout is not None
    assert running.stdout.readline() == "ready\n"
    return running


def files(root: Path) -> list[str]:
    names = (str(path.relative_to(root)) for path in root.rglob("*") if path.is_file())
    return sorted(name for name in names if "sqlite" not in name)


def write_again(what: str, root: Path) -> None:
    """What the next process does."""
    if what == "cache":
        Cache(root / "cache").entry("other", "key", lambda folder: None)
    elif what == "file":
        with draft_file(root / "pairs.jsonl") as draft:
            draft.write_text("whole")
    else:
        with draft_folder(root, "nano"):
            pass


@pytest.mark.parametrize("what", DIE)
def test_the_next_one_removes_what_a_killed_process_left(what, own_home):
    process(what, own_home, "os.kill(os.getpid(), signal.SIGKILL)").wait()
    assert len(files(own_home)) == 1
    write_again(what, own_home)
    kept = {"file": ["pairs.jsonl"], "cache": ["cache/other/key/entry.key"]}
    assert files(own_home) == kept.get(what, [])


@pytest.mark.parametrize("what", DIE)
def test_what_a_living_process_writes_is_left_alone(what, own_home):
    running = process(what, own_home, "sys.stdin.read()")
    before = files(own_home)
    write_again(what, own_home)
    assert len(before) == 1
    assert set(before) <= set(files(own_home))
    running.communicate()
    assert running.returncode == 0


def test_a_nano_build_can_be_killed_where_process_ids_repeat(tmp_path):
    """In a container the process has the same id each time."""
    apart = ["unshare", "--pid", "--fork"]
    if shutil.which("unshare") is None or subprocess.run([*apart, "true"], check=False).returncode:
        pytest.skip("process ids can be made to repeat by root on Linux only")
    build = "nano.build('sample/Biology', 'nano', Recipe(documents=50))"
    code = "import os; from r2med.nano import builder as nano; from r2med.nano.recipe import Recipe; " + build
    dying = code.replace("; nano.build", "; nano._check = lambda *_: os._exit(9); nano.build")
    for source in (dying, code):
        subprocess.run([*apart, sys.executable, "-c", source], cwd=tmp_path, check=False)
    assert [path.name for path in tmp_path.iterdir()] == ["nano"]


def test_drafts_are_counted(own_home):
    process("cache", own_home, "os.kill(os.getpid(), signal.SIGKILL)").wait()
    assert Cache.default().sizes() == {"unfinished": (1, 5000)}
    assert "unfinished" in CliRunner().invoke(app, ["cache"]).output


def test_work_of_a_killed_process_ended_unexpectedly(own_home):
    first, second = (process("work", own_home, "sys.stdin.read()") for _ in range(2))
    assert {work.process for work in running_work()} == {first.pid, second.pid}
    first.kill()
    first.wait()
    assert [work.process for work in running_work()] == [second.pid]
    assert [(work.process, work.outcome) for work in ended_work()] == [(first.pid, "ended unexpectedly")]
    with reporter.cell("a", "b"):
        assert len(running_work()) == 2
        assert len(ended_work()) == 1, "the next process keeps the record of it"
    second.communicate()
    assert running_work() == []


def test_a_run_removes_all_of_it(own_home):
    process("cache", own_home, "os.kill(os.getpid(), signal.SIGKILL)").wait()
    r2med.evaluate("bm25", "sample/Biology")
    assert [name for name in files(own_home) if "/." in name] == []
