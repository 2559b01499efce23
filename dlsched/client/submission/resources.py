"""From what may be asked for in many ways to one gang: GPUs, nodes, tasks, processors, memory."""

from __future__ import annotations

from collections.abc import Mapping

from dlsched.client.submission.gpus import GpuWish, parse_gpus, parse_share
from dlsched.client.submission.texts import whole_number
from dlsched.client.submission.values import word_of
from dlsched.core.errors import BadInput, plural
from dlsched.jobs.field import Value
from dlsched.record import Record

# fields that several options together give
FROM_RESOURCES = (
    *(
        "gpus",
        "nodes",
        "max_nodes",
        "gpus_per_node",
        "gpu_types",
        "gpus_by_type",
        "min_gpus",
        "max_gpus",
        "gpu_share",
        "cpus",
    ),
    *("memory_bytes", "tmp_bytes", "ntasks", "ntasks_per_node", "cpus_per_task"),
)


_NUMBERS = {
    *("ntasks", "ntasks_per_node", "ntasks_per_gpu", "min_gpus", "max_gpus"),
    *("cpus", "cpus_per_task", "cpus_per_gpu"),
}
_SIZES = {"mem", "mem_per_cpu", "mem_per_gpu", "tmp"}


class Resources(Record):
    """None is "not said"; GPUs and processors are the whole gang's, memory is a node's."""

    gpus: int | None = None
    nodes: int | None = None
    max_nodes: int | None = None
    gpus_per_node: int | None = None
    gpu_types: tuple[str, ...] = ()
    gpus_by_type: str = ""  # of those on each node: a100:2,v100:2
    min_gpus: int | None = None
    max_gpus: int | None = None
    gpu_share: float | None = None
    cpus: int | None = None
    memory_bytes: int | None = None
    tmp_bytes: int | None = None
    ntasks: int | None = None
    ntasks_per_node: int | None = None
    cpus_per_task: int | None = None

    def fields(self) -> dict[str, Value]:
        """The fields of a job among them, by name.

        Raises:
            BadInput: a number is larger than what can be sent.
        """
        found: dict[str, Value] = {name: getattr(self, name) for name in FROM_RESOURCES}
        for name, value in found.items():
            if isinstance(value, int) and not name.endswith("_bytes") and value >= 2**31:
                raise BadInput(f"{word_of(name)}: {value} is out of bounds")
        return found


def check_resource(key: str, what: str, text: str) -> None:
    """Check the text of one option by itself, where `resources` reads it; `what` names it.

    Raises:
        BadInput: it is malformed.
    """
    if key in _NUMBERS:
        whole_number(what, text, least=1)
    elif key in ("gpus", "gpus_per_node", "gpus_per_task"):
        parse_gpus(what, text, on_node=key == "gpus_per_node")
    elif key == "nodes":
        _nodes(text, ranged=True, what=what)
    elif key == "share":
        parse_share(what, text)
    elif key in _SIZES:
        from dlsched.client.submission.memory import (  # noqa: PLC0415  # few say it
            is_whole_memory,
            memory_bytes,
        )

        if not (key == "mem" and is_whole_memory(text)):
            memory_bytes(what, text)


def resources(options: Mapping[str, str]) -> Resources:
    """Put the options of a gang together.

    Raises:
        BadInput: one is malformed, or they contradict each other.
    """

    def number(key: str, least: int = 1) -> int | None:
        return whole_number(word_of(key), options[key], least=least) if key in options else None

    total, per_node, per_task = (
        parse_gpus(word_of(key), options[key], on_node=key == "gpus_per_node")
        if key in options
        else None
        for key in ("gpus", "gpus_per_node", "gpus_per_task")
    )
    # GPUs of the whole job may lie on any number of nodes; what is said for each node needs one
    each = bool({"gpus_per_node", "ntasks_per_node"} & set(options))
    ranged = each or total is None or total.count == 0
    nodes, most = _nodes(options["nodes"], ranged=ranged) if "nodes" in options else (None, None)
    ntasks, tasks_per_node = number("ntasks"), number("ntasks_per_node")
    if ntasks and tasks_per_node and nodes is None:
        nodes = -(-ntasks // tasks_per_node)
    if tasks_per_node and ntasks is None:
        ntasks = tasks_per_node * (nodes or 1)
    if per_task is not None:
        if ntasks is None:
            raise BadInput("--gpus-per-task: needs --ntasks or --ntasks-per-node")
        total = _agreed(total, per_task, per_task.count * ntasks, "--gpus-per-task")
    gpus, nodes, on_node = _gang(total, per_node, nodes)
    if tasks_per_node and "ntasks" not in options:
        ntasks = tasks_per_node * (nodes or 1)
    if "ntasks_per_gpu" in options and ntasks is None:
        if most is not None and on_node:  # as many tasks as nodes of the range give GPUs
            tasks_per_node = on_node * (number("ntasks_per_gpu") or 1)
        ntasks = (number("ntasks_per_gpu") or 1) * (1 if gpus is None else gpus) or None
    share = parse_share("--share", options["share"]) if "share" in options else None
    if share is not None:
        if "exclusive" in options:
            raise BadInput("--share and --exclusive: a job shares its GPUs or has whole nodes")
        gpus = gpus or 1
    cpus = _cpus(
        number("cpus"), number("cpus_per_task"), number("cpus_per_gpu"), ntasks, gpus, nodes
    )
    low, high = number("min_gpus"), number("max_gpus")
    _check_elastic(options, gpus, low, high)
    types, by_type = _types(total, per_node, per_task), per_node.by_type if per_node else ""
    if types and by_type:
        raise BadInput(f"GPU types: {by_type} on each node are not all {'|'.join(types)}")
    return Resources(
        gpus=gpus,
        nodes=nodes,
        max_nodes=most,
        gpus_per_node=on_node,
        gpu_types=types,
        gpus_by_type=by_type,
        min_gpus=low,
        max_gpus=high,
        gpu_share=share,
        cpus=cpus,
        memory_bytes=_memory(options, gpus=gpus, cpus=cpus, nodes=nodes),
        tmp_bytes=_disk(options),
        ntasks=ntasks,
        ntasks_per_node=tasks_per_node,
        cpus_per_task=number("cpus_per_task"),
    )


def _nodes(text: str, *, ranged: bool, what: str = "--nodes") -> tuple[int | None, int | None]:
    """A number of nodes, and the most of a range `LOW-HIGH`.

    Without `ranged` the GPUs of the whole job are said, and any number of nodes will do.
    """
    low, dash, high = text.partition("-")
    if not dash or not low:
        return whole_number(what, text, least=1, most=65_536), None
    least = whole_number(what, low, least=1, most=65_536)
    most = whole_number(what, high, least=least, most=65_536)
    if least == most:
        return least, None
    return (least, most) if ranged else (None, None)


def _agreed(total: GpuWish | None, part: GpuWish, count: int, word: str) -> GpuWish:
    if total is not None and total.count != count:
        raise BadInput(
            f"--gpus {total.count} and {word} contradict each other ({plural(count, 'GPU')})"
        )
    return GpuWish(count=count, types=total.types if total and total.types else part.types)


def _gang(
    total: GpuWish | None, per_node: GpuWish | None, nodes: int | None
) -> tuple[int | None, int | None, int | None]:
    """GPUs, nodes and GPUs on each node, as far as they are known."""
    if per_node is not None:
        each = per_node.count
        if total is None:
            count = nodes or 1
            return each * count, count, each
        if each == 0 or total.count % each or (nodes and each * nodes != total.count):
            raise BadInput(
                f"--gpus {total.count} and --gpus-per-node {each}"
                + (f" on --nodes {nodes}" if nodes else "")
                + " contradict each other"
            )
        return total.count, total.count // each, each
    if total is None:
        return None, nodes, None
    if nodes is None:
        return total.count, None, None
    if total.count % nodes:
        raise BadInput(
            f"--gpus {total.count}: not the same number on each of {plural(nodes, 'node')}"
        )
    return total.count, nodes, total.count // nodes


def _types(*wishes: GpuWish | None) -> tuple[str, ...]:
    """Types that every option allows that names any."""
    named = [wish.types for wish in wishes if wish is not None and wish.types]
    if not named:
        return ()
    both = tuple(kind for kind in named[0] if all(kind in others for others in named[1:]))
    if not both:
        raise BadInput(f"GPU types: nothing is both {' and '.join('|'.join(n) for n in named)}")
    return both


def _cpus(
    cpus: int | None,
    per_task: int | None,
    per_gpu: int | None,
    ntasks: int | None,
    gpus: int | None,
    nodes: int | None,
) -> int | None:
    if cpus is not None:
        return cpus
    if per_gpu is not None:
        if gpus is None:
            raise BadInput("--cpus-per-gpu: needs --gpus")
        return per_gpu * gpus or None
    if per_task is not None:
        return per_task * (ntasks or nodes or 1)
    return ntasks


def _memory(
    options: Mapping[str, str], *, gpus: int | None, cpus: int | None, nodes: int | None
) -> int | None:
    given = [key for key in ("mem", "mem_per_cpu", "mem_per_gpu") if key in options]
    if not given:
        return None
    from dlsched.client.submission.memory import (  # noqa: PLC0415  # few say it
        is_whole_memory,
        memory_bytes,
    )

    if len(given) > 1:
        raise BadInput(f"{word_of(given[0])} and {word_of(given[1])}: only one of them")
    (key,) = given
    if key == "mem" and is_whole_memory(options[key]):
        return None
    amount = memory_bytes(word_of(key), options[key])
    if key == "mem":
        return amount
    count = cpus if key == "mem_per_cpu" else gpus
    if key == "mem_per_gpu" and not count:
        raise BadInput("--mem-per-gpu: needs --gpus")
    total = amount * -(-(count or 1) // (nodes or 1))
    if total > 2**60:
        raise BadInput(f"{word_of(key)}: {options[key]} is more than any node has")
    return total


def _disk(options: Mapping[str, str]) -> int | None:
    if "tmp" not in options:
        return None
    from dlsched.client.submission.memory import memory_bytes  # noqa: PLC0415  # few say it

    return memory_bytes("--tmp", options["tmp"])


def _check_elastic(
    options: Mapping[str, str], gpus: int | None, low: int | None, high: int | None
) -> None:
    """Refuse bounds that leave no room, and what an elastic job cannot have besides."""
    words = [key for key in ("min_gpus", "max_gpus", "adaptive", "fixed_batch") if key in options]
    if not words:
        return
    if low is not None and high is not None and low > high:
        raise BadInput(f"--min-gpus {low} is more than --max-gpus {high}")
    if gpus is not None and not (low or 0) <= gpus <= (high or gpus):
        raise BadInput(f"--gpus {gpus} is not between --min-gpus and --max-gpus")
    for key in ("nodes", "gpus_per_node", "gpus_per_task", "share", "exclusive"):
        if key in options:
            raise BadInput(
                f"{word_of(key)} and {word_of(words[0])}: the GPUs of an elastic job lie wherever "
                "they are free; say --gpus"
            )
