"""`[submit] filter`: the site's function changes, refuses and notes; it harms no daemon."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import grpc
import pytest

from dlsched.core.errors import BadInput
from dlsched.daemon.round.site_function import check_site_function
from dlsched.rpc.v1 import control_pb2 as c

from .cluster_of_tests import Caller, Running, eventually, job, settings_of

FILTER = """
import time

def look(action, user, asked):
    if action == "update":
        return {"comment": asked["comment"] + " by " + user, "note": "a note"}
    if asked["name"] == "huge":
        return f"{user}: no more than 8 GPUs"
    if asked["name"] == "raises":
        return asked["no-such-field"]
    if asked["name"] == "endless":
        time.sleep(3600)
    if asked["name"] == "odd":
        return {"colour": "red"}
    if asked["name"] == "wrong":
        return 7
    assert "environment" not in asked
    return {"vc": "", "comment": "seen", "extra": {"site": "1"}, "gpus": 2, "note": ["two GPUs"]}
"""


def play(
    folder: Path, scene: Callable[[Running, Caller], Awaitable[None]], text: str = FILTER
) -> None:
    file = folder / "site.py"
    file.write_text(text)
    file.chmod(0o644)

    async def inside() -> None:
        submit = {"filter": f"{file}:look", "within_s": 2.0}
        async with Running(settings_of(folder, submit=submit)) as running:
            await scene(running, running.caller())

    asyncio.run(inside())


async def refused(caller: Caller, name: str) -> tuple[Any, str]:
    with pytest.raises(grpc.aio.AioRpcError) as error:
        await caller.submit(job(name=name, gpus=1))
    return error.value.code(), error.value.details()


def test_it_changes_what_is_submitted_and_updated_and_adds_notes(tmp_path: Path) -> None:
    async def scene(running: Running, caller: Caller) -> None:
        secret = c.EnvironmentVariable(name="TOKEN", value="x")
        asked = c.SubmitRequest(jobs=[job(vc="made-up", gpus=1, environment=[secret])])
        reply = await caller.control.Submit(asked, timeout=60)
        assert "two GPUs" in reply.warnings
        detail = await caller.show(reply.jobs[0].job)
        assert (detail.job.gpus, detail.job.vc, detail.job.comment) == (2, "", "seen")
        assert dict(detail.request.extra) == {"site": "1"}
        change = c.UpdateRequest(
            filter=c.Filter(jobs=[reply.jobs[0].job]), fields={"comment": "mine"}
        )
        acted = await caller.control.Update(change, timeout=60)
        assert acted.lines[-1] == "a note"
        assert (await caller.show(reply.jobs[0].job)).job.comment == "mine by ann"

    play(tmp_path, scene)


def test_it_refuses_with_its_own_line(tmp_path: Path) -> None:
    async def scene(running: Running, caller: Caller) -> None:
        denied = grpc.StatusCode.PERMISSION_DENIED
        assert await refused(caller, "huge") == (denied, "ann: no more than 8 GPUs")
        jobs, _, _ = await caller.queue()
        assert not jobs

    play(tmp_path, scene)


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("raises", "failed: KeyError('no-such-field'), in look, "),
        ("endless", "it took longer than 2 s and was ended"),
        ("odd", "it sets colour to 'red': a job has no such field"),
        ("wrong", "it returned 7: None, a dict or a refusing text"),
    ],
)
def test_one_that_fails_lets_nothing_in_and_the_status_says_it(
    tmp_path: Path, name: str, said: str
) -> None:
    async def scene(running: Running, caller: Caller) -> None:
        code, why = await refused(caller, name)
        assert code is grpc.StatusCode.PERMISSION_DENIED
        assert why.startswith("the site's filter fails: ")
        assert said in why
        status = await caller.control.Status(c.StatusRequest(), timeout=60)
        assert (status.health, said in "".join(status.problems)) == ("yellow", True)
        await caller.submit(job(gpus=1))  # the next one is looked at anew
        assert (await caller.control.Status(c.StatusRequest(), timeout=60)).health == "green"

    play(tmp_path, scene)


def test_a_changed_file_is_used_at_once_and_a_broken_one_lets_nothing_in(tmp_path: Path) -> None:
    async def scene(running: Running, caller: Caller) -> None:
        file = tmp_path / "site.py"
        await caller.submit(job(gpus=1))
        file.write_text("def look(action, user, asked):\n    return 'closed'\n")
        assert (await refused(caller, "any"))[1] == "closed"
        file.write_text("def look(:\n")
        assert "SyntaxError" in (await refused(caller, "any"))[1]
        file.unlink()
        assert "No such file" in (await refused(caller, "any"))[1]
        file.write_text("def look(action, user, asked):\n    return None\n")
        file.chmod(0o644)

        async def is_taken() -> bool:
            return bool(await caller.submit(job(gpus=1)))

        await eventually(is_taken)

    play(tmp_path, scene)


def test_a_file_that_others_can_write_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "site.py"
    file.write_text(FILTER)
    file.chmod(0o664)
    with pytest.raises(BadInput, match="can be written by others"):
        check_site_function(f"{file}:look")
    with pytest.raises(BadInput, match="neither MODULE:FUNCTION nor"):
        check_site_function("site")
