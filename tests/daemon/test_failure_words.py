"""What a program says when it fails is for its owner and operators; others see how it ended."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dlsched.protocol import messages as m
from dlsched.protocol.ledger import in_words, with_cause, without_words
from dlsched.rpc.v1 import control_pb2 as c

from .cluster_of_tests import Caller, Running, eventually, job, settings_of
from .scripted_agent import ScriptedAgent

SECRET = "ValueError: /data/secret\x1b[31m"


@pytest.mark.parametrize(
    ("text", "kept"),
    [
        ("n1: exit 3: ValueError", "n1: exit 3"),
        ("retry: exit 1: x", "retry: exit 1"),
        ("rank 3 on n2: exit 1: ValueError", "rank 3 on n2: exit 1"),
        ("late: n1: signal 9: x (y)", "late: n1: signal 9"),
        ("NodeFail(n1: not-started cannot open output /a)", "NodeFail(n1: not-started)"),
        ("n2: keeper-lost x", "n2: keeper-lost"),
        ("Resources", "Resources"),
        ("Dependency(afterok:4)", "Dependency(afterok:4)"),
    ],
)
def test_words_are_left_out_after_how_it_ended(text: str, kept: str) -> None:
    assert without_words(text) == kept


@pytest.mark.parametrize(
    ("reason", "cause", "told"),
    [
        ("exit 127", "n1: exit 127: sh: 1: x: not found", "exit 127: sh: 1: x: not found"),
        ("n1: exit 3", "n1: exit 3: a\x1b[1mb", "n1: exit 3: a [1mb"),
        ("rank 0 on n1: exit 3", "rank 0 on n1: exit 3", "rank 0 on n1: exit 3"),
        ("signal 9", "n1: OutOfMemoryError", "signal 9: n1: OutOfMemoryError"),
        ("exit 3", "n1: exit 3", "exit 3"),
        ("exit 126: cannot open output /a", "n1: exit 126: x", "exit 126: cannot open output /a"),
        ("Dependency", "n1: exit 3: x", "Dependency"),
        ("rank 0: exit 1: x", "rank 1 on n2: exit 7", "rank 0: exit 1: rank 1 on n2: exit 7"),
        ("rank 0 on n1: exit 1", "rank 1 on n2: x", "rank 0 on n1: exit 1: rank 1 on n2: x"),
        ("rank 1 on n1: exit 1: x", "rank 1 on n1: y", "rank 1 on n1: exit 1: x"),
    ],
)
def test_a_cause_is_added_where_only_a_code_is_known(reason: str, cause: str, told: str) -> None:
    assert with_cause(reason, cause) == told
    assert without_words(told) == without_words(reason)


@given(
    st.text(min_size=1).filter(lambda text: text.strip()),
    st.sampled_from(m.ExitReason),
    st.integers(0, 255),
)
def test_no_words_of_a_record_pass(said: str, reason: m.ExitReason, code: int) -> None:
    key = m.RunKey(job=m.JobId(1), run=m.RunNumber(1), run_id=m.RunId("r"))
    record = m.ExitRecord(
        key=key, node=m.NodeName("n1"), reason=reason, code=code, signal=code, detail=said,
        ran_s=1.0, nodes=(m.NodeName("n1"), m.NodeName("n2")),
    )  # fmt: skip
    assert without_words(in_words(record)) == in_words(replace(record, detail=""))


async def everything(caller: Caller, failed: int) -> str:
    """All that a caller is told of a job."""
    asked = c.Filter(jobs=[failed], all_users=True)
    said = str(await caller.show(failed))
    for call in (
        caller.control.History(c.HistoryRequest(filter=asked)),
        caller.control.Wait(c.WaitRequest(filter=asked)),
        caller.control.Queue(c.QueueRequest(filter=c.Filter(all_users=True), unfold=True)),
    ):
        said += "".join([str(page) async for page in call])
    return said


def test_only_the_owner_and_operators_read_the_words_of_a_failure(tmp_path: Path) -> None:
    async def scene() -> None:
        async with (
            Running(settings_of(tmp_path)) as running,
            ScriptedAgent("n1", running.target) as agent,
        ):
            ann, bob, root = (
                running.caller(),
                running.caller("bob", 1002),
                running.caller("root", 0),
            )
            [failed, again] = await ann.submit(job(), job(retries=1, retry_elsewhere=True))
            await eventually(lambda: len(agent.running()) == 2)
            for key in agent.running():
                agent.end(key.run_id, 3, detail=SECRET)

            async def is_over() -> bool:
                has_failed = (await ann.show(again)).job.failures == 1
                return has_failed and await ann.state(failed) == "FAILED"

            await eventually(is_over)
            for caller in (ann, root):
                told = await everything(caller, failed)
                assert "ValueError: /data/secret" in told
                assert "\x1b" not in told
            told = await everything(bob, failed) + str(await bob.show(again))
            assert "secret" not in told
            assert "exit 3" in told

    asyncio.run(scene())
