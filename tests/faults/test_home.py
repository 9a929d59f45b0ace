"""A home that is full, read-only or no folder at all, and a ledger that another process holds."""

from __future__ import annotations

import os
import shutil
import sqlite3
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest
from click.testing import CliRunner
from disks import NOBODY, fill, one_line, r2med, small_disk

import r2med as library
from r2med.cli.main import app
from r2med.errors import R2medError
from r2med.runs.ledger import Ledger
from r2med.store import sqlite

BIOLOGY = ["--tasks", "sample/Biology"]
READING = [
    ["runs"],
    ["board", *BIOLOGY],
    ["compare", "bm25", "bm25-classic", *BIOLOGY],
    ["run", "bm25", "bm25-classic", *BIOLOGY],
    ["inspect", "bm25", *BIOLOGY],
    ["diagnose", "bm25", *BIOLOGY, "--coverage"],
    ["doctor"],
    ["cache"],
]


@pytest.fixture
def unusable(tmp_path: Path) -> dict[str, str]:
    (tmp_path / "file").write_text("x")
    (tmp_path / "dangling").symlink_to(tmp_path / "nowhere" / "else")
    return {
        "file": str(tmp_path / "file"),
        "below": str(tmp_path / "file" / "home"),
        "proc": "/proc/r2med",
        "dangling": str(tmp_path / "dangling"),
        "long": str(tmp_path / ("x" * 300)),
        "nobody": "~nobody-of-that-name/r2med",
        "null": "/dev/null",
    }


@pytest.mark.parametrize("verb", [["doctor"], ["runs"], ["run", "bm25", *BIOLOGY], ["board"], ["cache"]])
@pytest.mark.parametrize("kind", ["file", "below", "proc", "dangling", "long", "nobody", "null"])
def test_a_home_that_cannot_be_is_one_line(verb, kind, unusable, monkeypatch):
    monkeypatch.setenv("R2MED_HOME", unusable[kind])
    done = CliRunner().invoke(app, verb)
    if verb == ["doctor"] and done.exit_code == 0:
        assert "cannot be used" in done.output
        return
    assert isinstance(done.exception, R2medError), done.exception
    assert f"R2MED_HOME={unusable[kind]} cannot be used" in str(done.exception)
    assert "\n" not in str(done.exception)


def test_without_r2med_home_the_line_names_the_place(tmp_path):
    (tmp_path / "file").write_text("x")
    gone = {name: value for name, value in os.environ.items() if name != "R2MED_HOME"}
    done = subprocess.run(
        [sys.executable, "-m", "r2med", "runs"], env={**gone, "HOME": str(tmp_path / "file"), "XDG_DATA_HOME": ""},
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert f"{tmp_path}/file/.local/share/r2med, where results are kept, cannot be used" in one_line(done)


def shown(verb: list[str], home: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """What a command prints, which must work."""
    monkeypatch.setenv("R2MED_HOME", str(home))
    done = CliRunner().invoke(app, verb)
    assert done.exit_code == 0, (verb, done.output, done.exception)
    return done.stdout


def read_only(folder: Path) -> None:
    """Mount a folder over itself so that not even root can write to it."""
    if sys.platform != "linux" or os.geteuid() != 0:
        pytest.skip("only root on Linux can mount a folder read-only")
    for options in (["--bind"], ["-o", "remount,ro,bind"]):
        if subprocess.run(["mount", *options, str(folder), str(folder)], check=False).returncode:
            pytest.skip("folders cannot be mounted read-only here")


@pytest.mark.parametrize("killed", [False, True])
def test_a_read_only_home_can_be_read(killed, measured, tmp_path, monkeypatch):
    home = Path(shutil.copytree(measured, tmp_path / "home"))
    if killed:
        # Its last writes are in the write-ahead log still, as after a kill.
        held = sqlite3.connect(home / "ledger.sqlite")
        held.execute("PRAGMA wal_autocheckpoint = 0")
        held.execute("UPDATE runs SET used = used")
        held.commit()
        shutil.copytree(home, tmp_path / "dead")
        held.close()
        home = tmp_path / "dead"
        (home / "ledger.sqlite-shm").unlink()
    read_only(home)
    try:
        verbs = READING[:3] if killed else READING
        for verb in verbs:
            here = shown(verb, home, monkeypatch)
            assert verb[0] in ("doctor", "cache") or here == shown(verb, measured, monkeypatch), verb
        done = r2med("run", "bm25(k1=1.3)", *BIOLOGY, home=home)
        assert "bm25(k1=1.3)" in done.stdout
        assert "not kept in the ledger" in done.stdout + done.stderr
        assert "read-only" in done.stdout + done.stderr
        assert "move it away" not in done.stdout + done.stderr
        assert done.returncode == 1
        assert not (home / "llm.sqlite").exists()
    finally:
        subprocess.run(["umount", "-l", str(home)], check=True)


def test_a_home_of_another_user_can_be_read(measured, tmp_path):
    if os.geteuid() != 0:
        pytest.skip("only root can become another user")
    home = Path(shutil.copytree(measured, tmp_path / "home"))
    scratch = Path(tempfile.gettempdir())
    for folder in (home, *home.parents):
        if scratch in folder.parents:
            folder.chmod(0o755)
    # Imported as root, since another user may not be able to read this installation.
    look = "CliRunner().invoke(app, ['runs'])"
    code = "import os; from click.testing import CliRunner; from r2med.cli.main import app; "
    code += "".join(f"os.environ['R2MED_HOME'] = {str(place)!r}; {look}; " for place in (measured, home))
    code += f"os.setuid({NOBODY}); done = {look}; print(done.output, done.exception)"
    for mode, said in ((0o644, "bm25-classic"), (0o600, "ledger.sqlite: cannot be read by this user")):
        (home / "ledger.sqlite").chmod(mode)
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
        assert said in done.stdout, done.stdout + done.stderr


def test_a_ledger_of_another_version_is_refused_where_nothing_can_be_written(tmp_path):
    home = tmp_path / "home"
    Ledger(home / "ledger.sqlite").close()
    connection = sqlite3.connect(home / "ledger.sqlite")
    connection.execute("PRAGMA user_version = 1")
    connection.close()
    read_only(home)
    try:
        with pytest.raises(R2medError, match="made by another version of r2med"):
            Ledger(home / "ledger.sqlite")
    finally:
        subprocess.run(["umount", "-l", str(home)], check=True)


def test_a_full_disk_is_one_true_line_and_what_was_computed_is_shown(measured, tmp_path, monkeypatch):
    with small_disk(tmp_path / "disk", 24 << 20) as home:
        shutil.copytree(measured, home, dirs_exist_ok=True)
        filler = fill(home)
        for verb in READING:
            shown(verb, home, monkeypatch)
        done = r2med("run", "bm25(k1=1.3)", "wordllama", "bm25(b=0.5)", *BIOLOGY, home=home)
        said = " ".join((done.stdout + done.stderr).split())
        assert "Traceback" not in said
        assert done.returncode == 1
        for system in ("bm25(k1=1.3)", "bm25(b=0.5)"):
            assert any(line.startswith((system, f" {system}")) for line in done.stdout.splitlines()), said
        assert "not kept in the ledger: " in said, said
        assert "the disk is full" in said, said
        assert "move it away" not in said
        filler.unlink()
        with Ledger(home / "ledger.sqlite") as ledger:
            assert len(ledger.entries()) == 2
        assert r2med("run", "bm25(k1=1.3)", *BIOLOGY, home=home).returncode == 0


def test_a_lock_held_for_long_is_one_line_that_says_by_whom(measured, tmp_path, monkeypatch):
    home = Path(shutil.copytree(measured, tmp_path / "home"))
    monkeypatch.setenv("R2MED_HOME", str(home))
    monkeypatch.setattr(sqlite, "TIMEOUT", 1.0)
    code = f"import sqlite3, sys; d = sqlite3.connect({str(home / 'ledger.sqlite')!r}, isolation_level=None)"
    code += "; d.execute('BEGIN IMMEDIATE'); print('held', flush=True); sys.stdin.read()"
    holder = subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert holder.stdout is not None
    holder.stdout.readline()
    try:
        report = library.evaluate(["bm25(k1=1.3)", "bm25(b=0.5)", "bm25"], "sample/Biology")
    finally:
        holder.communicate()
    assert [result.system for result in report.results] == ["bm25(k1=1.3)", "bm25(b=0.5)", "bm25"]
    assert report.failures == []
    for result in report.results[:2]:
        assert f"locked by process {holder.pid}" in result.warnings[-1]
        assert result.id == ""
    assert report.results[2].id
    again = library.evaluate("bm25(k1=1.3)", "sample/Biology").results[0]
    assert again.metrics == report.results[0].metrics
    assert not again.warnings


def test_bm25_does_not_touch_the_answers(own_home):
    assert CliRunner().invoke(app, ["run", "bm25", *BIOLOGY]).exit_code == 0
    assert not (own_home / "llm.sqlite").exists()


def test_folders_that_r2med_makes_are_its_owners_alone_in_a_home_that_is_not(tmp_path):
    (tmp_path / "home").mkdir(mode=0o755)
    done = r2med("run", "bm25", "wordllama", "--tasks", "sample/Biology", home=tmp_path / "home")
    assert done.returncode == 0, done.stderr
    modes = {path.name: path.stat().st_mode & 0o777 for path in (tmp_path / "home").iterdir() if path.is_dir()}
    assert {"vectors", "cache"} <= modes.keys()
    assert set(modes.values()) == {0o700}
