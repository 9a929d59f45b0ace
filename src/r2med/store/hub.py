"""The Hugging Face hub, for data and models alike: its cache on this machine, its files, and its errors."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from glob import escape
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from r2med.errors import HubUnreachable, R2medError
from r2med.formatting import first_line

if TYPE_CHECKING:
    from huggingface_hub import DatasetInfo, ModelInfo

_COMMIT = re.compile(r"[0-9a-f]{40}")


class Snapshot(NamedTuple):
    """Files of a repository on this machine, and the commit they belong to."""

    folder: Path
    commit: str


@dataclass(frozen=True)
class Hub:
    """Repositories of one kind on the hub."""

    kind: str  # `dataset` or `model`, as the hub calls them
    error: type[R2medError]  # the error to raise if files are not available

    def cached_commit(self, repo: str, revision: str) -> str | None:
        """Return the commit behind a revision, as far as this machine knows; no request is made.

        >>> Hub("model", R2medError).cached_commit("me/mine", "0123456789" * 4)
        '0123456789012345678901234567890123456789'
        """
        if _COMMIT.fullmatch(revision):
            return revision
        try:
            return (self._cache(repo) / "refs" / revision).read_text("utf-8").strip()
        except OSError:
            # No such branch in the cache, or no cache that can be read: a download says what is wrong with it.
            return None

    def folder(self, repo: str, commit: str) -> Path:
        """Return the folder in which the cache keeps the files of a commit, once it has any."""
        return self._cache(repo) / "snapshots" / commit

    def cached(self, repo: str, revision: str) -> Snapshot | None:
        """Return what the cache on this machine holds of a revision, complete or not; no request is made."""
        commit = self.cached_commit(repo, revision)
        if commit is None:
            return None
        folder = self.folder(repo, commit)
        try:
            return Snapshot(folder, commit) if folder.is_dir() else None
        except OSError:
            return None

    def names(self, repo: str, revision: str) -> list[str]:
        """Ask the hub for the names of all files of a revision."""
        return [sibling.rfilename for sibling in self.info(repo, revision).siblings or ()]

    def download(self, repo: str, revision: str, names: Sequence[str]) -> Snapshot:
        """Download these files, with a progress bar on standard error."""
        from huggingface_hub import snapshot_download

        with self.translate_errors(repo, revision):
            folder = snapshot_download(
                repo,
                repo_type=self.kind,
                revision=revision,
                allow_patterns=[escape(name) for name in names],
                library_name="r2med",
            )
        return Snapshot(Path(folder), Path(folder).name)

    @contextmanager
    def translate_errors(self, repo: str, revision: str) -> Iterator[None]:
        """Turn any error on the way to the hub into one line that says what to do."""
        from huggingface_hub import constants, errors

        # Which HTTP library lies underneath differs between versions; its base error is the first base of the hub's.
        transport: type[Exception] = errors.HfHubHTTPError.__bases__[0]
        at = constants.ENDPOINT
        try:
            yield
        except errors.HFValidationError as error:
            raise self.error(f"{repo!r} is neither a name of a repository on the hub nor a folder here") from error
        except errors.GatedRepoError as error:
            page = f"{at}/datasets/{repo}" if self.kind == "dataset" else f"{at}/{repo}"
            advice = "accept its terms there, then run `hf auth login` or set HF_TOKEN"
            raise self.error(f"{repo} is gated at {page}: {advice}") from error
        except errors.RevisionNotFoundError as error:
            advice = "check the revision and HF_ENDPOINT"
            raise self.error(f"{repo} has no revision {revision} at {at}; {advice}") from error
        except errors.RepositoryNotFoundError as error:
            advice = "check the name, HF_ENDPOINT and HF_TOKEN"
            raise self.error(f"{repo} does not exist at {at}, or is private: {advice}") from error
        except (errors.OfflineModeIsEnabled, errors.LocalEntryNotFoundError) as error:
            if isinstance(error, errors.OfflineModeIsEnabled) or constants.HF_HUB_OFFLINE:
                advice = "HF_HUB_OFFLINE is set; unset it once to download"
                raise HubUnreachable(f"{repo} at {revision} is not on this machine and {advice}") from error
            raise HubUnreachable(_unreachable(repo, at, error.__cause__ or error)) from error
        except errors.HfHubHTTPError as error:
            status = error.response.status_code
            advice = "check HF_TOKEN" if status in (401, 403) else "try again later"
            raise self.error(f"{at} answered {status} for {repo}; {advice}") from error
        except (transport, ConnectionError, TimeoutError) as error:
            raise HubUnreachable(_unreachable(repo, at, error)) from error
        except OSError as error:
            if error.errno is None:
                raise HubUnreachable(_unreachable(repo, at, error)) from error
            where = f"in {constants.HF_HUB_CACHE}: {error.strerror}; see HF_HOME"
            raise self.error(f"cannot keep {repo} {where}") from error

    def info(self, repo: str, revision: str) -> DatasetInfo | ModelInfo:
        """Ask the hub for its facts about a revision now."""
        from huggingface_hub import HfApi

        api = HfApi(library_name="r2med")
        with self.translate_errors(repo, revision):
            if self.kind == "dataset":
                return api.dataset_info(repo, revision=revision)
            return api.model_info(repo, revision=revision)

    def _cache(self, repo: str) -> Path:
        from huggingface_hub import constants

        return Path(constants.HF_HUB_CACHE) / f"{self.kind}s--{repo.replace('/', '--')}"


def _unreachable(repo: str, at: str, error: BaseException) -> str:
    return f"cannot fetch {repo} from {at} ({first_line(error)}); check the connection and run the same again"
