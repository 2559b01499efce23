"""What an agent sends to a keeper at its start, in memory only: it has the user's environment."""

from __future__ import annotations

from dataclasses import dataclass, field

from dlsched.protocol.messages import DesiredRun, NodeName
from dlsched.protocol.timing import Timing


@dataclass(frozen=True, slots=True, kw_only=True)
class LaunchFacts:
    """How the job's processes are started: sent by the daemon, checked by this node."""

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
    label_output: bool = False  # each line begins with its rank
    label_error: bool = False
    warn_signal: int = 0
    warn_before_s: float = 0.0
    warn_script_only: bool = False
    warn_at_preemption: bool = False  # in place of TERM
    job_name: str = ""
    array_job: int | None = None
    array_task: int | None = None
    array_count: int | None = None
    array_min: int | None = None
    array_max: int | None = None
    array_step: int | None = None
    ntasks: int | None = None
    ntasks_per_node: int | None = None
    cpus_per_task: int | None = None
    partition: str = ""
    submit_directory: str = ""
    submit_host: str = ""
    resume_from: str = ""
    resume_step: int = 0
    keep_checkpoints: int = 0  # 0: as many as the script says
    rungs: str = ""  # steps that are reported in any case: FIRST:FACTOR[:LAST]
    slurm_environment: bool = True
    fixed_batch: bool = False
    in_place: bool = False
    local_batch: int = 0  # batch size on each GPU; 0: none is preferred
    accumulation: int = 0
    vc: str = ""
    cluster: str = ""
    addresses: tuple[str, ...] = ()  # of the nodes' agents, in the order of the layout
    umask: int = 0o022
    container: str = ""  # image; empty: none
    container_mounts: str = ""
    terminal: str = ""  # rows x columns: the job is interactive; empty: it has output files
    takes_tasks: bool = False  # it executes short tasks that it is given


@dataclass(frozen=True, slots=True, kw_only=True)
class RunFacts:
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
    job_name: str = ""
    partition: str = ""
    vc: str = ""
    cluster: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class HookSpec:
    """The site's commands before and after each run on a node, and how long each may take."""

    prolog: tuple[str, ...] = ()  # empty: none
    prolog_limit_s: float = 20.0
    epilog: tuple[str, ...] = ()
    epilog_limit_s: float = 60.0


@dataclass(frozen=True, slots=True, kw_only=True)
class KeeperSpec:
    """Everything that a keeper needs, even without an agent."""

    node: NodeName
    desired: DesiredRun
    launch: LaunchFacts
    facts: RunFacts
    state_dir: str
    run_dir: str
    timing: Timing = Timing()
    can_freeze: bool = True
    namespace: bool = False  # it is the first process of a process-id namespace
    covered_until: float | None = None  # end of the node lease, in seconds since the boot
    gpu_numbers: dict[str, int] = field(default_factory=dict)  # index on this node by UUID
    gpus_by_index: bool = False  # CUDA_VISIBLE_DEVICES has indices, not UUIDs
    cpus: int = 0  # of this node
    checkpoint_tool: str = ""  # cuda-checkpoint, or a stand-in; empty: none
    checkpoint_lock_s: float = 10.0
    py_spy: str = ""  # of this node; empty: none, but the job may have one
    device_prefix: str = "/dev/nvidia"
    start_limit_s: float = 30.0  # for opening files and entering folders as the user
    no_new_privileges: bool = False
    oom_score_adj: int = -900
    hooks: HookSpec = HookSpec()
    container_tool: str = ""  # path of apptainer, singularity or enroot; empty: none here

    @property
    def rank(self) -> int:
        """This node's place among the nodes of the run."""
        for place, share in enumerate(self.desired.layout):
            if share.node == self.node:
                return place
        return 0
