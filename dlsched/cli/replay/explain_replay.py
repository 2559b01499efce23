"""`dlsched replay --explain`: what a job's place in the order of a replay comes from."""

from __future__ import annotations

import json
import math
import sys
from dataclasses import asdict

from dlsched.cli.output.explanation import explanation_lines
from dlsched.cli.replay.call import ReplayCall
from dlsched.cli.replay.study_replay import checked_study
from dlsched.core.errors import BadInput
from simulate.explaining import explain
from simulate.replay import prepare
from simulate.report.wording import duration_text

SCHEMA = "dlsched.explained/1"


def replay_explained(call: ReplayCall, job: str) -> int:
    """Explain one job; return the exit code.

    Raises:
        BadInput: the job is not in the trace, or the call describes several runs.
    """
    study = checked_study(call, None)
    if len(study.plan.runs) > 1:
        raise BadInput("--explain: one trace, policy, load and seed")
    inputs, settings = study.plan.inputs, study.plan.runs[0].settings
    trace = inputs.traces[0]
    engine = prepare(trace, inputs.cluster, settings, **inputs.of_a_replay)
    told = explain(trace, job, engine)
    if call.summary_out == "-":
        known = {
            name: None if isinstance(value, float) and math.isnan(value) else value
            for name, value in asdict(told).items()
        }
        print(json.dumps({"schema": SCHEMA, "job": job, **known}))
        return 0
    if not told.rank:
        print(f"dlsched: policy {told.policy} ends without a rank for job {job}", file=sys.stderr)
        return 1
    when = duration_text(told.at)
    print(f"job {job} at {when}: rank {told.rank} of {told.ranked} under {told.policy}")
    for line in explanation_lines(told.numbers):
        print(line)
    return 0
