"""Time-outs: gangs that do not prepare in time, and nodes that do not sync."""

from __future__ import annotations

from collections.abc import Iterable

from dlsched.protocol import messages as m
from dlsched.protocol import rules
from dlsched.protocol.leader.interface import PowerOff
from dlsched.protocol.leader.state import Turn
from dlsched.protocol.ledger import (
    FENCED,
    IS_DOWN,
    SAID_TO_BE_OVER,
    MemberOver,
    Node,
    NodeStatus,
    OrphanOver,
    Run,
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
        """Raise alarms for late nodes; end their runs where that is safe, or switch them off.

        A node is switched off only when it, and not this daemon, is cut off.
        """
        state = self.state
        for name, node in state.reserved.nodes.items():
            last = state.last_syncs.get(name)
            heard = last.at if last is not None else float("-inf")
            since = max(state.window_from, heard, state.renewed.get(name, float("-inf")))
            if node.status is NodeStatus.DOWN or not rules.window_passed(since, now, state.timing):
                continue
            if node.status is NodeStatus.UP:
                self.lose_if_fenced(node, now)
            mine = [*self.state.reserved.runs_on(name), *self.state.reserved.stuck_runs_on(name)]
            if mine and self.is_cut_off(node, now):
                self.emit(PowerOff(name, now, node.incarnation))

    def lose_if_fenced(self, node: Node, now: float) -> None:
        """Raise the alarm for a late node; end its fenced runs if enough witnesses are renewed."""
        name = node.name
        fenced = []
        for run in self.state.reserved.runs_on(name):
            request = self.state.reserved.jobs[run.key.job].request
            if request.fence is not m.Fence.LEASE or not node.can_fence:
                continue
            if self.has_obeyed_so_far(run, name):
                fenced.append(run)
            else:
                self.alarm(f"{name} is late: job {run.key.job} was being stopped there, and waits")
        if fenced and self.is_cut_off(node, now):
            self.write(SetNode(name, NodeStatus.LOST, "silent, fenced"))
            for run in fenced:
                self.write(MemberOver(run.key.run_id, name, presumed=FENCED))
            self.end_alarms(f"{name} is late: its runs stay", f"quorum lost: {name} ")
            return
        self.alarm(f"{name} is late: its runs stay as they are")
        if fenced:
            self.alarm(f"quorum lost: {name} is silent and too few witnesses are renewed")

    def has_obeyed_so_far(self, run: Run, name: m.NodeName) -> bool:
        """Whether no SIGKILL can have been without effect on a run before its node was silent."""
        told, last = self.state.told_to_stop.get(name), self.state.last_syncs.get(name)
        held = () if last is None else last.held
        return rules.may_be_fenced(run, told, held)

    def is_cut_off(self, node: Node, now: float) -> bool:
        """Whether a silent node cannot extend its own lease, whichever witnesses it may have.

        After the database has stepped back, the sets of nodes that have not been heard are unknown.
        """
        state = self.state
        known = not state.stepped_back or node.name in state.last_syncs
        if not node.witnesses or not known:
            return False
        return all(
            rules.is_witnessed(
                [
                    other.chain
                    for witness in witnesses
                    if witness != node.name
                    and (other := state.last_syncs.get(witness)) is not None
                    and other.chain is not None
                ],
                len(witnesses),
                now,
                state.timing,
            )
            for witnesses in node.witnesses
        )

    def node_off(self, asked: PowerOff) -> None:
        """A node was switched off: its runs are over, unless it was heard since that was asked.

        It may have been switched on again, and have runs that no command knows of.
        """
        state = self.state
        node, last = state.reserved.nodes.get(asked.node), state.last_syncs.get(asked.node)
        heard = max(state.window_from, last.at if last is not None else state.window_from)
        if node is not None and heard < asked.asked_at and node.incarnation == asked.incarnation:
            self.node_down(asked.node, "switched off by the fencing command")

    def node_down(self, name: m.NodeName, why: str = "confirmed by an operator") -> None:
        """End all runs of a node, because it is confirmed that nothing runs there."""
        if name not in self.state.reserved.nodes:
            return
        self.write(SetNode(name, NodeStatus.DOWN, why))
        self.end_alarms(f"{name} is late", f"quorum lost: {name} ")
        ledger = self.state.reserved
        for run in (*ledger.runs_on(name), *ledger.stuck_runs_on(name)):
            self.write(MemberOver(run.key.run_id, name, presumed=IS_DOWN))
        for place, run_id in list(self.state.reserved.orphans):
            if place == name:
                self.write(OrphanOver(name, run_id, None))

    def end_orphans(self, run_ids: frozenset[m.RunId]) -> None:
        """Have the nodes kill orphans, because an operator says so."""
        self.end_there(each for each in self.state.reserved.orphans if each[1] in run_ids)

    def settle(self, places: frozenset[tuple[m.NodeName, m.RunId]]) -> None:
        """End runs where nodes are in doubt or have a stuck process: an operator is sure."""
        for node, run_id in sorted(places):
            run = self.state.reserved.runs.get(run_id)
            if run is not None and node in run.stuck_on:
                self.write(MemberOver(run_id, node, presumed=SAID_TO_BE_OVER))
        self.end_there(places & self.state.in_doubt)

    def end_there(self, places: Iterable[tuple[m.NodeName, m.RunId]]) -> None:
        """Tell nodes that runs are over; what an operator does not know of yet is not included."""
        still = self.state.ending & {*self.state.reserved.orphans, *self.state.in_doubt}
        self.change(ending=still.union(places))
