"""Bad input in large numbers: every file and every text that r2med reads must end in a result or in one line.

    python benchmarks/fuzz.py [--cases 10000] [--seed 0] [--kind data]...

Five kinds of input are made by spoiling good ones: data folders (jsonl, tsv, csv, parquet), run files, specs, TOML
files, and submissions. Each is read in this process, in a home of its own that is removed at the end, and without
the network. A case is accepted, refused in one line (an error that the command line prints), or a fault: any other
exception, an error of several lines, or more than 20 seconds. A fault is printed with its seed, by which
`--only KIND:NUMBER` makes it again. The exit code is 1 when there was one.
"""

from __future__ import annotations

import gzip
import json
import os
import re
import signal
import sys
import tempfile
import time
import traceback
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import date
from decimal import Decimal
from pathlib import Path
from random import Random
from typing import Any

import click

from r2med.errors import R2medError

PATIENCE = 20  # seconds after which a case hangs

TOKENS = (
    *(
        b"",
        b"\0",
        b"\xff",
        b"\xef\xbb\xbf",
        b"\xff\xfe",
        b"\xed\xa0\x80",
        b"\r",
        b"\r\n",
        b"\n",
        b"\t",
        b" ",
        b'"',
        b"'",
    ),
    *(
        b"\\",
        b"{",
        b"}",
        b"[",
        b"]",
        b"[[",
        b":",
        b",",
        b"=",
        b"#",
        b"-",
        b"null",
        b"true",
        b"NaN",
        b"Infinity",
        b"1e999",
    ),
    *(
        b"-0",
        b"1_0",
        b"0x1",
        b"9" * 400,
        b"\xd9\xa1",
        b"\xe2\x80\xa8",
        b"\\ud800",
        b"\\u0000",
        b"[" * 1200,
        b'{"a":' * 300,
    ),
    *(
        b"PAR1",
        b"\x1f\x8b",
        b"PK\x03\x04",
        b"score",
        b"id",
        b"text",
        b">>",
        b"(",
        b")",
        b"@",
        b"./",
        b"~",
        b"//",
        b"\xf0\x9f\x98\x80",
    ),
)
"""What parsers stumble over."""

VALUES: Sequence[object] = (
    *(
        None,
        True,
        False,
        0,
        -1,
        1,
        2,
        10**9,
        2**63,
        1e300,
        -0.0,
        0.5,
        "",
        " ",
        "x",
        "1",
        "\0",
        "\ud7ff",
        "é" * 300,
        "q1",
    ),
    *("d1", [], {}, [[]], [None], {"a": {}}, [1, 2], ["d1", 1.0], "sample/Biology", "bm25", "../../etc/passwd", "a\nb"),
)
"""What a field may hold that it should not."""


class HangError(BaseException):
    """A case took too long; no handler of the package may swallow this."""


@dataclass
class Tally:
    """What became of the cases of a kind."""

    accepted: int = 0
    refused: int = 0
    faults: list[str] = field(default_factory=list)

    @property
    def cases(self) -> int:
        """How many there were."""
        return self.accepted + self.refused + len(self.faults)


# ---------------------------------------------------------------- spoiling


def spoil(random: Random, data: bytes, times: int | None = None) -> bytes:
    """Bytes with a few things changed, moved, doubled or cut off."""
    for _ in range(random.choice((1, 1, 1, 2, 5)) if times is None else times):
        start, end = sorted((random.randrange(len(data) + 1), random.randrange(len(data) + 1)))
        end = min(end, start + random.choice((0, 1, 1, 4, 40, 4000)))
        match random.randrange(6):
            case 0:
                data = data[:start] + random.choice(TOKENS) + data[end:]
            case 1:
                data = data[:start] + random.randbytes(random.randrange(1, 4)) + data[end:]
            case 2:
                data = data[:start] + data[end:]
            case 3:
                data = data[:end] + data[start:]
            case 4:
                data = data[:start]
            case _:
                lines = data.split(b"\n")
                random.shuffle(lines)
                data = b"\n".join(lines)
    return data


def spoil_value(random: Random, value: Any) -> Any:
    """A JSON value with one part of it replaced, left out, renamed or doubled."""
    if isinstance(value, dict) and value and random.random() < 0.8:
        key = random.choice(sorted(value))
        match random.randrange(4):
            case 0:
                return {name: each for name, each in value.items() if name != key}
            case 1:
                return {**value, str(random.choice(VALUES)): value[key]}
            case _:
                return {**value, key: spoil_value(random, value[key])}
    if isinstance(value, list) and value and random.random() < 0.8:
        place = random.randrange(len(value))
        match random.randrange(4):
            case 0:
                return value[:place] + value[place + 1 :]
            case 1:
                return [*value, value[place]]
            case _:
                return [*value[:place], spoil_value(random, value[place]), *value[place + 1 :]]
    return random.choice(VALUES)


def as_json(value: object) -> bytes:
    """A value as JSON, whatever it is."""
    return json.dumps(value, ensure_ascii=False).encode("utf-8", "surrogatepass")


def json_lines(random: Random, rows: Sequence[Mapping[str, object]]) -> bytes:
    """Rows as JSON lines, some of them spoiled."""
    shown: list[Any] = [spoil_value(random, dict(row)) if random.random() < 0.05 else row for row in rows]
    return b"".join(as_json(row) + b"\n" for row in shown)


def table(rows: Sequence[Sequence[object]], separator: str) -> bytes:
    """Rows as lines of cells."""
    return "".join(separator.join(map(str, row)) + "\n" for row in rows).encode("utf-8", "surrogatepass")


def parquet(random: Random, rows: Sequence[Mapping[str, object]]) -> bytes:
    """Rows as a parquet file, with columns of odd names and types."""
    from io import BytesIO

    import polars

    columns: dict[str, Any] = {name: [row[name] for row in rows] for name in rows[0]}
    if random.random() < 0.25:
        name = random.choice(sorted(columns))
        count = len(rows)
        columns[name] = random.choice(
            (
                [None] * count,
                [[1]] * count,
                [{"a": 1}] * count,
                [b"\xff"] * count,
                [date(2020, 1, 1)] * count,
                [Decimal("1.5")] * count,
                [True] * count,
                [float("nan")] * count,
                list(range(count)),
                polars.Series(["a"] * count, dtype=polars.Categorical),
            )
        )
    if random.random() < 0.1:
        columns[random.choice(("", "Score", "wert", "id", "\0"))] = columns.pop(random.choice(sorted(columns)))
    stream = BytesIO()
    polars.DataFrame(columns).write_parquet(stream)
    return stream.getvalue()


# ---------------------------------------------------------------- the kinds


DOCUMENTS = [{"id": f"d{n}", "title": "Iron", "text": f"hepcidin number {n} blocks ferroportin"} for n in range(1, 6)]
QUERIES = [{"id": f"q{n}", "text": f"why is ferritin {n} high?", "answer": "Inflammation."} for n in range(1, 4)]
QRELS = [{"q_id": f"q{1 + n % 3}", "p_id": f"d{1 + n % 5}", "score": n % 3} for n in range(9)]


def write(random: Random, path: Path, content: bytes, chance: float = 0.25) -> None:
    """A file, spoiled with some chance and zipped with a smaller one."""
    path.parent.mkdir(parents=True, exist_ok=True)
    if random.random() < chance:
        content = spoil(random, content)
    if random.random() < 0.08 and path.suffix != ".parquet":
        content = gzip.compress(content)
        content = spoil(random, content, 1) if random.random() < 0.5 else content
    path.write_bytes(content)


def data_case(random: Random, folder: Path) -> None:
    """A folder of data in one of the layouts: loaded, validated, and now and then evaluated."""
    from r2med import evaluate
    from r2med.data.loader import load
    from r2med.data.validate import validate

    qrels = [(row["q_id"], row["p_id"], row["score"]) for row in QRELS]
    for name, rows in (("corpus", DOCUMENTS), ("query", QUERIES), ("qrels", QRELS)):
        match random.randrange(4):
            case 0:
                write(random, folder / f"{name}.parquet", parquet(random, rows), 0.2)
            case 1 if name == "qrels":
                form, separator = random.choice((("tsv", "\t"), ("csv", ","), ("txt", " ")))
                header = [("query-id", "corpus-id", random.choice(("score", "rel", "x")))] * random.randrange(2)
                write(random, folder / f"qrels.{form}", table([*header, *qrels], separator))
            case _:
                write(random, folder / f"{name}.jsonl", json_lines(random, rows))
    if random.random() < 0.1:
        write(random, folder / "qrels" / "dev.tsv", table(qrels, "\t"))
    split = random.choice((*(None,) * 20, "dev", "", "\0", "nonsense"))
    report = validate(folder, split=split)
    _ = (json.dumps(report.as_dict(), ensure_ascii=False), [str(group) for group in report.groups()])
    load(folder, split=split)
    if random.random() < 0.1:
        str(evaluate("bm25", folder))


def run_case(random: Random, folder: Path) -> None:
    """A run file in one of the formats, scored with judgements that are sometimes bad too."""
    from r2med.exchange.score_files import judgements, score_files
    from r2med.measure.metrics import DEFAULT

    lists = {f"q{q}": {f"d{d}": round(random.random(), 3) for d in range(1, 6)} for q in range(1, 4)}
    rows = [(q, d, score) for q, documents in lists.items() for d, score in documents.items()]
    form = random.choice(("trec", "trec", "jsonl", "json", "parquet", "run.gz", "unknown"))
    match form:
        case "jsonl":
            content = json_lines(
                random, [{"id": q, "topk_pid": list(map(list, found.items()))} for q, found in lists.items()]
            )
        case "json":
            content = as_json(spoil_value(random, lists) if random.random() < 0.5 else lists)
        case "parquet":
            content = parquet(random, [{"query": q, "document": d, "score": score} for q, d, score in rows])
        case _:
            content = table([(q, "Q0", d, 1, score, "x") for q, d, score in rows], " ")
    write(random, folder / f"run.{form}", content, 0.7)
    write(random, folder / "judged.tsv", table([("q1", "d1", 1), ("q2", "d2", 1)], "\t"), 0.1)
    report = score_files(
        [folder / f"run.{form}"],
        judgements(folder / "judged.tsv"),
        DEFAULT,
        drop_self=random.choice([None, False, True]),
    )
    str(report)


SPECS = (
    *("bm25", "bm25(k1=1.2, b=0.75)", "rrf(bm25, bm25-classic, k=60)", "wsum(bm25, wordllama, weights=[0.5, 0.5])"),
    *("replay >> bm25", "hyde(gpt-4o, samples=2) >> bm25", "oracle-answer >> bm25", "views(bm25)", "wordllama(dim=64)"),
    *("bm25 >> cross-encoder(bge-reranker, depth=10)", "bm25 >> listwise(gpt-4o, window=20, step=10)", "hf:org/name"),
    *(
        'hyde("m@http://127.0.0.1:9/v1", prompt="x {query}") >> bm25',
        "combmnz(bm25, bm25)",
        "candidates(bm25)",
        "./folder",
    ),
    *("minilm(quantize=int8, rescore=4)", "my.module:MyEncoder(columns=4)", "answer(qwen3-8b) >> bm25(depth=5)"),
)
NUMBERS = ("0", "1", "-1", "0.0", "1e400", "1e-400", "9" * 30, "true", "none", "[1]", '""', "x", "2.5", "100", "007")
PIECES = (
    *(
        "bm25",
        "rrf",
        "(",
        ")",
        ",",
        "=",
        ">>",
        "[",
        "]",
        '"',
        "'",
        "1e400",
        "-1",
        "0",
        "9" * 30,
        "0.5",
        "true",
        "none",
        "@",
        ":",
    ),
    *(
        "depth",
        "k",
        "weights",
        "é",
        "\0",
        "\ud800",
        "http://x:99999/v1",
        "scripted:x",
        "x" * 300,
        "../",
        "~",
        " ",
        "\n",
        "json:loads",
    ),
)


def spec_case(random: Random, folder: Path) -> None:
    """A spec: read, written, read again, and asked what it depends on and needs."""
    from r2med.pipeline.system import System

    text = random.choice(SPECS)
    if random.random() < 0.5:
        text = re.sub(r"[0-9.]+", lambda _: random.choice(NUMBERS), text)
    for _ in range(random.choice((0, 1, 1, 2))):
        place = random.randrange(len(text) + 1)
        text = text[:place] + random.choice(PIECES) + text[place + random.choice((0, 0, 1, 3)) :]
    if random.random() < 0.05:
        text = "rrf(" * random.choice((5, 50, 2000)) + text + ")" * 5
    system = System.parse(text)
    if System.parse(system.spec).spec != system.spec:
        raise AssertionError(f"{system.spec} does not read back")
    _ = (system.key(), [(stage.describe(), stage.requirements) for stage in system.walk()])


EXPERIMENT = b"""tasks = ["sample/Biology"]
measures = ["nDCG@10", "Recall@100"]

[[system]]
name = "baseline"
spec = "bm25"

[[system]]
spec = "rrf(bm25, bm25-classic)"
"""
ALIASES = b'[aliases]\nbest = "rrf(bm25, wordllama)"\nother = "best >> cross-encoder(bge-reranker)"\n'
TASK = b'noun = "Letter"\ntarget = "sections"\npurpose = "triage"\nfamily = "clinical-evidence"\n'
LLMS = b"""[model.mine]
id = "x"
server = "own"
price = [0.1, 0.2]
reasoning = true
"""


LITERALS = (
    b"1",
    b"-1",
    b"true",
    b"[]",
    b"{}",
    b'""',
    b'"x"',
    b"1979-05-27",
    b"[[1]]",
    b"nan",
    b"1e999",
    b'{a = "b"}',
    b'["a", 1]',
)


def spoil_toml(random: Random, content: bytes) -> bytes:
    """A TOML file with a value of another kind, or with its bytes changed."""
    if random.random() < 0.5:
        return spoil(random, content)
    values = list(re.finditer(rb"(?<== ).+", content))
    chosen = random.choice(values)
    return content[: chosen.start()] + random.choice(LITERALS) + content[chosen.end() :]


def toml_case(random: Random, folder: Path) -> None:
    """An experiment, aliases, the words of a task, or cards of models."""
    from r2med.data.tasks import resolve
    from r2med.llm.cards import find_model
    from r2med.measure.metrics import parse_all
    from r2med.pipeline.named_runs import read_experiment
    from r2med.pipeline.system import System
    from r2med.settings import aliases

    home = Path(os.environ["R2MED_HOME"])
    match random.randrange(4):
        case 0:
            (folder / "study.toml").write_bytes(spoil_toml(random, EXPERIMENT))
            experiment = read_experiment(folder / "study.toml")
            _ = ([System.parse(spec) for spec in experiment.systems.values()], resolve(experiment.tasks))
            parse_all(experiment.measures)
        case 1:
            with replaced(home / "config.toml", spoil_toml(random, ALIASES)):
                _ = [System.parse(name) for name in aliases()]
        case 2:
            (folder / "corpus.jsonl").write_bytes(b"")
            (folder / "task.toml").write_bytes(spoil_toml(random, TASK))
            _ = [task.sentence for task in resolve([folder])]
        case _:
            with replaced(home / "llms.toml", spoil_toml(random, LLMS)):
                find_model("mine")


@contextmanager
def replaced(path: Path, content: bytes) -> Iterator[None]:
    """A file that is there for a moment."""
    path.write_bytes(content)
    try:
        yield
    finally:
        path.unlink()


def submission() -> dict[str, bytes]:
    """The files of a good submission."""
    from r2med import evaluate
    from r2med.exchange.submission import About, packed
    from r2med.runs.ledger import Ledger

    evaluate("bm25", "sample/Biology")
    with Ledger() as ledger:
        return packed(
            ledger, [each for each in ledger.entries() if each.group == "sample"], About("A title", "Somebody")
        )


def zip_case(random: Random, folder: Path, files: Mapping[str, bytes]) -> None:
    """A submission with bytes changed, or with its JSON changed and sealed again as a forger would."""
    from r2med.exchange.submission import archive_bytes, own_digest, sha256
    from r2med.exchange.verify import verify

    changed = dict(files)
    forged = random.random() < 0.7
    if forged:
        name = random.choice(sorted(changed))
        is_json = name.endswith(".json") and random.random() < 0.8
        changed[name] = (
            as_json(spoil_value(random, json.loads(changed[name]))) if is_json else spoil(random, changed[name])
        )
        try:
            manifest = json.loads(changed["manifest.json"])
            manifest["files"] = {
                each: {"sha256": sha256(content), "bytes": len(content)}
                for each, content in changed.items()
                if each != "manifest.json"
            }
            changed["manifest.json"] = as_json(manifest | {"sha256": own_digest(manifest)})
        except (ValueError, TypeError):
            pass
    data = archive_bytes(changed)
    (folder / "submission.zip").write_bytes(data if forged else spoil(random, data))
    found = verify(folder / "submission.zip")
    json.dumps(found.as_dict(), default=str)
    if any("\n" in fault for fault in found.faults):
        raise AssertionError(f"a fault of several lines: {found.faults}")
    if found.faults:
        raise R2medError(found.faults[0])


KINDS: Mapping[str, tuple[int, Callable[..., None]]] = {
    "data": (30, data_case),
    "run": (25, run_case),
    "spec": (25, spec_case),
    "toml": (10, toml_case),
    "zip": (10, zip_case),
}
"""Each kind of input: how many of a hundred cases are of it, and how one is made and read."""


# ---------------------------------------------------------------- running


def _late(*_: object) -> None:
    raise HangError


@contextmanager
def quiet_home() -> Iterator[Path]:
    """A home that is removed afterwards, no network, and no key."""
    with tempfile.TemporaryDirectory() as folder:
        before = dict(os.environ)
        home = Path(folder) / "home"
        home.mkdir()
        os.environ.update(R2MED_HOME=str(home), HF_HUB_OFFLINE="1", HF_HOME=f"{folder}/hub", NO_COLOR="1")
        try:
            yield Path(folder)
        finally:
            os.environ.clear()
            os.environ.update(before)


def attempt(kind: str, number: int, seed: int, place: Path, extra: Sequence[object], tally: Tally) -> None:
    """One case: accepted, refused, or a fault with its name."""
    with tempfile.TemporaryDirectory(dir=place) as folder:
        name = f"{kind}:{number} (seed {seed})"
        signal.setitimer(signal.ITIMER_REAL, PATIENCE)
        try:
            KINDS[kind][1](Random(f"{seed}/{kind}/{number}"), Path(folder), *extra)
        except HangError:
            tally.faults.append(f"{name}: hangs")
        except (R2medError, click.ClickException) as error:
            if "\n" in str(error) or "\r" in str(error):
                tally.faults.append(f"{name}: an error of several lines: {str(error)[:300]!r}")
            else:
                tally.refused += 1
        except Exception as error:  # what this script looks for
            last = traceback.extract_tb(error.__traceback__)[-1]
            where = f"{Path(last.filename).name}:{last.lineno}"
            tally.faults.append(f"{name}: {type(error).__name__} in {where}: {str(error)[:200]!r}")
        else:
            tally.accepted += 1
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)


def fuzz(cases: Mapping[str, Sequence[int]], seed: int = 0) -> dict[str, Tally]:
    """Try the cases of these numbers of each kind."""
    before = signal.signal(signal.SIGALRM, _late)
    tallies = {kind: Tally() for kind in cases}
    try:
        with quiet_home() as place:
            for kind, numbers in cases.items():
                extra = [submission()] if kind == "zip" else []
                for number in numbers:
                    attempt(kind, number, seed, place, extra, tallies[kind])
    finally:
        signal.signal(signal.SIGALRM, before)
    return tallies


@click.command()
@click.option("--cases", default=10_000, show_default=True, help="How many in all.")
@click.option("--seed", default=0, show_default=True)
@click.option("--kind", "kinds", multiple=True, type=click.Choice(list(KINDS)), help="Only these kinds.")
@click.option("--only", help="One case again, such as data:17.")
def main(cases: int, seed: int, kinds: tuple[str, ...], only: str | None) -> None:
    """Try bad input in large numbers and print what became of it."""
    shares = {kind: share for kind, (share, _) in KINDS.items() if not kinds or kind in kinds}
    whole = sum(shares.values())
    chosen: dict[str, Sequence[int]] = {kind: range(cases * share // whole) for kind, share in shares.items()}
    if only:
        kind, _, number = only.partition(":")
        chosen = {kind: [int(number)]}
    started = time.perf_counter()
    tallies = fuzz(chosen, seed)
    for tally in tallies.values():
        for fault in tally.faults:
            click.echo(fault)
    click.echo(f"seed {seed}, {time.perf_counter() - started:.0f} s")
    click.echo(f"{'kind':8}{'cases':>8}{'accepted':>10}{'refused':>10}{'faults':>8}")
    for kind, tally in tallies.items():
        click.echo(f"{kind:8}{tally.cases:8}{tally.accepted:10}{tally.refused:10}{len(tally.faults):8}")
    common = Counter(fault.partition(": ")[2].partition(":")[0] for each in tallies.values() for fault in each.faults)
    for what, count in common.most_common():
        click.echo(f"{count} x {what}")
    sys.exit(any(tally.faults for tally in tallies.values()))


if __name__ == "__main__":
    main()
