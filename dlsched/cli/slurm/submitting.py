"""`sbatch`, and `srun` and `salloc` outside of a job: submissions with Slurm's words and output."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, NoReturn

from dlsched.cli.output.closed_output import told_jobs
from dlsched.client.submission.directives import idle_note, take_option
from dlsched.client.submission.options import BY_NAME, merged, put_typed
from dlsched.client.submission.values import word_of
from dlsched.core.errors import BadInput, shorten
from dlsched.jobs.fields import OPTIONS

if TYPE_CHECKING:
    from dlsched.rpc.v1.control_pb2 import SubmitReply

_OWN = {"--wrap": True, "--test-only": False, "--ignore-unknown-directives": False, "--pty": False}
_OF_SRUN = {
    "--jobid": True,  # a command inside a running job
    "--overlap": False,
    "--input": True,
    "-i": True,
    "--wait": True,  # how long after its first task a step ends
    "-W": True,
}
_OF_STEPS = {"-l", "--label", "-K", "-K0", "-K1", "--kill-on-bad-exit", "-u", "--unbuffered"}
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
    },
    "salloc": {},
}
_VARIABLES = {"TIMELIMIT": "time", "JOB_NAME": "name", "ARRAY_INX": "array"}


def sbatch(words: Sequence[str]) -> int:
    """Submit a script with Slurm's options; print `Submitted batch job N`."""
    from dlsched.cli.jobs.submit import one_job, wait_for_end  # noqa: PLC0415
    from dlsched.cli.jobs.submitted import print_warnings  # noqa: PLC0415
    from dlsched.client.daemon_client import Client  # noqa: PLC0415  # gRPC comes with it

    layer, own, rest = _read("sbatch", words)
    if "--wrap" in own and rest:
        raise BadInput("give a script or --wrap, not both")
    if "--pty" in own:
        raise BadInput("--pty: a script has no terminal; salloc or srun --pty gives one")
    found = one_job(
        rest or ["-"],
        merged(layer, _from_variables(os.environ)),
        wrap=own.get("--wrap"),
        ignore_unknown="--ignore-unknown-directives" in own,
        truncates=True,
    )
    if not found.request.output:
        found.request.output = "slurm-%A_%a.out" if found.request.array else "slurm-%j.out"
    for note in found.notes:
        print(f"sbatch: {note}", file=sys.stderr)
    with Client() as cluster:
        reply = cluster.submit_all([found], test_only="--test-only" in own)
        print_warnings(reply, "sbatch")
        if "--test-only" in own:
            print(f"sbatch: {_trial(reply)}; nothing was submitted", file=sys.stderr)
            return 0
        job = reply.jobs[0].job
        with told_jobs([job], "sbatch"):
            print(job if found.parsable else f"Submitted batch job {job}")
        return wait_for_end(cluster, reply) if found.wait else 0


def _trial(reply: SubmitReply) -> str:
    """When it would start, as far as that is predicted."""
    from dlsched.cli.slurm.formats import moment  # noqa: PLC0415  # few need it

    if not reply.supposed or not reply.supposed[0].HasField("start_at"):
        return "it could be submitted"
    told = reply.supposed[0]
    return f"it would start at {moment(told.start_at)} ({told.basis})"


def srun(words: Sequence[str]) -> int:
    """Run a command as a job of its own, with its output here; with `--pty`, on a terminal."""
    layer, own, rest = _read("srun", words)
    if not rest:
        raise BadInput("no command to run")
    if "--jobid" in own:
        return _inside(own["--jobid"], layer, rest)
    if "--pty" in own:
        return _interactive(layer, rest, "SRUN")
    from dlsched.cli.slurm.srun_job import run_as_job  # noqa: PLC0415  # gRPC comes with it

    step = [word for word in words[: len(words) - len(rest)] if word.split("=")[0] in _OF_STEPS]
    if "--wait" in own or "-W" in own:
        step += ["--wait", own.get("--wait") or own["-W"]]
    return run_as_job(layer, step, rest, own.get("--input") or own.get("-i") or "all")


def _inside(job: str, layer: Mapping[str, str], command: Sequence[str]) -> NoReturn:
    """Run a command beside what a running job does, with the job's environment and GPUs."""
    further = [word_of(key) for key in layer if key not in ("nodelist", "nodes", "ntasks")]
    if further or any(layer.get(key, "1") != "1" for key in ("nodes", "ntasks")):
        what = further[0] if further else "more than one task"
        raise BadInput(f"--jobid: {what}: a running job is entered by one process on one node")
    where = ["--node", layer["nodelist"]] if "nodelist" in layer else []
    _dlsched("attach", job, *where, "--", *command)


def salloc(words: Sequence[str]) -> int:
    """Open a shell, or run a command, on the first node of an allocation, with this terminal.

    So does Slurm where it is configured with `use_interactive_step`. A command needs no terminal.
    """
    layer, _, rest = _read("salloc", words)
    return _interactive(layer, rest, "SALLOC", needs_terminal=not rest)


def _interactive(
    layer: dict[str, str], command: Sequence[str], words: str, *, needs_terminal: bool = True
) -> int:
    from dlsched.cli.jobs import interactive  # noqa: PLC0415
    from dlsched.cli.jobs.submit import interactive_job  # noqa: PLC0415
    from dlsched.client.daemon_client import Client  # noqa: PLC0415

    spoken: interactive.Words = getattr(interactive, words)
    wanted = interactive_job(command, layer)
    for note in wanted.notes:
        print(f"{spoken.name}: {note}", file=sys.stderr)
    with Client() as cluster:
        return interactive.run_interactive(cluster, wanted, spoken, needs_terminal=needs_terminal)


def _dlsched(*words: str) -> NoReturn:
    os.execv(sys.executable, [sys.executable, "-I", "-m", "dlsched", *words])


def _read(name: str, words: Sequence[str]) -> tuple[dict[str, str], dict[str, str], list[str]]:
    """The options as a layer, the options of the command itself, and the other words.

    Raises:
        BadInput: an option that is not known, or a malformed one.
    """
    layer: dict[str, str] = {}
    own: dict[str, str] = {}
    idle: dict[str, None] = {}
    known = {**_OWN, **(_OF_SRUN if name == "srun" else {})}
    todo = list(words)
    while todo and todo[0].startswith("-") and todo[0] not in ("-", "--"):
        word, equals, value = todo[0].partition("=")
        if word in ("-h", "--help"):
            _show_help(name)
        if word in known:
            del todo[0]
            if known[word] and not equals:
                if not todo:
                    raise BadInput(f"{word}: needs a value")
                value = todo.pop(0)
            own[word] = value
            continue
        given = take_option(todo, is_slurm=True)
        if given.option is not None:
            put_typed(layer, given.option, given.word, given.value)
        if given.idle:
            idle[given.idle] = None
        elif given.option is None and (name != "srun" or given.word not in _OF_STEPS):
            raise BadInput(f"{shorten(given.word)}: not supported")
    if todo[:1] == [":"] or (name != "sbatch" and ":" in todo):  # as Slurm takes it
        raise BadInput(":: heterogeneous jobs are not supported; submit each part as its own job")
    for note in idle_note(name, idle):
        print(note, file=sys.stderr)
    return layer, own, todo[1:] if todo[:1] == ["--"] else todo


def _show_help(name: str) -> NoReturn:
    """Print the options and end."""
    from dlsched.cli.slurm.arguments import Arguments  # noqa: PLC0415  # only `--help` needs it

    what = "[SCRIPT [ARGUMENT]...]" if name == "sbatch" else "[COMMAND [ARGUMENT]...]"
    page = Arguments(name, _PURPOSES[name])
    page.usage = f"{name} [OPTION]... {what}"
    own = {tuple(words.split()): help_ for words, help_ in _OWN_HELP[name].items()}
    for words, help_ in own.items():
        page.option(*words, flag=not {**_OWN, **_OF_SRUN}[words[0]], help=help_)
    for each in OPTIONS:
        if each.slurm and each.words not in own:
            page.option(*each.words, flag=each.kind == "flag", help=each.help.replace("%", "%%"))
    page.print_help()
    raise SystemExit(0)


def _from_variables(variables: Mapping[str, str]) -> dict[str, str]:
    """The layer of SBATCH_… variables; those that name no option here are left out."""
    layer: dict[str, str] = {}
    for variable, text in variables.items():
        if variable.startswith("SBATCH_"):
            name = variable.removeprefix("SBATCH_")
            option = BY_NAME.get(_VARIABLES.get(name, name.lower()))
            if option is not None and option.slurm:
                put_typed(layer, option, f"environment variable {variable}", text)
    return layer
