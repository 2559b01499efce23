"""`SetShadow` and `Shadow` on the wire."""

from __future__ import annotations

from dataclasses import dataclass

from dlsched.core.errors import BadInput
from dlsched.daemon.cluster import Cluster
from dlsched.daemon.control.bounds import check_count, check_text
from dlsched.daemon.control.predicting.alternatives import put_figures, put_jobs
from dlsched.daemon.supposing.shadow import Look, Shadow
from dlsched.db.records import Event
from dlsched.rpc.identity import Identity
from dlsched.rpc.v1 import control_pb2
from dlsched.system.clock import wall

MOST_DIFFERENCES = 1_000


@dataclass(eq=False, slots=True)
class ShadowService:
    """What operators set, and every user may see, of the policy in the shadow."""

    cluster: Cluster
    shadow: Shadow

    async def set(
        self, request: control_pb2.SetShadowRequest, caller: Identity
    ) -> control_pb2.ShadowReply:
        """Have another policy decide in the shadow, or none.

        Raises:
            BadInput: one line; then everything stays as it is.
        """
        cluster = self.cluster
        cluster.driver.require_lead()
        check_count("options", len(request.options), 200)
        for text in (*request.parts, *request.parts.values(), *request.options):
            check_text("policy", text, 1000)
        settings = None
        if not request.off:
            if not request.parts.get("scheduling"):
                raise BadInput("shadow: name the policy")
            settings = cluster.round_state.settings.changed(request.parts, request.options)
        await self.shadow.choose(settings, caller.name)
        what = "off" if settings is None else settings.policy
        await cluster.driver.attach(
            Event(at=wall(), kind="set-shadow", actor=caller.name, text=what)
        )
        return await self.show()

    async def show(self) -> control_pb2.ShadowReply:
        """What has come of it."""
        shadow, record = self.shadow, self.shadow.record
        settings = shadow.settings
        reply = control_pb2.ShadowReply(
            on=settings is not None, present=self.cluster.round_state.settings.policy
        )
        if settings is None:
            return reply
        reply.policy, reply.set_by, reply.since = settings.policy, record.set_by, record.since
        reply.parts.update(settings.parts)
        reply.options.extend(settings.options)
        reply.looks, reply.differing = record.looks, record.differing
        reply.failures, reply.failure = record.failures, record.failure
        reply.cost_s, reply.every_s = record.cost_s, shadow.pause_s
        if record.last is not None:
            await self._put_look(reply, record.last)
        return reply

    async def _put_look(self, reply: control_pb2.ShadowReply, last: Look) -> None:
        live = self.cluster.live
        reply.at = last.at
        for each in last.differences[:MOST_DIFFERENCES]:
            spec = live.requests.specs.get(each.job)
            if spec is None:  # it has ended since
                continue
            told = reply.differences.add(
                job=each.job, name=spec.name, user=spec.user, would=each.would
            )
            told.gpus = spec.body.gpus if spec.body.gang is None else sum(spec.body.gang)
            if each.placement is not None:
                told.gpus = each.placement.gpus
                names = live.nodes.names
                told.nodes.extend(names[n] for n in each.placement.nodes if n < len(names))
        reply.more_differences = max(len(last.differences) - MOST_DIFFERENCES, 0)
        for told_of, outcome, policy in (
            (reply.under_present, last.under_present, last.present),
            (reply.under_shadow, last.under_shadow, reply.policy),
        ):
            told_of.policy = policy
            put_figures(told_of, outcome)
            await put_jobs(told_of, outcome, live)
