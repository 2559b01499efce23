"""The NVML path, driven through the real binding against a library that we build here."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from scripted_leader import Cluster, Work, eventually

from dlsched.nodeagent.gpus.nvml import DriverSilent, NvmlGpus
from dlsched.nodeagent.gpus.watch import GpuWatch
from dlsched.protocol.ledger import JobStatus
from dlsched.protocol.messages import NodeName, RunId
from tests.nvml_stub import COMPILER, build_stub

pytestmark = pytest.mark.skipif(COMPILER is None, reason="no C compiler to build the stub with")
pytest.importorskip("pynvml")


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build_stub(tmp_path_factory.mktemp("nvml"))


@pytest.fixture
def say(library: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    """Change what the driver says."""
    facts = tmp_path / "facts"
    monkeypatch.setenv("LD_LIBRARY_PATH", str(library))
    monkeypatch.setenv("STUB_NVML", str(facts))

    def write(text: str) -> None:
        new = facts.with_suffix(".new")
        new.write_text("gpus 2\n" + text)
        new.rename(facts)

    write("")
    return write


@pytest.fixture
def gpus(say: Callable[[str], None]) -> Iterator[NvmlGpus]:
    made = NvmlGpus(limit_s=5.0)
    yield made
    made.close()


def problems(gpus: NvmlGpus) -> list[str]:
    return [state.problem for state in gpus.states()]


def test_inventory(gpus: NvmlGpus) -> None:
    found = gpus.inventory()
    assert [gpu.uuid for gpu in found.gpus] == ["GPU-stub-0", "GPU-stub-1"]
    assert {gpu.type for gpu in found.gpus} == {"h100"}
    assert {gpu.memory_bytes for gpu in found.gpus} == {80 << 30}
    assert found.gpus[0].linked == ("GPU-stub-1",)
    assert (found.driver, found.problem) == ("580.1", "")


def test_values_that_a_driver_lacks_are_unknown(gpus: NvmlGpus) -> None:
    state = gpus.states()[0]
    assert (state.utilization, state.temperature_c, state.problem) == (None, None, "")


def test_health(gpus: NvmlGpus, say: Callable[[str], None]) -> None:
    say("ecc 0 4\n")
    assert problems(gpus) == ["", ""]  # counted before we looked
    say("ecc 0 6\nremap 1 1 0\n")
    assert problems(gpus) == ["2 uncorrected ECC errors", ""]
    assert gpus.states()[1].after_job == "row remapping waits for a reset"
    say("remap 1 0 1\n")
    assert problems(gpus)[1] == "row remapping failed"
    say("xid 0 13\nxid 1 48\n")
    assert problems(gpus) == ["", "Xid 48: double-bit ECC error"]
    say("xid 0 13\nxid 1 48\nxid 0 79\n")
    assert gpus.states()[0].node_problem == "Xid 79: fell off the bus"
    say("broken 1\n")
    assert "cannot be read" in problems(gpus)[1]


def test_processes(gpus: NvmlGpus, say: Callable[[str], None]) -> None:
    say("process 0 4711 100\nprocess 0 4712 200\nused 0 300\n")
    first, second = gpus.states()
    assert first.processes is not None
    assert [(each.pid, each.memory_bytes) for each in first.processes] == [
        (4711, 100 << 20),
        (4712, 200 << 20),
    ]
    assert first.memory_used_bytes == 300 << 20
    assert second.processes == ()


def test_a_call_that_hangs_stops_only_the_asking_process(
    say: Callable[[str], None],
) -> None:
    gpus = NvmlGpus(limit_s=1.0)
    assert len(gpus.states()) == 2
    say("hang\n")
    with pytest.raises(DriverSilent, match="does not answer"):
        gpus.states()
    say("")
    assert len(gpus.states()) == 2
    gpus.close()


def test_each_of_several_threads_gets_its_own_answer(gpus: NvmlGpus) -> None:
    with ThreadPoolExecutor(4) as threads:
        asked = [(threads.submit(gpus.inventory), threads.submit(gpus.states)) for _ in range(30)]
    for inventory, states in asked:
        assert [each.uuid for each in inventory.result().gpus] == ["GPU-stub-0", "GPU-stub-1"]
        assert [each.processes for each in states.result()] == [(), ()]


def looked(watch: GpuWatch, owners: dict[int, RunId]) -> None:
    def runs_of(pids: Iterable[int]) -> dict[int, RunId | None]:
        return {pid: owners.get(pid) for pid in pids}

    asyncio.run(watch.read(runs_of))


def test_a_watch_finds_unhealthy_gpus_and_foreign_processes(
    gpus: NvmlGpus, say: Callable[[str], None]
) -> None:
    watch = GpuWatch(gpus, gpus.inventory())
    say("process 0 4711 100\n")
    looked(watch, {})
    assert watch.foreign == {"GPU-stub-0": "foreign process 4711"}
    assert watch.unhealthy == ("GPU-stub-0",)
    looked(watch, {4711: RunId("r")})
    assert (watch.foreign, watch.unhealthy) == ({}, ())
    assert watch.used_by(RunId("r")) == 100 << 20
    say("gone 1\n")
    looked(watch, {})
    assert watch.why == {"GPU-stub-1": "fell off the bus"}
    say("")
    looked(watch, {})
    assert watch.unhealthy == ("GPU-stub-1",)  # back, but an operator has to look at it
    watch.close()


def test_a_driver_that_hangs_makes_gpus_unhealthy_not_the_agent(
    say: Callable[[str], None],
) -> None:
    gpus = NvmlGpus(limit_s=1.0)
    watch = GpuWatch(gpus, gpus.inventory())
    say("hang\n")
    looked(watch, {})
    assert len(watch.unhealthy) == 2
    say("")
    looked(watch, {})
    assert watch.unhealthy == ()
    watch.close()


def test_room_for_what_a_checkpoint_has_put_aside(
    gpus: NvmlGpus, say: Callable[[str], None]
) -> None:
    watch = GpuWatch(gpus, gpus.inventory())
    say(f"used 0 {70 * 1024}\n")
    looked(watch, {})
    first = watch.inventory.gpus[0].uuid
    assert watch.has_room([first], 9 << 30)
    assert not watch.has_room([first], 10 << 30)
    watch.close()


def test_an_agent_with_gpus_of_a_stub_driver(cluster: Cluster, say: Callable[[str], None]) -> None:
    """Fault rows C21 and C23, through a whole agent."""
    leader: Any = cluster.leader
    cluster.agent("n1", more="gpu_look_s = 0.1\n", fake=False)
    eventually(lambda: len(_gpus(leader)) == 2, "two GPUs from the driver")
    leader.wait_node("n1")
    job = leader.submit(Work(argv=("sh", "-c", "echo $CUDA_VISIBLE_DEVICES; exec sleep 1000")))
    leader.place(job, ("n1",))
    leader.wait(job, JobStatus.RUNNING)
    say(f"process 1 {os.getpid()} 5\n")

    def uses() -> dict[str, Any]:
        return {each.uuid: each for each in leader.descriptions["n1"].uses}

    eventually(lambda: uses()["GPU-stub-1"].foreign, "a foreign process is shown")
    eventually(lambda: leader.syncs[-1].health.unhealthy == ("GPU-stub-1",))
    say("ecc 0 1\n")
    eventually(lambda: leader.syncs[-1].health.unhealthy == ("GPU-stub-0",))
    assert leader.job(job).status is JobStatus.RUNNING  # what to do is the leader's business
    leader.cancel(job)
    leader.wait(job, JobStatus.CANCELLED)


def _gpus(leader: Any) -> tuple[Any, ...]:
    node = leader.ledger.nodes.get(NodeName("n1"))
    return node.gpus if node is not None else ()
