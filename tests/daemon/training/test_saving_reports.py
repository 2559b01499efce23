"""What runs report of their checkpoints: shown, and the grace follows it."""

from __future__ import annotations

from pathlib import Path

from ..cluster_of_tests import Caller, Running, eventually, job
from ..scripted_agent import ScriptedAgent
from ..test_daily import play
from ..test_recorded_predictions import begins, says
from ..test_replayed import dlsched


def test_the_grace_grows_with_the_checkpoints_up_to_the_limit_of_the_site(tmp_path: Path) -> None:
    async def scene(running: Running, caller: Caller, agent: ScriptedAgent) -> None:
        [number] = await caller.submit(job(gpus=1, grace_s=30.0))
        key = await begins(agent, 1)

        async def told(text: str) -> str:
            async def there() -> str:
                _, out, _ = await dlsched(running, "show", str(number))
                return out if text in out else ""

            return str(await eventually(there))

        def grace_s() -> float:
            return float(agent.state.held[key.run_id].desired.grace_s)

        await says(agent, key, step=1, save_s=12.5)  # twice that and 5 s is 30 s
        await says(agent, key, step=2, save_s=40.0)
        out = await told("a checkpoint took 40 s: grace 30 s -> 85 s")
        assert out.count("a checkpoint took") == 1
        await eventually(lambda: grace_s() == 85.0)
        await says(agent, key, step=3, save_s=10.0)  # it does not shrink
        await says(agent, key, step=4, save_s=500.0)
        await told("grace 85 s -> 600 s; a stop may come too early: the longest grace here is 600")
        await says(agent, key, step=5, save_s=500.0)
        await says(agent, key, step=5, saves=False, restart_s=1.0)
        out = await told("the script has registered no state: a stop loses all its steps")
        assert out.count("a checkpoint took") == 2

    play(tmp_path, scene)
