"""Broken files and surroundings that parsers and libraries have no words for: one line, no traceback."""

import gzip
import subprocess
import sys

import pytest

import r2med
from r2med.data import formats
from r2med.data.tasks import SAMPLE
from r2med.data.validate import validate
from r2med.engines.request import read_request


@pytest.mark.parametrize(
    "words", ["tasks", "--help", "run bm25 --tasks sample/Biology", "tasks validate sample/Biology"]
)
@pytest.mark.parametrize("closed", [">&-", "2>&-", ">&- 2>&-"])
def test_closed_streams_are_not_an_error(words, closed):
    done = subprocess.run(
        ["sh", "-c", f'"$0" -m r2med {words} {closed}', sys.executable], capture_output=True, text=True
    )
    assert done.returncode == 0
    assert "Traceback" not in done.stderr


def copied(folder, **files):
    """Write the files of a task, some of them with other content."""
    for name in ("corpus.jsonl", "query.jsonl", "qrels.jsonl"):
        content = files.get(name.partition(".")[0], (SAMPLE / "Biology" / name).read_bytes())
        (folder / name).write_bytes(content)
    return folder


@pytest.mark.parametrize("line", [b"[" * 500, b'{"id": ' + b"[" * 5000])
def test_a_line_of_brackets_is_a_broken_line_and_the_rest_is_checked(tmp_path, line):
    whole = (SAMPLE / "Biology" / "corpus.jsonl").read_bytes()
    folder = copied(tmp_path, corpus=whole + line + b"\nnot json\n")
    found = [(problem.code, problem.line) for problem in validate(folder).problems]
    assert found == [("broken-json", 65), ("broken-json", 66)]
    with pytest.raises(r2med.R2medError, match=r"corpus\.jsonl:65: not JSON: (brackets are|depth limit)"):
        r2med.load(folder)


@pytest.mark.parametrize("name", ["corpus.jsonl.gz", "qrels.tsv.gz", "query.jsonl.gz"])
def test_a_line_without_end_is_not_read_whole(tmp_path, monkeypatch, name):
    monkeypatch.setattr(formats, "_LONGEST", 1 << 20)
    folder = copied(tmp_path)
    (folder / name.replace(".tsv", ".jsonl").removesuffix(".gz")).unlink()
    (folder / name).write_bytes(gzip.compress(b"x" * (5 << 20)))
    (problem,) = [each for each in validate(folder).problems if each.code == "damaged-file"]
    assert "longer than 1 MB without an end of line" in problem.message


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ("a = " + "[" * 1200, "not readable as TOML"),
        ("a = " + "9" * 5000, "4300 digits"),
        (
            'reply = {hits = "h", id = "i"}\n[query]\nk = 123456789012345678901234567890\ntext = "$query"',
            "cannot be sent as JSON",
        ),
    ],
)
def test_an_engine_file_that_cannot_be_used_is_one_line(tmp_path, content, said):
    (tmp_path / "engine.toml").write_text(content)
    with pytest.raises(r2med.R2medError, match=said):
        read_request(str(tmp_path / "engine.toml"), vector=False)


@pytest.mark.parametrize("system", ["hyde(tiny@http://{host}/v1) >> bm25", "http(solr, url=http://{host}, index=x)"])
def test_a_host_that_cannot_be_a_name_is_one_line(own_home, system):
    report = r2med.evaluate(system.format(host="a" * 80 + ".org"), "sample/MedQA-Diag")
    (failed,) = report.failures
    assert "is not the address of a server" in str(failed)


@pytest.mark.parametrize("limit", [14, 15, 17])
def test_too_few_descriptors_for_a_language_model_are_one_line(own_home, limit):
    words = "run 'hyde(tiny@http://127.0.0.1:9/v1) >> bm25' --tasks sample/Biology --retries 0"
    command = f"ulimit -n {limit}; {sys.executable} -m r2med {words}"
    done = subprocess.run(["bash", "-c", command], capture_output=True, text=True, check=False)
    assert "Traceback" not in done.stderr
    assert "never awaited" not in done.stderr
