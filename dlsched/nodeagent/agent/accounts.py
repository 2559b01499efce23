"""The local account that a job runs under: the daemon names a user, this node may refuse it.

Looking a user up may ask a directory service that does not answer, so callers do it in a thread
with a time limit.
"""

from __future__ import annotations

import os
import pwd
from dataclasses import fields

from dlsched.core.errors import NotAllowed
from dlsched.nodeagent.agent.settings import Settings
from dlsched.nodeagent.ranks.launch_spec import LaunchFacts
from dlsched.rpc.v1 import control_pb2

OVERFLOW_UID = 65534  # the kernel's user for ids that it cannot show


def check_user(settings: Settings, user: str, uid: int) -> None:
    """Refuse a user if this node does not run the user's jobs.

    Raises:
        NotAllowed: with the reason.
    """
    node = settings.name
    if uid == OVERFLOW_UID:
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


def account_of(settings: Settings, user: str, uid: int) -> pwd.struct_passwd:
    """Return this node's account of a user.

    Raises:
        NotAllowed: when this node runs no jobs of the user, or knows the name with another id.
    """
    check_user(settings, user, uid)
    try:
        account = pwd.getpwnam(user)
    except KeyError:
        if not settings.insecure_loopback:
            raise NotAllowed(f"node {settings.name} knows no user {user}") from None
        return pwd.struct_passwd((user, "x", uid, uid, user, "/", "/bin/sh"))
    if account.pw_uid != uid:
        raise NotAllowed(f"user {user} is {account.pw_uid} on node {settings.name}, not {uid}")
    return account


def account_and_groups(
    settings: Settings, user: str, uid: int
) -> tuple[pwd.struct_passwd, list[int]]:
    """Return this node's account of a user, and all groups that its processes have.

    Raises:
        NotAllowed: by `account_of`.
    """
    account = account_of(settings, user, uid)
    return account, _groups_of(account)


def _groups_of(account: pwd.struct_passwd) -> list[int]:
    if os.geteuid() != 0:
        return [account.pw_gid]  # this process cannot change its groups
    return os.getgrouplist(account.pw_name, account.pw_gid)


# what the message says of the user and of paths is checked or completed here
_CHECKED = {"user", "uid", "argv", "environment", "working_directory", "output", "error"}
_PLAIN = {each.name for each in fields(LaunchFacts)} - _CHECKED


def launch_facts(settings: Settings, message: control_pb2.LaunchSpec) -> LaunchFacts:
    """Return what a keeper gets of the daemon's launch message, with the user's local account.

    Raises:
        NotAllowed: by `account_of`.
    """
    account, groups = account_and_groups(settings, message.user, message.uid)
    directory = message.working_directory or account.pw_dir

    plain = {
        name: getattr(message, name)
        for name, field in message.DESCRIPTOR.fields_by_name.items()
        if name in _PLAIN and (not field.has_presence or message.HasField(name))
    }
    return LaunchFacts(
        user=account.pw_name,
        uid=account.pw_uid,
        gid=account.pw_gid,
        groups=tuple(groups),
        home=account.pw_dir,
        shell=account.pw_shell or "/bin/sh",
        argv=tuple(message.argv),
        environment={each.name: each.value for each in message.environment},
        working_directory=directory,
        output=_absolute(directory, message.output),
        error=_absolute(directory, message.error),
        local_batch=message.batch.local,
        accumulation=message.batch.accumulation,
        addresses=tuple(message.node_addresses),
        **plain,
    )


def _absolute(directory: str, path: str) -> str:
    return os.path.join(directory, path) if path else ""
