"""`dlsched replay --snapshot`: a saved live state continued under its own and other policies."""

from __future__ import annotations

import csv
import io
import json
import sys
from collections.abc import Iterator, Sequence
from itertools import product
from pathlib import Path
from typing import TextIO

import numpy as np

from dlsched.cli.replay.call import WITH_SNAPSHOT, ReplayCall, given_beside
from dlsched.cli.replay.option_values import several
from dlsched.cli.replay.text_table import TextTable
from dlsched.core.errors import BadInput, DlschedError, plural
from dlsched.daemon.round.parts import RoundSettings, live_parts, options_left_out
from dlsched.daemon.round.running_on import RunOn, run_on
from dlsched.daemon.round.snapshot import LiveSnapshot, read_snapshot
from simulate.report.wording import duration_text

AS_IT_IS = "as it is"
_STAGES = {
    "policy": "scheduling",
    "placement": "placement",
    "admission": "admission",
    "fairness": "fairness",
    "estimate": "estimator",
    "host": "host",
}
_TITLES = {
    "jobs": "jobs",
    "never_start": "never start",
    "avg_jct": "avg JCT",
    "p95_jct": "p95 JCT",
    "avg_start_in": "avg start in",
    "makespan": "all done in",
}


def replay_snapshot(call: ReplayCall, file: str) -> int:
    """Continue a saved snapshot under its own policy and each policy named; return the exit code.

    Raises:
        BadInput: the file is not a snapshot, or an option does not go with one.
    """
    other = given_beside(call, WITH_SNAPSHOT)
    if other is not None:
        raise BadInput(f"{other}: does not go with --snapshot, which has its own jobs and nodes")
    snapshot = read_snapshot(file)
    if snapshot.later.get("gpu_limits", {}).get("holders"):
        print(
            f"dlsched: warning: {file} is of an older release: its quotas on GPUs are not kept",
            file=sys.stderr,
        )
    left_out = options_left_out(snapshot.settings)
    others = list(_others(call, snapshot, left_out))
    if left_out:
        why = f"{file}: policy {snapshot.settings.policy} no longer has {', '.join(left_out)}"
        if not others:
            raise BadInput(f"{why}: name a policy to go on with (--policy)")
        print(f"dlsched: warning: {why}: it is not continued as it is", file=sys.stderr)
    runs = [] if left_out else [(AS_IT_IS, run_on(snapshot))]
    runs += [(name, run_on(snapshot, settings)) for name, settings in others]
    out = sys.stderr if "-" in (call.jobs_out, call.summary_out) else sys.stdout
    _tell(file, snapshot, runs, out)
    if call.jobs_out is not None:
        _write(call.jobs_out, _rows(runs))
    if call.summary_out is not None:
        told = [{"policy": run.policy, "name": name, **run.figures()} for name, run in runs]
        _write(call.summary_out, json.dumps(told, indent=1) + "\n")
    return 0


def _others(
    call: ReplayCall, snapshot: LiveSnapshot, left_out: Sequence[str]
) -> Iterator[tuple[str, RoundSettings]]:
    """Yield other settings, named by what differs from the snapshot's, but without `left_out`."""
    kept = tuple(each for each in snapshot.settings.options if each not in left_out)
    named = {
        word: several(f"--{word}", getattr(call, word))
        for word in _STAGES
        if getattr(call, word) is not None
    }
    if not named and not call.options:
        return
    chosen = []
    for values in product(*named.values()):
        given = dict(zip(named, values, strict=True))
        parts = dict(snapshot.settings.parts) | {_STAGES[word]: v for word, v in given.items()}
        other = "policy" in given or call.options
        options = call.options or () if other else kept
        settings = snapshot.settings.with_policy(parts, tuple(options))
        live_parts(settings, has_quotas=bool(snapshot.quotas))
        chosen.append((" ".join(given.values()) or "other options", settings))
    yield from chosen


def _tell(
    file: str, snapshot: LiveSnapshot, runs: Sequence[tuple[str, RunOn]], out: TextIO
) -> None:
    first = runs[0][1]
    print(
        f"{file}: round {snapshot.number}, {plural(len(first.jobs), 'job')} "
        f"({int(first.running.sum())} running) under {snapshot.settings.policy}; "
        "no more jobs are submitted, durations are estimates, and jobs end well",
        file=out,
    )
    figures = [run.figures() for _, run in runs]
    if left := figures[0]["never_start"]:
        print(
            f"  {left} never start: held, over a quota of GPU-hours, after the failure or start of "
            "another job, or too large for the nodes that there are",
            file=out,
        )
    table = TextTable()
    names = [f"{name} ({run.policy})" if name == AS_IT_IS else name for name, run in runs]
    table.add("policy", names, left=True)
    for key, title in _TITLES.items():
        cells = [_cell(key, each[key]) for each in figures]
        if key != "never_start" or any(each[key] for each in figures):
            table.add(title, cells)
    for line in table.lines():
        print(line, file=out)


def _cell(key: str, value: float | int | None) -> str:
    if value is None:
        return "-"
    return str(value) if key in ("jobs", "never_start") else duration_text(float(value))


def _rows(runs: Sequence[tuple[str, RunOn]]) -> str:
    out = io.StringIO(newline="")
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(["name", "policy", "job_id", "running", "num_gpus", "start_in", "finish_in"])
    for name, run in runs:
        for k, job in enumerate(run.jobs.tolist()):
            start, finish = (
                "" if np.isnan(value) else repr(float(value))
                for value in (run.start_s[k], run.finish_s[k])
            )
            running = int(run.running[k])
            writer.writerow([name, run.policy, job, running, int(run.gpus[k]), start, finish])
    return out.getvalue()


def _write(target: str, text: str) -> None:
    if target == "-":
        sys.stdout.write(text)
        return
    try:
        Path(target).write_text(text, encoding="utf-8")
    except OSError as error:
        raise DlschedError(f"{target}: can't be written ({error.strerror})") from None
