"""`sprio`: the points of waiting jobs, factor by factor."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from dlsched.cli.jobs.job_filter import FilterOptions, job_filter
from dlsched.cli.slurm.arguments import Arguments, joined
from dlsched.cli.slurm.formats import Cell, by_letters, lines, of_each
from dlsched.client.daemon_client import Client
from dlsched.client.job_records import Job
from dlsched.core.errors import DlschedError

USUAL = "%.15i %9r %.10Y %.10A %.10F %.10J %.10Q"
LONG = "%.15i %9r %8u %.10Y %.10A %.10F %.10J %.10Q %.11N"


class Ranked(NamedTuple):
    """A waiting job and its points by factor."""

    job: Job
    points: Mapping[str, float]


def _points(name: str, sign: int = 1) -> Callable[[Ranked], str]:
    def text(ranked: Ranked) -> str:
        points = ranked.points.get(name, math.nan)
        return "" if math.isnan(points) else f"{sign * points:.0f}".replace("-0", "0")

    return text


CELLS: dict[str, Cell[Ranked]] = {
    "i": Cell("JOBID", lambda ranked: ranked.job.shown_id),
    "r": Cell("PARTITION", lambda ranked: ranked.job.partition or ""),
    "u": Cell("USER", lambda ranked: ranked.job.user or ""),
    "o": Cell("ACCOUNT", lambda ranked: ranked.job.account or ranked.job.vc or ""),
    "n": Cell("QOSNAME", lambda ranked: ranked.job.priority_class or ""),
    "Y": Cell("PRIORITY", _points("total")),
    "A": Cell("AGE", _points("age")),
    "F": Cell("FAIRSHARE", _points("fair_share")),
    "J": Cell("JOBSIZE", _points("size")),
    "Q": Cell("QOS", _points("class")),
    "N": Cell("NICE", _points("nice", -1)),
}


def _parser() -> Arguments:
    found = Arguments("sprio", "The points of waiting jobs, factor by factor.")
    option = found.option
    option("-j", "--jobs", help="these")
    option("-u", "--user", help="of these users")
    option("-p", "--partition", help="in these partitions")
    option("-l", "--long", flag=True, help="more columns")
    option("-n", "--norm", flag=True)
    option("-h", "--noheader", flag=True, help="without the titles")
    option("-o", "--format", help=f"letters: {USUAL}".replace("%", "%%"))
    return found


def sprio(words: Sequence[str]) -> int:
    """List waiting jobs, the first in the order first."""
    given = _parser().read(words)
    if given.norm:
        raise DlschedError("-n: factors are shown as points; their weights are options of policy")
    parts = by_letters(given.format[-1] if given.format else LONG if given.long else USUAL, CELLS)
    wanted = job_filter(
        given.jobs,
        FilterOptions(users=joined(given.user) or None, partitions=joined(given.partition) or None),
        states=["PENDING"],
        all_users=not given.jobs and not given.user,
    )
    with Client() as cluster:
        found = cluster.queue(wanted, unfold=True, brief=True).rows()
        policy, order, terms = cluster.order()
    if found and policy != "multifactor":
        raise DlschedError(f"policy {policy} has no points; `dlsched show JOB --why-order`")
    place = {job: number for number, job in enumerate(order)}
    rows = [row for row in found if isinstance(row, Job) and row.job_id in place]
    rows.sort(key=lambda row: place[row.job_id])
    ranked = [Ranked(row, {n: v[place[row.job_id]] for n, v in terms.items()}) for row in rows]
    for line in lines(parts, *of_each(ranked), header=not given.noheader):
        print(line)
    return 0
