"""`r2med nano` as a person meets it."""

from __future__ import annotations

import json

import pytest
from sources import folder

from cli.test_cli import complaint, r2med


def test_build_profile_agree(tmp_path):
    source, out = folder(tmp_path / "mine", documents=80), tmp_path / "out"
    size = ("--docs", "30", "--dense", "bm25-classic")
    hard = ("--policy", "hard", "--hard-systems", "bm25", "bm25-classic")
    done = r2med("nano", "build", str(source), "--out", str(out), *hard, *size)
    assert done.returncode == 0, done.stderr
    assert "NanoMine: 6 queries, 30 documents, 12 positives" in done.stdout
    shown = r2med("nano", "profile", str(out), columns=140)
    assert "NanoMine" in shown.stdout
    assert "macro" in shown.stdout
    profiles = json.loads(r2med("nano", "profile", str(out), "--json").stdout)
    assert set(profiles[0]["averages"]["macro"]) == {"bm25", "dense", "hybrid"}
    systems = ("bm25", "bm25-classic(k1=0, b=0)", "rrf(bm25, bm25-classic)")
    found = json.loads(r2med("nano", "agree", str(out), str(source), "--systems", *systems, "--json").stdout)
    assert [each["system"] for each in found["tasks"][0]["shifts"]] == list(systems)
    table = r2med("nano", "agree", str(out), str(source), "--systems", *systems, columns=140).stdout
    header = next(line for line in table.splitlines() if "shift" in line).split()
    assert header == ["system", "nano", "full", "shift", "95%"]
    assert "Spearman" in table
    assert "Kendall" in table


def test_json_of_a_build_is_the_manifest(tmp_path):
    done = r2med("nano", "build", "sample/Biology", "--out", str(tmp_path / "out"), "--docs", "40", "--json")
    found = json.loads(done.stdout)
    assert found == {"folder": str(tmp_path / "out"), **json.loads((tmp_path / "out/nano.json").read_text())}


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (("--docs", "40", "--seed", "1"), "--seed goes with --policy random"),
        (("--docs", "40", "--hard-systems", "bm25"), "--hard-systems goes with --policy hard"),
        ((), "only 64 documents with a text of their own, 10,000 are asked for"),
        (("--docs", "40", "--dense", "nope"), "unknown stage 'nope'"),
        (("--docs", "0",), "0 is not in the range"),
    ],
)  # fmt: skip
def test_wrong_calls_are_one_line(tmp_path, args, message):
    line = complaint("nano", "build", "sample/Biology", "--out", str(tmp_path / "out"), *args)
    assert message in line
    assert list(tmp_path.iterdir()) == []


def test_wrong_sets_are_one_line(tmp_path):
    assert "has no candidate lists" in complaint("nano", "profile", str(folder(tmp_path / "mine")))
    assert "no such folder" in complaint(
        "nano", "agree", str(tmp_path / "x"), "sample", "--systems", "bm25", "bm25-classic"
    )
