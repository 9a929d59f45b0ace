"""The command line as a person meets it: real processes, real output, real exit codes."""

from __future__ import annotations

import csv
import json
import os
import re
import subprocess
import sys
from itertools import groupby
from pathlib import Path

import pytest
from click.testing import CliRunner


def r2med(*args: str, stdin: str | None = None, columns: int = 100) -> subprocess.CompletedProcess[str]:
    """Run the command and catch all that it prints."""
    environment = {**os.environ, "COLUMNS": str(columns), "NO_COLOR": "1"}
    return subprocess.run(
        [sys.executable, "-m", "r2med", *args],
        input=stdin,
        capture_output=True,
        text=True,
        encoding="utf-8",
        env=environment,
        timeout=120,
        check=False,
    )


def results(*args: str) -> dict:
    done = r2med(*args, "--json")
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def complaint(*args: str, stdin: str | None = None) -> str:
    """The one line that a wrong call ends in."""
    done = r2med(*args, stdin=stdin)
    assert done.returncode != 0
    assert "Traceback" not in done.stderr
    lines = [line for line in done.stderr.splitlines() if line and not line.startswith(("Usage:", "Try "))]
    assert len(lines) == 1, done.stderr
    return lines[0]


def test_help_lists_every_verb_and_imports_nothing_heavy() -> None:
    code = (
        "import sys; sys.argv = ['r2med', '--help']\n"
        "from r2med.cli.main import main\n"
        "try: main()\n"
        "except SystemExit: pass\n"
        "heavy = {'numpy', 'polars', 'rich', 'huggingface_hub', 'orjson', 'torch', 'httpx2'} & set(sys.modules)\n"
        "assert not heavy, heavy"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    from r2med.cli.main import VERBS

    for verb in VERBS:
        assert f"  {verb} " in done.stdout


def test_every_verb_has_help() -> None:
    from r2med.cli.main import VERBS, app

    for verb in VERBS:
        done = CliRunner().invoke(app, [verb, "--help"])
        assert done.exit_code == 0, done.output
        assert "Usage:" in done.output
        assert len(done.output.splitlines()) > 6, verb


def test_run_prints_one_table_on_the_sample_by_default() -> None:
    done = r2med("run", "bm25", "bm25-classic")
    assert done.returncode == 0, done.stderr
    assert "nDCG@10 x 100, bundled sample" in done.stdout
    rows = [line.split() for line in done.stdout.splitlines() if line.strip().startswith("bm25")]
    assert [row[0] for row in rows] == ["bm25", "bm25-classic"]
    assert all(len(row) == 10 for row in rows), "eight tasks and their average"


def test_run_as_json_has_the_promised_shape() -> None:
    found = results("run", "bm25", "bm25-classic", "--tasks", "sample/Biology", "sample/MedQA-Diag")
    assert [(r["system"], r["task"]) for r in found["results"]] == [
        ("bm25", "sample/Biology"),
        ("bm25-classic", "sample/Biology"),
        ("bm25", "sample/MedQA-Diag"),
        ("bm25-classic", "sample/MedQA-Diag"),
    ]
    first = found["results"][0]
    assert first["queries"] == 9
    assert first["documents"] == 64
    assert 0 < first["metrics"]["nDCG@10"] < 1
    assert first["seconds"] > 0
    assert first["warnings"] == []
    mean = sum(r["metrics"]["nDCG@10"] for r in found["results"] if r["system"] == "bm25") / 2
    assert found["averages"]["bm25"]["nDCG@10"] == pytest.approx(mean)


def test_the_second_run_comes_from_the_ledger_and_fresh_recomputes() -> None:
    first = results("run", "bm25", "--tasks", "sample/Biology")["results"][0]
    second = results("run", "bm25", "--tasks", "sample/Biology")["results"][0]
    fresh = results("run", "bm25", "--tasks", "sample/Biology", "--fresh")["results"][0]
    assert (first["cached"], second["cached"], fresh["cached"]) == (False, True, False)
    assert first["metrics"] == second["metrics"] == fresh["metrics"]
    assert first["run"] == second["run"] == fresh["run"]


def test_a_changed_setting_or_file_never_meets_an_old_result(tmp_path: Path) -> None:
    folder = tmp_path / "mine"
    folder.mkdir()
    (folder / "query.jsonl").write_text('{"id": "q", "text": "cat"}\n')
    (folder / "corpus.jsonl").write_text('{"id": "a", "text": "dog"}\n{"id": "b", "text": "cat"}\n')
    (folder / "qrels.jsonl").write_text('{"q_id": "q", "p_id": "a", "score": 1}\n')
    before = results("run", "bm25", "--tasks", str(folder))["results"][0]
    other = results("run", "bm25(k1=1.2)", "--tasks", str(folder))["results"][0]
    (folder / "corpus.jsonl").write_text('{"id": "a", "text": "cat"}\n{"id": "b", "text": "dog"}\n')
    after = results("run", "bm25", "--tasks", str(folder))["results"][0]
    assert before["metrics"]["nDCG@10"] == 0
    assert after["metrics"]["nDCG@10"] == 1
    assert not other["cached"]
    assert not after["cached"]


def test_metrics_asked_for_later_are_computed_from_the_kept_run() -> None:
    results("run", "bm25", "--tasks", "sample/Biology")
    found = results("run", "bm25", "--tasks", "sample/Biology", "--measures", "ndcg@3", "R@20")["results"][0]
    assert found["cached"]
    assert {"nDCG@3", "Recall@20"} <= set(found["metrics"])


def test_out_writes_files_that_eval_reads_back_to_the_same_scores(tmp_path: Path) -> None:
    folder = tmp_path / "out"
    found = results("run", "bm25", "--tasks", "sample/Biology", "sample/IIYi-Clinical", "--out", str(folder))
    assert json.loads((folder / "results.json").read_text())["averages"] == found["averages"]
    assert (folder / "per_query.csv").read_text().startswith("system,task,query,nDCG@10")
    for result in found["results"]:
        file = next(path for path in (folder / "runs").iterdir() if result["run"] in path.name)
        again = results("eval", str(file), "--tasks", result["task"])["results"][0]
        assert again["metrics"] == pytest.approx(result["metrics"])
    shown = r2med("eval", str(file), "--tasks", result["task"], "--ci", "--format", "md").stdout
    assert re.search(r"\d\d\.\d\d\*\* <sub>\d\d\.\d-\d\d\.\d</sub>", shown)
    assert re.search(r"\d\d\.\d-\d\d\.\d", r2med("eval", str(file), "--tasks", result["task"], "--ci").stdout)


def test_eval_of_several_tasks_is_the_average_of_each_and_a_missing_file_is_no_zero(tmp_path: Path) -> None:
    tasks = ("sample/Biology", "sample/IIYi-Clinical")
    found = results("run", "bm25", "bm25-classic", "--tasks", *tasks, "--out", str(tmp_path))["averages"]
    runs = tmp_path / "runs"
    first, second = (str(runs / f"{{task}}.{name}.*.trec") for name in ("bm25", "bm25-classic"))
    again = results("eval", first, second, "--tasks", *tasks)["averages"]
    assert again == {first: pytest.approx(found["bm25"]), second: pytest.approx(found["bm25-classic"])}
    (file,) = runs.glob("sample-Biology.bm25.*")
    shorter = file.rename(runs / "Biology.bm25.mine.trec")
    assert results("eval", first, "--tasks", *tasks)["averages"][first] == again[first]
    shorter.unlink()
    done = r2med("eval", first, second, "--tasks", *tasks, "--json")
    lost = json.loads(done.stdout)
    assert done.returncode == 1
    assert lost["averages"] == {second: again[second]}
    assert [each["task"] for each in lost["failures"]] == [tasks[0]]
    csv = r2med("eval", first, second, "--tasks", *tasks, "--format", "csv")
    assert csv.returncode == 1
    assert f"on {tasks[0]}: there is no {runs}/sample-Biology.bm25.*.trec nor {runs}/Biology.bm25.*.trec" in csv.stderr
    several = r2med("eval", str(runs / "{task}.*.trec"), "--tasks", tasks[1])
    assert "is 2 files" in several.stdout


def test_eval_takes_a_judgements_file_and_says_what_does_not_match(tmp_path: Path) -> None:
    qrels = tmp_path / "qrels.tsv"
    qrels.write_text("query-id\tcorpus-id\tscore\nq1\td1\t1\nq2\td2\t1\n")
    run = tmp_path / "mine.trec"
    run.write_text("q1 Q0 d1 1 2.0 x\nq1 Q0 d9 2 1.0 x\nq7 Q0 d1 1 1.0 x\n")
    found = results("eval", str(run), "--qrels", str(qrels))["results"][0]
    assert found["metrics"]["nDCG@10"] == 0.5, "q2 is missing and counts as 0"
    assert any("1 query without judgements" in warning for warning in found["warnings"])
    assert any("1 judged query missing" in warning for warning in found["warnings"])
    assert not any("none of its documents" in warning for warning in found["warnings"])
    run.write_text("q1 Q0 x1 1 2.0 x\nq2 Q0 x2 1 1.0 x\n")
    (sentence,) = results("eval", str(run), "--qrels", str(qrels))["results"][0]["warnings"]
    assert sentence.startswith("mine.trec: none of its documents is judged; are the ids those of")


def test_drop_self_is_recorded_and_changes_the_run() -> None:
    kept = results("run", "bm25", "--tasks", "sample/IIYi-Clinical")["results"][0]
    dropped = results("run", "bm25", "--tasks", "sample/IIYi-Clinical", "--drop-self")["results"][0]
    assert dropped["system"] == "bm25(drop_self=true)"
    assert dropped["metrics"]["nDCG@10"] > kept["metrics"]["nDCG@10"]


def test_a_memory_limit_changes_nothing_but_memory() -> None:
    small = results("run", "wordllama", "--tasks", "sample/Biology", "--memory", "1MB", "--fresh")["results"][0]
    large = results("run", "wordllama", "--tasks", "sample/Biology", "--memory", "2GB", "--fresh")["results"][0]
    assert small["metrics"] == large["metrics"]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("memory = 2", "memory is 2, not a size such as"),
        ("memory = '0GB'", "memory is '0GB', not a size such as"),
        ("memroy = '2GB'", "limits.memroy is not a known key; did you mean memory?"),
    ],
)
def test_a_wrong_limit_is_one_line(own_home: Path, text: str, said: str) -> None:
    (own_home / "config.toml").write_text(f"[limits]\n{text}\n")
    assert said in complaint("run", "bm25", "--tasks", "sample/Biology", "--fresh")


def test_the_limit_of_the_files_is_used_and_the_command_wins(
    own_home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (own_home / "config.toml").write_text("[limits]\nmemory = '30 MB'\n")
    (tmp_path / "probe.py").write_text(
        "from r2med.settings import memory_limit\n"
        "def search(queries, k):\n"
        "    with open('limits', 'a') as file:\n"
        "        print(memory_limit() >> 20, file=file)\n"
        "    return [[] for _ in queries]\n"
    )
    for option in ((), ("--memory", "2GB"), ()):
        results("run", "probe:search", "--tasks", "sample/Biology", "--fresh", *option)
    limits = [limit for limit, _ in groupby((tmp_path / "limits").read_text().split())]
    assert limits == ["30", "2048", "30"]


def test_groups_have_no_average_in_common(tmp_path: Path) -> None:
    folder = tmp_path / "mine"
    folder.mkdir()
    (folder / "query.jsonl").write_text('{"id": "q", "text": "cat"}\n')
    (folder / "corpus.jsonl").write_text('{"id": "b", "text": "cat"}\n')
    (folder / "qrels.jsonl").write_text('{"q_id": "q", "p_id": "b", "score": 1}\n')
    found = results("run", "bm25", "--tasks", "sample/Biology", str(folder))
    assert found["averages"] == {}
    assert set(found["groups"]) == {"sample", "custom"}
    table = r2med("run", "bm25", "--tasks", "sample/Biology", str(folder)).stdout
    assert "bundled sample" in table
    assert "own data" in table


def test_a_split_is_that_of_the_figures_of_the_plan_and_of_the_columns(tmp_path: Path) -> None:
    for name in ("one", "two"):
        folder = tmp_path / name
        (folder / "qrels").mkdir(parents=True)
        (folder / "queries.jsonl").write_text('{"_id": "q", "text": "cat"}\n{"_id": "p", "text": "dog"}\n')
        (folder / "corpus.jsonl").write_text('{"_id": "b", "text": "cat"}\n{"_id": "c", "text": "mouse"}\n')
        (folder / "qrels" / "test.tsv").write_text("query-id\tcorpus-id\tscore\nq\tb\t1\n")
        (folder / "qrels" / "dev.tsv").write_text("query-id\tcorpus-id\tscore\np\tb\t1\n")
    folders = [str(tmp_path / name) for name in ("one", "two")]
    asked = ("run", "bm25", "--tasks", *folders, "--split", "dev")
    found = results(*asked)["results"]
    assert [(each["task"], each["metrics"]["nDCG@10"]) for each in found] == [(f"{each}/dev", 0.0) for each in folders]
    assert all("dev" in each["task"] for each in json.loads(r2med(*asked, "--dry-run", "--json").stdout)[0]["tasks"])
    for form in ("terminal", "md", "latex"):
        shown = r2med(*asked, "--format", form).stdout
        assert "one/dev" in shown
        assert "two/dev" in shown
    said = ": no qrels for the split 'nonsense'; splits here: dev, test"
    assert said in complaint(*asked[:-1], "nonsense")
    assert said in complaint(*asked[:-1], "nonsense", "--dry-run")


def test_csv_says_what_failed_and_what_is_incomplete(tmp_path: Path) -> None:
    (tmp_path / "silent.toml").write_text('[[rule]]\nreply = ""\n')
    asked = ("run", "bm25", f"hyde(scripted:{tmp_path}/silent.toml) >> bm25", str(tmp_path / "nothing"))
    done = r2med(*asked, "--tasks", "sample/Biology", "--format", "csv")
    assert done.returncode == 1
    assert f"failed: {tmp_path}/nothing on sample/Biology: " in done.stderr
    rows = list(csv.DictReader(done.stdout.splitlines()))
    assert [(row["system"].partition("(")[0], row["incomplete"]) for row in rows] == [("bm25", "0"), ("hyde", "9")]
    for form in ("csv", "md", "latex"):
        lost = r2med("run", str(tmp_path / "nothing"), "--tasks", "sample/Biology", "--format", form)
        assert lost.returncode == 1
        assert lost.stderr.count("failed: ") == 1


def test_an_experiment_that_is_nested_too_deeply_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "study.toml").write_text("tasks = " + "[" * 3000 + "]" * 3000)
    assert complaint("run", str(tmp_path / "study.toml")).startswith(
        f"r2med: {tmp_path}/study.toml: not readable as TOML: "
    )


def test_only_measures_that_are_shown_are_warned_about() -> None:
    asked = ("run", "bm25(depth=20)", "--tasks", "sample/Biology")
    assert "measured on lists" not in r2med(*asked).stdout
    said = r2med(*asked, "--measures", "Recall@50", "MAP").stdout
    assert "warning: sample/Biology: Recall@50, MAP measured on lists of 20 documents" in said
    assert "measured on lists" not in r2med(*asked).stdout


@pytest.mark.parametrize(
    ("args", "said"),
    [
        (("run", "bm52"), "unknown stage 'bm52'; did you mean bm25?"),
        (("run", "bm25(k2=1)"), "bm25 has no option 'k2'; it takes k1, b, depth"),
        (("run", "bm25(k1=high)"), "k1 must be a number, not high"),
        (("run", "bm25(b=7)"), "b must lie between 0 and 1, not 7"),
        (("run", "bm25("), "at column 6"),
        (("run", "bm25", "--tasks", "smaple"), "no such task or folder: 'smaple'; did you mean sample?"),
        (("run", "bm25", "--tasks", "path/to/your/folder"), "no such task or folder: 'path/to/your/folder'"),
        (("run", "bm25", "--tasks", "./nowhere"), "nowhere: no such folder"),
        (("run", "bm25", "--measures", "nDCG@0"), "nDCG@0"),
        (("run", "bm25 >> bm25"), "a system is expanders >> one retriever >> rerankers"),
        (("run", "bm25", "--memory", "lots"), "'lots' is not a size such as 500MB or 2GB"),
        (("runn",), "no verb 'runn'; did you mean run?"),
        (("eval", "x.trec"), "either --tasks NAME or --qrels FILE"),
        (("eval", "x.trec", "--tasks", "sample/Biology", "--qrels", "x.tsv"), "either --tasks NAME or --qrels FILE"),
        (("eval", "x.trec", "--tasks", "sample"), "as in runs/{task}.trec"),
        (("eval", "x.trec", "--tasks", "sample/Biology"), "x.trec"),
        (("runs", "show", "zzz"), "no run 'zzz' in the ledger"),
        (("tasks", "validate", "./nowhere"), "no such folder"),
    ],
)
def test_wrong_input_is_one_line(args: tuple[str, ...], said: str) -> None:
    assert said in complaint(*args)


def test_an_experiment_file_names_systems_and_tasks(tmp_path: Path) -> None:
    file = tmp_path / "paper.toml"
    file.write_text(
        'tasks = ["sample/Biology"]\nmeasures = ["Recall@20"]\n'
        '[[system]]\nname = "baseline"\nspec = "bm25"\n[[system]]\nspec = "bm25-classic"\n'
    )
    found = results("run", str(file))
    assert [(r["system"], r["task"]) for r in found["results"]] == [
        ("bm25", "sample/Biology"),
        ("bm25-classic", "sample/Biology"),
    ]
    assert "Recall@20" in found["results"][0]["metrics"]
    assert results("run", str(file), "--tasks", "sample/MedQA-Diag")["results"][0]["task"] == "sample/MedQA-Diag"
    shown = r2med("run", str(file)).stdout.splitlines()
    assert [line.split()[0] for line in shown if line.startswith(" b")] == ["baseline", "bm25-classic"]
    assert "baseline: bm25" in shown
    assert "baseline" in r2med("run", str(file), "--format", "latex").stdout
    rows = csv.DictReader(r2med("run", str(file), "--format", "csv").stdout.strip().splitlines())
    assert [(row["system"], row["spec"]) for row in rows] == [("baseline", "bm25"), ("bm25-classic", "bm25-classic")]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "system is missing"),
        ("[[system]]\nname = 'x'\n", "paper.toml:1: [system[0]] spec is missing"),
        ("sytem = 1\n", "sytem is not a known key; did you mean system?"),
        ("[[system", "not readable as TOML"),
        ("tasks = 3\n[[system]]\nspec = 'bm25'\n", "tasks must be a list of texts, not 3"),
        ("[[system]]\nspec = 'bm25'\n[[system]]\nspec = 'bm25'\n", "two systems are called 'bm25'"),
    ],
)
def test_a_wrong_experiment_file_is_one_line(tmp_path: Path, text: str, said: str) -> None:
    file = tmp_path / "paper.toml"
    file.write_text(text)
    assert said in complaint("run", str(file))


def test_aliases_stand_for_systems(own_home: Path) -> None:
    (own_home / "config.toml").write_text(
        '[aliases]\nboth = "rrf(bm25, plain)"\nplain = "bm25-classic"\nloop = "loop"\n'
    )
    assert results("run", "both", "--tasks", "sample/Biology")["results"][0]["system"] == "rrf(bm25, bm25-classic)"
    assert "the alias loop stands for itself" in complaint("run", "loop")
    assert "plain is an alias and takes no arguments" in complaint("run", "plain(k1=1)")


def test_a_dry_run_shows_the_plan_and_does_nothing(own_home: Path) -> None:
    shown = r2med("run", "rrf(bm25(k1=1.2), bm25-classic)", "--tasks", "sample/Biology", "Biology", "--dry-run").stdout
    assert "k1               1.2" in shown
    assert "sample/Biology: to compute" in shown
    assert "index to build, of 64 documents" in shown
    assert "Biology: to compute, after a download from R2MED/Biology" in shown
    assert "the ledger is empty" in r2med("runs").stdout
    results("run", "bm25", "--tasks", "sample/Biology")
    assert "sample/Biology: in the ledger" in r2med("run", "bm25", "--tasks", "sample/Biology", "--dry-run").stdout
    planned = json.loads(r2med("run", "bm25(b=0.5)", "--tasks", "sample/Biology", "--dry-run", "--json").stdout)
    assert planned[0]["stages"][0]["settings"]["b"] == 0.5
    assert planned[0]["tasks"][0]["forecast"]["bm25(b=0.5)"]["index"] == "in the cache"


def test_a_dry_run_says_what_is_needed_and_adds_up() -> None:
    told = r2med("run", "nv >> rankllama", "--tasks", "Biology", "--dry-run").stdout
    assert "needs         pip install 'r2med[torch]', nvidia/NV-Embed-v2 from the hub, a GPU" in told
    asked = ("run", "hyde(gpt-4o) >> bm25", "--tasks", "sample/Biology", "sample/MedQA-Diag", "--dry-run")
    told = r2med(*asked).stdout
    assert "the key OPENAI_API_KEY" in told
    assert "in all, hyde(gpt-4o): requests 18, answered already 0, prompt tokens" in told
    assert "Passage:" in told


def test_runs_are_listed_shown_and_removed(tmp_path: Path) -> None:
    assert "the ledger is empty" in r2med("runs").stdout
    run = results("run", "bm25", "--tasks", "sample/Biology")["results"][0]["run"]
    assert run in r2med("runs").stdout
    shown = json.loads(r2med("runs", "show", run[:5], "--json").stdout)
    record = shown["record"]
    assert record["data"]["fingerprint"]
    assert record["r2med"]
    assert record["packages"]["numpy"]
    assert record["stages"][0]["k1"] == 0.9
    out = tmp_path / "list.trec"
    assert r2med("runs", "show", run, "--out", str(out)).returncode == 0
    assert out.read_text().startswith("bio-q")
    assert "removed" in r2med("runs", "rm", run).stdout
    assert "the ledger is empty" in r2med("runs").stdout


def test_analyze_gives_a_line_of_tokens_for_each_line() -> None:
    assert r2med("analyze", "The patient's kidneys failed").stdout == "patient kidnei fail\n"
    assert r2med("analyze", "-", stdin="one fish\n\nred fishes\n").stdout == "on fish\n\nred fish\n"
    assert r2med("analyze", stdin="").stdout == ""


def test_validate_counts_problems_and_exits_with_one(tmp_path: Path) -> None:
    (tmp_path / "query.jsonl").write_text('{"id": "q", "text": "cat"}\n{"id": "q", "text": "other"}\nnot json\n')
    (tmp_path / "corpus.jsonl").write_text('{"id": "a", "text": "dog"}\n')
    (tmp_path / "qrels.jsonl").write_text('{"q_id": "q", "p_id": "zz", "score": 1}\n')
    done = r2med("tasks", "validate", str(tmp_path))
    assert done.returncode == 1
    for place in ("query.jsonl:2:", "query.jsonl:3:", "qrels.jsonl:1:"):
        assert place in done.stdout
    assert "3 errors" in done.stdout
    assert r2med("tasks", "validate", "sample").returncode == 0


def test_doctor_tells_versions_and_storage() -> None:
    results("run", "bm25", "--tasks", "sample/Biology")
    found = json.loads(r2med("doctor", "--json").stdout)
    assert found["versions"]["numpy"]
    assert found["storage"]["ledger"].startswith("1 runs")
    assert "bm25" in " ".join(found["storage"])
    assert "versions" in r2med("doctor").stdout


def test_a_closed_pipe_is_not_an_error() -> None:
    code = f"{sys.executable} -m r2med tasks | head -1"
    done = subprocess.run(code, shell=True, capture_output=True, text=True, check=False)
    assert done.stderr == ""
