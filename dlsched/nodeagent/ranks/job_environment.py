"""The environment of a job's processes.

The runtime's variables replace the user's variables of the same names. No variable of the agent's
own environment is passed on.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from dlsched.jobs.sweep import OF_CLIENTS, OF_SUBMISSIONS
from dlsched.nodeagent.ranks.launch_spec import KeeperSpec
from dlsched.nodeagent.ranks.rank_plan import RankCommand, ranks_per_node
from dlsched.protocol.messages import NodeName
from dlsched.system import slurm_commands

RESERVED = "DLSCHED_"
STEP = "DLSCHED_STEP"  # the number of a `dlsched run`, in its ranks
KEPT = {*OF_CLIENTS, slurm_commands.OF_USER}
# set by the runtime, and by scripts that choose another value for their ranks
CHANGEABLE = ("MASTER_ADDR", "MASTER_PORT", "WORLD_SIZE", "OMP_NUM_THREADS")
# which of several ranks a process is; a script that runs once is none, whatever its shell said
_OF_A_RANK = {"RANK", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "NODE_RANK", "GROUP_RANK"}
_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


@dataclass(frozen=True, slots=True, kw_only=True)
class Rank:
    """One process's place among all processes of its run."""

    rank: int
    local_rank: int
    world: int
    local_world: int
    gpus: tuple[str, ...]
    command: RankCommand | None = None  # of a `dlsched run`; None: as the launch mode has it
    here: str = ""  # all ranks of the command on this node, by number; empty: they are in a row
    is_alone: bool = False  # a batch script or a shell: it is no rank, and starts them itself


def ranks_on_node(spec: KeeperSpec) -> list[Rank]:
    """Return the processes that this node starts when the run executes."""
    mode = spec.desired.mode.value
    layout = spec.desired.layout
    own = tuple(spec.desired.gpus)
    if mode == "batch":
        if spec.rank != 0:
            return []
        return [the_one_process(spec)]
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


def the_one_process(spec: KeeperSpec) -> Rank:
    """Return the place of a batch script or a shell, which has all GPUs of its node."""
    gpus = tuple(spec.desired.gpus)
    return Rank(rank=0, local_rank=0, world=1, local_world=1, gpus=gpus, is_alone=True)


def build_environment(
    spec: KeeperSpec,
    rank: Rank,
    control_socket: str,
    master_port: int,
) -> dict[str, str]:
    """Return the environment of one process.

    Args:
        spec: of the run.
        rank: the process's place.
        control_socket: the path of the keeper's socket for the job.
        master_port: on the first node.
    """
    launch, command = spec.launch, rank.command
    slurm = launch.slurm_environment
    base = launch.environment if command is None else command.environment
    values = {
        name: value
        for name, value in base.items()
        if name
        and "=" not in name
        and "\0" not in name + value
        and (name in KEPT or not name.startswith(RESERVED))
        # others are of a Slurm job around the submission
        and not (slurm and name.startswith("SLURM_") and name not in OF_SUBMISSIONS)
        and not (rank.is_alone and name in _OF_A_RANK)
    }
    values.setdefault("PATH", _PATH)
    if slurm and not launch.container:  # no image has what they need
        slurm_commands.put_on_path(values, spec.run_dir)
    values.setdefault("SHELL", launch.shell)
    values.setdefault("PYTHONUNBUFFERED", "1")  # else what a killed program has printed is lost
    # else torchrun kills its ranks 30 s after it has passed TERM on to them
    values.setdefault("TORCH_ELASTIC_SHUTDOWN_TIMEOUT", f"{spec.desired.grace_s:.0f}")
    values.update(HOME=values.get("HOME", launch.home), USER=launch.user, LOGNAME=launch.user)
    values.update(_own(spec, rank, control_socket, master_port))
    if slurm:
        values.update(_slurm(spec, rank))
    values.update({name: base[name] for name in (command.changed if command else ())})
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
        "DLSCHED_NODELIST": compact_names(nodes),
        "DLSCHED_NNODES": str(len(nodes)),
        "DLSCHED_NODE_RANK": str(spec.rank),
        "DLSCHED_GPUS": str(gpus),
        "DLSCHED_GPUS_ON_NODE": str(len(desired.gpus)),
        "DLSCHED_SUBMIT_DIR": launch.submit_directory or launch.working_directory,
        "DLSCHED_CTL_SOCK": control_socket,
        "DLSCHED_CKPT_DIR": checkpoint_folder(spec),
        "DLSCHED_RESUME_FROM": launch.resume_from,
        "DLSCHED_GRACE": f"{desired.grace_s:.0f}",
        "CUDA_DEVICE_ORDER": "PCI_BUS_ID",
        "CUDA_VISIBLE_DEVICES": visible_devices(spec, rank.gpus),
    }
    if not rank.is_alone:
        values |= _of_rank(spec, rank, master_port)
    if rank.command is not None:
        values[STEP] = str(rank.command.call - 1)
    for name in ("ntasks", "ntasks_per_node", "cpus_per_task"):
        count = getattr(launch, name)
        if count is not None:
            values[f"DLSCHED_{name.upper()}"] = str(count)
    if desired.gpu_share:  # 0: what others leave, which changes
        percent = f"{100 * desired.gpu_share:g}"
        values["DLSCHED_GPU_SHARE"] = f"{desired.gpu_share:g}"
        values["CUDA_MPS_ACTIVE_THREAD_PERCENTAGE"] = percent  # means something under MPS only
    if launch.warn_signal and not launch.warn_script_only:
        values["DLSCHED_WARN_SIGNAL"] = str(launch.warn_signal)
    if launch.keep_checkpoints:
        values["DLSCHED_KEEP_CHECKPOINTS"] = str(launch.keep_checkpoints)
    if launch.rungs:
        values["DLSCHED_RUNGS"] = launch.rungs
    flags = {
        "FIXED_BATCH": launch.fixed_batch, "IN_PLACE": launch.in_place, "FOLLOWS": desired.follows,
    }  # fmt: skip
    values |= {f"DLSCHED_{name}": "1" for name, is_set in flags.items() if is_set}
    if launch.local_batch:
        values["DLSCHED_LOCAL_BATCH"] = str(launch.local_batch)
        values["DLSCHED_ACCUMULATION"] = str(launch.accumulation)
    if launch.array_task is not None:
        values["DLSCHED_ARRAY_JOB_ID"] = str(launch.array_job)
        values["DLSCHED_ARRAY_TASK_ID"] = str(launch.array_task)
    if desired.limits.cpus:
        values["DLSCHED_CPUS"] = str(desired.limits.cpus)
    if desired.limits.cpus and "OMP_NUM_THREADS" not in launch.environment:
        values["OMP_NUM_THREADS"] = str(max(1, desired.limits.cpus // rank.local_world))
    return values


def _of_rank(spec: KeeperSpec, rank: Rank, master_port: int) -> dict[str, str]:
    """The variables of torchrun; a script that has them is taken for a rank by frameworks."""
    return {
        "MASTER_ADDR": rank.command.master_address if rank.command else address_of(spec),
        "MASTER_PORT": str(master_port),
        "WORLD_SIZE": str(rank.world),
        "RANK": str(rank.rank),
        "LOCAL_RANK": str(rank.local_rank),
        "LOCAL_WORLD_SIZE": str(rank.local_world),
        "NODE_RANK": str(node_rank(spec, rank)),
        "GROUP_RANK": str(node_rank(spec, rank)),
    }


def node_rank(spec: KeeperSpec, rank: Rank) -> int:
    """Return this node's place among the nodes of the run, or of the `dlsched run`."""
    command = rank.command
    if command is None or spec.node not in command.nodes:
        return spec.rank
    return command.nodes.index(spec.node)


def _slurm(spec: KeeperSpec, rank: Rank) -> dict[str, str]:
    """The variables of Slurm that training frameworks read, set where Slurm sets them."""
    launch, desired = spec.launch, spec.desired
    nodes = [share.node for share in desired.layout]
    command = rank.command
    numbers = ",".join(str(spec.gpu_numbers.get(gpu, 0)) for gpu in rank.gpus)
    cpus = desired.limits.cpus or spec.cpus or 1
    job = str(desired.key.job)
    here = len(command.nodes) if command else len(nodes)
    values = {
        "SLURM_JOB_ID": job,
        "SLURM_JOBID": job,
        "SLURM_JOB_NAME": launch.job_name,
        "SLURM_JOB_USER": launch.user,
        "SLURM_JOB_UID": str(launch.uid),
        "SLURM_JOB_GID": str(launch.gid),
        "SLURM_JOB_PARTITION": launch.partition,
        "SLURM_JOB_ACCOUNT": launch.vc,
        "SLURM_JOB_NODELIST": compact_names(nodes),
        "SLURM_NODELIST": compact_names(nodes),
        "SLURM_JOB_NUM_NODES": str(len(nodes)),
        "SLURM_NNODES": str(here),
        "SLURM_JOB_CPUS_PER_NODE": compact_counts([cpus] * len(nodes)),
        "SLURM_CPUS_ON_NODE": str(cpus),
        "SLURM_GPUS_ON_NODE": str(len(rank.gpus)),
        "SLURM_JOB_GPUS": numbers,
        "GPU_DEVICE_ORDINAL": numbers,
        "SLURM_TASKS_PER_NODE": command.tasks_per_node if command else _tasks_per_node(spec),
        "SLURM_NODEID": str(node_rank(spec, rank)),
        "SLURM_PROCID": str(rank.rank),
        "SLURM_LOCALID": str(rank.local_rank),
        "SLURM_GTIDS": rank.here or _in_a_row(rank),
        "SLURM_SUBMIT_DIR": launch.submit_directory or launch.working_directory,
        "SLURM_SUBMIT_HOST": launch.submit_host,
        "SLURMD_NODENAME": spec.node,
        "SLURM_CLUSTER_NAME": launch.cluster,
        "SLURM_WORKING_CLUSTER": launch.cluster,
    }
    if command is not None or desired.mode.value != "batch":
        values["SLURM_NTASKS"] = values["SLURM_NPROCS"] = str(rank.world)
    elif launch.ntasks is not None:
        values["SLURM_NTASKS"] = values["SLURM_NPROCS"] = str(launch.ntasks)
    if launch.ntasks_per_node is not None:
        values["SLURM_NTASKS_PER_NODE"] = str(launch.ntasks_per_node)
    per_task = (command.cpus_per_task if command else 0) or launch.cpus_per_task
    if per_task:
        values["SLURM_CPUS_PER_TASK"] = str(per_task)
    if command is not None:
        values |= {
            "SLURM_STEP_ID": str(command.call - 1),
            "SLURM_STEPID": str(command.call - 1),
            "SLURM_STEP_NODELIST": compact_names(command.nodes),
            "SLURM_STEP_NUM_NODES": str(here),
            "SLURM_STEP_NUM_TASKS": str(rank.world),
            "SLURM_STEP_TASKS_PER_NODE": command.tasks_per_node,
            "SLURM_STEP_GPUS": numbers,
            "SLURM_LAUNCH_NODE_IPADDR": address_of(spec),
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


def _in_a_row(rank: Rank) -> str:
    first = rank.rank - rank.local_rank
    return ",".join(map(str, range(first, first + rank.local_world)))


def _tasks_per_node(spec: KeeperSpec) -> str:
    layout, launch = spec.desired.layout, spec.launch
    if spec.desired.mode.value == "gpu":
        return compact_counts([max(1, len(share.gpus)) for share in layout])
    if spec.desired.mode.value == "batch" and launch.ntasks is not None and layout:
        most = launch.ntasks_per_node or 0
        if most * len(layout) < launch.ntasks:  # spread evenly
            most = 0
        counts = ranks_per_node(layout, launch.ntasks, most, overcommit=True)
        return compact_counts([count for count in counts if count])
    return compact_counts([1] * len(layout))


def compact_counts(counts: Sequence[int]) -> str:
    """Return counts of ranks by node as Slurm writes them: `2(x3),1`."""
    texts: list[str] = []
    start = 0
    for place in range(1, len(counts) + 1):
        if place == len(counts) or counts[place] != counts[start]:
            same = place - start
            texts.append(f"{counts[start]}(x{same})" if same > 1 else str(counts[start]))
            start = place
    return ",".join(texts)


def visible_devices(spec: KeeperSpec, gpus: tuple[str, ...]) -> str:
    """Return the value of CUDA_VISIBLE_DEVICES for these GPUs."""
    if spec.gpus_by_index:
        return ",".join(str(spec.gpu_numbers.get(gpu, 0)) for gpu in gpus)
    return ",".join(gpus)


def checkpoint_folder(spec: KeeperSpec) -> str:
    """Return the folder of the job's checkpoints; the job library names those of each run."""
    launch, key = spec.launch, spec.desired.key
    base = launch.environment.get("DLSCHED_CKPT_ROOT") or launch.working_directory
    return f"{base.rstrip('/')}/.dlsched/checkpoints/{key.job}"


def address_of(spec: KeeperSpec, node: NodeName | None = None) -> str:
    """Return the host of one node of the run, without its agent's port; None: of the first."""
    if len(spec.desired.layout) <= 1 or not spec.launch.addresses:
        return "127.0.0.1"
    nodes = [share.node for share in spec.desired.layout]
    target = spec.launch.addresses[0 if node is None else nodes.index(node)]
    host = target.rsplit(":", 1)[0] if ":" in target else target
    return host.strip("[]") or "127.0.0.1"


def compact_names(names: Iterable[str]) -> str:
    """Return node names as Slurm writes them: `n1,n2,n3,gpu07` is `n[1-3],gpu07`; order is kept."""
    groups: list[tuple[str, list[str]]] = []
    for name in names:
        head = name.rstrip("0123456789")
        number = name[len(head) :]
        if groups and number and groups[-1][0] == head and groups[-1][1]:
            groups[-1][1].append(number)
        else:
            groups.append((head, [number] if number else []))
    return ",".join(_span(head, numbers) for head, numbers in groups)


def _span(head: str, numbers: list[str]) -> str:
    if not numbers:
        return head
    if len(numbers) == 1:
        return head + numbers[0]
    spans: list[list[str]] = []
    for number in numbers:
        last = spans[-1][-1] if spans else None
        if last is not None and _follows(last, number):
            spans[-1] = [spans[-1][0], number]
        else:
            spans.append([number])
    texts = [span[0] if len(span) == 1 else f"{span[0]}-{span[-1]}" for span in spans]
    return f"{head}[{','.join(texts)}]"


def _follows(last: str, number: str) -> bool:
    """Whether a number follows another in a range: 09 after 08, 10 after 9, but not 010 after 9."""
    padded = last.startswith("0") or number.startswith("0")
    return int(last) + 1 == int(number) and (len(last) == len(number) or not padded)
