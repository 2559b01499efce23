"""What a submission asked for, in the variables in which Slurm tells it to the job.

Slurm sets each of them only where the option was given, with the option's own text; memory is a
number of MiB there, and the mode of output files a letter. What a run got is told by the node:
SLURM_NTASKS, SLURM_GPUS_ON_NODE and so on.
"""

from __future__ import annotations

from collections.abc import Mapping

from dlsched.client.submission.values import word_of
from dlsched.core.errors import BadInput

_SAID = {
    "gpus": "SLURM_GPUS",
    "gpus_per_node": "SLURM_GPUS_PER_NODE",
    "gpus_per_task": "SLURM_GPUS_PER_TASK",
    "cpus_per_gpu": "SLURM_CPUS_PER_GPU",
    "ntasks_per_gpu": "SLURM_NTASKS_PER_GPU",
    "gpu_bind": "SLURM_GPU_BIND",
    "distribution": "SLURM_DISTRIBUTION",
    "dependency": "SLURM_JOB_DEPENDENCY",
    "priority_class": "SLURM_JOB_QOS",
    "export": "SLURM_EXPORT_ENV",
}
OF_STEPS = {"gpu_bind", "distribution"}
_MEMORY = {
    "mem": "SLURM_MEM_PER_NODE",
    "mem_per_cpu": "SLURM_MEM_PER_CPU",
    "mem_per_gpu": "SLURM_MEM_PER_GPU",
}


def check_for_steps(key: str, what: str, text: str) -> str:
    """Check an option that only the steps of a job read; return what of it has no effect.

    `what` names the option in the error.

    Raises:
        BadInput: it is malformed.
    """
    from dlsched.task_places import read_distribution, read_gpu_binding  # noqa: PLC0415

    try:
        if key == "gpu_bind":
            return f"{what}=closest" if read_gpu_binding(text).is_closest else ""
        rest = read_distribution(text).rest
    except ValueError as error:
        raise BadInput(f"{what}: {error}") from None
    return f"{what}={rest}" if rest else ""


def slurm_variables(options: Mapping[str, str]) -> dict[str, str]:
    """Return the variables that options give, by name.

    Raises:
        BadInput: a size of memory is malformed.
    """
    if options.get("slurm_env") == "no":
        return {}
    found = {name: options[key] for key, name in _SAID.items() if key in options}
    if "open_mode" in options:
        found["SLURM_OPEN_MODE"] = options["open_mode"][:1].lower()
    if _MEMORY.keys() & options.keys():
        from dlsched.client.submission.memory import (  # noqa: PLC0415  # few say it
            is_whole_memory,
            memory_bytes,
        )

        for key, name in _MEMORY.items():
            if key in options and not is_whole_memory(options[key]):
                found[name] = str(memory_bytes(word_of(key), options[key]) >> 20)
    return found
