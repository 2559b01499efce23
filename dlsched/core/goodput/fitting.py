"""Finding a job's throughput parameters from the times of its steps.

The objective is the root mean square error of the logarithms of both times of a step, plus a little
for strong overlap and for synchronising that grows fast. What the observations cannot tell (the
job has not run on two nodes, say) is fixed beforehand, to what makes more GPUs look perfectly
useful: that is how a scheduler comes to try them.

The objective has many local minima, so several starting points are improved at once, as rows of
arrays: a damped Gauss-Newton method in the logarithms of the times, in which no bound but the one
on the overlap matters. Its derivatives are exact.

Source of the objective and of what is fixed: Qiao et al., "Pollux", OSDI 2021, and its artifact.
"""

from __future__ import annotations

from typing import Literal, NamedTuple

import numpy as np

from dlsched.core.arrays import Bools, Floats, Ints
from dlsched.core.errors import BadInput
from dlsched.core.goodput.params import PerfParams
from dlsched.core.goodput.throughput import TINY, accumulation_time, optimiser_time

Starts = Literal["single", "multi"]

LEAST, MOST = TINY, 1e8  # s: bounds of every alpha and beta
LARGEST_GAMMA = 10.0
ORIGIN = (0.1, 0.01, 0.1, 0.01, 0.1, 0.01, 1.001)
OVERLAPS = (1.001, 1.3, 1.8, 3.0)  # gammas from which data-driven starts are made
OVERLAP_WEIGHT, GROWTH_WEIGHT = 1e-3, 1e-2
SLOWER = 1.1  # several nodes, where never observed, are at least so much slower than one
ROUNDS = 25
TRIAL_ROUNDS, KEPT = 5, 2  # after so many, only the best points go on
HOPE = 5.0  # how many times its next gain a point may still win
WARM_FLOOR = 1e-5  # s: in the logarithm, nothing that is much smaller would ever grow again
LONGEST_STEP = 3.0  # in a logarithm
FINEST = 1e-9  # error of a logarithm below which nothing is left to improve
FIELDS = len(ORIGIN)
LOWEST = np.array([np.log(LEAST)] * 6 + [1.0])  # of points: logarithms of times, and gamma
HIGHEST = np.array([np.log(MOST)] * 6 + [LARGEST_GAMMA])
CONSTANTS, GROWTHS = [2, 4], [3, 5]  # of network times: alpha and beta, over nodes and inside one


class Observations(NamedTuple):
    """Measured times, one entry a distinct (nodes, replicas, local).

    Attributes:
        nodes: nodes it ran on.
        replicas: GPUs.
        local: samples a replica and pass.
        accumulation_s: seconds of a pass that does not synchronise.
        optimiser_s: seconds of one that does.
    """

    nodes: Ints
    replicas: Ints
    local: Ints
    accumulation_s: Floats
    optimiser_s: Floats


class Fit(NamedTuple):
    """What was found.

    Attributes:
        params: of the throughput model.
        objective: its value there.
    """

    params: PerfParams
    objective: float


def objective(params: PerfParams, seen: Observations) -> float:
    """What `fit` makes small."""
    errors = (
        np.log(accumulation_time(params, seen.local)) - np.log(seen.accumulation_s),
        np.log(optimiser_time(params, seen.nodes, seen.replicas, seen.local))
        - np.log(seen.optimiser_s),
    )
    growth = (params.beta_n / params.alpha_n) ** 2 + (params.beta_r / params.alpha_r) ** 2
    return float(
        sum(np.sqrt(np.mean(error**2)) for error in errors)
        + OVERLAP_WEIGHT * (params.gamma - 1.0) ** 2
        + GROWTH_WEIGHT * growth
    )


def fit(
    seen: Observations,
    *,
    starts: Starts = "multi",
    warm: PerfParams | None = None,
    tolerance: float | None = None,
) -> Fit:
    """Find parameters for observations.

    Args:
        seen: at least one; keys are distinct.
        starts: `single` begins at the starting point of Pollux' code only; `multi` also at points
            made from the data.
        warm: an earlier fit to begin at as well.
        tolerance: relative improvement at which to stop; None: 1e-5.

    Raises:
        BadInput: no observation, or times that cannot be.
    """
    _check(seen)
    problem = _Problem(seen)
    points = [np.array(ORIGIN)]
    if warm is not None:
        points.append(np.clip(np.array(warm, np.float64), WARM_FLOOR, MOST))
    if starts == "multi":
        points.extend(problem.guesses())
    found = problem.improve(np.array(points), 1e-5 if tolerance is None else tolerance).tolist()
    if not problem.across.any():
        found[2] = max(found[2], SLOWER * found[4])
        found[3] = max(found[3], SLOWER * found[5])
    params = PerfParams(*found)
    return Fit(params, objective(params, seen))


def _check(seen: Observations) -> None:
    if not len(seen.local):
        raise BadInput("a fit of throughput needs at least one measured step")
    times = np.concatenate([seen.accumulation_s, seen.optimiser_s])
    if not (np.isfinite(times).all() and (times > 0).all()):
        raise BadInput("a fit of throughput needs times above 0 s")


class _Problem:
    """Observations as the arrays that every evaluation needs.

    Points are rows of log(alpha, beta)… and gamma. `across`, `within` say which observations
    synchronise over nodes, and inside one.
    """

    def __init__(self, seen: Observations) -> None:
        local = np.asarray(seen.local, np.float64)
        replicas = np.asarray(seen.replicas)
        self.across: Bools = np.asarray(seen.nodes) > 1
        self.within: Bools = ~self.across & (replicas > 1)
        more = np.maximum(replicas - 2.0, TINY)
        alone = ~(self.across | self.within)
        self.count = len(local)
        self.local, self.more = local, more
        self.log_accumulation = np.log(seen.accumulation_s)
        self.log_optimiser = np.log(seen.optimiser_s)
        self.optimiser = np.asarray(seen.optimiser_s, np.float64)
        # times are linear in the parameters before they overlap
        self.linear = np.zeros((6, self.count))
        self.linear[0], self.linear[1] = 1.0, local
        self.linear[2], self.linear[3] = self.across, self.across * more
        self.linear[4], self.linear[5] = self.within, self.within * more
        self.constant = np.where(alone, TINY * (1.0 + more), 0.0)
        self.fixed, self.value = self._priors(replicas, seen)

    def _priors(self, replicas: Ints, seen: Observations) -> tuple[Bools, Floats]:
        """Which parameters the observations say nothing about, and what they are taken to be."""
        fixed, value = np.zeros(FIELDS, np.bool_), np.full(FIELDS, TINY)
        if self.local.min() == self.local.max():
            fixed[0], value[0] = True, np.mean(seen.accumulation_s) / 2
        if not self.across.any():
            fixed[[2, 3]] = True
        if not self.within.any():
            fixed[[4, 5]] = True
        if not (replicas > 2).any():
            fixed[[3, 5]] = True
        return fixed, value

    def guesses(self) -> list[Floats]:
        """Starting points: least squares, for several degrees of overlap."""
        compute = self._line(np.ones(self.count, np.bool_), np.exp(self.log_accumulation))
        if self.fixed[0]:
            rest = np.exp(self.log_accumulation) - self.value[0]
            compute = (float(self.value[0]), max(float(np.mean(rest / self.local)), LEAST))
        busy = compute[0] + compute[1] * self.local
        points = []
        for gamma in OVERLAPS:
            rest = np.maximum(self.optimiser**gamma - busy**gamma, 0.0) ** (1.0 / gamma)
            across = self._growth(self.across, rest)
            within = self._growth(self.within, rest)
            points.append(np.array([*compute, *across, *within, gamma]))
        return points

    def _growth(self, rows: Bools, times: Floats) -> tuple[float, float]:
        """Constant and growth of network times; growth beyond the constant would be charged."""
        if not rows.any():
            return 0.1, 0.01
        constant, growth = self._line(rows, times, self.more)
        if growth > constant:
            constant = growth = float(times[rows].mean() / (1.0 + self.more[rows].mean()))
        return max(constant, LEAST), max(growth, LEAST)

    def _line(self, rows: Bools, times: Floats, by: Floats | None = None) -> tuple[float, float]:
        """Constant and slope of times, relative errors counting alike; both positive."""
        x, y = (self.local if by is None else by)[rows], times[rows]
        y = np.maximum(y, 1e-3 * max(float(y.max()), LEAST))
        weight = 1.0 / y**2
        total = weight.sum()
        mean_x, mean_y = (weight * x).sum() / total, (weight * y).sum() / total
        spread = (weight * (x - mean_x) ** 2).sum()
        slope = (weight * (x - mean_x) * (y - mean_y)).sum() / spread if spread > 0 else 0.0
        slope = min(max(slope, 1e-3 * mean_y / (1.0 + mean_x)), 0.95 * mean_y / max(mean_x, TINY))
        return max(mean_y - slope * mean_x, 1e-3 * mean_y), float(slope)

    # -- the search -------------------------------------------------------------------------------

    def improve(self, points: Floats, tolerance: float) -> Floats:
        """Go downhill from all points at once; returns the best one found."""
        points = np.where(self.fixed, self.value, points)
        points[:, :6] = np.log(np.maximum(points[:, :6], LEAST))
        points = np.minimum(np.maximum(points, LOWEST), HIGHEST)
        damping = np.full(len(points), 1e-2)
        value, gradient, curve = self._look(points)
        best, least = points[0], np.inf
        for turn in range(ROUNDS):
            step, gain = self._step(points, gradient, curve, damping)
            going = gain > tolerance * np.maximum(value, TINY)
            if turn == TRIAL_ROUNDS:
                going &= value <= np.sort(value)[min(KEPT, len(value)) - 1]
            if turn >= TRIAL_ROUNDS:  # a fit that is behind and creeps will not overtake
                ahead = min(least, float(value.min()))
                going &= (value <= ahead) | (value - HOPE * gain < ahead)
            if not going.all():
                now = int(value.argmin())
                if value[now] < least:
                    best, least = points[now].copy(), float(value[now])
                if not going.any():
                    break
                points, value, damping, step = (
                    column[going] for column in (points, value, damping, step)
                )
                gradient, curve = gradient[going], curve[going]
            tried = np.minimum(np.maximum(points + step, LOWEST), HIGHEST)
            new_value, new_gradient, new_curve = self._look(tried)
            better = new_value < value
            damping = np.where(better, np.maximum(damping * 0.2, 1e-9), damping * 6.0)
            points[better], value[better] = tried[better], new_value[better]
            gradient[better], curve[better] = new_gradient[better], new_curve[better]
        last = int(value.argmin())
        if value[last] < least:
            best, least = points[last], float(value[last])
        best[:6] = np.exp(best[:6])
        return np.where(self.fixed, self.value, best)

    def _step(
        self, points: Floats, gradient: Floats, curve: Floats, damping: Floats
    ) -> tuple[Floats, Floats]:
        """A damped Newton step from each point, and how far down it should lead."""
        outward = np.where(gradient > 0, points <= LOWEST, points >= HIGHEST)
        held = self.fixed | outward
        free = ~held
        system = curve * (free[:, :, None] & free[:, None, :])
        diagonal = np.einsum("sii->si", system)  # a view
        diagonal += damping[:, None] * (diagonal + 1e-6) + 1e-12
        diagonal[held] = 1.0
        down = -np.where(held, 0.0, gradient)[..., None]
        step = np.asarray(np.linalg.solve(system, down)[..., 0], np.float64)
        gain = -0.5 * np.einsum("sp,sp->s", gradient, step)  # of the step that is not cut short
        return np.minimum(np.maximum(step, -LONGEST_STEP), LONGEST_STEP), gain

    def _look(self, points: Floats) -> tuple[Floats, Floats, Floats]:
        """Value, gradient and (bounded) curvature of the objective at each point."""
        sizes, gamma = np.exp(points[:, :6]), points[:, 6:]
        parts = sizes[:, :, None] * self.linear  # [point, parameter, observation]
        compute = parts[:, 0] + parts[:, 1]
        network = parts[:, 2] + parts[:, 3] + parts[:, 4] + parts[:, 5] + self.constant
        log_compute, log_network = np.log(compute), np.log(network)
        ahead = gamma * (log_network - log_compute)
        # log(1 + e^x) without overflow, and its slope
        small = np.exp(-np.abs(ahead))
        both = np.maximum(ahead, 0.0) + np.log1p(small)
        of_network = np.where(ahead > 0, 1.0, small) / (1.0 + small)
        error_c = log_compute - self.log_accumulation
        error_o = log_compute + both / gamma - self.log_optimiser
        slopes = np.empty((len(points), FIELDS, self.count))
        slopes_c = parts[:, :2] / compute[:, None]
        slopes[:, :2] = slopes_c * (1.0 - of_network)[:, None]
        slopes[:, 2:6] = parts[:, 2:] * (of_network / network)[:, None]
        slopes[:, 6] = (of_network * ahead - both) / gamma**2
        size_c = np.sqrt(np.einsum("sn,sn->s", error_c, error_c) / self.count)
        size_o = np.sqrt(np.einsum("sn,sn->s", error_o, error_o) / self.count)
        scale_c = 1.0 / (self.count * np.maximum(size_c, FINEST))
        scale_o = 1.0 / (self.count * np.maximum(size_o, FINEST))
        gradient = np.matmul(slopes, error_o[..., None])[..., 0] * scale_o[:, None]
        curve = np.matmul(slopes, slopes.transpose(0, 2, 1)) * scale_o[:, None, None]
        gradient[:, :2] += np.matmul(slopes_c, error_c[..., None])[..., 0] * scale_c[:, None]
        curve[:, :2, :2] += (
            np.matmul(slopes_c, slopes_c.transpose(0, 2, 1)) * scale_c[:, None, None]
        )
        # what is charged: overlap, and the growth of both network times against their constants
        over = points[:, 6] - 1.0
        growth = np.exp(2.0 * (points[:, GROWTHS] - points[:, CONSTANTS]))
        charged = np.concatenate([np.ones((len(points), 1)), over[:, None], growth], axis=1)
        value = size_c + size_o + OVERLAP_WEIGHT * over**2 + GROWTH_WEIGHT * growth.sum(axis=1)
        gradient += charged @ CHARGE_SLOPES
        curve += (charged @ CHARGE_CURVES).reshape(curve.shape)
        return value, gradient, curve


def _charges() -> tuple[Floats, Floats]:
    """Slopes and curvature of the charges, by 1, gamma − 1, and both growths squared."""
    slopes, curves = np.zeros((4, FIELDS)), np.zeros((4, FIELDS, FIELDS))
    slopes[1, 6] = curves[0, 6, 6] = 2 * OVERLAP_WEIGHT
    for place, (constant, growth) in enumerate(zip(CONSTANTS, GROWTHS, strict=True), start=2):
        slopes[place, growth], slopes[place, constant] = 2 * GROWTH_WEIGHT, -2 * GROWTH_WEIGHT
        for one, other in ((growth, growth), (constant, constant)):
            curves[place, one, other] = 4 * GROWTH_WEIGHT
        for one, other in ((growth, constant), (constant, growth)):
            curves[place, one, other] = -4 * GROWTH_WEIGHT
    return slopes, curves.reshape(4, -1)


CHARGE_SLOPES, CHARGE_CURVES = _charges()
