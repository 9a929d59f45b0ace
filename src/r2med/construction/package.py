"""The built task: a folder in R2MED's layout with all judgements and a card, and a dataset that is pushed to the hub.

On the hub its parts are parquet with a config each, beside the card and the records of the build.
"""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

import orjson
import polars as pl

from r2med.construction.health import known_health, question_leakage
from r2med.construction.health_report import CARD, card_section, describe_judges
from r2med.construction.items import Passage, Question
from r2med.construction.mining import PassageCorpus
from r2med.construction.plan import PLACES, BuildPlan, TaskFacts
from r2med.construction.pool import (
    CORPUS_FILE,
    FORMAT,
    JUDGEMENT_FILE,
    MANIFEST,
    QUERY_FILE,
    BuiltTask,
    JudgedPool,
    read_built_task,
)
from r2med.construction.selection import DEV, TEST, Selection
from r2med.data.labels import BAND, NEGATIVE, POSITIVE, write_labels
from r2med.data.validate import validate
from r2med.errors import R2medError
from r2med.formatting import first_line, money, shorten
from r2med.llm.items import Count, ItemStore, Outcome
from r2med.render.html import render_card
from r2med.store.files import draft_folder, parquet_bytes, unwritable
from r2med.store.typed import Typed, json_lines, read_json_lines

_BATCH = 10_000
_TEXT, _NUMBER = pl.String(), pl.Float64()
JUDGEMENTS = {
    **dict.fromkeys(("query_id", "passage_id", "verdict"), _TEXT),
    **dict.fromkeys(("answers", "supports"), _NUMBER),
    "judge": _TEXT,
    **dict.fromkeys(("judge_answers", "judge_supports"), _NUMBER),
    **dict.fromkeys(("reason", "quote", "quote_state"), _TEXT),
    "unread": pl.Int64(),
    **dict.fromkeys(("system", "view"), pl.List(_TEXT)),
    "rank": pl.List(pl.Int64()),
}
"""The columns of judgements.parquet, a row an opinion: one row without a judge where none could be read."""


@dataclass(frozen=True)
class Package:
    """Content of the task's folder."""

    plan: BuildPlan
    corpus: PassageCorpus
    selection: Selection
    counts: Sequence[Count]
    steps: Mapping[str, Mapping[str, Outcome]]
    store: ItemStore  # where the judgements are: they may be more than memory holds

    def _labels(self, question: Question) -> Mapping[str, str]:
        outcome = self.steps.get("label", {}).get(question.id, Outcome())
        labels: Mapping[str, str] = outcome.value.get("labels", {})
        return labels

    def write(self, folder: Path) -> None:
        """Write the folder as a whole; replace one that this command made before."""
        if folder.exists() and not (folder / MANIFEST).is_file():
            raise R2medError(f"{folder}: exists and was not made by r2med build; move it away")
        try:
            with draft_folder(folder.parent, folder.name) as draft:
                for name, content in self.files():
                    (draft / name).parent.mkdir(exist_ok=True)
                    (draft / name).write_bytes(content)
                scheme = next(iter(self.plan.label.by), "")
                labels = {question.id: self._labels(question).get(scheme) for question in self.selection.questions}
                if rows := [("", name, label) for name, label in labels.items() if label is not None]:
                    write_labels(draft / "labels.tsv", rows)
                shutil.rmtree(folder, ignore_errors=True)
                draft.rename(folder)
        except OSError as error:
            raise unwritable(folder, error) from error

    def files(self) -> Iterator[tuple[str, bytes]]:
        """Yield the files with their names."""
        yield QUERY_FILE, json_lines(self._query_rows())
        yield CORPUS_FILE, json_lines(map(_corpus_row, map(self.corpus.passage, self.selection.passages)))
        rows, frames = self._judgement_rows(), [pl.DataFrame(schema=JUDGEMENTS)]
        while batch := list(islice(rows, _BATCH)):  # as columns, many rows take a tenth of the memory
            frames.append(pl.DataFrame(batch, schema=JUDGEMENTS))
        judgements = pl.concat(frames, rechunk=True)
        manifest = {
            "format": FORMAT,
            "plan": self.plan.settings,
            "guideline": self.plan.guideline,
            "prompts": {name: self.plan.prompt(name).text for name in PLACES},
            "funnel": [count.as_dict() for count in self.counts],
            "questions": len(self.selection.questions),
            "passages": len(self.selection.passages),
            "positives": sum(row["score"] for row in self._qrel_rows()),
        }
        yield JUDGEMENT_FILE, parquet_bytes(judgements)
        splits = self.selection.splits
        health = known_health(JudgedPool.of(judgements, self.selection.questions, splits), manifest)
        facts = self.plan.task
        stated = {"name": facts.name} if facts.name != TaskFacts().name else {}
        stated |= facts.words
        yield "task.toml", b"".join(f"{name} = ".encode() + orjson.dumps(text) + b"\n" for name, text in stated.items())
        yield MANIFEST, orjson.dumps(manifest, option=orjson.OPT_INDENT_2) + b"\n"
        values = {"plan": self.plan, "counts": self.counts, "manifest": manifest, "remarks": remarks, "money": money}
        settings = orjson.dumps(manifest["plan"], option=orjson.OPT_INDENT_2).decode()
        card = render_card(
            "construction/card.md",
            **values,
            settings=settings,
            health=card_section(health),
            judges=describe_judges(health),
        )
        yield CARD, f"{card}\n".encode("utf-8", "replace")
        if self.selection.splits:
            for split in (DEV, TEST):
                pairs = [row.values() for row in self._qrel_rows() if splits[row["q_id"]] == split]
                table = [("query-id", "corpus-id", "score", "verdict"), *pairs]
                yield f"qrels/{split}.tsv", "".join("\t".join(map(str, row)) + "\n" for row in table).encode()
        else:
            yield "qrels.jsonl", json_lines(self._qrel_rows())

    def _query_rows(self) -> Iterator[dict[str, Any]]:
        for question in self.selection.questions:
            row: dict[str, Any] = {"id": question.id, "text": question.text, "answer": question.answer}
            names = ("reasoning", *("original", "options") * bool(question.options), "sources", "intent")
            row |= {name: value for name in names if (value := getattr(question, name))}
            yield row | dict(self._labels(question))

    def _qrel_rows(self) -> Iterator[dict[str, Any]]:
        """Yield all judged pairs, positives first: one that was judged irrelevant is known to be, and is not a hole."""
        inside = set(self.selection.passages)
        for question in self.selection.questions:
            verdicts = self.selection.verdicts[question.id]
            for kind in (POSITIVE, BAND, NEGATIVE):
                for passage, verdict in verdicts.items():
                    if verdict == kind and passage in inside:
                        score = int(verdict == POSITIVE)
                        yield {"q_id": question.id, "p_id": passage, "score": score, "verdict": verdict}

    def _judgement_rows(self) -> Iterator[dict[str, Any]]:
        """Yield rows of all judged pairs, including those of questions that the last step dropped."""
        for question, outcome in self.steps["select"].items():
            judged = self.store.below("judge", question)
            ways = self.store.sound("mine", question).value["candidates"]
            for passage, verdict in outcome.value["verdicts"].items():
                row = {"query_id": question, "passage_id": passage, "verdict": verdict}
                systems, views, ranks = zip(*ways[passage], strict=True)
                value = judged[passage].value
                row |= {name: value.get(name) for name in ("unread", "answers", "supports")}
                row |= {"system": list(systems), "view": list(views), "rank": list(ranks)}
                for opinion in value.get("opinions") or [{}]:
                    grades = {f"judge_{axis}": opinion.get(axis) for axis in ("answers", "supports")}
                    texts = {name: opinion.get(name) for name in ("judge", "reason", "quote", "quote_state")}
                    yield row | grades | texts


_NAMED = 10


def _corpus_row(passage: Passage) -> dict[str, Any]:
    fields = {name: getattr(passage, name) for name in ("id", "title", "text", "source", "document", "start", "end")}
    return {name: value for name, value in fields.items() if value or name not in ("title", "source")}


def remarks(count: Count) -> list[str]:
    """Return why items were dropped, failed or are marked, with counts: the most frequent first."""
    notes = []
    for reasons, prefix in ((count.dropped, "dropped: "), (count.failed, "failed: "), (count.marks, "marked: ")):
        for reason, number in sorted(reasons.items(), key=lambda entry: (-entry[1], entry[0])):
            names = count.names.get(reason, ())
            more = f" and {len(names) - _NAMED:,} more" if len(names) > _NAMED else ""
            listed = f": {', '.join(names[:_NAMED])}{more}" if names else ""
            notes.append(f"{number:,} {prefix}{reason}{listed}")
    return notes


_AS_THEY_ARE = ("task.toml", "labels.tsv", MANIFEST, JUDGEMENT_FILE)


class HubFile(Typed, frozen=True):
    """A file of the repository."""

    name: str
    bytes: int


class Publication(Typed, frozen=True):
    """Result of a push, or the plan of one."""

    repo: str
    private: bool
    files: list[HubFile]
    url: str = ""
    """Where it is now; empty while nothing was pushed."""
    commit: str = ""


def publish(folder: Path, repo: str, *, private: bool = False, dry_run: bool = False) -> Publication:
    """Push a finished task to the hub; one that should not be published is refused before anything is sent."""
    from huggingface_hub import get_token

    built = read_built_task(folder)
    refuse_unfit(built)
    if not dry_run and not get_token():
        raise R2medError("no token of the hub: set HF_TOKEN in the environment, or run: hf auth login")
    with tempfile.TemporaryDirectory(prefix="r2med-publish-") as place:
        draft = Path(place)
        write_hub_layout(built, draft)
        names = sorted(path.relative_to(draft).as_posix() for path in draft.rglob("*") if path.is_file())
        files = [HubFile(name, (draft / name).stat().st_size) for name in names]
        if dry_run:
            return Publication(repo, private, files)
        from huggingface_hub import HfApi

        api = HfApi(library_name="r2med")
        with _translated(repo):
            api.create_repo(repo, repo_type="dataset", private=private, exist_ok=True)
            message = "Publish a task made by r2med build"
            done = api.upload_folder(repo_id=repo, repo_type="dataset", folder_path=draft, commit_message=message)
        url, commit = f"{api.endpoint}/datasets/{repo}", str(done.oid)
    return Publication(repo, private, files, url, commit)


def refuse_unfit(built: BuiltTask) -> None:
    """Raise an error with the first reason against publishing a task."""
    report = validate(built.folder)
    if not report.ok:
        first = next(problem for problem in report.problems if problem.severity == "error")
        raise R2medError(f"not published: the task is not valid: {first}; see: r2med tasks validate {built.folder}")
    if not built.manifest["plan"]["task"]["licence"].strip():
        advice = "say it in plan.toml, [task] licence, and run the build again"
        raise R2medError(f"not published: the licence of the texts is not stated; {advice}")
    across = question_leakage(built.pool).across
    if across:
        one, other, shared = across[0]
        advice = "build again with another seed of [select], or drop one of each pair"
        raise R2medError(
            f"not published: dev and test leak into each other: {shorten(one)} and {shorten(other)} share {shared}"
            f" ({len(across):,} such pairs); {advice}"
        )


def write_hub_layout(built: BuiltTask, draft: Path) -> None:
    """Write the files of the repository: a folder of parquet for each part, named by its config."""
    for part, file in (("corpus", CORPUS_FILE), ("query", QUERY_FILE)):
        _write_parquet(read_json_lines(built.folder / file), draft / part / f"{part}.parquet")
    columns = {"q_id": pl.String(), "p_id": pl.String(), "score": pl.Int64(), "verdict": pl.String()}
    options: dict[str, Any] = {"quote_char": None, "has_header": False, "skip_rows": 1, "schema": columns}
    splits: dict[str, list[dict[str, Any]]] = {}
    for table in (built.folder / "qrels" / f"{split}.tsv" for split in (DEV, TEST)):
        if table.is_file():
            splits[table.stem] = pl.read_csv(table, separator="\t", **options).to_dicts()
    if (built.folder / "qrels.jsonl").is_file():  # a task without splits is all test
        splits[TEST] = read_json_lines(built.folder / "qrels.jsonl")
    splits = {split: rows for split, rows in splits.items() if rows}
    for split, rows in splits.items():
        _write_parquet(rows, draft / "qrels" / f"{split}.parquet")
    for name in _AS_THEY_ARE:
        if (built.folder / name).is_file():
            shutil.copyfile(built.folder / name, draft / name)
    card = (built.folder / CARD).read_text("utf-8") if (built.folder / CARD).is_file() else ""
    parts = {
        "corpus": {"corpus": "corpus/corpus.parquet"},
        "query": {"query": "query/query.parquet"},
        "qrels": {split: f"qrels/{split}.parquet" for split in splits},
        "judgements": {"judgements": JUDGEMENT_FILE},
    }
    licence = orjson.dumps(built.manifest["plan"]["task"]["licence"]).decode()
    body = card.partition("---")[2].partition("---")[2].lstrip() or card
    head = render_card("construction/hub.md", licence=licence, files=parts)
    (draft / CARD).write_text(f"{head}\n\n{body}", "utf-8")


def _write_parquet(rows: Sequence[Mapping[str, Any]], file: Path) -> None:
    """Write rows as parquet; a field that a row lacks is null."""
    file.parent.mkdir(parents=True, exist_ok=True)
    pl.DataFrame(rows, infer_schema_length=None).write_parquet(file, compression="zstd", statistics=False)


@contextmanager
def _translated(repo: str) -> Iterator[None]:
    """Turn errors of the hub's library into errors of one line."""
    from huggingface_hub import constants, errors

    transport: type[Exception] = errors.HfHubHTTPError.__bases__[0]
    hub = constants.ENDPOINT
    try:
        yield
    except errors.HFValidationError as error:
        raise R2medError(f"{repo!r} is not a name for a repository of the hub; write ORG/NAME") from error
    except errors.OfflineModeIsEnabled as error:
        raise R2medError(f"HF_HUB_OFFLINE is set, so nothing can be pushed to {hub}; unset it") from error
    except errors.HfHubHTTPError as error:
        status = error.response.status_code
        why = f"{hub} answered {status} while {repo} was pushed; run the same command again later"
        if status in (401, 403, 404):
            advice = f"check HF_TOKEN; it needs the right to write to {repo.partition('/')[0]}"
            why = f"{hub} does not let this token write to {repo} ({status}): {advice}"
        raise R2medError(why) from error
    except (transport, ConnectionError, TimeoutError) as error:
        advice = "check the connection and run the same again"
        raise R2medError(f"cannot push {repo} to {hub} ({first_line(error)}); {advice}") from error
