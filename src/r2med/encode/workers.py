"""Several devices at once: a process for each with a model of its own, and batches dealt out among them.

The processes are plain Python started anew, not forks: nothing of CUDA or of the caller's script is carried over.
Both sides talk over pipes in frames of a length and JSON, vectors follow as raw numbers. A process ends when its input
does, so that none outlives a caller that was killed and keeps a GPU's memory; workers of loky do (docs/decisions.md).
"""

from __future__ import annotations

import os
import struct
import subprocess
import sys
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import IO, Any

import numpy as np
import orjson

from r2med.encode.encoder import Vectors
from r2med.errors import R2medError
from r2med.models.loading import Build
from r2med.models.tokenizer import Style

_LENGTH = struct.Struct("<Q")


class Pool:
    """The processes of one model, one for each device; used like a model in this process."""

    def __init__(self, build: Build, devices: Sequence[str]) -> None:
        self._threads = ThreadPoolExecutor(len(devices))
        threads = max(1, (os.cpu_count() or 1) // len(devices))
        self._workers = [_Worker(build, device, threads) for device in devices]
        try:
            list(self._threads.map(_Worker.ready, self._workers))
        except BaseException:
            self.close()
            raise

    def run(self, texts: Sequence[str], style: Style) -> Vectors:
        """A batch, a share of it on each device; neighbours go to different ones, so that the shares cost the same."""
        shares = [list(texts[place :: len(self._workers)]) for place in range(len(self._workers))]
        busy = [(worker, share) for worker, share in zip(self._workers, shares, strict=True) if share]
        jobs = [self._threads.submit(worker.run, share, style) for worker, share in busy]
        # All answers are read before an error goes up: the next batch must not meet a late one.
        wait(jobs)
        parts = [job.result() for job in jobs]
        vectors = np.empty((len(texts), parts[0].shape[1]), dtype=np.float32)
        for place, part in enumerate(parts):
            vectors[place :: len(self._workers)] = part
        return vectors

    def close(self) -> None:
        """End the processes."""
        for worker in self._workers:
            worker.close()
        self._threads.shutdown()


class _Worker:
    """This side of one process."""

    def __init__(self, build: Build, device: str, threads: int) -> None:
        self.device = device
        command = [sys.executable, "-m", "r2med.encode.workers"]
        # The process must find this very package, from wherever it was imported.
        package = str(Path(__file__).resolve().parents[2])
        known = os.environ.get("PYTHONPATH")
        environment = os.environ | {"PYTHONPATH": os.pathsep.join([package, known] if known else [package])}
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment)
        self._send({"build": asdict(build), "device": device, "threads": threads})

    def ready(self) -> None:
        """Wait until the model is loaded."""
        self._receive()

    def run(self, texts: Sequence[str], style: Style) -> Vectors:
        """One batch on this device."""
        self._send({"texts": [_whole(text) for text in texts], "style": asdict(style)})
        shape = self._receive()["shape"]
        data = _read(self._process.stdout, 4 * shape[0] * shape[1])
        return np.frombuffer(data, dtype=np.float32).reshape(shape)

    def close(self) -> None:
        """Close its input, at which it ends by itself; a process that hangs is ended."""
        if self._process.stdin is not None:
            with suppress(BrokenPipeError):
                self._process.stdin.close()
        try:
            self._process.wait(timeout=10)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        if self._process.stdout is not None:
            self._process.stdout.close()

    def _send(self, message: dict[str, Any]) -> None:
        try:
            _write(self._process.stdin, orjson.dumps(message))
        except (BrokenPipeError, ValueError) as error:
            raise self._lost() from error

    def _receive(self) -> dict[str, Any]:
        try:
            answer: dict[str, Any] = orjson.loads(_read_frame(self._process.stdout))
        except EOFError as error:
            raise self._lost() from error
        match answer.get("failed"):
            case "memory":
                raise MemoryError(answer["why"])
            case "input":
                raise R2medError(answer["why"])
        return answer

    def _lost(self) -> R2medError:
        return R2medError(f"the encoding process on {self.device} ended unexpectedly; what it printed is above")


def _whole(text: str) -> str:
    """The text without lone surrogates, which JSON cannot carry."""
    return text.encode("utf-8", "replace").decode("utf-8")


def _write(stream: IO[bytes] | None, data: bytes) -> None:
    if stream is None:
        raise EOFError
    stream.write(_LENGTH.pack(len(data)) + data)
    stream.flush()


def _read(stream: IO[bytes] | None, count: int) -> bytes:
    data = stream.read(count) if stream is not None else b""
    if len(data) != count:
        raise EOFError
    return data


def _read_frame(stream: IO[bytes] | None) -> bytes:
    return _read(stream, _LENGTH.unpack(_read(stream, _LENGTH.size))[0])


def _serve(requests: IO[bytes], answers: IO[bytes]) -> None:
    """The other side: load what the first message says, then answer batches until the input ends."""
    import torch

    from r2med.encode.transformer import LoadedEncoder

    tower: LoadedEncoder | None = None
    while True:
        try:
            message = orjson.loads(_read_frame(requests))
        except EOFError:
            return
        vectors = b""
        try:
            if tower is None:
                torch.set_num_threads(message["threads"])
                build = {**message["build"], "dense": tuple(message["build"]["dense"])}
                tower = LoadedEncoder(Build(**build), message["device"])
                answer: dict[str, Any] = {}
            else:
                made = tower.run(message["texts"], Style(**message["style"]))
                answer, vectors = {"shape": made.shape}, made.astype(np.float32).tobytes()
        except MemoryError as error:
            answer = {"failed": "memory", "why": str(error)}
        except R2medError as error:
            answer = {"failed": "input", "why": str(error)}
        _write(answers, orjson.dumps(answer))
        answers.write(vectors)
        answers.flush()


def main() -> None:
    """The process of one device."""
    # Whatever a library prints must not get between the frames.
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    _serve(sys.stdin.buffer, answers)


if __name__ == "__main__":
    main()
