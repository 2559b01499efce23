"""A GPU whose jobs slow each other by their use of it, and a node policy that divides it."""

from __future__ import annotations

import random
from typing import Any

from dlsched.core.node_policy import DividedGpus, Resident, Stepped

GPU = "gpu"
OWNER = 1
QUIET_S = 10.0  # after a change, in which the owner may be slowed
LATENCY_S = 1.0  # until a limit reaches a job


class Interfering:
    """One owner that works for minutes and is idle for minutes, and opportunistic jobs beside it.

    The owner's mini-batch takes 1 + k·share times as long, with k = what both ask of the GPU above
    all of it (the sheet's section 4).
    """

    def __init__(
        self, policy: Any, owner: float, opportunistic: list[float], *, step_s: float, seed: int
    ) -> None:
        self.gpus = DividedGpus(policy)
        self.owner, self.opportunistic, self.step_s = owner, opportunistic, step_s
        self.rng = random.Random(seed)
        self.slowed: list[float] = []
        self.longest_starved_s = 0.0

    @property
    def mean_slowdown(self) -> float:
        """Of the owner, outside the times after changes."""
        return sum(self.slowed) / len(self.slowed) if self.slowed else 0.0

    def run(self, until: float) -> None:
        gpus, now, jobs = self.gpus, 0.0, range(OWNER + 1, OWNER + 1 + len(self.opportunistic))
        arrivals = sorted((self.rng.uniform(0, until / 2), job) for job in jobs)
        gpus.come(0.0, Resident(job=OWNER), (GPU,))
        works, turns_at, changed_at = True, self.rng.uniform(60, 300), 0.0
        in_force: dict[int, int] = {}
        pending: list[tuple[float, int, int]] = []
        idle_since, moved_at = 0.0, 0.0
        done = 0.0  # of a mini-batch
        while now < until:
            now += 0.25
            while arrivals and arrivals[0][0] <= now:
                _, job = arrivals.pop(0)
                gpus.come(now, Resident(job=job, guaranteed=False), (GPU,))
                in_force[job] = 0
                changed_at = moved_at = now
            if now >= turns_at:
                works, turns_at = not works, now + self.rng.uniform(60, 300)
                idle_since = moved_at = changed_at = now
            if gpus.next_wake <= now:
                for job, limit in gpus.wake(now).items():
                    pending.append((now + LATENCY_S, job, limit.share))
            while pending and pending[0][0] <= now:
                _, job, share = pending.pop(0)
                in_force[job] = share
            if any(in_force.values()):
                moved_at = now
            if not works:
                if in_force and now - idle_since > 60.0:
                    self.longest_starved_s = max(self.longest_starved_s, now - moved_at)
                continue
            slowdown = sum(
                max(0.0, self.owner + use * share / 100 - 1.0) * share / 100
                for use, share in zip(self.opportunistic, in_force.values(), strict=False)
            )
            if now - changed_at > QUIET_S:
                self.slowed.append(slowdown)
            lasts = self.step_s * (1.0 + slowdown)
            done += 0.25 / lasts
            if steps := int(done):
                done -= steps
                event = Stepped(now=now, job=OWNER, duration_s=lasts, steps=steps)
                for job, limit in gpus.report(event).items():
                    pending.append((now + LATENCY_S, job, limit.share))
