"""The quickstart: start a cluster, submit and watch jobs, replay their history, clean up.

Every process that was started is ended, also after an error or Ctrl-C; only `--keep` leaves them
running, if all jobs succeeded.
"""

from __future__ import annotations

import contextlib
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from types import FrameType

from dlsched.client.daemon_client import Client, filter_of
from dlsched.client.job_records import Job
from dlsched.client.submission.request import Caller, Command, compose
from dlsched.core.errors import DlschedError, plural
from dlsched.quickstart.job_watcher import JobWatcher
from dlsched.quickstart.local_cluster import (
    LIMIT,
    POLICY,
    ROUND_S,
    QuickCluster,
    environment,
    new_folder,
    stop_kept,
)
from dlsched.quickstart.workload import QuickJob, is_unbroken, workload

TRAINING_S = 90.0  # after this time something is wrong
CANCELLING_S = 20.0
LOOK_S = 0.2
REPLAYED = (POLICY, "fifo", "srtf")


def quickstart(folder: Path | None, *, keep: bool, pretend: bool) -> int:
    """Run the whole quickstart and return the exit code.

    Without a folder it makes a temporary one; `keep` leaves the cluster running, `pretend` does not
    use this machine's GPUs.
    """
    temporary = folder is None
    place = new_folder() if folder is None else folder
    cluster = QuickCluster(place, pretend=pretend)
    kept = False
    with _terminating():
        try:
            _say(f"a daemon with SQLite, and {_nodes_text(cluster)}")
            cluster.start()
            with Client(cluster.address, insecure_loopback=True) as client:
                cluster.wait_for_nodes(lambda: _nodes(client))
                code = _train(client, cluster)
            _show_history(cluster)
            kept = keep and code == 0
            return code
        except KeyboardInterrupt:
            print("\ndlsched: stopped; cleaning up", file=sys.stderr)
            return 130
        finally:
            if kept:
                _explain(cluster)
            else:
                cluster.stop()
                if temporary:
                    shutil.rmtree(place, ignore_errors=True)


def stop_quickstart(folder: Path) -> None:
    """End a cluster that was kept, and its jobs; its folder stays."""
    address = QuickCluster(folder, pretend=True).address
    with contextlib.suppress(DlschedError), Client(address, insecure_loopback=True) as client:
        all_jobs = filter_of(all_users=True)
        client.act("cancel", all_jobs)
        until = time.monotonic() + CANCELLING_S
        while client.queue(all_jobs).jobs and time.monotonic() < until:
            time.sleep(LOOK_S)
    stop_kept(folder)
    _say(f"ended; {folder} can be removed")


# -- the jobs --------------------------------------------------------------------------------------


def _train(client: Client, cluster: QuickCluster) -> int:
    todo = workload(cluster.gpus)
    names = [job.name for job in todo]
    _say(f"{plural(len(todo), 'training')} on {plural(sum(cluster.gpus), 'GPU')}; policy {POLICY}")
    if "gang" not in names:
        _say("PyTorch is not installed: no job over two nodes")
    began = time.monotonic()
    jobs: list[Job] = []
    with JobWatcher() as watcher:
        while todo or not jobs or not all(job.ended_at for job in jobs):
            elapsed = time.monotonic() - began
            while todo and todo[0].after_s <= elapsed:
                _submit(client, cluster, todo.pop(0))
            jobs = _all(client)
            watcher.show(jobs)
            if elapsed > TRAINING_S:
                raise DlschedError(f"the jobs did not end within {TRAINING_S:g} s")
            time.sleep(LOOK_S)
    failed = [job for job in jobs if job.state != "COMPLETED"]
    for job in failed:
        print(f"dlsched: job {job.job_id} {job.name}: {job.state}", file=sys.stderr)
    broken = [name for name in names if not is_unbroken(cluster.jobs_folder, name)]
    preempted = sum(job.preemptions for job in jobs)
    if not failed and not broken:
        _say(f"{preempted} preemptions; every job has done each of its steps once, in order")
    for name in broken:
        print(f"dlsched: {name}: steps were lost or done twice", file=sys.stderr)
    return 1 if failed or broken else 0


def _submit(client: Client, cluster: QuickCluster, job: QuickJob) -> None:
    caller = Caller(
        directory=str(cluster.jobs_folder),
        host=socket.gethostname(),
        variables=environment() | {"OMP_NUM_THREADS": "1"},
        now=datetime.now().astimezone(),
    )
    command = Command(argv=job.argv(cluster.jobs_folder), name=job.name)
    client.submit_all([compose(job.options, command, caller)])


def _all(client: Client) -> list[Job]:
    return list(client.history(filter_of(all_users=True), live_too=True))


def _nodes(client: Client) -> int:
    with contextlib.suppress(DlschedError):  # the daemon is not the leader yet
        return len(client.nodes())
    return 0


# -- the history ---------------------------------------------------------------------------------


def _show_history(cluster: QuickCluster) -> None:
    trace = str(cluster.folder / "history.csv")
    _run(cluster, "history", "--all")
    _run(cluster, "history", "--all", "--export", trace)
    _say("the same history, replayed under two other policies")
    spec = f"{len(cluster.gpus)}x{cluster.gpus[0]}"
    policies = ",".join(REPLAYED)
    same = ("--round", f"{ROUND_S:g}", "-o", f"{POLICY}.limits={LIMIT}")
    _run(cluster, "replay", trace, "--cluster", spec, "--policy", policies, *same)


def _run(cluster: QuickCluster, *words: str) -> None:
    """Run a command as a user types it."""
    print(f"\n$ dlsched {' '.join(words)}", flush=True)
    subprocess.run(
        [sys.executable, "-m", "dlsched", *words],
        env=environment() | _variables(cluster),
        check=True,
    )


def _variables(cluster: QuickCluster) -> dict[str, str]:
    return {"DLSCHED_DAEMON": cluster.address, "DLSCHED_INSECURE_LOOPBACK": "1"}


def _nodes_text(cluster: QuickCluster) -> str:
    if cluster.pretended:
        return f"{plural(len(cluster.gpus), 'agent')} with {cluster.gpus[0]} pretended GPUs each"
    return f"an agent with this machine's {plural(cluster.gpus[0], 'GPU')}"


def _explain(cluster: QuickCluster) -> None:
    print("\nThe cluster is still there. To use it:\n")
    for name, value in _variables(cluster).items():
        print(f"    export {name}={value}")
    print("    dlsched nodes")
    print("    dlsched submit --gpus 2 -- python -c 'print(\"hello\")'")
    print(f"\nTo end it:\n\n    dlsched quickstart --stop {cluster.folder}")


def _say(text: str) -> None:
    print(f"== {text}", flush=True)


@contextlib.contextmanager
def _terminating() -> Iterator[None]:
    """Let SIGTERM and SIGHUP end the quickstart as Ctrl-C does: with everything cleaned up."""

    def interrupt(number: int, frame: FrameType | None) -> None:
        raise KeyboardInterrupt

    before = {n: signal.signal(n, interrupt) for n in (signal.SIGTERM, signal.SIGHUP)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
