"""Alarms have a time and an end; the status is not green while something is wrong, and then is."""

from __future__ import annotations

import asyncio
import os
import sqlite3
from pathlib import Path
from typing import Any

import grpc
import pytest

from dlsched.daemon.alarms import RECENT_S, RecentAlarms
from dlsched.protocol import leader
from dlsched.rpc.v1 import control_pb2 as c

from .cluster_of_tests import Running, eventually, job, settings_of
from .scripted_agent import ScriptedAgent

AT = 1_800_000_000.0  # 08:00 UTC


async def status(caller: Any) -> Any:
    return await caller.control.Status(c.StatusRequest(), timeout=60)


def test_an_alarm_is_present_until_it_is_over_and_then_past_for_an_hour() -> None:
    alarms = RecentAlarms()
    alarms.raised("n1 is late", AT, lasts=True)
    alarms.raised("n2 holds an unknown run", AT + 60, lasts=False)
    assert alarms.present(AT + 70) == ["n1 is late (since 08:00 UTC)"]
    assert alarms.past(AT + 70) == ["08:01 UTC: n2 holds an unknown run"]
    alarms.follow({"n1 is late"}, AT + 80)
    assert alarms.present(AT + 80)
    alarms.follow(frozenset(), AT + 130)
    assert alarms.present(AT + 130) == []
    over = "08:00 to 08:02 UTC: n1 is late"
    assert alarms.past(AT + 130) == [over, "08:01 UTC: n2 holds an unknown run"]
    assert alarms.past(AT + 65 + RECENT_S) == [over]
    assert alarms.past(AT + 131 + RECENT_S) == []


def test_an_alarm_of_many_nodes_or_of_many_times_is_one_line() -> None:
    alarms = RecentAlarms()
    texts = [f"n{k} is late: its runs stay as they are" for k in range(1, 9)]
    for k, text in enumerate(texts, 1):
        alarms.raised(text, AT + k, lasts=True, node=f"n{k}")
    assert alarms.present(AT + 70) == [
        "n1 is late: its runs stay as they are; the same of n2, n3, n4, n5, n6 and 2 more "
        "(since 08:00 UTC)"
    ]
    alarms.follow(texts[:1], AT + 80)
    assert alarms.present(AT + 80) == [f"{texts[0]} (since 08:00 UTC)"]
    alarms.follow((), AT + 80)
    for minute in (10, 20):
        alarms.raised(texts[0], AT + 60 * minute, lasts=False, node="n1")
    [line] = alarms.past(AT + 1300)
    assert line.startswith("08:00 to 08:20 UTC, 3 times: n1 is late: its runs stay as they are; ")


def test_an_alarm_that_is_over_does_not_colour_the_status(tmp_path: Path) -> None:
    async def scene() -> None:
        async with (
            Running(settings_of(tmp_path)) as running,
            ScriptedAgent("n1", running.target),
        ):
            caller, driver = running.caller("root", 0), running.daemon.driver
            await eventually(lambda: len(driver.committed.nodes) == 1)
            text = "quorum lost: n1 is silent and too few witnesses are renewed"
            driver._carry_out(leader.Alarm(text))
            told = await status(caller)
            assert (told.health, len(told.past)) == ("yellow", 0)
            assert told.problems[0].startswith(text)
            driver.alarms.follow(driver.state.alarms, AT)

            async def is_over() -> bool:
                return (await status(caller)).health == "green"

            await eventually(is_over)

    asyncio.run(scene())


def test_drained_nodes_are_yellow_and_red_when_they_are_most(tmp_path: Path) -> None:
    async def scene() -> None:
        async with (
            Running(settings_of(tmp_path)) as running,
            ScriptedAgent("n1", running.target),
            ScriptedAgent("n2", running.target),
            ScriptedAgent("n3", running.target),
        ):
            caller = running.caller("root", 0)
            await eventually(lambda: len(running.daemon.driver.committed.nodes) == 3)
            found = []
            for names in (["n1"], ["n2"]):
                drain = c.NODE_ACTION_DRAIN
                asked = c.SetNodesRequest(names=names, action=drain, reason="new fans")
                await caller.control.SetNodes(asked, timeout=60)
                told = await status(caller)
                found.append((told.health, list(told.problems)))
            assert found == [
                ("yellow", ["nodes drained: n1 (new fans)"]),
                ("red", ["nodes drained: n1 (new fans), n2 (new fans)"]),
            ]
            resume = c.SetNodesRequest(names=["n1", "n2"], action=c.NODE_ACTION_RESUME)
            await caller.control.SetNodes(resume, timeout=60)

            async def are_back() -> bool:
                return (await status(caller)).health == "green"

            await eventually(are_back)

    asyncio.run(scene())


def test_silent_nodes_are_away_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def scene() -> None:
        async with (
            Running(settings_of(tmp_path)) as running,
            ScriptedAgent("n1", running.target),
            ScriptedAgent("n2", running.target),
            ScriptedAgent("n3", running.target),
        ):
            caller, cluster = running.caller("root", 0), running.daemon.cluster
            await eventually(lambda: len(cluster.driver.committed.nodes) == 3)
            found = []
            for late in (["n1"], ["n1", "n2"]):
                monkeypatch.setattr(cluster, "is_late", lambda name, now, late=late: name in late)
                told = await status(caller)
                words = f"nodes late: {', '.join(late)}"
                found.append((told.health, words in told.problems))
            assert found == [("yellow", True), ("red", True)]
            monkeypatch.setattr(cluster, "is_late", lambda name, now: name == "n2")
            asked = c.SetNodesRequest(names=["n1"], action=c.NODE_ACTION_DRAIN, reason="fans")
            await caller.control.SetNodes(asked, timeout=60)
            told = await status(caller)
            assert (told.health, told.problems[:2]) == (
                "red",
                ["nodes late: n2", "nodes drained: n1 (fans)"],
            )

    asyncio.run(scene())


def test_what_agents_say_is_wrong_is_told(tmp_path: Path) -> None:
    async def scene() -> None:
        async with (
            Running(settings_of(tmp_path)) as running,
            ScriptedAgent("n1", running.target),
        ):
            caller, cluster = running.caller("root", 0), running.daemon.cluster
            described = cluster.agents.described
            await eventually(lambda: "n1" in described and "n1" in cluster.driver.committed.nodes)

            async def problems() -> Any:
                described["n1"].problems = ("cannot store: disk full",)  # each report sets it anew
                told = await status(caller)
                return told.problems if told.health == "yellow" else []

            found = await eventually(problems)
            assert "nodes with problems: n1: cannot store: disk full" in found

    asyncio.run(scene())


def test_a_database_that_another_program_locks_is_red_until_it_is_free(tmp_path: Path) -> None:
    async def scene() -> None:
        async with Running(settings_of(tmp_path)) as running:
            caller = running.caller("root", 0)
            other = sqlite3.connect(tmp_path / "dlsched.db", isolation_level=None)
            other.execute("BEGIN IMMEDIATE")
            waiting = asyncio.create_task(caller.submit(job(held=True), request_id="one"))

            async def is_(health: str) -> Any:
                told = await status(caller)
                return told if told.health == health else None

            told = await eventually(lambda: is_("red"))
            words = ("the database has not answered for ", "cannot store: ")
            assert told.problems[0].startswith(words)
            other.execute("ROLLBACK")
            other.close()
            await eventually(lambda: is_("green"))
            await asyncio.gather(waiting, return_exceptions=True)  # refused, or stored after all
            await caller.submit(job(held=True), request_id="one")
            assert len((await caller.queue())[0]) == 1

    asyncio.run(scene())


@pytest.mark.parametrize("fault", ["removed", "replaced"])
def test_nothing_is_acknowledged_into_a_database_file_that_is_gone(
    tmp_path: Path, fault: str
) -> None:
    """Row B14."""

    async def scene() -> None:
        async with Running(settings_of(tmp_path)) as running:
            caller = running.caller("root", 0)
            [first] = await caller.submit(job(held=True))
            file, aside = tmp_path / "dlsched.db", tmp_path / "aside"
            os.rename(file, aside)
            if fault == "replaced":
                file.write_bytes(aside.read_bytes())

            with pytest.raises(grpc.aio.AioRpcError) as error:
                await caller.submit(job(held=True), request_id="again")
            assert error.value.code() is grpc.StatusCode.UNAVAILABLE

            async def is_(health: str) -> Any:
                told = await status(caller)
                return told if told.health == health else None

            told = await eventually(lambda: is_("red"))
            advice = {  # a daemon that is restarted without its file begins an empty one
                "removed": "was removed: put it, or a backup, back before the daemon is restarted",
                "replaced": "is another file now: put the file of before back, or restart",
            }
            assert f"{file} {advice[fault]}" in told.problems[0]
            os.rename(aside, file)
            await eventually(lambda: is_("green"))
            [second] = await caller.submit(job(held=True), request_id="again")
            jobs, _, _ = await caller.queue()
            assert sorted(view.job for view in jobs) == [first, second]

    asyncio.run(scene())
