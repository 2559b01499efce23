"""`dlsched replay --what-if`: what would have become of a job of a trace in alternatives."""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from dlsched.cli.output.deadline_answer import Kept, deadline_text, must_move_text
from dlsched.cli.replay.call import ReplayCall
from dlsched.cli.replay.study_replay import Study, checked_study
from dlsched.cli.replay.text_table import TextTable
from dlsched.core.cluster.description import Cluster
from dlsched.core.errors import BadInput, DlschedError, plural
from dlsched.system.output_files import appearing_whole
from simulate.report.drawing.charts import Figure, Table
from simulate.report.predicted import (
    DrawnJob,
    PredictedSchedule,
    predicted_page,
    schedule_figure,
)
from simulate.report.rewards import Ending, reward_figure
from simulate.report.wording import duration_text, number_text
from simulate.results.tables import ClusterShape, Segments
from simulate.supposing import Answer, Choice, Supposed, suppose

SCHEMA = "dlsched.supposed/1"
LITTLE_S = 0.5  # a difference that is shown as none


def replay_what_if(call: ReplayCall, job: str) -> int:
    """Answer for one job; return the exit code.

    Raises:
        BadInput: the job is not in the trace, or the call describes several runs.
    """
    choices = _sizes(call.what_if_gpus)
    study = checked_study(call, None)
    _check(study)
    first, *others = study.plan.runs
    policies = ["", *(run.settings.policy for run in others)]
    choices = [
        Choice(gpus=size.gpus, seconds=size.seconds, policy=policy)
        for size in [Choice(), *choices]
        for policy in policies
        if size.gpus is not None or policy
    ]
    inputs, trace = study.plan.inputs, study.plan.inputs.traces[0]
    if inputs.services:
        raise BadInput("--what-if: services that take GPUs have no forecast")
    answer = suppose(
        trace,
        inputs.cluster,
        first.settings,
        job,
        choices,
        arrivals=call.what_if_arrivals,
        events=inputs.events,
        throughputs=inputs.throughputs,
        patterns=inputs.patterns,
        pairs=inputs.pairs,
    )
    columns, rows = _cells(answer)
    out = sys.stderr if call.summary_out == "-" else sys.stdout
    _tell(answer, columns, rows, out)
    if call.summary_out is not None:
        _write_summary(answer, call.summary_out)
    if call.report is not None:
        names = [str(name) for name in trace.job_id.tolist()]
        _write(call.report, _page(answer, columns, rows, names, inputs.cluster))
    return 0


def _check(study: Study) -> None:
    """Refuse a call that is more than one run and its alternatives."""
    settings = [run.settings for run in study.plan.runs]
    if len(study.plan.inputs.traces) > 1 or any(
        len({getattr(each, name) for each in settings}) > 1
        for name in ("load", "seed", "placement", "admission", "fairness", "estimate")
    ):
        raise BadInput("--what-if: one trace, load and seed; only --policy may name several")
    if study.plan.inputs.applications is not None:
        raise BadInput("--what-if: trainings of measured applications have no forecast")
    if (
        study.outputs.jobs
        or study.outputs.plots
        or study.outputs.trajectories
        or study.outputs.flows
    ):
        raise BadInput("--what-if: only --report and --summary-out are written")


def _sizes(text: str | None) -> list[Choice]:
    """The numbers of GPUs of `--what-if-gpus`, some with the seconds that the job takes there."""
    found: list[Choice] = []
    for each in (text or "").split(",") if text else []:
        gpus, colon, seconds = each.strip().partition(":")
        try:
            found.append(Choice(gpus=int(gpus), seconds=float(seconds) if colon else None))
        except ValueError:
            found.append(Choice(gpus=0))
        size = found[-1]
        seconds_there = 1.0 if size.seconds is None else size.seconds
        if not size.gpus or size.gpus < 1 or not 0 < seconds_there < math.inf:
            raise BadInput(
                f"--what-if-gpus: {each!r} is not GPUS or GPUS:SECONDS, such as 2,8 or 2:65,8:19"
            )
    return found


def _title(told: Supposed, answer: Answer) -> str:
    first = answer.supposed[0]
    parts = [plural(told.gpus, "GPU")] if told.choice.gpus is not None else []
    parts += [f"under {told.policy}"] if told.policy != first.policy else []
    return ", ".join(parts) or "as it is"


def _cells(answer: Answer) -> tuple[tuple[str, ...], tuple[tuple[str, ...], ...]]:
    """Titles and cells of the table; times are from the submit on."""

    def moment(at: float) -> str:
        return "-" if math.isnan(at) else duration_text(at - answer.at)

    def between(low: float, high: float) -> str:
        return "-" if math.isnan(low) or math.isnan(high) else f"{moment(low)} to {moment(high)}"

    def later(told: Supposed) -> str:
        seconds = told.others_later_s
        if math.isnan(seconds):
            return "-"
        if abs(seconds) < LITTLE_S:
            return "0 s"
        return ("-" if seconds < 0 else "+") + duration_text(abs(seconds))

    titles = ["Alternative", "GPUs", "Start in", "Interval", "End in", "Interval"]
    titles += ["On time", "Submit by"] if answer.due is not None else []
    titles += ["Reward"] if answer.curve is not None else []
    titles += ["GPU-h", "Others", "Their reward"]
    rows = []
    for told in answer.supposed:
        low, high, early, late = told.interval
        cells = [
            _title(told, answer),
            str(told.gpus),
            moment(told.starts[0]),
            between(low, high),
            moment(told.ends[0]),
            between(early, late),
        ]
        if answer.due is not None:
            cells.append("-" if told.verdict is None else f"{told.on_time:.0%} {told.verdict}")
            cells.append(moment(told.latest_submit))
        if answer.curve is not None:
            cells.append(number_text(told.reward))
        cells += [number_text(told.gpu_s / 3600), later(told), f"{told.others_reward:+.4g}"]
        rows.append(tuple(cells))
    return tuple(titles), tuple(rows)


def _tell(answer: Answer, titles: Sequence[str], rows: Sequence[Sequence[str]], out: Any) -> None:
    print(
        f"job {answer.job}, submitted at {duration_text(answer.at)} under "
        f"{answer.supposed[0].policy}, with {plural(answer.present, 'job')} before it; "
        "durations are as predicted",
        file=out,
    )
    table = TextTable()
    for place, title in enumerate(titles):
        table.add(title, [row[place] for row in rows], left=not place)
    for line in table.lines():
        print(line, file=out)
    for line in _deadline(answer):
        print(line, file=out)


def _deadline(answer: Answer) -> list[str]:
    """Say which alternative keeps the deadline at the least GPU time, or else when one could."""
    if answer.due is None:
        return []
    alternatives = [
        Kept(
            title=_title(told, answer),
            gpus=told.gpus,
            gpu_s=told.gpu_s,
            is_sure=told.verdict == "ok",
            latest_end=told.interval[3] - answer.at,
            latest_submit=told.latest_submit - answer.at,
        )
        for told in answer.supposed
    ]
    due = duration_text(answer.due - answer.at)
    lines = [
        deadline_text(
            f"deadline in {due}", alternatives, lambda after: f"in {duration_text(after)}"
        )
    ]
    return [*lines, must_move_text(answer.must_move)] if answer.must_move else lines


# -- files ----------------------------------------------------------------------------------------


def _number(value: float) -> float | None:
    return None if math.isnan(value) else float(value)


def _write_summary(answer: Answer, target: str) -> None:
    def after(at: float) -> float | None:
        return _number(at - answer.at)

    told = {
        "schema": SCHEMA,
        "job_id": answer.job,
        "submitted_at": answer.at,
        "deadline_in": None if answer.due is None else answer.due - answer.at,
        "sla": None if answer.curve is None else answer.curve.to_text(),
        "must_move": answer.must_move,
        "outcomes": [
            {
                "alternative": _title(each, answer),
                "gpus": each.gpus,
                "policy": each.policy,
                "start_in": after(each.starts[0]),
                "end_in": after(each.ends[0]),
                **dict(
                    zip(
                        ("start_p10_in", "start_p90_in", "end_p10_in", "end_p90_in"),
                        map(after, each.interval),
                        strict=True,
                    )
                ),
                "on_time": _number(each.on_time),
                "verdict": each.verdict,
                "latest_submit_in": after(each.latest_submit),
                "reward": _number(each.reward),
                "gpu_s": each.gpu_s,
                "others_later_s": _number(each.others_later_s),
                "others_reward": each.others_reward,
            }
            for each in answer.supposed
        ],
    }
    text = json.dumps(told, indent=1) + "\n"
    if target == "-":
        sys.stdout.write(text)
    else:
        _write(Path(target), text)


def _write(path: Path, text: str) -> None:
    try:
        with appearing_whole(path) as part:
            part.write_text(text, encoding="utf-8", newline="\n")
    except OSError as error:
        raise DlschedError(f"{path}: can't be written ({error.strerror or error})") from None


def _page(
    answer: Answer,
    titles: tuple[str, ...],
    rows: tuple[tuple[str, ...], ...],
    names: Sequence[str],
    cluster: Cluster,
) -> str:
    """The page: the table, the schedules, and what the end is worth."""
    facts = [
        ("Job", answer.job),
        ("Submitted at", duration_text(answer.at)),
        ("Policy", answer.supposed[0].policy),
        ("Jobs before it", str(answer.present)),
        ("Cluster", f"{plural(len(cluster), 'node')}, {plural(cluster.total_gpus, 'GPU')}"),
    ]
    more: list[Figure] = []
    if answer.curve is not None:
        ends = [
            Ending(
                _title(each, answer),
                each.interval[2] - answer.at,
                each.ends.item(0) - answer.at,
                each.interval[3] - answer.at,
                each.reward,
            )
            for each in answer.supposed
        ]
        more.append(reward_figure(answer.curve, ends))
    schedules = [_schedule(each, answer, names) for each in answer.supposed]
    shape = ClusterShape(
        spec=cluster.spec,
        node_name=np.array(cluster.names, np.object_),
        node_gpus=np.array(cluster.gpus, np.int64),
        node_type=np.array([cluster.gpu_types[code] for code in cluster.node_type], np.object_),
    )
    due = None if answer.due is None else answer.due - answer.at
    figure = schedule_figure(
        [each for each in schedules if each.blocks.job.size], shape, deadline=due
    )
    table = Table(caption="Times are from the submit on", columns=titles, rows=rows)
    return predicted_page(
        f"What if: job {answer.job}", facts, table, _deadline(answer), figure, more=more
    )


def _schedule(told: Supposed, answer: Answer, names: Sequence[str]) -> PredictedSchedule:
    blocks = told.segments
    assert blocks is not None
    here = np.unique(blocks.job)
    place = np.full(len(names), -1)
    place[here] = np.arange(len(here))
    late = told.interval[3]
    return PredictedSchedule(
        label=_title(told, answer),
        jobs=tuple(DrawnJob(names[row], "") for row in here.tolist()),
        blocks=Segments(
            job=place[blocks.job],
            node=blocks.node,
            gpus=blocks.gpus,
            start=np.maximum(blocks.start - answer.at, 0.0),
            end=blocks.end - answer.at,
        ),
        chosen=int(place[answer.row]),
        latest=None if math.isnan(late) else late - answer.at,
    )
