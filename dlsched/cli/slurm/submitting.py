"""`sbatch`, and `srun` and `salloc` outside of a job: submissions with Slurm's words and output."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NoReturn

from dlsched.cli.output.closed_output import told_jobs
from dlsched.cli.slurm.input_variables import read_variables
from dlsched.client.submission.directives import idle_note, take_option
from dlsched.client.submission.options import BY_WORD, merged, put_typed
from dlsched.core.errors import BadInput, shorten
from dlsched.job.srun.options import NOTED, Given, WrongUse, option_of
from dlsched.job.srun.options import OPTIONS as STEP_OPTIONS
from dlsched.jobs.fields import OPTIONS

if TYPE_CHECKING:
    from dlsched.client.daemon_client import Client
    from dlsched.client.submission.request import Submission
    from dlsched.rpc.v1.control_pb2 import SubmitReply

# what a command itself does; whether a value follows it
_OWN: dict[str, dict[str, bool]] = {
    "sbatch": {
        "--wrap": True,
        "--test-only": False,
        "--ignore-unknown-directives": False,
        "--pty": False,
    },
    "srun": {"--test-only": False},
    "salloc": {"--no-shell": False},
}
# of a step too, but `srun` outside of a job does them itself
_OF_CALL = {"input", "jobid", "pty", "immediate", "quiet", "help"}
_OF_STEP_TOO = {"input", "wait"}  # as submissions know them, they mean something else
_PURPOSES = {
    "sbatch": "Submit a script; #SBATCH lines may hold the same options.",
    "srun": "Run a command as a job of its own, with its output here.",
    "salloc": "Open a shell, or run a command, on the first node of an allocation.",
}
_OWN_HELP = {
    "sbatch": {
        "--wrap": "Run this line by the shell, in place of a script.",
        "--test-only": "Say when the job would start, and submit nothing.",
    },
    "srun": {
        "--pty": "With a terminal.",
        "-i --input": "What tasks read: all (the default), none, a task, a file.",
        "-I --immediate": "Give up unless it starts within so many seconds (1).",
        "--jobid": "As tasks of this running job.",
        "--test-only": "Say when the job would start, and submit nothing.",
    },
    "salloc": {
        "--no-shell": "Only allocate; srun --jobid uses it, scancel gives it back.",
        "-I --immediate": "Give up unless it starts within so many seconds (1).",
    },
}
_FLAGS = {"--pty", "--test-only", "--no-shell"}
# variables of a job that say how many tasks its steps have, and their GPUs
_TASKS_OF_JOB = (
    *("SLURM_NTASKS", "SLURM_NPROCS", "SLURM_NTASKS_PER_NODE", "SLURM_NTASKS_PER_GPU"),
    *("SLURM_GPUS_PER_TASK", "SLURM_GPU_BIND", "DLSCHED_NTASKS", "DLSCHED_NTASKS_PER_NODE"),
)


def sbatch(words: Sequence[str]) -> int:
    """Submit a script with Slurm's options; print `Submitted batch job N`."""
    from dlsched.cli.jobs.submit import one_job, wait_for_end  # noqa: PLC0415
    from dlsched.cli.jobs.submitted import print_warnings  # noqa: PLC0415
    from dlsched.client.daemon_client import Client  # noqa: PLC0415  # gRPC comes with it

    said = _read("sbatch", words)
    if "--wrap" in said.own and said.rest:
        raise BadInput("give a script or --wrap, not both")
    if "--pty" in said.own:
        raise BadInput("--pty: a script has no terminal; salloc or srun --pty gives one")
    found = one_job(
        said.rest or ["-"],
        said.layer,
        wrap=said.own.get("--wrap"),
        ignore_unknown="--ignore-unknown-directives" in said.own,
        truncates=True,
    )
    if not found.request.output:
        found.request.output = "slurm-%A_%a.out" if found.request.array else "slurm-%j.out"
    _print_notes("sbatch", found)
    with Client() as cluster:
        if "--test-only" in said.own:
            return _test("sbatch", cluster, found)
        reply = cluster.submit_all([found])
        print_warnings(reply, "sbatch")
        job = reply.jobs[0].job
        with told_jobs([job], "sbatch"):
            print(job if found.parsable else f"Submitted batch job {job}")
        return wait_for_end(cluster, reply) if found.wait else 0


def _print_notes(name: str, wanted: Submission) -> None:
    for note in wanted.notes:
        print(f"{name}: {note}", file=sys.stderr)


def _test(name: str, cluster: Client, wanted: Submission) -> int:
    """Say when a job would start, and submit nothing."""
    from dlsched.cli.jobs.submitted import print_warnings  # noqa: PLC0415

    reply = cluster.submit_all([wanted], test_only=True)
    print_warnings(reply, name)
    print(f"{name}: {_trial(reply)}; nothing was submitted", file=sys.stderr)
    return 0


def _trial(reply: SubmitReply) -> str:
    """When it would start, as far as that is predicted."""
    from dlsched.cli.slurm.formats import moment  # noqa: PLC0415  # few need it

    if not reply.supposed or not reply.supposed[0].HasField("start_at"):
        return "it could be submitted"
    told = reply.supposed[0]
    return f"it would start at {moment(told.start_at)} ({told.basis})"


def srun(words: Sequence[str]) -> int:
    """Run a command as a job of its own, with its output here; with `--pty`, on a terminal."""
    said = _read("srun", words)
    of_step = said.step.said
    if not said.rest:
        raise BadInput("no command to run")
    own_job = os.environ.get("SLURM_JOB_ID", "") or os.environ.get("SLURM_JOBID", "")
    is_on_terminal = "pty" in of_step and os.isatty(0) and os.isatty(1)
    if "pty" in of_step and not is_on_terminal:
        print("srun: standard input and output are no terminal: without --pty", file=sys.stderr)
    if job := of_step.get("jobid", own_job):
        options = words[: len(words) - len(said.rest)]
        kept = [word for word in options if is_on_terminal or word != "--pty"]
        _inside(job, said, kept, is_on_terminal=is_on_terminal)
    if "--test-only" in said.own:
        from dlsched.cli.jobs.submit import one_job  # noqa: PLC0415
        from dlsched.client.daemon_client import Client  # noqa: PLC0415  # gRPC comes with it

        with Client() as cluster:
            return _test("srun", cluster, one_job(said.rest, said.layer, is_command=True))
    within_s = _start_within_s(said)
    if is_on_terminal:
        return _interactive(said, "SRUN", within_s)
    from dlsched.cli.slurm.srun_job import run_as_job  # noqa: PLC0415  # gRPC comes with it

    reads = of_step.get("input") or "all"
    for key in _OF_CALL & of_step.keys():
        del of_step[key]
    return run_as_job(said.layer, said.step.words(), said.rest, reads, within_s)


def _start_within_s(said: _Said, variable: str = "") -> float | None:
    """The seconds of `--immediate`, or of a variable; None: it may wait for ever."""
    text = said.step.said.get("immediate", "") or os.environ.get(variable, "")
    if not text:
        return None
    if not text.isascii() or not text.isdigit():
        raise BadInput(f"--immediate={shorten(text)}: not a whole number of seconds")
    return float(text) or 1.0


def _inside(job: str, said: _Said, options: Sequence[str], *, is_on_terminal: bool) -> NoReturn:
    """Start tasks beside what a running job does, by `srun` on its first node.

    As in Slurm, what the job says of tasks does not count: without `-n` one runs on each node.
    """
    node = said.layer.get("nodelist", "") if is_on_terminal else ""
    where = ["--node", node] if node else []
    here = [] if "chdir" in said.layer else [f"--chdir={os.getcwd()}"]
    unset = [f"--unset={name}" for name in _TASKS_OF_JOB]
    srun = ["env", *unset, "srun", "--overlap", *here, *options, *said.rest]
    _dlsched("attach", job, *where, "--", *srun)


def salloc(words: Sequence[str]) -> int:
    """Open a shell, or run a command, on the first node of an allocation, with this terminal.

    So does Slurm where it is configured with `use_interactive_step`. A command needs no terminal.
    """
    said = _read("salloc", words)
    within_s = _start_within_s(said, "SALLOC_IMMEDIATE")
    if "--no-shell" not in said.own:
        return _interactive(said, "SALLOC", within_s, needs_terminal=not said.rest)
    if said.rest:
        raise BadInput(f"--no-shell: no command is run: {shorten(said.rest[0])}")
    from dlsched.cli.jobs.submit import one_job  # noqa: PLC0415
    from dlsched.cli.slurm.allocations import hold  # noqa: PLC0415  # gRPC comes with it

    layer = {"name": "no-shell", "requeue": "no", **said.layer}
    wanted = one_job(["sleep", "infinity"], layer, is_command=True)
    wanted.request.output = os.devnull
    _print_notes("salloc", wanted)
    return hold(wanted, within_s)


def _interactive(
    said: _Said, words: str, within_s: float | None, *, needs_terminal: bool = True
) -> int:
    from dlsched.cli.jobs import interactive  # noqa: PLC0415
    from dlsched.cli.jobs.submit import interactive_job  # noqa: PLC0415
    from dlsched.cli.slurm.allocations import start_limit  # noqa: PLC0415
    from dlsched.client.daemon_client import Client  # noqa: PLC0415

    spoken: interactive.Words = getattr(interactive, words)
    wanted = interactive_job(said.rest, said.layer)
    _print_notes(spoken.name, wanted)
    with Client() as cluster, start_limit(spoken.name, within_s) as limit:
        code = interactive.run_interactive(
            cluster, wanted, spoken, needs_terminal=needs_terminal, submitted=limit.begin
        )
    return 1 if limit.is_over else code


def _dlsched(*words: str) -> NoReturn:
    os.execv(sys.executable, [sys.executable, "-I", "-m", "dlsched", *words])


@dataclass(slots=True, kw_only=True)
class _Said:
    """A command line.

    Attributes:
        layer: options of the job by key, also those that variables say.
        own: of the command itself, by word.
        step: of the tasks that `srun` starts in the job.
        rest: the other words.
    """

    layer: dict[str, str] = field(default_factory=dict)
    own: dict[str, str] = field(default_factory=dict)
    step: Given = field(default_factory=Given)
    rest: list[str] = field(default_factory=list)


def _read(name: str, words: Sequence[str]) -> _Said:
    """Read a command line and the variables of the command.

    Raises:
        BadInput: an option that is not known, or a malformed one.
    """
    said = _Said()
    idle: dict[str, None] = {}
    todo = list(words)
    while todo and todo[0].startswith("-") and todo[0] not in ("-", "--"):
        word, equals, value = todo[0].partition("=")
        if word in ("-h", "--help"):
            _show_help(name)
        if word in _OWN[name]:
            del todo[0]
            if _OWN[name][word] and not equals:
                if not todo:
                    raise BadInput(f"{word}: needs a value")
                value = todo.pop(0)
            said.own[word] = value
        elif _is_of_step(name, todo[0]):
            try:
                said.step.take(todo)
            except WrongUse as error:
                raise BadInput(str(error)) from None
        else:
            given = take_option(todo, is_slurm=True)
            if given.option is not None:
                put_typed(said.layer, given.option, given.word, given.value)
            if given.idle:
                idle[given.idle] = None
            elif given.option is None:
                raise BadInput(f"{shorten(given.word)}: not supported")
    said.rest = todo[1:] if todo[:1] == ["--"] else todo
    if todo[:1] == [":"] or (name != "sbatch" and ":" in todo):  # as Slurm takes it
        raise BadInput(":: heterogeneous jobs are not supported; submit each part as its own job")
    _add_variables(name, said, idle)
    return said


def _add_variables(name: str, said: _Said, idle: dict[str, None]) -> None:
    """Add what variables say, and print the note that names all that has no effect."""
    from_variables, without_effect = read_variables(name, os.environ, said.layer)
    said.layer = merged(said.layer, from_variables)
    if name == "srun":
        of_job = [each.key for each in STEP_OPTIONS if not _is_of_step(name, each.words[-1])]
        said.step.fill(os.environ, of_job)
    idle.update(dict.fromkeys([*said.step.noted, *without_effect]))
    for note in [] if "quiet" in said.step.said else idle_note(name, idle):
        print(note, file=sys.stderr)


def _is_of_step(name: str, word: str) -> bool:
    """Whether an option says something of tasks that a submission does not know."""
    key = option_of(word)
    if name == "salloc":
        return key in ("immediate", "quiet")
    if name != "srun":
        return False
    head = word.partition("=")[0] if word.startswith("--") else word[:2]
    option = BY_WORD.get(head)
    is_of_job = option is not None and option.slurm
    return key in _OF_STEP_TOO or (not is_of_job and (key is not None or head in NOTED))


def _show_help(name: str) -> NoReturn:
    """Print the options and end."""
    from dlsched.cli.slurm.arguments import Arguments  # noqa: PLC0415  # only `--help` needs it

    what = "[SCRIPT [ARGUMENT]...]" if name == "sbatch" else "[COMMAND [ARGUMENT]...]"
    page = Arguments(name, _PURPOSES[name])
    page.usage = f"{name} [OPTION]... {what}"
    own = {tuple(words.split()): help_ for words, help_ in _OWN_HELP[name].items()}
    for words, help_ in own.items():
        page.option(*words, flag=words[0] in _FLAGS, help=help_)
    for each in OPTIONS:
        if each.slurm and each.words not in own:
            page.option(*each.words, flag=each.kind == "flag", help=each.help.replace("%", "%%"))
    page.print_help()
    raise SystemExit(0)
