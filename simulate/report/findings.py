"""What a reader should take away, in sentences made from the summary figures."""

from __future__ import annotations

import math
from collections.abc import Sequence

from dlsched.core.errors import plural
from simulate.report.compare import value_text
from simulate.report.intervals import paired_difference
from simulate.report.metrics import BY_KEY, Metric, standing, value_of, values_of
from simulate.report.study import Group, Study, load_text
from simulate.report.wording import count_text, duration_text, share_text


def findings(study: Study) -> tuple[str, ...]:
    """At most five sentences; for several loads they speak of each load's best average JCT."""
    if not study.groups:
        return ()
    if len(study.labels) == 1 and len(study.loads) == 1:
        return about_one(study.groups[0])
    said: list[str] = []
    if len(study.labels) > 1:
        for load in study.loads[-4:]:
            said.extend(best_jct(study.at(load), load if len(study.loads) > 1 else None))
    last = study.at(study.loads[-1])
    where = f"At {load_text(study.loads[-1])}, " if len(study.loads) > 1 else ""
    if len(last) > 1:
        said.extend(spread(last, BY_KEY["gpu_utilization"], where))
        said.extend(cost(last, where))
    return tuple(said)


def about_one(group: Group) -> tuple[str, ...]:
    """A single policy: what happened to its jobs."""
    run = group.first
    said = []
    total = value_of(run, BY_KEY["completed"])
    jobs = len(run.jobs)
    if math.isfinite(total):
        said.append(f"{count_text(total)} of {plural(jobs, 'job')} completed under {group.label}.")
    mean, median, p99 = (value_of(run, BY_KEY[k]) for k in ("avg_jct", "median_jct", "p99_jct"))
    if math.isfinite(mean) and jobs >= 100:
        said.append(
            f"Jobs took {duration_text(mean)} on average from submit to finish; half took at most "
            f"{duration_text(median)}, one in a hundred more than {duration_text(p99)}."
        )
    used = value_of(run, BY_KEY["gpu_utilization"])
    if math.isfinite(used):
        said.append(f"{share_text(used)} of the GPU-time until the last finish was allocated.")
    return tuple(said)


def best_jct(groups: tuple[Group, ...], load: float | None) -> list[str]:
    """Which policy has the lowest average JCT, compared with the others, and how sure that is."""
    metric = BY_KEY["avg_jct"]
    found = standing(groups, metric)
    rest = [
        i for i, e in enumerate(found.estimates) if i not in found.best and math.isfinite(e.mean)
    ]
    if not found.best or not rest:
        return []
    winner = min(found.best)
    worst = max(rest, key=lambda i: found.estimates[i].mean)
    second = min(rest, key=lambda i: found.estimates[i].mean)
    best = found.estimates[winner].mean
    lead = f"At {load_text(load)}, " if load is not None else ""
    verb = "has" if len(found.best) == 1 else "have"
    names = listed([groups[i].label for i in sorted(found.best)])
    text = f"{lead}{names} {verb} the lowest average JCT: {duration_text(best)}"
    against = [second] if second == worst else [second, worst]
    text += ", " + " and ".join(
        f"{share_text(1 - best / found.estimates[i].mean, 2)} below {groups[i].label} "
        f"({duration_text(found.estimates[i].mean)})"
        for i in against
    )
    gap = paired_difference(values_of(groups[second], metric), values_of(groups[winner], metric))
    if gap.seeds > 1:
        text += (
            f"; with {gap.seeds} seeds the lead over {groups[second].label} "
            + ("cannot be told from chance" if second in found.near else "is significant")
            + " (95 %, paired)"
        )
    return [text + "."]


def listed(names: Sequence[str]) -> str:
    """`a`, `a and b`, `a, b and 3 others`."""
    if len(names) > 3:
        names = [*names[:2], plural(len(names) - 2, "other")]
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"


def spread(groups: Sequence[Group], metric: Metric, where: str) -> list[str]:
    """The lowest and the highest of a figure."""
    found = standing(tuple(groups), metric)
    known = [(e.mean, g.label) for e, g in zip(found.estimates, groups, strict=True)]
    known = sorted(k for k in known if math.isfinite(k[0]))
    if len(known) < 2:
        return []
    (low, lowest), (high, highest) = known[0], known[-1]
    name = metric.name
    if value_text(low, metric) == value_text(high, metric):
        return [f"{where}{name} is {value_text(low, metric)} under every policy."]
    return [
        f"{where}{name} lies between {value_text(low, metric)} ({lowest}) and "
        f"{value_text(high, metric)} ({highest})."
    ]


def cost(groups: Sequence[Group], where: str) -> list[str]:
    """Which policy loses most GPU time."""
    found = standing(tuple(groups), BY_KEY["lost"])
    known = [(e.mean, g.label) for e, g in zip(found.estimates, groups, strict=True)]
    known = [k for k in known if math.isfinite(k[0]) and k[0] > 0]
    if not known:
        return []
    share, label = max(known)
    return [f"{where}{label} loses most GPU time to restarts: {share_text(share)} of what it held."]


def cautions(study: Study) -> tuple[str, ...]:
    """What would mislead a reader who only looks at the figures, after the runs' own warnings."""
    said: list[str] = []
    runs = study.runs
    every: dict[str, list[str]] = {}
    for run in runs:
        for warning in run.warnings:
            every.setdefault(warning, []).append(run.label)
    for warning, labels in every.items():
        names = list(dict.fromkeys(labels))
        named = "" if len(names) == len(study.labels) else f" ({', '.join(names)})"
        said.append(f"{warning}{named}")
    part = next((run for run in runs if value_of(run, BY_KEY["jobs"]) < len(run.jobs)), None)
    if part is not None:
        said.append(
            f"Figures and distributions are over {count_text(value_of(part, BY_KEY['jobs']))} of "
            f"{plural(len(part.jobs), 'job')} (a warm-up or tracked jobs); "
            "pictures over time show all."
        )
    for load in study.loads:
        groups = study.at(load)
        done = [values_of(g, BY_KEY["completed"]) for g in groups]
        seeds = set.intersection(*(set(d) for d in done)) if done else set()
        if any(len({d[s] for d in done if math.isfinite(d[s])}) > 1 for s in seeds):
            where = f" at {load_text(load)}" if len(study.loads) > 1 else ""
            said.append(
                f"Policies completed different numbers of jobs{where}: JCT figures are over "
                "different jobs and favour a policy that leaves slow jobs unfinished."
            )
    return tuple(said)
