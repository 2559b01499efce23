"""A machine with systemd as process 1, in namespaces of its own, as long as a test runs.

It shares nothing with the host but what is bound into it read-only: the interpreter, its
environment and the project. Needs root, `unshare`, and `debootstrap` the first time: the tree that
it makes is kept under /var/tmp for the next run.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import re
import shutil
import signal
import subprocess
import sys
import sysconfig
import tempfile
import time
from pathlib import Path

PROJECT = Path(__file__).parents[2]
CACHE = Path(os.environ.get("DLSCHED_SYSTEMD_TREE", "/var/tmp/dlsched-systemd-tree"))
PACKAGING = PROJECT / "packaging"
# Bound in here, wherever they are: a unit's own /tmp, /home or /root would hide them.
HOME = "/opt/dlsched"
PROGRAM = f"{HOME}/bin/dlsched"
PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
VERSION = f"{sys.version_info.major}.{sys.version_info.minor}"
WITHIN_S = 180.0  # nothing takes so long, on a slow machine at work either
PACKAGES = "systemd,dbus,python3,procps"


def obstacle() -> str:
    """Why there can be no such machine here; empty when there can."""
    if sys.platform != "linux" or os.geteuid() != 0:
        return "needs root on Linux"
    for tool in ("unshare", "nsenter", "mount", "setpriv"):
        if shutil.which(tool) is None:
            return f"{tool} is not installed"
    if not (CACHE / "done").exists() and shutil.which("debootstrap") is None:
        return "debootstrap is not installed"
    if not _cgroup_mount():
        return "no cgroup v2 here"
    made = subprocess.run(
        ["unshare", "--pid", "--fork", "--mount", "--cgroup", "true"],
        capture_output=True,
        check=False,
    )
    return "" if made.returncode == 0 else f"no namespaces here: {made.stderr.decode().strip()}"


def _cgroup_mount() -> str:
    """Where the unified hierarchy is; empty: nowhere."""
    for line in Path("/proc/self/mounts").read_text().splitlines():
        _, path, kind, options, *_ = line.split()
        if kind == "cgroup2" and "rw" in options.split(","):
            return path
    return ""


class _OwnCgroup:
    """The root of a machine's cgroups: no other machine, and none of before, has units in it."""

    def __init__(self) -> None:
        mount = Path(_cgroup_mount())
        self.path = Path(tempfile.mkdtemp(prefix="dlsched-machine-", dir=mount))
        for controller in (mount / "cgroup.controllers").read_text().split():
            with contextlib.suppress(OSError):  # not where this very process is in the parent
                (mount / "cgroup.subtree_control").write_text(f"+{controller}")

    @property
    def entering(self) -> tuple[str, ...]:
        """What to put before a command for it to begin in here."""
        return ("sh", "-c", 'echo 0 >"$0" && exec "$@"', str(self.path / "cgroup.procs"))

    def remove(self) -> None:
        """End all that is in it, and itself."""
        with contextlib.suppress(OSError):
            (self.path / "cgroup.kill").write_text("1")
        deadline = time.monotonic() + 20
        while "populated 1" in (self.path / "cgroup.events").read_text():
            assert time.monotonic() < deadline, f"{self.path} never empties"
            time.sleep(0.02)
        for folder, _, _ in os.walk(self.path, topdown=False):
            os.rmdir(folder)


def _release_and_mirror() -> tuple[str, str]:
    """This machine's own Debian release and where it gets it from."""
    text = Path("/etc/os-release").read_text()
    found = re.search(r"^VERSION_CODENAME=(\w+)", text, re.M)
    release = found.group(1) if found else "bookworm"
    lists = [Path("/etc/apt/sources.list"), *sorted(Path("/etc/apt/sources.list.d").glob("*"))]
    for path in lists:
        if path.is_file():
            for line in path.read_text().splitlines():
                match = re.match(r"(?:URIs:|deb(?:\s+\[.*?\])?)\s+(\S+)", line)
                if match and "security" not in match.group(1):
                    return release, match.group(1)
    return release, ""


def tree() -> Path:
    """The Debian tree with systemd, made when it is not there yet."""
    CACHE.mkdir(parents=True, exist_ok=True)
    with (CACHE / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        root = CACHE / "root"
        made_of = CACHE / "done"
        if not made_of.exists() or made_of.read_text() != PACKAGES:
            shutil.rmtree(root, ignore_errors=True)
            release, mirror = _release_and_mirror()
            command = ["debootstrap", "--variant=minbase", f"--include={PACKAGES}", release]
            subprocess.run(
                [*command, str(root), *([mirror] if mirror else [])],
                check=True,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                timeout=600,
            )
            made_of.write_text(PACKAGES)
        return root


class Machine:
    """Boots on entry, ends with everything in it on exit."""

    def __init__(self, work: Path) -> None:
        self.work = work
        self.pid = 0

    def __enter__(self) -> Machine:
        base = tree()
        self.work.mkdir()
        bound = {
            f"{sys.base_prefix}={HOME}/python",
            f"{sysconfig.get_path('platlib')}={HOME}/venv/lib/python{VERSION}/site-packages",
            f"{PROJECT}={HOME}/project",
        }
        self._cgroup = _OwnCgroup()
        self._log = (self.work.parent / "boot.log").open("wb")
        self._shell = subprocess.Popen(
            [
                *self._cgroup.entering,
                *("setpriv", "--pdeathsig", "KILL"),  # a machine does not outlive its test
                *("unshare", "--pid", "--fork", "--kill-child", "--mount", "--uts", "--ipc"),
                *("--cgroup", "--net", "bash", str(Path(__file__).with_name("boot.sh"))),
                *(str(base), str(self.work), *sorted(bound)),
            ],
            stdout=self._log,
            stderr=self._log,
        )
        deadline = time.monotonic() + WITHIN_S
        while time.monotonic() < deadline:
            if self._shell.poll() is not None:
                break
            children = Path(f"/proc/{self._shell.pid}/task/{self._shell.pid}/children").read_text()
            if children.strip():
                self.pid = int(children.split()[0])
                if self._is_up():
                    return self
            time.sleep(0.05)
        log = (self.work.parent / "boot.log").read_text()
        self.__exit__()
        raise RuntimeError(f"systemd did not come up: {log[-500:]}")

    def _is_up(self) -> bool:
        done = self.run("systemctl", "is-system-running", check=False)
        return done.stdout.strip() in ("running", "degraded")

    def __exit__(self, *_: object) -> None:
        if self.pid:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.pid, signal.SIGKILL)  # ends its namespaces and all that is in them
        self._shell.kill()
        self._shell.wait()
        self._log.close()
        self._cgroup.remove()

    def run(
        self, *command: str, check: bool = True, timeout: float = WITHIN_S, stdin: str | None = None
    ) -> subprocess.CompletedProcess[str]:
        """Run a command inside, to its end."""
        done = subprocess.run(
            ["nsenter", "-t", str(self.pid), "-a", "-r", "-w", *command],
            capture_output=True,
            check=False,
            text=True,
            timeout=timeout,
            input=stdin,
            env={"PATH": PATH, "LANG": "C.UTF-8"},
        )
        if check and done.returncode:
            raise AssertionError(f"{' '.join(command)}: {done.stdout}{done.stderr}")
        return done

    def write(self, path: str, text: str, mode: str = "644") -> None:
        """Write a file inside."""
        self.run("install", "-D", "-m", mode, "/dev/stdin", path, stdin=text)

    def install(self) -> None:
        """Put the project where a package would: units, users, folders, the program."""
        for unit in sorted((PACKAGING / "systemd").iterdir()):
            self.write(f"/etc/systemd/system/{unit.name}", unit.read_text())
        for kind in ("sysusers.d", "tmpfiles.d"):
            text = (PACKAGING / kind / "dlsched.conf").read_text()
            self.write(f"/usr/lib/{kind}/dlsched.conf", text)
        self.install_program()
        self.run("systemd-sysusers")
        self.run("systemd-tmpfiles", "--create")
        self.run("systemctl", "daemon-reload")

    def install_program(self) -> None:
        """What an environment under /opt/dlsched would have: the program, compiled."""
        compiled = ("-m", "compileall", "-q", "-o", "0", "-o", "2", str(PROJECT / "dlsched"))
        subprocess.run([sys.executable, *compiled], check=True)
        self.write(f"{HOME}/venv/pyvenv.cfg", f"home = {HOME}/python/bin\n")
        python = f"{HOME}/venv/bin/python"
        self.run("mkdir", "-p", f"{HOME}/venv/bin")
        self.write("/etc/ld.so.conf.d/python.conf", f"{HOME}/python/lib\n")
        self.run("ldconfig")
        self.run("ln", "-sf", f"{HOME}/python/bin/python{VERSION}", python)
        program = f'#!/bin/sh\nexport PYTHONPATH={HOME}/project\nexec {python} -m dlsched "$@"\n'
        self.write(PROGRAM, program, "755")

    def show(self, unit: str, prop: str) -> str:
        """A unit's property."""
        return self.run("systemctl", "show", "-P", prop, unit).stdout.strip()

    def eventually(self, *command: str, says: str, within: float = WITHIN_S) -> str:
        """Wait until a command's output contains a text; the output."""
        deadline = time.monotonic() + within
        while True:
            done = self.run(*command, check=False)
            if says in done.stdout:
                return done.stdout
            if time.monotonic() > deadline:
                raise AssertionError(f"{command} never said {says!r}: {done.stdout}{done.stderr}")
            time.sleep(0.05)
