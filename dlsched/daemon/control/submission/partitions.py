"""What a partition says of its jobs: which ones may be in it, for how long, and their defaults."""

from __future__ import annotations

import asyncio

from dlsched.client.submission.durations import duration_text
from dlsched.core.errors import BadInput, NotAllowed, not_known
from dlsched.daemon.cluster import Cluster
from dlsched.daemon.control import bounds
from dlsched.daemon.loops.user_groups import groups_of
from dlsched.daemon.settings import Settings
from dlsched.daemon.site_rules.partition_access import AccessLists
from dlsched.daemon.tenants import TenantsOfUser
from dlsched.jobs.field import Values
from dlsched.rpc.identity import Identity
from dlsched.tenants.fields import Partition

GB = 1e9


def partition_for(name: str, settings: Settings) -> Partition | None:
    """The partition that a job names, else the default one; None: the cluster has none.

    Raises:
        BadInput: there is none of that name.
    """
    known = settings.partition_rules()
    if name and name not in known:
        bounds.check_text("partition", name)
        if not known:
            raise BadInput(
                f"partition {name!r}: this cluster has no partitions; leave the option out"
            )
        raise not_known("partition", name, known)
    return known.get(name or settings.default_partition())


def check_access(found: Partition | None, whose: TenantsOfUser, account: str) -> None:
    """Refuse a job whose user, account and groups are not among those of its partition.

    Raises:
        NotAllowed: one line that says for which the partition is.
    """
    lists = None if found is None or whose.operator else AccessLists.of(found)
    if lists is None:
        return
    if why := lists.refusal(whose.user, account, whose.groups):
        raise NotAllowed(why)


def time_within(limit: float | None, least: float | None, found: Partition | None) -> float | None:
    """A job's time limit: its own, else the partition's default, else the longest there.

    Args:
        limit: as the job says.
        least: to which the limit may be lowered.
        found: the partition.

    Raises:
        BadInput: it is longer than the partition allows, or below the least.
    """
    if least is not None and (limit is None or least > limit):
        raise BadInput("least time limit: needs a time limit that is not below it")
    if found is None:
        return limit
    most = found.max_time_s
    if limit is None:
        return found.default_time_s if found.default_time_s is not None else most
    if most is not None and limit > most:
        if least is None or least > most:
            raise BadInput(
                f"PartitionTimeLimit: time limit {duration_text(limit)} is above partition "
                f"{found.name}'s, {duration_text(most)}"
            )
        return most
    return limit


def host_defaults(values: Values, found: Partition | None, gpus: int, nodes: int) -> dict[str, int]:
    """The processors of the job and the memory on each node, where it says nothing of them."""
    if found is None or not gpus:
        return {}
    given: dict[str, int] = {}
    if values["cpus"] is None and found.cpus_per_gpu is not None:
        given["cpus"] = found.cpus_per_gpu * gpus
    if values["memory_bytes"] is None and found.memory_gb_per_gpu is not None:
        given["memory_bytes"] = int(found.memory_gb_per_gpu * GB) * -(-gpus // nodes)
    return given


async def tenants_of(cluster: Cluster, caller: Identity, user: str = "") -> TenantsOfUser:
    """What a user's jobs may name; Unix groups are looked up where a partition asks for them.

    Args:
        cluster: whose tenants these are.
        caller: an operator may name anything.
        user: whose jobs they are; empty: the caller's.
    """
    name, groups = user or caller.name, frozenset[str]()
    if any(each.groups for each in cluster.settings.partition_rules().values()):
        groups = await asyncio.to_thread(groups_of, name)  # may ask a directory server
        cluster.note_groups(name, groups)
    return TenantsOfUser(cluster.tenants, name, operator=caller.is_operator, groups=groups)
