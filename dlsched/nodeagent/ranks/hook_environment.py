"""The environment of the site's hooks: nothing of the agent's own, and nothing that a user set."""

from __future__ import annotations

from dlsched.nodeagent.ranks.launch_spec import RunFacts
from dlsched.protocol.messages import DesiredRun, ExitRecord, NodeName
from dlsched.system.command_path import PATH


def hook_environment(
    hook: str, node: NodeName, desired: DesiredRun, facts: RunFacts, end: ExitRecord | None
) -> dict[str, str]:
    """The variables of a prolog or an epilog.

    Args:
        hook: `prolog` or `epilog`.
        node: on which it runs.
        desired: the run.
        facts: what the node knows of it.
        end: how it ended; None before its end.
    """
    names = [share.node for share in desired.layout] or [node]
    gpus = ",".join(desired.gpus)
    found = {
        "PATH": PATH,
        "LC_ALL": "C.UTF-8",
        "DLSCHED_HOOK": hook,
        "DLSCHED_JOB_ID": str(desired.key.job),
        "DLSCHED_JOB_NAME": facts.job_name,
        "DLSCHED_JOB_USER": facts.user,
        "DLSCHED_JOB_UID": str(facts.uid),
        "DLSCHED_JOB_GID": str(facts.gid),
        "DLSCHED_RUN": str(desired.key.run),
        "DLSCHED_RUN_ID": desired.key.run_id,
        "DLSCHED_PARTITION": facts.partition,
        "DLSCHED_VC": facts.vc,
        "DLSCHED_CLUSTER": facts.cluster,
        "DLSCHED_NODE": node,
        "DLSCHED_NODELIST": ",".join(names),
        "DLSCHED_NNODES": str(len(names)),
        "DLSCHED_NODE_RANK": str(names.index(node) if node in names else 0),
        "DLSCHED_GPUS": gpus,
        "CUDA_VISIBLE_DEVICES": gpus,
        "CUDA_DEVICE_ORDER": "PCI_BUS_ID",
        "SLURM_JOB_ID": str(desired.key.job),
        "SLURM_JOB_USER": facts.user,
        "SLURM_JOB_UID": str(facts.uid),
        "SLURM_JOB_GID": str(facts.gid),
        "SLURMD_NODENAME": node,
    }
    if end is not None:
        found |= {
            "DLSCHED_END": end.reason.value,
            "DLSCHED_EXIT_CODE": str(end.code),
            "DLSCHED_EXIT_SIGNAL": str(end.signal),
            "DLSCHED_EXECUTED_S": f"{end.ran_s:.0f}",
        }
    return found
