"""`scontrol show config`: what tools look up, under Slurm's names.

What Slurm's configuration has and this scheduler does not is left out, not made up.
"""

from __future__ import annotations

import time
from collections.abc import Iterator

from dlsched.cli.slurm.formats import moment
from dlsched.cli.slurm.squeue import ENDED_WITHIN_S
from dlsched.cli.slurm.version import version_text
from dlsched.rpc.v1.control_pb2 import StatusReply


def config_lines(status: StatusReply) -> Iterator[str]:
    """The lines of the configuration."""
    told = {
        "AccountingStorageEnforce": "none",
        "AccountingStorageTRES": "cpu,mem,node,billing,gres/gpu",
        "AccountingStorageType": "accounting_storage/dlsched",
        "AuthType": "auth/dlsched",
        "BOOT_TIME": moment(time.time() - status.up_s),
        "ClusterName": status.cluster,
        "GresTypes": "gpu",
        "JobAcctGatherType": "jobacct_gather/dlsched",
        "JobFileAppend": "0",
        "JobRequeue": "1",
        "MinJobAge": f"{ENDED_WITHIN_S:.0f} sec",
        "PriorityType": f"priority/{status.policy}",
        "SchedulerType": f"sched/{status.policy}",
        "SelectType": "select/dlsched",
        "SlurmctldHost[0]": status.leader or "(null)",
        "SLURM_VERSION": version_text().removeprefix("slurm "),
        "TaskPlugin": "task/dlsched",
        "WaitTime": "0 sec",
    }
    yield f"Configuration data as of {moment(time.time())}"
    for name, value in told.items():
        yield f"{name:<23} = {value}"
    yield ""
    yield f"Slurmctld(primary) at {status.leader or status.cluster} is UP"
