"""When a training hangs: only time for which it is seen to execute counts."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from dlsched.daemon.training.watch import TrainingWatch
from dlsched.protocol.messages import Phase
from dlsched.rpc.v1 import control_pb2 as c

from ..cluster_of_tests import Caller, Running, eventually, job
from ..scripted_agent import ScriptedAgent
from ..test_daily import play
from ..test_recorded_predictions import begins, says

LEAST_S = 1000.0  # without a step; the daemon's own looks add seconds at most


def test_only_time_in_which_a_training_executes_counts(tmp_path: Path) -> None:
    async def scene(running: Running, caller: Caller, agent: ScriptedAgent) -> None:
        [number] = await caller.submit(job(gpus=1))
        key = await begins(agent, 1)
        watch = TrainingWatch(running.daemon.cluster)

        async def hangs() -> int:
            shown = await caller.show(number)
            return sum(event.kind == "hang" for event in shown.events)

        async def passes(seconds: float) -> int:
            """Hangs that are told when so much time has passed without a step."""
            watch.find_hangs(seconds)
            return await hangs()

        async def is_told(count: int, after: float) -> None:
            """So many hangs are told when so much time has passed; events are written later."""

            async def are_there() -> bool:
                return await hangs() == count

            watch.find_hangs(after)
            await eventually(are_there)

        async def is_seen(phase: Phase) -> None:
            def seen() -> bool:
                last = running.daemon.driver.state.last_syncs[agent.name]
                return [held.phase for held in last.held] == [phase]

            await eventually(seen)

        await says(agent, key, step=1, batch_s=0.1)
        await says(agent, key, step=2, batch_s=0.1)
        assert await passes(2 * LEAST_S) == 0  # it has not begun for certain
        await says(agent, key, step=3, batch_s=0.1)
        assert await passes(0.6 * LEAST_S) == 0

        await caller.act(c.ACTION_SUSPEND, number)
        await is_seen(Phase.SUSPENDED)
        assert await passes(2 * LEAST_S) == 0
        await caller.act(c.ACTION_RESUME, number)
        await is_seen(Phase.RUNNING)
        assert await passes(0.1 * LEAST_S) == 0

        agent.obeys = False  # else its keeper thaws it at once
        for phase in (Phase.SUSPENDED, Phase.FENCED):  # its node restores it; it has no lease
            status = agent.keepers[key.run_id]
            agent.say(replace(status, phase=phase))
            await is_seen(phase)
            assert await passes(2 * LEAST_S) == 0
            agent.say(status)
            await is_seen(Phase.RUNNING)

        assert await passes(0.1 * LEAST_S) == 0
        await is_told(1, after=0.3 * LEAST_S)  # what passed before the suspension counts, too
        assert await passes(2 * LEAST_S) == 1
        await says(agent, key, step=4, batch_s=0.1)
        await says(agent, key, doing="save")
        assert await passes(2 * LEAST_S) == 1
        await says(agent, key, step=5, batch_s=0.1)
        assert await passes(0.9 * LEAST_S) == 1
        await is_told(2, after=0.2 * LEAST_S)

    play(tmp_path, scene, hang={"least_s": LEAST_S})
