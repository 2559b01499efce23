"""Time-outs: gangs that do not prepare in time, and nodes that do not sync."""

from __future__ import annotations

from collections.abc import Iterable

from dlsched.protocol import messages as m
from dlsched.protocol import rules
from dlsched.protocol.leader.state import Turn
from dlsched.protocol.ledger import (
    MemberOver,
    NodeStatus,
    OrphanOver,
    RunStatus,
    SetNode,
    StopRun,
)


class SilenceTurn(Turn):
    """What a leader does about gangs and nodes that stay silent."""

    def abort_slow_gangs(self, now: float) -> None:
        """Stop gangs that have not prepared on every node in time."""
        waiting = {
            run_id: since
            for run_id, since in self.state.preparing_from.items()
            if self.state.reserved.runs[run_id].status is RunStatus.PREPARING
        }
        self.change(preparing_from=waiting)
        for run_id, since in waiting.items():
            run = self.state.reserved.runs[run_id]
            if run.stop is None and now - since > self.state.timing.prepare_s:
                self.write(StopRun(run.key.run_id, m.StopReason.ABORT))

    def check_silence(self, now: float) -> None:
        """Raise alarms for late nodes; end their fenced runs if enough witnesses are renewed."""
        state = self.state
        for name, node in state.reserved.nodes.items():
            last = state.last_syncs.get(name)
            heard = last.at if last is not None else float("-inf")
            since = max(state.window_from, heard, state.renewed.get(name, float("-inf")))
            if node.status is not NodeStatus.UP or not rules.window_passed(
                since, now, state.timing
            ):
                continue
            fenced = [
                run
                for run in self.state.reserved.runs_on(name)
                if self.state.reserved.jobs[run.key.job].request.fence is m.Fence.LEASE
            ]
            self.alarm(f"{name} is late: its runs stay as they are")
            if not fenced:
                continue
            chains = [
                other.chain
                for witness in state.witnesses
                if witness != name
                and (other := state.last_syncs.get(witness)) is not None
                and other.chain is not None
            ]
            if rules.is_witnessed(chains, len(state.witnesses), now, state.timing):
                self.write(SetNode(name, NodeStatus.LOST, "silent, fenced"))
                for run in fenced:
                    self.write(MemberOver(run.key.run_id, name, presumed="fenced"))
            else:
                self.alarm(f"quorum lost: {name} is silent and too few witnesses are renewed")

    def node_down(self, name: m.NodeName) -> None:
        """End all runs of a node, because an operator confirms that nothing runs there."""
        if name not in self.state.reserved.nodes:
            return
        self.write(SetNode(name, NodeStatus.DOWN, "confirmed by an operator"))
        for run in self.state.reserved.runs_on(name):
            self.write(MemberOver(run.key.run_id, name, presumed="confirmed down"))
        for place, run_id in list(self.state.reserved.orphans):
            if place == name:
                self.write(OrphanOver(name, run_id, None))

    def end_orphans(self, run_ids: frozenset[m.RunId]) -> None:
        """Have the nodes kill orphans, because an operator says so."""
        self.end_there(each for each in self.state.reserved.orphans if each[1] in run_ids)

    def run_is_over(self, job: m.JobId) -> None:
        """Have nodes report the end of a run of which they are in doubt: an operator is sure."""
        run = self.state.reserved.live_run(job)
        if run is not None:
            self.end_there((node, run.key.run_id) for node in self.state.doubtful_nodes(run))

    def end_there(self, places: Iterable[tuple[m.NodeName, m.RunId]]) -> None:
        """Tell nodes that runs are over; what an operator does not know of yet is not included."""
        still = self.state.ending & {*self.state.reserved.orphans, *self.state.in_doubt}
        self.change(ending=still.union(places))
