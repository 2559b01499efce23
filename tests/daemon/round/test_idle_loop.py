"""The loop of the rounds sleeps while nothing is to be decided: no turn leaves one due at once."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from dlsched.daemon.rounds import Rounds
from dlsched.protocol import leader
from dlsched.protocol.messages import NodeName
from dlsched.system.clock import boottime
from tests.daemon.cluster_of_tests import Running, eventually, settings_of
from tests.daemon.scripted_agent import ScriptedAgent


async def sleeps_after_a_turn(rounds: Rounds, monkeypatch: pytest.MonkeyPatch, now: float) -> bool:
    """Take one turn at a moment at which a round, and another that the policy wants, are due."""
    monkeypatch.setattr("dlsched.daemon.rounds.boottime", lambda: now)
    rounds._full_at = rounds._wake_at = now - 1.0
    rounds.wake()
    await rounds._turn()
    return rounds.next_at > now


def test_with_nothing_to_do_no_turn_follows_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def script() -> None:
        async with Running(settings_of(tmp_path)) as running:
            rounds, driver, now = running.daemon.rounds, running.daemon.driver, boottime()
            await rounds.stop()
            assert not driver.reserved.jobs
            assert await sleeps_after_a_turn(rounds, monkeypatch, now)
            driver.store_down = "away"
            assert await sleeps_after_a_turn(rounds, monkeypatch, now)
            driver.store_down, rounds._pause_until = "", now + 30.0
            assert await sleeps_after_a_turn(rounds, monkeypatch, now)

    asyncio.run(script())


def test_while_nodes_are_not_heard_no_turn_follows_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = settings_of(tmp_path, timing={"beat_s": 5.0})

    async def script() -> None:
        async with Running(settings) as running:
            driver = running.daemon.driver
            async with ScriptedAgent("n1", running.target):
                await eventually(lambda: NodeName("n1") in driver.committed.nodes)
        async with Running(settings) as again:  # without the node
            rounds, now = again.daemon.rounds, boottime()
            await rounds.stop()
            assert leader.recovering(again.daemon.driver.state, now)
            assert await sleeps_after_a_turn(rounds, monkeypatch, now)

    asyncio.run(script())


def test_a_daemon_that_loses_the_lead_while_it_enforces_decides_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def script() -> None:
        async with Running(settings_of(tmp_path)) as running:
            rounds, driver = running.daemon.rounds, running.daemon.driver
            await rounds.stop()
            looked = []
            monkeypatch.setattr(
                "dlsched.daemon.rounds.place_host_only", lambda *_: looked.append(1)
            )
            monkeypatch.setattr("dlsched.daemon.rounds.leader.recovering", lambda *_: False)

            async def stays(_cluster: object) -> None:
                pass

            async def loses_the_database(_cluster: object) -> None:
                driver.store_down = "away"

            async def loses_the_lead(_cluster: object) -> None:
                driver.store_down = ""
                driver.step(leader.Deposed(boottime()))

            for enforced in (stays, loses_the_database, loses_the_lead):
                driver.store_down, rounds._look_at = "", 0.0
                monkeypatch.setattr("dlsched.daemon.rounds.enforce", enforced)
                rounds.wake()
                await rounds._turn()
                assert len(looked) == 1

    asyncio.run(script())
