"""Bounds on what nodes and ranks may report.

A sync with a number that no correct node can have reached is refused. Such a number near the end of
its range would otherwise count as the newest one, and no later number could be stored any more.

A rank's report comes from a user's program: its invalid numbers are removed and counted.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

from dlsched.core.errors import BadInput
from dlsched.nodes.fields import MOST_BYTES, MOST_CPUS, REPORTED
from dlsched.protocol.agent import REMEMBERED_STARTS
from dlsched.protocol.leader.state import WITNESSES
from dlsched.protocol.ledger import Ledger
from dlsched.protocol.ledger.ends import one_line
from dlsched.protocol.messages import JobId, NodeName, RunKey, Sync, Term
from dlsched.rpc.v1.control_pb2 import RunReport
from dlsched.rpc.v1.node_pb2 import NodeDescription
from dlsched.rpc.v1.run_pb2 import StepRecord

AHEAD = 1 << 32  # no database can be so far behind what a node has seen
MOST = 1 << 53
LONGEST_NAME = 253
LONGEST_TEXT = 64 * 1024
LONGEST_S = 1e10
MOST_STEPS = 1e12
LONGEST_TAKEN_S = 86400.0  # by one pass, one start, one checkpoint
LARGEST_METRIC = 1e30
LONGEST_ERROR, LONGEST_STACKS = 500, 12_000  # characters
MOST_NAMES = 256  # of a rank's values in one report
MOST_GPUS = 1024  # of one node
MOST_CAPABILITIES = 64
MOST_CALLS = 40  # of `srun` that a run tells
LONGEST_PROBLEM = 1000  # characters of what a node says is wrong with it
LONGEST_VALUE_NAME = 64
PORTS = 1 << 16
_NUMBERS = {  # of a rank's report: lowest and highest
    "step": (0.0, MOST_STEPS),
    "batch_s": (0.0, LONGEST_TAKEN_S),
    "loss": (-LARGEST_METRIC, LARGEST_METRIC),
    "gpu_memory_bytes": (0.0, float(MOST)),
    "restart_s": (0.0, LONGEST_TAKEN_S),
    "save_s": (0.0, LONGEST_TAKEN_S),
    "expected_save_s": (0.0, LONGEST_TAKEN_S),
    "save_bytes": (0.0, float(MOST)),
    "room_bytes": (0.0, float(MOST)),
    "unsaved_step": (0.0, MOST_STEPS),
}


def check_sync(sync: Sync, known: Ledger) -> None:
    """Refuse a sync that no correct node can have sent.

    Raises:
        BadInput: naming the number.
    """
    if not _is_name(sync.node):
        raise BadInput("sync: not a node's name")
    node = known.nodes.get(sync.node)
    revision = node.revision if node is not None else 0
    for what, term in (("last", sync.last), ("applied", sync.applied)):
        _check_term(sync.node, what, term, known.epoch, revision)
    for what, number in (
        ("incarnation", sync.incarnation),
        ("sequence", sync.sequence),
        ("renewed_sequence", sync.renewed_sequence),
    ):
        _check(sync.node, what, number, MOST)
    _check_runs(sync, known)
    if sync.inventory is not None:
        _check_gpus(f"sync of {sync.node}", sync.inventory.gpus)
    for health in (sync.health.quarantined, sync.health.unhealthy):
        _check_gpus(f"sync of {sync.node}", [*dict.fromkeys(health)])
    machine = sync.inventory.machine if sync.inventory is not None else ""
    if len(sync.witnesses) > WITNESSES or any(len(n) > LONGEST_NAME for n in sync.witnesses):
        raise BadInput(f"sync of {sync.node}: too many or too long names of its witnesses")
    if len(sync.starts) > REMEMBERED_STARTS or any(
        len(name) > LONGEST_NAME for name in (*sync.starts, machine)
    ):
        raise BadInput(f"sync of {sync.node}: too many or too long names of its starts")


def _check_runs(sync: Sync, known: Ledger) -> None:
    for key in _keys(sync):
        _check(sync.node, "job", key.job, known.next_job + AHEAD)
        _check(sync.node, "run", key.run, AHEAD)
        if not key.run_id or len(key.run_id) > LONGEST_NAME:
            raise BadInput(f"sync of {sync.node}: not a run's id")
    for record in sync.ended:
        if record.node != sync.node:
            raise BadInput(f"sync: {sync.node} speaks of an end on {record.node}")
        if not (math.isfinite(record.ran_s) and 0 <= record.ran_s <= LONGEST_S):
            raise BadInput(f"sync of {sync.node}: ran_s {record.ran_s:g} is no time")
        if record.at is not None and not (math.isfinite(record.at) and record.at >= 0):
            raise BadInput(f"sync of {sync.node}: {record.at:g} is no time of an end")
        for text in (record.detail, record.hook):
            if len(text) > LONGEST_TEXT:
                raise BadInput(f"sync of {sync.node}: a detail of {len(text)} characters")


def check_description(message: NodeDescription) -> None:
    """Refuse a description that no correct node can have sent; cut long words of its problems.

    Raises:
        BadInput: naming the node, the fact and its bounds.
    """
    where, facts = f"description of {message.node}", message.facts
    for what, number, most in (
        *((row.reported, getattr(facts, row.reported), row.most) for row in REPORTED.values()),
        ("GPUs", len(facts.gpus), MOST_GPUS),
        ("uses of GPUs", len(message.uses), MOST_GPUS),
        ("capabilities", len(facts.capabilities), MOST_CAPABILITIES),
        ("names of starts", len(message.starts), REMEMBERED_STARTS),
    ):
        _check_fact(where, what, number, 0, most)
    texts = [facts.address, facts.launcher, facts.driver, *facts.capabilities, *message.starts]
    for gpu in facts.gpus:
        _check_fact(where, f"index of GPU {gpu.uuid:.80}", gpu.index, 0, MOST_GPUS)
        _check_fact(where, f"memory of GPU {gpu.uuid:.80}", gpu.memory_bytes, 0, MOST_BYTES)
        _check_fact(where, f"NUMA node of GPU {gpu.uuid:.80}", gpu.numa_node, -1, MOST_CPUS)
        _check_fact(where, f"links of GPU {gpu.uuid:.80}", len(gpu.linked), 0, MOST_GPUS)
        texts += [gpu.uuid, gpu.type, *gpu.linked]
    for use in message.uses:
        _check_fact(where, f"utilization of {use.uuid:.80}", use.utilization, 0, 1)
        _check_fact(where, f"memory in use on {use.uuid:.80}", use.memory_used_bytes, 0, MOST_BYTES)
        _check_fact(where, f"temperature of {use.uuid:.80}", use.temperature_c, -273.15, 1000)
        texts.append(use.uuid)
        use.problem = use.problem[:LONGEST_PROBLEM]
    for text in texts:
        if len(text) > LONGEST_NAME or not text.isprintable():
            raise BadInput(f"{where}: {text!r:.80} is longer than {LONGEST_NAME} or not printable")
    _check_gpus(where, [gpu.uuid for gpu in facts.gpus])
    if message.HasField("start_check"):
        message.start_check = message.start_check[:LONGEST_PROBLEM]
    for lines in (message.problems, message.faults):
        kept = [each[:LONGEST_PROBLEM] for each in lines[:MOST_GPUS]]
        del lines[:]
        lines.extend(kept)


def _check_fact(where: str, what: str, number: float, least: float, most: float) -> None:
    if not least <= number <= most:  # true for NaN, too
        raise BadInput(f"{where}: {what} is {number:g}, not from {least:g} to {most:g}")


def _check_gpus(where: str, gpus: Sequence[str]) -> None:
    if len(gpus) > MOST_GPUS or len(set(gpus)) < len(gpus) or not all(map(_is_name, gpus)):
        raise BadInput(f"{where}: its GPUs are not up to {MOST_GPUS} different names")


def clear_invalid(report: RunReport) -> int:
    """Remove the invalid numbers of a rank's report; returns how many there were."""
    wrong = [
        name
        for name, (least, most) in _NUMBERS.items()
        if report.HasField(name) and not least <= getattr(report, name) <= most  # true for NaN
    ]
    for name in wrong:
        report.ClearField(name)
    strange = [
        name
        for place, (name, value) in enumerate(report.metrics.items())
        if not abs(value) <= LARGEST_METRIC or not _is_value_name(name) or place >= MOST_NAMES
    ]
    for name in strange:
        del report.metrics[name]
    report.error, report.stacks = report.error[:LONGEST_ERROR], report.stacks[:LONGEST_STACKS]
    report.unsaved_why = one_line(report.unsaved_why, LONGEST_ERROR)
    if not 0 <= report.error_at <= LONGEST_S:
        report.error_at = 0.0
    if len(report.doing) > LONGEST_VALUE_NAME:
        report.doing = ""
    if not all(0 < port < PORTS for port in report.ready_ports) or len(report.ready_word) > 64:
        del report.ready_ports[:]
    calls = [each for each in report.calls if _is_call(each)][-MOST_CALLS:]
    wrong_calls = len(report.calls) - len(calls)
    del report.calls[:]
    report.calls.extend(calls)
    named = [name for name in report.not_finite if _is_value_name(name)][:MOST_NAMES]
    del report.not_finite[:]
    report.not_finite.extend(named)
    return len(wrong) + len(strange) + wrong_calls


def _is_call(call: StepRecord) -> bool:
    return (
        0 <= call.number <= MOST
        and len(call.name) <= LONGEST_NAME
        and len(call.nodes) <= LONGEST_NAME
        and all(0 <= number <= MOST for number in (call.tasks, call.cpus, call.peak_memory_bytes))
        and all(0 <= s <= LONGEST_S for s in (call.began_at, call.ran_s, call.cpu_s))  # no NaN
    )


def _is_value_name(name: str) -> bool:
    return 0 < len(name) <= LONGEST_VALUE_NAME and name.isprintable()


def _keys(sync: Sync) -> Iterable[RunKey]:
    yield from (held.key for held in sync.held or ())
    yield from (record.key for record in sync.ended)


def _check_term(node: NodeName, what: str, term: Term, epoch: int, revision: int) -> None:
    _check(node, f"{what}.epoch", term.epoch, epoch + AHEAD)
    _check(node, f"{what}.revision", term.revision, revision + AHEAD)


def _check(node: NodeName, what: str, number: int | JobId, most: int) -> None:
    if not -1 <= number <= most:
        raise BadInput(f"sync of {node}: {what} {number} is beyond {most}, which is impossible")


def _is_name(name: str) -> bool:
    return bool(name) and len(name) <= LONGEST_NAME and name.isprintable()
