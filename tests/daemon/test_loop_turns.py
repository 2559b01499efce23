"""No call of a user holds the event loop for 100 ms: every method with its largest request.

What is measured is the CPU time of the loop's thread in each turn, in units of this machine's speed
at plain Python, before and at that moment: a busy neighbour makes all CPU seconds longer. Rounds
are left out: they have a budget of their own. So is the client.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
from asyncio.events import Handle
from collections.abc import Callable, Iterator
from pathlib import Path
from time import thread_time
from typing import Any

import grpc
import pytest

from dlsched.jobs.short_tasks import MOST_TASKS
from dlsched.rpc.authorisation import RULES
from dlsched.rpc.v1 import control_pb2 as c
from dlsched.rpc.v1.attach_pb2 import AttachInput, AttachTarget

from .cluster_of_tests import Caller, Running, eventually, job, settings_of
from .scripted_agent import ScriptedAgent

MOST_S = 0.1
USUAL_S = 0.04  # for `plain_python` where that bound was set
OTHERS = ("Rounds.", "Predictions.", "UnaryUnaryCall.", "UnaryStreamCall.")
Call = Callable[[], Any]


def plain_python() -> float:
    """CPU seconds of a fixed loop: the least of five."""

    def loop() -> float:
        began, total = thread_time(), 0
        for k in range(1_000_000):
            total += k & 3
        return thread_time() - began

    return min(loop() for _ in range(5))


def bound_s() -> float:
    """The most CPU seconds that a turn may take, at the present speed of this machine."""
    return MOST_S * max(1.0, plain_python() / USUAL_S)


class Turns:
    """The longest turn of the loop since `begin`, and what had it."""

    def __init__(self) -> None:
        self.longest_s, self.what = 0.0, ""

    def begin(self) -> None:
        self.longest_s, self.what = 0.0, ""

    @contextlib.contextmanager
    def watched(self, patch: pytest.MonkeyPatch) -> Iterator[None]:
        run = Handle._run  # type: ignore[attr-defined]

        def timed(handle: Any) -> None:
            began = thread_time()
            try:
                run(handle)
            finally:
                took = thread_time() - began
                if took > self.longest_s and not (what := whose(handle)).startswith(OTHERS):
                    self.longest_s, self.what = took, what

        patch.setattr(Handle, "_run", timed)
        gc.disable()  # a collection is no work of a call
        try:
            yield
        finally:
            gc.enable()


def whose(handle: Any) -> str:
    """The coroutine or function that has a turn."""
    task = getattr(handle._callback, "__self__", None)
    if isinstance(task, asyncio.Task):
        return str(getattr(task.get_coro(), "__qualname__", task))
    return repr(handle._callback)


async def done(call: Any) -> str:
    """The end of a call: empty, or why it was refused."""
    try:
        if hasattr(call, "__aiter__"):
            async for _ in call:
                pass
        else:
            await call
    except grpc.aio.AioRpcError as error:
        return error.details() or str(error.code())
    return ""


def attached(job: int, **more: Any) -> AttachInput:
    """The largest first message of a client of a shell."""
    return AttachInput(target=AttachTarget(job=job, ticket="a" * 64, argv=["x"] * 4000, **more))


def largest(k: Any, count: int, first: int) -> dict[str, list[Call]]:
    """The largest request of each method, in an order in which each has something to do.

    `first` is an array of `count` live jobs of the caller; as many single jobs follow it.
    """
    wait = {"timeout": 300}
    ids = list(range(first, first + min(9_999, 2 * count)))
    mine, everyone = c.Filter(jobs=ids), c.Filter(all_users=True)
    unknown = c.Filter(jobs=range(10**6, 10**6 + 9_999))
    patterns = c.Filter(all_users=True, names=["*a*b*c*d*e*f*g*"] * 20)
    often = c.Filter(jobs=[first] * 9_999)
    tasks = c.Filter(elements=[c.ArrayElements(array_job=first)] * 500)
    variables = [c.EnvironmentVariable(name=f"V{i}", value="x" * 1000) for i in range(60)]

    def act(action: int, chosen: c.Filter = mine, **more: Any) -> Call:
        return lambda: k.Act(c.ActRequest(action=action, filter=chosen, **more), **wait)

    def submit(**words: Any) -> Call:
        return lambda: k.Submit(c.SubmitRequest(**words), **wait)

    single = [job(held=True, name=f"job{i}") for i in range(count)]
    needy = job(held=True, not_nodes=[f"x{i}" for i in range(9_999)])
    lines = [f"echo {i:036}" for i in range(MOST_TASKS)]
    return {
        "Submit": [
            submit(jobs=[job(array=f"0-{count - 1}", held=True)]),
            submit(jobs=single[: count // 4], environment=variables),
            submit(jobs=[job(held=True, environment=variables) for _ in range(min(count, 250))]),
            submit(jobs=single),
            submit(jobs=[needy]),
            submit(jobs=[job(held=True, array="0-9", tasks=lines)]),
            submit(jobs=single, test_only=True),
        ],
        "Queue": [
            lambda chosen=chosen, columns=columns: k.Queue(  # type: ignore[misc]
                c.QueueRequest(filter=chosen, unfold=True, predict=True, columns=columns), **wait
            )
            for columns in (False, True)
            for chosen in (everyone, mine, unknown, patterns, often, tasks)
        ],
        "Show": [
            lambda chosen=chosen: k.Show(c.ShowRequest(filter=chosen, why_order=True), **wait)  # type: ignore[misc]
            for chosen in (mine, unknown, often, tasks)
        ],
        "Update": [
            lambda: k.Update(c.UpdateRequest(filter=mine, fields={"comment": "x" * 1000}), **wait),
            lambda: k.Update(c.UpdateRequest(filter=mine, fields={"array_limit": "5"}), **wait),
        ],
        "Sweep": [lambda: k.Sweep(c.SweepRequest(job=first), **wait)],
        "Tasks": [lambda: k.Tasks(c.TasksRequest(job=first), **wait)],
        "Metrics": [lambda: k.Metrics(c.MetricsRequest(job=first), **wait)],
        "Logs": [lambda: k.Logs(c.LogsRequest(job=first, tail_lines=-1), **wait)],
        "Attach": [lambda: k.Attach(iter([attached(first)]), **wait)],
        "Forward": [lambda: k.Forward(iter([attached(first, port=80)]), **wait)],
        "Nodes": [lambda: k.Nodes(c.NodesRequest(names=["n1"] * 9_999), **wait)],
        "Status": [lambda: k.Status(c.StatusRequest(), **wait)],
        "Usage": [lambda: k.Usage(c.UsageRequest(by_user=True), **wait)],
        "Checkpoints": [lambda: k.Checkpoints(c.CheckpointsRequest(filter=mine), **wait)],
        "Calibration": [lambda: k.Calibration(c.CalibrationRequest(), **wait)],
        "Tenants": [lambda: k.Tenants(c.TenantsRequest(), **wait)],
        "Speeds": [lambda: k.Speeds(c.SpeedsRequest(), **wait)],
        "WhatIf": [
            lambda: k.WhatIf(c.WhatIfRequest(policies=["fifo", "las"], schedule=True), **wait),
            lambda: k.WhatIf(c.WhatIfRequest(described=job(), gpus=[1, 2, 3, 4]), **wait),
        ],
        "Shadow": [lambda: k.Shadow(c.ShadowRequest(), **wait)],
        "CreateToken": [lambda: k.CreateToken(c.CreateTokenRequest(), **wait)],
        "ListTokens": [lambda: k.ListTokens(c.ListTokensRequest(), **wait)],
        "RevokeToken": [lambda: k.RevokeToken(c.RevokeTokenRequest(), **wait)],
        "Act": [
            act(c.ACTION_HOLD),
            act(c.ACTION_SIGNAL, signal=10),
            act(c.ACTION_CANCEL, unknown),
            act(c.ACTION_CANCEL, often, only_count=True),
            act(c.ACTION_CANCEL, c.Filter(jobs=[first])),
            act(c.ACTION_CANCEL, c.Filter(users=["ann"])),
            act(c.ACTION_REQUEUE),
            act(c.ACTION_CANCEL, c.Filter(users=["ann"])),
        ],
        "Wait": [lambda: k.Wait(c.WaitRequest(filter=mine), **wait)],
        "History": [
            lambda chosen=chosen: k.History(c.HistoryRequest(filter=chosen, live_too=True), **wait)  # type: ignore[misc]
            for chosen in (everyone, mine, patterns, often)
        ],
    }


@pytest.mark.parametrize(
    "count",
    [
        pytest.param(4_000, marks=pytest.mark.slow),
        pytest.param(10_000, marks=pytest.mark.exhaustive),
    ],
)
@pytest.mark.timeout(900)
def test_no_call_of_a_user_holds_the_loop(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, count: int
) -> None:
    turns, most = Turns(), bound_s()
    too_long: list[str] = []

    async def walk(caller: Caller) -> None:
        methods = largest(caller.control, count, first=1)
        of_users = {
            name.rpartition("/")[2]
            for name, rule in RULES.items()
            if "Control/" in name and not rule.operators_only
        }
        assert methods.keys() == of_users
        for name, calls in methods.items():
            for number, call in enumerate(calls):
                turns.begin()
                why = await done(call())
                await asyncio.sleep(0.05)  # what follows the answer counts, too
                if turns.longest_s > most and turns.longest_s > bound_s():
                    too_long.append(f"{name} {number}: {turns.longest_s:.3f} s {turns.what} {why}")

    async def whole() -> None:
        settings = settings_of(tmp_path, round={"interval_s": 1.0})
        async with Running(settings) as running, ScriptedAgent("n1", running.target) as agent:
            await eventually(lambda: agent.state.registered)
            with turns.watched(monkeypatch):
                await walk(running.caller())

    asyncio.run(whole())
    assert not too_long, f"above {most:.3f} s: " + "; ".join(too_long)
