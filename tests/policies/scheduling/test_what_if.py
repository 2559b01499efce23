"""The what-if chooser: it looks before it leaps, and leaves no footprint while it looks."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dlsched.core.errors import BadInput
from dlsched.policies import registry
from dlsched.policies.scheduling.what_if import WhatIf, WhatIfOptions
from simulate.forecast import forecaster

V1 = [(0, 1, 1000), (10, 1, 700), (20, 1, 200), (700, 1, 100), (900, 1, 600)]
BLOX = ("semantics=blox",)


def test_with_one_combination_it_is_that_combination(lab):
    for policy in ("fifo", "las", "srtf"):
        options = (*BLOX, f"what-if.scheduling={policy}", "what-if.admission=accept-all")
        chosen = lab.run(V1, "what-if", cluster="1x2", placement="first-free", options=options)
        plain = lab.run(V1, policy, cluster="1x2", placement="first-free", options=BLOX)
        assert lab.outcome(chosen) == lab.outcome(plain)


def test_its_options_are_read_without_a_search_of_the_installed_packages(lab, monkeypatch):
    searched = []
    monkeypatch.setattr(registry, "entry_points", lambda **group: searched.append(group))
    lab.engine(V1, "what-if", options=("what-if.scheduling=las", "what-if.admission=accept-all"))
    assert not searched
    lab.engine(V1, "fifo", options=("what-if.every=2",))  # for another policy of the same call
    assert not searched
    with pytest.raises(BadInput, match="'nothing' names no part"):
        lab.engine(V1, "fifo", options=("nothing.every=2",))
    assert searched == [{"group": "dlsched.scheduling", "name": "nothing"}]


def test_on_five_jobs_it_does_as_well_as_the_best_fixed_policy(lab):
    chosen = lab.run(V1, "what-if", cluster="1x2", placement="first-free", options=BLOX)
    assert chosen.summary["avg_jct"] == 994


def test_it_switches_when_the_queue_changes(lab):
    # a long job that would block fifo: srtf is chosen the moment short ones wait
    jobs = [(0, 1, 10_000), *[(300, 1, 100)] * 5]
    fixed = lab.run(jobs, "fifo", cluster="1x1", options=BLOX).summary["avg_jct"]
    chosen = lab.run(jobs, "what-if", cluster="1x1", options=BLOX).summary["avg_jct"]
    assert chosen < fixed / 2


@pytest.mark.parametrize("score", ["mean-jct", "progress"])
@pytest.mark.parametrize("clock", ["rounds", "events"])
def test_every_score_runs_under_every_clock(lab, score, clock):
    run = lab.run(V1, "what-if", cluster="1x2", clock=clock, options=(f"score={score}", "every=2"))
    assert run.summary["completed"] == 5


def test_it_may_choose_among_placements_and_admissions_too(lab):
    jobs = [(0, 1, 50), (0, 2, 100), (1, 3, 70), (2, 4, 60)]
    options = (
        "what-if.placement=consolidated,min-nodes",
        "what-if.admission=load-threshold:1,accept-all",
        "what-if.scheduling=las,first-fit",
    )
    assert lab.run(jobs, "what-if", cluster="2x4", options=options).summary["completed"] == 4


@given(
    jobs=st.lists(
        st.tuples(st.integers(0, 500), st.integers(1, 4), st.integers(1, 900)),
        min_size=1,
        max_size=8,
    ),
    policy=st.sampled_from(["fifo", "srtf", "easy", "tiresias"]),
)
def test_a_forecast_of_the_last_arrival_comes_true(lab, jobs, policy):
    engine = lab.engine(jobs, policy, clock="events")
    last = max(submit for submit, _, _ in jobs)
    seen = []

    def watch(now, _):
        if now.now == last and not seen:
            forecast = forecaster(now)()
            seen.append(dict(zip(forecast.rows.tolist(), forecast.finish.tolist(), strict=True)))

    engine.observers.append(watch)
    engine.run()
    if not seen:
        return  # nothing was decided at that moment
    finish = engine.world.table.finish
    for row, predicted in seen[0].items():
        assert predicted == pytest.approx(finish[row])


def test_a_forecast_leaves_the_present_as_it_was(lab):
    engine = lab.engine(V1, "las", cluster="1x2", placement="first-free", options=BLOX)
    plain = lab.engine(V1, "las", cluster="1x2", placement="first-free", options=BLOX)
    engine.observers.append(lambda now, _: forecaster(now)({"scheduling": "srtf"}) and None)
    engine.run()
    plain.run()
    assert engine.world.table.finish.tolist() == plain.world.table.finish.tolist()
    assert engine.world.table.preemptions.tolist() == plain.world.table.preemptions.tolist()


def test_where_nothing_forecasts_one_line_says_so() -> None:
    chooser = WhatIf(WhatIfOptions())
    with pytest.raises(BadInput, match="it chooses by forecasts, which do not exist for trainings"):
        chooser.inside  # noqa: B018
