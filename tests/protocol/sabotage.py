"""Broken rules: each breaks the protocol in one place, and the checker has to notice.

A checker that never fails proves nothing. Every entry names the rule, the theme of schedules in
which breaking it must be seen, and the promises that may be named.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from types import SimpleNamespace

import pytest

from dlsched.protocol import agent, gpu_shares, keeper, leader, ledger, messages, rules
from dlsched.protocol.agent.step import AgentTurn
from dlsched.protocol.leader import placing, silence, sync
from dlsched.protocol.leader.step import LeaderTurn
from dlsched.protocol.ledger import Request, applying, ends, rows
from dlsched.protocol.messages import (
    ExitRecord,
    NodeName,
    RequestId,
    RunId,
    StopReason,
    Sync,
    Term,
)
from dlsched.protocol.table import Table
from tests.protocol.simulation import Behaviour, Fault, Faults, Network, World, schedules
from tests.protocol.simulation.node import SimNode
from tests.protocol.simulation.truth import Database

Break = Callable[[pytest.MonkeyPatch], None]


@dataclass(frozen=True)
class Sabotage:
    """One broken rule.

    Attributes:
        name: of the test.
        theme: or situation in which it is missed.
        promises: one of them is found broken.
        apply: breaks the rule.
        first_seed: many schedules before it do without the rule.
    """

    name: str
    theme: str
    promises: tuple[str, ...]
    apply: Break
    first_seed: int = 0


def leader_ignores_the_window(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(rules, "window_passed", lambda since, now, timing: now - since >= 8.0)


def a_lost_keeper_is_always_the_end(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(AgentTurn, "may_be_alive", lambda self: False)


def a_run_does_not_wait_for_its_prolog(patch: pytest.MonkeyPatch) -> None:
    def run_hook(self: keeper._Turn, name: str, limit_s: float) -> None:
        if name == "prolog":
            self.move(keeper.Cause.RESERVED)
            self.prepared()
        else:
            original(self, name, limit_s)

    original = keeper._Turn.run_hook
    patch.setattr(keeper._Turn, "run_hook", run_hook)


def a_killed_keeper_skips_the_epilog(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(SimNode, "is_epilog_due", lambda self, record: False)


def a_keeper_that_hangs_is_left_alone(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(AgentTurn, "kill_unresponsive_keepers", lambda self, now: None)


def leader_asks_no_witness(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(rules, "is_witnessed", lambda *args: True)


def only_the_newest_witnesses_count(patch: pytest.MonkeyPatch) -> None:
    """A node that is cut off is judged by witnesses that it has never heard of."""
    patch.setattr(
        LeaderTurn,
        "offer_witnesses",
        lambda self, now, sync: self.write(ledger.SetWitnesses(sync.node, (self.state.witnesses,))),
    )
    original = LeaderTurn.is_cut_off

    def is_cut_off(self: LeaderTurn, node: ledger.Node, now: float) -> bool:
        return original(self, replace(node, witnesses=(self.state.witnesses,)), now)

    patch.setattr(LeaderTurn, "is_cut_off", is_cut_off)


def a_late_answer_of_the_fencing_command_counts(patch: pytest.MonkeyPatch) -> None:
    """The node may be on again, and have other runs."""
    patch.setattr(
        LeaderTurn, "node_off", lambda self, asked: self.node_down(asked.node, "switched off")
    )


def every_node_is_believed_to_fence(patch: pytest.MonkeyPatch) -> None:
    original = LeaderTurn.check_silence

    def check_silence(self: LeaderTurn, now: float) -> None:
        nodes = self.state.reserved.nodes
        fenced = {name: replace(node, can_fence=True) for name, node in nodes.items()}
        self.change(reserved=replace(self.state.reserved, nodes=Table(fenced)))
        original(self, now)

    patch.setattr(LeaderTurn, "check_silence", check_silence)


def node_extends_without_witnesses(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(rules, "may_extend", lambda ages, n, until, now, timing: now < until)
    patch.setattr(
        AgentTurn,
        "tick",
        lambda self, now, tick=AgentTurn.tick: (tick(self, now), _extend(self, now)),
    )


def _extend(turn: AgentTurn, now: float) -> None:
    if now < turn.state.lease_until:
        turn.write_lease(now + 30.0, turn.state.covers, by_leader=False)


def gang_is_released_early(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(rules, "may_release", lambda run, prepared: run.stop is None)


def one_node_does_not_wait_for_the_others(patch: pytest.MonkeyPatch) -> None:
    """The keeper executes as soon as it has prepared."""
    original = keeper._Turn.begin

    def begin(self: keeper._Turn, until: float | None) -> None:
        original(self, until)
        self.change(release_asked=True)

    patch.setattr(keeper._Turn, "begin", begin)


def client_is_answered_before_commit(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(LeaderTurn, "answer_after_commit", lambda self, answer: self.emit(answer))


def end_is_acknowledged_before_commit(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(sync, "is_committed", lambda ledger, node, key: True)


def database_forgets_the_epoch(patch: pytest.MonkeyPatch) -> None:
    def write(self: Database, name: str, transaction: leader.Persist) -> bool:
        self.leader, old = name, self.leader
        self.ledger = replace(self.ledger, epoch=transaction.epoch)
        done = original(self, name, transaction)
        self.leader = old
        return done

    original = Database.write
    patch.setattr(Database, "write", write)


def absence_is_believed_at_once(patch: pytest.MonkeyPatch) -> None:
    """A run that a sync does not mention is over, however old the sync's view is."""
    original = LeaderTurn.compare_held

    def compare_held(self: LeaderTurn, sync: Sync, held: tuple) -> None:
        original(self, replace(sync, applied=Term(10**9, 0)), held)

    patch.setattr(LeaderTurn, "compare_held", compare_held)


def unknown_runs_are_killed(patch: pytest.MonkeyPatch) -> None:
    original = LeaderTurn.reply

    def reply(self: LeaderTurn, now: float, sync: Sync) -> None:
        original(self, now, sync)
        held, known = self.state.last_syncs[sync.node].held, self.state.committed.runs
        strange = tuple(h.key.run_id for h in held if h.key.run_id not in known)
        for k, command in enumerate(self.commands):
            if isinstance(command, leader.SendReply):
                changed = replace(command.reply, over=(*command.reply.over, *strange))
                self.commands[k] = leader.SendReply(changed)

    patch.setattr(LeaderTurn, "reply", reply)


def silence_ends_held_runs(patch: pytest.MonkeyPatch) -> None:
    """A silent node's runs are given up although nothing fences them."""

    mistaken = SimpleNamespace(**vars(messages))
    mistaken.Fence = SimpleNamespace(LEASE=messages.Fence.HOLD)
    patch.setattr(silence, "m", mistaken)


def an_agent_believes_its_empty_disk(patch: pytest.MonkeyPatch) -> None:
    """It looks for no keepers but those of runs on its disk."""
    patch.setattr(SimNode, "keepers_write_again", lambda self: None)
    original = AgentTurn.start

    def start(self: AgentTurn, event: agent.Started) -> None:
        known = {record.desired.key.run_id for record in event.runs}
        found = tuple(each for each in event.keepers if each.desired.key.run_id in known)
        original(self, replace(event, keepers=found))

    patch.setattr(AgentTurn, "start", start)


def an_agent_without_records_is_believed(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(rules, "has_the_records", lambda node, sync: True)
    original = LeaderTurn.register

    def register(self: LeaderTurn, event: leader.SyncArrived) -> None:
        self.change(last_syncs={})  # nor does it matter what it has said before
        original(self, event)

    patch.setattr(LeaderTurn, "register", register)


def losing_the_leader_stops_jobs(patch: pytest.MonkeyPatch) -> None:
    """Every run is fenced, whatever it asked for."""
    patch.setattr(keeper.KeeperState, "needs_lease", property(lambda self: True))


def fence_is_ignored(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(keeper.KeeperState, "needs_lease", property(lambda self: False))


def agent_has_no_veto(patch: pytest.MonkeyPatch) -> None:
    """GPUs are given out while a run is being stopped, and the node does not look."""
    patch.setattr(AgentTurn, "veto", lambda self, want: "")
    patch.setattr(ledger.Ledger, "busy", lambda self, node, without=None, **_: set())


def suspensions_are_not_waited_for(patch: pytest.MonkeyPatch) -> None:
    """GPUs are given out as soon as their run is to be suspended, and the node does not look."""
    gives_way = property(lambda self: self.suspended and self.gives_way)
    patch.setattr(ledger.Run, "is_away", gives_way)
    patch.setattr(rules, "is_off_its_gpus", lambda want, suspension, let_go: want is not None)


def a_run_goes_on_while_its_gpus_are_lent(patch: pytest.MonkeyPatch) -> None:
    """Neither leader nor node look what is on the GPUs of a run that is to go on."""
    original = ledger.Ledger.busy

    def busy(
        self: ledger.Ledger,
        node: NodeName,
        without: RunId | None = None,
        *,
        share: float | None = None,
    ) -> set:
        return set() if without is not None else original(self, node, share=share)

    patch.setattr(ledger.Ledger, "busy", busy)
    patch.setattr(AgentTurn, "blocks_resume", lambda self, held: None)


def a_full_gpu_takes_more(patch: pytest.MonkeyPatch) -> None:
    """A job that shares a GPU with one other has room for a third, of whatever size."""
    patch.setattr(gpu_shares, "is_room", lambda taken, part: taken < 1.0 and part < 1.0)


def a_job_without_a_share_shares(patch: pytest.MonkeyPatch) -> None:
    """A run that has not said that it may share is joined nevertheless."""
    for module in (rows, agent.runs):
        patch.setattr(module, "part_of", lambda share: 0.5 if share is None else share)


def stuck_processes_are_forgotten(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(rows.Member, "is_stuck", property(lambda self: False))


def a_lease_fences_what_does_not_obey(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(rules, "may_be_fenced", lambda run, told_to_stop, held: True)


def a_dead_keeper_s_stuck_process_is_forgotten(patch: pytest.MonkeyPatch) -> None:
    """The agent says that nothing is left of a run as soon as its keeper is gone."""

    def kill_leftovers(self: SimNode, run_id: RunId) -> None:
        self.after_epilog(run_id, lambda: self.leftovers_gone(run_id))

    patch.setattr(SimNode, "kill_leftovers", kill_leftovers)


def lost_leader_goes_on_renewing(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(rules, "may_renew", lambda confirmed_at, now, timing: True)


def late_ends_are_dropped(patch: pytest.MonkeyPatch) -> None:
    """What was decided about a silent run stands, whatever its record says."""
    patch.setattr(applying, "_late_exit", lambda found, run: found)


def _meaning(patch: pytest.MonkeyPatch, other: Callable[[ExitRecord], ends.Meaning | None]) -> None:
    """Records mean what `other` says, or what they really mean where it says None."""
    original = ends.meaning

    def meaning(record: ExitRecord | None) -> ends.Meaning:
        changed = None if record is None else other(record)
        return original(record) if changed is None else changed

    patch.setattr(ends, "meaning", meaning)


def stop_overrides_success(patch: pytest.MonkeyPatch) -> None:
    """An exit 0 under a stop request is requeued."""
    _meaning(patch, lambda r: ends.Meaning.STOPPED if r.stop is StopReason.PREEMPT else None)


def exit_0_is_success_always(patch: pytest.MonkeyPatch) -> None:
    """A job that has agreed to stop and exits with 0 has completed."""

    def done(record: ExitRecord) -> ends.Meaning | None:
        is_0 = record.reason is messages.ExitReason.EXITED and record.code == 0
        return ends.Meaning.DONE if is_0 else None

    _meaning(patch, done)


def exit_code_of_a_stopped_job_counts(patch: pytest.MonkeyPatch) -> None:
    """Only 143 and signals are the answer to a stop request."""

    def failure(run: ledger.Run, records: list[ExitRecord]) -> ExitRecord | None:
        return next((each for each in records if each.code not in (0, 143)), None)

    patch.setattr(ends, "_failure", failure)


def a_run_that_gave_way_is_repeated(patch: pytest.MonkeyPatch) -> None:
    """A run that was to leave its GPUs, and fails, keeps them for the next one."""
    patch.setattr(placing, "may_repeat_in_place", ends.is_repeated)


def every_failure_is_repeated(patch: pytest.MonkeyPatch) -> None:
    """Retries are not counted."""

    def is_repeated(run: ledger.Run, job: ledger.Job) -> bool:
        return ledger.judge(run, job)[0] is ledger.Cause.FAILED

    patch.setattr(ends, "is_repeated", is_repeated)
    patch.setattr(applying, "is_repeated", is_repeated)


def failed_jobs_come_back_unasked(patch: pytest.MonkeyPatch) -> None:
    original = LeaderTurn.end_member

    def end_member(self: LeaderTurn, event: leader.SyncArrived, over: ledger.MemberOver) -> None:
        original(self, event, over)
        job = self.state.reserved.jobs[self.state.reserved.runs[over.run_id].key.job]
        if job.status is ledger.JobStatus.FAILED and job.runs == 1:
            self.write(ledger.Restart(job.job))

    patch.setattr(LeaderTurn, "end_member", end_member)


# -- situations in which one rule stands between the world and a broken promise ----------------


def _world(nodes: int, faults: list[Fault], leaders: int = 1, **kinds: object) -> World:
    fence = kinds.pop("fence", messages.Fence.HOLD)
    grace_s = kinds.pop("grace_s", 3.0)
    request = Request(request_id=RequestId("r0"), fence=fence, grace_s=grace_s)  # type: ignore[arg-type]
    behaviour = Behaviour(**kinds)  # type: ignore[arg-type]
    return World(
        nodes=nodes,
        leaders=leaders,
        jobs=[(request, behaviour)],
        faults=Faults(faults=tuple(faults)),
    )


def _home(**kinds: object) -> str:
    """The node on which the job of such a world starts."""
    world = _world(**kinds).run(9.0)  # type: ignore[arg-type]
    return world.executions[0][0]


def silent_node_under_hold() -> World:
    kinds = {"work_s": 150.0}
    home = _home(nodes=3, faults=[], **kinds)
    return _world(3, [Fault(at=10, kind="cut", target=home, other="*", for_s=130)], **kinds)


def leader_without_its_witnesses() -> World:
    """Three nodes that see each other and no daemon; a fourth with the daemon."""
    kinds = {"work_s": 150.0, "fence": messages.Fence.LEASE}
    home = _home(nodes=4, faults=[], **kinds)
    names = ["n1", "n2", "n3", "n4"]
    names.remove(home)
    far, near = [home, *names[:2]], names[2]
    cuts = [
        Fault(at=10, kind="cut", target=n, other=o, for_s=130) for n in far for o in ("d1", near)
    ]
    return _world(4, cuts, **kinds)


def nodes_join_behind_a_cut() -> World:
    """Two nodes are cut off together, and two others join, which are witnesses from then on."""
    request = Request(request_id=RequestId("r0"), fence=messages.Fence.LEASE)
    cuts = [Fault(at=10, kind="cut", target=n, other="d1", for_s=130) for n in ("n3", "n4")]
    return World(
        nodes=4,
        jobs=[(request, Behaviour(work_s=150.0))],
        faults=Faults(faults=tuple(cuts)),
        joins={"n1": 12.0, "n2": 12.0},
    )


def two_leaders_one_deposed() -> World:
    """The old leader is cut from the database and alone hears the job's node."""
    kinds = {"work_s": 150.0, "fence": messages.Fence.LEASE}
    home = _home(nodes=4, faults=[], leaders=2, **kinds)
    lone = [Fault(at=10, kind="cut", target="d1", other="database", for_s=130)]
    lone += [Fault(at=10, kind="cut", target=home, other="d2", for_s=130)]
    return _world(4, lone, leaders=2, **kinds)


def old_leader_goes_on_talking() -> World:
    """The old leader still wants what the new one has stopped and started on the other node."""
    faults = Faults(
        faults=(
            Fault(at=10, kind="cut", target="d1", other="database", for_s=140),
            Fault(at=50, kind="preempt", target="1"),
            Fault(at=49, kind="cut", target="n1", other="d1", for_s=6),
            Fault(at=49, kind="cut", target="n2", other="d1", for_s=6),
        )
    )
    request = Request(request_id=RequestId("r0"))

    def made(seed: int) -> World:
        jobs = [(request, Behaviour(work_s=80.0))]
        return World(seed=seed, nodes=2, leaders=2, jobs=jobs, faults=faults)

    def moves(seed: int) -> bool:
        ran = made(seed).run(60.0).executions
        return len(ran) > 1 and ran[0][0] != ran[1][0]

    return made(next(seed for seed in range(50) if moves(seed)))


def stuck_process() -> World:
    faults = [Fault(at=10, kind="preempt", target="1")]
    return _world(2, faults, work_s=40.0, on_term="ignore", stuck_s=90.0)


def killed_before_its_node_is_cut_off() -> World:
    """A process outlives SIGKILL, and then its node is silent until the lease has ended."""
    kinds = {"work_s": 40.0, "on_term": "ignore", "stuck_s": 200.0, "fence": messages.Fence.LEASE}
    faults = [
        Fault(at=10, kind="preempt", target="1"),
        Fault(at=16, kind="cut", target=_home(nodes=4, faults=[], **kinds), other="*", for_s=110),
    ]
    return _world(4, faults, **kinds)


def end_told_late() -> World:
    """The only node is cut off, wrongly given up after the job's end, and comes back."""
    faults = [
        Fault(at=10, kind="cut", target="n1", other="d1", for_s=70),
        Fault(at=50, kind="node down", target="n1"),
    ]
    return _world(1, faults, work_s=20.0)


def success_under_a_stop_request() -> World:
    faults = [Fault(at=15, kind="preempt", target="1")]
    return _world(1, faults, work_s=20.0, on_term="finish", grace_s=30.0)


def leaves_its_loop_and_exits_with_0() -> World:
    faults = [Fault(at=15, kind="preempt", target="1")]
    return _world(1, faults, work_s=20.0, on_term="agree", grace_s=30.0)


def launcher_exits_with_1_after_term() -> World:
    faults = [Fault(at=15, kind="preempt", target="1")]
    return _world(1, faults, work_s=20.0, on_term="wrapper", grace_s=30.0)


def fails_while_it_gives_way() -> World:
    """It fails of itself after the leader wants it to give way, and before its node hears that."""
    faults = (
        Fault(at=7.0, kind="cut one way", target="d1", other="n1", for_s=5.0),
        Fault(at=8.0, kind="preempt", target="1"),
    )
    request = Request(request_id=RequestId("r0"), retries=1)
    jobs = [(request, Behaviour(work_s=5.0, code=3, fails=1))]
    return World(nodes=1, jobs=jobs, faults=Faults(faults=faults))


def overtaken_syncs() -> World:
    """Half of the messages take seconds: what a sync does not mention may be newer than it."""
    request = Request(request_id=RequestId("r0"))
    faults = Faults(network=Network(slow=0.5, slow_s=4.0))
    return World(seed=5, nodes=2, jobs=[(request, Behaviour(work_s=40.0))], faults=faults)


def cancelled_while_its_keeper_hangs() -> World:
    faults = [
        Fault(at=10, kind="pause keeper", target="n1", for_s=10_000),
        Fault(at=12, kind="cancel", target="1"),
    ]
    return _world(1, faults, work_s=400.0)


LIMIT = 300.0
SITUATIONS = {
    made.__name__: made
    for made in (
        silent_node_under_hold,
        leader_without_its_witnesses,
        nodes_join_behind_a_cut,
        two_leaders_one_deposed,
        old_leader_goes_on_talking,
        stuck_process,
        killed_before_its_node_is_cut_off,
        end_told_late,
        success_under_a_stop_request,
        leaves_its_loop_and_exits_with_0,
        launcher_exits_with_1_after_term,
        overtaken_syncs,
        fails_while_it_gives_way,
        cancelled_while_its_keeper_hangs,
    )
}


def play(where: str, seed: int) -> World:
    """One schedule of a theme, or one situation, to its end."""
    if where not in SITUATIONS:
        return schedules.play(where, seed)
    world = SITUATIONS[where]().run_until_done(LIMIT)
    world.run(world.now + 30.0)
    world.checker.settled()
    return world


ALL = [
    Sabotage(
        "gave way and stays",
        "fails_while_it_gives_way",
        ("in place",),
        a_run_that_gave_way_is_repeated,
    ),
    Sabotage(
        "keeper hangs",
        "cancelled_while_its_keeper_hangs",
        ("liveness",),
        a_keeper_that_hangs_is_left_alone,
    ),
    Sabotage("unfenced is over", "unfenced", ("P2", "P4"), a_lost_keeper_is_always_the_end),
    Sabotage("endless retries", "again", ("in place",), every_failure_is_repeated),
    Sabotage("failed jobs come back", "again", ("P3",), failed_jobs_come_back_unasked),
    Sabotage("leader ignores the window", "lease", ("P2",), leader_ignores_the_window),
    Sabotage("no witness", "leader_without_its_witnesses", ("P2",), leader_asks_no_witness),
    Sabotage(
        "newest witnesses", "nodes_join_behind_a_cut", ("P2",), only_the_newest_witnesses_count
    ),
    Sabotage(
        "fence believed",
        "unfenced lease",
        ("P2", "P4"),
        every_node_is_believed_to_fence,
        first_seed=30,
    ),
    Sabotage(
        "switched off late",
        "switched off",
        ("P2", "P4"),
        a_late_answer_of_the_fencing_command_counts,
        first_seed=110,
    ),
    Sabotage("prolog not awaited", "hooks", ("hooks",), a_run_does_not_wait_for_its_prolog),
    Sabotage("epilog skipped", "hooks", ("hooks",), a_killed_keeper_skips_the_epilog),
    Sabotage("node extends alone", "lease", ("P2",), node_extends_without_witnesses),
    Sabotage("fence is ignored", "lease", ("P2",), fence_is_ignored),
    Sabotage(
        "lost leader renews", "two_leaders_one_deposed", ("P2",), lost_leader_goes_on_renewing
    ),
    Sabotage("gang released early", "gangs", ("gangs",), gang_is_released_early),
    Sabotage("keeper does not wait", "gangs", ("gangs",), one_node_does_not_wait_for_the_others),
    Sabotage("answer before commit", "one-node", ("P1",), client_is_answered_before_commit),
    Sabotage("ack before commit", "one-node", ("P3",), end_is_acknowledged_before_commit),
    Sabotage(
        "database forgets the epoch",
        "two-leaders",
        ("job", "run", "P"),
        database_forgets_the_epoch,
        first_seed=37,
    ),
    Sabotage("absence believed", "overtaken_syncs", ("liveness",), absence_is_believed_at_once),
    Sabotage("unknown runs killed", "restore", ("P5",), unknown_runs_are_killed),
    Sabotage("silence ends held runs", "silent_node_under_hold", ("P2",), silence_ends_held_runs),
    Sabotage("losing the leader stops jobs", "one-node", ("P5",), losing_the_leader_stops_jobs),
    Sabotage(
        "empty disk believed",
        "lost records",
        ("P2", "P4", "P3"),
        an_agent_believes_its_empty_disk,
    ),
    Sabotage(
        "lost records believed",
        "lost records",
        ("P3", "liveness"),
        an_agent_without_records_is_believed,
        first_seed=90,
    ),
    Sabotage("no veto", "one-node", ("P4",), agent_has_no_veto),
    Sabotage("suspension not awaited", "giving way", ("P4",), suspensions_are_not_waited_for),
    Sabotage("lent and going on", "giving way", ("P4",), a_run_goes_on_while_its_gpus_are_lent),
    Sabotage("full GPU shared", "sharing", ("P4",), a_full_gpu_takes_more),
    Sabotage("shared unasked", "sharing", ("P4",), a_job_without_a_share_shares),
    Sabotage("stuck forgotten", "stuck_process", ("P2",), stuck_processes_are_forgotten),
    Sabotage(
        "stuck without its keeper",
        "paused keepers",
        ("P2", "P4"),
        a_dead_keeper_s_stuck_process_is_forgotten,
    ),
    Sabotage(
        "killed and fenced",
        "killed_before_its_node_is_cut_off",
        ("P2",),
        a_lease_fences_what_does_not_obey,
    ),
    Sabotage("late ends dropped", "end_told_late", ("P3",), late_ends_are_dropped),
    Sabotage(
        "stop overrides success", "success_under_a_stop_request", ("P3",), stop_overrides_success
    ),
    Sabotage(
        "0 is success always", "leaves_its_loop_and_exits_with_0", ("P3",), exit_0_is_success_always
    ),
    Sabotage(
        "stopped job fails",
        "launcher_exits_with_1_after_term",
        ("P5",),
        exit_code_of_a_stopped_job_counts,
    ),
]
