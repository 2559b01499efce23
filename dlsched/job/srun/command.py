"""`srun` inside a job: what a command line asks for, as the keeper of the job understands it.

Without `--ntasks`, the job's own number of tasks counts, else there is one task on each node. A
call with GPUs of its own (`--gres`, `--gpus`, …) waits until other such calls have given them back,
unless it says `--overlap`. What is not known is refused by name.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Sequence
from typing import NoReturn

from dlsched.host_lists import names_of
from dlsched.job import launch
from dlsched.job.errors import JobError
from dlsched.job.messages import EVERY_RANK, RunRanks
from dlsched.job.srun.files import PATTERN, Files, expanded, values_of_job
from dlsched.job.srun.options import Given, WrongUse, help_page, read
from dlsched.job.srun.programs import argv_of
from dlsched.task_places import (
    Distribution,
    GpuBinding,
    read_distribution,
    read_gpu_binding,
)

__all__ = ["main"]

_TIME = re.compile(r"(?:(\d+)-)?(\d+)(?::(\d+))?(?::(\d+))?", re.ASCII)
_ENDLESS = {"0", "unlimited", "infinite"}


def main(words: Sequence[str]) -> int:
    """Run `srun [OPTIONS] COMMAND`; return its exit code."""
    try:
        given = read(words, os.environ)
        if "help" in given.said:
            print("\n".join(help_page()))
            return 0
        if not _starts_plain_processes(given):
            return 0
        if given.said.get("pty"):
            _on_this_terminal(given)
        wanted = _wanted(given)
        output, error = given.text("output"), given.text("error")
        append = _appends(given.text("open_mode"))
        files = Files(output, error, append=append) if output or error else None
        limit_s, wait_s = _seconds(given), _whole_seconds(given, "wait")
        within_s = _whole_seconds(given, "immediate")
        if given.noted and "quiet" not in given.said:
            print(f"srun: without effect here: {', '.join(given.noted)}", file=sys.stderr)
        return launch.launch(
            wanted,
            os.environ.get("DLSCHED_CTL_SOCK", ""),
            label="label" in given.said,
            output=files.opened if files else None,
            limit_s=limit_s,
            after_first_s=wait_s,
            start_within_s=within_s,
        )
    except WrongUse as error:
        print(f"srun: error: {error}", file=sys.stderr)
        return 2
    except JobError as error:
        print(f"srun: error: {str(error).removeprefix('run: ')}", file=sys.stderr)
        return 1


def _starts_plain_processes(given: Given) -> bool:
    """Whether there are tasks to start; else what `--mpi` may say has been listed.

    Raises:
        WrongUse: another kind of MPI is asked for.
    """
    kind = given.text("mpi").lower()
    if kind in ("", "none"):
        return True
    if kind == "list":
        print("MPI plugin types are...\n\tnone")
        return False
    raise WrongUse(
        f"{given.name_of('mpi')}={given.text('mpi')}: srun has no such start of MPI programs "
        "(--mpi=list); start them with mpirun, others with --mpi=none"
    )


def _wanted(given: Given) -> RunRanks:
    if not given.command:
        raise WrongUse("no command to run")
    own = os.environ.get("DLSCHED_JOB_ID", "")
    job = given.text("jobid")
    if job not in ("", own, os.environ.get("SLURM_JOB_ID", own)):
        raise WrongUse(f"--jobid {job}: inside job {own} only its own id")
    if given.text("kill_on_bad_exit") not in ("", "0", "1"):
        raise WrongUse(
            f"{given.name_of('kill_on_bad_exit')}={given.text('kill_on_bad_exit')}: 0 or 1"
        )
    nodes, whole = _nodes(given)
    ntasks, per_node = _tasks(given, len(nodes), whole=whole)
    gpus = _gpus_on_node(given, len(nodes))
    per_task, from_job = _gpus_per_task(given)
    per_gpu = _tasks_per_gpu(given)
    if given.said.get("ntasks_per_gpu") and per_gpu:
        if given.said.get("ntasks"):
            gpus = gpus if gpus is not None else -(-ntasks // (per_gpu * len(nodes)))
        else:
            on_node = gpus if gpus is not None else _number("SLURM_GPUS_ON_NODE")
            ntasks, per_node = 0, per_gpu * (on_node or 1)
    is_all = whole and _count_of(given, "ntasks") in (0, _number("SLURM_NTASKS"))
    own_gpus = from_job and is_all and gpus is None
    if gpus is None and per_task is not None and not own_gpus:
        gpus = per_task * (per_node or -(-ntasks // len(nodes)))
    binding = _binding(given) or GpuBinding(per_task=per_task or 0, tasks_per_gpu=per_gpu)
    spread = _spread(given)
    input_to, input_file = _input(given.text("input"), ntasks or per_node * len(nodes))
    return RunRanks(
        argv=argv_of(given, ntasks or per_node * len(nodes)),
        name=given.text("job_name"),
        ntasks=ntasks,
        per_node=per_node,
        gpus_per_task=binding.per_task,
        tasks_per_gpu=binding.tasks_per_gpu,
        gpu_masks=binding.masks,
        plane=spread.plane,
        nodes=tuple(nodes),
        gpus=gpus,
        own_gpus=own_gpus,
        # a task that starts a step itself has its GPUs
        overlap="overlap" in given.said or (from_job and "DLSCHED_STEP" in os.environ),
        overcommit=True,
        cpus_per_task=_count_of(given, "cpus_per_task") or _number("SRUN_CPUS_PER_TASK"),
        environment={
            **_exported(given.text("export") or "ALL"),
            **_told_of(spread, tasks=ntasks or per_node * len(nodes), nodes=len(nodes)),
        },
        working_directory=os.path.abspath(given.text("chdir") or os.getcwd()),
        label="label" in given.said or bool(given.text("output") or given.text("error")),
        kill_on_bad_exit=given.text("kill_on_bad_exit") == "1",
        input_to=input_to,
        input_file=input_file,
    )


def _gpus_per_task(given: Given) -> tuple[int | None, bool]:
    """GPUs of each task, and whether the job says so and not this call; None: not said."""
    if "gpus_per_task" in given.said:
        return _gpus("--gpus-per-task", given.text("gpus_per_task")), False
    if "gres" in given.said or "ntasks_per_gpu" in given.said:
        return None, False
    found = _gpus("SLURM_GPUS_PER_TASK", os.environ.get("SLURM_GPUS_PER_TASK", ""))
    return found, found is not None


def _tasks_per_gpu(given: Given) -> int:
    """Tasks for each GPU, as this call or the job says; 0: neither does."""
    if "ntasks_per_gpu" in given.said:
        return _count_of(given, "ntasks_per_gpu")
    if "gres" in given.said or "gpus_per_task" in given.said:
        return 0
    return _number("SLURM_NTASKS_PER_GPU")


def _binding(given: Given) -> GpuBinding | None:
    """Which GPUs tasks see by this call's own words, or the job's; None: not said."""
    text = given.text("gpu_bind")
    if not text:
        return None
    try:
        found = read_gpu_binding(text)
    except ValueError as error:
        raise WrongUse(f"{given.name_of('gpu_bind')}: {error}") from None
    if found.is_closest and "gpu_bind" not in given.variables:  # else the submission has noted it
        given.noted["--gpu-bind=closest (tasks are bound to no processors: each sees all GPUs)"] = (
            None
        )
    return found


def _spread(given: Given) -> Distribution:
    try:
        text = given.text("distribution")
        found = (
            read_distribution(text, os.environ.get("SLURM_DIST_PLANESIZE", "")) if text else None
        )
    except ValueError as error:
        raise WrongUse(f"{given.name_of('distribution')}: {error}") from None
    if found is None:
        return Distribution()
    if found.rest and "distribution" not in given.variables:
        given.noted[f"--distribution={found.rest}"] = None
    return found


def _told_of(spread: Distribution, *, tasks: int, nodes: int) -> dict[str, str]:
    """How tasks are spread, in the variables in which Slurm says it."""
    told = {"SLURM_DISTRIBUTION": spread.name or ("cyclic" if tasks <= nodes else "block")}
    if spread.name == "plane":
        told["SLURM_DIST_PLANESIZE"] = str(spread.plane)
    return told


def _input(said: str, tasks: int) -> tuple[int | None, str]:
    """The task that reads the standard input, and the pattern of a file for each task instead.

    A file for all tasks is the standard input from now on.

    Raises:
        JobError: there is no such task or file.
    """
    if said in ("", "all", "none"):
        return None if said == "none" else EVERY_RANK, ""
    if said.isascii() and said.isdigit():
        if int(said) >= tasks:
            raise WrongUse(f"--input={said}: the tasks are 0 to {tasks - 1}")
        return int(said), ""
    if {match[2] for match in PATTERN.finditer(said)} & set("tnN"):  # their nodes expand these
        known = {key: str(value).replace("%", "%%") for key, value in values_of_job().items()}
        return None, os.path.abspath(expanded("input", said, known, kept="tnN"))
    path = expanded("input", said, values_of_job())
    try:
        os.dup2(os.open(path, os.O_RDONLY), 0)
    except OSError as error:
        raise JobError(f"--input={said}: {error.strerror}") from None
    return EVERY_RANK, ""


def _on_this_terminal(given: Given) -> NoReturn:
    """Become the command: this process is inside the job already, on a terminal.

    Raises:
        JobError: it has no terminal, or another place is asked for.
    """
    if not (os.isatty(0) and os.isatty(1)):
        raise WrongUse(
            "--pty: a job's script has no terminal; a shell in it has: dlsched attach JOB"
        )
    elsewhere = given.text("nodelist") not in ("", os.environ.get("DLSCHED_NODE", ""))
    several = given.text("ntasks") not in ("", "1") or given.text("nodes") not in ("", "1")
    if elsewhere or given.text("exclude") or several:
        raise WrongUse("--pty: one task on this node; on another one: dlsched attach --node")
    for key in ("nodes", "nodelist", "relative"):
        given.said.pop(key, None)
    wanted = _wanted(given)
    try:
        os.chdir(wanted.working_directory)
        os.execvp(wanted.argv[0], wanted.argv)
    except OSError as error:
        raise JobError(f"{wanted.argv[0]}: {error.strerror}") from None


def _hosts(what: str, text: str) -> list[str]:
    try:
        return names_of(text) if text else []
    except ValueError as error:
        raise JobError(f"{what}: {error}") from None


def _nodes(given: Given) -> tuple[list[str], bool]:
    """The nodes of the call, in the order of the allocation, and whether they are all of it."""
    hosts = _hosts("DLSCHED_NODELIST", os.environ.get("DLSCHED_NODELIST", ""))
    wanted = _hosts("--nodelist", given.text("nodelist").lower())
    left_out = set(_hosts("--exclude", given.text("exclude").lower()))
    for name in wanted:
        if hosts and name not in hosts:
            raise WrongUse(f"-w {name}: not a node of this job ({','.join(hosts)})")
    free = [name for name in _from_relative(given, hosts) if name not in left_out]
    asked = given.text("nodes")
    low, _, high = asked.partition("-")
    count = _count(high or low, "--nodes") if asked else len(wanted) or len(free)
    least = _count(low, "--nodes") if asked else count
    if hosts and least > len(free):
        raise WrongUse(f"--nodes {asked or count}: this job has {len(free)} to choose from")
    if len(wanted) > count:
        raise WrongUse(f"--nodes {count}: fewer than --nodelist has ({len(wanted)})")
    chosen = set([*wanted, *(name for name in free if name not in wanted)][:count])
    found = [name for name in hosts if name in chosen]
    return found or hosts[:1] or ["?"], len(found) == len(hosts)


def _from_relative(given: Given, hosts: list[str]) -> list[str]:
    """The nodes from `--relative` on."""
    text = given.text("relative")
    if not text:
        return hosts
    if not text.isascii() or not text.isdigit() or int(text) >= len(hosts):
        raise WrongUse(f"--relative {text}: nodes of this job are 0 to {len(hosts) - 1}")
    return hosts[int(text) :]


def _tasks(given: Given, nodes: int, *, whole: bool) -> tuple[int, int]:
    """Tasks in all (0: by node), and on each node (0: spread evenly)."""
    ntasks, on_node = _count_of(given, "ntasks"), _count_of(given, "ntasks_per_node")
    if ntasks or on_node:
        return ntasks, on_node
    total, per_node = _number("SLURM_NTASKS"), _number("SLURM_NTASKS_PER_NODE")
    total = total or _number("DLSCHED_NTASKS")
    per_node = per_node or _number("DLSCHED_NTASKS_PER_NODE")
    if per_node and not (whole and total):
        return 0, per_node
    return total or nodes, per_node if total else 0


def _gpus_on_node(given: Given, nodes: int) -> int | None:
    """GPUs on each node of this call alone; None: not said."""
    if _are_all_of_several_types(given.text("gres") or given.text("gpus_per_node")):
        return _number("SLURM_GPUS_ON_NODE")
    on_node = _gpus("--gpus-per-node", given.text("gpus_per_node"))
    for part in filter(None, given.text("gres").split(",")):
        kind, _, rest = part.removeprefix("gres:").removeprefix("gres/").partition(":")
        if kind == "none":
            on_node = 0
        elif kind == "gpu":
            on_node = (on_node or 0) + (_gpus("--gres", rest or "1") or 0)
        else:
            raise WrongUse(f"--gres={part}: gpu is the only resource known here")
    total = _gpus("--gpus", given.text("gpus"))
    if total is None:
        return on_node
    if total % nodes:
        raise WrongUse(f"--gpus {total}: not the same number on each of {nodes} nodes")
    return total // nodes


def _are_all_of_several_types(text: str) -> bool:
    """Does a call of a job with GPUs of several types on each node ask for all of them?"""
    mine = os.environ.get("SLURM_GPUS_PER_NODE", "").split(",")
    named = [part.partition("gpu:")[2] or part for part in text.lower().split(",")]
    return len(mine) > 1 and sorted(named) == sorted(mine)


def _gpus(option: str, text: str) -> int | None:
    """A number of GPUs with or without a type: `2`, `a100:2`, `a100`."""
    if not text:
        return None
    kind, _, number = text.rpartition(":")
    mine = os.environ.get("SLURM_GPUS_PER_NODE", "")
    if "," in mine and (kind or not number.isdigit()):
        raise WrongUse(f"{option} {text}: a call cannot choose among {mine}: give a number")
    if number.isascii() and number.isdigit():
        return int(number)
    if kind or not number[:1].isalpha():
        raise WrongUse(f"{option} {text}: not a number of GPUs (2, a100:2)")
    return 1


def _number(variable: str) -> int:
    text = os.environ.get(variable, "")
    return int(text) if text.isascii() and text.isdigit() else 0


def _count(text: str, option: str) -> int:
    if not text.isascii() or not text.isdigit() or not 0 < int(text) <= 1_000_000:
        raise WrongUse(f"{option}: {text!r} is not a whole number above 0")
    return int(text)


def _count_of(given: Given, key: str) -> int:
    """A number of the command line; 0: not said."""
    return _count(given.said[key], given.name_of(key)) if key in given.said else 0


def _seconds(given: Given) -> float:
    """Slurm's time limits: minutes, MM:SS, HH:MM:SS, D-HH, D-HH:MM, D-HH:MM:SS; 0: none."""
    text = given.text("time")
    if not text or text.lower() in _ENDLESS:
        return 0.0
    match = _TIME.fullmatch(text)
    if match is None:
        raise WrongUse(f"{given.name_of('time')} {text}: not a time limit (90, 1:30:00, 2-12)")
    days, *parts = match.groups()
    numbers = [int(part) for part in parts if part is not None]
    if days is not None:
        numbers += [0] * (3 - len(numbers))
    elif len(numbers) == 1:
        numbers = [0, *numbers, 0]
    elif len(numbers) == 2:
        numbers = [0, *numbers]
    hours, minutes, seconds = numbers
    return ((int(days or 0) * 24 + hours) * 60 + minutes) * 60.0 + seconds


def _whole_seconds(given: Given, key: str) -> int:
    text = given.text(key) or "0"
    if not text.isascii() or not text.isdigit():
        raise WrongUse(f"{given.name_of(key)}: {text!r} is not a number of seconds")
    return int(text)


def _appends(mode: str) -> bool:
    """Whether the files of a step keep what they have; `mode` may be cut short, as in Slurm."""
    for word in ("append", "truncate"):
        if mode and word.startswith(mode.lower()):
            return word == "append"
    if mode:
        raise WrongUse(f"--open-mode {mode}: not append or truncate")
    return False


def _exported(choice: str) -> dict[str, str]:
    """The variables that `--export` chooses; the runtime adds its own for each rank."""
    every = launch.inherited(os.environ)
    words = [word for word in choice.split(",") if word]
    plain = {word.upper() for word in words}
    # a rank without PATH finds nothing, not even the command
    chosen = every if "ALL" in plain else {"PATH": every.get("PATH", os.defpath)}
    for word in words:
        name, equals, value = word.partition("=")
        if equals:
            chosen[name] = value
        elif name in every:
            chosen[name] = every[name]
    return chosen
