"""What an agent hands to a keeper at birth, in memory only: it has the user's environment in it."""

from __future__ import annotations

from dataclasses import dataclass, field

from dlsched.nodeagent.runfiles import Facts
from dlsched.protocol.messages import DesiredRun, NodeName
from dlsched.protocol.timing import Timing


@dataclass(frozen=True, slots=True, kw_only=True)
class LaunchFacts:
    """How the job is started, as the daemon told and this node checked."""

    user: str
    uid: int
    gid: int
    groups: tuple[int, ...] = ()
    home: str = "/"
    shell: str = "/bin/sh"
    argv: tuple[str, ...] = ()
    script: bytes = b""
    environment: dict[str, str] = field(default_factory=dict, repr=False)
    working_directory: str = "/"
    output: str = ""
    error: str = ""
    append: bool = True
    warn_signal: int = 0
    warn_before_s: float = 0.0
    job_name: str = ""
    array_job: int | None = None
    array_task: int | None = None
    array_count: int | None = None
    array_min: int | None = None
    array_max: int | None = None
    array_step: int | None = None
    partition: str = ""
    submit_directory: str = ""
    submit_host: str = ""
    resume_from: str = ""
    resume_step: int = 0
    slurm_environment: bool = True
    fixed_batch: bool = False
    local_batch: int = 0  # 0: nobody knows what is best
    accumulation: int = 0
    vc: str = ""
    cluster: str = ""
    addresses: tuple[str, ...] = ()  # of the nodes' agents, in the order of the layout


@dataclass(frozen=True, slots=True, kw_only=True)
class KeeperSpec:
    """Everything a keeper needs to go on alone."""

    node: NodeName
    desired: DesiredRun
    launch: LaunchFacts
    facts: Facts
    state_dir: str
    run_dir: str
    timing: Timing = Timing()
    can_freeze: bool = True
    namespace: bool = False  # process ids of its own
    covered_until: float | None = None
    gpu_numbers: dict[str, int] = field(default_factory=dict)  # index on this node by UUID
    gpus_by_index: bool = False  # CUDA_VISIBLE_DEVICES has indices, not UUIDs
    cpus: int = 0  # of this node
    checkpoint_tool: str = ""  # cuda-checkpoint, or a stand-in; empty: none
    checkpoint_lock_s: float = 10.0
    device_prefix: str = "/dev/nvidia"
    start_limit_s: float = 30.0  # for opening files and entering folders as the user
    no_new_privileges: bool = False
    oom_score_adj: int = -900

    @property
    def rank(self) -> int:
        """This node's place in the layout."""
        for place, share in enumerate(self.desired.layout):
            if share.node == self.node:
                return place
        return 0
