"""`srun` inside a job: `dlsched run` with Slurm's options and Slurm's defaults.

Without `--ntasks`, the job's own number of tasks counts, else there is one task on each node. A
call with GPUs of its own (`--gres`, `--gpus`, …) waits until other such calls have given them back,
unless it says `--overlap`. What is not known is refused by name.
"""

from __future__ import annotations

import argparse
import os
import re
import sys
from collections.abc import Mapping, Sequence
from typing import BinaryIO, Literal, NoReturn

from dlsched.host_lists import names_of
from dlsched.job import launch
from dlsched.job.errors import JobError
from dlsched.job.messages import EVERY_RANK, RunRanks, Started

# nothing here depends on them: ranks get the allocation as it is
IDLE_FLAGS = (
    *("--exclusive", "--exact", "--unbuffered", "-u", "--oversubscribe", "-s", "--overcommit"),
    *("-O", "--quiet", "-Q", "--verbose", "-v", "--no-kill", "-k", "--disable-status", "-X"),
)
IDLE = (
    *("--cpu-bind", "--mem-bind", "--gpu-bind", "--mpi", "--distribution", "-m", "--hint"),
    *("--job-name", "-J", "--threads-per-core", "--mem", "--mem-per-cpu"),
    *("--mem-per-gpu", "--cpus-per-gpu", "--cpu-freq"),
    *("--ntasks-per-core", "--ntasks-per-socket", "--partition", "-p", "--account", "-A"),
    *("--comment", "--propagate", "--profile", "--acctg-freq", "--wckey", "--qos", "-q"),
)
_TIME = re.compile(r"(?:(\d+)-)?(\d+)(?::(\d+))?(?::(\d+))?", re.ASCII)
_PATTERN = re.compile(r"%(\d{0,2})(.)", re.ASCII)
_ENDLESS = {"0", "unlimited", "infinite"}


class _WrongUse(JobError):
    """The command line is wrong."""


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        raise _WrongUse(message)


def main(words: Sequence[str]) -> int:
    """Run `srun [OPTIONS] COMMAND`; return its exit code."""
    try:
        given = _parser().parse_args(list(words))
        if given.pty:
            _on_this_terminal(given)
        wanted = _wanted(given)
        append = _appends(given.open_mode or os.environ.get("SLURM_OPEN_MODE", ""))
        named = given.output or given.error
        files = _Files(given.output, given.error, append=append) if named else None
        return launch.launch(
            wanted,
            os.environ.get("DLSCHED_CTL_SOCK", ""),
            label=given.label,
            output=files.opened if files else None,
            limit_s=_seconds(given.time),
            after_first_s=given.wait,
        )
    except _WrongUse as error:
        print(f"srun: error: {error}", file=sys.stderr)
        return 2
    except JobError as error:
        print(f"srun: error: {str(error).removeprefix('run: ')}", file=sys.stderr)
        return 1


def _parser() -> _Parser:
    parser = _Parser(
        prog="srun",
        usage="srun [OPTIONS] COMMAND [ARGUMENT]...",
        description="Start tasks inside a job, on all or some of its nodes, and wait for them.",
        allow_abbrev=False,
    )
    add = parser.add_argument
    add("-N", "--nodes", default="", metavar="N", help="On so many nodes.")
    add("-n", "--ntasks", type=_count, default=0, metavar="N", help="Tasks in all.")
    add(
        *("--ntasks-per-node", "--tasks-per-node"),
        type=_count, default=0, metavar="N", help="Tasks on each node.",
    )  # fmt: skip
    add("--ntasks-per-gpu", type=_count, default=0, metavar="N", help="Tasks for each GPU.")
    add("-w", "--nodelist", default="", metavar="HOSTS", help="On these nodes.")
    add("-x", "--exclude", default="", metavar="HOSTS", help="Not on these nodes.")
    add("-c", "--cpus-per-task", type=_count, default=0, metavar="N", help="Told to the tasks.")
    add("--gres", default="", metavar="gpu:N", help="GPUs on each node, of this call alone.")
    add("--gpus-per-node", default="", metavar="N", help="As --gres.")
    add("-G", "--gpus", default="", metavar="N", help="GPUs in all, of this call alone.")
    add("--gpus-per-task", default="", metavar="N", help="GPUs that each task sees.")
    add("--overlap", action="store_true", help="Share GPUs with other calls.")
    add("-t", "--time", default="0", metavar="TIME", help="End the tasks after so long.")
    add("--export", default="ALL", metavar="LIST", help="ALL, NONE, NAME,NAME=VALUE,…")
    add("-o", "--output", default="", metavar="FILE", help="For the output: %%t %%N %%n %%j %%s.")
    add("-e", "--error", default="", metavar="FILE", help="For standard error.")
    add("--open-mode", default="", metavar="MODE", help="append or truncate: the job's, if it has.")
    add(
        "-i",
        "--input",
        default="",
        metavar="WHAT",
        help="What tasks read: all, none, a task, a file.",
    )
    add("--jobid", default="", metavar="ID", help="Only this job's own.")
    add("--pty", action="store_true", help="Here, on this terminal.")
    add("-l", "--label", action="store_true", help="Begin each line with its rank.")
    usual = os.environ.get("SLURM_KILL_BAD_EXIT") or "0"
    told = "End all tasks when one fails; -K0: the others go on (default; SLURM_KILL_BAD_EXIT)."
    add(  # each word takes its value glued to it, or none
        *("-K", "--kill-on-bad-exit", "-K1", "--kill-on-bad-exit=1"),
        dest="kill_on_bad_exit", action="store_const", const="1", default=usual, help=told,
    )  # fmt: skip
    add(
        *("-K0", "--kill-on-bad-exit=0"),
        dest="kill_on_bad_exit", action="store_const", const="0", help=argparse.SUPPRESS,
    )  # fmt: skip
    add(
        *("-W", "--wait"),
        default=os.environ.get("SLURM_WAIT") or "0",
        metavar="S",
        type=_seconds_to_wait,
        help="End all tasks so many seconds after the first one has ended (0: never).",
    )
    add("-D", "--chdir", default="", metavar="FOLDER", help="Where the tasks start.")
    add(*IDLE_FLAGS, dest="idle", action="count", help=argparse.SUPPRESS)
    add(*IDLE, dest="idle_value", help=argparse.SUPPRESS)
    add("command", nargs=argparse.REMAINDER, help=argparse.SUPPRESS)
    return parser


def _wanted(given: argparse.Namespace) -> RunRanks:
    argv = given.command[1:] if given.command[:1] == ["--"] else given.command
    if not argv:
        raise _WrongUse("no command to run")
    own = os.environ.get("DLSCHED_JOB_ID", "")
    if given.jobid not in ("", own, os.environ.get("SLURM_JOB_ID", own)):
        raise _WrongUse(f"--jobid {given.jobid}: inside job {own} only its own id")
    if given.kill_on_bad_exit not in ("0", "1"):
        raise _WrongUse(f"SLURM_KILL_BAD_EXIT={given.kill_on_bad_exit}: 0 or 1")
    nodes, whole = _nodes(given)
    per_task = _gpus("--gpus-per-task", given.gpus_per_task) or 0
    gpus = _gpus_on_node(given, len(nodes))
    ntasks, per_node = _tasks(given, len(nodes), whole=whole)
    if given.ntasks_per_gpu and not given.ntasks:
        on_node = gpus if gpus is not None else _number("SLURM_GPUS_ON_NODE")
        ntasks, per_node = 0, given.ntasks_per_gpu * (on_node or 1)
    if gpus is None and per_task:
        gpus = per_task * (per_node or -(-ntasks // len(nodes)))
    input_to, input_file = _input(given.input, ntasks or per_node * len(nodes))
    return RunRanks(
        argv=tuple(argv),
        ntasks=ntasks,
        per_node=per_node,
        gpus_per_task=per_task,
        nodes=tuple(nodes),
        gpus=gpus,
        overlap=given.overlap,
        overcommit=True,
        cpus_per_task=given.cpus_per_task or _number("SRUN_CPUS_PER_TASK"),
        environment=_exported(given.export),
        working_directory=os.path.abspath(given.chdir or os.getcwd()),
        label=given.label or bool(given.output or given.error),
        kill_on_bad_exit=given.kill_on_bad_exit == "1",
        input_to=input_to,
        input_file=input_file,
    )


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
            raise _WrongUse(f"--input={said}: the tasks are 0 to {tasks - 1}")
        return int(said), ""
    if {match[2] for match in _PATTERN.finditer(said)} & set("tnN"):  # their nodes expand these
        known = {key: str(value).replace("%", "%%") for key, value in _values_of_job().items()}
        return None, os.path.abspath(_expanded("input", said, known, kept="tnN"))
    path = _expanded("input", said, _values_of_job())
    try:
        os.dup2(os.open(path, os.O_RDONLY), 0)
    except OSError as error:
        raise JobError(f"--input={said}: {error.strerror}") from None
    return EVERY_RANK, ""


def _on_this_terminal(given: argparse.Namespace) -> NoReturn:
    """Become the command: this process is inside the job already, on a terminal.

    Raises:
        JobError: it has no terminal, or another place is asked for.
    """
    if not (os.isatty(0) and os.isatty(1)):
        raise _WrongUse(
            "--pty: a job's script has no terminal; a shell in it has: dlsched attach JOB"
        )
    elsewhere = given.nodelist not in ("", os.environ.get("DLSCHED_NODE", ""))
    if elsewhere or given.exclude or given.ntasks > 1 or given.nodes not in ("", "1"):
        raise _WrongUse("--pty: one task on this node; on another one: dlsched attach --node")
    wanted = _wanted(argparse.Namespace(**{**vars(given), "nodes": "", "nodelist": ""}))
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


def _nodes(given: argparse.Namespace) -> tuple[list[str], bool]:
    """The nodes of the call, in the order of the allocation, and whether they are all of it."""
    hosts = _hosts("DLSCHED_NODELIST", os.environ.get("DLSCHED_NODELIST", ""))
    wanted = _hosts("--nodelist", given.nodelist.lower())
    left_out = set(_hosts("--exclude", given.exclude.lower()))
    for name in wanted:
        if hosts and name not in hosts:
            raise _WrongUse(f"-w {name}: not a node of this job ({','.join(hosts)})")
    free = [name for name in hosts if name not in left_out]
    low, _, high = given.nodes.partition("-")
    count = _count(high or low, "--nodes") if given.nodes else len(wanted) or len(free)
    least = _count(low, "--nodes") if given.nodes else count
    if hosts and least > len(free):
        raise _WrongUse(f"--nodes {given.nodes or count}: this job has {len(free)} to choose from")
    if len(wanted) > count:
        raise _WrongUse(f"--nodes {count}: fewer than --nodelist has ({len(wanted)})")
    chosen = set([*wanted, *(name for name in free if name not in wanted)][:count])
    found = [name for name in hosts if name in chosen]
    return found or hosts[:1] or ["?"], len(found) == len(hosts)


def _tasks(given: argparse.Namespace, nodes: int, *, whole: bool) -> tuple[int, int]:
    """Tasks in all (0: by node), and on each node (0: spread evenly)."""
    if given.ntasks or given.ntasks_per_node:
        return given.ntasks, given.ntasks_per_node
    total, per_node = _number("SLURM_NTASKS"), _number("SLURM_NTASKS_PER_NODE")
    total = total or _number("DLSCHED_NTASKS")
    per_node = per_node or _number("DLSCHED_NTASKS_PER_NODE")
    if per_node and not (whole and total):
        return 0, per_node
    return total or nodes, per_node if total else 0


def _gpus_on_node(given: argparse.Namespace, nodes: int) -> int | None:
    """GPUs on each node of this call alone; None: not said."""
    if _are_all_of_several_types(given.gres or given.gpus_per_node):
        return _number("SLURM_GPUS_ON_NODE")
    on_node = _gpus("--gpus-per-node", given.gpus_per_node)
    for part in filter(None, given.gres.split(",")):
        kind, _, rest = part.removeprefix("gres:").removeprefix("gres/").partition(":")
        if kind == "none":
            on_node = 0
        elif kind == "gpu":
            on_node = (on_node or 0) + (_gpus("--gres", rest or "1") or 0)
        else:
            raise _WrongUse(f"--gres={part}: gpu is the only resource known here")
    total = _gpus("--gpus", given.gpus)
    if total is None:
        return on_node
    if total % nodes:
        raise _WrongUse(f"--gpus {total}: not the same number on each of {nodes} nodes")
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
        raise _WrongUse(f"{option} {text}: a call cannot choose among {mine}: give a number")
    if number.isascii() and number.isdigit():
        return int(number)
    if kind or not number[:1].isalpha():
        raise _WrongUse(f"{option} {text}: not a number of GPUs (2, a100:2)")
    return 1


def _number(variable: str) -> int:
    text = os.environ.get(variable, "")
    return int(text) if text.isascii() and text.isdigit() else 0


def _count(text: str, option: str = "") -> int:
    if not text.isascii() or not text.isdigit() or not 0 < int(text) <= 1_000_000:
        why = f"{text!r} is not a whole number above 0"
        raise _WrongUse(f"{option}: {why}") if option else argparse.ArgumentTypeError(why)
    return int(text)


def _seconds(text: str) -> float:
    """Slurm's time limits: minutes, MM:SS, HH:MM:SS, D-HH, D-HH:MM, D-HH:MM:SS."""
    if text.lower() in _ENDLESS:
        return 0.0
    match = _TIME.fullmatch(text)
    if match is None:
        raise _WrongUse(f"--time {text}: not a time limit (90, 1:30:00, 2-12)")
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


def _seconds_to_wait(text: str) -> int:
    if not text.isascii() or not text.isdigit():
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of seconds")
    return int(text)


def _appends(mode: str) -> bool:
    """Whether the files of a step keep what they have; `mode` may be cut short, as in Slurm."""
    for word in ("append", "truncate"):
        if mode and word.startswith(mode.lower()):
            return word == "append"
    if mode:
        raise _WrongUse(f"--open-mode {mode}: not append or truncate")
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


class _Files:
    """Files in place of this program's own output, by patterns of names."""

    def __init__(self, output: str, error: str, *, append: bool) -> None:
        self._mode: Literal["ab", "wb"] = "ab" if append else "wb"
        self._patterns = {1: output, 2: error or output}
        self._open: dict[str, BinaryIO] = {}
        self._started = Started(ranks=0)

    def opened(self, started: Started) -> launch.Write:
        """Open the files of all ranks, as Slurm does: what was there goes, unless they append."""
        self._started = started
        for rank in range(started.ranks):
            for pattern in filter(None, self._patterns.values()):
                self._file(self._path(pattern, rank))
        return self.write

    def write(self, rank: int, stream: int, data: bytes) -> None:
        """Write what a rank has written."""
        pattern = self._patterns[stream]
        if not pattern:
            target = sys.stderr.buffer if stream == 2 else sys.stdout.buffer
        else:
            target = self._file(self._path(pattern, rank))
        target.write(data)
        target.flush()

    def _file(self, path: str) -> BinaryIO:
        if path not in self._open:
            try:
                self._open[path] = open(path, self._mode)  # noqa: SIM115  # open until the program ends
            except OSError as error:
                raise JobError(f"cannot open output {path}: {error.strerror}") from None
        return self._open[path]

    def _path(self, pattern: str, rank: int) -> str:
        nodes, step = self._started.nodes, self._started.call - 1
        node = nodes[rank] if nodes else ""
        values = {
            **_values_of_job(),
            "t": rank,
            "N": node,
            "n": [*dict.fromkeys(nodes)].index(node) if nodes else 0,
            "s": step,
            "J": f"{os.environ.get('DLSCHED_JOB_ID', '')}.{step}",
        }
        return _expanded("output", pattern, values)


def _values_of_job() -> dict[str, object]:
    """What every step of a job may have in the name of a file, by letter."""
    job = os.environ.get("DLSCHED_JOB_ID", "")
    return {
        "%": "%",
        "j": job,
        "x": os.environ.get("DLSCHED_JOB_NAME", ""),
        "u": os.environ.get("USER", ""),
        "A": os.environ.get("DLSCHED_ARRAY_JOB_ID", job),
        "a": os.environ.get("DLSCHED_ARRAY_TASK_ID", "0"),
    }


def _expanded(what: str, pattern: str, values: Mapping[str, object], kept: str = "") -> str:
    """The name of a file, but for the letters that are kept; `%3t` is a number of three digits."""

    def value(match: re.Match[str]) -> str:
        if match[2] in kept:
            return match[0]
        if match[2] not in values:
            raise JobError(f"{what} {pattern}: %{match[2]} is not known")
        return str(values[match[2]]).rjust(min(int(match[1] or 0), 10), "0")

    return _PATTERN.sub(value, pattern)
