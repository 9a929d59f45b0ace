"""Three hosts, each a network namespace with a Ray node of its own: one is cut off, another joins, nothing is lost."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import encode_on_ray
import pytest
from encode_on_ray import HOST, computed, encode, expected, wait_until

import needs

pytest.importorskip("ray")
pytestmark = pytest.mark.skipif(
    not os.environ.get("R2MED_HOSTS"), reason="R2MED_HOSTS=1 tests three hosts as network namespaces; it needs root"
)

PORT = 6399
NETWORK = "10.213.47"
RAY = {
    "RAY_AUTH_MODE": "token",
    "RAY_AUTH_TOKEN": "a-token-of-this-test-and-of-nothing-else",
    "RAY_agent_register_timeout_ms": "120000",
}
"""All hosts of a cluster have the same token; a busy machine takes its time to start a node."""
_LONG = 180.0


class Hosts:
    """A bridge, and hosts on it that reach each other and nothing else."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.name = folder, f"r2m{os.getpid() % 100000}"
        self.made: list[str] = []
        self.programs: list[subprocess.Popen[bytes]] = []
        self.nodes: dict[int, subprocess.Popen[bytes]] = {}
        ip("link", "add", self.name, "type", "bridge")
        ip("link", "set", self.name, "up")

    def add(self) -> int:
        """One more host; its number is the end of its address."""
        number = len(self.made) + 1
        host, cable = f"{self.name}-{number}", self.cable(number)
        ip("netns", "add", host)
        self.made.append(host)
        ip("link", "add", cable, "type", "veth", "peer", "name", "eth0", "netns", host)
        ip("link", "set", cable, "master", self.name, "up")
        ip("-n", host, "address", "add", f"{NETWORK}.{number}/24", "dev", "eth0")
        for device in ("lo", "eth0"):
            ip("-n", host, "link", "set", device, "up")
        return number

    def cable(self, number: int) -> str:
        """The end of a host's cable that is in the bridge."""
        return f"{self.name}v{number}"

    def cut_off(self, number: int, shared: Path) -> None:
        """Pull the cable: no packet goes to the host or comes from it, nor does it see the storage any more."""
        ip("link", "set", self.cable(number), "down")
        inside = [needs.program("nsenter"), f"--target={self.nodes[number].pid}", "--mount"]
        subprocess.run([*inside, "mount", "-t", "tmpfs", "none", str(shared)], check=True)

    def start(self, number: int, command: list[str], **variables: str) -> subprocess.Popen[bytes]:
        """A program on a host, with everything that it starts in a group of its own."""
        output = (self.folder / f"host{number}.log").open("ab")
        full = [needs.program("ip"), "netns", "exec", self.made[number - 1], *command]
        environment = os.environ | RAY | variables
        program = subprocess.Popen(full, env=environment, stdout=output, stderr=output, start_new_session=True)
        self.programs.append(program)
        return program

    def start_ray(self, number: int) -> None:
        """The node of a host; the first is the head of the cluster."""
        role = ["--head", f"--port={PORT}", "--include-dashboard=false"]
        if number > 1:
            role = [f"--address={NETWORK}.1:{PORT}"]
        place = [f"--node-ip-address={NETWORK}.{number}", "--num-cpus=1", "--object-store-memory=100000000"]
        ray = str(Path(sys.executable).with_name("ray"))
        temp = [f"--temp-dir={self.folder / str(number)}"]
        self.nodes[number] = self.start(
            number, [ray, "start", "--block", "--disable-usage-stats", *role, *place, *temp], **{HOST: str(number)}
        )
        wait_until(lambda: "Ray runtime started" in self.output(number))

    def output(self, number: int) -> str:
        """The end of what the programs of a host have printed."""
        return (self.folder / f"host{number}.log").read_text()[-3000:]

    def close(self) -> None:
        """End whatever runs on the hosts, and take the network down; each step whatever became of the one before."""
        for number, host in enumerate(self.made, 1):
            while running := _ip("netns", "pids", host).stdout.split():
                for process in running:
                    with suppress(ProcessLookupError):
                        os.kill(int(process), signal.SIGKILL)
                time.sleep(0.05)
            _ip("link", "delete", self.cable(number))
            _ip("netns", "delete", host)
        for program in self.programs:
            program.wait()
        _ip("link", "delete", self.name)


def ip(*arguments: str) -> None:
    """Have `ip` do something; the test is skipped where it may not."""
    said = _ip(*arguments).stderr.strip()
    if "not permitted" in said or "denied" in said.lower():
        pytest.skip(f"network namespaces are not permitted here: {said}")
    assert not said, f"ip {' '.join(arguments)}: {said}"


def _ip(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([needs.program("ip"), *arguments], capture_output=True, text=True, check=False)


@pytest.fixture
def hosts() -> Iterator[Hosts]:
    """A network without hosts; sockets of Ray need a short path."""
    with tempfile.TemporaryDirectory(prefix="r2m") as folder:
        made = Hosts(Path(folder))
        try:
            yield made
        finally:
            made.close()


def encode_from(hosts: Hosts, number: int, log: Path, gate: Path, **variables: str) -> subprocess.Popen[bytes]:
    """Start encoding on a host, with a worker on every node of the cluster, also on those that come later."""
    paths = [str(Path(encode_on_ray.__file__).parent), *sys.path]
    python_path = os.pathsep.join(filter(None, paths))
    command = [sys.executable, encode_on_ray.__file__, str(log), str(gate), "0"]
    variables |= {"RAY_ADDRESS": f"{NETWORK}.1:{PORT}", "PYTHONPATH": python_path}
    return hosts.start(number, command, **variables)


def blocks_of_hosts(log: Path) -> Counter[str]:
    """How many blocks each host has begun."""
    return Counter(block.node for block in computed(log))


def test_a_host_may_be_cut_off_and_another_join(hosts: Hosts, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shared = tmp_path / "shared"
    shared.mkdir()
    log, gate = shared / "log", shared / "gate"
    monkeypatch.setenv("R2MED_HOME", str(shared / "home"))
    for _ in range(3):
        hosts.start_ray(hosts.add())
    driver = encode_from(hosts, 1, log, gate)
    wait_until(lambda: blocks_of_hosts(log) == {"1": 4, "2": 4, "3": 4} or driver.poll() is not None)
    hosts.cut_off(3, shared)
    hosts.start_ray(hosts.add())
    wait_until(lambda: blocks_of_hosts(log)["4"] or driver.poll() is not None)
    gate.touch()
    assert driver.wait(_LONG) == 0, hosts.output(1)
    blocks = [block.text for block in computed(log)]
    lost = [block.text for block in computed(log) if block.node == "3"]
    assert set(blocks_of_hosts(log)) == {"1", "2", "3", "4"}
    assert [blocks.count(text) for text in lost[:3]] == [1, 1, 1], "what it had done is not computed again"
    assert blocks.count(lost[3]) > 1, "what it was busy with is done by another"
    assert encode(log)[:].tobytes() == expected(tmp_path)
    assert len(computed(log)) == len(blocks), "the driver has kept all vectors"


def test_another_token_than_that_of_the_cluster_is_one_line(hosts: Hosts, tmp_path: Path) -> None:
    hosts.start_ray(hosts.add())
    before = len(hosts.output(1))
    driver = encode_from(hosts, 1, tmp_path / "log", tmp_path / "gate", RAY_AUTH_TOKEN="a-token-of-nobody-at-all")
    assert driver.wait(_LONG) == 1
    assert "gcs_client" not in hosts.output(1)[before:], "lines of Ray's own"
    assert f"the Ray cluster at {NETWORK}.1:{PORT} asks for a token: set RAY_AUTH_MODE=token" in hosts.output(1)
