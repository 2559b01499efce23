"""Hybrid scaling: the batch size and learning rate of a training whose number of workers changes.

*Strong* scaling keeps the batch: the same convergence, but ever less use of each worker. *Weak*
scaling keeps each worker's part: the batch grows, and the learning rate with it. The hybrid rule
keeps the batch for as long as more workers make it faster, and only then doubles it. After a growth
the learning rate climbs linearly to its new value, as a factor on the training's own schedule.

Xie et al., "Elan: Towards Generic and Efficient Elastic Training for Deep Learning", ICDCS 2020.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from typing import BinaryIO

from dlsched.job.errors import JobError

LARGEST = 8  # times the submitted batch, where the user gives no bound
RAMP_STEPS = 100  # from the old learning rate to the new one


def best_workers(throughput: Mapping[int, float]) -> int:
    """The number of workers with the highest throughput; the smallest of several.

    Args:
        throughput: samples a second by number of workers, all with the same batch.
    """
    return min(throughput, key=lambda workers: (-throughput[workers], workers))


def parts_of(batch: int, workers: int) -> list[int]:
    """The samples of each worker; the last ones have one less where it does not divide."""
    each, more = divmod(batch, workers)
    return [each + (rank < more) for rank in range(workers)]


class HybridScaling:
    """The batch, the workers and the learning rate of one training.

    Register `save` and `load` with the checkpoints, and call `step` after each step.

    Attributes:
        batch: samples of a step, all workers together.
        workers: that are used; those above are better given to other jobs.
    """

    def __init__(
        self,
        best: Callable[[int], int],
        batch: int,
        *,
        largest: int | None = None,
        ramp_steps: int = RAMP_STEPS,
    ) -> None:
        """Begin with the submitted batch.

        Args:
            best: the number of workers with which a batch is fastest (`best_workers`).
            batch: samples of a step, as submitted.
            largest: that the batch may grow to; None: eight times the submitted one.
            ramp_steps: of the learning rate after a growth.

        Raises:
            JobError: when a number is impossible.
        """
        bound = batch * LARGEST if largest is None else largest
        if batch < 1 or bound < batch or ramp_steps < 1:
            raise JobError(f"a batch of {batch}, at most {bound}, ramps of {ramp_steps} steps")
        self.batch, self.workers = batch, 0
        self._best, self._submitted, self._largest = best, batch, bound
        self._ramp_steps = ramp_steps
        self._from, self._since = 1.0, ramp_steps  # the factor before the growth; steps since then

    def resize(self, workers: int) -> None:
        """Take over another number of workers: more steps in strong scaling, else a larger batch.

        Raises:
            JobError: when there are no workers.
        """
        if workers < 1:
            raise JobError(f"{workers} workers")
        shrinks = workers < self.workers
        first = self._submitted if shrinks else self.batch
        last = self.batch if shrinks else self._largest
        sizes = list(_doubled(first, last))
        fitting = next((size for size in sizes if workers <= self._best(size)), sizes[-1])
        self.workers = min(workers, self._best(fitting))
        if fitting > self.batch:
            self._from, self._since = self.factor, 0
        elif fitting < self.batch:
            self._since = self._ramp_steps  # at once
        self.batch = fitting

    @property
    def factor(self) -> float:
        """What the learning rate of the training's own schedule is multiplied by now."""
        target = self.batch / self._submitted
        return self._from + (target - self._from) * min(self._since / self._ramp_steps, 1.0)

    def step(self) -> None:
        """Note that a step is done."""
        self._since = min(self._since + 1, self._ramp_steps)

    # -- as a state of the checkpoint --------------------------------------------------------------

    def save(self, file: BinaryIO) -> None:
        """Write what the training has come to."""
        file.write(json.dumps([self.batch, self.workers, self._from, self._since]).encode())

    def load(self, file: BinaryIO) -> None:
        """Read what another run of the training had come to; call `resize` afterwards."""
        self.batch, self.workers, self._from, self._since = json.loads(file.read())


def _doubled(first: int, last: int) -> Iterable[int]:
    """The batch sizes from the first one, doubled, up to the last one."""
    while first <= last:
        yield first
        first *= 2
