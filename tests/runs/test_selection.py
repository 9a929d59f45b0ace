"""Which runs are meant by what a person typed, in every verb that takes runs; and whether runs saw the same data."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

import r2med
from r2med.cli.main import app
from r2med.comparison.study import compare
from r2med.data.loader import load
from r2med.errors import R2medError
from r2med.llm.budget import Limits
from r2med.llm.cards import add_model
from r2med.llm.client import session
from r2med.llm.scripted import scripted
from r2med.measure.metrics import Measure
from r2med.pipeline.evaluate import Options
from r2med.pipeline.named_runs import select, share
from r2med.runs.ledger import Ledger

A, B = "sample/Biology", "sample/MedQA-Diag"


def command(*arguments: str) -> Result:
    done = CliRunner().invoke(app, arguments)
    assert done.exception is None or isinstance(done.exception, R2medError | SystemExit)
    return done


def complaint(*arguments: str) -> str:
    """The line that a wrong call ends in."""
    done = command(*arguments)
    assert isinstance(done.exception, R2medError)
    return str(done.exception)


def own_task(folder: Path, document: str) -> Path:
    folder.mkdir(exist_ok=True)
    rows: dict[str, list[dict[str, object]]] = {
        "corpus": [{"id": "a", "text": document}, {"id": "b", "text": "cat"}],
        "query": [{"id": "q", "text": "cat"}],
    }
    rows["qrels"] = [{"q_id": "q", "p_id": "a", "score": 1}]
    for name, lines in rows.items():
        (folder / f"{name}.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    return folder


def test_every_way_to_name_a_system_finds_the_same_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("r2med.toml").write_text('[aliases]\nmine = "bm25(k1=2)"\n')
    Path("study.toml").write_text('[[system]]\nname = "tuned"\nspec = "bm25( k1=2.0 )"\n[[system]]\nspec = "bm25"\n')
    run = r2med.evaluate(["bm25(k1=2)", "bm25"], A).results[0]
    names = ["bm25(k1=2)", "bm25( k1 = 2.0 )", "mine", run.id, run.id[:4], "study.toml:tuned"]
    with Ledger() as ledger:
        for name in names:
            [chosen] = select(ledger, [name])
            assert {task: entry.id for task, entry in chosen.runs.items()} == {A: run.id}
            assert chosen.system == "bm25(k1=2)"
            assert chosen.label == ("tuned" if ":" in name else "bm25(k1=2)")
        assert [(each.label, each.system) for each in select(ledger, ["study.toml"])] == [
            ("tuned", "bm25(k1=2)"),
            ("bm25", "bm25"),
        ]
        with pytest.raises(R2medError, match=r"study.toml: no system 'tunde'; did you mean tuned\?"):
            select(ledger, ["study.toml:tunde"])
    shown = command("compare", "study.toml")
    assert shown.exit_code == 0
    assert "bm25  minus  tuned" in shown.stdout


def test_two_runs_of_one_system_are_told_apart_by_their_ids(tmp_path: Path) -> None:
    folder = own_task(tmp_path / "own", "cat")
    first = r2med.evaluate("bm25", folder).results[0].id
    second = r2med.evaluate("bm25", own_task(folder, "dog")).results[0].id
    with Ledger() as ledger:
        assert [each.label for each in select(ledger, [first, second])] == [f"bm25 [{first}]", f"bm25 [{second}]"]
        with pytest.raises(R2medError, match="did not see the same documents"):
            share(ledger, [first, second])


def test_a_run_file_is_told_from_a_system(tmp_path: Path) -> None:
    r2med.evaluate("bm25", A)
    file = tmp_path / "a.trec"
    file.write_text("q Q0 d 1 1 x\n")
    with Ledger() as ledger, pytest.raises(R2medError, match=f"{file} is a run file.*r2med eval {file} --tasks TASK"):
        compare(ledger, [str(file), "bm25"])


def test_data_changed_and_changed_back_shows_its_own_run_in_every_verb(tmp_path: Path) -> None:
    folder = own_task(tmp_path / "own", "cat")
    systems = ["bm25", "bm25-classic"]
    first = r2med.evaluate(systems, folder)
    values = {result.system: result.metrics["nDCG@10"] for result in first.results}
    r2med.evaluate(systems, own_task(folder, "dog"))
    own_task(folder, "cat")
    # Before anything is run again there is nothing to show of this data, and the advice of the refusal works.
    refused = complaint("diagnose", "bm25", "--coverage", "--json")
    assert f"run it again: r2med run 'bm25' --tasks {folder}" in refused
    assert command("run", "bm25", "--tasks", str(folder)).exit_code == 0
    [line] = [
        line for line in json.loads(command("board", "--group", "custom", "--format", "json").stdout)["lines"]
        if line["name"] == "bm25"
    ]  # fmt: skip
    assert line["values"] == {str(folder): values["bm25"]}
    assert json.loads(command("compare", *systems, "--json").stdout)[0]["overall"]["mean"] == 0.0
    for verb in (("diagnose", "bm25", "--coverage", "--json"), ("inspect", "bm25", "--json")):
        assert command(*verb).exit_code == 0
    assert command("report", "bm25", "--no-causes", "--out", str(tmp_path / "r.html")).exit_code == 0


def test_a_prompt_file_changed_and_changed_back_shows_its_own_run(tmp_path: Path) -> None:
    prompt = tmp_path / "p.txt"
    with session(Limits(retries=0)):
        add_model(scripted(lambda request: request.messages[-1].content.split()[0], "echo"))
        spec = f'hyde(echo, prompt="{prompt}") >> bm25'
        ids = []
        for text in ("cell {query}", "iron {query}", "cell {query}"):
            prompt.write_text(text)
            ids.append(r2med.evaluate(spec, A).results[0].id)
    assert ids[0] == ids[2] != ids[1]
    with Ledger() as ledger:
        assert [entry.id for entry in select(ledger, [spec])[0].runs.values()] == [ids[0]]


@pytest.fixture
def uneven() -> None:
    """One system on two tasks, another on one of them."""
    r2med.evaluate("bm25", [A, B])
    r2med.evaluate("bm25-classic", A)


NOTE = f"note: bm25-classic has no run on {B}\n"


@pytest.mark.usefixtures("uneven")
@pytest.mark.parametrize(
    "verb",
    [
        ("compare", "bm25", "bm25-classic"),
        ("diagnose", "bm25", "bm25-classic", "--complement"),
        ("diagnose", "bm25", "--against", "bm25-classic"),
        ("diagnose", "bm25", "bm25-classic", "--cost"),
        ("inspect", "bm25", "--against", "bm25-classic", "--worst", "1"),
        ("report", "bm25", "bm25-classic", "--no-causes", "--out", "r.html"),
        ("plot", "tasks", "bm25", "bm25-classic", "--out", "p.png"),
        ("plot", "differences", "bm25", "bm25-classic", "--out", "p.png"),
    ],
    ids=lambda verb: " ".join(verb),
)
def test_a_task_that_was_named_and_not_run_is_said(
    verb: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    named = command(*verb, "--tasks", A, B)
    assert named.exit_code == 0, named.stderr
    assert NOTE in named.stderr
    assert "note:" not in command(*verb, "--tasks", A).stderr
    nothing = complaint(*verb, "--tasks", B)
    assert f"bm25-classic has no run on {B} in the ledger; r2med run 'bm25-classic' --tasks {B}" in nothing


@pytest.mark.usefixtures("uneven")
def test_what_is_packed_is_whole_or_refused(tmp_path: Path) -> None:
    for verb in (("submit", "bm25-classic", "--out", str(tmp_path / "s.zip")),
                 ("export", "bm25-classic", "--format", "trec", "--out", str(tmp_path / "runs"))):  # fmt: skip
        assert f"bm25-classic has no run on {B} in the ledger" in complaint(*verb, "--tasks", A, B)
        assert list(tmp_path.iterdir()) == []
        assert command(*verb, "--tasks", A).exit_code == 0
        for path in sorted(tmp_path.rglob("*"), reverse=True):
            path.rmdir() if path.is_dir() else path.unlink()


def test_a_measure_nobody_asked_for_is_computed_from_the_lists() -> None:
    report = r2med.evaluate(["bm25", "bm25-classic"], A)
    shown = json.loads(command("compare", "bm25", "bm25-classic", "--measure", "Recall@7", "--json").stdout)
    wanted = r2med.evaluate(["bm25", "bm25-classic"], A, Options(measures=[Measure("Recall", 7)]))
    means = [result.metrics["Recall@7"] for result in wanted.results]
    assert shown[0]["overall"]["mean"] == pytest.approx(means[1] - means[0])
    assert "Recall@7" not in report.results[0].metrics


def test_incomplete_queries_are_said_where_a_run_is_used(tmp_path: Path) -> None:
    queries = load(B).collection.queries
    lost = {queries.text(query) for query in list(queries.ids)[:2]}
    with session(Limits(retries=0)):
        add_model(scripted(lambda r: "" if any(t in r.messages[-1].content for t in lost) else "fever", "m"))
        r2med.evaluate(["bm25", "answer(m) >> bm25"], B)
    count = len(queries)
    shown = command("compare", "bm25", "answer(m) >> bm25")
    assert f"2 of {count} queries of answer(m) >> bm25 were incomplete" in shown.stdout
    found = json.loads(command("compare", "bm25", "answer(m) >> bm25", "--json").stdout)
    assert found[0]["incomplete"] == {"a": 0, "b": 2}
    file = str(tmp_path / "s.zip")
    packed = command("submit", "answer(m) >> bm25", "--out", file)
    assert f"on {B}: 2 of {count} queries incomplete" in packed.stdout
    assert f", 2 of {count} queries incomplete" in command("verify", file).stdout


def test_two_folders_of_one_name_share_neither_a_column_nor_a_rank(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, document in (("one", "cat"), ("two", "dog")):
        (tmp_path / name).mkdir()
        own_task(tmp_path / name / "notes", document)
    monkeypatch.chdir(tmp_path / "one")
    assert command("run", "bm25", "--tasks", "notes").exit_code == 0
    monkeypatch.chdir(tmp_path / "two")
    assert command("run", "bm25-classic", "--tasks", "./notes").exit_code == 0
    places = [str(tmp_path / name / "notes") for name in ("one", "two")]
    board = json.loads(command("board", "--group", "custom", "--format", "json").stdout)
    assert board["tasks"] == places
    assert {line["name"]: (line["rank"], list(line["values"])) for line in board["lines"]} == {
        "bm25": (None, places[:1]),
        "bm25-classic": (None, places[1:]),
    }
    for form, wanted in (
        ("md", "| one/notes | two/notes |"),
        ("csv", "one/notes,two/notes"),
        ("latex", "one/notes"),
    ):
        assert wanted in command("board", "--group", "custom", "--format", form).stdout
    # The data is found again from anywhere.
    monkeypatch.chdir(tmp_path)
    assert command("diagnose", "bm25", "--coverage").exit_code == 0
    assert f"{places[0]}" in command("runs", "--tasks", "one/notes", "--json").stdout
    assert "have no task in common" in complaint("compare", "bm25", "bm25-classic")


def test_runs_are_listed_and_removed_by_system_task_and_group(tmp_path: Path) -> None:
    folder = own_task(tmp_path / "notes", "cat")
    r2med.evaluate(["bm25", "bm25(k1=2)"], [A, B, folder])

    def listed(*options: str) -> set[tuple[str, str]]:
        return {(row["system"], row["task"]) for row in json.loads(command("runs", *options, "--json").stdout)}

    assert listed("--system", "bm25( k1=2.0 )", "--group", "sample") == {("bm25(k1=2)", A), ("bm25(k1=2)", B)}
    assert listed("--tasks", B, "--tasks", str(folder), "--system", "bm25") == {("bm25", B), ("bm25", str(folder))}
    assert len(listed("--tasks", "sample")) == 4
    assert "did you mean bm25?" in complaint("runs", "--system", "bm26")
    assert command("runs", "rm").exit_code == 2
    assert command("runs", "rm", "--system", "bm25", "--group", "sample").exit_code != 0
    assert len(listed()) == 6
    removed = command("runs", "rm", "--system", "bm25", "--group", "sample", "--yes")
    assert removed.stdout.endswith("2 runs removed\n")
    assert len(listed()) == 4
    for path in folder.iterdir():
        path.unlink()
    folder.rmdir()
    asked = CliRunner().invoke(app, ["runs", "rm", "--tasks", str(folder)], input="y\n")
    assert "remove 2 runs?" in asked.stderr
    assert listed() == {("bm25(k1=2)", A), ("bm25(k1=2)", B)}


def test_an_alias_must_not_hide_a_stage_or_a_model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("bm25", "bge"):
        Path("r2med.toml").write_text(f'[aliases]\n{name} = "bm25-classic"\n')
        assert f"the alias {name} has the name of a built-in" in complaint("run", "bm25-classic", "--tasks", A)


def test_an_alias_is_shown_as_what_it_stands_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("r2med.toml").write_text('[aliases]\nmine = "bm25(k1=2)"\n')
    for shown in (command("run", "mine", "bm25", "--tasks", A), command("compare", "bm25", "mine")):
        assert "bm25(k1=2)" in shown.stdout
        assert "mine" not in shown.stdout


def test_an_export_that_cannot_be_written_whole_leaves_nothing_and_its_advice_works(tmp_path: Path) -> None:
    folder = own_task(tmp_path / "notes", "cat")
    (folder / "query.jsonl").write_text('{"id": "q 1", "text": "cat"}\n')
    (folder / "qrels.jsonl").write_text('{"q_id": "q 1", "p_id": "a", "score": 1}\n')
    r2med.evaluate("bm25", [A, folder])
    out = tmp_path / "out"
    refused = complaint("export", "bm25", "--format", "trec", "--out", str(out))
    assert "nothing was written, use --format jsonl" in refused
    assert not out.exists()
    assert command("export", "bm25", "--format", "jsonl", "--out", str(out)).exit_code == 0
    assert len(list(out.iterdir())) == 2
    refused = complaint("export", "bm25", "--format", "mteb", "--tasks", "sample", "--out", str(out))
    assert refused.startswith("the format mteb is for full tasks only, not for sample/Biology")


def test_the_plain_commands_work_after_a_folder_of_ones_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    folder = str(own_task(tmp_path / "mine", "cat cat"))
    r2med.evaluate(["bm25", "bm25-classic"], "sample")
    r2med.evaluate(["bm25", "bm25-classic"], folder)
    Path("study.toml").write_text('tasks = ["sample"]\n[[system]]\nspec = "bm25"\n[[system]]\nspec = "bm25-classic"\n')
    for tasks in ((), ("--tasks", A, folder)):
        both = json.loads(command("compare", "bm25", "bm25-classic", *tasks, "--json").stdout)
        assert [each["group"] for each in both] == ["sample", "custom"]
        assert list(both[1]["tasks"]) == [folder]
        causes = json.loads(command("diagnose", "bm25", *tasks, "--json").stdout)
        assert list(causes) == ["sample", "custom"]
    assert "own data" in command("compare", "bm25", "bm25-classic").stdout
    [alone] = json.loads(command("compare", "study.toml", "--json").stdout)
    assert alone["group"] == "sample"
    [case] = json.loads(command("inspect", "bm25", "--query", "mqd-q01", "--json").stdout)
    assert case["task"] == B
    said = complaint("report", "bm25", "bm25-classic", "--out", "report.html")
    assert f"--tasks sample or --tasks {folder}" in said
    assert command("report", "bm25", "bm25-classic", "--out", "report.html", "--tasks", folder).exit_code == 0
    said = complaint("frontier", "bm25", "bm25-classic")
    assert f"--tasks sample or --tasks {folder}" in said
    assert command("plot", "differences", "study.toml", "--out", "d.svg").exit_code == 0
    said = complaint("compare", "bm25", "bm25-classic", "--tasks", "custom")
    assert said == "custom is the group of local folders and cannot be read as a whole; name the folders"


def test_files_for_others_have_short_names_of_folders(tmp_path: Path) -> None:
    for place in ("one", "two"):
        (tmp_path / place).mkdir()
    folders = [own_task(tmp_path / place / "notes", "cat cat") for place in ("one", "two")]
    tasks = [A, *map(str, folders)]
    out, exported = tmp_path / "out", tmp_path / "exported"
    assert command("run", "bm25", "--tasks", *tasks, "--out", str(out)).exit_code == 0
    assert command("export", "bm25", "--tasks", *tasks, "--format", "jsonl", "--out", str(exported)).exit_code == 0
    texts = [path.read_text() for path in (out / "results.json", out / "per_query.csv")]
    texts += [str(path.relative_to(tmp_path)) for folder in (out, exported) for path in folder.rglob("*")]
    texts.append(command("run", "bm25", "--tasks", *tasks, "--format", "csv").stdout)
    place = str(tmp_path).strip("/")
    assert not any(place in text or place.replace("/", "-") in text for text in texts)
    results = json.loads(texts[0])["results"]
    assert [result["task"] for result in results] == [A, "one/notes", "two/notes"]
    assert len(list(exported.iterdir())) == len(list((out / "runs").iterdir())) == 3


def test_a_folder_is_headed_by_the_name_that_it_states_and_never_by_one_of_the_benchmark(tmp_path: Path) -> None:
    for name in ("a", "b", "c"):
        (tmp_path / name).mkdir()
    named, plain = own_task(tmp_path / "a" / "task", "cat"), own_task(tmp_path / "b" / "Biology", "cat")
    (named / "task.toml").write_text('name = "guide-bench"\n')
    run = ("run", "bm25", "--tasks", str(named), str(plain))
    assert command(*run).exit_code == 0
    board = ("board", "--tasks", str(named), str(plain))
    for form, wanted in (("md", "| guide-bench | Biology |"), ("latex", "guide-bench & Biology")):
        for verb in (run, board):
            assert wanted in command(*verb, "--format", form).stdout.replace("{", "").replace("}", "")
    assert "guide-bench" in command(*run).stdout
    assert "guide-bench,b/Biology" in command(*run, "--format", "csv").stdout
    other = own_task(tmp_path / "c" / "task", "cat")
    (other / "task.toml").write_text('name = "guide-bench"\n')
    assert "| a/task | c/task |" in command(*run[:3], str(named), str(other), "--format", "md").stdout
    (other / "task.toml").write_text("name = 3\n")
    assert "name must be a non-empty string" in complaint(*run[:3], str(other))


def test_a_group_with_other_data_does_not_stop_the_comparison_on_the_rest(tmp_path: Path) -> None:
    folder = str(own_task(tmp_path / "mine", "cat cat"))
    r2med.evaluate(["bm25", "bm25-classic"], [A, folder])
    own_task(tmp_path / "mine", "cat cat dog")
    r2med.evaluate("bm25", folder)
    done = command("compare", "bm25", "bm25-classic", "--json")
    assert [each["group"] for each in json.loads(done.stdout)] == ["sample"]
    assert folder in done.stderr
