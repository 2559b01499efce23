"""The program `python -m dlsched.hollow`: many hollow nodes in one process."""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import resource
import signal
import sys
from collections.abc import Sequence
from pathlib import Path

from dlsched.core.errors import BadInput, DlschedError, plural
from dlsched.hollow.jobs import SimulatedJobs
from dlsched.hollow.nodes import HollowNodes
from dlsched.nodeagent.agent.settings import Settings, TlsFiles
from dlsched.protocol.timing import Timing
from dlsched.rpc.certificate_folder import CertificateFolder
from dlsched.rpc.identity import node as node_role
from dlsched.system.log_lines import log_to_stderr

MOST_NODES = 10_000
FILES_PER_NODE, OTHER_FILES = 4, 64  # a port, the daemon's connection to it, ours to the daemon


def parser() -> argparse.ArgumentParser:
    """Return the parser of the command line."""
    found = argparse.ArgumentParser(
        prog="python -m dlsched.hollow",
        description="Pretend to be many nodes: agents that speak the real protocol, run nothing, "
        "and report that each job has ended after a simulated time.",
        allow_abbrev=False,
    )
    add = found.add_argument
    add("--daemon", metavar="ADDRESS", required=True, help="HOST:PORT; several joined by commas")
    add("--nodes", type=int, default=100, help="how many (100)")
    add("--first", type=int, default=1, help="number of the first one (1)")
    add("--prefix", default="hollow", help="nodes are named PREFIX1, PREFIX2, ... (hollow)")
    add("--gpus", default="8", metavar="N[:TYPE]", help="GPUs of each node (8:v100)")
    add(
        "--seconds",
        default="60",
        metavar="S[:S]",
        help="how long a job executes, or the range from which its time is drawn (60); "
        "HOLLOW_SECONDS and HOLLOW_EXIT in a job's environment win",
    )
    add("--seed", type=int, default=0, help="of the drawn times (0)")
    add("--beat", type=float, default=Timing().beat_s, help="timing.beat_s of the cluster (5)")
    add("--for", dest="duration", type=float, metavar="S", help="leave after S seconds")
    add("--listen", default="127.0.0.1", metavar="HOST", help="where the daemon reaches them")
    trust = found.add_mutually_exclusive_group(required=True)
    trust.add_argument(
        "--certificates",
        type=Path,
        metavar="FOLDER",
        help="of `dlsched admin init`, with a certificate for each of these nodes",
    )
    trust.add_argument(
        "--insecure-loopback", action="store_true", help="a daemon of this machine, without any"
    )
    return found


def settings_of(given: argparse.Namespace) -> list[Settings]:
    """Return the settings of each node.

    Raises:
        BadInput: names the option that is wrong.
    """
    if not 1 <= given.nodes <= MOST_NODES:
        raise BadInput(f"--nodes {given.nodes}: expected 1 to {MOST_NODES}")
    if given.first < 0:
        raise BadInput(f"--first {given.first}: expected 0 or more")
    if not 0 < given.beat < float("inf"):
        raise BadInput(f"--beat {given.beat:g}: expected seconds above 0")
    timing = Timing(beat_s=given.beat)
    timing.check()
    gpus = given.gpus if ":" in given.gpus or given.gpus == "0" else f"{given.gpus}:v100"
    targets = tuple(each.strip() for each in given.daemon.split(",") if each.strip())
    if not targets:
        raise BadInput("--daemon is empty: expected HOST:PORT")
    found = []
    for number in range(given.first, given.first + given.nodes):
        name = f"{given.prefix}{number}"
        found.append(
            Settings(
                name=name,
                daemon=targets,
                listen=f"{given.listen}:0",
                fake_gpus=gpus,
                launcher="plain",
                insecure_loopback=given.insecure_loopback,
                tls=_files(given.certificates, name) if given.certificates else None,
                timing=timing,
            )
        )
    return found


def _files(folder: Path, name: str) -> TlsFiles:
    files = CertificateFolder(folder).files(node_role(name))
    if not files.certificate.exists():
        raise BadInput(
            f"--certificates {folder}: node {name} has none: dlsched admin ca issue "
            f"{node_role(name)}"
        )
    return TlsFiles(ca=str(files.ca), certificate=str(files.certificate), key=str(files.key))


def allow_open_files(nodes: int) -> None:
    """Raise this process's limit of open files as far as some nodes need.

    Raises:
        BadInput: when the hard limit is lower.
    """
    needed = nodes * FILES_PER_NODE + OTHER_FILES
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != resource.RLIM_INFINITY and soft < needed:
        if hard != resource.RLIM_INFINITY and hard < needed:
            raise BadInput(
                f"--nodes {nodes} needs {needed} open files and the limit is {hard}: raise it "
                "(ulimit -Hn), or start fewer nodes in each of several processes (--first)"
            )
        resource.setrlimit(resource.RLIMIT_NOFILE, (needed, hard))


async def serve(each: Sequence[Settings], jobs: SimulatedJobs, duration: float | None) -> None:
    """Be these nodes until a signal, or for some seconds; prints what happened.

    Raises:
        DlschedError: when an address cannot be used, or a node's step fails.
    """
    leave = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, leave.set)
    async with HollowNodes(each, jobs) as nodes:
        telling = asyncio.create_task(_tell_when_all_joined(nodes))
        leaving = asyncio.create_task(_wait(leave))
        await asyncio.wait(
            {leaving, nodes.failed}, timeout=duration, return_when=asyncio.FIRST_COMPLETED
        )
        telling.cancel()
        leaving.cancel()
    print(f"hollow: {nodes.summary()}", flush=True)
    if nodes.failed.done():
        nodes.failed.result()


async def _wait(event: asyncio.Event) -> None:
    await event.wait()


async def _tell_when_all_joined(nodes: HollowNodes) -> None:
    await nodes.all_joined()
    print(f"hollow: {plural(len(nodes.nodes), 'node')} joined", flush=True)


def main(argv: Sequence[str] | None = None) -> int:
    """Run the program; returns its exit code."""
    given = parser().parse_args(argv)
    try:
        settings = settings_of(given)
        jobs = SimulatedJobs.parse(given.seconds, given.seed)
        allow_open_files(given.nodes)
        log_to_stderr("ERROR")
        with contextlib.suppress(KeyboardInterrupt):
            asyncio.run(serve(settings, jobs, given.duration))
    except DlschedError as error:
        print(f"hollow: {error}", file=sys.stderr)
        return error.exit_code
    return 0


if __name__ == "__main__":
    sys.exit(main())
