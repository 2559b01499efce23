"""Measured speeds: listed, imported, forgotten."""

from __future__ import annotations

from dlsched.core.errors import BadInput, plural
from dlsched.daemon.cluster import Cluster
from dlsched.daemon.control import bounds
from dlsched.db.records import Event
from dlsched.db.speeds import SpeedKey, SpeedRow, SpeedsForgotten, SpeedsSet
from dlsched.rpc.identity import Identity
from dlsched.rpc.v1 import control_pb2
from dlsched.system.clock import wall

MOST = 20_000  # rows in one call
LARGEST_BATCH = 10**12
FASTEST = 1e12
MOST_GPUS = 1_000_000


async def speeds(cluster: Cluster, request: control_pb2.SpeedsRequest) -> control_pb2.SpeedsReply:
    """List speeds by model, batch size, GPU type, number of GPUs and partner."""
    reply = control_pb2.SpeedsReply()
    for row in _asked(cluster, request):
        reply.speeds.add(
            **row.key._asdict(),
            steps_per_s=row.steps_per_s,
            measurements=row.measurements,
            source=row.source,
            at=row.at,
        )
    return reply


async def set_speeds(
    cluster: Cluster, request: control_pb2.SetSpeedsRequest, caller: Identity
) -> control_pb2.SpeedsChanged:
    """Import speeds that were measured elsewhere.

    Raises:
        BadInput: one line that names the row; then nothing is imported.
    """
    cluster.driver.require_lead()
    bounds.check_count("speeds", len(request.speeds), MOST)
    at = wall()
    rows: dict[SpeedKey, SpeedRow] = {}
    for number, view in enumerate(request.speeds, 1):
        key = _key(f"row {number}", view)
        if key in rows:
            raise BadInput(f"row {number}: {_shown(key)} is there twice")
        bounds.check_number(f"row {number}: steps_per_s", view.steps_per_s, 0.0, FASTEST)
        rows[key] = SpeedRow(
            key=key, steps_per_s=view.steps_per_s, source=caller.name, at=at, changed_at=at
        )
    if rows:
        note = Event(at=at, kind="set-speeds", actor=caller.name, text=plural(len(rows), "row"))
        await cluster.driver.attach(SpeedsSet(rows=tuple(rows.values())), note)
    return control_pb2.SpeedsChanged(count=len(rows))


async def forget_speeds(
    cluster: Cluster, request: control_pb2.SpeedsRequest, caller: Identity
) -> control_pb2.SpeedsChanged:
    """Forget speeds; they are measured anew."""
    cluster.driver.require_lead()
    keys = tuple(row.key for row in _asked(cluster, request))
    if keys:
        note = Event(
            at=wall(), kind="forget-speeds", actor=caller.name, text=plural(len(keys), "row")
        )
        await cluster.driver.attach(SpeedsForgotten(keys=keys), note)
    return control_pb2.SpeedsChanged(count=len(keys))


def _asked(cluster: Cluster, request: control_pb2.SpeedsRequest) -> list[SpeedRow]:
    bounds.check_text("model", request.model)
    bounds.check_text("gpu_type", request.gpu_type)
    size = request.batch_size if request.HasField("batch_size") else None
    return cluster.speeds.matching(request.model, size, request.gpu_type)


def _key(where: str, view: control_pb2.SpeedView) -> SpeedKey:
    for name in ("model", "gpu_type", "partner"):
        text = getattr(view, name)
        bounds.check_text(f"{where}: {name}", text)
        if not text and name != "partner":
            raise BadInput(f"{where}: no {name}")
    bounds.check_whole(f"{where}: gpus", view.gpus, 1, MOST_GPUS)
    for name in ("batch_size", "partner_batch_size"):
        bounds.check_whole(f"{where}: {name}", getattr(view, name), 0, LARGEST_BATCH)
    return SpeedKey(*(getattr(view, name) for name in SpeedKey._fields))


def _shown(key: SpeedKey) -> str:
    beside = f" beside {key.partner}" if key.partner else ""
    return f"{key.model}{beside} on {key.gpus} {key.gpu_type}"
