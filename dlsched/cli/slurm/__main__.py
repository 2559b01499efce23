"""`python -m dlsched.cli.slurm squeue …`: one command of Slurm, and its errors as one line."""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Sequence

from dlsched.cli.output.closed_output import (
    UNTOLD,
    give_up_output,
    open_closed_output,
    why_untold,
)
from dlsched.core.errors import DlschedError

# where each command is; a module is imported when its command is called
_MODULES = {
    "sbatch": "submitting",
    "salloc": "submitting",
    "srun": "submitting",
    "squeue": "squeue",
    "sacct": "sacct",
    "sinfo": "sinfo",
    "scancel": "scancel",
    "scontrol": "scontrol",
    "sprio": "sprio",
    "sshare": "sshare",
    "sbcast": "sbcast",
    "sattach": "sattach",
    "sacctmgr": "accounts.sacctmgr",
    "sreport": "accounts.sreport",
    "seff": "usage.seff",
    "sstat": "usage.sstat",
    "sdiag": "usage.sdiag",
}


def main(words: Sequence[str]) -> int:
    """Run one command; return its exit code: 1 for what is refused, 2 for wrong use."""
    if not words or words[0] not in _MODULES:
        print(f"one of these: {' '.join(_MODULES)}", file=sys.stderr)
        return 2
    name, *rest = words
    open_closed_output()
    try:
        code = _run(name, ["--help"] if rest == ["--usage"] else rest)
        sys.stdout.flush()
    except BrokenPipeError:
        give_up_output()
        return 1
    except OSError as error:
        if why := why_untold(error):
            print(f"{name}: error: standard output: {why}", file=sys.stderr)
            return UNTOLD
        raise
    except KeyboardInterrupt:
        return 130
    except DlschedError as error:
        from dlsched.cli.output.terminal import shown  # noqa: PLC0415  # only errors need it

        print(f"{name}: error: {shown(' '.join(str(error).splitlines()))}", file=sys.stderr)
        return error.exit_code
    return code


def _run(name: str, words: list[str]) -> int:
    if words[:1] in (["-V"], ["--version"]):
        from dlsched.cli.slurm.version import version_text  # noqa: PLC0415

        print(version_text())
        return 0
    if name == "srun" and os.environ.get("DLSCHED_CTL_SOCK"):
        from dlsched.job.srun import main as srun  # noqa: PLC0415  # the standard library only

        return srun(words)
    module = importlib.import_module(f"dlsched.cli.slurm.{_MODULES[name]}")
    code: int = getattr(module, name)(words)
    return code


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
