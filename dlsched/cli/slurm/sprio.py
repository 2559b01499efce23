"""`sprio`: the points of waiting jobs, factor by factor."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from dlsched.cli.jobs.job_filter import FilterOptions, job_filter
from dlsched.cli.slurm.arguments import Arguments, joined
from dlsched.cli.slurm.formats import Cell, by_letters, lines, of_each
from dlsched.client.daemon_client import Client
from dlsched.client.records import Detail
from dlsched.core.errors import DlschedError

USUAL = "%.15i %9r %.10Y %.10A %.10F %.10J %.10Q"
LONG = "%.15i %9r %8u %.10Y %.10A %.10F %.10J %.10Q %.11N"


def _points(name: str, sign: int = 1) -> Callable[[Detail], str]:
    def text(detail: Detail) -> str:
        points = detail.order_numbers.get(name)
        return "" if points is None else f"{sign * float(points):.0f}".replace("-0", "0")

    return text


CELLS: dict[str, Cell[Detail]] = {
    "i": Cell("JOBID", lambda detail: detail.job.shown_id),
    "r": Cell("PARTITION", lambda detail: detail.job.partition or ""),
    "u": Cell("USER", lambda detail: detail.job.user or ""),
    "o": Cell("ACCOUNT", lambda detail: detail.job.account or detail.job.vc or ""),
    "n": Cell("QOSNAME", lambda detail: detail.job.priority_class or ""),
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
        found = [each for each in cluster.show(wanted, why_order=True) if each.job.is_pending]
    ranked = [each for each in found if "total" in each.order_numbers]
    policy = found[0].order_numbers.get("policy", "") if found else ""
    if policy and policy != "multifactor":
        raise DlschedError(f"policy {policy} has no points; `dlsched show JOB --why-order`")
    ranked.sort(key=lambda each: int(each.order_numbers["position"]))
    for line in lines(parts, *of_each(ranked), header=not given.noheader):
        print(line)
    return 0
