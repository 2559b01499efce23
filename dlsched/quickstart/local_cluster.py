"""A cluster in one folder: a daemon with SQLite, two agents and their logs.

Nothing can be reached from other machines: the daemon listens on a unix socket in the folder, the
agents on ports of the loopback address. It is the development mode without certificates, for this
user.
"""

from __future__ import annotations

import getpass
import json
import os
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from dlsched.core.errors import BadInput, DlschedError
from dlsched.quickstart import processes

PRETENDED = (2, 2)  # GPUs of each node
POLICY = "tiresias"
LIMIT = 8  # GPU-seconds after which new jobs come first
ROUND_S = 2.0
LONGEST_FOLDER = 60  # characters: paths of sockets have a limit
STARTING_S = 30.0
_PREFIX = "dlsched-"
NOTE = "quickstart.json"
TIMING = """
[timing]  # the same for the daemon and its agents
beat_s = 1.0
"""
CONFIGURATION = (
    """\
# A cluster for trials on one machine; without certificates it must not be used for more.
[cluster]
name = "quickstart"

[daemon]
database = "sqlite:///{folder}/dlsched.db"
listen = ["unix:{folder}/daemon.sock"]
metrics = ""

[round]
interval_s = {round_s}
policy = "{policy}"      # jobs that have used less than the limit come first
options = ["limits={limit}"]

[trust]
mode = "insecure-loopback"
operators = ["{user}"]
"""
    + TIMING
)


def new_folder() -> Path:
    """Make a temporary folder, in `/tmp` where TMPDIR is too long for the sockets below it.

    Raises:
        BadInput: neither can be used.
    """
    usual = tempfile.gettempdir()
    where = usual if _fits(Path(usual, f"{_PREFIX}12345678")) else "/tmp"
    try:
        return Path(tempfile.mkdtemp(prefix=_PREFIX, dir=where))
    except OSError as error:
        raise BadInput(f"{where}: {error.strerror}; --folder names another folder") from None


def _fits(folder: Path) -> bool:
    return len(str(folder.resolve())) <= LONGEST_FOLDER


class QuickCluster:
    """The daemon and the agents of one folder.

    Attributes:
        gpus: number of GPUs of each node, n1 first.
        pretended: are the GPUs pretended? Jobs get numbers of GPUs all the same.
    """

    def __init__(self, folder: Path, *, pretend: bool = False) -> None:
        """Look for GPUs; nothing is started.

        The folder holds no quickstart yet; `pretend` takes pretend GPUs even if there are idle real
        ones.
        """
        real = 0 if pretend else idle_gpus()
        self.pretended = not real
        self.gpus = (real,) if real else PRETENDED
        self.folder = folder.resolve()
        if not _fits(self.folder):
            raise BadInput(
                f"--folder {folder}: longer than {LONGEST_FOLDER} characters, the limit for sockets"
            )
        self.jobs_folder = self.folder / "jobs"
        self.address = f"unix:{self.folder}/daemon.sock"
        self._services: dict[str, processes.Identity] = {}

    def start(self) -> None:
        """Start the daemon and the agents.

        Raises:
            DlschedError: a service failed; the message has the last line of its log.
        """
        try:
            self.jobs_folder.mkdir(parents=True)
        except FileExistsError:
            raise BadInput(f"--folder {self.folder}: it holds a quickstart already") from None
        except OSError as error:
            raise BadInput(f"--folder {self.folder}: {error.strerror}") from None
        configuration = self.folder / "daemon.toml"
        configuration.write_text(
            CONFIGURATION.format(
                folder=self.folder,
                policy=POLICY,
                round_s=ROUND_S,
                limit=LIMIT,
                user=getpass.getuser(),
            )
        )
        processes.adopt_orphans()
        self._start("daemon", "dlsched.daemon", "--config", str(configuration))
        self._wait((self.folder / "daemon.sock").exists, "listen")
        agents = self.folder / "agent.toml"
        agents.write_text(TIMING.lstrip())
        for number, gpus in enumerate(self.gpus, 1):
            name = f"n{number}"
            base = self.folder / name
            pretend = ("--fake-gpus", f"{gpus}:gpu") if self.pretended else ()
            self._start(
                *(name, "dlsched.nodeagent", "--config", str(agents)),
                *("--name", name, "--daemon", self.address),
                *("--listen", "127.0.0.1:0", "--insecure-loopback", "--launcher", "plain"),
                *("--state-dir", str(base / "state"), "--run-dir", str(base / "run")),
                *("--minimum-uid", str(min(os.getuid(), 1000)), *pretend),
            )
        (self.folder / NOTE).write_text(json.dumps({"services": self._services}))

    def wait_for_nodes(self, count: Callable[[], int]) -> None:
        """Wait until each agent's node has registered; `count` returns the number of nodes."""
        self._wait(lambda: count() == len(self.gpus), "register")

    def stop(self) -> None:
        """End every process started here, and the processes that these have started."""
        if self._services:
            processes.end(list(self._services.values())[1:], 3.0)  # agents first: no new jobs start
            processes.end([*self._services.values(), *processes.below(os.getpid())], 2.0)
            processes.end(processes.below(os.getpid()), 0.0)
            self._services.clear()

    def _start(self, name: str, module: str, *words: str) -> None:
        pid = processes.start(
            [sys.executable, "-m", module, *words], self.folder / f"{name}.log", environment()
        )
        found = processes.identity(pid)
        if found is None:
            raise DlschedError(f"{name}: ended at once: {self._last_words(name)}")
        self._services[name] = found

    def _wait(self, is_there: Callable[[], bool], what: str) -> None:
        until = time.monotonic() + STARTING_S
        while not is_there():
            processes.reap()
            for name, known in self._services.items():
                if processes.identity(known[0]) != known:
                    raise DlschedError(f"{name} has ended: {self._last_words(name)}")
            if time.monotonic() > until:
                raise DlschedError(f"the services did not {what} within {STARTING_S:g} s")
            time.sleep(0.02)

    def _last_words(self, name: str) -> str:
        try:
            lines = (self.folder / f"{name}.log").read_text(errors="replace").split("\n")
        except OSError:
            lines = []
        return next((line for line in reversed(lines) if line.strip()), "its log is empty")


def idle_gpus() -> int:
    """Return the number of real GPUs if no process uses any of them, else 0."""
    try:
        import pynvml  # noqa: PLC0415  # an optional dependency
    except ImportError:
        return 0
    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError:
        return 0
    try:
        devices = [pynvml.nvmlDeviceGetHandleByIndex(k) for k in range(pynvml.nvmlDeviceGetCount())]
        used = any(pynvml.nvmlDeviceGetComputeRunningProcesses(each) for each in devices)
    except pynvml.NVMLError:
        return 0
    finally:
        pynvml.nvmlShutdown()
    return 0 if used else len(devices)


def environment() -> dict[str, str]:
    """Return the environment of services and jobs, in which they find this installation."""
    package = str(Path(__file__).parents[2])
    path = os.environ.get("PYTHONPATH")
    inherited = {k: v for k, v in os.environ.items() if not k.startswith(("DLSCHED_", "SLURM_"))}
    return {**inherited, "PYTHONPATH": f"{package}{os.pathsep}{path}" if path else package}


def stop_kept(folder: Path) -> None:
    """End a cluster that `--keep` left running.

    Raises:
        BadInput: the folder has no such cluster.
    """
    try:
        services = json.loads((folder / NOTE).read_text())["services"]
        known = [(int(pid), int(began)) for pid, began in services.values()]
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        raise BadInput(f"--stop {folder}: no quickstart has been kept there") from None
    left = [each for one in known for each in processes.below(one[0])]
    processes.end(known[1:], 3.0)
    processes.end([*known, *left], 2.0)
