"""The Unix groups of users with jobs in partitions that are for groups, looked up again and again.

Slurm does the same every `GroupUpdateTime`. A look-up may ask a directory server, so it is done in
a thread.
"""

from __future__ import annotations

import asyncio
import contextlib
import grp
import os
import pwd

from dlsched.daemon.cluster import Cluster

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


async def follow_groups(cluster: Cluster) -> None:
    """Look groups up when rules or the lead have changed, and every ten minutes, for ever."""
    while True:
        cluster.access_changed.clear()
        users = cluster.live.rules.access.users_to_look_up(cluster.live.requests.specs.values())
        for user in sorted(users):
            cluster.note_groups(user, await asyncio.to_thread(groups_of, user))
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(cluster.access_changed.wait(), EVERY_S)
