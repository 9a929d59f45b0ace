"""Several devices at once: a process for each with a model of its own, and batches dealt out among them.

Frames are JSON, vectors follow as raw numbers. No process outlives a caller that was killed and keeps a GPU's memory
(`r2med.store.processes`); workers of loky do (docs/project/decisions.md).
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from dataclasses import asdict
from typing import Any

import numpy as np
import orjson

from r2med.encode.encoder import Vectors
from r2med.encode.loading import Build
from r2med.errors import R2medError
from r2med.formatting import replace_surrogates
from r2med.models.tokenizer import Style
from r2med.store.processes import ChildProcess, caller_pipes


class Pool:
    """The processes of one model, one for each device; used like a model in this process."""

    def __init__(self, build: Build, devices: Sequence[str]) -> None:
        self._threads = ThreadPoolExecutor(len(devices))
        threads = max(1, (os.cpu_count() or 1) // len(devices))
        self._workers = [_Worker(build, device, threads) for device in devices]
        try:
            # Wait until all models are loaded.
            list(self._threads.map(_Worker.receive, self._workers))
        except BaseException:
            self.close()
            raise

    def run(self, texts: Sequence[str], style: Style) -> Vectors:
        """Encode a batch, a share on each device; neighbours go to different ones, so that shares cost the same."""
        shares = [texts[place :: len(self._workers)] for place in range(min(len(self._workers), len(texts)))]
        workers = zip(self._workers, shares, strict=False)
        jobs = [self._threads.submit(worker.run, share, style) for worker, share in workers]
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
            worker.process.close()
        self._threads.shutdown()


class _Worker:
    """Client of one process."""

    def __init__(self, build: Build, device: str, threads: int) -> None:
        self.device = device
        self.process = ChildProcess("r2med.encode.workers")
        self._send({"build": asdict(build), "device": device, "threads": threads})

    def run(self, texts: Sequence[str], style: Style) -> Vectors:
        """Encode one batch on this device."""
        # JSON cannot carry lone surrogates.
        self._send({"texts": list(map(replace_surrogates, texts)), "style": asdict(style)})
        rows, columns = self.receive()["shape"]
        return np.frombuffer(self.process.receive(), dtype=np.float32).reshape(rows, columns)

    def _send(self, message: dict[str, Any]) -> None:
        try:
            self.process.send(orjson.dumps(message))
        except (BrokenPipeError, ValueError) as error:
            raise self._lost() from error

    def receive(self) -> dict[str, Any]:
        """Read an answer; raise what went wrong over there."""
        try:
            answer: dict[str, Any] = orjson.loads(self.process.receive())
        except EOFError as error:
            raise self._lost() from error
        if failed := answer.get("failed"):
            raise MemoryError(answer["why"]) if failed == "memory" else R2medError(answer["why"])
        return answer

    def _lost(self) -> R2medError:
        return R2medError(f"the encoding process on {self.device} ended unexpectedly; what it printed is above")


def main() -> None:
    """Run the process of one device: load the model of the first message, then answer batches until the input ends."""
    import torch

    from r2med.encode.transformer import LoadedEncoder

    pipes = caller_pipes()
    model: LoadedEncoder | None = None
    while True:
        try:
            message = orjson.loads(pipes.receive())
        except EOFError:
            return
        vectors = b""
        try:
            if model is None:
                torch.set_num_threads(message["threads"])
                build = {**message["build"], "dense": tuple(message["build"]["dense"])}
                model = LoadedEncoder(Build(**build), message["device"])
                answer: dict[str, Any] = {}
            else:
                matrix = model.run(message["texts"], Style(**message["style"]))
                answer, vectors = {"shape": matrix.shape}, matrix.astype(np.float32).tobytes()
        except (MemoryError, R2medError) as error:
            answer = {"failed": "memory" if isinstance(error, MemoryError) else "input", "why": str(error)}
        pipes.send(orjson.dumps(answer))
        if "shape" in answer:
            pipes.send(vectors)


if __name__ == "__main__":
    main()
