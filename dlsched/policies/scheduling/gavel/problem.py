"""The input of Gavel's objectives: jobs with throughputs, pairs of jobs, GPUs of several types.

The letters are the paper's: T throughput, s scale factor, w weight, n remaining steps, t time since
submission, N workers (GPUs) of a type. A `Problem` is checked once, when it is made, and its jobs
are sorted by id, so that the result does not depend on the order in which they were listed. The
functions below a problem are equal splits of the cluster, to which fairness objectives compare.

Source: Narayanan et al., "Heterogeneity-Aware Cluster Scheduling Policies for Deep Learning
Workloads", OSDI 2020, sections 3 and 4.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from dlsched.core.arrays import Bools, Floats, Ints, Rows
from dlsched.core.errors import BadInput


@dataclass(frozen=True, slots=True)
class Pairs:
    """Pairs of jobs that may run on the same GPUs at the same time.

    Attributes:
        first, second: positions of the two jobs, first < second; their scale factors are equal.
        throughput: steps/s of both jobs, [pair, type, 0 or 1]; (0, 0) where they do not fit.
    """

    first: Rows
    second: Rows
    throughput: Floats

    def __len__(self) -> int:
        return len(self.first)


@dataclass(frozen=True, slots=True, kw_only=True)
class Entity:
    """A group of jobs with one common weight.

    Attributes:
        jobs: ids of its jobs.
        weight: its weight among the entities.
        policy: how its jobs share: `fairness` (by their weights) or `fifo` (one by one, by id).
    """

    jobs: tuple[int, ...]
    weight: float = 1.0
    policy: str = "fairness"


@dataclass(frozen=True, slots=True)
class Shares:
    """An allocation X: fractions of time.

    Attributes:
        x: [job, type].
        pair_x: [pair, type], in the order of the problem's pairs; no rows when there are none.
        objective: the optimal value of the objective, in the paper's terms.
    """

    x: Floats
    pair_x: Floats
    objective: float = np.nan


@dataclass(frozen=True, slots=True, kw_only=True)
class Problem:
    """Jobs in the order of their ids, and the cluster.

    Attributes:
        ids: job ids, ascending.
        types: GPU types, in the order of all columns; the names are for messages only.
        workers: GPUs of each type, N.
        throughput: steps/s of a whole job alone on its scale factor, [job, type], T; 0 means that
            it cannot run there.
        scale: GPUs that a job uses at once, s.
        weight: priority weight, w; a job of weight 0 is entitled to nothing.
        remaining: steps left, n; NaN where unknown.
        elapsed: seconds since submission, t.
        isolated_s: seconds that an isolated share would have needed for the steps done, C.
        time_left: seconds until the deadline; infinite where there is none.
        price: $ per GPU-hour of each type, c.
        home: the previous X, [job, type]; ties are broken towards it.
        pairs: pairs of jobs that may share GPUs.
        entities: the groups of hierarchical fairness.
    """

    ids: Rows
    types: tuple[str, ...]
    workers: Floats
    throughput: Floats
    scale: Floats
    weight: Floats
    remaining: Floats
    elapsed: Floats
    isolated_s: Floats
    time_left: Floats
    price: Floats
    home: Floats
    pairs: Pairs | None = None
    entities: tuple[Entity, ...] = field(default=())

    @property
    def size(self) -> int:
        """Number of jobs, m."""
        return len(self.ids)

    @property
    def best(self) -> Floats:
        """Each job's largest throughput on a type that the cluster has."""
        best: Floats = self.throughput.max(axis=1, initial=0.0)
        return best

    @staticmethod
    def of(
        throughput: Sequence[Sequence[float]] | Floats,
        workers: Sequence[float] | Ints | Floats,
        *,
        ids: Sequence[int] | Rows | None = None,
        types: Sequence[str] = (),
        scale: Sequence[float] | Ints | Floats | None = None,
        weight: Sequence[float] | Floats | None = None,
        remaining: Sequence[float] | Floats | None = None,
        elapsed: Sequence[float] | Floats | None = None,
        isolated_s: Sequence[float] | Floats | None = None,
        time_left: Sequence[float] | Floats | None = None,
        price: Sequence[float] | Floats | None = None,
        home: Sequence[Sequence[float]] | Floats | None = None,
        pairs: Pairs | None = None,
        entities: Sequence[Entity] = (),
    ) -> Problem:
        """Check the columns, fill in defaults, and sort the jobs by id.

        Args: see the attributes of the class; `throughput` and `home` are [job, type], `workers`
            and `price` are [type], all others [job].

        Raises:
            BadInput: one line that names the job.
        """
        speeds = np.array(throughput, np.float64)
        if speeds.ndim != 2:
            speeds = speeds.reshape(0, len(workers))
        count, type_count = speeds.shape
        order = np.arange(count) if ids is None else np.argsort(np.array(ids), kind="stable")

        def column(values: Sequence[float] | Ints | Floats | None, default: float) -> Floats:
            if values is None:
                return np.full(count, default)
            return np.array(values, np.float64)[order]

        problem = Problem(
            ids=np.arange(count) if ids is None else np.array(ids, np.int64)[order],
            types=tuple(types) or tuple(f"type {gpu_type}" for gpu_type in range(type_count)),
            workers=np.array(workers, np.float64),
            throughput=speeds[order],
            scale=column(scale, 1.0),
            weight=column(weight, 1.0),
            remaining=column(remaining, np.nan),
            elapsed=column(elapsed, 0.0),
            isolated_s=column(isolated_s, 0.0),
            time_left=column(time_left, np.inf),
            price=np.ones(type_count) if price is None else np.array(price, np.float64),
            home=np.zeros((count, type_count))
            if home is None
            else np.array(home, np.float64)[order],
            pairs=None if pairs is None else _reordered(pairs, order),
            entities=tuple(entities),
        )
        problem._check()
        return replace(problem, throughput=np.where(problem.workers > 0, problem.throughput, 0.0))

    def with_throughput(self, throughput: Floats) -> Problem:
        """The same problem with other throughputs, for objectives that ignore some of them."""
        usable = np.where(self.workers > 0, throughput, 0.0)
        self._refuse(usable.max(axis=1, initial=0.0) <= 0, "has throughput 0 on the reference type")
        return replace(self, throughput=usable)

    def require_remaining(self) -> None:
        """Refuse jobs whose remaining steps are not known.

        Raises:
            BadInput: one line that names the job.
        """
        self._refuse(~(self.remaining >= 0), "has no known number of remaining steps")

    def _check(self) -> None:
        if len(np.unique(self.ids)) < self.size:
            raise BadInput("two jobs have the same id")
        if not (self.workers >= 0).all():
            raise BadInput(f"GPUs per type must be 0 or more, not {self.workers.tolist()}")
        if len(self.types) != len(self.workers) or self.throughput.shape[1] != len(self.workers):
            raise BadInput(
                f"{len(self.types)} GPU types, {len(self.workers)} numbers of GPUs and "
                f"{self.throughput.shape[1]} columns of throughputs: they must be equal"
            )
        for gpu_type, name in enumerate(self.types):
            wrong = ~(
                np.isfinite(self.throughput[:, gpu_type]) & (self.throughput[:, gpu_type] >= 0)
            )
            self._refuse(wrong, f"has a throughput on {name} that is not a number from 0 up")
        usable = self.throughput[:, self.workers > 0]
        self._refuse(
            usable.max(axis=1, initial=0.0) <= 0,
            "can run nowhere: its throughput is 0 on every GPU type of the cluster",
        )
        self._refuse(~(self.scale >= 1), "needs a scale factor of 1 or more")
        wrong = ~(np.isfinite(self.weight) & (self.weight >= 0))
        self._refuse(wrong, "has a weight that is not a number from 0 up")
        if not (np.isfinite(self.price) & (self.price > 0)).all():
            raise BadInput(f"prices must be more than 0, not {self.price.tolist()}")
        self._check_entities()

    def _check_entities(self) -> None:
        if not self.entities:
            return
        for entity in self.entities:
            if entity.policy not in ("fairness", "fifo"):
                raise BadInput(f"an entity shares by fairness or fifo, not by {entity.policy!r}")
            if not (np.isfinite(entity.weight) and entity.weight >= 0):
                raise BadInput(f"an entity's weight must be 0 or more, not {entity.weight}")
        members = np.array([job for entity in self.entities for job in entity.jobs], np.int64)
        belongs = np.array([int((members == job).sum()) for job in self.ids.tolist()])
        self._refuse(belongs != 1, "must belong to exactly one entity")

    def _refuse(self, wrong: Bools, why: str) -> None:
        if wrong.any():
            raise BadInput(f"job {int(self.ids[np.argmax(wrong)])} {why}")


def _reordered(pairs: Pairs, order: Rows) -> Pairs:
    """The pairs after the jobs were sorted; each throughput stays with its job."""
    if not np.isfinite(pairs.throughput).all() or (pairs.throughput < 0).any():
        raise BadInput("a pair has a throughput that is not a number from 0 up")
    place = np.empty(len(order), np.int64)
    place[order] = np.arange(len(order))
    first, second, throughput = place[pairs.first], place[pairs.second], pairs.throughput.copy()
    turned = first > second
    first[turned], second[turned] = second[turned], first[turned]
    throughput[turned] = throughput[turned][:, :, ::-1]
    return Pairs(first, second, throughput)


def proportional_rate(problem: Problem) -> Floats:
    """Throughput of each job under an equal split of its time, P_i = Σ_j T_ij N_j / Σ_j N_j.

    In steps/s. The scale factor does not enter, and the split fills the whole time of the job.
    """
    workers = problem.workers
    rate: Floats = (problem.throughput * workers).sum(axis=1) / workers.sum()
    return rate


def isolated_share(problem: Problem) -> Floats:
    """Time on each type if the cluster were cut into equal slices, x_ij = N_j / (m s_i).

    Rows that would add up to more than 1 are scaled down to 1.
    """
    x = problem.workers / (max(problem.size, 1) * problem.scale[:, None])
    share: Floats = x / np.maximum(x.sum(axis=1, keepdims=True), 1.0)
    return share


def isolated_rate(problem: Problem) -> Floats:
    """Throughput under the isolated share, I_i = Σ_j T_ij x_ij, in steps/s."""
    rate: Floats = (problem.throughput * isolated_share(problem)).sum(axis=1)
    return rate


def rates(problem: Problem, shares: Shares) -> Floats:
    """Throughput of each job under X, alone and in pairs, in steps/s."""
    rate: Floats = (problem.throughput * shares.x).sum(axis=1)
    if problem.pairs is not None and shares.pair_x.any():
        steps = problem.pairs.throughput * shares.pair_x[:, :, None]
        np.add.at(rate, problem.pairs.first, steps[:, :, 0].sum(axis=1))
        np.add.at(rate, problem.pairs.second, steps[:, :, 1].sum(axis=1))
    return rate


def no_pairs(problem: Problem) -> Floats:
    """Zeros, [pair, type]: no time in any pair."""
    count = 0 if problem.pairs is None else len(problem.pairs)
    return np.zeros((count, len(problem.workers)))


def all_pairs(
    scales: Ints,
    throughput: Callable[[Rows, Rows], Floats],
    may_share: Callable[[Rows, Rows], Bools] | None = None,
) -> Pairs:
    """All pairs of jobs with equal scale factors that fit together on some GPU type.

    `throughput` returns steps/s of both halves, [pair, type, 0 or 1], for the positions of the
    first and second jobs, 0 where a pair does not fit; `may_share` says which pairs may share GPUs
    at all, all of them when None.

    Returns:
        the pairs in the order of the jobs' positions.
    """
    first, second = np.triu_indices(len(scales), 1)
    alike = scales[first] == scales[second]
    if may_share is not None:
        alike &= may_share(first, second)
    first, second = first[alike], second[alike]
    speed = throughput(first, second)
    fits = speed.any(axis=(1, 2))
    return Pairs(first[fits], second[fits], speed[fits])
