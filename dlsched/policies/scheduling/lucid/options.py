"""The options of Lucid."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from dlsched.core.options import option


@dataclass(frozen=True, slots=True, kw_only=True)
class LucidOptions:
    """A profiling stage, packing, and the least predicted GPU time first."""

    profiling_nodes: int = option(
        2, "nodes that profile, the last of the cluster, a third of it at most; 0: none", low=0
    )
    profiling_hosts: str = option("", "the nodes that profile, as a host list, instead of those")
    profiling_gpus: int = option(8, "most GPUs of a job that is profiled", low=1)
    profiling_s: float = option(200.0, "seconds after which profiling ends", low=1.0)
    scaling: bool = option(
        True, "lend the profiling stage one more node while many jobs wait for it"
    )
    sharing: Literal["adaptive", "always", "never"] = option(
        "adaptive", "pack jobs: unless few arrivals are predicted, always, or never"
    )
    quiet_jobs: float = option(
        2.0, "predicted arrivals in ten minutes up to which no jobs are packed", low=0.0
    )
    most_score: int = option(
        2, "most of the packing classes of two packed jobs together (tiny 0, medium 1, jumbo 2)",
        low=0,
    )  # fmt: skip
    tiny_util: float = option(
        25.0, "GPU use [%] up to which an unmeasured workload is tiny", low=0.0
    )
    jumbo_memory_util: float = option(
        30.5, "use of the GPU's memory [% of time] above which it is jumbo", low=0.0
    )
    jumbo_util: float = option(
        60.3, "GPU use [%] above which it is jumbo, where that of the memory is not known", low=0.0
    )
    longer: float = option(
        2.0, "a job joins one of at least 1/x of its own predicted GPU time", low=0.0
    )
    packed_gpus: int = option(8, "most GPUs of a job that is packed", low=1)
    memory_gib: float | None = option(
        None, "GiB of a GPU that two packed jobs stay below together; none: what it has", low=0.0
    )
    check_s: float = option(100.0, "seconds between two looks at whether to pack", low=1.0)
    predicted_jobs: tuple[float, ...] = option(
        (), "predicted jobs by slot of ten minutes (a file, one number a line); empty: learned",
        from_file=True,
    )  # fmt: skip
    predicted_gpus: tuple[float, ...] = option(
        (), "predicted GPUs by slot of ten minutes (a file, one number a line); empty: learned",
        from_file=True,
    )  # fmt: skip
    slots_from: float = option(0.0, "when the first of these slots begins, in seconds")
