"""A cluster whose daemon and agents each have a network of their own, over mutual TLS.

Every party is in a network namespace, and a bridge in one more namespace connects them. A cut sends
the packets of one party for another one to a machine that does not exist, so that they are lost in
one direction and in silence, as on a broken link.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Iterable, Sequence
from itertools import product
from typing import Any

from sqlalchemy import create_engine, text

from dlsched.client.daemon_client import Client
from dlsched.torture.local_cluster import LocalCluster

__all__ = ["DAEMON", "SHORT", "NetworkedCluster", "has_settled", "why_no_networks"]

DAEMON = "daemon"
DAEMON_PORT, AGENT_PORT = 7817, 7818
NOT_THERE = "02:00:00:00:de:ad"  # no machine has this address
# a lease that a test can wait for; the window is 11.5 s
SHORT = {
    "beat_s": 0.5, "reply_age_s": 1.5, "lease_s": 4.0, "kill_s": 1.0, "margin_s": 6.5,
}  # fmt: skip


def has_settled(cluster: LocalCluster) -> bool:
    """Whether no node has the witnesses of before the last one joined."""
    engine = create_engine(cluster.database)
    with engine.connect() as database:
        found = [row[0] for row in database.execute(text("SELECT witnesses FROM nodes"))]
    engine.dispose()
    return [json.loads(sets) for sets in found] == [[cluster.names]] * len(cluster.names)


def why_no_networks() -> str:
    """Why no networks can be made here; empty when they can."""
    if shutil.which("ip") is None:
        return "there is no program ip (Debian: iproute2)"
    name = f"dls{os.getpid()}-try"
    made = _run("netns", "add", name, check=False)
    if made.returncode:
        return f"network namespaces cannot be made here: {made.stderr.strip()}"
    pair = _run("-n", name, "link", "add", "try0", "type", "veth", "peer", "try1", check=False)
    _run("netns", "delete", name)
    return f"links cannot be made here: {pair.stderr.strip()}" if pair.returncode else ""


def _run(*words: str, check: bool = True) -> subprocess.CompletedProcess[str]:
    done = subprocess.run(["ip", *words], capture_output=True, text=True, check=False)
    if check and done.returncode:
        raise RuntimeError(f"ip {' '.join(words)}: {done.stderr.strip()}")
    return done


class Networks:
    """One namespace for each party, a bridge between them, and cuts."""

    def __init__(self, parties: Sequence[str]) -> None:
        self.parties = list(parties)
        self._hub = self.namespace("hub")
        self._cut: set[tuple[str, str]] = set()
        self._made: list[str] = []

    def namespace(self, party: str) -> str:
        """The name of a party's namespace."""
        return f"dls{os.getpid()}-{party}"

    def address(self, party: str) -> str:
        """The address of a party."""
        return f"10.213.0.{self.parties.index(party) + 1}"

    def make(self) -> None:
        """Make the namespaces and connect them."""
        for party in ("hub", *self.parties):
            _run("netns", "add", self.namespace(party))
            self._made.append(self.namespace(party))
            _run("-n", self.namespace(party), "link", "set", "lo", "up")
        _run("-n", self._hub, "link", "add", "bridge", "type", "bridge")
        _run("-n", self._hub, "link", "set", "bridge", "up")
        for k, party in enumerate(self.parties):
            mine, port = self.namespace(party), f"port{k}"
            ends = ("link", "add", port, "type", "veth", "peer", "name", "eth0", "netns", mine)
            _run("-n", self._hub, *ends)
            _run("-n", self._hub, "link", "set", port, "master", "bridge", "up")
            _run("-n", mine, "address", "add", f"{self.address(party)}/24", "dev", "eth0")
            _run("-n", mine, "link", "set", "eth0", "up")

    def remove(self) -> None:
        """Remove the namespaces, and with them the links."""
        for name in self._made:
            _run("netns", "delete", name, check=False)
        self._made.clear()

    def cut(self, sources: Iterable[str], targets: Iterable[str]) -> None:
        """Lose what some parties send to others."""
        for source, target in product(sources, targets):
            where = (self.address(target), "lladdr", NOT_THERE, "nud", "permanent", "dev", "eth0")
            _run("-n", self.namespace(source), "neighbour", "replace", *where)
            self._cut.add((source, target))

    def heal(self) -> None:
        """Let everything through again."""
        for source, target in self._cut:
            where = (self.address(target), "dev", "eth0")
            _run("-n", self.namespace(source), "neighbour", "delete", *where)
        self._cut.clear()


class NetworkedCluster(LocalCluster):
    """As `LocalCluster`, in networks; the test's own client uses the daemon's Unix socket."""

    def __init__(self, **options: Any) -> None:
        options.setdefault("timing", SHORT)
        super().__init__(**options)
        self.network = Networks([DAEMON, *self.names])
        self._installed = self.folder / "etc"
        at = f"{self.network.address(DAEMON)}:{DAEMON_PORT}"
        self.sections["daemon"]["listen"] = [f"unix:{self._socket}", at]
        self.sections["trust"] = {
            "mode": "tls",
            "folder": f"{self._installed}/tls",
            "denied": f"{self._installed}/tls/denied",
            "root_jobs": True,
        }

    @property
    def _socket(self) -> str:
        return f"{self.folder}/run/daemon.sock"

    def __enter__(self) -> NetworkedCluster:
        (self.folder / "run").mkdir()
        host = self.network.address(DAEMON)
        made = ("admin", "init", str(self._installed), "--cluster", "lab", "--daemon-host", host)
        self.cli(*made, *(word for name in self.names for word in ("--node", name)))
        key = self._installed / "tls" / "daemon.key"
        os.chown(key, 0, 0)  # on a machine with an account dlsched it is that one's
        self.network.make()
        super().__enter__()
        return self

    def __exit__(self, *error: Any) -> None:
        self.network.heal()
        super().__exit__(*error)
        self.network.remove()

    @property
    def environment(self) -> dict[str, str]:
        """For the cluster's programs and its users' commands."""
        found = {**super().environment, "DLSCHED_DAEMON": f"unix:{self._socket}"}
        del found["DLSCHED_INSECURE_LOOPBACK"]
        return found

    def client(self) -> Client:
        """A user's connection."""
        return Client(f"unix:{self._socket}", wait="2s")

    def _start(
        self, name: str, *words: str, under: Sequence[str] = (), **environment: str
    ) -> subprocess.Popen[bytes]:
        inside = ("ip", "netns", "exec", self.network.namespace(name))
        return super()._start(name, *words, under=(*inside, *under), **environment)

    def _agent_settings(self, name: str) -> dict[str, object]:
        address = self.network.address(name)
        mine = self._installed / "nodes" / name / "tls"
        found = super()._agent_settings(name)
        del found["insecure_loopback"]
        return found | {
            "daemon": [f"{self.network.address(DAEMON)}:{DAEMON_PORT}"],
            "listen": f"{address}:{AGENT_PORT}",
            "address": address,
            "tls.ca": f"{mine}/ca.crt",
            "tls.certificate": f"{mine}/node.crt",
            "tls.key": f"{mine}/node.key",
        }
