"""Deleting what runs leave on disk: once their ends are committed, and what was never reserved."""

from __future__ import annotations

import contextlib
import os
import shutil
from collections.abc import Iterator

from dlsched.nodeagent import durable
from dlsched.nodeagent.faultpoint import faultpoint
from dlsched.nodeagent.runfiles import FoundRun, RunFolder, found_in, short

_DROPPED = "dropped."


def drop(folder: RunFolder) -> None:
    """Delete a run's files; half a deletion is finished by `sweep`."""
    faultpoint("agent-drop-before")
    shutil.rmtree(folder.sockets, ignore_errors=True)
    parent, name = os.path.split(folder.records)
    gone = os.path.join(parent, _DROPPED + name)
    with contextlib.suppress(FileNotFoundError):
        os.rename(folder.records, gone)
        durable.sync_folder(parent)
    faultpoint("agent-drop-half")
    shutil.rmtree(gone, ignore_errors=True)
    faultpoint("agent-drop-after")


def sweep(state_dir: str, run_dir: str) -> Iterator[FoundRun]:
    """Every reserved run; what was never reserved or is half deleted goes.

    Only while no keeper is on its way to its reservation.

    Raises:
        BadInput: with the file that cannot be read.
    """
    jobs = os.path.join(state_dir, "jobs")
    known = set()
    for name in sorted(os.listdir(jobs)):
        path = os.path.join(jobs, name)
        if name.startswith(_DROPPED) or not os.path.exists(os.path.join(path, "run.json")):
            shutil.rmtree(path, ignore_errors=True)
            continue
        found = found_in(path)
        if found is not None:
            known.add(short(name))
            yield found
    sockets = os.path.join(run_dir, "jobs")
    for name in os.listdir(sockets):
        if name not in known:
            shutil.rmtree(os.path.join(sockets, name), ignore_errors=True)
