"""The registry against the published table, and what names, groups and folders stand for."""

from __future__ import annotations

import csv
import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner
from folders import SMALL, write_r2med

import needs
import r2med
from r2med.cli.main import app
from r2med.data.tasks import families, groups, registry, resolve, task
from r2med.errors import DataError


def test_there_are_eight_tasks_in_each_group():
    assert [len(groups()[group]) for group in ("full", "nano", "sample")] == [8, 8, 8]
    assert {each.base for each in groups()["full"]} == {each.base for each in groups()["nano"]}
    assert sum(each.queries for each in groups()["full"]) == sum(each.queries for each in groups()["nano"]) == 876
    assert sum(each.queries for each in groups()["sample"]) >= 64


def test_full_tasks_are_pinned():
    for each in groups()["full"]:
        assert each.hub == f"R2MED/{each.base}"
        assert re.fullmatch("[0-9a-f]{40}", each.revision)
        assert each.length_unit == "words"


def test_the_licence_of_the_card_and_that_of_the_source_are_told_alike_everywhere():
    names = ["Biology", "PMC-Clinical", "nano/PMC-Clinical", "sample/PMC-Clinical"]
    expected = [("CC BY 4.0", None), ("CC BY 4.0", "CC BY-NC-SA 4.0"), (None, "CC BY-NC-SA 4.0"), ("MIT", None)]
    printed = CliRunner().invoke(app, ["tasks", "show", *names, "--json"])
    assert [(each["licence"], each["source_licence"]) for each in json.loads(printed.output)] == expected
    shown = CliRunner().invoke(app, ["tasks", "show", *names], env={"COLUMNS": "80"}).output.splitlines()
    lines = [line for line in shown if line.startswith("licence")]
    assert lines == [
        "licence of full: CC BY 4.0 by the hub cards",
        "licence of the source of PMC-Clinical: CC BY-NC-SA 4.0",
        "licence of nano: not known",
        "licence of the source of nano/PMC-Clinical: CC BY-NC-SA 4.0",
        "licence of sample: MIT",
    ]
    assert {each.name for each in registry().values() if each.source_licence} == {"PMC-Clinical", "nano/PMC-Clinical"}


def test_no_licence_is_told_of_a_folder(tmp_path):
    write_r2med(tmp_path / "mine", SMALL)
    printed = CliRunner().invoke(app, ["tasks", "show", str(tmp_path / "mine")])
    assert printed.exit_code == 0, printed.output
    assert "licence of" not in printed.output


def test_the_registry_agrees_with_the_published_table():
    file = needs.facts("protocol.md")
    cells = [[cell.strip() for cell in line.strip("| \n").split("|")] for line in file.open(encoding="utf-8")]
    rows = {row[0]: row for row in cells if len(row) == 10 and row[0] in registry()}
    assert len(rows) == 8
    for name, row in rows.items():
        known = registry()[name]
        counts = [int(cell.replace(",", "")) for cell in row[3:6]]
        assert (known.family_title, known.scenario) == (row[1], row[2])
        assert [known.queries, known.documents, known.qrels] == counts
        assert round(known.qrels / known.queries, 1) == float(row[6])
        assert [known.query_length, known.document_length] == [float(cell) for cell in row[7:9]]
        assert known.revision == row[9]


def test_the_nano_tasks_agree_with_the_published_counts():
    file = needs.facts("nano_scores.csv")
    rows = {row["task"]: row for row in csv.DictReader(file.open(encoding="utf-8"))}
    nano = groups()["nano"]
    assert {each.split for each in nano} == set(rows)
    for each in nano:
        row = rows[each.split]
        expected = [int(row["queries"]), int(row["documents"]), int(row["positives"])]
        assert [each.queries, each.documents, each.qrels] == expected
        assert each.query_length == round(float(row["query_chars"]), 1)
        assert each.document_length == round(float(row["document_chars"]), 1)
        assert each.split == "NanoR2MED" + each.base.replace("-", "")


@pytest.mark.parametrize(
    ("name", "noun", "target", "purpose", "subject"),
    [
        (
            "Medical-Sciences",
            "Medical Science post",
            "relevant passages",
            "answer the post",
            "Medical Science paragraph",
        ),
        ("nano/MedQA-Diag", "Medical Exam", "relevant passages", "answer the exam", "Medical paragraph"),
        ("sample/PMC-Treatment", "Clinical Case", "relevant passages", "answer the case", "Medical paragraph"),
        ("IIYi-Clinical", "Clinical Case", "similar cases", "diagnose the case", "Clinical Case"),
    ],
)
def test_the_task_sentence(name, noun, target, purpose, subject):
    assert task(name).sentence == f"Given a {noun}, retrieve {target} that help {purpose}"
    assert task(name).subject == subject


@pytest.mark.parametrize(
    ("names", "expected"),
    [
        (["biology"], ["Biology"]),
        (["NANO/biology", "Biology", "nano/Biology"], ["nano/Biology", "Biology"]),
        (["clinical-case"], ["PMC-Clinical", "IIYi-Clinical"]),
        (["sample/Clinical-Case"], ["sample/PMC-Clinical", "sample/IIYi-Clinical"]),
        (["qa-reference", "Biology"], ["Biology", "Bioinformatics", "Medical-Sciences"]),
        ([], []),
    ],
)
def test_names_and_groups_in_any_case_each_task_once(names, expected):
    assert [each.name for each in resolve(names)] == expected


def test_no_file_is_left_open_by_the_registry():
    code = "from r2med.data.tasks import registry; registry()"
    done = subprocess.run(
        [sys.executable, "-W", "always::ResourceWarning", "-c", code], capture_output=True, text=True, check=True
    )
    assert "ResourceWarning" not in done.stderr


def test_families_make_up_the_group():
    for prefix, group in (("", "full"), ("nano/", "nano"), ("sample/", "sample")):
        assert sum(len(groups()[prefix + family]) for family in families()) == len(groups()[group]) == 8


@pytest.mark.parametrize(
    ("name", "suggestion"),
    [
        ("Bioligy", "Biology"),
        ("nano/Biolgy", "nano/Biology"),
        ("samples", "sample"),
        ("clinical-cases", "clinical-case"),
    ],
)
def test_an_unknown_name_suggests_the_nearest(name, suggestion):
    with pytest.raises(DataError, match=rf"no such task or folder: '{name}'; did you mean {suggestion}\?"):
        resolve([name])


@pytest.mark.parametrize(
    "name", ["", "\0", "x" * 5000, "nowhere/at/all", "~nobody-of-this-name/x", "\udcff", "./\udcff"]
)
def test_impossible_names_fail_in_one_line(name):
    with pytest.raises(DataError) as error:
        resolve([name])
    assert "\n" not in str(error.value)


def test_a_folder_whose_name_is_not_utf8_is_refused_in_one_line(tmp_path):
    folder = Path(os.fsdecode(os.fsencode(tmp_path) + b"/caf\xe9"))
    write_r2med(folder, SMALL)
    for source in (folder, str(folder), tmp_path):
        with pytest.raises(DataError, match=r"caf\\xe9: the name of the folder is not UTF-8; rename it"):
            r2med.evaluate("bm25", source)


def test_a_folder_is_a_custom_task(tmp_path):
    write_r2med(tmp_path / "mine", SMALL)
    (found,) = resolve([str(tmp_path / "mine")])
    assert (found.group, found.family, found.base, found.folder) == ("custom", "custom", "mine", tmp_path / "mine")
    assert found.sentence == "Given a question, retrieve relevant passages that help answer the question"
    assert resolve([found.name]) == [found]


def test_a_folder_with_the_name_of_a_task_has_its_words_but_not_its_group(tmp_path, monkeypatch):
    write_r2med(tmp_path / "PMC-Clinical", SMALL)
    (found,) = resolve([tmp_path / "PMC-Clinical"])
    assert (found.group, found.family, found.target) == ("custom", "clinical-case", "similar cases")
    assert (found.hub, found.documents) == ("", None)
    monkeypatch.chdir(tmp_path)
    assert resolve(["PMC-Clinical"])[0].group == "full"
    (near,) = resolve(["./PMC-Clinical"])
    assert near.group == "custom"
    assert near.name == str(tmp_path / "PMC-Clinical")
    assert [(task.name, task.group) for task in resolve([near.name, near, "./PMC-Clinical"])] == [(near.name, "custom")]


def test_a_folder_can_say_what_it_is(tmp_path):
    write_r2med(tmp_path, SMALL)
    (tmp_path / "task.toml").write_text(
        'family = "clinical-case"\nnoun = "Case"\ntarget = "cases"\npurpose = "treat it"\n'
    )
    (found,) = resolve([tmp_path])
    assert found.sentence == "Given a Case, retrieve cases that help treat it"
    assert found.family == "clinical-case"


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b'nuon = "x"', "unknown key 'nuon'; did you mean noun"),
        (b"noun = 5", "noun must be a non-empty string"),
        (b"\nnoun = x", r"task\.toml: cannot be read: .*line 2"),
        (b'noun = "\xff"', r"task\.toml: cannot be read"),
        (b"noun = " + b"[" * 3000, r"task\.toml: cannot be read"),
    ],
)
def test_a_wrong_task_file_is_one_line(tmp_path, content, message):
    write_r2med(tmp_path, SMALL)
    (tmp_path / "task.toml").write_bytes(content)
    with pytest.raises(DataError, match=message) as error:
        resolve([tmp_path])
    assert "\n" not in str(error.value)
