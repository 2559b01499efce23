"""Launch specifications: what a run's keeper needs beside the desired set.

The environment is the user's, complete, and goes nowhere else. Output patterns are expanded here,
except for what differs between nodes and ranks.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from dlsched.jobs.fields import FIELDS
from dlsched.jobs.sweep import filled
from dlsched.protocol.ledger import Job, Run
from dlsched.protocol.messages import LaunchMode, NodeName
from dlsched.rpc.conversion import to_wire
from dlsched.rpc.v1 import control_pb2, node_pb2, run_pb2

if TYPE_CHECKING:
    from dlsched.daemon.cluster import Cluster
    from dlsched.db.contents import JobContent
from dlsched.db.records import JobBody, JobSpec

_OF_NODES = re.compile(r"%\d{0,2}(.)")  # in an expanded pattern
_NODE_RANK = re.compile(r"%([%n])")  # in an expanded pattern, where %% is a percent sign
_PATTERN = re.compile(r"%(\d{0,2})([%jJAabxus])")
DEFAULT_OUTPUT = "dlsched-%j.out"
DEFAULT_ARRAY_OUTPUT = "dlsched-%A_%a.out"


def expand_pattern(pattern: str, job: int, spec: JobSpec) -> str:
    """Put a job's values into an output pattern; the node puts in %N, %n and %t."""
    name = spec.name.replace("/", "_")
    if spec.sweep is not None:
        inert = {k: v.replace("/", "_").replace("%", "%%") for k, v in spec.parameters.items()}
        pattern = filled(pattern, inert)
    values: dict[str, str | int] = {
        "j": job,
        "J": job,
        "A": job - spec.index if spec.array is not None else job,
        "a": spec.task if spec.task is not None else 0,
        "b": (spec.task or 0) % 10,
        "x": name,
        "u": spec.user,
        "s": "batch",  # as Slurm calls the script's own step
        "%": "%%",  # the node expands once more
    }

    def value(match: re.Match[str]) -> str:
        found = values[match[2]]
        width = min(int(match[1] or 0), 10)
        return f"{found:0{width}d}" if isinstance(found, int) else str(found)

    return _PATTERN.sub(value, pattern)


def output_pattern(job: int, spec: JobSpec) -> str:
    """The pattern of a job's output file, as `expand_pattern` leaves it."""
    default = DEFAULT_ARRAY_OUTPUT if spec.array is not None else DEFAULT_OUTPUT
    return expand_pattern(spec.body.output or default, job, spec)


def ranks_of(job: Job, run: Run) -> dict[NodeName, range]:
    """The ranks that the launch mode of a job starts, by node."""
    if job.request.mode is LaunchMode.BATCH:
        return {next(iter(run.members)): range(1)}
    found: dict[NodeName, range] = {}
    first = 0
    for name, member in run.members.items():
        count = max(1, len(member.gpus)) if job.request.mode is LaunchMode.GPU else 1
        found[name] = range(first, first + count)
        first += count
    return found


def has_file_of_each_rank(job: Job, spec: JobSpec) -> bool:
    """Whether no two ranks of a node have the same output file."""
    return "t" in _OF_NODES.findall(output_pattern(job.job, spec))


def is_labelled(job: Job, run: Run, spec: JobSpec, *, error: bool = False) -> bool:
    """Whether each line of a run's output begins with its rank.

    By default it does if ranks of `--launch gpu` have the same file name. A name that only the
    nodes have in common may be one file, because their file systems may be shared.
    """
    pattern = (spec.body.error if error else "") or output_pattern(job.job, spec)
    if job.request.mode is LaunchMode.BATCH or pattern == "/dev/null" or spec.body.label == "no":
        return False
    if spec.body.label == "yes":
        return True
    letters = set(_OF_NODES.findall(pattern))
    ranks = [len(each) for each in ranks_of(job, run).values()]
    most = max(ranks) if letters & {"N", "n"} else sum(ranks)
    return job.request.mode is LaunchMode.GPU and "t" not in letters and most > 1


def output_request(
    cluster: Cluster, job: Job, run: Run, node: NodeName, *, rank: int, error: bool = False
) -> node_pb2.OutputRequest:
    """What a node's agent is asked for the whole output of a rank.

    Args:
        cluster: with the job's specification.
        job: of the run.
        run: the run.
        node: where the rank ran.
        rank: its number.
        error: the file of standard error.
    """
    spec = cluster.driver.table.spec(job)
    own_error = expand_pattern(spec.body.error, job.job, spec) if error else ""
    place = str([*run.members].index(node))
    return node_pb2.OutputRequest(
        key=to_wire(run.key),
        rank=rank,
        error=error,
        tail_lines=-1,
        # a node drops a run's record when its end is stored, and then needs the path
        path=_NODE_RANK.sub(
            lambda found: place if found[1] == "n" else found[0],
            own_error or output_pattern(job.job, spec),
        ),
        user=spec.user,
        uid=spec.uid,
        working_directory=spec.body.working_directory,
    )


def _of_site(cluster: Cluster, body: JobBody) -> dict[str, str]:
    """Variables that say what the site has chosen, where the job says nothing else."""
    kills = cluster.settings.cluster.kill_on_bad_exit and body.slurm_environment
    return {"SLURM_KILL_BAD_EXIT": "1"} if kills else {}


def launch_spec(
    cluster: Cluster, job: Job, run: Run, content: JobContent
) -> control_pb2.LaunchSpec:
    """The launch specification of a run, from what is committed and what the job executes."""
    table = cluster.driver.table
    spec, facts = table.spec(job), table.of(job.job)
    body = spec.body
    message = control_pb2.LaunchSpec(
        key=run_pb2.RunKey(job=run.key.job, run=run.key.run, run_id=run.key.run_id),
        user=spec.user,
        uid=spec.uid,
        argv=map(spec.filled, content.argv),
        script=content.script,
        environment=[
            control_pb2.EnvironmentVariable(name=name, value=value)
            for name, value in {
                **_of_site(cluster, body),
                **content.environment,
                **spec.parameters,
            }.items()
        ],
        output=output_pattern(job.job, spec),
        error=expand_pattern(body.error, job.job, spec),
        append=run.key.run > 1 or not body.truncate,
        label_output=is_labelled(job, run, spec),
        label_error=bool(body.error) and is_labelled(job, run, spec, error=True),
        submit_directory=body.working_directory,
        cluster=cluster.settings.cluster.name,
        node_addresses=[cluster.address(name) for name in run.members],
        executed_s=facts.executed_s,
        **{row.launch: table.field(job, row.name) for row in FIELDS if row.launch},
    )
    if cluster.settings.round.send_user_signal:
        message.warn_at_preemption = True
    if (
        body.max_nodes
        and body.gang
        and body.ntasks_per_node
        and body.ntasks == body.ntasks_per_node * len(body.gang)
    ):
        message.ntasks = body.ntasks_per_node * len(run.members)
    if spec.array is not None and spec.task is not None:
        message.array_job = job.job - spec.index
        message.array_task = spec.task
        message.array_count = len(spec.array.tasks)
        message.array_min = min(spec.array.tasks)
        message.array_max = max(spec.array.tasks)
        message.array_step = spec.array.step
        message.takes_tasks = bool(spec.array.short_tasks)
    if spec.sweep is not None and spec.sweep.halving is not None:
        message.rungs = spec.sweep.halving.rungs_text
    training = cluster.trainings.trainings.get(job.job)
    batch = None if training is None else training.better_batch(cluster.live.nodes.place_of(run))
    if batch is not None:
        message.batch.local, message.batch.accumulation = batch
    if facts.checkpoint is not None:
        message.resume_from = facts.checkpoint.path
        message.resume_step = facts.checkpoint.step
    return message
