"""Every example works: of each `--help` and of each page, commands are run, Python is executed, TOML is loaded.

What cannot be run here stands in `NOT_RUN` with the reason, and nothing stands there that no page has any more.
"""

from __future__ import annotations

import gzip
import itertools
import json
import os
import re
import shlex
import shutil
import signal
import socket
import subprocess
import sys
import time
import tomllib
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import click
import polars as pl
import pytest
from click.testing import CliRunner
from jsonschema import Draft202012Validator
from page_blocks import PAGES, ROOT, Block, blocks

import r2med
from chat_server import ChatServer, Say
from r2med.cli.main import VERBS, app
from r2med.construction.plan import read_plan
from r2med.data.run_files import read_run, write_run
from r2med.data.tasks import folder_task, registry
from r2med.diagnosis.labelling import scheme
from r2med.encode import cards as encoder_cards
from r2med.engines.request import read_request
from r2med.llm import cards as llm_cards
from r2med.llm.scripted import scripted_file
from r2med.pipeline.named_runs import read_experiment
from r2med.rerank import cards as reranker_cards
from r2med.reviews.rows import DraftDecision
from r2med.reviews.scale import read_scale
from r2med.reviews.store import ReviewStore
from r2med.runs.contamination import ContaminationFacts
from r2med.settings import MEMORY, aliases, executor_settings, local_copies, memory_limit, request_settings, server_sets
from r2med.training.settings import read_run_settings
from r2med.training.settings import read_settings as read_data_settings

HUB = "needs data or models of the hub, or runs on them"
BATCH = "is one of several commands of a batch, which tests/executor runs together"
SERVER = "needs a key, or a server of the reader's own"
OWN = "names a run, a model or vectors of the reader's own"
PEOPLE = "needs people's labels, which tests/audit brings in"
SLOW = "takes minutes on a processor"
SCIFACT = "needs SciFact, which is not part of the checkout"

NOT_RUN: dict[str, str] = {
    "r2med train data --from documents --llm scripted:writer.toml --out bridge.parquet --allow-unchecked": HUB,
    "r2med train data --from documents --llm scripted:writer.toml --out bridge.parquet --questions 0 --allow-unchecked": HUB,  # noqa: E501
    'r2med train data --from documents --llm gpt-4o --out bridge.parquet --licence "CC BY 4.0" --max-cost 20': HUB,
    "r2med train export bridge.parquet --to flagembedding --out flag": OWN,
    "r2med train run bridge.parquet --base minilm --kind dense --out my-retriever": OWN,
    "r2med train run bridge.parquet --base minilm --kind dense --out my-retriever --settings training.toml": OWN,
    "r2med train run bridge.parquet --base minilm --kind reranker --out my-reranker --settings training.toml": OWN,
    'r2med run ./my-retriever "bm25 >> ./my-reranker" --tasks sample': OWN,
    "r2med build publish my-build --repo ward-7/handover --private": HUB,
    "r2med run bm25 --tasks hf:ward-7/handover": HUB,
    'r2med run "rrf(bm25, bge)" --tasks full': HUB,
    "r2med board --format latex --family clinical-case --baseline bm25 > table.tex": HUB,
    'r2med export "hyde(gpt4) >> bm25" --format hydoc --out dataset': SERVER,
    "r2med export bge --format mteb --name BAAI/bge-large-en-v1.5 --out results": HUB,
    "r2med leakage part-*.parquet --tasks nano --fields query pos --out pairs.jsonl": HUB,
    "r2med leakage train.jsonl --tasks full --exclude clean.jsonl": HUB,
    "r2med leakage train.jsonl --tasks full": HUB,
    "r2med leakage train.jsonl --tasks full --model my-encoder": HUB,
    "r2med leakage train.txt.gz --tasks MedQA-Diag path/to/folder --methods exact normalised --json": HUB,
    "r2med nano build full --out my-nano-r2med --dense bge": HUB,
    "r2med nano profile nano": HUB,
    "r2med reproduce base/bm25": HUB,
    "r2med sensitivity diver --max-length 512,2048,8192 --tasks full --plot diver.svg": HUB,
    "r2med reproduce hyde/gpt4/bm25 --tasks Biology MedQA-Diag": HUB,
    "r2med reproduce hyde/gpt4/bm25 --tasks Biology": HUB,
    "r2med reproduce hyde/gpt4/bm25": HUB,
    "r2med reproduce table:base": HUB,
    'r2med run "bm25 >> bge-reranker(depth=100)"': HUB,
    'r2med run "bm25 >> colbert(reason-moderncolbert)" --tasks nano': HUB,
    'r2med run "colbert(lateon)" "colbert(lateon, document_length=1024, store=int8)" --tasks nano': HUB,
    'r2med run "candidates(hybrid) >> bge-reranker(depth=100)" --tasks nano': HUB,
    'r2med run "nv >> bge-reranker(depth=10)" --tasks full': HUB,
    'r2med run "nv >> monobert(depth=10)" --tasks full': HUB,
    'r2med run "nv >> rankllama(depth=10)" --tasks full': HUB,
    'r2med run "replay(hub, method=hyde, llm=gpt4) >> bm25" --tasks full': HUB,
    'r2med run "rrf(bm25, bge) >> bge-reranker(depth=100)" --tasks nano': HUB,
    'r2med run splade-v3 "splade-v3(document_terms=64)" "splade(hf:naver/splade-v3-distilbert)" --tasks nano': HUB,
    'r2med run opensearch-doc-v3-distill "rrf(bm25, opensearch-doc-v3-distill)" --tasks nano': HUB,
    "r2med run bm25 --tasks full --measures nDCG@10 Recall@100 --json": HUB,
    "r2med run bm25 --tasks full": HUB,
    "r2med run bm25 --tasks nano": HUB,
    "r2med run bm25 bm25-classic --tasks full": HUB,
    "r2med tasks stats MedQA-Diag path/to/folder --json": HUB,
    'r2med submit "rrf(bm25, bge)" --tasks full --title "Our hybrid" --authors "..." --out ours.zip': HUB,
    'r2med submit bm25 "rrf(bm25, bge)" --tasks full --title "Our hybrid" --out ours.zip': HUB,
    'r2med run "bm25 >> api-rerank(BAAI/bge-reranker-v2-m3@http://localhost:8000/v1)"': SERVER,
    'r2med run "bm25 >> api-rerank(cohere)"': SERVER,
    "r2med engines push MedQA-Diag --to elasticsearch --url http://localhost:9200": SERVER,
    "r2med engines push MedQA-Diag --to postgres --dsn-env MEDLINE_DSN --encoder bge": SERVER,
    "r2med engines push MedQA-Diag --to qdrant --url http://localhost:6333 --encoder bge": SERVER,
    "r2med engines push path/to/folder --to postgres --dsn-env MEDLINE_DSN": SERVER,
    "r2med run minilm --tasks sample --executor ray:127.0.0.1:6379": "needs a Ray cluster, which tests/executor starts",
    "r2med run minilm --tasks sample --executor shard:1/16": BATCH,
    "r2med run minilm --tasks sample --executor shard:2/16": BATCH,
    "r2med run minilm --tasks sample --executor shard:merge/16": BATCH,
    'r2med run "sql(hybrid.sql, dsn_env=MEDLINE_DSN, encoder=bge)" --tasks path/to/folder': SERVER,
    'r2med run "sql(search.sql, dsn_env=MEDLINE_DSN)" bm25 --tasks path/to/folder': SERVER,
    'r2med run "bm25 >> api-rerank(jina-reranker-m0@https://api.jina.ai/v1, depth=50)"': SERVER,
    'r2med run "bm25 >> listwise(deepseek-r1, scores=true)"': SERVER,
    'r2med run "bm25 >> groupwise(grouprank-32b, fuse=0.5)"': SERVER,
    'r2med run "bm25 >> listwise(reasonrank-7b@http://localhost:8000/v1)"': SERVER,
    'r2med run "bm25 >> pointwise(rank1-7b, depth=20)"': SERVER,
    'r2med run "bm25 >> pointwise(qwen@http://localhost:8000/v1, depth=20)"': SERVER,
    'r2med run "hyde(gpt-4o) >> bm25" "hyde(qwq-32b@http://localhost:8000/v1) >> bm25" --tasks MedQA-Diag': SERVER,
    "r2med rag --llm qwen@http://localhost:8000/v1 --arms closed gold ours=run.trec --tasks path/to/folder": SERVER,
    'r2med rag bm25 "rrf(bm25, bge)" --llm gpt-4o --samples 3 --tasks full --max-cost 20': HUB,
    "r2med rag bm25 --llm gpt-4o --judge gpt-4o --tasks MedQA-Diag --dry-run": HUB,
    "r2med cache clear minilm": OWN,
    'r2med run minilm "hf:BAAI/bge-base-en-v1.5(pooling=cls, max_length=512)" ./my-model my.module:MyEncoder': OWN,
    "r2med runs rm 3f2a": OWN,
    "r2med runs show 3f2a": OWN,
    "r2med models export minilm --int8": SLOW,
    'r2med run "hyde(local) >> bm25"': SLOW,
    'r2med run "minilm(dtype=int8)"': SLOW,
    "r2med correct bm25 wordllama --task sample/Biology --people review:holes": PEOPLE,
    "r2med correct bm25 wordllama --task sample/Biology --people review:holes --judge gpt-4o --repeat 3": PEOPLE,
    "r2med audit path/to/scifact --labels labels/pool.tsv labels/planted.tsv": SCIFACT,
    'r2med run bm25 bm25-classic minilm wordllama "rrf(bm25, wordllama)" --tasks path/to/scifact': SCIFACT,
}


def help_examples() -> Iterator[str]:
    """Every line below `Examples:` in the help of a verb or of a verb below it."""
    with click.Context(app) as context:
        commands = [app.get_command(context, verb) for verb in VERBS]
    for command in commands:
        assert command is not None
        for part in (command, *(command.commands.values() if isinstance(command, click.Group) else ())):
            yield from re.findall(r"(?m)^\s+(r2med .+)$", (part.help or "").partition("Example")[2])


BLOCKS = [block for page in PAGES if page != "docs/reference/verbs.md" for block in blocks(page)]
"""All blocks, but for those of the reference, which is made from the help texts."""
SHOWN = {command for block in BLOCKS if block.language == "console" for command in block.commands()}
"""Commands whose output a page shows; it is compared where the pages are tested."""
EXAMPLES = sorted(
    {
        *(re.split(r"\s+# ", line)[0] for line in help_examples()),
        *(command for block in BLOCKS for command in block.commands()),
    }
    - SHOWN
)
RUN = [line for line in EXAMPLES if line not in NOT_RUN and not line.startswith("r2med serve")]


def test_every_example_is_run_or_listed_with_a_reason() -> None:
    assert len(EXAMPLES) > 100
    assert sorted(NOT_RUN.keys() - set(EXAMPLES)) == [], "no page and no help text has these examples any more"
    assert len(RUN) > len(NOT_RUN)


# ---------------------------------------------------------------------------------------------- the place


def write_lines(path: Path, rows: list[dict[str, object]]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), "utf-8")


def read_lines(path: Path) -> list[dict[str, object]]:
    return [json.loads(line) for line in path.read_text("utf-8").splitlines()]


def sample_folders() -> list[Path]:
    return [task.folder for name, task in registry().items() if name.startswith("sample/") and task.folder]


def write_large_folder(folder: Path) -> None:
    """A folder of 1,100 documents: the sample's, more of the same, and a copy of a relevant one."""
    parts = {name: [row for task in sample_folders() for row in read_lines(task / name)] for name in FILES}
    corpus = parts["corpus.jsonl"]
    more = [
        {"id": f"more-{n}", "text": f"Case {n}. {corpus[n % len(corpus)]['text']}"} for n in range(1099 - len(corpus))
    ]
    relevant = {row["p_id"] for row in parts["qrels.jsonl"]}
    more.append({"id": "copy", "text": next(row["text"] for row in corpus if row["id"] in relevant)})
    for name, rows in parts.items():
        write_lines(folder / name, rows + (more if name == "corpus.jsonl" else []))


FILES = ("query.jsonl", "corpus.jsonl", "qrels.jsonl")
MODULES = [Path(block.file).stem for block in BLOCKS if block.file and block.language == "python"]
PROMPT = "Write a passage about: {query}"
SYSTEMS = ("bm25", "bm25-classic", "wordllama", "rrf(bm25, bm25-classic)", "rrf(bm25, wordllama)", "replay >> bm25")


def write_inputs(place: Path) -> None:
    """The files of a user's own that examples name."""
    write_large_folder(place / "path/to/folder")
    biology = next(folder for folder in sample_folders() if folder.name == "Biology")
    for name in ("path/to/your/folder", "other/folder", "my/folder", "my-folder"):
        shutil.copytree(biology, place / name)
    shutil.copytree(biology / "hyde/handwritten", place / "my/folder/lamer/mine")
    shutil.copytree(biology, place / "documents")
    queries, documents = read_lines(biology / "query.jsonl"), read_lines(biology / "corpus.jsonl")
    (place / "expanded.tsv").write_text("".join(f"{row['id']}\t{row['text']} why\n" for row in queries), "utf-8")
    (place / "my prompt.txt").write_text(PROMPT, "utf-8")
    (place / "strict.txt").write_text("{question} {correct_answer} {response} Reply: Verdict: yes or no", "utf-8")
    (place / "body_system.tsv").write_text("task\tquery\tlabel\nsample/Biology\tbio-q01\tnerves\n", "utf-8")
    (place / "qrels").mkdir()
    rows = read_lines(biology / "qrels.jsonl")
    lines = ["query-id\tcorpus-id\tscore", *(f"{row['q_id']}\t{row['p_id']}\t{row['score']}" for row in rows)]
    (place / "qrels/test.tsv").write_text("\n".join(lines) + "\n", "utf-8")
    write_label_sets(place, [(str(row["q_id"]), str(row["p_id"])) for row in rows])
    write_lines(place / "train.jsonl", [{"query": "What is touch?", "pos": row["text"]} for row in documents[:3]])
    with gzip.open(place / "train.txt.gz", "wt", encoding="utf-8") as file:
        file.write("A line that has nothing to do with any of the documents.\n")
    pl.DataFrame({"query": ["What is touch?"], "pos": ["Something else."]}).write_parquet(place / "part-1.parquet")
    for block in BLOCKS:
        if block.file and (
            block.language == "python" or block.file in ("study.toml", "urgency.toml", "writer.toml", "nuggets.jsonl")
        ):
            (place / block.file).write_text(block.text, "utf-8")


def write_label_sets(place: Path, pairs: list[tuple[str, str]]) -> None:
    """What others say of the pairs that a task judges."""
    head, grades = "query_id,doc_id,label", [int(number % 4 > 0) for number in range(len(pairs))]
    judged = [(*pair, grade) for pair, grade in zip(pairs, grades, strict=True)]
    rows = [f"{query},{document},{grade}" for query, document, grade in judged]
    (place / "review.csv").write_text("\n".join([head, *rows[:9]]) + "\n", "utf-8")
    (place / "second.qrels").write_text("".join(f"{q} 0 {d} {grade}\n" for q, d, grade in judged), "utf-8")
    twice = [f"{row},ann" for row in rows] + [f"{query},{document},1,ben" for query, document in pairs]
    (place / "reviewers.csv").write_text("\n".join([f"{head},reviewer", *twice]) + "\n", "utf-8")


def say(prompt: str, nth: int) -> Say:
    """A model that has something to say to every kind of request."""
    answers = {
        "List the facts": '{"nuggets": [{"text": "It is touch", "vital": true}]}',
        "Decide for each fact": '{"1": "support"}',
        "Verdict": "Verdict: yes",
        "routine": "Class: routine",
    }
    return Say(
        text=next(
            (answers[word] for word in answers if word in prompt), "The cerebellum predicts touch: nervous system."
        )
    )


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A folder with all that the examples name, a home with their runs, and a server in place of OpenAI's."""
    folder = tmp_path_factory.mktemp("examples")
    before = set(sys.modules)
    write_inputs(folder)
    with ChatServer(say) as server, pytest.MonkeyPatch.context() as patch:
        patch.setenv("R2MED_HOME", str(folder / "home"))
        patch.setenv("OPENAI_BASE_URL", server.url)
        patch.setenv("OPENAI_API_KEY", "sk-example")
        patch.chdir(folder)
        call("run", *SYSTEMS, "--tasks", "sample", "--out", "out")
        call("run", "hyde(gpt-4o) >> bm25", "--tasks", "sample")
        call("run", "answer(o3-mini) >> bm25", "--tasks", "sample/MedQA-Diag")
        call("submit", "bm25", "--tasks", "sample/Biology", "--out", "ours.zip")
        (folder / "submissions").mkdir()
        shutil.copy("ours.zip", "submissions")
        call("review", "new", "pilot", "--from", "sample/Biology", "bm25", "--items", "20")
        for person, most in (("Dr. Ada", 4), ("Dr. Ben", 3)):
            call("review", "invite", "pilot", person)
            with ReviewStore.open("pilot") as store:
                drafts = [(item.number, DraftDecision("graded", item.number % most)) for item in store.items()]
                store.record_all(store.reviewer(person).id, drafts)
        call("review", "new", "facts", "--from", "nuggets.jsonl")
        with ReviewStore.open("facts") as store:
            store.record_all(store.add_reviewer("Dr. Ada", "person").id, [(1, DraftDecision("graded", 2))])
        call("nano", "build", "path/to/folder", "--out", "my-nano", "--docs", "1000")
        lists = next((folder / "out" / "runs").glob("sample-Biology.bm25.*"))
        for name in ("theirs.trec", "bm25.trec"):
            shutil.copy(lists, name)
        call("eval", "theirs.trec", "--tasks", "sample/Biology", "--keep", "theirs")
        with gzip.open("a.trec.gz", "wb") as file:
            file.write(lists.read_bytes())
        write_run(read_run(lists)[0], "b.jsonl")
        patch.setenv("R2MED_HOME", str(folder / "other-home"))
        call("run", "bm25", "--tasks", "path/to/your/folder")
        yield folder
    for name in set(sys.modules) - before:
        if name in MODULES:
            del sys.modules[name]


def call(*words: str, answer: str = "") -> str:
    """What a command prints, in this process; `answer` is typed when it asks."""
    done = CliRunner().invoke(app, words, input=answer)
    assert done.exit_code == 0, f"r2med {shlex.join(words)}\n{done.output}\n{done.exception!r}"
    return done.output


@pytest.fixture
def here(place: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of the examples as the current one, with the home of the runs on the sample."""
    monkeypatch.setenv("R2MED_HOME", str(place / "home"))
    monkeypatch.chdir(place)
    return place


@pytest.fixture
def copied_home(here: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """A home that may be changed."""
    shutil.copytree(here / "home", tmp_path / "home")
    monkeypatch.setenv("R2MED_HOME", str(tmp_path / "home"))
    return tmp_path / "home"


# ---------------------------------------------------------------------------------------------- commands


def words_of(line: str) -> list[str]:
    """The words of a command as a shell hands them over."""
    words = shlex.split(line.partition(" > ")[0])[1:]
    return [file for word in words for file in ("*" in word and sorted(map(str, Path().glob(word)))) or [word]]


def write_task_runs(place: Path) -> None:
    """Write a run file per task, as other tools leave them."""
    (place / "runs").mkdir(exist_ok=True)
    for file in (place / "out" / "runs").glob("*.bm25.*.trec"):
        shutil.copy(file, place / "runs" / f"{file.name.partition('.')[0]}.trec")


def make_room(words: list[str]) -> None:
    """Remove what the command is to write, which the fixture or another example wrote before."""
    for option, name in itertools.pairwise(words):
        if option in ("--out", "--exclude") and Path(name).exists():
            shutil.rmtree(name) if Path(name).is_dir() else Path(name).unlink()


def changes(words: list[str]) -> bool:
    """Whether a command removes what others need, or makes what may be there already."""
    return words[:2] in (["runs", "rm"], ["cache", "clear"], ["review", "new"], ["review", "withdraw"])


@pytest.mark.parametrize("line", [line for line in RUN if not changes(words_of(line))])
def test_the_command_works(line: str, here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    words = words_of(line)
    make_room(words)
    if "{task}" in line:
        write_task_runs(here)
    if any(name in line for name in ("/folder", "my-nano")):  # runs on one's own data have a ledger of their own here
        monkeypatch.setenv("R2MED_HOME", str(here / "other-home"))
    call(*words)


@pytest.mark.parametrize("line", [line for line in RUN if changes(words_of(line))])
def test_the_command_that_removes_works(line: str, copied_home: Path) -> None:
    words = words_of(line)
    if words[:2] == ["review", "new"]:
        (copied_home / "reviews" / f"{words[2]}.sqlite").unlink(missing_ok=True)
    call(*words, answer="y\n")


@pytest.mark.parametrize("line", NOT_RUN)
def test_the_command_that_is_not_run_can_be_read(line: str) -> None:
    command, context, words = command_of(words_of(line.replace("*", "1")))
    command.make_context(line, words, parent=context.parent)


def command_of(words: list[str]) -> tuple[click.Command, click.Context, list[str]]:
    """The verb that the first words name, or the verb below it, and the words that follow."""
    command: click.Command = app
    context = click.Context(app, info_name="r2med")
    while words and isinstance(command, click.Group) and (below := command.get_command(context, words[0])):
        command, context = below, click.Context(below, parent=context, info_name=words[0])
        words = words[1:]
    return command, context, words


@pytest.mark.parametrize("page", PAGES)
def test_what_the_prose_names_exists(page: str) -> None:
    prose = re.sub(r"(?ms)^```.*?^```$", "", (ROOT / page).read_text("utf-8"))
    for text in re.findall(r"`r2med ([a-z][^`]*)`", prose):
        command, _, words = command_of(text.split())
        assert command is not app, f"{page}: r2med {text}"
        known = {"--help", "--debug"}.union(*(param.opts + param.secondary_opts for param in command.params))
        assert {word for word in words if re.fullmatch(r"--[a-z-]+", word)} <= known, f"{page}: r2med {text}"


def read_page(address: str) -> bytes:
    """A page of a server that may not listen yet, as a browser gets it, which keeps cookies."""
    browser = urllib.request.build_opener(urllib.request.HTTPCookieProcessor())
    for _ in range(300):
        try:
            with browser.open(address, timeout=30) as page:
                return page.read()
        except urllib.error.URLError:
            time.sleep(0.1)
    raise AssertionError(f"nothing listens at {address}")


def test_the_server_serves(here: Path) -> None:
    assert "r2med serve --port 8421" in EXAMPLES
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [sys.executable, "-m", "r2med", "serve", "--port", str(port)]
    environment = os.environ | {"PYTHONPATH": str(Path(r2med.__file__).parents[1])}
    with subprocess.Popen(command, env=environment, stderr=subprocess.PIPE, text=True) as server:
        try:
            assert server.stderr is not None
            address = server.stderr.readline().split()[0]
            assert b"replay &gt;&gt; bm25" in read_page(address)
        finally:
            server.send_signal(signal.SIGINT)
        server.communicate(timeout=30)


# ---------------------------------------------------------------------------------------------- blocks of code

PYTHON = [block for block in BLOCKS if block.language == "python" and not block.file]
TOML = [block for block in BLOCKS if block.language == "toml"]
JSON = [block for block in BLOCKS if block.language == "json"]


def test_every_block_is_of_a_kind_that_is_tested() -> None:
    for block in BLOCKS:
        assert block.language in ("", "console", "text", "python", "toml", "json", "bibtex", "markdown", "sql"), block
        if block.language == "":
            strange = [
                line
                for line in block.text.splitlines()
                if not re.match(r"(r2med|make|pip|python|ray|export|\.venv/bin/\w+) ", line)
            ]
            assert strange == [], block
        assert block.language not in ("toml", "markdown") or block.file, f"{block} does not say which file it is"
        assert block.language != "text" or block.commands() == [], f"{block} hides a command"


@pytest.mark.parametrize("page", PAGES)
def test_commands_stand_in_fenced_blocks(page: str) -> None:
    prose = re.sub(r"(?ms)^```.*?^```$", "", (ROOT / page).read_text("utf-8"))
    assert re.findall(r"(?m)^    (?:\$ )?(?:r2med|python|pip|make) .*$", prose) == []


@pytest.mark.parametrize("block", PYTHON, ids=str)
@pytest.mark.usefixtures("copied_home")
def test_the_python_works(block: Block, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(Path.cwd()))
    make_room(["--out", "my-nano"] if '"my-nano"' in block.text else [])
    plain = r2med.evaluate

    def evaluate(*args: Any, **options: Any) -> r2med.Report:
        report = plain(*args, **options)
        assert not report.failures, "an example that measures nothing"
        return report

    monkeypatch.setattr(r2med, "evaluate", evaluate)
    exec(compile(block.text, str(block), "exec"), {"__name__": "__main__"})


def read_toml(file: Path) -> dict[str, Any]:
    return tomllib.loads(file.read_text("utf-8"))


def _read_settings(file: Path) -> object:
    readers: dict[str, Callable[[], object]] = {
        "aliases": aliases,
        "servers": server_sets,
        "requests": lambda: request_settings().given(),
        "limits": lambda: memory_limit() != MEMORY,
        "executor": executor_settings,
        "data": local_copies,
    }
    return all(readers[table]() for table in read_toml(file))


def _read_build_plan(file: Path) -> object:
    for block in BLOCKS:
        if block.page == "docs/how-to/build.md" and block.file:
            Path(block.file).write_text(block.text, "utf-8")
    return read_plan(file.parent).judge.models


def _entry_points(file: Path) -> set[str]:
    """The groups of a project's entry points, if every address is in a module of some page."""
    groups = tomllib.loads(file.read_text("utf-8"))["project"]["entry-points"]
    modules = {value.partition(":")[0] for points in groups.values() for value in points.values()}
    return set(groups) if modules <= set(MODULES) else set()


LOADERS: dict[str, Callable[[Path], object]] = {
    "r2med.toml": _read_settings,
    "study.toml": lambda file: read_experiment(file).systems,
    "task.toml": lambda file: folder_task(file.parent).purpose == "triage the referral",
    "tasks.toml": lambda file: all(
        registry()[task["base"]].revision == task["full"]["revision"] for task in read_toml(file)["task"]
    ),
    "encoders.toml": lambda file: [encoder_cards.card(name).pooling for name in read_toml(file)["model"]],
    "rerankers.toml": lambda file: [reranker_cards.card(name).id for name in read_toml(file)["model"]],
    "contamination.toml": lambda file: ContaminationFacts.read().statements["my-encoder"].source,
    "plan.toml": _read_build_plan,
    "engine.toml": lambda file: [read_request(str(file), vector=vector).keys() for vector in (False, True)],
    "stand-in.toml": lambda file: scripted_file(file).answer,
    "urgency.toml": lambda file: scheme(str(file)).classes == ("emergency", "within days", "routine"),
    "translator.toml": lambda file: scripted_file(file).answer,
    "writer.toml": lambda file: scripted_file(file).answer,
    "training.toml": lambda file: read_run_settings(file).train.steps == 200,
    "my-data.toml": lambda file: read_data_settings(file, {}).negatives.count == 10,
    "pyproject.toml": lambda file: _entry_points(file) == {"r2med.stages", "r2med.encoders", "r2med.verbs"},
    "scale.toml": lambda file: read_scale(file).values,
    "llms.toml": lambda file: [llm_cards.find_model(name).id for name in read_toml(file)["model"]],
}
"""What reads a file of that name, and gives something true if it took it in."""


@pytest.mark.parametrize("block", TOML, ids=str)
def test_the_settings_are_taken_in(block: Block, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    biology = next(folder for folder in sample_folders() if folder.name == "Biology")
    shutil.copytree(biology, tmp_path / "here")
    monkeypatch.setenv("R2MED_HOME", str(tmp_path / "here"))
    monkeypatch.chdir(tmp_path / "here")
    assert block.file is not None
    Path(block.file).parent.mkdir(exist_ok=True)
    Path(block.file).write_text(block.text, "utf-8")
    assert LOADERS[Path(block.file).name](Path(block.file))


@pytest.mark.parametrize("block", JSON, ids=str)
def test_the_json_is_what_the_schema_says(block: Block) -> None:
    schema = json.loads((ROOT / "docs" / "schemas" / "run.json").read_text("utf-8"))
    wrong = [fault.message for fault in Draft202012Validator(schema).iter_errors(json.loads(block.text))]
    assert wrong == []
