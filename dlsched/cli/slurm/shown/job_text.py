"""`scontrol show job` and `show step`: Slurm's lines, word for word and in its order."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from dlsched.cli.jobs.job_columns import exit_text
from dlsched.cli.slurm.formats import moment
from dlsched.cli.slurm.node_words import hosts_text
from dlsched.cli.slurm.people import group_with_number, uid_text, with_number
from dlsched.cli.slurm.quantities import (
    derived_text,
    job_cpus,
    job_nodes,
    memory_on_node,
    trackable_text,
)
from dlsched.cli.slurm.queue_cells import (
    asked_features,
    asked_gres,
    command_text,
    end_of,
    output_path,
    state_of,
    tasks_of,
    why,
)
from dlsched.cli.slurm.sacct_cells import clock, eligible_at, limit_text
from dlsched.cli.slurm.sacct_steps import with_steps
from dlsched.client.job_records import Job
from dlsched.client.records import Detail
from dlsched.host_lists import fold


def job_lines(detail: Detail, *, details: bool = False) -> Iterator[str]:
    """The lines of a job; with details, what it has of each node."""
    job, asked = detail.job, detail.job.asked
    array = ""
    if job.array_job_id is not None:
        array = f" ArrayJobId={job.array_job_id} ArrayTaskId={job.array_task_id}"
        array += f" ArrayTaskThrottle={job.array_limit}" if job.array_limit else ""
    nice = -(job.priority or 0)
    least = asked.get("time_min_s")
    time_min = clock(float(least)) if isinstance(least, int | float) else "N/A"
    waits = job.is_pending
    start = job.predicted_start_at if waits else job.started_at
    yield f"JobId={job.job_id}{array} JobName={job.name or ''}"
    yield f"   UserId={with_number(job.user)} GroupId={group_with_number(job.user)} MCS_label=N/A"
    yield (
        f"   Priority={job.priority or 0:g} Nice={nice:g} "
        f"Account={job.account or job.vc or '(null)'} QOS={job.priority_class or '(null)'}"
    )
    yield (
        f"   JobState={state_of(job.state)} Reason={why(job.state, job.ended_at, job.reason)} "
        f"Dependency={','.join(job.dependencies) or '(null)'}"
    )
    yield (
        f"   Requeue={int(asked.get('requeue', True) is not False)} "
        f"Restarts={max(0, job.starts - 1)} BatchFlag={int(not job.interactive)} Reboot=0 "
        f"ExitCode={exit_text(job).replace('-', '0:0')}"
    )
    if details:
        yield f"   DerivedExitCode={derived_text(job)}"
    yield f"   RunTime={clock(job.run_s or 0)} TimeLimit={limit_text(job)} TimeMin={time_min}"
    yield f"   SubmitTime={moment(job.submitted_at)} EligibleTime={moment(eligible_at(job))}"
    yield f"   AccrueTime={moment(eligible_at(job))}"
    yield (
        f"   StartTime={moment(start)} EndTime={moment(end_of(job))} "
        f"Deadline={moment(job.deadline_at, 'N/A')}"
    )
    yield f"   Partition={job.partition or '(null)'} AllocNode:Sid={_from(job)}:0"
    yield from _place_lines(job, details=details)
    yield f"   Command={command_text(detail) or '(null)'}"
    yield f"   WorkDir={detail.working_directory or ''}"
    if job.comment:
        yield f"   Comment={job.comment}"
    yield f"   StdErr={output_path(detail, error=True)}"
    yield "   StdIn=/dev/null"
    yield f"   StdOut={output_path(detail)}"
    if gres := asked_gres(job.gang, job.gpus, job.gpus_by_type):
        yield f"   TresPerNode={gres}"
    yield "   \n"


def _place_lines(job: Job, *, details: bool) -> Iterator[str]:
    """The lines of nodes and of what it asks for and has there."""
    asked, on_node = job.asked, memory_on_node(job)
    tasks = tasks_of(asked, job.nodes, job.gang)
    constraint = asked_features(asked, job.gpu_types)
    only, without = (hosts_text(asked.get(name)) for name in ("only_nodes", "not_nodes"))
    yield f"   ReqNodeList={only or '(null)'} ExcNodeList={without or '(null)'}"
    yield f"   NodeList={fold(job.nodes) or '(null)'}"
    if job.nodes:
        yield f"   BatchHost={job.nodes[0]}"
    yield (
        f"   NumNodes={job_nodes(job)} NumCPUs={job_cpus(job)} NumTasks={tasks} "
        f"CPUs/Task={asked.get('cpus_per_task') or 1} ReqB:S:C:T=0:0:*:*"
    )
    yield f"   TRES={trackable_text(job)}"
    yield (f"   Socks/Node=* NtasksPerN:B:S:C={asked.get('ntasks_per_node') or 0}:0:*:* CoreSpec=*")
    if details and job.nodes:
        yield from _of_nodes(job)
    yield (
        f"   MinCPUsNode={asked.get('cpus_per_task') or 1} "
        f"MinMemoryNode={'0' if on_node is None else f'{on_node >> 20}M'} "
        f"MinTmpDiskNode={int(str(asked.get('tmp_bytes') or 0)) >> 20}"
    )
    yield f"   Features={constraint} DelayBoot=00:00:00"
    if reservation := asked.get("reservation"):
        yield f"   Reservation={reservation}"
    shares = "NO" if asked.get("exclusive") else "OK"
    yield f"   OverSubscribe={shares} Contiguous=0 Licenses=(null) Network=(null)"


def _of_nodes(job: Job) -> Iterator[str]:
    """What it has of its nodes: a line for those that give the same.

    Nodes do not give a job certain processors, so these have no ids.
    """
    kinds = job.gpus_by_type.split(",") if job.gpus_by_type else []
    kind = kinds[0].rpartition(":")[0] + ":" if len(kinds) == 1 else ""
    if not kind and len(job.gpu_types) == 1:
        kind = f"{job.gpu_types[0]}:"
    if job.gpus:
        yield f"   JOB_GRES=gpu:{kind}{job.gpus}"
    memory = (memory_on_node(job) or 0) >> 20
    alike: dict[tuple[int, ...], list[str]] = {}
    for node in job.nodes:
        alike.setdefault(tuple(job.gpu_indices.get(node, ())), []).append(node)
    for indices, nodes in alike.items():
        places = fold([str(index) for index in indices]).strip("[]")
        gres = f"gpu:{kind}{len(indices)}(IDX:{places})" if indices else ""
        yield f"     Nodes={fold(nodes)} CPU_IDs=N/A Mem={memory} GRES={gres}"


def _from(job: Job) -> str:
    return str(job.asked.get("submit_host") or "(null)")


def step_lines(job: Job) -> Iterator[list[str]]:
    """The lines of each step that runs."""
    for line in with_steps(job):
        step = replace(line.job, user=job.user, partition=job.partition)
        if not line.step or job.state != "RUNNING" or step.state != "RUNNING":
            continue
        script = line.step in ("batch", "interactive")
        tasks = step.asked.get("ntasks") or 1
        cpus = 0 if script else job_cpus(step)
        nodes = len(step.nodes) or 1
        tres = "(null)" if script else f"cpu={cpus},node={nodes}"
        yield [
            f"StepId={job.shown_id}{line.suffix} UserId={uid_text(job.user)} "
            f"StartTime={moment(step.first_started_at)} TimeLimit=UNLIMITED",
            f"   State=RUNNING Partition={job.partition or '(null)'} NodeList={fold(step.nodes)}",
            f"   Nodes={nodes} CPUs={cpus} Tasks={tasks} Name={step.name or ''} Network=(null)",
            f"   TRES={tres}",
            "   ResvPorts=(null)",
            "   CPUFreqReq=Default Dist=Block",
            "   SrunHost:Pid=(null):0",
            "",
        ]
