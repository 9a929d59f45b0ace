"""Data from the hub: only the files that are needed, by pinned revision, and from then on without any request."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from glob import escape
from pathlib import Path
from typing import NamedTuple

from r2med.data.layout import PATTERNS, choose, config_files, listing, missing
from r2med.data.tasks import Task
from r2med.errors import DataError

_COMMIT = re.compile(r"[0-9a-f]{40}")


class Snapshot(NamedTuple):
    """Files of a repository on this machine, and the commit they belong to."""

    folder: Path
    commit: str


def fetch_task(task: Task) -> Snapshot:
    """The files of a task, downloaded unless they are on this machine already."""
    cached = cached_task(task)
    if cached is not None:
        return cached
    revision = commit_of(task)
    names = remote_names(task.hub, revision)
    parts = choose(names, task.split)
    for part in PATTERNS:
        if not getattr(parts, part):
            raise DataError(f"{task.hub} at {revision}: {missing(part, names, task.split)}")
    return download(task.hub, revision, parts.files)


def commit_of(task: Task) -> str:
    """The revision to ask for. A branch is the commit it led to when this machine first fetched something of it, so
    that tasks of one repository never come from different states of it."""
    cached = cached_snapshot(task.hub, task.revision)
    return task.revision if cached is None else cached.commit


def cached_task(task: Task) -> Snapshot | None:
    """The files of a task if all of them are on this machine already; no request is made."""
    cached = cached_snapshot(task.hub, task.revision)
    if cached is None:
        return None
    parts = choose(listing(cached.folder), task.split)
    return cached if parts.complete and all((cached.folder / name).is_file() for name in parts.files) else None


def fetch_config(task: Task, config: str) -> list[Path]:
    """The files of a further config of a task's repository, downloaded unless they are on this machine already."""
    cached = cached_snapshot(task.hub, task.revision)
    if cached is not None:
        names = config_files(config, listing(cached.folder, config), task.split)
        if names and all((cached.folder / name).is_file() for name in names):
            return [cached.folder / name for name in names]
    revision = commit_of(task)
    names = config_files(config, sorted(remote_names(task.hub, revision)), task.split)
    if not names:
        raise DataError(f"{task.hub} at {revision} has no config {config!r} for {task.split}")
    folder = download(task.hub, revision, names).folder
    return [folder / name for name in names]


def cached_snapshot(repo: str, revision: str) -> Snapshot | None:
    """What the hub's cache on this machine holds of a revision, complete or not; no request is made."""
    from huggingface_hub import constants

    folder = Path(constants.HF_HUB_CACHE) / f"datasets--{repo.replace('/', '--')}"
    try:
        commit = revision if _COMMIT.fullmatch(revision) else (folder / "refs" / revision).read_text("utf-8").strip()
        snapshot = folder / "snapshots" / commit
        return Snapshot(snapshot, commit) if snapshot.is_dir() else None
    except OSError:
        # No such branch in the cache, or no cache that can be read: a download says what is wrong with it.
        return None


def remote_names(repo: str, revision: str) -> list[str]:
    """The names of all files of a revision, asked from the hub."""
    from huggingface_hub import HfApi

    with _explained(repo, revision):
        info = HfApi(library_name="r2med").dataset_info(repo, revision=revision)
    return [sibling.rfilename for sibling in info.siblings or ()]


def download(repo: str, revision: str, names: Sequence[str]) -> Snapshot:
    """Fetch these files, with a progress bar on standard error."""
    from huggingface_hub import snapshot_download

    with _explained(repo, revision):
        folder = snapshot_download(
            repo,
            repo_type="dataset",
            revision=revision,
            allow_patterns=[escape(name) for name in names],
            library_name="r2med",
        )
    return Snapshot(Path(folder), Path(folder).name)


@contextmanager
def _explained(repo: str, revision: str) -> Iterator[None]:
    """Turn what can go wrong on the way to the hub into one line that says what to do."""
    from huggingface_hub import constants, errors

    # Which HTTP library lies underneath differs between versions; its base error is the first base of the hub's own.
    transport: type[Exception] = errors.HfHubHTTPError.__bases__[0]
    at = constants.ENDPOINT
    try:
        yield
    except errors.GatedRepoError as error:
        advice = "accept its terms there, then run `hf auth login` or set HF_TOKEN"
        raise DataError(f"{repo} is gated at {at}/datasets/{repo}: {advice}") from error
    except errors.RevisionNotFoundError as error:
        raise DataError(f"{repo} has no revision {revision} at {at}; check the revision and HF_ENDPOINT") from error
    except errors.RepositoryNotFoundError as error:
        raise DataError(f"{repo} does not exist at {at}, or is private: check HF_ENDPOINT and HF_TOKEN") from error
    except errors.OfflineModeIsEnabled as error:
        raise DataError(_offline(repo, revision)) from error
    except errors.LocalEntryNotFoundError as error:
        if constants.HF_HUB_OFFLINE:
            raise DataError(_offline(repo, revision)) from error
        raise DataError(_unreachable(repo, at, error.__cause__ or error)) from error
    except errors.HfHubHTTPError as error:
        status = error.response.status_code
        advice = "check HF_TOKEN" if status in (401, 403) else "try again later"
        raise DataError(f"{at} answered {status} for {repo}; {advice}") from error
    except (transport, ConnectionError, TimeoutError) as error:
        raise DataError(_unreachable(repo, at, error)) from error
    except OSError as error:
        if error.errno is None:
            raise DataError(_unreachable(repo, at, error)) from error
        raise DataError(f"cannot keep {repo} in {constants.HF_HUB_CACHE}: {error.strerror}; see HF_HOME") from error


def _offline(repo: str, revision: str) -> str:
    return f"{repo} at {revision} is not on this machine and HF_HUB_OFFLINE is set; unset it once to download"


def _unreachable(repo: str, at: str, error: BaseException) -> str:
    reason = (str(error).strip().splitlines() or [type(error).__name__])[0]
    return f"cannot fetch {repo} from {at} ({reason}); check the connection and run the same again"
