"""A policy that an older release has stored, with options that policies no longer have."""

from __future__ import annotations

import asyncio
import logging
from pathlib import Path
from typing import Any

import pytest

from dlsched.daemon.round.parts import RoundSettings, options_left_out
from dlsched.db.records import PolicySet
from dlsched.rpc.v1 import control_pb2 as c
from dlsched.system.clock import wall

from .cluster_of_tests import Running, eventually, job, settings_of
from .scripted_agent import ScriptedAgent


@pytest.mark.parametrize(
    ("policy", "options", "left_out"),
    [
        ("elasticflow", ("marginal=paper",), ("marginal=paper",)),
        ("salus", ("lanes=paper", "semantics=rounds"), ("lanes=paper",)),
        ("tiresias", ("jump=whole", "limits=1000,2000"), ("jump=whole",)),
        ("tiresias", ("limits=1000,2000",), ()),
        ("fifo", ("semantics=blox",), ("semantics=blox",)),
        ("gavel", ("objective=isolated-plus", "semantics=gavel", "resolve_s=60"),
         ("objective=isolated-plus", "semantics=gavel")),
        # an option that is right only after a later one
        ("gavel", ("mechanism=published", "objective=fifo", "mechanism=corrected", "gone=1"),
         ("mechanism=published", "gone=1")),
        # a file that is away may come back
        ("karuna", ("sample=/no/such/file", "gone=1"), ("gone=1",)),
        ("karuna", ("sample=/no/such/file",), ()),
        ("no-such-policy", ("gone=1",), ()),
    ],
)  # fmt: skip
def test_options_that_left_are_told_from_those_that_are_kept(
    policy: str, options: tuple[str, ...], left_out: tuple[str, ...]
) -> None:
    settings = RoundSettings(parts={"scheduling": policy}, options=options)
    assert options_left_out(settings) == left_out


@pytest.mark.parametrize(
    ("policy", "gone", "kept"),
    [
        ("elasticflow", "marginal=paper", ()),
        ("salus", "lanes=paper", ()),
        ("tiresias", "jump=whole", ("limits=1000,2000",)),
        ("fifo", "semantics=blox", ()),
    ],
)
def test_a_stored_policy_decides_without_the_options_that_left(
    tmp_path: Path, caplog: Any, policy: str, gone: str, kept: tuple[str, ...]
) -> None:
    stored = PolicySet(at=wall(), parts={"scheduling": policy}, options=(gone, *kept), actor="root")

    async def scene() -> None:
        async with Running(settings_of(tmp_path)) as running:
            await running.daemon.driver.attach(stored)
        caplog.clear()
        async with (
            Running(settings_of(tmp_path)) as running,
            ScriptedAgent("n1", running.target) as agent,
        ):
            root, rounds = running.caller("root", 0), running.daemon.rounds

            async def told() -> Any:
                return await root.control.Status(c.StatusRequest(), timeout=60)

            await root.submit(job(gpus=1, expected_s=60.0))
            await eventually(agent.running)
            assert rounds.total_failures == 0
            found = await told()
            assert (found.policy, found.health) == (policy, "yellow")
            [problem] = [each for each in found.problems if gone in each]
            assert "admin set-policy" in problem
            assert not any(each in problem for each in kept)
            lines = [each for each in caplog.messages if "event=options-left-out" in each]
            assert len(lines) == 1
            assert gone in lines[0]
            asked = c.SetPolicyRequest(parts={"scheduling": policy})
            reply = await root.control.SetPolicy(asked, timeout=60)
            assert tuple(reply.options) == kept
            assert not [each for each in (await told()).problems if gone in each]
        caplog.clear()
        async with Running(settings_of(tmp_path)) as running:
            settings = running.daemon.cluster.round_state.settings
            assert (settings.policy, settings.options) == (policy, kept)
            assert "event=options-left-out" not in caplog.text

    with caplog.at_level(logging.WARNING, logger="dlsched"):
        asyncio.run(scene())


def test_set_policy_without_options_is_taken_at_once(tmp_path: Path) -> None:
    """It does not wait for a round, which may be the first to look at what is stored."""
    stored = PolicySet(
        at=wall(), parts={"scheduling": "elasticflow"}, options=("marginal=paper",), actor="root"
    )

    async def scene() -> None:
        async with Running(settings_of(tmp_path)) as running:
            await running.daemon.driver.attach(stored)
        async with Running(settings_of(tmp_path)) as running:
            asked = c.SetPolicyRequest(parts={"scheduling": "elasticflow"})
            reply = await running.caller("root", 0).control.SetPolicy(asked, timeout=60)
            assert not reply.options

    asyncio.run(scene())
