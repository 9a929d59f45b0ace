"""A spec that names a file, a folder or a class stands for the runs that were made with what these hold here."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest
from click.testing import CliRunner

import r2med
from needs import packages
from r2med.cli.main import app
from r2med.data.run import Run
from r2med.errors import R2medError
from r2med.pipeline.named_runs import select
from r2med.pipeline.system import System
from r2med.runs.ledger import Entry, Ledger
from r2med.runs.record import DataIdentity, RunRecord

A = "sample/Biology"
RERANKER = """
class Mine:
    def score(self, query, documents):
        return [{sign}1.0 * len(text) for text in documents]
"""
ENGINE = """
url = "http://localhost:1"
path = "search"
query = {{ q = "{{query}}", k = {depth} }}
[reply]
hits = "hits"
id = "id"
score = "score"
"""
SQL = "SELECT id, 1.0 AS score FROM {table} WHERE text LIKE %(query)s LIMIT %(k)s"


def shown(*arguments: str) -> str:
    """What a command prints, or the line that it ends in."""
    done = CliRunner().invoke(app, arguments)
    return str(done.exception) if isinstance(done.exception, R2medError) else done.output


def remember(spec: str, task: str = A) -> Entry:
    """Put a run of a system into the ledger as if it had been made with the files as they are now."""
    system = System.parse(spec)
    with Ledger() as ledger:
        record = RunRecord(data=DataIdentity("same"), local=system.local_content())
        key = f"{len(ledger.entries()):03d}{'f' * 29}"
        entry = Entry(key, system.spec, task, "sample", ("q",), 0.0, record)
        return ledger.add(entry, Run.from_lists({"q": (["d"], [1.0])}))


def chosen_id(spec: str) -> str:
    with Ledger() as ledger:
        [chosen] = select(ledger, [spec])
    return chosen.runs[A].id


FILES = {
    "replay": ("replay(texts.tsv) >> bm25", "texts.tsv", "q\tone\n", "q\ttwo\n"),
    "prompt": ("hyde(gpt-4o, prompt=p.txt) >> bm25", "p.txt", "Say {query}", "Tell {query}"),
    "rerank prompt": (
        "bm25 >> pointwise(gpt-4o, prompt=p.txt, mode=grade)",
        "p.txt",
        "{query} {passage}?",
        "{passage} {query}?",
    ),
    "script": (
        "hyde(scripted:s.toml) >> bm25",
        "s.toml",
        '[[rule]]\nreply = "one"\n',
        '[[rule]]\nreply = "two"\n',
    ),
    "engine": ("http(engine.toml)", "engine.toml", ENGINE.format(depth='"{k}"'), ENGINE.format(depth=3)),
    "sql": ("sql(find.sql)", "find.sql", SQL.format(table="a"), SQL.format(table="b")),
    "reranker": ("bm25 >> kept_rr:Mine", "kept_rr.py", RERANKER.format(sign="-"), RERANKER.format(sign="")),
    "function": (
        "kept_fn:search",
        "kept_fn.py",
        "def search(queries, k):\n    return [['a'] for _ in queries]\n",
        "def search(queries, k):\n    return [['b'] for _ in queries]\n",
    ),
    "inside": ("rrf(bm25, replay(texts.tsv) >> bm25)", "texts.tsv", "q\tone\n", "q\ttwo\n"),
}


@pytest.mark.parametrize("kind", FILES)
def test_a_spec_stands_for_the_content_that_its_file_has_here(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    spec, name, first, second = FILES[kind]
    monkeypatch.chdir(tmp_path)
    Path(name).write_text(first)
    one = remember(spec)
    assert chosen_id(spec) == one.id
    Path(name).write_text(second)
    with pytest.raises(R2medError) as error:
        chosen_id(spec)
    line = str(error.value)
    assert "\n" not in line
    assert str(tmp_path / name) in line
    assert one.created[:10] in line
    assert "r2med run" in line
    two = remember(spec)
    assert chosen_id(spec) == two.id
    Path(name).write_text(first)
    assert chosen_id(spec) == one.id
    with Ledger() as ledger:
        names = {entry.name for entry in ledger.entries()}
        assert len(names) == 2
        assert {select(ledger, [each])[0].runs[A].id for each in names} == {one.id, two.id}
    Path(name).unlink()
    if not name.endswith(".py"):  # what was imported stays in this process
        with pytest.raises(R2medError, match="2 contents") as several:
            chosen_id(spec)
        assert all(each in str(several.value) for each in names)


def test_a_spec_whose_files_are_elsewhere_is_found_if_it_was_run_with_one_content(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("texts.tsv").write_text("q\tone\n")
    one = remember("replay(texts.tsv) >> bm25")
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    assert chosen_id("replay(texts.tsv) >> bm25") == one.id


def test_two_contents_are_two_rows_and_every_verb_takes_the_one_here(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    spec = "replay(texts.tsv) >> bm25"
    queries = r2med.load(A).collection.queries
    means = {}
    for place, text in (("a", "mitochondria"), ("b", "zzz")):
        (tmp_path / place).mkdir()
        monkeypatch.chdir(tmp_path / place)
        Path("texts.tsv").write_text("".join(f"{query}\t{text} {words.split()[0]}\n" for query, words in queries))
        own, other = r2med.evaluate([spec, "bm25"], A).results
        means[place], base = own.metrics["nDCG@10"], other.metrics["nDCG@10"]
    assert means["a"] != means["b"]
    monkeypatch.chdir(tmp_path / "a")
    for _ in range(2):  # and again after the other one was asked for last
        [pair] = json.loads(shown("compare", "bm25", spec, "--tasks", A, "--json"))
        assert pair["overall"]["mean"] == pytest.approx(means["a"] - base)
        monkeypatch.chdir(tmp_path / "b")
        r2med.evaluate(spec, A)
        monkeypatch.chdir(tmp_path / "a")
    rows = json.loads(shown("board", "--tasks", A, "--format", "json"))["lines"]
    values = {row["name"]: row["values"][A] for row in rows if row["system"] == spec}
    assert sorted(values.values()) == pytest.approx(sorted(means.values()))
    assert len(values) == 2
    out = tmp_path / "mine.zip"
    assert A in shown("submit", spec, "--tasks", A, "--out", str(out))
    with zipfile.ZipFile(out) as archive:
        results = json.loads(archive.read("results.json"))["results"]
        texts = [archive.read(name).decode() for name in archive.namelist() if name.endswith(".json")]
    assert [row["metrics"]["nDCG@10"] for row in results] == pytest.approx([means["a"]])
    assert str(tmp_path) not in "".join(texts)


@packages("torch", "transformers")
def test_a_model_folder_of_another_project_is_another_system(tmp_path: Path) -> None:
    spec = "bm25 >> ./mine"
    for place in ("a", "b"):
        shutil.copytree(Path(__file__).parents[1] / "trained/reranker", tmp_path / place / "mine")
    safetensors = pytest.importorskip("safetensors.numpy")
    weights = tmp_path / "b" / "mine" / "model.safetensors"
    tensors = safetensors.load_file(weights)
    safetensors.save_file({name: -value for name, value in tensors.items()}, weights)

    def r2med_in(place: str, *arguments: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "r2med", *arguments]
        return subprocess.run(command, cwd=tmp_path / place, capture_output=True, text=True, check=False)

    scores = {}
    for place in ("a", "b"):
        done = r2med_in(place, "run", "bm25", spec, "--tasks", A, "--json")
        assert done.returncode == 0, done.stderr
        base, own = (each["metrics"]["nDCG@10"] for each in json.loads(done.stdout)["results"])
        scores[place] = own - base
    assert scores["a"] != scores["b"]
    for place in ("a", "b"):
        done = r2med_in(place, "compare", "bm25", spec, "--json")
        assert json.loads(done.stdout)[0]["overall"]["mean"] == pytest.approx(scores[place])


SPELLINGS = ["./mine", "mine", "mine/", "sub/../mine", "./sub/..//mine"]


@pytest.mark.parametrize("kind", ["reranker", "sparse", "late"])
def test_a_folder_has_one_spelling_in_a_spec(kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("sub").mkdir()
    shutil.copytree(Path(__file__).parents[1] / "trained" / kind, "mine")
    before = "bm25 >> " if kind == "reranker" else ""
    names = [*SPELLINGS, f"../{tmp_path.name}/mine"]
    assert len({System.parse(f"{before}{name}").spec for name in names}) == 1


def test_a_file_has_one_spelling_in_a_spec(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("sub").mkdir()
    for spec, name, content, _ in FILES.values():
        if name.endswith(".py"):
            continue
        Path(name).write_text(content)
        spellings = [name, f"./{name}", f"sub/../{name}", f"../{tmp_path.name}/{name}"]
        assert {System.parse(spec.replace(name, each)).spec for each in spellings} == {System.parse(spec).spec}


def test_a_link_is_followed_before_the_folder_above_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("far/deep").mkdir(parents=True)
    Path("link").symlink_to("far/deep")
    for name in ("texts.tsv", "far/texts.tsv"):
        Path(name).write_text("q\tone\n")
    assert System.parse("replay(link/../texts.tsv) >> bm25").spec == "replay(link/../texts.tsv) >> bm25"
