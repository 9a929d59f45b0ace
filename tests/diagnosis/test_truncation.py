"""How a figure moves with truncation: every limit is a run, compared with the longest one by query."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner

import r2med
from r2med.cli.main import app
from r2med.comparison.study import compare
from r2med.data.tasks import resolve
from r2med.diagnosis.charts import sensitivity_chart
from r2med.diagnosis.truncation import at_length, measure_sensitivity
from r2med.errors import R2medError, SpecError
from r2med.measure.metrics import Measure
from r2med.pipeline.registry import build_system
from r2med.runs.ledger import Ledger

TASKS = ("sample/Biology", "sample/MedQA-Diag")
NDCG = Measure("nDCG", 10)


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory):
    """A home that all tests share: the runs are made once."""
    folder = tmp_path_factory.mktemp("home")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("R2MED_HOME", str(folder))
        yield folder


def invoke(*words: str):
    return CliRunner().invoke(app, words)


def test_every_limit_is_a_run_compared_with_the_longest_by_query(home: Path) -> None:
    found = measure_sensitivity("wordllama", [64, 8, 256, 64], resolve(TASKS), NDCG)
    assert [figure.max_length for figure in found.figures] == [8, 64, 256]
    report = r2med.evaluate([f"wordllama(max_length={limit})" for limit in (8, 64, 256)], list(TASKS))
    assert all(result.cached for result in report.results), "the same runs, from the ledger"
    for figure in found.figures:
        assert figure.score == pytest.approx(report.average(figure.system, "sample", "nDCG@10"))
    with Ledger() as ledger:
        for figure in found.figures[:-1]:
            [same] = compare(ledger, [found.longest.system, figure.system], tasks=TASKS)
            assert figure.difference == same.overall
            assert figure.by_task == same.tasks
            assert figure.holm >= same.overall.randomisation
    assert found.longest.difference is None
    cuts = [figure.documents_cut for figure in found.figures]
    assert cuts == sorted(cuts, reverse=True)
    assert (cuts[0], cuts[-1]) == (1.0, 0.0)
    assert found.figures[0].differs
    assert found.sentences[0].startswith("8 tokens instead of 256: -")


def test_the_same_figures_stand_in_the_terminal_in_json_and_in_the_plot(home: Path, tmp_path: Path) -> None:
    words = ("sensitivity", "wordllama", "--max-length", "8,64,256", "--tasks", *TASKS)
    told = json.loads(invoke(*words, "--json").stdout)
    shown = invoke(*words, "--plot", str(tmp_path / "plot.svg")).stdout
    for length in told["lengths"]:
        assert f"{100 * length['score']:.2f}" in shown
        if length["difference"]:
            assert f"{100 * length['difference']['low']:+.2f} to {100 * length['difference']['high']:+.2f}" in shown
    found = measure_sensitivity("wordllama", [8, 64, 256], resolve(TASKS), NDCG)
    [(_, [mean, *others])] = sensitivity_chart(found).panels
    assert mean.y == pytest.approx([100 * length["score"] for length in told["lengths"]])
    assert (mean.low[-1], mean.high[-1]) == pytest.approx((mean.y[-1], mean.y[-1])), "the longest is what it is"
    assert [line.name for line in others] == list(TASKS)
    drawn = (tmp_path / "plot.svg").read_text()
    assert ">256<" in drawn
    assert "tokens read" in drawn


def test_the_limit_is_set_in_every_stage_that_has_one() -> None:
    system = at_length(build_system("rrf(bm25, minilm(dim=64)) >> ms-marco-minilm(depth=5)"), 100)
    assert str(system) == "rrf(bm25, minilm(dim=64, max_length=100)) >> ms-marco-minilm(depth=5, max_length=100)"
    assert str(at_length(build_system("splade-v3"), 128)) == "splade-v3(max_length=128)"
    assert str(at_length(build_system("bm25 >> colbert(colbertv2)"), 99)).endswith("document_length=99)")


SHORT_SIGHTED = """
import numpy as np

class Letters:
    \"\"\"Counts letters of the first words, and has places for 512 of them.\"\"\"

    def __init__(self, max_length=512):
        if max_length > 512:
            raise ValueError(f"places for 512 words, not for {max_length}")
        self.max_length = max_length

    def encode_queries(self, texts):
        cut = [" ".join(text.split()[: self.max_length]).lower() for text in texts]
        return np.array([[1 + text.count(letter) for letter in "abcdefghijklmnop"] for text in cut], dtype=np.float32)

    encode_documents = encode_queries
"""


def test_a_limit_beyond_the_model_is_said_and_left_out(home: Path, tmp_path: Path, monkeypatch) -> None:
    (tmp_path / "short_sighted.py").write_text(SHORT_SIGHTED)
    monkeypatch.syspath_prepend(tmp_path)
    found = measure_sensitivity("short_sighted:Letters", [16, 64, 9000], resolve(["sample/Biology"]), NDCG)
    assert found.longest.max_length == 64
    [failure] = found.failures
    assert "places for 512 words, not for 9000" in failure.message
    assert np.isfinite(found.figures[0].difference.mean)
    assert found.figures[0].documents_cut is None, "what nobody told is not known"


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("bm25", "--max-length", "8,16"), "bm25: no stage has a limit on tokens"),
        (("wordllama", "--max-length", "8"), "at least two different lengths"),
        (("wordllama", "--max-length", "8,8"), "at least two different lengths"),
        (("wordllama", "--max-length", "8,many"), "is not a list of whole numbers"),
        (("wordllama", "--max-length", "0,8"), "at least 1 token"),
        (("wordllama", "--max-length", "8,9", "--plot", "x.gif"), "--plot must end in"),
        (("wordllama", "--max-length", "8,9", "--tasks", "sample/Biology", "nano/Biology"), "tasks of one group"),
    ],
)
def test_what_cannot_be_measured_is_one_line(home: Path, words: tuple[str, ...], said: str) -> None:
    done = invoke("sensitivity", *words)
    assert done.exit_code != 0
    assert said in (done.output if not isinstance(done.exception, R2medError | SpecError) else str(done.exception))
