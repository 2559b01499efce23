"""User turns: the user who holds the fewest GPUs is served next; first come, first served each."""

from dataclasses import dataclass

import numpy as np

from dlsched.core.allocation import Refused
from dlsched.core.options import option
from dlsched.core.scheduling import SchedulingPolicy


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """User turns."""

    cap: float = option(np.inf, "GPUs that one user may hold at once", low=1.0)


class UserTurns(SchedulingPolicy[Options]):
    """Serve users in turns; a user's job that does not fit lets the user's next one try."""

    name = "user-turns"
    summary = "the user who holds the fewest GPUs is served next"

    def allocate(self, units, ctx, walk):
        """Start waiting jobs one by one; which user is next depends on the users served before."""
        running, held, queues = ctx.running, {}, {}
        for user, gpus in zip(running.user.tolist(), running.gpus_now.tolist(), strict=True):
            held[user] = held.get(user, 0) + gpus
        for row, user in zip(units.rows.tolist(), units.user.tolist(), strict=True):
            queues.setdefault(user, []).append(row)
        while queues:
            user = min(queues, key=lambda user: (held.get(user, 0), queues[user][0]))
            row = queues[user].pop(0)
            gang = int(ctx.table.gang[row])
            if held.get(user, 0) + gang > self.options.cap:
                walk.refuse(row, Refused("Quota", f"the user may hold {self.options.cap:g} GPUs"))
            elif isinstance(refused := walk.place(row), Refused):
                walk.refuse(row, refused)
            else:
                held[user] = held.get(user, 0) + gang
            if not queues[user]:
                del queues[user]
        walk.stable_until(np.inf)
