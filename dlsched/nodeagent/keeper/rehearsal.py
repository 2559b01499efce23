"""A whole run of nothing, kept in the zygote before it forks keepers.

What Python makes at the first call of a function would else be made again by each keeper: places
of attributes, specialized instructions, pages of the C library. The run is a real one, from its
reservation to its end, in a folder of its own; only the agent is played here. The job cannot be
executed, so it ends as soon as it is started.
"""

from __future__ import annotations

import contextlib
import gc
import os
import signal

from dlsched.nodeagent.host import containment, lean_socket, processes
from dlsched.nodeagent.json_values import dumps, loads
from dlsched.nodeagent.keeper import run_files
from dlsched.nodeagent.keeper.framing import FrameSocket
from dlsched.nodeagent.keeper.keeper_process import Keeper
from dlsched.nodeagent.ranks.launch_spec import KeeperSpec, LaunchFacts, RunFacts
from dlsched.protocol import messages as m
from dlsched.system import clock

RUNS = 2
_NODE, _GPU = m.NodeName("rehearsal"), m.GpuId("GPU-0")


def rehearse(home: str) -> None:
    """Keep a few runs of nothing in an empty folder; this process has no child before and after."""
    before = _descriptors()
    try:
        for number in range(RUNS):
            _keep(_spec(home, m.JobId(number)))
    finally:
        signal.set_wakeup_fd(-1)
        for each in (signal.SIGCHLD, signal.SIGHUP):
            signal.signal(each, signal.SIG_IGN)
        gc.collect()
        for fd in _descriptors() - before:  # what a keeper leaves to its exit
            with contextlib.suppress(OSError):
                os.close(fd)


def _descriptors() -> set[int]:
    return {int(name) for name in os.listdir("/proc/self/fd")}


def _spec(home: str, job: m.JobId) -> KeeperSpec:
    """A script on one GPU, which no program can execute."""
    state_dir, run_dir = os.path.join(home, "state"), os.path.join(home, "run")
    run_files.make_folders(state_dir, run_dir)
    uid, gid = os.getuid(), os.getgid()
    desired = m.DesiredRun(
        key=m.RunKey(job, m.RunNumber(1), m.RunId(os.urandom(4).hex())),
        want=m.Want.RUNNING,
        epoch=m.Epoch(1),
        boot_id=m.BootId(clock.boot_id()),
        gpus=(_GPU,),
        layout=(m.Share(node=_NODE, gpus=(_GPU,)),),
    )
    return KeeperSpec(
        node=_NODE,
        desired=desired,
        launch=LaunchFacts(
            user="", uid=uid, gid=gid, groups=(gid,), script=b"#!/\n", environment={"A": "b"}
        ),
        facts=RunFacts(uid=uid, gid=gid),
        state_dir=state_dir,
        run_dir=run_dir,
        gpu_numbers={_GPU: 0},
        cpus=1,
    )


class _NoProcess(containment.Containment):
    """No process at all: nothing here may be killed."""

    def members(self) -> list[processes.Stat]:
        """Return an empty list: a rehearsal has none."""
        return []


def _keep(spec: KeeperSpec) -> None:
    """Keep one run, and play its agent: release it, and forget it when it has ended."""
    ours, theirs = lean_socket.pair()
    agent = FrameSocket(ours)
    identity = processes.identity(os.getpid())
    assert identity is not None
    lock = os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC)
    keeper = Keeper(loads(KeeperSpec, dumps(spec)), theirs, identity, lock)
    keeper.processes.containment = _NoProcess()

    def play_agent(_mask: int) -> None:
        for message in agent.receive():
            status = message.get("status", {})
            if status.get("exit"):
                agent.send({"order": m.Forget.__name__, "with": m.Forget()})
            elif status.get("phase") == m.Phase.PREPARED.value:
                agent.send({"order": m.Release.__name__, "with": m.Release()})

    keeper.watch(ours.fileno(), play_agent)
    keeper.run()
