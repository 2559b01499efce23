"""A policy in the shadow: it tells what it would do, costs what it may, and changes nothing."""

from __future__ import annotations

import asyncio
import json
import os
from pathlib import Path
from typing import Any

import psutil
import pytest

from dlsched.daemon.round.worker import PolicyWorker
from dlsched.daemon.settings import load_settings
from dlsched.rpc.v1 import control_pb2 as c

from .cluster_of_tests import Caller, Running, eventually, job
from .scripted_agent import ScriptedAgent
from .test_configuration import TEXT
from .test_daily import play, reaches, refused
from .test_replayed import dlsched

pytestmark = pytest.mark.slow


async def queued(running: Running, caller: Caller) -> tuple[int, int]:
    """A long job holds all 4 GPUs, and a short one waits behind it."""
    [long] = await caller.submit(job(gpus=4, expected_s=4000))
    await reaches(caller, long, "RUNNING")
    [short] = await caller.submit(job(gpus=4, expected_s=100))
    await eventually(lambda: running.daemon.cluster.live.position(short))
    return long, short


def test_what_another_policy_would_do_is_told_and_not_done(tmp_path: Path) -> None:
    async def scene(running: Running, caller: Caller, agent: ScriptedAgent) -> None:
        long, short = await queued(running, caller)
        code, out, _ = await dlsched(running, "admin", "shadow", "show")
        assert (code, out) == (0, "no policy is in the shadow\n")
        code, out, err = await dlsched(running, "admin", "shadow", "set", "srtf")
        assert (code, err) == (0, "")
        assert "scheduling srtf" in out
        shadow = running.daemon.shadow
        await eventually(lambda: shadow.record.looks or shadow.record.failure)
        code, out, _ = await dlsched(running, "admin", "shadow", "show", "--json")
        found: dict[str, Any] = json.loads(out)
        assert (found["schema"], found["policy"], found["present"]) == (
            "dlsched.shadow/1", "srtf", "fifo",
        )  # fmt: skip
        told = {each["job_id"]: (each["would"], each["nodes"]) for each in found["differences"]}
        assert told == {short: ("start", ["n1"]), long: ("suspend", [])}
        present, other = found["predicted"]
        assert (present["policy"], other["policy"]) == ("fifo", "srtf")
        assert other["mean_jct_s"] < present["mean_jct_s"]
        assert [each["job_id"] for each in present["all"]] == [long, short]
        assert (found["looks"], found["differing"], found["failures"]) == (1, 1, 0)
        code, out, _ = await dlsched(running, "admin", "shadow", "show")
        assert code == 0
        assert [line.split()[4] for line in out.splitlines() if line.split()[1:2] == ["train"]] == [
            "suspend", "start",
        ]  # fmt: skip
        # nothing was done
        assert (await caller.state(long), await caller.state(short)) == ("RUNNING", "PENDING")
        root = running.caller("root", 0)
        status = await root.control.Status(c.StatusRequest(), timeout=60)
        assert (status.policy, status.policy_failures, status.health) == ("fifo", 0, "green")
        process = psutil.Process(shadow._worker.pid)
        assert process.nice() == min(os.getpriority(os.PRIO_PROCESS, 0) + 15, 19)
        code, out, _ = await dlsched(running, "admin", "shadow", "off")
        assert (code, shadow.settings) == (0, None)

    play(tmp_path, scene)


def test_only_operators_set_it_and_what_cannot_decide_is_refused(tmp_path: Path) -> None:
    async def scene(running: Running, caller: Caller, agent: ScriptedAgent) -> None:
        wanted = c.SetShadowRequest(parts={"scheduling": "srtf"})
        assert "operators only" in (await refused(caller.control.SetShadow(wanted, timeout=60)))[1]
        assert not (await caller.control.Shadow(c.ShadowRequest(), timeout=60)).on
        root = running.caller("root", 0)
        for parts, message in (
            ({"scheduling": "nonsense"}, "'nonsense' is not known"),
            ({"placement": "best-fit"}, "name the policy"),
            ({"scheduling": "las", "colour": "red"}, "'colour' is no stage"),
        ):
            request = c.SetShadowRequest(parts=parts)
            assert message in (await refused(root.control.SetShadow(request, timeout=60)))[1]
        assert running.daemon.shadow.settings is None
        code, _, err = await dlsched(running, "admin", "shadow", "set", "las", "-o", "x")
        assert (code, err) == (2, "dlsched: -o: 'x' is not KEY=VALUE\n")
        code, _, err = await dlsched(running, "admin", "shadow", "set", "nope")
        assert (code, err.count("\n")) == (1, 1)
        assert "policy 'nope' is not known; known: fifo, " in err
        assert "--policy" not in err

    play(tmp_path, scene)


def test_a_policy_that_never_answers_is_ended_and_rounds_go_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = str(Path(__file__).parent / "round")
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([folder, os.environ.get("PYTHONPATH", "")]))

    async def scene(running: Running, caller: Caller, agent: ScriptedAgent) -> None:
        long, short = await queued(running, caller)
        shadow = running.daemon.shadow
        shadow._worker = PolicyWorker(modules=["bad_parts"], nice=15)
        settings = running.daemon.cluster.round_state.settings
        shadow._begin(settings.changed({"scheduling": "bad-endless"}), "root")
        await eventually(lambda: shadow.record.failures)
        assert "took longer than 1 s and was ended" in shadow.record.failure
        assert shadow.pause_s >= shadow.record.cost_s / 0.5
        root = running.caller("root", 0)
        status = await root.control.Status(c.StatusRequest(), timeout=60)
        assert (status.policy_failures, status.health) == (0, "green")
        code, out, _ = await dlsched(running, "admin", "shadow", "show")
        assert code == 0
        assert "failed    policy bad-endless: it took longer than 1 s and was ended" in out
        await caller.act(c.ACTION_CANCEL, long)
        await reaches(caller, short, "RUNNING")

    play(tmp_path, scene, shadow={"within_s": 1.0, "every_s": 0.1, "share": 0.5})


def test_a_file_sets_it_and_its_cost_is_bounded(tmp_path: Path) -> None:
    async def scene(running: Running, caller: Caller, agent: ScriptedAgent) -> None:
        await queued(running, caller)
        shadow = running.daemon.shadow
        await eventually(lambda: shadow.record.looks >= 2)
        assert shadow.record.set_by == "file"
        assert shadow.pause_s == pytest.approx(max(0.05, shadow.record.cost_s / 0.2))
        assert [each.would for each in shadow.record.last.differences] == ["suspend", "start"]

    play(
        tmp_path,
        scene,
        shadow={"policy": "srtf", "options": [], "every_s": 0.05, "share": 0.2},
    )


def test_a_reload_sets_it_and_leaves_what_an_operator_has_set(tmp_path: Path) -> None:
    file = tmp_path / "d.toml"

    def write(shadow: str, more: str = "") -> None:
        file.write_text(TEXT.format(folder=tmp_path, policy="fifo", more=f"{more}\n{shadow}"))

    async def scene() -> None:
        write("")
        async with Running(load_settings(file), file) as running:
            shadow, root = running.daemon.shadow, running.caller("root", 0)

            async def reload() -> None:
                await root.control.Reload(c.ReloadRequest(), timeout=60)

            assert shadow.settings is None
            write('[shadow]\npolicy = "srtf"\nplacement = "consolidated"\n')
            await reload()
            assert shadow.settings is not None
            assert dict(shadow.settings.parts) == {
                "scheduling": "srtf", "placement": "consolidated", "estimator": "user",
            }  # fmt: skip
            chosen = c.SetShadowRequest(parts={"scheduling": "las"})
            reply = await root.control.SetShadow(chosen, timeout=60)
            assert (reply.policy, reply.set_by) == ("las", "root")
            write('[shadow]\npolicy = "srtf"\nplacement = "consolidated"\n', "seed = 3")
            await reload()
            assert shadow.settings.policy == "las"
            write('[shadow]\npolicy = ""\n')
            await reload()
            assert shadow.settings is None

    asyncio.run(scene())
