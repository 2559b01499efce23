"""Predicted starts: shown, stored, and compared with actual starts."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path
from typing import Any

import pytest

from dlsched.core.errors import PolicyFailed
from dlsched.rpc.v1 import control_pb2 as c

from .cluster_of_tests import Caller, Running, eventually, job
from .scripted_agent import ScriptedAgent
from .test_daily import ends, play, reaches

pytestmark = pytest.mark.slow


async def predicted(caller: Caller) -> dict[int, Any]:
    views: dict[int, Any] = {}
    asked = c.QueueRequest(filter=c.Filter(all_users=True), predict=True)
    async for page in caller.control.Queue(asked, timeout=60):
        views |= {view.job: view for view in page.jobs}
        views |= {line.first.job: line.first for line in page.folded}
    return views


def test_predicted_starts_are_shown_and_recorded(tmp_path: Path) -> None:
    async def scene(running: Running, caller: Caller, agent: ScriptedAgent) -> None:
        [first] = await caller.submit(job(gpus=4, time_limit_s=1000))
        await reaches(caller, first, "RUNNING")
        second, third, held = await caller.submit(
            job(gpus=4, expected_s=500), job(gpus=4), job(held=True)
        )
        began = time.time()
        await eventually(lambda: running.daemon.cluster.live.position(third))

        async def all_told() -> Any:
            views = await predicted(caller)
            return views if views[third].HasField("predicted_start_at") else None

        views = await eventually(all_told, within_s=60)
        assert not views[first].HasField("predicted_start_at")
        assert abs(views[second].predicted_start_at - (began + 1000)) < 60
        assert abs(views[third].predicted_start_at - (began + 1500)) < 60
        assert views[second].predicted_basis.startswith("expected times, time limits")
        assert not views[held].HasField("predicted_start_at")
        assert abs(views[first].predicted_end_at - (began + 1000)) < 60
        assert abs(views[second].predicted_end_at - (began + 1500)) < 120
        assert not views[held].HasField("predicted_end_at")
        told = (await caller.show(second)).job
        assert told.predicted_start_at == views[second].predicted_start_at
        bare, _, _ = await caller.queue()
        assert not any(view.HasField("predicted_start_at") for view in bare)
        store = running.daemon.driver.store
        await eventually(lambda: store.predictions(second))
        [kept] = store.predictions(second)
        assert kept.start_at == told.predicted_start_at
        assert (kept.policy, kept.source, kept.gpus) == ("fifo", "expected time", 4)
        assert kept.start_p10 < kept.start_at == kept.start_p90  # the limit bounds the first job
        assert kept.end_p10 < kept.end_at < kept.end_p90

        await ends(agent, first)
        started = (await reaches(caller, second, "RUNNING")).first_started_at
        reply = await caller.control.Calibration(c.CalibrationRequest(), timeout=60)
        [by] = reply.by_basis
        assert (by.basis, by.jobs) == (kept.basis, 1)
        assert abs(by.mean_error_s - (started - kept.start_at)) < 1.0
        assert by.median_abs_error_s == by.p90_abs_error_s == -by.mean_error_s
        later = c.CalibrationRequest(since=time.time() + 60)
        assert not (await caller.control.Calibration(later, timeout=60)).by_basis
        await ends(agent, second)
        await reaches(caller, second, "COMPLETED")
        reply = await caller.control.Calibration(c.CalibrationRequest(), timeout=60)
        [policy] = reply.by_policy
        assert (policy.basis, policy.ended) == ("fifo", 1)
        [group] = [each for each in reply.by_class if each.basis == "2-4 GPUs, expected time"]
        assert (group.jobs, group.ended) == (1, 1)
        assert (group.start_within, group.end_within) == (0.0, 0.0)  # far earlier
        assert group.start_relative == pytest.approx(1.0, abs=0.1)
        pages = [p async for p in caller.control.History(c.HistoryRequest(), timeout=60)]
        ended = {view.job: view for page in pages for view in page.jobs}
        assert ended[second].predicted_start_at == kept.start_at

    play(tmp_path, scene)


def test_concurrent_callers_share_one_forecast_and_a_slow_one_is_given_up(tmp_path: Path) -> None:
    async def scene(running: Running, caller: Caller, agent: ScriptedAgent) -> None:
        await caller.submit(job(gpus=4), job(gpus=4))
        await eventually(agent.running)
        predictions = running.daemon.predictions
        asked = []
        whole = predictions._worker.forecast

        async def counted(*words: Any, **more: Any) -> Any:
            asked.append(words)
            return await whole(*words, **more)

        predictions._worker.forecast = counted
        found = await asyncio.gather(*(predictions.starts() for _ in range(5)))
        assert len(asked) == 1
        assert all(each == found[0] for each in found)
        assert len(found[0]) == 1
        await predictions.starts()  # nothing has changed
        assert len(asked) == 1

        async def slow(*words: Any, **more: Any) -> Any:
            asked.append(words)
            raise PolicyFailed("forecast under fifo: it took longer than 10 s and was ended")

        predictions._worker.forecast = slow
        predictions._answer = None
        assert await predictions.starts() == {}
        assert predictions.failure.endswith("was ended")
        assert await predictions.starts() == {}  # not tried again for a while
        assert len(asked) == 2
        views = await predicted(caller)
        assert not any(view.HasField("predicted_start_at") for view in views.values())

    play(tmp_path, scene)


def test_a_test_only_submission_predicts_a_start_and_submits_nothing(
    tmp_path: Path,
) -> None:
    async def scene(running: Running, caller: Caller, agent: ScriptedAgent) -> None:
        [first] = await caller.submit(job(gpus=4, time_limit_s=600))
        await reaches(caller, first, "RUNNING")
        [behind] = await caller.submit(job(gpus=2, time_limit_s=100, held=True))
        state = running.daemon.cluster.live
        before = (state.jobs.count, dict(state.jobs.row_of), set(state.requests.specs))

        async def tried(*jobs: c.JobRequest) -> list[Any]:
            asked = c.SubmitRequest(jobs=jobs, test_only=True)
            return list((await caller.control.Submit(asked, timeout=60)).supposed)

        now = time.time()
        one, two, three, four = await tried(
            job(gpus=4, time_limit_s=50),
            job(gpus=1),
            job(held=True),
            job(dependencies=[c.Dependency(kind="afterok", job=first)]),
        )
        assert abs(one.start_at - (now + 600)) < 60
        assert abs(two.start_at - (now + 650)) < 120
        assert three.basis == "not predicted while it waits: Held"
        assert four.basis.startswith("not predicted while it waits: Dependency")
        [array] = await tried(job(gpus=1, array="0-9"))
        assert abs(array.start_at - (now + 600)) < 60
        assert (state.jobs.count, dict(state.jobs.row_of), set(state.requests.specs)) == before
        assert running.daemon.driver.committed.next_job == behind + 1
        [after] = await caller.submit(job(gpus=1))
        assert after == behind + 1

    play(tmp_path, scene)


def test_long_waiting_jobs_get_predictions_without_a_request(tmp_path: Path) -> None:
    async def scene(running: Running, caller: Caller, agent: ScriptedAgent) -> None:
        _, second = await caller.submit(
            job(gpus=4, time_limit_s=600), job(gpus=4, time_limit_s=600)
        )
        store = running.daemon.driver.store
        await eventually(lambda: store.predictions(second), within_s=60)

    play(tmp_path, scene, round={"interval_s": 30.0, "predict_every_s": 0.2})
