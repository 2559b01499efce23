"""Users and groups of this machine, looked up again and again: those that partitions are for.

Slurm does the same every `GroupUpdateTime`. A look-up may ask a directory server, so it is done in
a thread.
"""

from __future__ import annotations

import asyncio
import contextlib
import grp
import logging
import os
import pwd
from collections.abc import Callable, Iterator

from dlsched.daemon.cluster import Cluster
from dlsched.daemon.settings import Settings

log = logging.getLogger("dlsched.daemon")
EVERY_S = 600.0


def groups_of(user: str) -> frozenset[str]:
    """The names of a user's Unix groups; none for a user that this machine does not know."""
    try:
        main = pwd.getpwnam(user).pw_gid
    except KeyError:
        return frozenset()
    found = set()
    for number in os.getgrouplist(user, main):
        try:
            found.add(grp.getgrgid(number).gr_name)
        except KeyError:
            continue
    return frozenset(found)


def unknown_names(settings: Settings) -> Iterator[str]:
    """One line for each user and group of the configuration that this machine does not know."""
    for name in settings.trust.operators:
        if not _is_known(pwd.getpwnam, name):
            yield f"trust.operators: this machine knows no user {name}"
    for each in settings.partition_rules().values():
        for name in each.users:
            if not _is_known(pwd.getpwnam, name):
                yield f"partitions: {each.name}: users: this machine knows no user {name}"
        for name in each.groups:
            if not _is_known(grp.getgrnam, name):
                yield f"partitions: {each.name}: groups: this machine knows no group {name}"


def _is_known(look_up: Callable[[str], object], name: str) -> bool:
    try:
        look_up(name)
    except KeyError:
        return False
    return True


async def follow_groups(cluster: Cluster) -> None:
    """Look names up when rules or the lead have changed, and every ten minutes, for ever.

    A name that is not known is told and does not stop a daemon: it may be made tomorrow, and a
    directory server may be away.
    """
    while True:
        cluster.access_changed.clear()
        before = cluster.unknown_names
        cluster.unknown_names = await asyncio.to_thread(list, unknown_names(cluster.settings))
        for line in cluster.unknown_names:
            if line not in before:
                log.warning("event=unknown-name why=%r", line)
        users = cluster.live.rules.access.users_to_look_up(cluster.live.requests.specs.values())
        for user in sorted(users):
            cluster.note_groups(user, await asyncio.to_thread(groups_of, user))
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(cluster.access_changed.wait(), EVERY_S)
