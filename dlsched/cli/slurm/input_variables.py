"""The variables that `sbatch`, `salloc` and `srun` read in place of options, as Slurm has them.

Each command has its own prefix: SBATCH_PARTITION, SALLOC_PARTITION, SLURM_PARTITION. An option that
is given wins. Variables without effect here are named in one note, those of options that are not
supported are refused; a name that Slurm does not read is not read here either.
"""

from __future__ import annotations

from collections.abc import Mapping

from dlsched.client.submission.options import BY_WORD, put_typed
from dlsched.core.errors import BadInput

_EVERY = {  # by the end of the variable's name
    "ACCOUNT": "--account",
    "CONSTRAINT": "--constraint",
    "CPUS_PER_GPU": "--cpus-per-gpu",
    "EXCLUSIVE": "--exclusive",
    "GPUS": "--gpus",
    "GPUS_PER_NODE": "--gpus-per-node",
    "GPUS_PER_TASK": "--gpus-per-task",
    "GPU_BIND": "--gpu-bind",
    "GRES": "--gres",
    "MEM_PER_CPU": "--mem-per-cpu",
    "MEM_PER_GPU": "--mem-per-gpu",
    "MEM_PER_NODE": "--mem",
    "PARTITION": "--partition",
    "QOS": "--qos",
    "RESERVATION": "--reservation",
    "SIGNAL": "--signal",
    "TIMELIMIT": "--time",
}
_READ = {
    "sbatch": {
        **{f"SBATCH_{end}": word for end, word in _EVERY.items()},
        "SBATCH_ARRAY_INX": "--array",
        "SBATCH_CONTAINER": "--container",
        "SBATCH_DISTRIBUTION": "--distribution",
        "SBATCH_ERROR": "--error",
        "SBATCH_EXPORT": "--export",
        "SBATCH_INPUT": "--input",
        "SBATCH_JOB_NAME": "--job-name",
        "SBATCH_NO_REQUEUE": "--no-requeue",
        "SBATCH_OPEN_MODE": "--open-mode",
        "SBATCH_OUTPUT": "--output",
        "SBATCH_REQUEUE": "--requeue",
        "SBATCH_WAIT": "--wait",
    },
    "salloc": {
        **{f"SALLOC_{end}": word for end, word in _EVERY.items()},
        "SALLOC_CONTAINER": "--container",
    },
    # what belongs to tasks is read by `srun` in the job
    "srun": {
        **{f"SLURM_{end}": word for end, word in _EVERY.items()},
        "SLURM_DEPENDENCY": "--dependency",
        "SLURM_DISTRIBUTION": "--distribution",
        "SLURM_EXPORT_ENV": "--export",
        "SLURM_JOB_NAME": "--job-name",
        "SLURM_JOB_NUM_NODES": "--nodes",
        "SLURM_NPROCS": "--ntasks",
        "SLURM_NTASKS": "--ntasks",
        "SLURM_NTASKS_PER_GPU": "--ntasks-per-gpu",
        "SLURM_NTASKS_PER_NODE": "--ntasks-per-node",
        "SLURM_OPEN_MODE": "--open-mode",
        "SLURM_REMOTE_CWD": "--chdir",
        "SLURM_STDERRMODE": "--error",
        "SLURM_STDOUTMODE": "--output",
        "SLURM_WORKING_DIR": "--chdir",
        "SRUN_CPUS_PER_TASK": "--cpus-per-task",
        "SRUN_CONTAINER": "--container",
    },
}
PREFIXES = {"sbatch": "SBATCH_", "salloc": "SALLOC_", "srun": "SLURM_"}
NO_EFFECT = {
    *("ACCTG_FREQ", "CORE_SPEC", "CPU_FREQ_REQ", "DELAY_BOOT", "GET_USER_ENV", "GPU_FREQ"),
    *("GRES_FLAGS", "HINT", "KILL_CMD", "MEM_BIND", "NETWORK", "NO_KILL", "OVERCOMMIT", "POWER"),
    *("PROFILE", "REQ_SWITCH", "SPREAD_JOB", "THREADS_PER_CORE", "THREAD_SPEC", "USE_MIN_NODES"),
    *("WAIT4SWITCH", "WAIT_ALL_NODES", "WCKEY"),
}
REFUSED = {"BURST_BUFFER", "CLUSTERS", "CLUSTER_CONSTRAINT", "GPUS_PER_SOCKET"}


def read_variables(
    command: str, variables: Mapping[str, str], given: Mapping[str, str]
) -> tuple[dict[str, str], list[str]]:
    """Return the options that variables say, as a layer, and the names of those without effect.

    Args:
        command: `sbatch`, `salloc` or `srun`.
        variables: of the environment.
        given: options of the command line by key; what they say is not read from variables.

    Raises:
        BadInput: a variable of an option that is not supported, or a malformed one.
    """
    layer: dict[str, str] = {}
    for name, word in _READ[command].items():
        option, text = BY_WORD[word], variables.get(name, "")
        if not text or option.key in given or option.key in layer:
            continue
        if option.kind == "flag":  # Slurm asks only whether these variables are there
            text = "yes"
        put_typed(layer, option, f"environment variable {name}", text)
    ends = {
        name.removeprefix(PREFIXES[command]): name
        for name, text in variables.items()
        if name.startswith(PREFIXES[command]) and text
    }
    for end in sorted(REFUSED & ends.keys()):
        raise BadInput(f"environment variable {ends[end]}: not supported")
    return layer, [ends[end] for end in sorted(NO_EFFECT & ends.keys())]
