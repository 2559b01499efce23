"""A page with the running jobs and small curves of their trainings, for a browser; read-only.

It is served beside the metrics, to everyone who can read these, and shows no metric that a user has
named. It is made in the daemon's thread when it is asked for, at most once a second.
"""

from __future__ import annotations

import asyncio
import html
from collections.abc import Iterable, Sequence

from dlsched.daemon.cluster import Cluster
from dlsched.daemon.reported.curves import Curve
from dlsched.daemon.training.current import values_now
from dlsched.host_lists import fold
from dlsched.protocol.ledger import Run
from dlsched.system.clock import boottime

MOST_JOBS = 100
PATIENCE_S = 5.0
KEPT_S = 1.0
WIDTH, HEIGHT = 160, 28  # of a curve, in pixels
_SHOWN = {"loss": "loss", "steps_s": "steps/s", "gpu_utilization": "GPU use"}  # as curves
_STYLE = (
    "body{font:14px system-ui,sans-serif;margin:1.5em}table{border-collapse:collapse}"
    "td,th{padding:.25em .75em;text-align:right;border-bottom:1px solid #ddd}"
    "td.t,th.t{text-align:left}polyline{fill:none;stroke:#2563a8;stroke-width:1.5}"
)
_HEAD = (
    "<!doctype html><html lang=en><meta charset=utf-8><meta http-equiv=refresh content=10>"
    f"<style>{_STYLE}</style>"
)
_TITLES = (
    "<table><tr><th>job<th class=t>name<th class=t>user<th>GPUs<th class=t>nodes<th>step<th>loss"
    "<th>steps/s<th>samples/s<th>GPU use<th>GPU memory<th>reported<th class=t>loss<th class=t>"
    "steps/s<th class=t>GPU use"
)


class TrainingPage:
    """The page of one daemon, for the threads that answer browsers."""

    def __init__(self, cluster: Cluster, loop: asyncio.AbstractEventLoop) -> None:
        self._cluster, self._loop = cluster, loop
        self._made_at, self._content = float("-inf"), b""

    def __call__(self) -> bytes:
        """Return the page; called in another thread, it is made in the daemon's."""
        return asyncio.run_coroutine_threadsafe(self._make(), self._loop).result(PATIENCE_S)

    async def _make(self) -> bytes:
        if boottime() - self._made_at > KEPT_S:
            self._content = page(self._cluster).encode("utf-8", "replace")
            self._made_at = boottime()
        return self._content


def page(cluster: Cluster) -> str:
    """The page as HTML."""
    ledger = cluster.driver.committed
    runs = sorted(
        (run for job in ledger.jobs if (run := ledger.live_run(job)) is not None and run.released),
        key=lambda run: -run.key.job,
    )
    name = html.escape(cluster.settings.cluster.name)
    count = f"{len(runs)} running jobs"
    if len(runs) > MOST_JOBS:
        count += f", of which the newest {MOST_JOBS} are shown"
    rows = "".join(_row(cluster, run) for run in runs[:MOST_JOBS])
    head = f"{_HEAD}<title>{name}</title><h1>{name}</h1><p>{count}</p>{_TITLES}"
    return f"{head}{rows}</table></html>"


def _row(cluster: Cluster, run: Run) -> str:
    job = run.key.job
    table, mine = cluster.driver.table, cluster.curves.jobs.get(job)
    row = cluster.driver.committed.jobs[job]
    spec, values = table.spec(row), values_now(cluster, job, run)
    loss = "nan" if mine is not None and "loss" in mine.not_finite else _number(values.get("loss"))
    use, memory, age = (
        values.get(key) for key in ("gpu_utilization", "gpu_memory_bytes", "report_age_s")
    )
    gpus = sum(len(member.gpus) for member in run.members.values())
    texts = [fold(run.members), "-" if mine is None or mine.step is None else str(mine.step), loss]
    texts += [_number(values.get(key)) for key in ("steps_s", "samples_s")]
    texts += [
        "-" if use is None else f"{use:.0%}",
        "-" if memory is None else f"{memory / 2**30:.1f} GiB",
        "-" if age is None else f"{age:.0f} s ago",
    ]
    left = [str(job), table.field(row, "name") or "-", spec.user, str(gpus), *texts]
    curves = [mine.curves.get(key, Curve()) if mine is not None else Curve() for key in _SHOWN]
    cells = "".join(
        f"<td{' class=t' if place in (1, 2, 4) else ''}>{html.escape(text)}"
        for place, text in enumerate(left)
    )
    return f"<tr>{cells}" + "".join(f"<td class=t>{_svg(curve.all())}" for curve in curves)


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:.4g}"


def _svg(points: Sequence[tuple[float, int, float]]) -> str:
    """A curve of points (time, step, value) as an inline picture; empty for fewer than two."""
    if len(points) < 2:
        return ""
    xs = _scaled([at for at, _, _ in points], WIDTH)
    ys = _scaled([-value for _, _, value in points], HEIGHT)
    dots = " ".join(f"{x:.1f},{y:.1f}" for x, y in zip(xs, ys, strict=True))
    return (
        f'<svg width="{WIDTH}" height="{HEIGHT}" viewBox="-1 -1 {WIDTH + 2} {HEIGHT + 2}">'
        f'<polyline points="{dots}"/></svg>'
    )


def _scaled(values: Iterable[float], length: float) -> list[float]:
    """Values moved and scaled to 0..length; all in the middle when they are equal."""
    some = list(values)
    least, span = min(some), max(some) - min(some)
    return [length * (value - least) / span if span else length / 2 for value in some]
