"""The recorded message set: one value of every kind, written once and read for ever.

`python tests/protocol/recording.py` writes the files that are not there yet; files that are there
are what an earlier version sent, and are never written again.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from dlsched.nodeagent.json_values import plain
from dlsched.protocol import messages as m
from dlsched.rpc.conversion import to_wire
from dlsched.rpc.v1 import control_pb2, run_pb2

FOLDER = Path(__file__).parent / "recorded"
KEY = m.RunKey(m.JobId(7), m.RunNumber(2), m.RunId("5f0c"))
GPUS = (m.GpuId("GPU-a"), m.GpuId("GPU-b"))
N1, N2 = m.NodeName("n1"), m.NodeName("n2")
DESIRED = m.DesiredRun(
    key=KEY,
    want=m.Want.STOPPED,
    epoch=m.Epoch(3),
    boot_id=m.BootId("b1"),
    gpus=GPUS,
    layout=(m.Share(node=N1, gpus=GPUS), m.Share(node=N2, gpus=GPUS[:1])),
    mode=m.LaunchMode.GPU,
    fence=m.Fence.LEASE,
    environment="env-12",
    limits=m.Limits(time_s=3600.0, memory_bytes=1 << 36, cpus=8),
    grace_s=12.5,
    suspend_level=m.SuspendLevel.COOPERATIVE,
    stop=m.StopReason.RESIZE,
    stop_step=1200,
    request_id=m.RequestId("r-1"),
)
HELD = m.HeldRun(
    key=KEY, phase=m.Phase.FENCED, gpus=GPUS, nodes=(N1, N2), request_id=m.RequestId("r-1")
)
EXIT = m.ExitRecord(
    key=KEY,
    node=N1,
    reason=m.ExitReason.SIGNALLED,
    signal=11,
    stop=m.StopReason.PREEMPT,
    ran_s=99.5,
    detail="core dumped",
    nodes=(N1, N2),
    request_id=m.RequestId("r-1"),
)
SYNC = m.Sync(
    node=N1,
    boot_id=m.BootId("b1"),
    incarnation=m.Incarnation(4),
    sequence=17,
    last=m.Term(m.Epoch(3), m.Revision(9)),
    applied=m.Term(m.Epoch(3), m.Revision(8)),
    held_digest=m.Digest("h1"),
    held=(HELD,),
    ended=(EXIT,),
    desired_digest=m.Digest("d1"),
    renewed_sequence=16,
    health=m.Health(quarantined=GPUS[:1], unhealthy=GPUS[1:]),
    inventory=m.Inventory(gpus=GPUS, gpu_type="v100", agent_version="0.1.0", can_fence=False),
)
REPLY = m.Reply(
    node=N1,
    incarnation=m.Incarnation(4),
    sequence=17,
    term=m.Term(m.Epoch(3), m.Revision(9)),
    desired_digest=m.Digest("d2"),
    desired=(DESIRED,),
    acknowledged=(m.RunId("aa"),),
    over=(m.RunId("bb"),),
    lease=m.Lease(duration_s=30.0, covers=frozenset({m.RunId("5f0c"), m.RunId("cc")})),
    witnesses=(N1, N2),
)
UNCHANGED_SYNC = m.Sync(
    node=N1,
    boot_id=m.BootId("b1"),
    incarnation=m.Incarnation(4),
    sequence=18,
    last=m.Term(),
    applied=m.Term(),
    held_digest=m.Digest("h1"),
    held=None,
)
EMPTY_SYNC = m.Sync(
    node=N1,
    boot_id=m.BootId("b1"),
    incarnation=m.Incarnation(4),
    sequence=19,
    last=m.Term(),
    applied=m.Term(),
    held_digest=m.Digest("h0"),
    held=(),
)
BARE_REPLY = m.Reply(
    node=N1,
    incarnation=m.Incarnation(4),
    sequence=18,
    term=m.Term(),
    desired_digest=m.Digest(""),
    desired=None,
    register=True,
    want_held=True,
)
KEEPER_MESSAGES: dict[str, Any] = {  # as JSON: a keeper outlives the agent that started it
    "release": m.Release(),
    "freeze": m.Freeze(m.SuspendLevel.CUDA),
    "thaw": m.Thaw(),
    "signal": m.Signal(10),
    "adjust": m.Adjust(limits=m.Limits(time_s=90.5, cpus=4), grace_s=7.25),
    "stop": m.Stop(reason=m.StopReason.RESIZE, step=1200),
    "kill": m.Kill(m.StopReason.CANCEL),
    "forget": m.Forget(),
    "status": m.KeeperStatus(desired=DESIRED, phase=m.Phase.STOPPING, exit=EXIT),
}
VALUES: dict[str, Any] = {
    "sync": SYNC,
    "sync-unchanged": UNCHANGED_SYNC,
    "sync-empty": EMPTY_SYNC,
    "reply": REPLY,
    "reply-bare": BARE_REPLY,
    "nudge": m.Nudge(node=N1, term=m.Term(m.Epoch(3), m.Revision(9))),
    "witness-query": m.WitnessQuery(asker=N1, witness=N2, nonce=5),
    "witness-answer": m.WitnessAnswer(asker=N1, witness=N2, nonce=5, renewed_ago_s=16.25),
}


ASKED: dict[str, Any] = {
    "submit": control_pb2.SubmitRequest(
        request_id="r-1",
        test_only=True,
        environment=[control_pb2.EnvironmentVariable(name="A", value="1")],
        jobs=[
            control_pb2.JobRequest(
                name="train",
                argv=["python", "train.py"],
                script=b"#!/bin/sh\n",
                working_directory="/home/ann",
                partition="main",
                vc="speech",
                gpus=8,
                gpu_types=["a100", "v100"],
                min_gpus=4,
                time_limit_s=3600.0,
                mode=run_pb2.LAUNCH_MODE_GPU,
                grace_s=30.0,
                retries=2,
                dependencies=[control_pb2.Dependency(kind="afterok", job=5, task=2, or_next=True)],
                broken_dependency=control_pb2.BROKEN_KEEP,
                array="0-9%2",
                weight=1.5,
                extra={"model": "bert"},
            )
        ],
    ),
    "update": control_pb2.UpdateRequest(
        filter=control_pb2.Filter(
            jobs=[7], elements=[control_pb2.ArrayElements(array_job=9, tasks=[1, 2])]
        ),
        fields={"priority": "5"},
        set_dependencies=True,
        dependencies=[control_pb2.Dependency(kind="after", job=6, delay_s=120.0)],
    ),
    "view": control_pb2.JobView(
        job=7,
        user="ann",
        vc="speech",
        account="robots",
        state="PENDING",
        reason="Resources",
        gang=[4, 4],
        run_s=0.0,
        lost_s=20.5,
        position=3,
        predicted_start_at=1795242340.0,
        predicted_basis="time limits",
        where=[control_pb2.GpusOnNode(node="n1", gpus=[0, 3])],
    ),
    "tenant": control_pb2.SetTenantRequest(
        tenant=control_pb2.Tenant(
            quota=control_pb2.TenantQuota(kind="user", name="*", gpus=0, gpu_hours=12.5)
        ),
        create=True,
        fields=["gpus", "gpu_hours"],
    ),
}


def write_missing() -> None:
    """Record what has not been recorded."""
    FOLDER.mkdir(exist_ok=True)
    wires = {name: to_wire(value) for name, value in VALUES.items()}
    wires |= {f"control-{name}": message for name, message in ASKED.items()}
    files = {f"{n}.bin": w.SerializeToString(deterministic=True) for n, w in wires.items()}
    for name, value in KEEPER_MESSAGES.items():
        files[f"keeper-{name}.json"] = json.dumps(value, indent=1, default=plain).encode() + b"\n"
    for name, data in files.items():
        path = FOLDER / name
        if not path.exists():
            path.write_bytes(data)


if __name__ == "__main__":
    write_missing()
