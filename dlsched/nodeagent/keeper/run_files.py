"""The files of runs and of the agent on a node's disk.

    STATE/agent.json                     newest term, and how often the agent was started
    STATE/jobs/JOB.RUN.ID/run.json       the run is reserved: made once, by one keeper
    STATE/jobs/JOB.RUN.ID/released       the run is about to execute
    STATE/jobs/JOB.RUN.ID/exit.reserve   disk blocks for the exit record
    STATE/jobs/JOB.RUN.ID/exit.json      the exit record: how the run ended
    STATE/jobs/JOB.RUN.ID/epilog         the site's epilog has ended; how it failed, if it did
    RUN/jobs/JOB.RUN.ID/                 sockets and the script; gone after a reboot
    RUN/lease.json                       the node lease; gone after a reboot

Invariant: a process of a user exists only after `run.json` and `released`, and its end is reported
only after `exit.json`. The first `exit.json` of a run is never replaced.
"""

from __future__ import annotations

import contextlib
import os
from dataclasses import dataclass, replace

from dlsched.core.errors import BadInput
from dlsched.nodeagent.host.processes import Identity
from dlsched.nodeagent.json_values import dumps, loads
from dlsched.nodeagent.ranks.launch_spec import RunFacts
from dlsched.protocol.messages import BootId, DesiredRun, ExitRecord, NodeName, RunId, RunKey, Term
from dlsched.system import files
from dlsched.system.fault_points import fault_point

EXIT_BYTES = 24_576  # for an exit record without the names of a gang's nodes
LONGEST_NAME = 28  # of a folder of sockets, in bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentFile:
    """The file `agent.json`."""

    node: NodeName
    term: Term
    incarnation: int
    starts: tuple[str, ...] = ()  # random names of the last starts; newest last


@dataclass(frozen=True, slots=True, kw_only=True)
class RunFile:
    """The file `run.json`."""

    desired: DesiredRun
    boot_id: BootId
    keeper: Identity
    facts: RunFacts


@dataclass(frozen=True, slots=True, kw_only=True)
class FoundRun:
    """What the disk says of a run."""

    file: RunFile
    released_at: float | None  # by this node's clock, in seconds since the epoch; None: it was not
    exit: ExitRecord | None
    epilog_ended: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaseFile:
    """The file `lease.json`, which keepers read."""

    until: float  # seconds since the boot
    covers: frozenset[RunId]
    by_leader: bool


def folder_name(key: RunKey) -> str:
    """Return the name of a run's folder.

    Raises:
        BadInput: when the run id is not a plain name, which could name any path.
    """
    run_id = str(key.run_id)
    if not run_id or len(run_id) > 64 or not all(c.isalnum() or c in "-_" for c in run_id):
        raise BadInput(f"run id {run_id!r:.80} is not a plain name")
    return f"{int(key.job)}.{int(key.run)}.{run_id}"


def socket_folder(name: str) -> str:
    """Return the name of the folder of a run's sockets: socket paths are short, so it is cut."""
    return name[:LONGEST_NAME]


class RunFolder:
    """The files of one run."""

    def __init__(self, state_dir: str, run_dir: str, key: RunKey) -> None:
        """Name the files; none is read or made.

        Raises:
            BadInput: by `folder_name`.
        """
        name = folder_name(key)
        self.records = os.path.join(state_dir, "jobs", name)
        self.sockets = os.path.join(run_dir, "jobs", socket_folder(name))

    @property
    def agent_socket(self) -> str:
        """The path of the socket at which the keeper listens for agents."""
        return os.path.join(self.sockets, "keeper")

    @property
    def job_socket(self) -> str:
        """The path of the socket at which the keeper listens for processes of the job."""
        return os.path.join(self.sockets, "job")

    @property
    def shells_socket(self) -> str:
        """The path of the socket at which the agent connects clients to shells."""
        return os.path.join(self.sockets, "shells")

    @property
    def script(self) -> str:
        """The path of the user's script."""
        return os.path.join(self.sockets, "script")

    def _at(self, name: str) -> str:
        return os.path.join(self.records, name)

    # -- the keeper's three writes -------------------------------------------------------------

    def reserve(self, file: RunFile) -> bool:
        """Make `run.json`; return False when another keeper has made it."""
        fault_point("keeper-reserve-before")
        with contextlib.suppress(FileExistsError):
            os.mkdir(self.records, 0o700)
        if not os.path.exists(self._at("run.json")):
            names = sum(len(share.node) + 4 for share in file.desired.layout)
            files.reserve_file(self._at("exit.reserve"), EXIT_BYTES + names)
        fault_point("keeper-reserve-half")
        is_ours = files.create_file(self._at("run.json"), dumps(file))
        if is_ours:
            files.sync_folder(os.path.dirname(self.records))
        fault_point("keeper-reserve-after")
        return is_ours

    def release(self) -> None:
        """Record durably that the run is about to execute."""
        fault_point("keeper-released-before")
        os.close(os.open(self._at("released"), os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600))
        files.sync_folder(self.records)
        fault_point("keeper-released-after")

    def end(self, record: ExitRecord) -> None:
        """Write the exit record, unless there is one."""
        fault_point("keeper-exit-before")
        if not os.path.exists(self._at("exit.json")):
            data = dumps(record)
            fault_point("keeper-exit-half")
            files.fill_reserved(self._at("exit.reserve"), self._at("exit.json"), data)
        fault_point("keeper-exit-after")

    def end_epilog(self, failed: str) -> None:
        """Record durably that the epilog has ended; `failed` says how it failed."""
        fault_point("keeper-epilog-written-before")
        if os.path.isdir(self.records) and not os.path.exists(self._at("epilog")):
            files.replace_file(self._at("epilog"), failed.encode("utf-8", "replace"))
        fault_point("keeper-epilog-written-after")

    def write_again(self, file: RunFile, *, released: bool, end: ExitRecord | None) -> None:
        """Write what is missing of a run that a keeper has reserved and its folder has lost.

        `released` says whether it was released; `end` is its exit record, None before its end.

        Raises:
            OSError: when it cannot be written.
        """
        os.makedirs(os.path.dirname(self.records), 0o700, exist_ok=True)
        if not self.is_recorded():
            self.reserve(file)
        if released and not os.path.exists(self._at("released")):
            self.release()
        if end is not None:
            self.end(end)

    def is_recorded(self) -> bool:
        """Whether there is `run.json`."""
        return os.path.exists(self._at("run.json"))

    # -- reading -------------------------------------------------------------------------------

    def read(self) -> FoundRun | None:
        """Read the run from the disk, as `run_in` does."""
        return run_in(self.records)


def run_in(records: str) -> FoundRun | None:
    """Read the run that has its records in a folder; return None when it was never reserved.

    Raises:
        BadInput: with the folder, when a file in it cannot be read.
    """
    data = files.read_if_there(os.path.join(records, "run.json"))
    if data is None:
        return None
    exit_data = files.read_if_there(os.path.join(records, "exit.json"))
    epilog = files.read_if_there(os.path.join(records, "epilog"))
    try:
        end = loads(ExitRecord, exit_data) if exit_data is not None else None
        if end is not None and epilog:
            end = replace(end, hook=epilog.decode("utf-8", "replace"))
        return FoundRun(
            file=loads(RunFile, data),
            released_at=_changed_at(os.path.join(records, "released")),
            exit=end,
            epilog_ended=epilog is not None,
        )
    except BadInput as error:
        raise BadInput(f"{records}: {error}") from None


def _changed_at(path: str) -> float | None:
    """When a file was last changed, in seconds since the epoch; None: it is not there."""
    try:
        return os.stat(path).st_mtime
    except FileNotFoundError:
        return None


def make_folders(state_dir: str, run_dir: str) -> None:
    """Make the two folders that all files are in."""
    for path in (state_dir, os.path.join(state_dir, "jobs")):
        os.makedirs(path, 0o700, exist_ok=True)
    for path in (run_dir, os.path.join(run_dir, "jobs")):
        os.makedirs(path, 0o711, exist_ok=True)
        os.chmod(path, 0o711)  # the way to the job sockets, whatever the umask


# -- the agent's own files -------------------------------------------------------------------------


def read_agent(state_dir: str) -> AgentFile | None:
    """Read the agent's file; return None when there is none.

    Raises:
        BadInput: when it is damaged; nothing is guessed.
    """
    path = os.path.join(state_dir, "agent.json")
    data = files.read_if_there(path)
    if data is None:
        return None
    try:
        return loads(AgentFile, data)
    except BadInput as error:
        raise BadInput(f"{path}: {error}") from None


def write_agent(state_dir: str, file: AgentFile) -> None:
    """Replace the agent's file, durably."""
    fault_point("agent-record-before")
    files.replace_file(os.path.join(state_dir, "agent.json"), dumps(file))
    fault_point("agent-record-after")


def lease_path(run_dir: str) -> str:
    """Return the path of the node lease."""
    return os.path.join(run_dir, "lease.json")


def write_lease(run_dir: str, file: LeaseFile) -> None:
    """Replace the node lease; it need not survive a crash of the machine."""
    fault_point("agent-lease-before")
    files.replace_file(lease_path(run_dir), dumps(file), durable=False)
    fault_point("agent-lease-after")


def read_lease(run_dir: str) -> LeaseFile | None:
    """Read the node lease; return None when there is none or it cannot be read."""
    data = files.read_if_there(lease_path(run_dir))
    if data is None:
        return None
    try:
        return loads(LeaseFile, data)
    except BadInput:
        return None
