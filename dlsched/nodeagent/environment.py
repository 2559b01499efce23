"""The environment of a job's processes.

The user's variables come first and the runtime's are laid over them: a name that the runtime sets
cannot be set by a user. Nothing of the agent's own environment gets in.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import dlsched
from dlsched.nodeagent.node_names import compact
from dlsched.nodeagent.spec import KeeperSpec

RESERVED = "DLSCHED_"
SHIMS = "DLSCHED_SLURM_SHIMS"
_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


@dataclass(frozen=True, slots=True, kw_only=True)
class Rank:
    """One process's place in the world of its run."""

    rank: int
    local_rank: int
    world: int
    local_world: int
    gpus: tuple[str, ...]
    tasks_per_node: str = ""  # of a `dlsched run`; empty: what the launch mode means


def ranks_here(spec: KeeperSpec) -> list[Rank]:
    """The processes that this node starts by itself."""
    mode = spec.desired.mode.value
    layout = spec.desired.layout
    own = tuple(spec.desired.gpus)
    if mode == "batch":
        if spec.rank != 0:
            return []
        return [Rank(rank=0, local_rank=0, world=1, local_world=1, gpus=own)]
    if mode == "node":
        world = len(layout)
        return [Rank(rank=spec.rank, local_rank=0, world=world, local_world=1, gpus=own)]
    counts = [max(1, len(share.gpus)) for share in layout]
    first = sum(counts[: spec.rank])
    here = counts[spec.rank] if counts else 1
    return [
        Rank(rank=first + k, local_rank=k, world=sum(counts), local_world=here, gpus=own)
        for k in range(here)
    ]


def build(
    spec: KeeperSpec,
    rank: Rank,
    control_socket: str,
    master_port: int,
    base: Mapping[str, str] | None = None,
) -> dict[str, str]:
    """Everything one process gets; `base` in place of the job's own environment."""
    launch = spec.launch
    slurm = launch.slurm_environment
    values = {
        name: value
        for name, value in (launch.environment if base is None else base).items()
        if name
        and "=" not in name
        and "\0" not in name + value
        and not name.startswith(RESERVED)
        and not (slurm and name.startswith("SLURM_"))  # of an outer Slurm job: not ours
    }
    values.setdefault("PATH", _PATH)
    if launch.environment.get(SHIMS) == "1":  # srun and scontrol, where there are none
        values["PATH"] += f":{dlsched.__path__[0]}/job/shims"
    values.setdefault("SHELL", launch.shell)
    values.update(HOME=values.get("HOME", launch.home), USER=launch.user, LOGNAME=launch.user)
    values.update(_own(spec, rank, control_socket, master_port))
    if slurm:
        values.update(_slurm(spec, rank))
    return values


def _own(spec: KeeperSpec, rank: Rank, control_socket: str, master_port: int) -> dict[str, str]:
    launch, desired = spec.launch, spec.desired
    nodes = [share.node for share in desired.layout]
    gpus = sum(len(share.gpus) for share in desired.layout)
    values = {
        "DLSCHED_JOB_ID": str(desired.key.job),
        "DLSCHED_JOB_NAME": launch.job_name,
        "DLSCHED_RUN": str(desired.key.run),
        "DLSCHED_RUN_ID": desired.key.run_id,
        "DLSCHED_NODE": spec.node,
        "DLSCHED_NODELIST": compact(nodes),
        "DLSCHED_NNODES": str(len(nodes)),
        "DLSCHED_NODE_RANK": str(spec.rank),
        "DLSCHED_GPUS": str(gpus),
        "DLSCHED_GPUS_ON_NODE": str(len(desired.gpus)),
        "DLSCHED_SUBMIT_DIR": launch.submit_directory or launch.working_directory,
        "DLSCHED_CTL_SOCK": control_socket,
        "DLSCHED_CKPT_DIR": checkpoint_folder(spec),
        "DLSCHED_RESUME_FROM": launch.resume_from,
        "CUDA_DEVICE_ORDER": "PCI_BUS_ID",
        "CUDA_VISIBLE_DEVICES": visible(spec, rank.gpus),
        "MASTER_ADDR": first_address(spec),
        "MASTER_PORT": str(master_port),
        "WORLD_SIZE": str(rank.world),
        "RANK": str(rank.rank),
        "LOCAL_RANK": str(rank.local_rank),
        "LOCAL_WORLD_SIZE": str(rank.local_world),
        "NODE_RANK": str(spec.rank),
        "GROUP_RANK": str(spec.rank),
    }
    if desired.gpu_share is not None:
        percent = f"{100 * desired.gpu_share:g}"
        values["DLSCHED_GPU_SHARE"] = f"{desired.gpu_share:g}"
        values["CUDA_MPS_ACTIVE_THREAD_PERCENTAGE"] = percent  # means something under MPS only
    if launch.fixed_batch:
        values["DLSCHED_FIXED_BATCH"] = "1"
    if launch.local_batch:
        values["DLSCHED_LOCAL_BATCH"] = str(launch.local_batch)
        values["DLSCHED_ACCUMULATION"] = str(launch.accumulation)
    if launch.array_task is not None:
        values["DLSCHED_ARRAY_JOB_ID"] = str(launch.array_job)
        values["DLSCHED_ARRAY_TASK_ID"] = str(launch.array_task)
    if desired.limits.cpus and "OMP_NUM_THREADS" not in launch.environment:
        values["OMP_NUM_THREADS"] = str(max(1, desired.limits.cpus // rank.local_world))
    return values


def _slurm(spec: KeeperSpec, rank: Rank) -> dict[str, str]:
    """The names that training frameworks look for."""
    launch, desired = spec.launch, spec.desired
    nodes = [share.node for share in desired.layout]
    numbers = ",".join(str(spec.gpu_numbers.get(gpu, 0)) for gpu in desired.gpus)
    cpus = str(desired.limits.cpus or spec.cpus or 1)
    job = str(desired.key.job)
    values = {
        "SLURM_JOB_ID": job,
        "SLURM_JOBID": job,
        "SLURM_JOB_NAME": launch.job_name,
        "SLURM_JOB_USER": launch.user,
        "SLURM_JOB_UID": str(launch.uid),
        "SLURM_JOB_GID": str(launch.gid),
        "SLURM_JOB_PARTITION": launch.partition,
        "SLURM_JOB_ACCOUNT": launch.vc,
        "SLURM_JOB_NODELIST": compact(nodes),
        "SLURM_NODELIST": compact(nodes),
        "SLURM_JOB_NUM_NODES": str(len(nodes)),
        "SLURM_NNODES": str(len(nodes)),
        "SLURM_JOB_CPUS_PER_NODE": cpus,
        "SLURM_CPUS_ON_NODE": cpus,
        "SLURM_GPUS_ON_NODE": str(len(desired.gpus)),
        "SLURM_JOB_GPUS": numbers,
        "GPU_DEVICE_ORDINAL": numbers,
        "SLURM_NTASKS": str(rank.world),
        "SLURM_NPROCS": str(rank.world),
        "SLURM_TASKS_PER_NODE": rank.tasks_per_node or _tasks_per_node(spec),
        "SLURM_NODEID": str(spec.rank),
        "SLURM_PROCID": str(rank.rank),
        "SLURM_LOCALID": str(rank.local_rank),
        "SLURM_SUBMIT_DIR": launch.submit_directory or launch.working_directory,
        "SLURM_SUBMIT_HOST": launch.submit_host,
        "SLURMD_NODENAME": spec.node,
        "SLURM_CLUSTER_NAME": launch.cluster,
        "SLURM_WORKING_CLUSTER": launch.cluster,
    }
    if desired.key.run > 1:
        values["SLURM_RESTART_COUNT"] = str(desired.key.run - 1)
    if launch.array_task is not None:
        values["SLURM_ARRAY_JOB_ID"] = str(launch.array_job)
        values["SLURM_ARRAY_TASK_ID"] = str(launch.array_task)
        for name in ("count", "min", "max", "step"):
            number = getattr(launch, f"array_{name}")
            if number is not None:
                values[f"SLURM_ARRAY_TASK_{name.upper()}"] = str(number)
    return values


def _tasks_per_node(spec: KeeperSpec) -> str:
    mode = spec.desired.mode.value
    if mode == "batch":
        return "1"
    return folded([max(1, len(s.gpus)) if mode == "gpu" else 1 for s in spec.desired.layout])


def folded(counts: Sequence[int]) -> str:
    """Counts a node as Slurm writes them: `2(x3),1`."""
    texts: list[str] = []
    start = 0
    for place in range(1, len(counts) + 1):
        if place == len(counts) or counts[place] != counts[start]:
            same = place - start
            texts.append(f"{counts[start]}(x{same})" if same > 1 else str(counts[start]))
            start = place
    return ",".join(texts)


def visible(spec: KeeperSpec, gpus: tuple[str, ...]) -> str:
    """What CUDA is told to use."""
    if spec.gpus_by_index:
        return ",".join(str(spec.gpu_numbers.get(gpu, 0)) for gpu in gpus)
    return ",".join(gpus)


def checkpoint_folder(spec: KeeperSpec) -> str:
    """Where the job's checkpoints are; the job library keeps those of its runs apart by name."""
    launch, key = spec.launch, spec.desired.key
    base = launch.environment.get("DLSCHED_CKPT_ROOT") or launch.working_directory
    return f"{base.rstrip('/')}/.dlsched/checkpoints/{key.job}"


def first_address(spec: KeeperSpec) -> str:
    """The host of the first node, without its agent's port."""
    if len(spec.desired.layout) <= 1 or not spec.launch.addresses:
        return "127.0.0.1"
    target = spec.launch.addresses[0]
    host = target.rsplit(":", 1)[0] if ":" in target else target
    return host.strip("[]") or "127.0.0.1"
