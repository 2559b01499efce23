"""Whose job it is: the user of the daemon's word, as this node knows that user.

The node has its own veto. Looking a user up may ask a directory that does not answer, so it is done
in a thread with a time limit.
"""

from __future__ import annotations

import os
import pwd
from typing import Any

from dlsched.core.errors import NotAllowed
from dlsched.nodeagent.settings import Settings
from dlsched.nodeagent.spec import LaunchFacts

NOBODY = 65534


def check(settings: Settings, user: str, uid: int) -> None:
    """Refuse users whose jobs this node does not run.

    Raises:
        NotAllowed: saying why.
    """
    node = settings.name
    if uid == NOBODY:
        raise NotAllowed(f"node {node} runs no jobs of user {user} ({uid})")
    if os.geteuid() != 0:
        if uid != os.geteuid():
            raise NotAllowed(f"the agent of node {node} is not root: it cannot become {user}")
        return
    if uid == 0:
        if not (settings.allow_root or settings.insecure_loopback):
            raise NotAllowed(f"node {node} runs no jobs of root (allow_root)")
    elif uid < settings.minimum_uid and not settings.insecure_loopback:
        raise NotAllowed(f"node {node} runs no jobs of system users: {user} is {uid}")


def resolve(settings: Settings, user: str, uid: int) -> pwd.struct_passwd:
    """The account of a name and an id that must belong together here.

    Raises:
        NotAllowed: when they do not.
    """
    check(settings, user, uid)
    try:
        account = pwd.getpwnam(user)
    except KeyError:
        if not settings.insecure_loopback:
            raise NotAllowed(f"node {settings.name} knows no user {user}") from None
        return pwd.struct_passwd((user, "x", uid, uid, user, "/", "/bin/sh"))
    if account.pw_uid != uid:
        raise NotAllowed(f"user {user} is {account.pw_uid} on node {settings.name}, not {uid}")
    return account


def launch_facts(settings: Settings, spec: Any) -> LaunchFacts:
    """What a keeper gets of the daemon's launch message.

    Raises:
        NotAllowed: by `resolve`.
    """
    account = resolve(settings, spec.user, spec.uid)
    groups = [account.pw_gid]
    if os.geteuid() == 0:
        groups = os.getgrouplist(account.pw_name, account.pw_gid)
    directory = spec.working_directory or account.pw_dir

    def number(name: str) -> int | None:
        return getattr(spec, name) if spec.HasField(name) else None

    return LaunchFacts(
        user=account.pw_name,
        uid=account.pw_uid,
        gid=account.pw_gid,
        groups=tuple(groups),
        home=account.pw_dir,
        shell=account.pw_shell or "/bin/sh",
        argv=tuple(spec.argv),
        script=spec.script,
        environment={each.name: each.value for each in spec.environment},
        working_directory=directory,
        output=_below(directory, spec.output),
        error=_below(directory, spec.error),
        append=spec.append,
        warn_signal=spec.warn_signal,
        warn_before_s=spec.warn_before_s,
        job_name=spec.job_name,
        array_job=number("array_job"),
        array_task=number("array_task"),
        array_count=number("array_count"),
        array_min=number("array_min"),
        array_max=number("array_max"),
        array_step=number("array_step"),
        partition=spec.partition,
        submit_directory=spec.submit_directory,
        submit_host=spec.submit_host,
        resume_from=spec.resume_from,
        resume_step=spec.resume_step,
        slurm_environment=spec.slurm_environment,
        fixed_batch=spec.fixed_batch,
        local_batch=spec.batch.local,
        accumulation=spec.batch.accumulation,
        vc=spec.vc,
        cluster=spec.cluster,
        addresses=tuple(spec.node_addresses),
    )


def _below(directory: str, path: str) -> str:
    """Where a relative path is."""
    return os.path.join(directory, path) if path else ""
