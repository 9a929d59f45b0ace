"""Files and folders that appear under their name only when they are complete.

A draft stands beside its target and is locked by the process that writes it. The lock goes with the process, so that
the next one removes abandoned drafts. A process id would not suffice: in a container it is the same each time.
"""

from __future__ import annotations

import errno
import hashlib
import io
import os
import re
import shutil
import stat
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from glob import escape
from pathlib import Path
from typing import TYPE_CHECKING

from r2med.errors import DataError, R2medError

if TYPE_CHECKING:
    import polars as pl


def file_name(text: str) -> str:
    """Turn a system or task into part of a file name.

    >>> file_name("bm25(k1=1.2) >> x"), file_name("sample/Biology")
    ('bm25-k1-1.2-x', 'sample-Biology')
    """
    return re.sub(r"[^A-Za-z0-9.]+", "-", text).strip("-.") or "run"


if sys.platform != "win32":
    import fcntl


_LONGEST = 200  # bytes of a target's name that fit into the name of its draft


def expanded(path: str | Path) -> Path:
    """Expand `~` and `~user` in a path."""
    try:
        return Path(path).expanduser()
    except RuntimeError as error:
        raise DataError(f"{path}: there is no such user's home") from error


def spelled(path: str) -> str:
    """Return a path in the one spelling that specs have: without `./`, `//` or `..` that lead nowhere.

    >>> spelled("./prompts//mine.txt"), spelled("prompts/../mine.txt"), spelled("")
    ('prompts/mine.txt', 'mine.txt', '')
    >>> spelled(f"../{Path.cwd().name}/mine.txt")
    'mine.txt'
    """
    if not path:
        return path
    plain = os.path.normpath(path) if Path(path).is_absolute() else os.path.relpath(path)
    try:
        # `link/..` is the parent of where the link leads.
        same = ".." not in Path(path).parts or expanded(plain).resolve() == expanded(path).resolve()
    except (OSError, ValueError):
        return path
    return plain if same else path


def write_file(path: Path, content: bytes | str, *, parents: bool = False) -> None:
    """Write a file in one step, so that no reader ever sees half of it; with `parents` its folder is created.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     write_file(Path(folder) / "a" / "b.txt", "whole", parents=True)
    ...     (Path(folder) / "a" / "b.txt").read_text()
    'whole'
    """
    data = content.encode("utf-8", "surrogateescape") if isinstance(content, str) else content
    with draft_file(path, parents=parents) as draft:
        draft.write_bytes(data)


def parquet_bytes(frame: pl.DataFrame) -> bytes:
    """Encode a table as parquet: one row group and fixed settings, so that the same rows are the same bytes."""
    content = io.BytesIO()
    frame.write_parquet(content, compression="zstd", row_group_size=max(1, len(frame)), statistics=False)
    return content.getvalue()


@contextmanager
def draft_file(path: Path, *, parents: bool = False) -> Iterator[Path]:
    """Yield a draft beside `path` that takes its name if the block succeeds, and is removed if it fails."""
    try:
        if path.is_dir():
            raise R2medError(f"{path}: is a folder; name a file")
        if path.exists() and not stat.S_ISREG(path.stat().st_mode):
            # A pipe or a device cannot be replaced.
            yield path
            return
        target = path.resolve()
        if parents:
            target.parent.mkdir(parents=True, exist_ok=True)
        with _locked_draft(target, partial(Path.touch, exist_ok=False)) as draft:
            try:
                yield draft
                # Flushed before the rename: a power cut must not leave a name without content.
                with draft.open("rb+") as file:
                    os.fsync(file)
                draft.replace(target)
            finally:
                draft.unlink(missing_ok=True)
    except OSError as error:
        raise unwritable(path, error) from error


@contextmanager
def draft_folder(parent: Path, name: str) -> Iterator[Path]:
    """Yield a draft folder in `parent`, which the block renames to `name`; what is left of it is removed."""
    with _locked_draft(parent / name, Path.mkdir) as draft:
        try:
            yield draft
        finally:
            shutil.rmtree(draft, ignore_errors=True)


def sweep(folder: Path, pattern: str) -> None:
    """Remove the drafts in a folder that were abandoned: those whose process is not alive."""
    for path in folder.glob(pattern):
        handle = _open(path)
        if handle is None:
            continue
        try:
            # Removed under the lock: a process about to take it sees that its draft is gone, and makes another.
            if lock(handle):
                if stat.S_ISDIR(os.fstat(handle).st_mode):
                    shutil.rmtree(path, ignore_errors=True)
                else:
                    path.unlink(missing_ok=True)
        except OSError:
            continue
        finally:
            os.close(handle)


def reason(error: OSError) -> str:
    """Return the message of an operating system error, in a few words."""
    return error.strerror or str(error) or type(error).__name__


def unwritable(path: Path, error: OSError) -> Exception:
    """Build the one-line error about a file or folder that cannot be written: the file that it names, or this one."""
    named = error.filename if isinstance(error.filename, str | bytes) else path
    culprit = Path(os.fsdecode(named)).absolute()
    ours = culprit.parent == path.absolute().parent or path.absolute().is_relative_to(culprit)
    return R2medError(f"{path if ours else culprit}: cannot be written ({reason(error)})")


@contextmanager
def _locked_draft(target: Path, make: Callable[[Path], object]) -> Iterator[Path]:
    """Make a new draft of a target and lock it for the block; abandoned drafts are removed first."""
    name = os.fsencode(target.name)
    prefix = f".{target.name if len(name) <= _LONGEST else hashlib.blake2b(name, digest_size=8).hexdigest()}.r2med-"
    sweep(target.parent, escape(prefix) + "????????")
    while True:
        draft = target.parent / (prefix + os.urandom(4).hex())
        make(draft)
        handle = _open(draft)
        if handle is None:
            yield draft
            return
        try:
            lock(handle, wait=True)
            if draft.exists() and os.path.samestat(os.fstat(handle), draft.stat()):
                yield draft
                return
        finally:
            os.close(handle)


def _open(path: Path) -> int | None:
    """Open a path to lock it; return None if it does not exist or cannot be opened."""
    if sys.platform != "win32":
        with suppress(OSError):
            return os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    return None


def lock(handle: int, *, wait: bool = False) -> bool:
    """Lock an open file or folder until it is closed; return False if another process has it, or there are no locks."""
    if sys.platform != "win32":
        with suppress(OSError):
            fcntl.flock(handle, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
            return True
    return False


def make_private(folder: Path) -> None:
    """Make a folder and its missing parents, readable by their owner alone: texts may be of patients."""
    if not folder.is_dir():
        make_private(folder.parent)
        try:
            folder.mkdir(mode=0o700, exist_ok=True)
        except FileExistsError:
            raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), str(folder)) from None
