"""Which agent speaks for a node, and what happens to runs when its records are lost."""

from __future__ import annotations

from dataclasses import replace

import pytest

from dlsched.protocol import agent, leader
from dlsched.protocol import messages as m
from dlsched.protocol.ledger import JobStatus, Request
from dlsched.protocol.timing import Timing
from tests.protocol.simulation import Behaviour, Fault, Faults, World

N1 = m.NodeName("n1")
GPU = m.GpuId("g0")
SILENT = Timing().witness_beats * Timing().beat_s + 1.0  # seconds without any sync


class Daemon:
    """A leader whose transactions are durable at once."""

    def __init__(self) -> None:
        self.now = 0.0
        self.state = leader.LeaderState(name="d1")
        self.alarms: list[str] = []
        self.take(leader.Tick(0.0))
        empty = self.state.committed
        self.take(leader.Elected(0.0, 0.0, replace(empty, epoch=m.Epoch(1))))
        self.take(leader.Confirmed(0.0, 0.0))

    def take(self, event: leader.Event) -> list[leader.Command]:
        """Step with an event; the commands, without those to the database."""
        found: list[leader.Command] = []
        self.state, commands = leader.step(self.state, event)
        for command in commands:
            if isinstance(command, leader.Persist):
                found += self.take(leader.Persisted(self.now, command.number))
            elif isinstance(command, leader.Alarm):
                self.alarms.append(command.text)
            else:
                found.append(command)
        return found

    def hear(self, sync: m.Sync) -> m.Reply | None:
        """The reply to a sync; None without one."""
        replies = [c for c in self.take(leader.SyncArrived(self.now, sync)) if isinstance(
            c, leader.SendReply
        )]  # fmt: skip
        return replies[0].reply if replies else None

    def start(self) -> m.RunKey:
        """Start a job on n1; the key of its run."""
        self.take(leader.SubmitAsked(self.now, 1, Request(request_id=m.RequestId("r"))))
        shares = (m.Share(node=N1, gpus=(GPU,)),)
        self.take(leader.PlaceAsked(self.now, m.JobId(1), m.RunId("r1"), shares))
        return self.state.committed.runs[m.RunId("r1")].key

    @property
    def job(self) -> JobStatus:
        """The status of the job."""
        return self.state.committed.jobs[m.JobId(1)].status


def sync(sequence: int, *starts: str, **changes: object) -> m.Sync:
    """A registration by the agent of these starts, with as many in its incarnation."""
    made = m.Sync(
        node=N1,
        boot_id=m.BootId("b1"),
        incarnation=m.Incarnation(len(starts)),
        sequence=sequence,
        last=m.Term(),
        applied=m.Term(),
        held_digest=m.Digest("none"),
        held=(),
        inventory=m.Inventory(gpus=(GPU,)),
        starts=starts,
    )
    return replace(made, **changes)  # type: ignore[arg-type]


def held(key: m.RunKey, phase: m.Phase = m.Phase.RUNNING) -> tuple[m.HeldRun, ...]:
    return (m.HeldRun(key=key, phase=phase, gpus=(GPU,), nodes=(N1,)),)


def begun() -> tuple[Daemon, m.RunKey]:
    """A daemon whose node n1 holds a run, in its agent's second start."""
    daemon = Daemon()
    daemon.hear(sync(1, "a", "b"))
    assert daemon.hear(sync(2, "a", "b")) is not None
    key = daemon.start()
    daemon.hear(sync(3, "a", "b", held=held(key)))
    return daemon, key


def test_an_agent_that_starts_again_is_taken_at_once() -> None:
    daemon, key = begun()
    daemon.hear(sync(1, "a", "b", "c", held=held(key)))
    reply = daemon.hear(sync(2, "a", "b", "c", held=held(key)))
    assert reply is not None
    assert not reply.register
    assert daemon.job is JobStatus.RUNNING
    assert daemon.hear(sync(9, "a", "b")) is None  # a message of the earlier process


def test_an_agent_with_other_records_waits_until_the_registered_one_is_silent() -> None:
    daemon, key = begun()
    daemon.now = 1.0
    reply = daemon.hear(sync(1, "z", held=held(key)))
    assert reply is not None
    assert "which may be alive" in reply.refused
    assert [daemon.state.refusals[N1].why] == [text.removeprefix("n1: ") for text in daemon.alarms]
    reply = daemon.hear(sync(4, "a", "b", held=held(key)))  # the registered one goes on
    assert reply is not None
    assert (reply.refused, reply.register) == ("", False)
    daemon.now += SILENT
    reply = daemon.hear(sync(2, "z", held=held(key)))
    assert reply is not None
    assert (reply.refused, reply.count_on_from) == ("", 2)
    counted = sync(3, "z", held=held(key), incarnation=m.Incarnation(3))
    daemon.hear(counted)
    reply = daemon.hear(replace(counted, sequence=4))
    assert reply is not None
    assert not reply.register
    assert daemon.job is JobStatus.RUNNING
    assert "lost its records: 1 run kept, 0 given up" in daemon.alarms[-1]
    assert not daemon.state.refusals
    late = daemon.hear(sync(5, "a", "b", held=held(key)))  # now that one has other records
    assert late is not None
    assert late.refused


def test_an_agent_that_names_no_start_of_its_own_is_not_that_of_a_known_node() -> None:
    daemon, key = begun()
    reply = daemon.hear(sync(4, incarnation=m.Incarnation(2), held=held(key)))
    assert reply is not None
    assert "which may be alive" in reply.refused


def test_a_new_leader_waits_as_long_before_it_takes_an_agent_with_other_records() -> None:
    daemon, key = begun()
    daemon.now = SILENT
    ledger = daemon.state.committed
    daemon.take(leader.Deposed(daemon.now))
    daemon.take(leader.Elected(daemon.now, daemon.now, ledger))
    reply = daemon.hear(sync(1, "z", held=held(key)))
    assert reply is not None
    assert reply.refused


def take_over(daemon: Daemon, **changes: object) -> m.Reply | None:
    """Register an agent with other records after a silence."""
    daemon.now += SILENT
    daemon.hear(sync(1, "z", incarnation=m.Incarnation(3), **changes))
    return daemon.hear(sync(2, "z", incarnation=m.Incarnation(3), **changes))


def test_a_run_without_a_record_is_given_up_and_never_started_again() -> None:
    daemon, key = begun()
    reply = take_over(daemon)
    assert reply is not None
    assert (reply.desired, daemon.job) == ((), JobStatus.PENDING)
    member = daemon.state.committed.runs[key.run_id].members[N1]
    assert member.presumed == "no record of it is left"


def test_a_run_whose_folder_alone_is_lost_is_given_up_too() -> None:
    daemon, _ = begun()
    daemon.hear(sync(1, "a", "b", "c"))
    assert daemon.job is JobStatus.PENDING


def test_a_run_that_was_only_being_started_is_started_after_all() -> None:
    daemon, key = begun()
    daemon.hear(sync(4, "a", "b", held=held(key, m.Phase.STARTING)))
    daemon.hear(sync(1, "a", "b", "c"))
    assert daemon.job is JobStatus.RUNNING


@pytest.mark.parametrize(
    ("inventory", "taken"),
    [
        (m.Inventory(gpus=(GPU,)), True),
        (m.Inventory(gpus=(), machine="hardware-1"), True),
        (m.Inventory(gpus=(m.GpuId("g9"),), machine="hardware-2"), False),
        (m.Inventory(gpus=()), False),
    ],
    ids=["same GPUs", "same machine", "another machine", "not known"],
)
def test_a_new_disk_is_taken_on_the_same_hardware_only(inventory: m.Inventory, taken: bool) -> None:
    daemon = Daemon()
    mine = m.Inventory(gpus=(GPU,), machine="hardware-1")
    daemon.hear(sync(1, "a", inventory=mine))
    daemon.hear(sync(2, "a", inventory=mine))
    key = daemon.start()
    daemon.hear(sync(3, "a", held=held(key), inventory=mine))
    other = {"boot_id": m.BootId("b2"), "inventory": inventory}
    reply = take_over(daemon, **other)
    assert reply is not None
    assert reply.register is not taken
    assert daemon.job is (JobStatus.PENDING if taken else JobStatus.RUNNING)
    if not taken:
        assert "dlsched admin node-down n1 --confirmed" in reply.refused
        daemon.take(leader.DownConfirmed(daemon.now, N1))
        assert daemon.job is JobStatus.PENDING
        assert take_over(daemon, **other) is not None
        assert not daemon.state.refusals


COPIES = [
    ("the same hardware", m.Inventory(gpus=(GPU,), machine="hardware-1"), True),
    ("hardware without a name", m.Inventory(gpus=()), True),
    ("another machine", m.Inventory(gpus=(m.GpuId("g9"),), machine="hardware-2"), False),
    ("another machine's GPUs", m.Inventory(gpus=(m.GpuId("g9"),)), False),
]


@pytest.mark.parametrize(
    ("inventory", "taken"), [c[1:] for c in COPIES], ids=[c[0] for c in COPIES]
)
def test_a_boot_with_copied_records_waits_while_the_registered_one_is_heard(
    inventory: m.Inventory, taken: bool
) -> None:
    daemon = Daemon()
    mine = m.Inventory(gpus=(GPU,), machine="hardware-1")
    daemon.hear(sync(1, "a", inventory=mine))
    daemon.hear(sync(2, "a", inventory=mine))
    key = daemon.start()
    daemon.hear(sync(3, "a", held=held(key), inventory=mine))
    copied = sync(1, "a", "b", boot_id=m.BootId("b2"), inventory=inventory)
    for number in range(4, 10):
        daemon.now += SILENT / 2
        reply = daemon.hear(replace(copied, sequence=number))
        assert reply is not None
        assert "of another boot than the registered agent" in reply.refused
        reply = daemon.hear(sync(number, "a", held=held(key), inventory=mine))
        assert reply is not None
        assert (reply.refused, reply.register, daemon.job) == ("", False, JobStatus.RUNNING)
    daemon.now += SILENT  # now the registered one has stopped
    daemon.hear(replace(copied, sequence=20))
    reply = daemon.hear(replace(copied, sequence=21))
    assert reply is not None
    assert reply.register is not taken
    assert daemon.job is (JobStatus.PENDING if taken else JobStatus.RUNNING)
    assert taken or "dlsched admin node-down n1 --confirmed" in reply.refused


def test_an_agent_counts_on_from_the_incarnation_that_the_daemon_knows() -> None:
    state = agent.AgentState(node=N1, inventory=m.Inventory(gpus=(GPU,)))
    state, [written] = agent.step(
        state,
        agent.Started(
            now=0.0,
            boot_id=m.BootId("b1"),
            start="z",
            record=agent.AgentRecord(),
            runs=(),
            keepers=(),
        ),
    )
    assert isinstance(written, agent.Persist)
    state, _ = agent.step(state, agent.Persisted(0.0, written.record))
    bare = m.Reply(
        node=N1,
        incarnation=m.Incarnation(1),
        sequence=1,
        term=m.Term(),
        desired_digest=m.Digest(""),
        desired=None,
        register=True,
    )
    state, said = agent.step(state, agent.ReplyArrived(1.0, replace(bare, refused="a clone")))
    assert said == [agent.LogLine("the daemon refuses this agent: a clone")]
    raised = replace(bare, count_on_from=m.Incarnation(7))
    state, commands = agent.step(state, agent.ReplyArrived(2.0, raised))
    record = replace(written.record, incarnation=m.Incarnation(8))
    assert commands[1:] == [agent.Persist(record)]
    _, [sent] = agent.step(state, agent.Persisted(3.0, record))
    assert isinstance(sent, agent.SendSync)
    assert (sent.sync.incarnation, sent.sync.starts) == (8, ("z",))
    assert sent.sync.inventory is not None


@pytest.mark.parametrize("kind", ["lose records", "old records"])
def test_a_job_runs_on_alone_when_its_node_loses_its_records(kind: str) -> None:
    jobs = [(Request(request_id=m.RequestId("one")), Behaviour(work_s=60.0, code=7))]
    faults = (
        Fault(at=2.0, kind="copy records", target="n1"),
        Fault(at=10.0, kind=kind, target="n1", for_s=1.0),
    )
    world = World(nodes=1, jobs=jobs, faults=Faults(faults=faults)).run(120.0)
    job = next(iter(world.database.ledger.jobs.values()))
    assert (job.status, job.runs, len(world.executions)) == (JobStatus.FAILED, 1, 1)
    assert job.exit is not None
    assert job.exit.code == 7
