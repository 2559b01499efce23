"""What runs report of their checkpoints: shown, and the grace follows it."""

from __future__ import annotations

import json
from pathlib import Path

from dlsched.daemon.unsaved import EACH_UP_TO

from ..cluster_of_tests import Caller, Running, eventually, job
from ..scripted_agent import ScriptedAgent
from ..test_daily import play
from ..test_recorded_predictions import begins, says
from ..test_replayed import dlsched
from ..test_restarted_work import commit


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


def test_a_first_checkpoint_is_held_against_the_room_and_the_grace(tmp_path: Path) -> None:
    async def scene(running: Running, caller: Caller, agent: ScriptedAgent) -> None:
        [number] = await caller.submit(job(gpus=1, grace_s=30.0))
        key = await begins(agent, 1)

        async def told(text: str) -> None:
            async def there() -> bool:
                return text in (await dlsched(running, "show", str(number)))[1]

            await eventually(there)

        gib = 1 << 30
        first = {"save_bytes": 3 * gib, "room_bytes": gib // 2, "restart_s": 1.0}
        await says(agent, key, step=0, **first)
        await told("no-room by job: a checkpoint needs 3 GiB, and 0.5 GiB are free")
        await says(agent, key, step=0, **{**first, "room_bytes": 9 * gib}, expected_save_s=40.0)
        await told("a checkpoint of 3 GiB will take about 40 s: grace 30 s -> 85 s")

    play(tmp_path, scene)


def test_a_lack_of_room_is_told_once_until_it_changes_and_not_for_ever(tmp_path: Path) -> None:
    async def scene(running: Running, caller: Caller, agent: ScriptedAgent) -> None:
        [number] = await caller.submit(job(gpus=1))
        key = await begins(agent, 1)
        gib = 1 << 30

        async def times(room_gib: int, marker: str) -> int:
            """How often it was told when one more report has come, and a marker after it."""
            first = {"save_bytes": 3 * gib, "room_bytes": room_gib * gib, "restart_s": 1.0}
            await says(agent, key, step=0, **first, saves=False)
            await says(agent, key, step=1, save_s=float(marker))

            async def there() -> str:
                _, out, _ = await dlsched(running, "show", str(number))
                return out if f"took {marker} s" in out else ""

            out = str(await eventually(there))
            assert out.count("has registered no state") == 1
            return out.count("no-room by job")

        assert await times(1, "100") == 1
        assert await times(2, "110") == 1
        assert await times(9, "120") == 1
        assert await times(1, "130") == 2
        for _ in range(2 * EACH_UP_TO):
            for room_gib in (9, 1):
                first = {"save_bytes": 3 * gib, "room_bytes": room_gib * gib, "restart_s": 1.0}
                await says(agent, key, step=0, **first)
        assert await times(1, "140") == EACH_UP_TO

    play(tmp_path, scene)


def test_a_failure_counts_once_for_all_ranks_and_not_after_a_later_checkpoint(
    tmp_path: Path,
) -> None:
    async def scene(running: Running, caller: Caller, agent: ScriptedAgent) -> None:
        [number] = await caller.submit(job(gpus=1))
        key = await begins(agent, 1)

        async def in_a_row() -> int:
            out = json.loads((await dlsched(running, "show", str(number), "--json"))[1])
            unsaved = out["jobs"][0]["unsaved"]
            return unsaved["in_a_row"] if unsaved else 0

        async def become(count: int) -> None:
            async def is_so() -> bool:
                return await in_a_row() == count

            await eventually(is_so)

        for step in (10, 10, 9, 20):
            await says(agent, key, unsaved_step=step, unsaved_why="full\nof \x1b[2J holes")
        await become(2)
        out = (await dlsched(running, "show", str(number)))[1]
        assert "checkpoint at step 20: full of" in out
        assert "\x1b" not in out
        await commit(agent, key, step=15)  # one that was late
        await become(2)
        await commit(agent, key, step=30)
        await become(0)
        await says(agent, key, unsaved_step=30, unsaved_why="another rank is told late")
        await says(agent, key, unsaved_step=40, unsaved_why="full")
        await become(1)
        out = (await dlsched(running, "show", str(number)))[1]
        assert "checkpoint at step 40: full; the newest one is of step 30, " in out

    play(tmp_path, scene)
