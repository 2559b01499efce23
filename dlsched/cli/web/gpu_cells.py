"""Nodes as cards, with a cell for each GPU in the colour of the job that has it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape

from dlsched.cli.nodes.node_columns import percent, size
from dlsched.client.job_records import Job
from dlsched.client.records import Gpu, Node
from dlsched.core.errors import plural
from simulate.report.drawing.palette import JOBS
from simulate.report.wording import clean

MOST_NODES = 300
CELL_STYLE = (
    ".nodes{display:grid;grid-template-columns:repeat(auto-fill,minmax(230px,1fr));gap:10px 18px}"
    ".node-card{font-size:13px;min-width:0}.node-card b{font-weight:600}"
    ".node-card p{margin:0;color:var(--soft);overflow-wrap:anywhere}"
    ".cells{display:flex;flex-wrap:wrap;gap:2px;margin:3px 0}"
    ".cells span{width:23px;height:20px;background:var(--idle);color:#14171b;font-size:9px;"
    "line-height:20px;text-align:center;overflow:hidden;white-space:nowrap}"
    ".cells .out{background:repeating-linear-gradient(45deg,var(--rule) 0 2px,var(--idle) 2px 6px)}"
    + "".join(f".cells .g{k}{{background:{colour}}}" for k, colour in enumerate(JOBS))
)


def nodes_html(nodes: Sequence[Node], running: Mapping[int, Job]) -> str:
    """The nodes; those that are out of service first where not all are shown.

    Args:
        nodes: all nodes, in their order.
        running: jobs that hold GPUs, by number.
    """
    if not nodes:
        return '<p class="absent">No node has joined yet.</p>'
    shown = nodes
    if len(nodes) > MOST_NODES:
        shown = sorted(nodes, key=lambda node: node.reason is None)[:MOST_NODES]
    cards = "".join(_card(node, running) for node in shown)
    more = len(nodes) - len(shown)
    rest = f'<p class="key">{plural(more, "more node")}: dlsched nodes</p>' if more else ""
    key = (
        '<p class="key">A cell is a GPU with the number of its job; colours tell jobs apart and '
        "mean nothing else. Striped: out of service.</p>"
    )
    return f'<div class="nodes">{cards}</div>{rest}{key}'


def _card(node: Node, running: Mapping[int, Job]) -> str:
    cells = "".join(_cell(gpu, node, running) for gpu in node.devices)
    kind = f", {node.gpu_type}" if node.gpu_type else ""
    title = f"<b>{escape(clean(node.name))}</b> {escape(clean(f'{node.state}{kind}'))}"
    why = f"<p>{escape(clean(node.reason))}</p>" if node.reason else ""
    return f'<div class="node-card">{title}<div class="cells">{cells}</div>{why}</div>'


def _cell(gpu: Gpu, node: Node, running: Mapping[int, Job]) -> str:
    facts = [f"GPU {gpu.index}"]
    for job, shown in zip(gpu.jobs, node.shown_ids(gpu.jobs), strict=True):
        known = running.get(job)
        facts.append(f"job {shown} {known.name} ({known.user})" if known else f"job {shown}")
    if gpu.utilization is not None:
        facts.append(percent(gpu.utilization))
    if gpu.memory_used_bytes is not None:
        facts.append(size(gpu.memory_used_bytes))
    if gpu.reason:
        facts.append(gpu.reason)
    said = escape(clean(", ".join(facts)))
    if gpu.jobs:
        style, text = f"g{gpu.jobs[0] % len(JOBS)}", str(gpu.jobs[0])[-4:]
    else:
        is_free = gpu.state in (None, "free") and not node.reason
        style, text = ("" if is_free else "out"), ""
    return f'<span class="{style}" title="{said}">{text}</span>'
