"""Hosts joined by links of a chosen speed, on one machine: network namespaces, a bridge, and `tc tbf`.

    with ShapedNetwork(hosts=4, rate="1gbit") as network:
        network.popen(0, ["mpirun", *network.mpirun_arguments(), "hostname"])

Every host is a network namespace with one interface of its own; a further namespace holds the bridge, so
that the machine's own interfaces, routes and rules are never touched. Both ends of each link are shaped, so that a
host sends and receives at `rate`. Needs root and the commands `ip`, `tc` and `unshare` (Debian: iproute2,
util-linux). Everything is removed when the block ends, also after an error.
"""

from __future__ import annotations

import os
import shutil
import stat
import subprocess
import tempfile
from pathlib import Path
from types import TracebackType
from typing import Any

COMMANDS = ("ip", "tc", "unshare")
INTERFACE = "link0"
_SUBNET = "10.213.77"
# What tbf lets through at once after a pause. More would let small all-reduces exceed the rate, so that none of
# their measurements would say what a large one costs; less would not reach the rate.
_BURSTS = {"gbit": "128kb", "mbit": "32kb"}
_QUEUE = "50ms"
# Every Linux lets a namespace choose Reno, and on links this short CUBIC grows as Reno does. What the machine itself
# uses may be BBR, which paces its packets by timers that busy cores serve late.
CONGESTION_CONTROL = "reno"

_AGENT = """#!/bin/sh
# Called by mpirun as: agent HOST COMMAND...; runs the command on that host, under its name.
host=$1; shift
exec ip netns exec {prefix}-$host unshare --uts sh -c 'hostname '$host'; exec "$@"' sh sh -c "$*"
"""


class NetworkUnavailable(Exception):
    """Namespaces cannot be made here; the text says why."""


class ShapedNetwork:
    """Namespaces that behave like hosts; a context manager.

    Args:
        hosts: how many.
        rate: of each link and direction, as tc writes it, in gbit or mbit (`1gbit`, `100mbit`).
        congestion_control: TCP's, of those that the kernel lets a namespace choose.

    Attributes:
        names: the hosts' names, `host0`...
        addresses: their IPv4 addresses.
    """

    def __init__(self, hosts: int, rate: str, congestion_control: str = CONGESTION_CONTROL) -> None:
        if rate[-4:] not in _BURSTS or not rate[:-4].isdigit():
            raise NetworkUnavailable(f"'{rate}' is no rate; give a whole number of mbit or gbit, such as 100mbit")
        self.rate = rate
        self.congestion_control = congestion_control
        self.names = [f"host{number}" for number in range(hosts)]
        self.addresses = [f"{_SUBNET}.{number + 1}" for number in range(hosts)]
        self._prefix = f"mgc{os.getpid()}"
        self._made: list[str] = []
        self._folder = Path()

    def __enter__(self) -> ShapedNetwork:
        check_available()
        self._folder = Path(tempfile.mkdtemp(prefix="shaped-network-"))
        try:
            self._build()
        except BaseException:
            self.remove()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.remove()

    def mpirun_arguments(self) -> list[str]:
        """Return what mpirun needs to start a rank on each of these hosts and to talk over their links only."""
        hosts = ",".join(f"{name}:1" for name in self.names)
        arguments = ["-n", str(len(self.names)), "-H", hosts, "--bind-to", "none"]
        arguments += ["--prtemca", "plm_ssh_agent", str(self._folder / "agent")]
        # What a daemon leaves that `remove` has killed goes with the folder.
        arguments += ["--prtemca", "prte_tmpdir_base", str(self._folder)]
        arguments += ["--mca", "pml", "ob1", "--mca", "btl", "tcp,self"]
        for variable in ("PATH", "OMP_NUM_THREADS", "PYTHONPATH"):
            if variable in os.environ:
                arguments += ["-x", variable]
        return arguments

    def popen(self, host: int, command: list[str], **options: Any) -> subprocess.Popen[str]:
        """Start a command on a host, under the host's name."""
        return subprocess.Popen([*self._enter(self.names[host]), *command], text=True, **options)

    def run(self, host: int, command: list[str], **options: Any) -> subprocess.CompletedProcess[str]:
        """Run a command on a host to its end."""
        return subprocess.run([*self._enter(self.names[host]), *command], text=True, check=False, **options)

    def remove(self) -> None:
        """End what still runs there and delete the namespaces; harmless when repeated."""
        while self._made:
            name = self._made.pop()
            found = subprocess.run(["ip", "netns", "pids", name], capture_output=True, text=True, check=False)
            for process in found.stdout.split():
                subprocess.run(["kill", "-9", process], capture_output=True, check=False)
            subprocess.run(["ip", "netns", "delete", name], capture_output=True, check=False)
        if self._folder != Path():
            shutil.rmtree(self._folder, ignore_errors=True)

    def _enter(self, name: str) -> list[str]:
        rename = f'hostname {name}; exec "$@"'
        return ["ip", "netns", "exec", self._namespace(name), "unshare", "--uts", "sh", "-c", rename, "sh"]

    def _namespace(self, name: str) -> str:
        return f"{self._prefix}-{name}"

    def _build(self) -> None:
        switch = self._add_namespace("switch")
        _ip("-n", switch, "link", "add", "bridge", "type", "bridge")
        _ip("-n", switch, "link", "set", "bridge", "up")
        for number, (name, address) in enumerate(zip(self.names, self.addresses, strict=True)):
            host = self._add_namespace(name)
            choose = f"echo {self.congestion_control} > /proc/sys/net/ipv4/tcp_congestion_control"
            _ip("netns", "exec", host, "sh", "-c", choose)
            port = f"port{number}"
            _ip("link", "add", INTERFACE, "netns", host, "type", "veth", "peer", "name", port, "netns", switch)
            _ip("-n", host, "address", "add", f"{address}/24", "dev", INTERFACE)
            _ip("-n", switch, "link", "set", port, "master", "bridge")
            for namespace, interface in ((host, INTERFACE), (switch, port)):
                _ip("-n", namespace, "link", "set", interface, "up")
                shape = ["root", "tbf", "rate", self.rate, "burst", _BURSTS[self.rate[-4:]], "latency", _QUEUE]
                _call("tc", "-n", namespace, "qdisc", "add", "dev", interface, *shape)
        agent = self._folder / "agent"
        agent.write_text(_AGENT.format(prefix=self._prefix))
        agent.chmod(agent.stat().st_mode | stat.S_IXUSR)

    def _add_namespace(self, name: str) -> str:
        namespace = self._namespace(name)
        _ip("netns", "add", namespace)
        self._made.append(namespace)
        _ip("-n", namespace, "link", "set", "lo", "up")
        return namespace


def check_available() -> None:
    """Fail unless this process may make namespaces.

    Raises:
        NetworkUnavailable: not root, or a command is missing.
    """
    if os.geteuid() != 0:
        raise NetworkUnavailable("network namespaces need root")
    missing = [command for command in COMMANDS if shutil.which(command) is None]
    if missing:
        raise NetworkUnavailable(f"{', '.join(missing)} not found (Debian: apt install iproute2 util-linux)")


def _ip(*words: str) -> None:
    _call("ip", *words)


def _call(*words: str) -> None:
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    if done.returncode:
        raise NetworkUnavailable(f"`{' '.join(words)}` failed: {done.stderr.strip()}")
