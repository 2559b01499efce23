"""The estimator `additive`, in replays."""

from __future__ import annotations

import numpy as np
import pytest


def trace_of(lab, count: int = 240):
    """Users 0 and 1 take 50 and 500 s a job, and 8 GPUs double it."""
    jobs, users = [], []
    for k in range(count):
        user, gpus = k % 2, 8 if k % 3 == 0 else 1
        jobs.append((60.0 * k, gpus, (50.0, 500.0)[user] * (2 if gpus == 8 else 1)))
        users.append(f"u{user}")
    return lab.trace(jobs, user=users)


def predictions(lab, *options: str):
    engine = lab.engine(
        trace_of(lab), "sjf", cluster="9x8", estimate="additive", clock="events", options=options
    )
    engine.run()
    return engine


def test_it_learns_how_long_jobs_of_each_user_run(lab) -> None:
    engine = predictions(lab, "estimator.every_s=600")
    table = engine.world.table
    late = slice(200, None)
    error = np.abs(table.predicted_work[late] - engine.world.true_work[late]).mean()
    assert error < 60  # knowing nothing but the mean, it would be 270


def test_before_enough_jobs_have_ended_it_says_their_mean(lab) -> None:
    table = predictions(lab, "estimator.least=1000000", "estimator.default_s=77").world.table
    assert table.predicted_work[0] == 77
    assert table.predicted_work[200] != 77


def test_its_terms_add_up_to_what_it_predicts(lab) -> None:
    engine = predictions(lab)
    estimator, ctx = engine.parts.estimator, engine.cycle.ctx
    units = ctx.units if len(ctx.units) else type(ctx.units)(ctx.table, np.arange(9), ctx.now)
    terms = estimator.terms(units, ctx)
    assert next(iter(terms)) == "base"
    total = np.sum(list(terms.values()), axis=0)
    assert estimator.predict(units, total, ctx) == pytest.approx(np.where(total < 0, 1000, total))


def test_it_goes_on_from_its_state(lab) -> None:
    engine = predictions(lab)
    estimator, ctx = engine.parts.estimator, engine.cycle.ctx
    other = type(estimator)(estimator.options)
    other.load_state_dict(estimator.state_dict())
    units = type(ctx.units)(ctx.table, np.arange(50), ctx.now)
    work = engine.world.true_work[:50]
    assert other.predict(units, work, ctx).tolist() == estimator.predict(units, work, ctx).tolist()
