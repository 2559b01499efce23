"""The shims `srun` and `scontrol`: the few commands of Slurm that training scripts call.

They serve jobs that have the folder of the shims in PATH. Options of srun that have no effect here
are ignored; any other option that `dlsched run` does not have is refused with its name.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence

from dlsched.job import hostlist, launch
from dlsched.job.errors import JobError

# Options that change nothing here: the ranks get the allocation as it is, output is not buffered.
IDLE_FLAGS = {"--unbuffered", "-u", "--exclusive", "--overlap", "--export=ALL", "--wait=60"}
IDLE_WITH_VALUE = {"--cpu-bind", "--mem-bind", "--gpu-bind", "--mpi", "--distribution", "-m"}
IDLE_WITH_VALUE |= {"--wait", "-W", "-c", "--cpus-per-task", "--job-name", "-J"}


def srun(words: Sequence[str]) -> int:
    """Run `srun [OPTIONS] COMMAND`; return its exit code."""
    kept: list[str] = []
    todo = list(words)
    while todo and todo[0].startswith("-") and todo[0] != "--":
        word = todo.pop(0)
        name, equals, _ = word.partition("=")
        if word in IDLE_FLAGS:
            continue
        if name in IDLE_WITH_VALUE:
            if not equals and todo:
                todo.pop(0)
            continue
        kept.append(f"{word}=1" if word == "--kill-on-bad-exit" else word)
        if name in {"-n", "--ntasks", "--ntasks-per-node", "--gpus-per-task", "-D", "--chdir"}:
            kept += [] if equals or not todo else [todo.pop(0)]
        elif name in {"-N", "--nodes"}:
            kept.pop()
            count = word.partition("=")[2] if equals else (todo.pop(0) if todo else "")
            if count != os.environ.get("DLSCHED_NNODES", ""):
                print(f"srun: {name} {count}: only the whole allocation", file=sys.stderr)
                return 2
    return launch.main([*kept, *todo], program="srun")


def scontrol(words: Sequence[str]) -> int:
    """Run `scontrol show hostnames [LIST]`; return its exit code."""
    if len(words) not in (2, 3) or words[0] != "show" or words[1] not in ("hostnames", "hostname"):
        print("scontrol: only `scontrol show hostnames [LIST]` is known here", file=sys.stderr)
        return 2
    own = os.environ.get("DLSCHED_NODELIST") or os.environ.get("SLURM_JOB_NODELIST", "")
    try:
        hosts = hostlist.expand(words[2] if len(words) == 3 else own)
    except JobError as error:
        print(f"scontrol: {error}", file=sys.stderr)
        return 1
    print("".join(f"{host}\n" for host in hosts), end="")
    return 0
