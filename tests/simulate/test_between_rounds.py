"""What is followed between rounds by counting alone gives the results of the engine's phases."""

from __future__ import annotations

import math
from typing import Any
from unittest.mock import patch

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from simulate.between_rounds import BetweenRounds
from simulate.engine import Engine

POLICIES = {
    "fifo": [(), ("misfit=skip",), ("guard_s=600",), ("misfit=tail-preempt",)],
    "first-fit": [()],
    "sjf": [(), ("misfit=skip",)],
    "las": [
        (),
        ("misfit=tail-preempt",),
        ("misfit=stop",),
        ("service=time", "rebuild=full"),
        ("guard_s=600",),
    ],
    "srtf": [(), ("ties=submit",), ("ties=submit", "misfit=tail-preempt"), ("charge_restart=yes",)],
    "srsf": [()],
    "sjf-gpu": [(), ("misfit=stop",)],
    "multi-queue": [()],
    "tiresias": [
        (),
        ("limits=30,60,61,200",),
        ("limits=100,300", "clock=held", "equals=arrival"),
        ("limits=60,240", "variant=dlas"),
        ("knob=2",),
        ("rebuild=full",),
    ],
}

# times on rounds and between them, several at a time, jobs without any work, and too large ones
JOBS = st.lists(
    st.tuples(
        st.integers(0, 60).map(lambda k: 15.0 * k),
        st.integers(1, 13),
        st.one_of(st.integers(0, 8).map(lambda k: 30.0 * k), st.floats(0.0, 900.0)),
    ),
    min_size=1,
    max_size=50,
)

HOW = st.fixed_dictionaries(
    {
        "overhead": st.sampled_from([0.0, 5.0]),  # below a round: else no job gets on
        "min_run": st.sampled_from([0.0, 100.0]),
        "placement": st.sampled_from(["", "first-free", "best-fit", "worst-fit", "consolidated"]),
        "estimate": st.sampled_from(["", "history"]),
        "horizon": st.sampled_from([math.inf, 200.0, 777.5]),
        "round_s": st.sampled_from([60.0, 7.0]),
        "longest": st.sampled_from([4096, 3]),
    }
)


def books_of(engine: Engine) -> dict[str, Any]:
    """All that a replay has decided and counted, exactly."""
    engine.run()
    table, world = engine.world.table, engine.world
    columns = {name: column for name, column in vars(table).items() if type(column) is np.ndarray}
    return {
        **{name: column.tobytes() for name, column in columns.items() if name[0] != "_"},
        "held": world.occupancy.held,
        "finished": world.finished,
        "waiting": sorted(world.waiting),
        "counts": (world.running, world.waiting_gpus, engine.decisions, engine.now),
        "refusals": engine.refusals,
        "columns": engine.columns,
        "changes": engine.cycle.ctx.changes,
        "parts": str(engine.parts.state_dict()),
    }


@pytest.mark.parametrize(
    ("policy", "options"), [(name, each) for name, all_ in POLICIES.items() for each in all_]
)
@settings(max_examples=15)
@given(jobs=JOBS, how=HOW)
def test_following_between_rounds_changes_no_result(
    lab: Any, policy: str, options: tuple[str, ...], jobs: list[Any], how: dict[str, Any]
) -> None:
    how = dict(how)
    longest = how.pop("longest")
    given_all = {"cluster": "2x4+1x3", "options": options, "check": False, "record": False, **how}
    quick, thorough = (lab.engine(jobs, policy, clock="rounds", **given_all) for _ in range(2))
    thorough.between_rounds = None
    with patch("simulate.between_rounds.LONGEST", longest):
        assert books_of(quick) == books_of(thorough)


@pytest.mark.parametrize("policy", ["fifo", "las", "srtf", "tiresias"])
def test_jobs_that_fit_are_followed_between_rounds(
    lab: Any, policy: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    followed = []
    run = BetweenRounds.follow

    def follow(self: BetweenRounds, tick: float, until: float) -> Any:
        followed.append(run(self, tick, until))
        return followed[-1]

    monkeypatch.setattr(BetweenRounds, "follow", follow)
    jobs = [(7.0 + 13 * k, 1, 40.0) for k in range(20)]
    lab.engine(jobs, policy, clock="rounds", check=False, record=False).run()
    assert sum(len(stretch.done) for stretch in followed if stretch) > 15
