"""Outputs appear whole or not at all, whatever the disk does."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner
from disks import fill, small_disk

from r2med.cli.main import app
from r2med.errors import R2medError

TASK = ["--tasks", "sample/Biology"]
COMMANDS = {
    "report.html": ["report", "bm25", *TASK, "--no-causes"],
    "runs.zip": ["submit", "bm25", *TASK],
    "public": ["site", "bm25"],
    "board.svg": ["plot", "board", *TASK],
    "results": ["run", "bm25", *TASK],
    "cases.html": ["inspect", "bm25", *TASK, "--html"],
    "trec": ["export", "bm25", *TASK, "--format", "trec"],
    "nano": ["nano", "build", "sample/Biology", "--docs", "50"],
}


def arguments(name: str, folder: Path) -> list[str]:
    given = COMMANDS[name]
    return [*given, str(folder / name)] if given[-1] == "--html" else [*given, "--out", str(folder / name)]


def content(folder: Path) -> dict[str, bytes]:
    return {str(file.relative_to(folder)): file.read_bytes() for file in folder.rglob("*") if file.is_file()}


@pytest.fixture(autouse=True)
def _home(measured, monkeypatch):
    monkeypatch.setenv("R2MED_HOME", str(measured))


@pytest.mark.parametrize("name", COMMANDS)
def test_a_full_disk_leaves_what_was_there(name, tmp_path):
    with small_disk(tmp_path / "disk", 16 << 20) as disk:
        if name != "nano":  # which never writes over anything
            assert CliRunner().invoke(app, arguments(name, disk)).exit_code == 0
        before = content(disk)
        filler = fill(disk, left=4096)
        done = CliRunner().invoke(app, arguments(name, disk))
        assert isinstance(done.exception, R2medError), done.exception
        assert "No space left on device" in str(done.exception)
        assert "\n" not in str(done.exception)
        filler.unlink()
        assert {file: data for file, data in content(disk).items() if data != before.get(file)} == {}
        assert CliRunner().invoke(app, arguments(name, disk)).exit_code == 0


def test_a_site_removes_its_own_old_pages_and_only_those(tmp_path):
    public = tmp_path / "public"
    (public / "systems").mkdir(parents=True)
    for foreign in ("CNAME", "systems/mine.html", "sample-notes.html"):
        (public / foreign).write_text("mine")
    assert CliRunner().invoke(app, ["site", "bm25", "bm25-classic", "--out", str(public)]).exit_code == 0
    assert (public / "report-sample.html").exists()
    assert len(list((public / "systems").iterdir())) == 3
    (public / ".r2med-site.json").write_text(
        (public / ".r2med-site.json").read_text().replace("[", '["../outside.html",', 1)
    )
    (tmp_path / "outside.html").write_text("mine")
    assert CliRunner().invoke(app, ["site", "--no-reports", "--out", str(public)]).exit_code == 0
    assert not (public / "report-sample.html").exists()
    assert not (public / "sample.html").exists()
    assert [file.name for file in (public / "systems").iterdir()] == ["mine.html"]
    assert {file for file in content(public) if content(public)[file] == b"mine"} == {
        "CNAME", "systems/mine.html", "sample-notes.html",
    }  # fmt: skip
    assert (tmp_path / "outside.html").exists()


def test_an_output_through_a_link_or_into_a_device_goes_where_it_points(tmp_path):
    (tmp_path / "real.html").write_text("old")
    (tmp_path / "link.html").symlink_to(tmp_path / "real.html")
    assert CliRunner().invoke(app, [*COMMANDS["cases.html"], str(tmp_path / "link.html")]).exit_code == 0
    assert (tmp_path / "link.html").is_symlink()
    assert "<html" in (tmp_path / "real.html").read_text()
    done = CliRunner().invoke(app, [*COMMANDS["cases.html"], "/dev/full"])
    assert str(done.exception) == "/dev/full: cannot be written (No space left on device)"
