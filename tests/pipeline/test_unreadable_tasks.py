"""A task that cannot be read: its column is missing, the others are shown."""

import shutil

import orjson
import pytest
from click.testing import CliRunner

import r2med
from r2med.cli.main import app
from r2med.data.tasks import SAMPLE


@pytest.fixture
def folders(tmp_path):
    """Copy a task twice and break the second one."""
    for name in ("sound", "broken"):
        shutil.copytree(SAMPLE / "Biology", tmp_path / name)
    (tmp_path / "broken" / "qrels.jsonl").write_text("")
    return [str(tmp_path / "sound"), str(tmp_path / "broken")]


def test_a_task_that_cannot_be_read_costs_its_own_column_only(folders):
    done = CliRunner().invoke(app, ["run", "bm25", "--tasks", *folders])
    assert done.exit_code == 1
    assert "failed: broken: " in done.output
    assert "holds no rows" in done.output
    assert "37.16" in done.output
    found = orjson.loads(CliRunner().invoke(app, ["run", "bm25", "--tasks", *folders, "--json"]).stdout)
    assert [result["task"] for result in found["results"]] == folders[:1]
    assert [(failure["system"], failure["task"]) for failure in found["failures"]] == [("", folders[1])]


def test_there_is_no_average_over_the_tasks_that_are_left(folders):
    report = r2med.evaluate("bm25", folders)
    assert report.systems == ["bm25"]
    assert report.tasks("custom") == folders
    assert report.average("bm25", "custom", "nDCG@10") is None


def test_a_plan_says_which_task_cannot_be_read(folders):
    done = CliRunner().invoke(app, ["run", "bm25", "--tasks", *folders, "--dry-run"])
    assert done.exit_code == 0
    words = " ".join(done.output.split())  # long paths break the line anywhere
    assert "broken: cannot be read: " in words
    assert "to compute" in words


def test_run_files_of_the_other_tasks_are_scored(folders, tmp_path):
    for folder in ("sound", "broken"):
        shutil.copy(_lists(tmp_path), tmp_path / f"{folder}.trec")
    done = CliRunner().invoke(app, ["eval", str(tmp_path / "{task}.trec"), "--tasks", *folders])
    assert done.exit_code == 1
    assert "failed: broken: " in done.output
    assert "100.00" in done.output


def _lists(folder):
    """Write lists that are the judgements themselves."""
    file = folder / "lists.trec"
    rows = map(orjson.loads, (SAMPLE / "Biology" / "qrels.jsonl").read_bytes().splitlines())
    file.write_text("".join(f"{row['q_id']} Q0 {row['p_id']} 1 {row['score']} x\n" for row in rows))
    return file


def test_a_task_alone_that_cannot_be_read_is_an_error(folders):
    with pytest.raises(r2med.R2medError, match="holds no rows"):
        r2med.evaluate("bm25", folders[1])
