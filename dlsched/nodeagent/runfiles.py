"""What one run has on a node's disk, and what the agent has.

    STATE/agent.json                     newest term and count of starts
    STATE/jobs/JOB.RUN.ID/run.json       the reserved-run file: made once, by one keeper, for ever
    STATE/jobs/JOB.RUN.ID/released       the run is about to execute
    STATE/jobs/JOB.RUN.ID/exit.reserve   blocks for the record of its end
    STATE/jobs/JOB.RUN.ID/exit.json      how it ended
    RUN/jobs/JOB.RUN.ID/                 sockets and the script; gone after a reboot
    RUN/lease.json                       the node lease; gone after a reboot

Invariant: a process of a user exists only after `run.json` and `released`, and how it ended is told
only after `exit.json`. The first `exit.json` of a run stands.
"""

from __future__ import annotations

import contextlib
import os
from dataclasses import dataclass

from dlsched.core.errors import BadInput
from dlsched.nodeagent import durable
from dlsched.nodeagent.faultpoint import faultpoint
from dlsched.nodeagent.plainjson import dumps, loads
from dlsched.nodeagent.process import Identity
from dlsched.protocol.messages import BootId, DesiredRun, ExitRecord, NodeName, RunId, RunKey, Term

EXIT_BYTES = 8192  # of a record, without the names of the nodes of a gang
LONGEST_NAME = 28


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentFile:
    """The agent's own file."""

    node: NodeName
    term: Term
    incarnation: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Facts:
    """What the agent needs of a run after its own restart; nothing secret."""

    user: str = ""
    uid: int = 0
    gid: int = 0
    groups: tuple[int, ...] = ()
    output: str = ""
    error: str = ""
    working_directory: str = ""
    launcher: str = "plain"
    cgroup: str = ""
    unit: str = ""
    namespace: str = ""  # of its process ids, as /proc names it; empty: the machine's


@dataclass(frozen=True, slots=True, kw_only=True)
class RunFile:
    """The reserved-run file."""

    desired: DesiredRun
    boot_id: BootId
    keeper: Identity
    facts: Facts


@dataclass(frozen=True, slots=True, kw_only=True)
class FoundRun:
    """A run as the disk tells it."""

    file: RunFile
    released: bool
    exit: ExitRecord | None


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaseFile:
    """The node lease as keepers read it."""

    until: float  # on the node's clock
    covers: frozenset[RunId]
    by_leader: bool


def folder_name(key: RunKey) -> str:
    """A run's folder; a run id that is no plain name is refused before anything is made of it."""
    run_id = str(key.run_id)
    if not run_id or len(run_id) > 64 or not all(c.isalnum() or c in "-_" for c in run_id):
        raise BadInput(f"run id {run_id!r:.80} is not a plain name")
    return f"{int(key.job)}.{int(key.run)}.{run_id}"


def short(name: str) -> str:
    """A folder for sockets: their paths have few bytes, so a long run id is cut."""
    return name if len(name) <= LONGEST_NAME else name[:LONGEST_NAME]


class RunFolder:
    """The files of one run."""

    def __init__(self, state_dir: str, run_dir: str, key: RunKey) -> None:
        name = folder_name(key)
        self.records = os.path.join(state_dir, "jobs", name)
        self.sockets = os.path.join(run_dir, "jobs", short(name))

    @property
    def agent_socket(self) -> str:
        """Where the keeper listens to agents."""
        return os.path.join(self.sockets, "keeper")

    @property
    def job_socket(self) -> str:
        """Where the keeper listens to the job."""
        return os.path.join(self.sockets, "job")

    @property
    def script(self) -> str:
        """The user's script."""
        return os.path.join(self.sockets, "script")

    def _at(self, name: str) -> str:
        return os.path.join(self.records, name)

    # -- the keeper's three writes -------------------------------------------------------------

    def reserve(self, file: RunFile) -> bool:
        """Make the reserved-run file; False when another keeper has."""
        faultpoint("keeper-reserve-before")
        with contextlib.suppress(FileExistsError):
            os.mkdir(self.records, 0o700)
        if not os.path.exists(self._at("run.json")):
            names = sum(len(share.node) + 4 for share in file.desired.layout)
            durable.reserve(self._at("exit.reserve"), EXIT_BYTES + names)
        faultpoint("keeper-reserve-half")
        mine = durable.create_whole(self._at("run.json"), dumps(file))
        if mine:
            durable.sync_folder(os.path.dirname(self.records))
        faultpoint("keeper-reserve-after")
        return mine

    def release(self) -> None:
        """Say durably that the run is about to execute."""
        faultpoint("keeper-released-before")
        os.close(os.open(self._at("released"), os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600))
        durable.sync_folder(self.records)
        faultpoint("keeper-released-after")

    def end(self, record: ExitRecord) -> None:
        """Write how the run ended, unless that is known already."""
        faultpoint("keeper-exit-before")
        if not os.path.exists(self._at("exit.json")):
            fill = dumps(record)
            faultpoint("keeper-exit-half")
            durable.fill(self._at("exit.reserve"), self._at("exit.json"), fill)
        faultpoint("keeper-exit-after")

    def is_recorded(self) -> bool:
        """Whether the reserved-run file is there."""
        return os.path.exists(self._at("run.json"))

    # -- reading -------------------------------------------------------------------------------

    def found(self) -> FoundRun | None:
        """The run as the disk tells it; None when it was never reserved.

        Raises:
            BadInput: with the file that cannot be read.
        """
        data = durable.read(self._at("run.json"))
        if data is None:
            return None
        ended = durable.read(self._at("exit.json"))
        try:
            return FoundRun(
                file=loads(RunFile, data),
                released=os.path.exists(self._at("released")),
                exit=loads(ExitRecord, ended) if ended is not None else None,
            )
        except BadInput as error:
            raise BadInput(f"{self.records}: {error}") from None


def prepare(state_dir: str, run_dir: str) -> None:
    """Make the folders that everything else is in."""
    for path in (state_dir, os.path.join(state_dir, "jobs")):
        os.makedirs(path, 0o700, exist_ok=True)
    for path in (run_dir, os.path.join(run_dir, "jobs")):
        os.makedirs(path, 0o711, exist_ok=True)
        os.chmod(path, 0o711)  # the way to the job sockets, whatever the umask


def found_in(path: str) -> FoundRun | None:
    """The run in a folder, whatever its name."""
    folder = RunFolder.__new__(RunFolder)
    folder.records, folder.sockets = path, ""
    return folder.found()


# -- the agent's own files -------------------------------------------------------------------------


def read_agent(state_dir: str) -> AgentFile | None:
    """The agent's file.

    Raises:
        BadInput: when it is damaged; nothing is guessed.
    """
    path = os.path.join(state_dir, "agent.json")
    data = durable.read(path)
    if data is None:
        return None
    try:
        return loads(AgentFile, data)
    except BadInput as error:
        raise BadInput(f"{path}: {error}") from None


def write_agent(state_dir: str, file: AgentFile) -> None:
    """Replace the agent's file, durably."""
    faultpoint("agent-record-before")
    durable.write_whole(os.path.join(state_dir, "agent.json"), dumps(file))
    faultpoint("agent-record-after")


def lease_path(run_dir: str) -> str:
    """The node lease's file."""
    return os.path.join(run_dir, "lease.json")


def write_lease(run_dir: str, file: LeaseFile) -> None:
    """Replace the lease; it need not survive the machine."""
    faultpoint("agent-lease-before")
    durable.write_whole(lease_path(run_dir), dumps(file), durable=False)
    faultpoint("agent-lease-after")


def read_lease(run_dir: str) -> LeaseFile | None:
    """The node lease as it is; None when there is none or it cannot be read."""
    data = durable.read(lease_path(run_dir))
    if data is None:
        return None
    try:
        return loads(LeaseFile, data)
    except BadInput:
        return None
