"""A failing policy does not harm the daemon: the plan stays, and the next round works."""

from __future__ import annotations

import asyncio
import contextlib
import os
import random
import re
import signal
import subprocess
import sys
from collections.abc import Awaitable, Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pytest

from dlsched.core.errors import BadInput, PolicyFailed
from dlsched.daemon.round.decide import decide
from dlsched.daemon.round.parts import live_parts
from dlsched.daemon.round.plan import refuse_offences, verify
from dlsched.daemon.round.snapshot import LiveSnapshot
from dlsched.daemon.round.snapshot_builder import take_snapshot
from dlsched.daemon.round.worker import PolicyWorker


@pytest.fixture
def with_worker(monkeypatch: pytest.MonkeyPatch) -> Callable[..., Any]:
    """Runs a coroutine with a worker that knows the bad parts too, and closes it."""
    folder = str(Path(__file__).parent)
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([folder, os.environ.get("PYTHONPATH", "")]))

    def run(body: Callable[[PolicyWorker], Awaitable[Any]], **given: Any) -> Any:
        async def inside() -> Any:
            worker = PolicyWorker(modules=["bad_parts"], **{"time_limit_s": 30.0, **given})
            try:
                await worker.start()
                return await body(worker)
            finally:
                await worker.close()

        return asyncio.run(inside())

    return run


def snapshot_under(live: Any, policy: str, *options: str) -> tuple[Any, LiveSnapshot]:
    lab = live.LiveLab((4,), parts={"scheduling": "las"})
    lab.submit(0.0, 2)
    lab.round(1.0)
    for _ in range(3):
        lab.submit(2.0, 1)
    good = take_snapshot(lab.state, "full", 61.0)
    return lab, good.under(lab.state.settings.with_policy({"scheduling": policy}, options))


def test_a_policy_that_raises_tells_its_line_and_leaves_a_traceback(
    live: Any, with_worker: Any, caplog: pytest.LogCaptureFixture
) -> None:
    _, bad = snapshot_under(live, "testing-raising", "at=1")

    async def work(worker: PolicyWorker) -> str:
        with pytest.raises(PolicyFailed) as failed:
            await worker.decide(bad)
        return str(failed.value)

    said = with_worker(work)
    place = re.search(r", in (\w+), (/\S+\.py):(\d+) \(traceback in the daemon's log\)$", said)
    assert place is not None, said
    name, file, line = place.groups()
    source = Path(file).read_text().splitlines()[int(line) - 1]
    assert source.strip().startswith("raise RuntimeError(")
    [record] = (r for r in caplog.records if "event=policy-raised" in r.getMessage())
    assert f'File "{file}", line {line}, in {name}' in record.getMessage()


def test_a_policy_that_does_not_end_leaves_the_line_that_it_was_in(
    live: Any, with_worker: Any, capfd: pytest.CaptureFixture[str]
) -> None:
    _, endless = snapshot_under(live, "bad-endless")

    async def work(worker: PolicyWorker) -> None:
        with pytest.raises(PolicyFailed, match="longer than 1 s"):
            await worker.decide(endless)

    with_worker(work, time_limit_s=1.0)
    assert re.search(r'bad_parts\.py", line \d+ in allocate', capfd.readouterr().err)


@pytest.mark.parametrize(
    ("policy", "options", "given", "text"),
    [
        ("testing-raising", ("at=1",), {}, "failed: RuntimeError('decision 1 went wrong')"),
        ("testing-over-allocate", ("offence=taken",), {}, "GPUs"),
        ("testing-over-allocate", ("offence=missing",), {}, "that it may not use"),
        ("testing-over-allocate", ("offence=twice",), {}, "GPUs twice"),
        ("bad-endless", (), {"time_limit_s": 1.0}, "longer than 1 s and was ended"),
        ("bad-hungry", (), {"memory_bytes": 2**31}, "MemoryError"),
        ("bad-dying", (), {}, "its process ended (exit 3)"),
        ("bad-answering", (), {}, "it answered request 0 instead of"),
        ("bad-exiting", (), {}, "it wanted to end its process: SystemExit(0)"),
    ],
)
def test_a_policy_that_misbehaves_is_named_and_the_next_round_works(
    live: Any, with_worker: Any, policy: str, options: Any, given: Any, text: str
) -> None:
    lab, bad = snapshot_under(live, policy, *options)
    good = take_snapshot(lab.state, "full", 61.0)

    async def rounds(worker: PolicyWorker) -> Any:
        with pytest.raises(PolicyFailed) as failed:
            await worker.decide(bad)
        assert worker.failures == 1
        return str(failed.value), await worker.decide(good), worker.failures

    said, decided, failures = with_worker(rounds, **given)
    assert said.startswith(f"policy {policy}")
    assert text in said
    assert "\n" not in said
    assert decided.to_bytes() == decide(good).to_bytes()
    assert failures == 0


def test_what_a_policy_has_started_ends_with_its_process(
    live: Any, with_worker: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    told = tmp_path / "child"
    monkeypatch.setenv("BAD_CHILD", str(told))
    _, bad = snapshot_under(live, "bad-leaving")

    async def body(worker: PolicyWorker) -> None:
        with pytest.raises(PolicyFailed, match="exit 3"):
            await worker.decide(bad)
        with contextlib.suppress(psutil.NoSuchProcess):
            psutil.Process(int(told.read_text())).wait(20)

    with_worker(body)


def test_an_answer_that_was_forged_is_found_by_the_check(live: Any, with_worker: Any) -> None:
    lab, bad = snapshot_under(live, "bad-forging")
    decided = with_worker(lambda worker: worker.decide(bad))
    with pytest.raises(PolicyFailed, match=r"^policy bad-forging: job \d+: .*\(and \d+ more\)$"):
        refuse_offences(decided, verify(decided, lab.live))


def test_a_worker_killed_in_the_middle_costs_one_round(live: Any, with_worker: Any) -> None:
    lab, slow = snapshot_under(live, "testing-slow", "cpu_s=30")
    good = take_snapshot(lab.state, "full", 61.0)

    async def killed(worker: PolicyWorker) -> None:
        pid = worker.pid
        assert pid is not None
        round_lost = asyncio.create_task(worker.decide(slow))
        while not worker.busy:
            await asyncio.sleep(0)
        os.kill(pid, signal.SIGKILL)
        with pytest.raises(PolicyFailed, match=r"its process ended \(signal 9\)"):
            await round_lost
        again = await worker.decide(good)
        assert again.to_bytes() == decide(good).to_bytes()
        assert worker.pid not in (None, pid)
        assert worker.restarts == 1

    with_worker(killed)


def test_an_abandoned_round_leaves_no_answer_behind(live: Any, with_worker: Any) -> None:
    lab, slow = snapshot_under(live, "testing-slow", "cpu_s=30")
    good = take_snapshot(lab.state, "full", 61.0)

    async def given_up(worker: PolicyWorker) -> None:
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.2):
                await worker.decide(slow)
        assert (await worker.decide(good)).to_bytes() == decide(good).to_bytes()

    with_worker(given_up)


def test_a_start_that_was_given_up_leaves_no_answer_behind(live: Any) -> None:
    lab, _ = snapshot_under(live, "las")
    good = take_snapshot(lab.state, "full", 61.0)

    async def given_up() -> None:
        worker = PolicyWorker()
        try:
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(0.01):
                    await worker.start()
            assert (await worker.decide(good)).to_bytes() == decide(good).to_bytes()
        finally:
            await worker.close()

    asyncio.run(given_up())


@pytest.mark.parametrize("seed", [1, 2])
def test_whatever_happens_to_a_worker_no_answer_is_another_request_s(
    live: Any, with_worker: Any, seed: int
) -> None:
    """Requests that are cut short at any time, a worker that stands still, goes on or dies."""
    lab, _ = snapshot_under(live, "las")
    asked = [take_snapshot(lab.state, "full", 61.0)]
    lab.submit(3.0, 4)
    asked.append(take_snapshot(lab.state, "full", 62.0))
    wanted = [decide(each).to_bytes() for each in asked]
    assert wanted[0] != wanted[1]
    draw = random.Random(seed)

    async def requests(worker: PolicyWorker) -> None:
        for _ in range(12):
            which, what, pid = draw.randrange(2), draw.randrange(4), worker.pid
            if pid is not None and what == 1:
                os.kill(pid, signal.SIGKILL)
            if pid is not None and what == 2:
                os.kill(pid, signal.SIGSTOP)
                asyncio.get_running_loop().call_later(draw.uniform(0.0, 0.2), go_on, pid)
            with contextlib.suppress(PolicyFailed, TimeoutError):
                async with asyncio.timeout(draw.choice([0.001, 0.01, 0.1, 30.0])):
                    assert (await worker.decide(asked[which])).to_bytes() == wanted[which]
        assert (await worker.decide(asked[0])).to_bytes() == wanted[0]

    def go_on(pid: int) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGCONT)

    with_worker(requests)


REFUSED: list[tuple[dict[str, str], tuple[str, ...], str]] = [
    ({"scheduling": "nope"}, (), "policy 'nope' is not known; known: fifo,"),
    ({"scheduling": "las", "placement": "nope"}, (), "placement 'nope' is not known"),
    ({"scheduling": "las"}, ("speed=1",), "-o speed: neither las nor the other parts"),
    ({"scheduling": "las"}, ("guard_s=x",), "option las.guard_s must be a number, not 'x'"),
    ({"scheduling": "gavel"}, ("objective=isolated-plus",), "is for replays only"),
    ({"scheduling": "las"}, ("nonsense",), "-o 'nonsense' does not read KEY=VALUE"),
    ({"scheduling": "srtf", "estimator": "oracle"}, (), "needs durations that only a replay"),
    ({"magic": "las"}, (), "'magic' is no stage of a live round"),
]


def test_parts_that_cannot_be_switched_on_are_refused_in_one_line(
    live: Any, with_worker: Any
) -> None:
    lab, _ = snapshot_under(live, "fifo")
    snapshot = take_snapshot(lab.state, "full", 61.0)

    async def tried(worker: PolicyWorker) -> list[str]:
        said = []
        for parts, options, _ in REFUSED:
            with pytest.raises(BadInput) as refused:
                await worker.try_policy(lab.state.settings.with_policy(parts, options), snapshot)
            said.append(str(refused.value))
        return said

    for line, (_, _, text) in zip(with_worker(tried), REFUSED, strict=True):
        assert text in line
        assert "\n" not in line


@pytest.mark.parametrize(
    ("policy", "option", "why"),
    [
        ("karuna", "sample", "{}: not a comma-separated list of numbers"),
        ("dl2", "model", "-o model: it names a file, which only operators' policies may"),
    ],
)
def test_only_settings_that_may_read_files_do(
    live: Any, tmp_path: Path, policy: str, option: str, why: str
) -> None:
    (tmp_path / "secret").write_text("1\npassword\n")
    name = f"{tmp_path}/secret"
    lab, _ = snapshot_under(live, "fifo")
    settings = lab.state.settings.with_policy({"scheduling": policy}, (f"{option}={name}",))
    settings = replace(settings, parts={**settings.parts, "estimator": "history"})
    with pytest.raises(BadInput, match=r"secret.*(password|no trained network)"):
        live_parts(settings, has_quotas=False)
    with pytest.raises(BadInput) as refused:
        live_parts(replace(settings, reads_files=False), has_quotas=False)
    assert str(refused.value) == why.format(name)
    alone = replace(settings, options=(), reads_files=False)
    colon = {**alone.parts, "scheduling": f"{policy}:{name}"}
    with pytest.raises(BadInput):
        live_parts(replace(alone, parts=colon), has_quotas=False)
    live_parts(alone, has_quotas=False)


def test_another_policy_takes_over_running_jobs(live: Any, with_worker: Any) -> None:
    lab, _ = snapshot_under(live, "fifo")
    running = set(lab.running())
    settings = lab.state.settings.with_policy({"scheduling": "tiresias"}, ("limits=1000,2000",))

    async def switched(worker: PolicyWorker) -> Any:
        await worker.try_policy(settings, take_snapshot(lab.state, "full", 61.0))
        lab.state.switch(settings)
        return await worker.decide(take_snapshot(lab.state, "full", 61.0))

    decided = with_worker(switched)
    assert decided.policy == "tiresias"
    assert not set(decided.suspended) & running
    assert len(decided.launched) == 2


def test_predicted_starts_name_their_basis(live: Any, with_worker: Any) -> None:
    lab = live.LiveLab((2,), parts={"scheduling": "fifo"})
    lab.submit(0.0, 2, time_limit_s=100.0)
    lab.round(0.0)
    second = lab.submit(1.0, 2, expected_s=30.0)
    third = lab.submit(2.0, 1)
    lab.submit(3.0, 5)  # never fits
    snapshot = take_snapshot(lab.state, "full", 10.0)
    predicted = {one.job: one for one in with_worker(lambda worker: worker.forecast(snapshot))}
    assert predicted[second].start_at == 100.0
    assert predicted[third].start_at == 130.0
    assert predicted[second].end_at == 130.0
    assert (np.isnan(predicted[1].start_at), predicted[1].end_at) == (True, 100.0)
    assert set(predicted) == {1, second, third}
    assert predicted[second].basis.startswith("expected times, time limits")


def test_a_worker_imports_nothing_from_the_folder_that_it_was_started_in(
    live: Any, with_worker: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lab, _ = snapshot_under(live, "las")
    for name in ("numpy", "msgspec", "dlsched"):
        (tmp_path / f"{name}.py").write_text("raise SystemExit(9)\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(["", ".", os.environ["PYTHONPATH"]]))

    async def decided(worker: PolicyWorker) -> str:
        await worker.decide(take_snapshot(lab.state, "full", 61.0))
        assert worker._process is not None
        return os.readlink(f"/proc/{worker._process.pid}/cwd")

    assert with_worker(decided) == "/"


def test_a_worker_loads_no_database_and_no_wire() -> None:
    """Each daemon starts one: these imports took more processor time than all others together."""
    program = "import sys, dlsched.daemon.round.worker_main; print(*sys.modules)"
    found = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    loaded = {name.partition(".")[0] for name in found.stdout.split()}
    assert "dlsched" in loaded
    assert not loaded & {"asyncio", "google", "grpc", "msgspec", "sqlalchemy"}
