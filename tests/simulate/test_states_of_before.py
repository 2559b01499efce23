"""States that parts stored before they declared their memory are still understood.

`recorded_states.json` has, of each case, the state in the middle of a replay, the same after the
table was packed, and the outcome of the whole replay. It was written by the last version in which
each part stored and restored itself by hand, with `python -m tests.simulate.test_states_of_before`;
a new case may be added, but those that are there must not change.
"""

from __future__ import annotations

import base64
import copy
import json
import zlib
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dlsched.composition.parts import build_parts
from dlsched.daemon.round.codec import decode, encode
from dlsched.policies.registry import names
from simulate.engine import Engine
from simulate.published.profiles import semantics_of
from tests.conftest import Lab
from tests.simulate.test_every_combination import mixed_trace
from tests.simulate.test_same_on_every_python import skip_with_another_solver

RECORDED = Path(__file__).with_name("recorded_states.json")
CUT_S = 651.0
COLUMNS = {
    "deadline": np.array([1000.0, 2000.0, 4000.0] * 5),
    "guarantee": np.array([2.0, 0.0, 1.0] * 5),
}
OUTCOME = ("finish", "first_start", "starts", "preemptions", "attained")
BESIDE = {"placement": "random", "metrics": "iterations"}
TWO = ("what-if.scheduling=las,srtf", "what-if.admission=accept-all")
CASES: dict[str, tuple[str, dict[str, Any]]] = {
    **{
        name: (name, {"options": TWO if name == "what-if" else (), **BESIDE})
        for name in names("scheduling")
    },
    "fifo-guard": ("fifo", {"options": ("fifo.guard_s=50",)}),
    "las-guard": ("las", {"options": ("las.guard_s=50",)}),
    "srtf-lists": ("srtf", {"options": ("srtf.ties=lists",)}),
    "tiresias-promotes": ("tiresias", {"options": ("tiresias.limits=200,600", "tiresias.knob=2")}),
    "tiresias-gittins": ("tiresias", {"options": ("tiresias.variant=gittins",)}),
    "tiresias-submit": ("tiresias", {"options": ("tiresias.equals=submit",)}),
    "gavel-plain": ("gavel", {"options": ("gavel.mechanism=plain",)}),
    "gavel-published": ("gavel", {"options": ("semantics=gavel",)}),
    "gavel-ftf": ("gavel", {"options": ("gavel.objective=ftf",)}),
    "gandiva-fair-published": (
        "gandiva-fair",
        {"options": ("semantics=gavel", "gandiva-fair.mechanism=published")},
    ),
    "antman-auto": ("antman", {"column": "guarantee"}),
    "chronus-due": ("chronus", {"column": "deadline"}),
    "chronus-slots": ("chronus", {"options": ("chronus.clock=slots",)}),
    "elasticflow-admission": ("elasticflow", {"admission": "elasticflow", "column": "deadline"}),
    "muri-published": ("muri", {"options": ("muri.ties=published",)}),
    "pollux-autoscale": ("pollux", {"options": ("pollux.autoscale=rolling",)}),
    "themis-random": ("themis", {"options": ("themis.leftovers=random",)}),
    "history": ("srtf", {"estimate": "history"}),
    "additive": ("srtf", {"estimate": "additive"}),
    "loss-curve": ("srtf", {"estimate": "loss-curve", "metrics": "losses"}),
    "mlfs-losses": ("mlfs", {"metrics": "losses"}),
    "hived": ("fifo", {"placement": "hived"}),
}


def replay(case: str, *, until: float = np.inf) -> Engine:
    """The replay of a case, up to a moment."""
    policy, given = CASES[case]
    count = 8 if policy == "what-if" else 14
    trace = mixed_trace(Lab(), 21, count=count)
    given = {"clock": "rounds", **given}
    if column := given.pop("column", ""):
        trace = replace(trace, columns={**trace.columns, column: COLUMNS[column][:count]})
    engine = Lab().engine(trace, policy, cluster="2x4", horizon=until, **given)
    engine.run()
    return engine


def without_column(given: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in given.items() if name != "column"}


def new_parts(case: str) -> Any:
    policy, given = CASES[case]
    settings = Lab().settings(policy, **{"clock": "rounds", **without_column(given)})
    return build_parts(settings, semantics_of(settings))


def packing(engine: Engine) -> tuple[Any, int]:
    """A packed table: active rows in another order and a new one, without those that ended."""
    status = engine.world.table.status
    active = np.flatnonzero(status < 3)
    turned = np.concatenate([active[::2][::-1], [-1], active[1::2]]).astype(np.int64)
    return turned, len(engine.world.finished) // 2


def outcome(engine: Engine) -> dict[str, str]:
    return {name: str(getattr(engine.world.table, name).tolist()) for name in OUTCOME}


def packed(parts: Any, engine: Engine) -> Any:
    old, gone = packing(engine)
    parts.renumber(old, gone)
    return parts.state_dict()


def in_any_order(value: Any) -> Any:
    """The same with lists of rows sorted: some were by row, and are now by their coming."""
    if isinstance(value, dict):
        return {key: in_any_order(each) for key, each in value.items()}
    is_by_row = isinstance(value, list) and all(isinstance(each, list | tuple) for each in value)
    return sorted(value, key=str) if is_by_row else value


def as_text(state: Any) -> str:
    return base64.b85encode(zlib.compress(encode(state), 9)).decode()


def of_text(text: str) -> Any:
    return decode(zlib.decompress(base64.b85decode(text)))


def record(case: str) -> dict[str, Any]:
    cut = replay(case, until=CUT_S)
    state = cut.parts.state_dict()
    parts = new_parts(case)
    assert not parts.load_state_dict(copy.deepcopy(state)), case
    return {
        "state": as_text(state),
        "packed": as_text(packed(parts, cut)),
        "outcome": outcome(replay(case)),
    }


def told() -> dict[str, Any]:
    return json.loads(RECORDED.read_text()) if RECORDED.exists() else {}


@pytest.mark.parametrize("case", CASES)
def test_a_run_goes_on_from_a_state_of_the_version_before(case: str) -> None:
    skip_with_another_solver(CASES[case][0])
    cut = replay(case, until=CUT_S)
    cut.cycle.parts = new_parts(case)
    assert not cut.parts.load_state_dict(of_text(told()[case]["state"]))
    cut.horizon = np.inf
    cut.run()
    assert outcome(cut) == told()[case]["outcome"]


@pytest.mark.parametrize("case", CASES)
def test_a_state_of_the_version_before_follows_a_packed_table(case: str) -> None:
    cut = replay(case, until=CUT_S)
    there, here = new_parts(case), new_parts(case)
    assert not there.load_state_dict(of_text(told()[case]["packed"]))
    assert not here.load_state_dict(of_text(told()[case]["state"]))
    follows, expected = packed(here, cut), there.state_dict()
    for state in (follows, expected):
        state.pop("metrics", None)  # which no live cluster has: they did not follow
    assert encode(in_any_order(follows)) == encode(in_any_order(expected))


if __name__ == "__main__":
    every = told()
    every |= {case: record(case) for case in CASES if case not in every}
    RECORDED.write_text(json.dumps(every, indent=1) + "\n")
