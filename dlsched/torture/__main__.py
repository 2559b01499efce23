"""The program `python -m dlsched.torture`."""

from __future__ import annotations

import argparse
import math
import random
import shlex
import shutil
import sys
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path

from dlsched.client.daemon_client import Client, filter_of
from dlsched.client.job_records import Job
from dlsched.core.errors import BadInput, DlschedError, not_known, plural
from dlsched.torture.faults import FAULTS, Faults, site_faults
from dlsched.torture.users import (
    LocalSubmissions,
    SiteSubmissions,
    User,
    users_of_this_machine,
)
from dlsched.torture.verdict import PROMISES, History, judge

FULL_PAUSE_S = 40.0
COMMAND_LIMIT_S = 120.0
PAGE = 500


def parser() -> argparse.ArgumentParser:
    """Return the parser of the command line."""
    found = argparse.ArgumentParser(
        prog="python -m dlsched.torture",
        description="Submit jobs while daemon, agents, links and disks fail, and judge what came "
        "of it: every acknowledged job ends once, as its script does.",
        allow_abbrev=False,
    )
    add = found.add_argument
    where = found.add_mutually_exclusive_group(required=True)
    where.add_argument("--local", action="store_true", help="on a cluster that it starts itself")
    where.add_argument("--daemon", metavar="ADDRESS", help="on a staging cluster of yours")
    add(
        "--database",
        default="",
        metavar="URL",
        help="with --local: an empty Postgres database, or `postgres` for a server of its own; "
        "a file of SQLite without",
    )
    add("--nodes", type=int, default=3, help="with --local: how many (3)")
    add("--gpus", type=int, default=4, help="GPUs of each node, and at most for a job (4)")
    add("--users", type=int, default=3, help="with --local and as root: of how many (3)")
    add("--shared", type=Path, metavar="FOLDER", help="with --daemon: on all nodes at this path")
    add(
        "--fault",
        action="append",
        default=[],
        metavar="NAME=COMMAND",
        help="with --daemon: a command that makes a fault happen, and heals it",
    )
    add("--insecure-loopback", action="store_true", help="with --daemon: as of dlsched")
    add("--without", default="", metavar="NAME,…", help="faults that are left out")
    add("--jobs", type=int, default=200, help="how many (200)")
    add("--seconds", type=float, default=600.0, help="of faults (600)")
    add("--settle", type=float, default=300.0, help="seconds at most until all have ended (300)")
    add("--pause", type=float, default=FULL_PAUSE_S, help="seconds of a pause or a cut (40)")
    add("--logs", type=Path, metavar="FOLDER", help="with --local: keep logs and outputs there")
    add("--seed", type=int, help="of jobs and faults; told, to repeat a test")
    return found


def _checked(given: argparse.Namespace) -> None:
    for name, least in (("nodes", 1), ("gpus", 1), ("users", 1), ("jobs", 1)):
        if getattr(given, name) < least:
            raise BadInput(f"--{name} {getattr(given, name)}: expected {least} or more")
    for name in ("seconds", "settle", "pause"):
        if not 0 < getattr(given, name) < math.inf:
            raise BadInput(f"--{name} {getattr(given, name):g}: expected seconds above 0")
    if given.local and (given.fault or given.shared):
        raise BadInput("--fault and --shared are for --daemon: --local has its own")
    if given.daemon and given.database:
        raise BadInput("--database is for --local: your daemon has one already")
    if given.daemon and given.shared is None:
        raise BadInput("--daemon needs --shared FOLDER, which all nodes have at the same path")
    if given.shared is not None and not given.shared.is_dir():
        raise BadInput(f"--shared {given.shared}: no such folder")
    if given.gpus > 64:  # the most that a node may pretend to have
        raise BadInput(f"--gpus {given.gpus}: expected 1 to 64")


def commands_of(texts: Sequence[str]) -> dict[str, list[str]]:
    """Read `NAME=COMMAND` options.

    Raises:
        BadInput: a name or a command is missing, or the name is not known.
    """
    found = {}
    for text in texts:
        name, _, command = text.partition("=")
        if name not in FAULTS:
            raise not_known("--fault:", name, FAULTS)
        try:
            words = shlex.split(command)
        except ValueError as error:
            raise BadInput(f"--fault {text}: {error}") from None
        if not words:
            raise BadInput(f"--fault {text!r}: expected {name}=COMMAND")
        found[name] = words
    return found


def _names(text: str) -> list[str]:
    names = [name.strip() for name in text.split(",") if name.strip()]
    for name in names:
        if name not in FAULTS:
            raise not_known("--without:", name, FAULTS)
    return names


def _without(faults: Faults, text: str) -> Faults:
    names = _names(text)
    return Faults(
        strikes={name: strike for name, strike in faults.strikes.items() if name not in names},
        left_out={**faults.left_out, **dict.fromkeys(names, "as you wish")},
    )


class _Site:
    """Looks at a site's cluster as its user."""

    def __init__(self, submissions: SiteSubmissions) -> None:
        self._submissions = submissions

    def _client(self) -> Client:
        return self._submissions.client()

    def jobs(self, ids: Sequence[int]) -> Iterator[Job]:
        """Some jobs."""
        with self._client() as client:
            for start in range(0, len(ids), PAGE):
                chosen = filter_of([str(job) for job in ids[start : start + PAGE]])
                yield from (detail.job for detail in client.show(chosen))

    def shared_gpus(self) -> list[str]:
        """Nothing: other users' jobs may share GPUs as they wish; the jobs' own locks tell."""
        return []


def _tell(faults: Faults, seed: int) -> None:
    print(f"torture: seed {seed}; faults: {', '.join(faults.strikes) or 'none'}", flush=True)
    for name, why in faults.left_out.items():
        print(f"torture: left out: {name}: {why}", flush=True)


def _verdict(history: History) -> int:
    broken = judge(history)
    ended = sum(seen.end is not None for seen in history.jobs.values())
    print(f"torture: {plural(len(history.accepted), 'job')} acknowledged, {ended} ended")
    for name, text in PROMISES.items():
        mine = [each for each in broken if each.promise == name]
        print(f"  {'BROKEN' if mine else 'kept  '}  {text}")
        for each in mine[:20]:
            print(f"          {each.what}")
    print(f"torture: {'every promise was kept' if not broken else 'promises were broken'}")
    return 1 if broken else 0


def keep_logs(folder: Path, target: Path) -> None:
    """Copy the logs of a cluster, and what its jobs wrote.

    Raises:
        BadInput: the target cannot be written.
    """
    try:
        shutil.copytree(folder / "shared", target / "shared", dirs_exist_ok=True)
        for log in folder.glob("*.log"):
            shutil.copy(log, target)
    except OSError as error:
        raise BadInput(f"--logs {target}: {error.strerror or error}") from None


def _run(given: argparse.Namespace) -> int:
    from dlsched.torture.torture import Size, Torture  # noqa: PLC0415  # needs psutil

    seed = random.randrange(2**32) if given.seed is None else given.seed
    size = Size(
        jobs=given.jobs,
        gpus=given.gpus,
        seconds=given.seconds,
        settle_s=given.settle,
        seed=seed,
    )

    def say(text: str) -> None:
        print(text, flush=True)

    if given.daemon:
        faults = _without(site_faults(commands_of(given.fault), COMMAND_LIMIT_S), given.without)
        _tell(faults, seed)
        submissions = SiteSubmissions(given.daemon, insecure_loopback=given.insecure_loopback)
        torture = Torture(
            size=size,
            users=[User(name="you", uid=-1)],
            faults=faults,
            submissions=submissions,
            looks=_Site(submissions),
            folder=given.shared.resolve(),
            say=say,
        )
        return _verdict(torture.run())
    from dlsched.torture.local import LocalWish, local_cluster  # noqa: PLC0415  # likewise

    wish = LocalWish(
        database=given.database,
        nodes=given.nodes,
        gpus=given.gpus,
        pause_s=given.pause,
        without=frozenset(_names(given.without)),
    )
    over = threading.Event()
    with local_cluster(wish) as (cluster, possible):
        faults = _without(possible, given.without)
        _tell(faults, seed)
        shared = cluster.folder / "shared"
        shared.mkdir(mode=0o755)
        torture = Torture(
            size=size,
            users=users_of_this_machine(given.users),
            faults=faults,
            submissions=LocalSubmissions(cluster.port, over),
            looks=cluster,
            folder=shared,
            say=say,
        )
        stop = threading.Timer(given.seconds + given.settle, over.set)  # whatever hangs
        stop.start()
        try:
            return _verdict(torture.run())
        finally:
            stop.cancel()
            over.set()
            if given.logs is not None:
                keep_logs(cluster.folder, given.logs)


def main(argv: Sequence[str] | None = None) -> int:
    """Run the program; returns its exit code: 0 kept, 1 broken or not possible, 2 wrong input."""
    given = parser().parse_args(argv)
    try:
        _checked(given)
        return _run(given)
    except ModuleNotFoundError as error:
        if error.name != "psutil":
            raise
        print("torture: needs psutil: pip install 'dlsched[torture]'", file=sys.stderr)
        return 1
    except DlschedError as error:
        print(f"torture: {error}", file=sys.stderr)
        return error.exit_code
    except KeyboardInterrupt:
        print("torture: stopped", file=sys.stderr)
        return 130


if __name__ == "__main__":
    sys.exit(main())
