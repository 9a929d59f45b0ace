"""Publishing a finished task on the hub: its parts as parquet with a config each, the card, and the build's records."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import orjson
import polars as pl

from r2med.construction.health import question_leakage
from r2med.construction.health_report import CARD
from r2med.construction.pool import CORPUS_FILE, JUDGEMENT_FILE, MANIFEST, QUERY_FILE, BuiltTask, read_built_task
from r2med.construction.selection import DEV, TEST
from r2med.data.validate import validate
from r2med.errors import R2medError
from r2med.formatting import first_line, shorten
from r2med.render.html import render_card
from r2med.store.typed import Typed, read_json_lines

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
    splits: dict[str, list[dict[str, Any]]] = {}
    for split in (DEV, TEST):
        table = built.folder / "qrels" / f"{split}.tsv"
        if table.is_file():
            options: dict[str, Any] = {"quote_char": None, "has_header": False, "skip_rows": 1, "schema": columns}
            splits[split] = pl.read_csv(table, separator="\t", **options).to_dicts()
    if (built.folder / "qrels.jsonl").is_file():  # a task without splits is all test
        splits[TEST] = read_json_lines(built.folder / "qrels.jsonl")
    splits = {split: rows for split, rows in splits.items() if rows}
    for split, rows in splits.items():
        _write_parquet(rows, draft / "qrels" / f"{split}.parquet")
    for name in _AS_THEY_ARE:
        if (built.folder / name).is_file():
            shutil.copyfile(built.folder / name, draft / name)
    card = (built.folder / CARD).read_text("utf-8") if (built.folder / CARD).is_file() else ""
    parts: dict[str, dict[str, str]] = {part: {part: f"{part}/{part}.parquet"} for part in ("corpus", "query")}
    parts |= {"qrels": {split: f"qrels/{split}.parquet" for split in splits}}
    parts |= {"judgements": {"judgements": JUDGEMENT_FILE}}
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
