"""The policy `lucid` as its published simulator runs it: in two passes, with partners that stay."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

from dlsched.core.arrays import Bools, Rows
from dlsched.core.cluster.description import Cluster
from dlsched.core.options import option
from dlsched.core.scheduling import FirstStage
from dlsched.policies.scheduling.lucid.options import LucidOptions
from dlsched.policies.scheduling.lucid.policy import Lucid


@dataclass(frozen=True, slots=True, kw_only=True)
class PublishedLucidOptions(LucidOptions):
    """Lucid, where time passes as in its simulator."""

    restore_partner: Literal["correct", "artifact"] = option(
        "correct", "a job whose partner has left may be packed again: always, or if it was first"
    )
    artifact_compat: bool = option(
        False, "profile the whole trace first, then run what is left from its submit"
    )
    lender: str = option("", "with `artifact_compat`, the virtual cluster that lends a node")


class PublishedLucid(Lucid):
    """The profiling stage is replayed first; a job that joined another gets no partner later."""

    Options: ClassVar[type[PublishedLucidOptions]] = PublishedLucidOptions
    options: PublishedLucidOptions

    def first_stage(self, cluster: Cluster) -> FirstStage | None:
        """The profiling stage, with `artifact_compat`."""
        chosen, nodes = self.options, self.profiling_nodes(cluster)
        if not (chosen.artifact_compat and nodes):
            return None
        return FirstStage(
            nodes=nodes,
            most_gpus=chosen.profiling_gpus,
            limit_s=chosen.profiling_s,
            scales=chosen.scaling,
            lender=chosen.lender if chosen.scaling else "",
            semantics="lucid-queue",
        )

    def _stay_apart(self, rows: Rows) -> Bools:
        apart = super()._stay_apart(rows)
        if self.options.restore_partner == "artifact":
            apart |= self._profiled.joined(rows)
        return apart
