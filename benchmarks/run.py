"""Measure dlsched and compare: `python benchmarks/run.py [NAMES] [--check] [--against COMMIT]`.

A name is a group or "group/case". Every case is a fresh process; what counts is its CPU time, since
wall time on a shared machine says more about its other work. Seconds are only comparable on one
machine at one load, so each case is also shown in yardsticks, the CPU time of a fixed loop of plain
Python measured right before and after it, and as a multiple of another case of the same run.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import tempfile
from collections.abc import Iterable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

if __package__ in (None, ""):  # run as a script: the project's own folder comes first
    sys.path.insert(0, str(Path(__file__).parent.parent))

from benchmarks.against import compare
from benchmarks.cases import GROUPS, Case, Workloads, all_cases
from benchmarks.measure import (
    Cost,
    calls_per_decision,
    figures_of,
    heading,
    machine_line,
    measure,
    yardstick_s,
)

__all__ = ["main"]

BLOX_CONFIGURATIONS = 12  # published ones, which together may cost BLOX_CPU_S
BLOX_CPU_S = 30.0

LIMITS = ("cpu_s", "yardsticks", "wall_s", "peak_mb", "calls_per_decision")

Row = dict[str, Any]


def main(words: Sequence[str] | None = None) -> int:
    """Measure, print, and with --check say whether every budget was kept (exit code 1 if not)."""
    given = _arguments(words)
    first = heading()
    rows: list[Row] = []
    with tempfile.TemporaryDirectory(prefix="dlsched-benchmarks-") as folder:
        cases = all_cases(given.names, Workloads(Path(folder)))
        if given.against:
            rows = compare(cases, given.against, given.repeat)
        else:
            rows = _measured(cases, given.repeat)
    broken = [f"{row['name']}: {why}" for row in rows for why in row.get("broken", ())]
    if given.json:
        document = {
            "schema": "dlsched.benchmarks/2",
            "machine": machine_line(),
            "yardstick_cpu_s": first,
            "against": given.against,
            "cases": rows,
        }
        Path(given.json).write_text(json.dumps(document, indent=2) + "\n")
    if not rows:
        print("nothing was measured: no such case, or its data is not there", file=sys.stderr)
        return 2
    if given.check:
        print("\n" + ("over budget:\n  " + "\n  ".join(broken) if broken else "all within budget"))
        return 1 if broken else 0
    return 0


def _arguments(words: Sequence[str] | None) -> argparse.Namespace:
    listing = "\n".join(f"  {name:10} {about}" for name, about in GROUPS.items())
    parser = argparse.ArgumentParser(
        prog="benchmarks",
        description=f"Measure dlsched.\n\ngroups:\n{listing}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("names", nargs="*", help="groups or group/case; all when left out")
    parser.add_argument("--json", metavar="OUT", help="also write the figures there")
    parser.add_argument("--check", action="store_true", help="exit 1 when a budget is exceeded")
    parser.add_argument("--repeat", type=int, default=0, help="runs a case; the median counts")
    parser.add_argument("--against", metavar="COMMIT", help="run each case in that commit too")
    given = parser.parse_args(words)
    unknown = [name for name in given.names if name.partition("/")[0] not in GROUPS]
    if unknown:
        parser.error(f"no such group: {', '.join(unknown)}; there are {', '.join(GROUPS)}")
    return given


def _measured(cases: Iterable[Case], repeats: int) -> list[Row]:
    """Run the cases one after the other and print a line for each."""
    rows: list[Row] = []
    group = ""
    for case in cases:
        if case.group != group:
            group = case.group
            print(f"{group}: {GROUPS[group]}", flush=True)
        rows.append(_run(case, repeats or case.repeats, rows))
        print(_line(rows[-1]), flush=True)
    return [*rows, *_together(rows)]


def _median(costs: list[Cost]) -> Cost:
    """The run in the middle, by CPU time."""
    middle = statistics.median_low([cost.cpu_s for cost in costs])
    return next(cost for cost in costs if cost.cpu_s == middle)


def _run(case: Case, repeats: int, before: list[Row]) -> Row:
    yardstick = yardstick_s()
    costs = [measure(case.command) for _ in range(repeats)]
    yardstick = (yardstick + yardstick_s()) / 2
    cost = _median(costs)
    known = {row["name"]: row for row in before}
    row: Row = {
        "name": case.name,
        "cpu_s": round(cost.cpu_s, 3),
        "yardsticks": round(cost.cpu_s / yardstick, 3),
        "wall_s": round(min(cost.wall_s for cost in costs), 3),
        "peak_mb": round(cost.peak_mb, 1),
        "runs": [round(cost.cpu_s, 3) for cost in costs],
        "budget": {key: value for key, value in asdict(case.budget).items() if value},
        "figures": figures_of(cost.output),
    }
    if case.counts_calls:
        row["calls_per_decision"] = round(calls_per_decision(case.command), 1)
    other = known.get(case.compared_to)
    if other is not None:
        row["times"] = {
            "of": case.compared_to,
            "cpu": round(row["cpu_s"] / other["cpu_s"], 2),
            "memory": round(row["peak_mb"] / other["peak_mb"], 2),
        }
    row["broken"] = _broken(row, known)
    theirs = other["figures"] if other is not None and case.group == "reference" else {}
    for figure in ("avg_jct", "preemptions"):
        if theirs and theirs.get(figure) != row["figures"].get(figure):
            ours, plain = theirs.get(figure), row["figures"].get(figure)
            row["broken"].append(f"{figure} {ours} differs from the reference's {plain}")
    return row


def _broken(row: Row, known: dict[str, Row]) -> list[str]:
    budget = row["budget"]
    found = [
        f"{row[key]:g} {key}, at most {budget[key]:g}"
        for key in LIMITS
        if key in budget and row[key] > budget[key]
    ]
    base = known.get(budget.get("of", ""))
    most = budget.get("memory_factor")
    if base is not None and most is not None and row["peak_mb"] > most * base["peak_mb"]:
        times = row["peak_mb"] / base["peak_mb"]
        found.append(f"peak_mb is {times:.1f} times that of {base['name']}, at most {most:g}")
    return found


def _together(rows: list[Row]) -> list[Row]:
    """The Blox configurations as one figure, held against their part of the budget."""
    parts = [row for row in rows if row["name"].startswith("blox/")]
    if not parts:
        return []
    cpu = sum(row["cpu_s"] for row in parts)
    limit = BLOX_CPU_S * min(len(parts) / BLOX_CONFIGURATIONS, 1.0)
    print(f"  {'blox, all ' + str(len(parts)):28} {cpu:8.2f} CPU-s   (budget {limit:g})")
    broken = [f"{cpu:.1f} cpu_s, at most {limit:g}"] if cpu > limit else []
    return [{"name": "blox", "cpu_s": round(cpu, 3), "broken": broken, "budget": {"cpu_s": limit}}]


def _line(row: Row) -> str:
    text = f"  {row['name']:28} {row['cpu_s']:8.2f} CPU-s {row['wall_s']:8.2f} s "
    text += f"{row['yardsticks']:8.2f} yardsticks {row['peak_mb']:8.0f} MB"
    if "calls_per_decision" in row:
        text += f"   {row['calls_per_decision']:.0f} calls a decision"
    if "times" in row:
        times = row["times"]
        text += f"   {times['cpu']:g}x CPU, {times['memory']:g}x memory of {times['of']}"
    for why in row["broken"]:
        text += f"   OVER: {why}"
    return text


if __name__ == "__main__":
    raise SystemExit(main())
