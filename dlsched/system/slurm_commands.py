"""The commands of Slurm as small programs in a folder.

Agents make one for the jobs of their node, a site may install them for login shells. Each starts
`dlsched.cli.slurm` with the interpreter that made it, whatever Python a job has loaded.
"""

from __future__ import annotations

import os
import shlex
import sys
from collections.abc import MutableMapping

from dlsched.system.files import replace_file

NAMES = (
    *("srun", "sbatch", "salloc", "squeue", "scancel", "sinfo", "sacct", "scontrol"),
    *("sprio", "sshare", "seff", "sstat", "sdiag", "sbcast", "sacctmgr", "sreport", "sattach"),
)
OF_USER = "DLSCHED_BASH_ENV"  # what the user had in BASH_ENV
_LONGEST_FIRST_LINE = 127  # bytes, of a program that names its interpreter
_FOLDER, _STARTUP = "slurm-commands", "startup.sh"


def install(folder: str) -> list[str]:
    """Write the programs into a folder; return their paths.

    Raises:
        OSError: one cannot be written.
    """
    written = []
    for name in NAMES:
        path = os.path.join(folder, name)
        replace_file(path, _program(name).encode(), durable=False, mode=0o755)
        written.append(path)
    return written


def _program(name: str) -> str:
    """A program that runs a command with this interpreter.

    No shell stands in between where that can be: some, as dash, drop functions that bash exports.
    """
    first, note = f"#!{sys.executable} -I", "# a command of Slurm, as dlsched has it\n"
    if len(os.fsencode(first)) > _LONGEST_FIRST_LINE or first.count(" ") > 1:
        call = f"{shlex.quote(sys.executable)} -I -m dlsched.cli.slurm {name}"
        return f'#!/bin/sh\n{note}exec {call} "$@"\n'
    return (
        f"{first}\n{note}import sys\n\nfrom dlsched.cli.slurm.__main__ import main\n\n"
        f'raise SystemExit(main(["{name}", *sys.argv[1:]]))\n'
    )


def install_for_jobs(run_dir: str) -> None:
    """Write the programs for the jobs of a node, and what puts them on their path.

    Raises:
        OSError: a file cannot be written.
    """
    folder = os.path.join(run_dir, _FOLDER)
    os.makedirs(folder, mode=0o755, exist_ok=True)
    install(folder)
    # bash reads it after the files of a login shell, which set PATH anew
    text = (
        f'case ":$PATH:" in *":{folder}:"*) ;; *) PATH="{folder}:$PATH" ;; esac\n'
        f'if [ -r "${{{OF_USER}-}}" ]; then . "${OF_USER}"; fi\n'
    )
    path = os.path.join(folder, _STARTUP)
    replace_file(path, text.encode(), durable=False, mode=0o644)


def put_on_path(variables: MutableMapping[str, str], run_dir: str) -> None:
    """Change a job's variables so that its shells find the programs, login shells too."""
    folder = os.path.join(run_dir, _FOLDER)
    startup = os.path.join(folder, _STARTUP)
    # ranks inherit the variables of a script on another node, where the folder may be another one
    path = [each for each in variables["PATH"].split(":") if os.path.basename(each) != _FOLDER]
    variables["PATH"] = ":".join([folder, *path])
    if not variables.get("BASH_ENV", startup).endswith(f"/{_FOLDER}/{_STARTUP}"):
        variables[OF_USER] = variables["BASH_ENV"]
    variables["BASH_ENV"] = startup
