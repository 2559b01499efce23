"""`python -m dlsched.service`: the leader or a replica of a service, inside its job."""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import sys
from pathlib import Path

from dlsched.client.daemon_client import Client
from dlsched.client.submission.services import read_terms
from dlsched.core.errors import DlschedError
from dlsched.job import PREEMPTED, attach
from dlsched.service.leader import Leader
from dlsched.service.replica import Replica
from dlsched.service.replica_jobs import ReplicaJobs


def main() -> int:
    """Run until the job is ended; returns its exit code."""
    found = argparse.ArgumentParser(prog="python -m dlsched.service", description=__doc__)
    kinds = found.add_subparsers(dest="kind", required=True)
    lead, replica = kinds.add_parser("lead"), kinds.add_parser("replica")
    replica.add_argument("number", type=int)
    for each in (lead, replica):
        each.add_argument("--terms", required=True)
        each.add_argument("command", nargs="+")
    lead.add_argument("--options", required=True, help="of the replicas' jobs, JSON")
    lead.add_argument("--daemon", help="where the environment does not say it")
    replica.add_argument("--folder", required=True, type=Path)
    given = found.parse_args()
    try:
        return _replicate(given) if given.kind == "replica" else _lead(given)
    except DlschedError as error:
        print(f"dlsched.service: {error}", file=sys.stderr)
        return error.exit_code


def _replicate(given: argparse.Namespace) -> int:
    terms = read_terms(given.terms)
    replica = Replica(number=given.number, terms=terms, folder=given.folder, command=given.command)
    job = attach(every_s=None, gang=False)
    try:
        return asyncio.run(replica.run(job))
    finally:
        job.close()


def _lead(given: argparse.Namespace) -> int:
    if given.daemon:
        os.environ["DLSCHED_DAEMON"] = given.daemon
    terms = read_terms(given.terms)
    with attach(every_s=None) as job:
        folder = job.runtime.checkpoint_folder
        if not job.runtime.job or folder is None:
            raise DlschedError("the leader of a service runs in a job with a folder of its own")
        jobs = ReplicaJobs(
            service=int(job.runtime.job),
            terms=terms,
            options=json.loads(given.options),
            command=given.command,
            folder=folder,
        )
        try:
            ends = asyncio.run(Leader(terms=terms, jobs=jobs, host=_own_address()).run(job))
        except DlschedError:
            jobs.cancel()
            raise
        if ends:
            jobs.cancel()
    return PREEMPTED


def _own_address() -> str:
    """The address of this node, at which agents and daemon meet."""
    with Client() as client:
        (node,) = client.nodes([os.environ["DLSCHED_NODE"]])
    host = (node.address or "").rpartition(":")[0]
    return host.strip("[]") or "127.0.0.1"


if __name__ == "__main__":
    sys.exit(main())
