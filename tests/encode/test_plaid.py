"""PLAID: never imported beside a torch that it would crash with; exact scores, and a loss that stands by the figures.

fast-plaid cannot be installed beside the torch of these tests. What it does itself is tested in an interpreter that
has it (`R2MED_PLAID_PYTHON`, or this one). All else runs here, with a package in its place that has the same calls and
leaves out every third document.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from importlib import metadata
from pathlib import Path

import plaid_in_use
import pytest
from click.testing import CliRunner

import r2med
from needs import TRAINED
from r2med.cli.board import command as board_command
from r2med.cli.doctor import command as doctor_command
from r2med.cli.run import command as run_command
from r2med.encode.plaid import plaid_version
from r2med.errors import MissingExtra, SpecError
from r2med.pipeline.engine import Engine
from r2med.pipeline.stage import Context
from r2med.pipeline.system import System
from r2med.storage.cache import Cache
from spreading import as_bytes

TASK = "sample/Biology"
LATE = TRAINED / "late"
SOURCE = Path(r2med.__file__).parents[1]
VARIABLE = "R2MED_PLAID_PYTHON"
STAND_IN = """
import json
from pathlib import Path

import numpy as np
import torch

built = []


class FastPlaid:
    def __init__(self, index, device=None):
        self.folder = Path(index)

    def __enter__(self):
        return self

    def __exit__(self, *error):
        return None

    def create(self, documents_embeddings, kmeans_niters=4, max_points_per_centroid=256, nbits=4,
               n_samples_kmeans=None, seed=42, use_triton_kmeans=None, start_from_scratch=1000):
        assert all(part.dtype == torch.float16 for part in documents_embeddings)
        built.append(nbits)
        np.save(self.folder / "centroids.npy", np.zeros((16, 8), dtype=np.float16))
        (self.folder / "documents.json").write_text(json.dumps(len(documents_embeddings)))

    def freeze(self):
        print("not for standard output")

    def search(self, queries_embeddings, top_k, n_full_scores, n_ivf_probe, show_progress, n_processes):
        assert n_ivf_probe <= 16
        every = [place for place in range(json.loads((self.folder / "documents.json").read_text())) if place % 3]
        return [[(place, 0.0) for place in every[: 2 if n_ivf_probe == 1 else None]] for _ in queries_embeddings]
"""


def _install(folder: Path, version: str, code: str) -> Path:
    """A package that is found as fast-plaid is, by its metadata and its name."""
    module = folder / "fast_plaid" / "search" / "__init__.py"
    module.parent.mkdir(parents=True)
    module.write_text(code)
    about = folder / f"fast_plaid-{version}.dist-info"
    about.mkdir()
    (about / "METADATA").write_text(f"Metadata-Version: 2.4\nName: fast_plaid\nVersion: {version}\n")
    return folder


def _torch() -> str:
    return metadata.version("torch").partition("+")[0]


def _here() -> str:
    """How a fast-plaid for the torch of this interpreter ends."""
    return _torch().replace(".", "")


def _forget() -> None:
    for name in [name for name in sys.modules if name.split(".")[0] == "fast_plaid"]:
        del sys.modules[name]


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    """One for several tests, so that a text is encoded once."""
    return tmp_path_factory.mktemp("home")


@pytest.fixture
def stand_in(home, tmp_path, monkeypatch):
    _forget()
    monkeypatch.setenv("R2MED_HOME", str(home))
    monkeypatch.syspath_prepend(_install(tmp_path / "packages", f"1.7.0.{_here()}", STAND_IN))
    yield
    _forget()


@pytest.mark.parametrize(
    ("written", "spec"),
    [
        ("index=plaid", "index=plaid"),
        ("index=plaid()", "index=plaid"),
        ("index=plaid(nbits=2, nprobe=4)", "index=plaid(nbits=2, n_ivf_probe=4)"),
        ("rescore=3, index=plaid(seed=0, n_samples_kmeans=0)", "index=plaid(seed=0, n_samples_kmeans=0), rescore=3"),
    ],
)
def test_a_spec_prints_with_the_names_that_fast_plaid_has(written, spec):
    read = System.parse(f"colbert(colbertv2, {written})")
    assert read.spec == f"colbert(colbertv2, {spec})" == System.parse(read.spec).spec
    assert read.retriever == r2med.ColBERT("colbertv2", index="plaid") or spec != "index=plaid"


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ("index=palid", "unknown index 'palid' of late interaction; did you mean plaid?"),
        ("index=faiss", "unknown index 'faiss' of late interaction; known: plaid"),
        ("index=plaid(bits=4)", "plaid has no option 'bits'; it takes nbits, kmeans_niters, max_points_per_centroid"),
        ("index=plaid(4)", "options have names: nbits"),
        ("index=plaid(nbits=3)", "nbits must be 1, 2, 4 or 8, not 3"),
        ("index=plaid(nbits=two)", "nbits must be a whole number of 1 or more, not 'two'"),
        ("index=plaid(n_ivf_probe=0)", "n_ivf_probe must be a whole number of 1 or more, not 0"),
        ("index=plaid(seed=-1)", "seed must be a whole number of 0 or more, not -1"),
        ("index=plaid, depth=2000", "n_full_scores=4096 is too few for lists of 2000"),
        ("rescore=2", "rescore=2 needs index=plaid"),
        ("index=plaid, rescore=-1", "rescore must not be negative"),
    ],
)
def test_what_cannot_be_is_refused_at_once(options, said):
    with pytest.raises(SpecError) as refused:
        System.parse(f"colbert(colbertv2, {options})")
    assert said in str(refused.value)
    assert "\n" not in str(refused.value)


def test_a_dense_model_has_no_plaid_and_a_reranker_no_index():
    with pytest.raises(SpecError, match="unknown index 'plaid'; known: faiss, usearch"):
        System.parse("wordllama(index=plaid)")
    with pytest.raises(SpecError, match="index is for searching; after a retriever, colbert reranks"):
        System.parse("bm25 >> colbert(colbertv2, index=plaid)")


WRONG = "fast-plaid 1.7.0.990 works with torch 9.9.0 only, and torch {} is installed: pip install 'torch==9.9.0'"
REFUSED = {
    "1.7.0.990": WRONG,
    "1.2.0": "fast-plaid 1.2.0 does not say which torch it was built for: pip install 'r2med[plaid]'",
    "": "index=plaid needs fast-plaid, which works with one version of torch only: pip install 'r2med[plaid]'",
}


@pytest.mark.parametrize("version", REFUSED)
def test_one_line_says_what_to_install(version, tmp_path, monkeypatch):
    if version:
        monkeypatch.syspath_prepend(_install(tmp_path / "packages", version, "import os; os.abort()"))
    elif _usable():
        pytest.skip("fast-plaid is installed here")
    said = REFUSED[version].format(_torch())
    ran = CliRunner().invoke(run_command, [f"colbert({LATE}, index=plaid)", "--tasks", TASK], catch_exceptions=False)
    assert said in " ".join(ran.output.split())
    assert "Traceback" not in ran.output
    told = CliRunner().invoke(doctor_command, ["--json"], catch_exceptions=False).stdout
    assert json.loads(told)["extras"]["plaid"].startswith(said)


def test_what_would_end_the_process_is_not_imported(tmp_path):
    folder = _install(tmp_path / "packages", "1.7.0.990", "import os; os.abort()")
    ran = subprocess.run(
        [sys.executable, "-m", "r2med", "run", f"colbert({LATE}, index=plaid)", "--tasks", TASK],
        env=os.environ | {"PYTHONPATH": os.pathsep.join(map(str, (folder, SOURCE)))},
        capture_output=True,
        text=True,
        check=False,
    )
    assert WRONG.format(_torch()) in ran.stdout + ran.stderr
    assert ran.returncode == 1


def _plaid(options: str = "", rest: str = "") -> str:
    return f"colbert({LATE}, depth=10, index=plaid{options}{rest})"


EXACT, PLAID = f"colbert({LATE}, depth=10)", _plaid()


def _lists(spec):
    return System.parse(spec).run(r2med.load(TASK).collection, Context(Cache.default(), Engine()))


def test_scores_are_exact_and_what_is_lost_stands_beside_the_figures(stand_in, monkeypatch):
    collection = r2med.load(TASK).collection
    ran = CliRunner().invoke(run_command, [EXACT, PLAID, "--tasks", TASK, "--json"], catch_exceptions=False)
    lost = {row["system"]: row.get("recall_lost") for row in json.loads(ran.stdout)["results"]}
    exact, whole, found = map(_lists, (EXACT, f"colbert({LATE}, depth=1000)", PLAID))
    missed = 0
    for query, ranking in found:
        named = [name for name in whole[query].documents if collection.documents.position[name] % 3]
        assert list(ranking.documents) == named[:10]
        known = dict(zip(whole[query].documents, whole[query].scores.tolist(), strict=True))
        assert ranking.scores.tolist() == [known[name] for name in ranking.documents]
        missed += len(set(exact[query].documents) - set(ranking.documents))
    assert lost == {EXACT: None, PLAID: pytest.approx(missed / (10 * len(collection.queries)))}
    assert 0.1 < lost[PLAID] < 0.7
    [result] = r2med.evaluate(PLAID, TASK).results
    assert result.cached
    assert result.record.recall_lost == lost[PLAID], "the ledger has it"
    noted = result.record.notes[PLAID]
    assert noted["plaid"]["version"] == f"1.7.0.{_here()}"
    assert {name: noted["plaid"][name] for name in ("seed", "nbits", "n_ivf_probe")} == {
        "seed": 42,
        "nbits": 4,
        "n_ivf_probe": 8,
    }
    assert noted["index"] == "plaid"
    assert noted["searched_exactly"] == 0
    monkeypatch.setenv("COLUMNS", "200")
    shown = CliRunner().invoke(run_command, [PLAID, "--tasks", TASK], catch_exceptions=False).output
    assert f"{PLAID} ≈{100 * lost[PLAID]:.1f}" in shown
    ranked = CliRunner().invoke(board_command, ["--group", "sample", "--format", "json"], catch_exceptions=False)
    lines = {line["name"]: line.get("recall_lost") for line in json.loads(ranked.stdout)["lines"]}
    assert {name: lines[name] for name in lost} == lost


def test_one_index_serves_all_searches_and_every_setting_is_in_the_key(stand_in, tmp_path, monkeypatch):
    def entries() -> int:
        return len(list((Cache.default().root / "ann").iterdir()))

    same = [PLAID, _plaid(rest=", rescore=4"), _plaid("(n_ivf_probe=4, n_full_scores=500)")]
    assert not r2med.evaluate(same, TASK).failures
    assert entries() == 1
    other = [_plaid(option) for option in ("(nbits=2)", "(seed=0)", "(kmeans_niters=2)")]
    assert len({System.parse(spec).key() for spec in [*same, *other]}) == 6
    r2med.evaluate(other[0], TASK)
    assert entries() == 2
    before = System.parse(PLAID).key()
    _forget()
    monkeypatch.syspath_prepend(_install(tmp_path / "newer", f"1.8.0.{_here()}", STAND_IN))
    assert System.parse(PLAID).key() != before
    r2med.evaluate(PLAID, TASK)
    assert entries() == 3, "another version has an index of its own"


def test_queries_with_too_few_candidates_are_searched_exactly_and_that_is_said(stand_in):
    spec = _plaid("(n_ivf_probe=1)")
    [found] = r2med.evaluate(spec, TASK).results
    exact, queries = _lists(EXACT), len(r2med.load(TASK).collection.queries)
    assert as_bytes(_lists(spec)) == as_bytes(exact)
    assert found.record.notes[spec]["searched_exactly"] == queries
    said = f"plaid found fewer than 10 documents for {queries} of {queries} queries; these were searched exactly"
    assert any(said in sentence for sentence in found.record.warnings)


def _usable() -> bool:
    try:
        plaid_version()
    except MissingExtra:
        return False
    return True


@pytest.fixture
def plaid_python():
    """An interpreter in which fast-plaid works."""
    named = os.environ.get(VARIABLE, "")
    if not named and not _usable():
        pytest.skip(f"fast-plaid does not work with torch {_torch()}: {VARIABLE} names an interpreter where it does")
    return named or sys.executable


def test_fast_plaid_itself_finds_what_exact_search_does_and_is_the_same_every_time(plaid_python, tmp_path):
    def ran(*command):
        environment = os.environ | {"PYTHONPATH": str(SOURCE), "R2MED_HOME": str(tmp_path / "home")}
        done = subprocess.run([plaid_python, *command], env=environment, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)

    (tmp_path / "work").mkdir()
    found = ran(plaid_in_use.__file__, str(tmp_path / "work"))
    for promise in ("randomness kept", "same index again", "seed counts", "scores are exact", "unchanged by searching"):
        assert found[promise], promise
    assert found["lost"]["n_ivf_probe=1, rescore=30"] < found["lost"]["n_ivf_probe=1, rescore=1"]
    assert max(found["lost"][precision] for precision in ("int8", "float32")) < 0.1
    assert found["pickles"] == []
    assert found["odd"] == "plaid needs vectors of 8, 16, 24, ... numbers, and these have 12"
    assert found["tiny"].startswith("fast-plaid failed (")

    specs = [f"colbert({LATE})", f"colbert({LATE}, index=plaid)"]
    exact, near = ran("-m", "r2med", "run", *specs, "--tasks", TASK, "--json")["results"]
    assert near["metrics"] == exact["metrics"]
    assert near["recall_lost"] == 0
    [entry] = (tmp_path / "home" / "cache" / "ann").iterdir()
    (entry / "centroids.npy").write_bytes(b"not an index")
    again = ran("-m", "r2med", "run", specs[1], "--tasks", TASK, "--json", "--fresh")["results"][0]
    assert again["metrics"] == exact["metrics"], "a damaged index is built again"
