"""The command that runs a process of a job in its container: Apptainer's or enroot's.

The container sees the working folder, the user's home, the run's script and the socket of its
keeper, the GPUs of the run, and what the job mounts. The variables of the job are those in the
container, except for the ones that the image sets itself, as PATH.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence

from dlsched.jobs.mounts import Mount, read_mounts
from dlsched.nodeagent.ranks.launch_spec import KeeperSpec

TOOLS = ("apptainer", "singularity", "enroot")  # the first one that is there is used
_ENTER = 'cd "$1" && shift && exec "$@"'


def find_tool(named: str) -> str:
    """Return the program for containers: the one that a site names, or the best that is there.

    `named` is a path; empty: look on the path; `none`: use none. The result is empty without one.
    """
    if named:
        return "" if named == "none" else named
    from shutil import which  # noqa: PLC0415  # no keeper needs it, and it loads compressions

    return next(filter(None, map(which, TOOLS)), "")


def in_container(
    spec: KeeperSpec, argv: Sequence[str], environment: Mapping[str, str], folder: str
) -> tuple[tuple[str, ...], dict[str, str]]:
    """Return command and environment that run `argv` in the job's container.

    Args:
        spec: of the run.
        argv: the process's own command.
        environment: its own environment.
        folder: its working folder.
    """
    launch, tool = spec.launch, spec.container_tool
    sockets = os.path.dirname(environment.get("DLSCHED_CTL_SOCK", ""))
    own = [Mount(path, path, "rw") for path in (folder, sockets) if path]
    mounts = [*own, *read_mounts(launch.container_mounts)]
    variables = {k: v for k, v in environment.items() if k != "BASH_ENV"}
    if os.path.basename(tool) == "enroot":
        variables["NVIDIA_VISIBLE_DEVICES"] = environment.get("CUDA_VISIBLE_DEVICES") or "void"
        variables.setdefault("NVIDIA_DRIVER_CAPABILITIES", "compute,utility")
        words = [tool, "start"]
        for mount in mounts:
            words += [
                "--mount",
                f"{mount.source}:{mount.target}:none:x-create=auto,bind,{mount.mode}",
            ]
        for name in variables:
            if name != "PATH":
                words += ["--env", name]
        words += [launch.container, "/bin/sh", "-c", _ENTER, "sh", folder]
        return (*words, *argv), variables
    words = [tool, "exec"]
    if spec.desired.gpus:
        words.append("--nv")
    for mount in mounts:
        words += ["--bind", f"{mount.source}:{mount.target}:{mount.mode}"]
    return (*words, "--pwd", folder, launch.container, *argv), variables
