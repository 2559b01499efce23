"""How much users may have the database store: in all, in an hour, and while its disk has room.

What is stored of a job stays after its end, so bounds on live jobs do not bound it. The last part
of the disk is for what must always be stored: ends, cancels, and what nodes say.
"""

from __future__ import annotations

from functools import partial

from dlsched.daemon.cluster import Cluster
from dlsched.daemon.control.submission.rate_limit import TokenBuckets
from dlsched.daemon.rpc_errors import TooMuch
from dlsched.db.stored_bytes import bytes_of_action
from dlsched.system.clock import boottime

HOUR_S = 3600.0
PARTS_OF_DISK = 4  # of which one user may have one
KNOWN_S = 1.0  # for which a look at what is stored of a user holds, beside what has come since
MOST_USERS = 10_000


class StorageBounds:
    """What each user has had stored."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._in_an_hour = TokenBuckets()
        self._stored: dict[str, tuple[int, float]] = {}  # bytes of a user, and when that was read

    async def look(self, user: str) -> None:
        """Read what is stored of a user, unless that has just been done."""
        driver = self._cluster.driver
        _, at = self._stored.get(user, (0, -KNOWN_S))
        if boottime() - at >= KNOWN_S:
            found = await driver.read(partial(driver.store.stored_bytes, user))
            self._stored.pop(user, None)
            self._stored[user] = found, boottime()
            while len(self._stored) > MOST_USERS:
                del self._stored[next(iter(self._stored))]

    async def take_action(self, user: str, kind: str, jobs: int, text: int) -> None:
        """Count what a user does to jobs again and again, as `take`.

        Args:
            user: the caller.
            kind: of its events.
            jobs: to which it is done.
            text: characters of each event.
        """
        await self.look(user)
        self.take(user, jobs * bytes_of_action(kind, text), "changes jobs with")

    def take(self, user: str, more: int, does: str = "submits") -> None:
        """Count what a call has stored, after `look`.

        Args:
            user: the caller.
            more: bytes that are to be stored.
            does: what the user does, in words.

        Raises:
            TooMuch: one line that names the bound; then nothing is counted.
        """
        limits = self._cluster.settings.limits
        require_disk(self._cluster, more)
        stored, at = self._stored.get(user, (0, boottime()))
        room = self._cluster.driver.store.disk_room()
        part = room[1] // PARTS_OF_DISK if room is not None else limits.stored_bytes_per_user
        if stored + more > (most := min(part, limits.stored_bytes_per_user)):
            raise TooMuch(
                f"the jobs of {user} would take {stored + more:,} bytes in the database, "
                f"ended ones too, at most {most:,} bytes; "
                "operators set how long jobs are kept ([history] keep_days)"
            )
        most = limits.submitted_bytes_per_hour
        wait_s = self._in_an_hour.take(user, more, most / HOUR_S, most, boottime())
        if wait_s > 0:
            again = f"again in {wait_s:.0f} s" if more <= most else "in smaller calls"
            raise TooMuch(
                f"{user} {does} more than {most:,} bytes an hour, scripts and "
                f"environments included: {again}"
            )
        self._stored[user] = stored + more, at


def require_disk(cluster: Cluster, more: int = 0) -> None:
    """Refuse what may wait while the database's disk is short.

    Args:
        cluster: with the database.
        more: bytes that would be stored.

    Raises:
        TooMuch: one line.
    """
    if why := disk_shortage(cluster, more):
        raise TooMuch(why)


def disk_shortage(cluster: Cluster, more: int = 0) -> str:
    """Why the disk of the database has no room for so many bytes more; empty if it has."""
    room = cluster.driver.store.disk_room()
    if room is None:
        return ""
    free, total = room
    reserve = min(cluster.settings.limits.disk_reserve_bytes, total // 10)
    if free - 2 * more >= reserve:  # SQLite writes it ahead, and then to its place
        return ""
    return (
        f"the database's disk has {free:,} bytes left, of which "
        f"{reserve:,} bytes are kept for the ends of jobs: nothing new is taken"
    )
