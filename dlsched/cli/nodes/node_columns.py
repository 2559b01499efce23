"""The columns of `dlsched nodes`, by name."""

from __future__ import annotations

from dataclasses import dataclass

from dlsched.cli.output.listing import Column
from dlsched.cli.output.terminal import Terminal
from dlsched.cli.output.times import local_text
from dlsched.client.records import Gpu, Node
from dlsched.client.submission.durations import duration_text
from dlsched.client.submission.memory import memory_text

NODES = "name,state,gpus,type,cpus,memory,jobs,why"
REASONS = "why,by,since,name"
GPUS = "node,gpu,type,state,jobs,util,memory,temp,why"
LONGEST_BAR = 16
_STYLES = {
    **dict.fromkeys(("idle", "mixed", "full", "spare"), "good"),
    **dict.fromkeys(("draining", "drained", "late", "unheard", "reserved", "maint"), "wait"),
}


@dataclass(frozen=True, slots=True)
class GpuRow:
    """A GPU and its node: one row of `dlsched nodes --gpus`."""

    node: Node
    gpu: Gpu


def node_columns(out: Terminal) -> dict[str, Column[Node]]:
    """Return the columns of nodes; `gpus` is a bar on a terminal that can draw it."""

    def gpus(node: Node) -> str:
        text = f"{node.busy_gpus}/{node.gpus}"
        if not out.unicode or not 0 < node.gpus <= LONGEST_BAR:
            return text
        busy = min(node.busy_gpus, node.gpus)
        return "█" * busy + "▁" * (node.gpus - busy) + f" {text}"

    found: tuple[Column[Node], ...] = (
        Column("name", "NODE", "name", lambda node: node.name),
        Column(
            "state", "STATE", "state; *: does not respond", lambda node: node.state, style=_style
        ),
        Column("gpus", "GPUS", "busy and all", gpus, right=not out.unicode),
        Column("type", "TYPE", "type of its GPUs", lambda node: node.gpu_type or "-"),
        Column("cpus", "CPUS", "processors", lambda node: _known(node.cpus), right=True),
        Column("memory", "MEMORY", "memory", lambda node: size(node.memory_bytes), right=True),
        Column("jobs", "JOBS", "jobs that run on it", lambda node: _jobs(node, node.jobs), least=8),
        Column("why", "WHY", "why it is out of service", lambda node: node.reason or "-", least=12),
        Column("by", "BY", "user who took it out of service", lambda node: node.reason_by or "-"),
        Column(
            "since",
            "SINCE",
            "since when it is out of service",
            lambda node: local_text(node.reason_at),
        ),
        Column(
            "partitions", "PARTITIONS", "partitions", lambda node: ",".join(node.partitions) or "-"
        ),
        Column(
            "features", "FEATURES", "what -C may name", lambda node: ",".join(node.features) or "-"
        ),
        Column("heard", "HEARD", "time since it was heard of", _heard, right=True),
        Column("address", "ADDRESS", "address of its agent", lambda node: node.address or "-"),
        Column(
            "version", "VERSION", "version of its agent", lambda node: node.agent_version or "-"
        ),
        Column("launcher", "LAUNCHER", "how it starts jobs", lambda node: node.launcher or "-"),
        Column(
            "capabilities",
            "CAPABILITIES",
            "what its launcher can do",
            lambda node: ",".join(node.capabilities) or "-",
            least=12,
        ),
    )
    return {column.name: column for column in found}


def _style(node: Node) -> str:
    return _STYLES.get(node.state.rstrip("*~#"), "bad")


def _known(value: int | None) -> str:
    return "-" if value is None else str(value)


def size(amount: int | None) -> str:
    """Bytes as text, or `-`."""
    return "-" if amount is None else memory_text(amount)


def _jobs(node: Node, jobs: tuple[int, ...]) -> str:
    return ",".join(node.shown_ids(jobs)) or "-"


def _heard(node: Node) -> str:
    return "-" if node.heard_ago_s is None else duration_text(node.heard_ago_s)


def _memory(row: GpuRow) -> str:
    used, total = row.gpu.memory_used_bytes, row.gpu.memory_bytes
    return "-" if used is None and total is None else f"{size(used)}/{size(total)}"


def percent(share: float | None) -> str:
    """A part of 1 as `84 %`, or `-`."""
    return "-" if share is None else f"{100 * share:.0f} %"


_GPU_COLUMNS: tuple[Column[GpuRow], ...] = (
    Column("node", "NODE", "its node", lambda row: row.node.name),
    Column("gpu", "GPU", "index on its node", lambda row: str(row.gpu.index), right=True),
    Column("type", "TYPE", "type", lambda row: row.gpu.type or "-"),
    Column(
        "state", "STATE", "free, busy, or why it cannot be used", lambda row: row.gpu.state or "-"
    ),
    Column("jobs", "JOBS", "jobs on it", lambda row: _jobs(row.node, row.gpu.jobs)),
    Column("util", "UTIL", "utilization", lambda row: percent(row.gpu.utilization), right=True),
    Column("memory", "MEMORY", "used and all", _memory, right=True),
    Column(
        "temp",
        "TEMP",
        "degrees Celsius",
        lambda row: "-" if row.gpu.temperature_c is None else f"{row.gpu.temperature_c:.0f} C",
        right=True,
    ),
    Column("why", "WHY", "why it is out of service", lambda row: row.gpu.reason or "-"),
    Column("uuid", "UUID", "unique identifier", lambda row: row.gpu.uuid or "-"),
)
GPU_COLUMNS: dict[str, Column[GpuRow]] = {column.name: column for column in _GPU_COLUMNS}
