"""A small server that speaks the hub's file protocol, for datasets and models, with faults on demand.

    with HubServer() as hub:
        commit = hub.add("R2MED/Biology", {"corpus.jsonl": b"..."})
        hub.faults.append(Fault("corpus.jsonl", drop_after=100))
        subprocess.run([...], env=hub.environment(tmp_path))

huggingface_hub reads HF_ENDPOINT when it is imported, so what is tested runs in a process of its own.
"""

from __future__ import annotations

import base64
import hashlib
import json
import os
import re
import subprocess
import sys
import threading
from collections.abc import Mapping
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import TracebackType
from typing import Self
from urllib.parse import unquote, urlsplit

_API = re.compile(
    r"/api/(?P<kind>datasets|models)/(?P<repo>[^/]+/[^/]+)"
    r"(?:/(?P<what>revision|tree)/(?P<revision>[^/]+)(?P<under>/.+)?)?"
)
_PUSH = re.compile(
    r"/api/(?P<kind>datasets|models)/(?P<repo>[^/]+/[^/]+)/(?P<what>preupload|commit)/(?P<revision>[^/]+)"
)
_FILE = re.compile(r"/(?P<kind>datasets/)?(?P<repo>[^/]+/[^/]+)/resolve/(?P<revision>[^/]+)/(?P<file>.+)")
_SOURCE = Path(__file__).parent.parent / "src"


@dataclass
class Fault:
    """What shall go wrong with requests whose path contains `match`."""

    match: str
    status: int = 0
    """Answer with this status instead of the content."""
    code: str = ""
    """The hub's word for it: GatedRepo, RepoNotFound, ..."""
    drop_after: int | None = None
    """Send so many bytes of the answer, then close the connection."""
    times: int = -1
    """How often; -1 for always."""

    def applies(self, method: str, path: str) -> bool:
        """Whether it strikes this request; counts down when it does."""
        if self.match not in path or self.times == 0 or (self.drop_after is not None and method == "HEAD"):
            return False
        self.times -= 1
        return True


@dataclass
class Repository:
    """The files of a repository at one commit, and the branches that lead there."""

    kind: str
    commit: str
    files: dict[str, bytes]
    branches: tuple[str, ...] = ("main",)


@dataclass
class HubServer:
    """The server: add repositories, set faults, look at the requests that came."""

    repositories: dict[tuple[str, str], list[Repository]] = field(default_factory=dict)
    """The commits of each repository, the newest first; branches lead to that one."""
    faults: list[Fault] = field(default_factory=list)
    writers: dict[str, str] = field(default_factory=dict)
    """Tokens, and the organisation that each may write to."""
    private: set[str] = field(default_factory=set)
    """Repositories that were made private."""
    requests: list[str] = field(default_factory=list)
    """Every request so far, as `METHOD path`; downloads from the middle of a file end in ` from N`."""

    def add(
        self, repo: str, files: Mapping[str, bytes], *, kind: str = "datasets", commit: str = "", branch: str = "main"
    ) -> str:
        """Put a repository on the server and return its commit."""
        content = b"".join(name.encode() + body for name, body in sorted(files.items()))
        commit = commit or hashlib.sha1(content).hexdigest()
        older = self.repositories.get((kind, repo), [])
        for each in older:
            each.branches = ()
        self.repositories[kind, repo] = [Repository(kind, commit, dict(files), (branch,)), *older]
        return commit

    def __enter__(self) -> Self:
        hub: HubServer = self

        class Handler(_Handler):
            server_state = hub

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        threading.Thread(target=self._server.serve_forever, args=(0.01,), daemon=True).start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.stop()

    def stop(self) -> None:
        """Be gone: further connections are refused."""
        self._server.shutdown()
        self._server.server_close()

    @property
    def url(self) -> str:
        """Where it listens, for HF_ENDPOINT."""
        return f"http://127.0.0.1:{self._server.server_port}"

    def environment(self, home: Path, **more: str) -> dict[str, str]:
        """The environment of a process that shall use this server, with every cache under `home`."""
        kept = {name: value for name, value in os.environ.items() if not name.startswith(("HF_", "HUGGINGFACE"))}
        own = {"HF_ENDPOINT": self.url, "HF_HOME": str(home / "hf"), "R2MED_HOME": str(home / "r2med")}
        return kept | own | {"PYTHONPATH": str(_SOURCE), "NO_PROXY": "127.0.0.1", "HF_HUB_ETAG_TIMEOUT": "3"} | more


def run_python(code: str, environment: Mapping[str, str]) -> subprocess.CompletedProcess[str]:
    """Run code in a process of its own."""
    command = [sys.executable, "-c", code]
    return subprocess.run(command, env=dict(environment), capture_output=True, text=True, timeout=120, check=False)


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server_state: HubServer

    def log_message(self, format: str, *args: object) -> None:
        """Keep quiet; `requests` has it all."""

    def do_HEAD(self) -> None:
        self._answer()

    def do_GET(self) -> None:
        self._answer()

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        path = unquote(urlsplit(self.path).path)
        self.server_state.requests.append(f"POST {path}")
        fault = next((fault for fault in self.server_state.faults if fault.applies("POST", path)), None)
        push = _PUSH.fullmatch(path)
        if fault is not None and fault.status:
            self._fail(fault.status, fault.code)
        elif path == "/api/repos/create":
            self._create(json.loads(body))
        elif path == "/api/validate-yaml":
            self._reply({"errors": [], "warnings": []})
        elif push is None:
            self._fail(404, "")
        elif push["what"] == "preupload":
            files = [{"path": file["path"], "uploadMode": "regular"} for file in json.loads(body)["files"]]
            self._reply({"files": [file | {"shouldIgnore": False, "oid": None} for file in files]})
        else:
            self._commit(push, [json.loads(line) for line in body.splitlines()])

    def _may_write(self, repo: str) -> bool:
        token = self.headers.get("Authorization", "").removeprefix("Bearer ")
        allowed = self.server_state.writers.get(token) == repo.partition("/")[0]
        if not allowed:
            self._fail(403 if token in self.server_state.writers else 401, "")
        return allowed

    def _create(self, wanted: dict[str, object]) -> None:
        repo, kind = f"{wanted['organization']}/{wanted['name']}", f"{wanted['type']}s"
        if not self._may_write(repo):
            return
        known = (kind, repo) in self.server_state.repositories
        if not known:
            self.server_state.add(repo, {}, kind=kind)
            self.server_state.private |= (
                {repo} if "private" in (wanted.get("visibility"), wanted.get("private") and "private") else set()
            )
        url = f"{self.server_state.url}/{kind}/{repo}"
        self._reply({"url": url, **({"error": "exists"} if known else {})}, 409 if known else 200)

    def _commit(self, push: re.Match[str], lines: list[dict[str, dict[str, str]]]) -> None:
        if not self._may_write(push["repo"]):
            return
        newest = self.server_state.repositories[push["kind"], push["repo"]][0]
        files = dict(newest.files)
        for line in lines:
            if line["key"] == "file":
                files[line["value"]["path"]] = base64.b64decode(line["value"]["content"])
        commit = self.server_state.add(push["repo"], files, kind=push["kind"])
        page = f"{self.server_state.url}/{push['kind']}/{push['repo']}/commit/{commit}"
        self._reply({"success": True, "commitOid": commit, "commitUrl": page})

    def _reply(self, answer: object, status: int = 200) -> None:
        self._send(status, json.dumps(answer).encode(), {"Content-Type": "application/json"})

    def _answer(self) -> None:
        path = unquote(urlsplit(self.path).path)
        start = re.search(r"bytes=(\d+)-", self.headers.get("Range", ""))
        self.server_state.requests.append(f"{self.command} {path}" + (f" from {start[1]}" if start else ""))
        fault = next((fault for fault in self.server_state.faults if fault.applies(self.command, path)), None)
        if fault is not None and fault.status:
            self._fail(fault.status, fault.code)
            return
        file, api = _FILE.fullmatch(path), _API.fullmatch(path)
        if file:
            self._file(file, int(start[1]) if start else 0, fault)
        elif api:
            self._api(api, fault)
        else:
            self._fail(404, "")

    def _find(self, kind: str, match: re.Match[str]) -> Repository | None:
        commits = self.server_state.repositories.get((kind, match["repo"]))
        revision = match["revision"] or "main"
        if commits is None:
            self._fail(401, "RepoNotFound")
            return None
        found = next((each for each in commits if revision in (each.commit, *each.branches)), None)
        if found is None:
            self._fail(404, "RevisionNotFound")
        return found

    def _api(self, match: re.Match[str], fault: Fault | None) -> None:
        repository = self._find(match["kind"], match)
        if repository is None:
            return
        under = (match["under"] or "").strip("/")
        files = {name: body for name, body in sorted(repository.files.items()) if name.startswith(under)}
        answer: object
        if match["what"] == "tree":
            answer = [{"type": "file", "path": n, "size": len(body), "oid": _etag(body)} for n, body in files.items()]
        else:
            siblings = [{"rfilename": name} for name in files]
            answer = {"id": match["repo"], "sha": repository.commit, "private": False, "siblings": siblings}
        self._send(200, json.dumps(answer).encode(), {"Content-Type": "application/json"}, fault)

    def _file(self, match: re.Match[str], start: int, fault: Fault | None) -> None:
        repository = self._find("datasets" if match["kind"] else "models", match)
        if repository is None:
            return
        content = repository.files.get(match["file"])
        headers = {"X-Repo-Commit": repository.commit}
        if content is None:
            self._fail(404, "EntryNotFound", headers)
            return
        headers |= {"ETag": f'"{_etag(content)}"', "Accept-Ranges": "bytes"}
        if start:
            headers["Content-Range"] = f"bytes {start}-{len(content) - 1}/{len(content)}"
        self._send(206 if start else 200, content[start:], headers, fault)

    def _fail(self, status: int, code: str, headers: Mapping[str, str] | None = None) -> None:
        message = code or "something went wrong"
        known = {"X-Error-Code": code, "X-Error-Message": message} if code else {}
        self._send(status, json.dumps({"error": message}).encode(), {**(headers or {}), **known})

    def _send(self, status: int, content: bytes, headers: Mapping[str, str], fault: Fault | None = None) -> None:
        self.send_response(status)
        for name, value in {**headers, "Content-Length": str(len(content))}.items():
            self.send_header(name, value)
        self.end_headers()
        if self.command == "HEAD":
            return
        drop_after = fault.drop_after if fault is not None else None
        self.wfile.write(content[:drop_after])
        if drop_after is not None:
            self.close_connection = True


def _etag(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()
