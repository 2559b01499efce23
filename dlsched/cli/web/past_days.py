"""The past days as a figure: how jobs ended, how long they waited, and where GPU time went."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from datetime import datetime

import numpy as np

from dlsched.cli.web.cluster_view import DAYS, MOST_ENDED
from dlsched.client.job_records import Job
from dlsched.core.errors import plural
from dlsched.core.sums import ordered_sum
from simulate.report.cdf import cdf
from simulate.report.drawing.charts import Bar, Bars, Curve, Curves, Figure, Key, Panel
from simulate.report.drawing.scale import log_duration_axis, nice_axis, time_axis
from simulate.report.wording import duration_text
from simulate.results.tables import Floats

BIN_S = 3 * 3600.0
MOST_USERS = 10
SIZES = ((1, 1, "1 GPU"), (2, 7, "2 to 7"), (8, 1 << 30, "8 and more"))
NAN = float("nan")


def past_days_figure(ended: Sequence[Job], now: float) -> Figure:
    """The figure.

    Args:
        ended: jobs that have ended.
        now: seconds since the epoch.
    """
    title = f"Jobs that ended in the past {DAYS} days"
    if not ended:
        return Figure(key="past", title=title, absent="No job has ended.")
    states = [state for state, _ in Counter(job.state for job in ended).most_common()]
    series = {state: k for k, state in enumerate(states)}
    panels: list[Panel] = [_ends(ended, series, now)]
    if _known(job for job in ended if job.gpus).size:  # some may have ended before they began
        panels += [_delays(ended), _gpu_time(ended)]
    count = plural(len(ended), "job")
    caption = f"{count}; at the left, jobs that ended in three hours, by their end."
    if len(ended) == MOST_ENDED:
        caption += " The newest are shown; there are more."
    return Figure(
        key="past",
        title=title,
        caption=caption,
        legend=tuple(Key(state.lower().replace("_", " "), k) for state, k in series.items()),
        panels=tuple(panels),
    )


def _ends(ended: Sequence[Job], series: dict[str, int], now: float) -> Curves:
    length = DAYS * 86400.0
    begin = now - length
    edges = np.arange(0.0, length + BIN_S / 2, BIN_S)
    counts = {
        state: np.histogram(
            [(j.ended_at or now) - begin for j in ended if j.state == state], edges
        )[0]
        for state in series
    }
    curves = tuple(
        Curve(
            label=state.lower(),
            series=k,
            x=edges,
            y=np.append(counts[state], counts[state][-1]).astype(np.float64),
            step=True,
        )
        for state, k in series.items()
    )
    top = max(float(each.max()) for each in counts.values())
    return Curves(
        title="Jobs that ended, by state",
        x=time_axis(f"time since {datetime.fromtimestamp(begin):%a %d %b, %H:%M}", 0.0, length),
        y=nice_axis("jobs", "number", top),
        curves=curves,
        wide=True,
        height=220.0,
    )


def _delays(ended: Sequence[Job]) -> Curves:
    by_size = [
        (name, _known(job for job in ended if least <= job.gpus <= most))
        for least, most, name in SIZES
    ]
    some = [(name, delays) for name, delays in by_size if delays.size]
    curves = []
    for k, (name, delays) in enumerate(some):
        shares = cdf(delays)
        label = f"{name}: {duration_text(float(np.median(delays)))}"
        curves.append(Curve(label=label, series=k, x=shares.value, y=shares.share, step=True))
    return Curves(
        title="Share of jobs started within a time; medians",
        x=log_duration_axis("queueing delay", [delays for _, delays in some], zero=True),
        y=nice_axis("", "share", 1.0),
        curves=tuple(curves),
        direct=True,
    )


def _known(jobs: Iterable[Job]) -> Floats:
    return np.array(
        [
            job.first_started_at - job.submitted_at
            for job in jobs
            if job.first_started_at is not None and job.submitted_at is not None
        ],
        np.float64,
    )


def _gpu_time(ended: Sequence[Job]) -> Bars:
    hours: defaultdict[str, float] = defaultdict(float)
    for job in ended:
        hours[job.user or "-"] += (job.gpu_s or 0.0) / 3600.0
    first = sorted(hours.items(), key=lambda each: (-each[1], each[0]))[:MOST_USERS]
    bars = [Bar(user, 0, value, NAN, NAN, f"{value:,.1f} h", best=False) for user, value in first]
    rest = ordered_sum(hours.values()) - ordered_sum(value for _, value in first)
    if len(hours) > MOST_USERS:
        bars.append(Bar("others", 6, rest, NAN, NAN, f"{rest:,.1f} h", best=False))
    top = max(bar.value for bar in bars)
    return Bars(
        title="GPU hours of these jobs, by user",
        x=nice_axis("GPU hours", "number", top),
        bars=tuple(bars),
    )
