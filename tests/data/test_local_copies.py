"""A copy of the benchmark on this machine is read in place of the hub's."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

import r2med
from r2med.data.tasks import SAMPLE
from r2med.errors import DataError, R2medError
from r2med.store.cache import home


@pytest.fixture
def copies(tmp_path, monkeypatch):
    """Folders as the benchmark's repository has them, filled with the sample; the hub cannot be reached."""
    for base in ("Biology", "IIYi-Clinical"):
        shutil.copytree(SAMPLE / base, tmp_path / "dataset" / base)
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def _settings(text: str, path: Path | None = None) -> None:
    (path or Path("r2med.toml")).write_text(f"[data]\n{text}\n")


def _fingerprints(*names: str) -> list[str]:
    return [r2med.load(name).fingerprint for name in names]


def test_a_task_is_read_from_the_folder_that_the_settings_name(copies):
    _settings('Biology = "dataset/Biology"')
    assert r2med.load("Biology").collection.queries == r2med.load("sample/Biology").collection.queries
    with pytest.raises(DataError, match="IIYi-Clinical"):
        r2med.load("IIYi-Clinical")


def test_one_line_names_a_folder_of_all_tasks(copies):
    _settings('full = "dataset"')
    assert _fingerprints("Biology", "IIYi-Clinical") == _fingerprints("sample/Biology", "sample/IIYi-Clinical")


def test_paths_start_at_the_file_that_holds_them(copies, monkeypatch):
    shutil.move(copies / "dataset", home() / "dataset")
    _settings('full = "dataset"', home() / "config.toml")
    assert _fingerprints("Biology") == _fingerprints("sample/Biology")


def test_a_run_on_a_copy_says_where_it_differs_from_what_was_published(copies):
    _settings('full = "dataset"')
    (result,) = r2med.evaluate("bm25", "Biology").results
    assert any("103 are published" in line for line in result.warnings)


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ('Biology = "nowhere"', r"nowhere: no such folder; \[data\] of the settings names it for Biology"),
        ('Biolog = "dataset/Biology"', r"no task or group 'Biolog'; did you mean Biology\?"),
        ("Biology = 3", "r2med.toml: data.Biology must be a text, not 3"),
    ],
)
def test_a_wrong_line_is_named(copies, line, message):
    _settings(line)
    with pytest.raises(R2medError, match=message):
        r2med.load("Biology")
