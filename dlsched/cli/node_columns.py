"""The columns of `nodes`, by name; bars only where a terminal can draw them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from dlsched.cli.listing import Column
from dlsched.cli.moments import local_text
from dlsched.cli.terminal import Terminal
from dlsched.client.submission.durations import duration_text
from dlsched.client.submission.memory import memory_text
from dlsched.client.views import Gpu, Node

__all__ = ["GPUS", "GPU_COLUMNS", "NODES", "REASONS", "GpuRow", "node_columns"]

NODES = "name,state,gpus,type,cpus,memory,jobs,why"
REASONS = "why,by,since,name"
GPUS = "node,gpu,type,state,jobs,util,memory,temp,why"
LONGEST_BAR = 16
_STYLES = {
    **dict.fromkeys(("idle", "mixed", "full"), "good"),
    **dict.fromkeys(("draining", "drained", "late"), "wait"),
}


@dataclass(frozen=True, slots=True)
class GpuRow:
    """A GPU and its node."""

    node: Node
    gpu: Gpu


def node_columns(out: Terminal) -> dict[str, Column[Node]]:
    """The columns; the `gpus` one is drawn on a terminal that has the signs for it."""

    def gpus(node: Node) -> str:
        text = f"{node.busy_gpus}/{node.gpus}"
        if not out.unicode or not 0 < node.gpus <= LONGEST_BAR:
            return text
        busy = min(node.busy_gpus, node.gpus)
        return "█" * busy + "▁" * (node.gpus - busy) + f" {text}"

    found = (
        _node("name", "NODE", "name", lambda node: node.name),
        _node("state", "STATE", "state; * after it: does not respond", lambda node: node.state),
        _node("gpus", "GPUS", "busy of all", gpus, right=not out.unicode),
        _node("type", "TYPE", "type of its GPUs", lambda node: node.gpu_type or "-"),
        _node("cpus", "CPUS", "processors", lambda node: _known(node.cpus), right=True),
        _node("memory", "MEMORY", "memory", lambda node: _size(node.memory_bytes), right=True),
        _node("jobs", "JOBS", "jobs it holds", lambda node: _jobs(node.jobs), least=8),
        _node("why", "WHY", "why it is out", lambda node: node.reason or "-", least=12),
        _node("by", "BY", "who took it out", lambda node: node.reason_by or "-"),
        _node("since", "SINCE", "when it was taken out", lambda node: local_text(node.reason_at)),
        _node(
            "partitions", "PARTITIONS", "partitions", lambda node: ",".join(node.partitions) or "-"
        ),
        _node("heard", "HEARD", "how long ago", _heard, right=True),
        _node("address", "ADDRESS", "its agent's", lambda node: node.address or "-"),
        _node("version", "VERSION", "its agent's", lambda node: node.agent_version or "-"),
        _node("launcher", "LAUNCHER", "how it starts jobs", lambda node: node.launcher or "-"),
        _node(
            "capabilities",
            "CAPABILITIES",
            "what its launcher can do",
            lambda node: ",".join(node.capabilities) or "-",
            least=12,
        ),
    )
    return {column.name: column for column in found}


def _node(
    name: str,
    title: str,
    doc: str,
    text: Callable[[Node], str],
    *,
    right: bool = False,
    least: int | None = None,
) -> Column[Node]:
    return Column(
        name=name,
        title=title,
        doc=doc,
        text=text,
        align="right" if right else "left",
        least=least,
        style=(lambda node: _STYLES.get(node.state.rstrip("*~#"), "bad"))
        if name == "state"
        else None,
    )


def _gpu(
    name: str, title: str, doc: str, text: Callable[[GpuRow], str], *, right: bool = False
) -> Column[GpuRow]:
    return Column(name=name, title=title, doc=doc, text=text, align="right" if right else "left")


def _known(value: int | None) -> str:
    return "-" if value is None else str(value)


def _size(amount: int | None) -> str:
    return "-" if amount is None else memory_text(amount)


def _jobs(jobs: tuple[int, ...]) -> str:
    return ",".join(map(str, jobs)) or "-"


def _heard(node: Node) -> str:
    return "-" if node.heard_ago_s is None else duration_text(node.heard_ago_s)


def _memory(row: GpuRow) -> str:
    used, total = row.gpu.memory_used_bytes, row.gpu.memory_bytes
    return "-" if used is None and total is None else f"{_size(used)}/{_size(total)}"


def _percent(share: float | None) -> str:
    return "-" if share is None else f"{100 * share:.0f} %"


_GPU_ALL = (
    _gpu("node", "NODE", "its node", lambda row: row.node.name),
    _gpu("gpu", "GPU", "index on its node", lambda row: str(row.gpu.index), right=True),
    _gpu("type", "TYPE", "type", lambda row: row.gpu.type or "-"),
    _gpu("state", "STATE", "free, busy, or why not", lambda row: row.gpu.state or "-"),
    _gpu("jobs", "JOBS", "jobs on it", lambda row: _jobs(row.gpu.jobs)),
    _gpu("util", "UTIL", "utilization", lambda row: _percent(row.gpu.utilization), right=True),
    _gpu("memory", "MEMORY", "used of all", _memory, right=True),
    _gpu(
        "temp",
        "TEMP",
        "degrees Celsius",
        lambda row: "-" if row.gpu.temperature_c is None else f"{row.gpu.temperature_c:.0f} C",
        right=True,
    ),
    _gpu("why", "WHY", "why it is out", lambda row: row.gpu.reason or "-"),
    _gpu("uuid", "UUID", "its own name", lambda row: row.gpu.uuid or "-"),
)
GPU_COLUMNS: dict[str, Column[GpuRow]] = {column.name: column for column in _GPU_ALL}
