"""`packaging/deb.sh`: the package is built, installed, upgraded with a job running, and removed."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import installed_cluster
import pytest
from installed_cluster import AGENT, DAEMON, Cluster, until
from machine import PROGRAM, PROJECT, VERSION

BUILDER = PROJECT / "packaging" / "deb.sh"


@pytest.fixture(scope="module")
def package(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The package, built from this checkout."""
    if shutil.which("dpkg-deb") is None:
        pytest.skip("dpkg-deb is not installed")
    command = ["bash", str(BUILDER), str(tmp_path_factory.mktemp("deb")), sys.executable]
    built = subprocess.run(command, capture_output=True, text=True, check=False)
    if "No matching distribution" in built.stderr or "connection" in built.stderr.lower():
        pytest.skip("no package index to take the locked packages from")
    assert built.returncode == 0, built.stderr
    return Path(built.stdout.strip())


@pytest.fixture(scope="module")
def cluster(machine: Any, package: Path) -> Cluster:
    """A machine on which only the package was installed."""
    if machine.run(f"/usr/bin/python{VERSION}", "--version", check=False).returncode:
        pytest.skip(f"the machine's Debian has no Python {VERSION}")
    shutil.copy(package, f"/proc/{machine.pid}/root/srv/dlsched.deb")
    return installed_cluster.start(machine, lambda inside: inside.run(*INSTALL, timeout=300))


INSTALL = ("dpkg", "-i", "/srv/dlsched.deb")


def test_nothing_of_the_machine_that_built_it_is_inside(package: Path, tmp_path: Path) -> None:
    listed = subprocess.run(
        ["dpkg-deb", "--contents", str(package)], capture_output=True, text=True, check=True
    ).stdout
    paths = [line.split(maxsplit=5) for line in listed.splitlines()]
    assert {owner for _, owner, *_ in paths} == {"root/root"}
    assert not [line for line in listed.splitlines() if line[0] != "l" and "w" in line[5] + line[8]]
    assert "./usr/lib/systemd/system/dlsched-daemon.service" in listed
    assert "./usr/share/man/man1/dlsched-submit.1.gz" in listed
    subprocess.run(["dpkg-deb", "--extract", str(package), str(tmp_path)], check=True)
    named = subprocess.run(
        ["grep", "-rIl", "-e", str(PROJECT), "-e", sys.prefix, str(tmp_path)],
        capture_output=True, text=True, check=False,
    ).stdout  # fmt: skip
    assert named == ""


def next_build(package: Path, folder: Path) -> str:
    """Make the package of one commit later in the place of a package; returns its version."""
    inside = folder / "newer"
    subprocess.run(["dpkg-deb", "--raw-extract", str(package), str(inside)], check=True)
    control = inside / "DEBIAN" / "control"
    text = control.read_text()
    (version,) = re.findall(r"^Version: (.*)$", text, re.MULTILINE)
    release, _, since = version.partition(".post")
    newer = f"{release}.post{int(since or 0) + 1}"
    control.write_text(text.replace(f"Version: {version}", f"Version: {newer}"))
    (built,) = inside.glob("opt/dlsched/lib/python*/site-packages/dlsched/BUILT")
    assert built.read_text().strip() == version
    built.write_text(newer)
    build = ["dpkg-deb", "--root-owner-group", "-Zgzip", "--build", str(inside), str(package)]
    subprocess.run(build, check=True, capture_output=True)
    return newer


def test_a_job_runs_and_goes_on_over_an_upgrade(
    cluster: Cluster, package: Path, tmp_path: Path
) -> None:
    machine = cluster.machine
    version = machine.run("dlsched", "nodes", "-o", "version", "--noheader").stdout
    assert machine.run("dlsched", "--version").stdout == f"dlsched {version}"
    verified = machine.run("systemd-analyze", "verify", DAEMON, AGENT, check=False)
    assert "dlsched" not in verified.stderr
    job = cluster.begun("while [ ! -e go ]; do sleep 0.1; done; echo ended", "--gpus", "1")
    newer = next_build(package, tmp_path)
    shutil.copy(package, f"/proc/{machine.pid}/root/srv/newer.deb")
    told = machine.run("apt-get", "install", "-y", "/srv/newer.deb", timeout=300).stdout
    assert "1 upgraded" in told
    machine.run("systemctl", "restart", DAEMON, AGENT)
    until(lambda: cluster.show(job)["state"] == "RUNNING")
    listed = ("dlsched", "nodes", "-o", "version", "--noheader")
    until(lambda: machine.run(*listed).stdout == f"{newer}\n")
    assert machine.run("dlsched", "--version").stdout == f"dlsched {newer}\n"
    cluster.as_user("touch", "go")
    assert cluster.wait(job) == 0
    assert cluster.output(job) == "begun\nended\n"
    assert cluster.show(job)["starts"] == 1


def test_removed_it_leaves_records_and_no_service(cluster: Cluster) -> None:
    machine = cluster.machine
    machine.run("dpkg", "-r", "dlsched", timeout=300)
    assert machine.show(DAEMON, "ActiveState") == machine.show(AGENT, "ActiveState") == "inactive"
    assert machine.run("test", "-e", PROGRAM, check=False).returncode == 1
    machine.run("test", "-e", "/etc/dlsched/dlsched.toml")
    machine.run("test", "-e", "/var/lib/dlsched/daemon/dlsched.db")
