"""Submissions: what was packed verifies, and whatever is changed in it is found, by accident or on purpose."""

from __future__ import annotations

import io
import json
import os
import re
import subprocess
import sys
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import r2med
from r2med.cli.main import app
from r2med.errors import DataError, R2medError
from r2med.exchange import submission
from r2med.exchange.submission import (
    About,
    archive_bytes,
    own_digest,
    packed,
    read_archive,
    sha256,
    submit,
    unzipped,
    zipped,
)
from r2med.exchange.submissions import read_submissions
from r2med.exchange.verify import verify
from r2med.measure.metrics import Measure
from r2med.runs.ledger import Ledger

Change = Callable[[dict[str, Any]], None]


@pytest.fixture
def files() -> dict[str, bytes]:
    """The files of a good submission: two systems on two tasks."""
    r2med.evaluate(["bm25", "bm25-classic"], ["sample/Biology", "sample/MedQA-Diag"])
    with Ledger() as ledger:
        entries = [entry for entry in ledger.entries() if entry.group == "sample"]
        return packed(ledger, entries, About("A title", "Somebody"))


def sealed(files: dict[str, bytes]) -> dict[str, bytes]:
    """The files with a manifest that fits them: what a forger would write."""
    manifest = json.loads(files["manifest.json"])
    manifest["files"] = {
        name: {"sha256": sha256(content), "bytes": len(content)}
        for name, content in files.items()
        if name != "manifest.json"
    }
    manifest["sha256"] = own_digest(manifest)
    return {**files, "manifest.json": json.dumps(manifest).encode()}


def changed(files: dict[str, bytes], name: str, change: Change) -> dict[str, bytes]:
    """The files with one JSON file changed, and a manifest that fits."""
    content = json.loads(files[name])
    change(content)
    return sealed({**files, name: json.dumps(content).encode()})


def faults(files: dict[str, bytes], tmp_path: Path) -> list[str]:
    path = tmp_path / "submission.zip"
    path.write_bytes(archive_bytes(files))
    return list(verify(path).faults)


def test_what_was_packed_verifies(tmp_path: Path) -> None:
    report = r2med.evaluate(["bm25", "bm25-classic"], "sample")
    out = tmp_path / "folder" / "s.zip"
    with Ledger() as ledger:
        about = About("A title", "Somebody", "https://x.org", "n")
        entries, _ = submit(ledger, ["bm25", "bm25-classic"], out, about)
    found = verify(out)
    assert found.ok, found.faults
    assert len(entries) == len(found.results) == 16
    assert found.figures == 16 * 6
    assert found.description.title == "A title"
    assert [system.system for system in found.description.systems] == ["bm25", "bm25-classic"]
    assert found.description.systems[0].versions.r2med == r2med.__version__
    results = json.loads(read_archive(out)["results.json"])
    for system in ("bm25", "bm25-classic"):
        mean = report.average(system, "sample", "nDCG@10")
        assert results["averages"]["sample"][system]["nDCG@10"] == pytest.approx(mean)


def test_a_system_without_a_task_has_no_average(files: dict[str, bytes], tmp_path: Path) -> None:
    assert faults(files, tmp_path) == []
    assert json.loads(files["results.json"])["averages"] == {}


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=80)
@given(data=st.data())
def test_any_changed_byte_is_found(files: dict[str, bytes], tmp_path: Path, data: st.DataObject) -> None:
    whole = archive_bytes(files)
    place = data.draw(st.integers(0, len(whole) - 1))
    flip = data.draw(st.integers(1, 255))
    damaged = bytearray(whole)
    damaged[place] ^= flip
    path = tmp_path / "damaged.zip"
    path.write_bytes(bytes(damaged))
    assert not verify(path).ok


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=20)
@given(data=st.data())
def test_what_is_cut_off_or_added_is_found(files: dict[str, bytes], tmp_path: Path, data: st.DataObject) -> None:
    whole = archive_bytes(files)
    cut = data.draw(st.integers(0, len(whole) - 1))
    path = tmp_path / "damaged.zip"
    for content in (whole[:cut], whole + b"\0", b"\0" + whole, whole[:cut] + whole[cut + 1 :]):
        path.write_bytes(content)
        assert not verify(path).ok


def test_a_packed_file_is_the_same_bytes_every_time(files: dict[str, bytes], tmp_path: Path) -> None:
    assert archive_bytes(files) == archive_bytes(dict(files))
    path = tmp_path / "s.zip"
    path.write_bytes(archive_bytes(files))
    assert read_archive(path) == files


def raise_score(content: dict[str, Any]) -> None:
    content["results"][0]["metrics"]["nDCG@10"] += 0.01


def one_more_query(content: dict[str, Any]) -> None:
    content["results"][0]["queries"] += 1


def fewer_documents(content: dict[str, Any]) -> None:
    content["results"][0]["documents"] = 3


def other_data(content: dict[str, Any]) -> None:
    content["results"][0]["data"]["fingerprint"] = "0" * 32


def invented_average(content: dict[str, Any]) -> None:
    content["averages"] = {"sample": {"bm25": {"nDCG@10": 0.9}}}


def other_task(content: dict[str, Any]) -> None:
    content["results"][0]["task"] = "../../etc"


def other_group(content: dict[str, Any]) -> None:
    content["results"][0]["group"] = "full"


def no_figures(content: dict[str, Any]) -> None:
    content["results"][0]["metrics"] = {}


def text_for_a_figure(content: dict[str, Any]) -> None:
    content["results"][0]["metrics"]["nDCG@10"] = "0.9"


def unknown_measure(content: dict[str, Any]) -> None:
    content["results"][0]["metrics"]["Glory@10"] = 1.0


def other_spelling(content: dict[str, Any]) -> None:
    content["results"][0]["metrics"]["ndcg_at_5"] = 0.1


def no_results(content: dict[str, Any]) -> None:
    content["results"] = []


def not_objects(content: dict[str, Any]) -> None:
    content["results"] = ["bm25"]


def twice(content: dict[str, Any]) -> None:
    content["results"][1] = {**content["results"][0], "file": content["results"][1]["file"]}


def another_file(content: dict[str, Any]) -> None:
    content["results"][0]["file"] = "results.json"


def swapped_files(content: dict[str, Any]) -> None:
    one, two = content["results"][0], content["results"][2]
    one["file"], two["file"] = two["file"], one["file"]


def odd_system(content: dict[str, Any]) -> None:
    content["results"][0]["system"] = []


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (raise_score, "nDCG@10 is stated as"),
        (one_more_query, "queries are stated, there are 9"),
        (fewer_documents, "3 documents are stated, there are 64"),
        (other_data, "was measured on other data"),
        (invented_average, "the averages are not those of its results"),
        (other_task, "no task of that name"),
        (other_group, "no task of that name in the group 'full'"),
        (no_figures, "no figures are stated"),
        (text_for_a_figure, "results[0].metrics.nDCG@10 must be a number, not '0.9'"),
        (unknown_measure, "unknown measure 'Glory@10'"),
        (other_spelling, "measures are not named as r2med names them"),
        (no_results, "has no results"),
        (not_objects, "results[0] must be a table, not 'bm25'"),
        (twice, "has several results of a system on one task"),
        (another_file, "does not name every run file once"),
        (swapped_files, "its lists"),
        (odd_system, "results[0].system must be a text, not []"),
    ],
)
def test_a_forged_result_is_found_though_the_manifest_fits(
    files: dict[str, bytes], tmp_path: Path, change: Change, said: str
) -> None:
    found = faults(changed(files, "results.json", change), tmp_path)
    assert any(said in fault for fault in found), found
    assert all("\n" not in fault for fault in found)


def test_a_false_average_of_a_whole_group_is_found(tmp_path: Path) -> None:
    r2med.evaluate("bm25", "sample")
    with Ledger() as ledger:
        files = packed(ledger, ledger.entries(), About())
    assert faults(files, tmp_path) == []

    def better(content: dict[str, Any]) -> None:
        content["averages"]["sample"]["bm25"]["nDCG@10"] += 0.001

    def gone(content: dict[str, Any]) -> None:
        del content["averages"]["sample"]["bm25"]

    def odd(content: dict[str, Any]) -> None:
        content["averages"] = [1]

    assert faults(changed(files, "results.json", better), tmp_path) == [
        "results.json: the average sample bm25 nDCG@10 is not that of its results"
    ]
    assert "are not those of its results" in faults(changed(files, "results.json", gone), tmp_path)[0]
    assert "averages must be a table, not [1]" in faults(changed(files, "results.json", odd), tmp_path)[0]


def run_name(files: dict[str, bytes]) -> str:
    return next(name for name in files if name.startswith("runs/"))


@pytest.mark.parametrize(
    ("line", "said"),
    [
        (b'{"id": "nobody", "topk_pid": [["x", 1.0]]}\n', "which the task does not have"),
        (b'{"id": "x"\n', "runs/"),
        (b"", "holds no query"),
        (b"\xff\xfe", "runs/"),
    ],
)
def test_other_lists_are_found(files: dict[str, bytes], tmp_path: Path, line: bytes, said: str) -> None:
    found = faults(sealed({**files, run_name(files): zipped(line)}), tmp_path)
    assert len(found) == 1
    assert said in found[0]


def test_a_document_that_is_listed_twice_is_found(files: dict[str, bytes], tmp_path: Path) -> None:
    name = run_name(files)
    lines = unzipped(files[name], name).splitlines()
    first = json.loads(lines[0])
    first["topk_pid"].append(first["topk_pid"][0])
    content = b"\n".join([json.dumps(first).encode(), *lines[1:]])
    assert "repeats a document" in faults(sealed({**files, name: zipped(content)}), tmp_path)[0]


def another_version(files: dict[str, bytes]) -> None:
    """State another version in the manifest of a submission."""
    files["manifest.json"] = json.dumps(json.loads(files["manifest.json"]) | {"version": 99}).encode()


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda files: files.pop("manifest.json"), "manifest.json is missing"),
        (lambda files: files.pop("results.json"), "does not list exactly the files"),
        (lambda files: files.update(extra=b"1"), "does not list exactly the files"),
        (lambda files: files.update({"results.json": b"{}"}), "results.json: was changed"),
        (lambda files: files.update({"manifest.json": b"[]"}), "manifest.json: must be a table"),
        (lambda files: files.update({"manifest.json": b"{"}), "not readable as JSON"),
        (lambda files: files.update({"manifest.json": b"{}"}), "not that of a r2med submission"),
        (another_version, "manifest.json: made by another version of r2med (format 99, this version has 1); pack it"),
    ],
)
def test_the_manifest_is_held_against_the_files(
    files: dict[str, bytes], tmp_path: Path, change: Callable[[dict[str, bytes]], object], said: str
) -> None:
    change(files)
    assert said in faults(files, tmp_path)[0]


def test_a_changed_word_of_the_manifest_itself_is_found(files: dict[str, bytes], tmp_path: Path) -> None:
    later = files["manifest.json"].replace(b'"created": "20', b'"created": "21')
    assert later != files["manifest.json"]
    assert "its own digest is another" in faults({**files, "manifest.json": later}, tmp_path)[0]


def test_a_spec_is_never_built(files: dict[str, bytes], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "evil_module.py").write_text("import pathlib; pathlib.Path('ran').touch()\nclass Encoder: pass\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.chdir(tmp_path)

    def results(content: dict[str, Any]) -> None:
        for row in content["results"]:
            row["system"] = row["system"].replace("bm25", "evil_module:Encoder")

    def systems(content: dict[str, Any]) -> None:
        for row in content["systems"]:
            row["system"] = row["system"].replace("bm25", "evil_module:Encoder")

    forged = changed(changed(files, "results.json", results), "submission.json", systems)
    faults(forged, tmp_path)
    assert not (tmp_path / "ran").exists()


@pytest.mark.parametrize(
    "spec", ["oracle-answer >> bm25", "rrf(oracle-answer >> bm25, bm25)", "rrf(bm25, oracle-answer())"]
)
def test_an_oracle_is_no_submission(files: dict[str, bytes], tmp_path: Path, spec: str) -> None:
    def results(content: dict[str, Any]) -> None:
        for row in content["results"]:
            row["system"] = spec if row["system"] == "bm25" else row["system"]

    def systems(content: dict[str, Any]) -> None:
        content["systems"][0]["system"] = spec

    forged = changed(changed(files, "results.json", results), "submission.json", systems)
    assert any("is shown the answers" in fault for fault in faults(forged, tmp_path))
    r2med.evaluate("oracle-answer >> bm25", "sample/Biology")
    with Ledger() as ledger, pytest.raises(R2medError, match="cannot be submitted"):
        submit(ledger, ["oracle-answer >> bm25"], tmp_path / "o.zip", About())


def test_own_data_cannot_be_submitted(tmp_path: Path) -> None:
    folder = tmp_path / "mine"
    folder.mkdir()
    (folder / "query.jsonl").write_text('{"id": "q", "text": "cat"}\n')
    (folder / "corpus.jsonl").write_text('{"id": "a", "text": "cat"}\n')
    (folder / "qrels.jsonl").write_text('{"q_id": "q", "p_id": "a", "score": 1}\n')
    r2med.evaluate("bm25", str(folder))
    with Ledger() as ledger, pytest.raises(R2medError, match="on this machine only"):
        submit(ledger, ["bm25"], tmp_path / "s.zip", About())
    r2med.evaluate("bm25", "sample/Biology")
    with Ledger() as ledger, pytest.raises(R2medError, match="on this machine only"):
        submit(ledger, ["bm25"], tmp_path / "s.zip", About(), ["sample/Biology", str(folder)])
    assert not (tmp_path / "s.zip").exists()
    done = CliRunner().invoke(app, ["submit", "bm25", "--out", str(tmp_path / "s.zip")])
    assert done.exit_code == 0
    assert "left out: runs on mine" in done.stderr
    assert [row.task for row in verify(tmp_path / "s.zip").results] == ["sample/Biology"]


def test_a_submitted_system_has_the_name_that_it_is_given(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    r2med.evaluate(["bm25", "bm25-classic"], "sample/Biology")
    Path("study.toml").write_text(
        '[[system]]\nname = "Plain"\nspec = "bm25"\n[[system]]\nname = "Old"\nspec = "bm25-classic"\n'
    )
    for out, words in (
        ("named", ["bm25", "--name", "Ours", "--title", "Team A"]),
        ("titled", ["bm25", "--title", "Team B"]),
        ("study", ["study.toml", "--title", "Team C"]),
    ):
        done = CliRunner().invoke(app, ["submit", *words, "--out", f"subs/{out}.zip"])
        assert done.exit_code == 0, done.output
    with Ledger(tmp_path / "aside.sqlite") as aside:
        titles = read_submissions(tmp_path / "subs", aside, Measure.parse("nDCG@10")).titles()
    assert sorted(titles.values()) == ["Old", "Ours", "Plain", "Team B"]
    refused = CliRunner().invoke(app, ["submit", "bm25", "bm25-classic", "--name", "x", "--out", "x.zip"])
    assert "one name cannot stand for 2 systems" in str(refused.exception)


def make_zip(path: Path, members: dict[str, bytes], how: int = zipfile.ZIP_STORED) -> Path:
    with zipfile.ZipFile(path, "w", how) as made:
        for name, content in members.items():
            made.writestr(zipfile.ZipInfo(name) if how == zipfile.ZIP_STORED else name, content)
    return path


@pytest.mark.parametrize(
    "name",
    ["../outside", "/etc/passwd", "runs/../../outside", "a\\..\\b", "C:/x", "runs//x", ".hidden", "x/", "a\tb", "ü"],
)
def test_names_that_lead_elsewhere_are_refused(tmp_path: Path, name: str) -> None:
    path = make_zip(tmp_path / "s.zip", {name: b"x"})
    with pytest.raises(DataError, match="refused for the name"):
        read_archive(path)
    assert sorted(each.name for each in tmp_path.iterdir()) == ["s.zip"], "nothing was unpacked"


def test_bombs_are_refused_before_they_grow(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    bomb = make_zip(tmp_path / "bomb.zip", {"manifest.json": b"0" * 10_000_000}, zipfile.ZIP_DEFLATED)
    with pytest.raises(DataError, match="is compressed or encrypted"):
        read_archive(bomb)
    monkeypatch.setattr(submission, "MOST_BYTES", 1 << 20)
    with pytest.raises(DataError, match="more than 1 MB when unzipped"):
        unzipped(zipped(b"0" * 5_000_000), "runs/x")
    large = make_zip(tmp_path / "large.zip", {"x": b"0" * 2_000_000})
    with pytest.raises(DataError, match="more than 1 MB, which no submission needs"):
        read_archive(large)
    monkeypatch.setattr(submission, "MOST_MEMBERS", 3)
    with pytest.raises(DataError, match="4 files in it"):
        read_archive(make_zip(tmp_path / "many.zip", dict.fromkeys("abcd", b"")))


def test_members_that_overlap_or_repeat_are_refused(tmp_path: Path) -> None:
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w") as made:
        made.writestr(zipfile.ZipInfo("a"), b"one")
        with pytest.warns(UserWarning, match="Duplicate name"):
            made.writestr(zipfile.ZipInfo("a"), b"two")
    path = tmp_path / "s.zip"
    path.write_bytes(stream.getvalue())
    with pytest.raises(DataError, match="a name appears twice"):
        read_archive(path)
    claims = bytearray(archive_bytes({"a": b"x" * 50}))
    place = claims.rindex(b"PK\x01\x02")
    claims[place + 20 : place + 28] = (10**6).to_bytes(4, "little") * 2
    path.write_bytes(bytes(claims))
    with pytest.raises(DataError, match="claims to hold more than it is long"):
        read_archive(path)


@pytest.mark.parametrize("content", [b"", b"PK", b"not a zip", b"\x1f\x8b" * 20])
def test_what_is_no_zip_is_one_line(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "s.zip"
    path.write_bytes(content)
    [fault] = verify(path).faults
    assert "not a whole zip file" in fault
    assert "\n" not in fault


@pytest.mark.parametrize("data", [b"", b"x", zipped(b"abc")[:-3], zipped(b"abc") + b"more"])
def test_damaged_gzip_is_refused(data: bytes) -> None:
    with pytest.raises(DataError, match="runs/x: "):
        unzipped(data, "runs/x")


def command(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "r2med", *arguments],
        capture_output=True,
        text=True,
        encoding="utf-8",
        env={**os.environ, "NO_COLOR": "1"},
        timeout=120,
        check=False,
    )


def test_the_commands_and_their_exit_codes(files: dict[str, bytes], tmp_path: Path) -> None:
    out = tmp_path / "s.zip"
    done = command("submit", "bm25", "--out", str(out), "--title", "Ours \x1b[31m")
    assert done.returncode == 0, done.stderr
    assert "2 runs, 12 figures verified" in done.stdout
    good = command("verify", str(out))
    assert good.returncode == 0
    assert "title: Ours \N{REPLACEMENT CHARACTER}[31m" in good.stdout, "a stranger's text is not obeyed"
    assert "verified; 2 runs, 12 figures computed anew" in good.stdout
    forged = changed(files, "results.json", raise_score)
    out.write_bytes(archive_bytes(forged))
    bad = command("verify", str(out), "--json")
    assert bad.returncode == 1
    assert json.loads(bad.stdout)["ok"] is False
    assert "NOT as stated" in command("verify", str(out)).stdout
    missing = command("verify", str(tmp_path / "nowhere.zip"))
    assert missing.returncode == 1
    assert "cannot be read (No such file or directory)" in missing.stdout
    assert command("submit", "bge", "--out", str(out)).returncode == 1


@pytest.mark.parametrize(
    ("name", "change", "said"),
    [
        (
            "results.json",
            lambda c: c["results"][0].update(cost="free"),
            "cost must be a table, not .free.",
        ),
        (
            "results.json",
            lambda c: c["results"][0]["cost"].update(dollars="0"),
            "dollars must be a number of at least 0",
        ),
        (
            "results.json",
            lambda c: c["results"][0]["cost"].update(seconds=-1),
            "seconds must be a number of at least 0",
        ),
        ("results.json", lambda c: c["results"][0].update(incomplete=True), "incomplete must be a whole number"),
        ("submission.json", lambda c: c["systems"][0].update(versions=[1]), "versions must be a table"),
        ("submission.json", lambda c: c["systems"][0].update(stages={"a": 1}), "stages must be a list of tables"),
        ("submission.json", lambda c: c["systems"][0].update(stages=[7]), r"stages\[0\] must be a table, not 7"),
        ("submission.json", lambda c: c.update(title=["a"]), "title must be a text"),
        ("submission.json", lambda c: c.update(authors=None), "authors must be a text"),
        (
            "submission.json",
            lambda c: c.update(notes="x" * 3 * 10**6),
            "notes must be a text of at most 10,000 characters",
        ),
    ],
)
def test_every_fact_has_the_type_that_it_should(files, name, change, said, tmp_path: Path) -> None:
    (fault,) = faults(changed(files, name, change), tmp_path)
    assert re.search(said, fault)
