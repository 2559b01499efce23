"""The agent: what it is told, what it knows, what it commands, and the step between."""

from __future__ import annotations

from dlsched.protocol.agent.commands import (
    AnswerWitness,
    Ask,
    Command,
    DropRecord,
    KillLeftovers,
    Note,
    Persist,
    SendSync,
    Spawn,
    Tell,
    WriteEnd,
    WriteLease,
)
from dlsched.protocol.agent.events import (
    EndWritten,
    Event,
    HealthChanged,
    KeeperGone,
    KeeperSpoke,
    LeftoversGone,
    Nudged,
    Persisted,
    ReplyArrived,
    Started,
    Tick,
    WitnessAnswered,
    WitnessAsked,
)
from dlsched.protocol.agent.one_step import step
from dlsched.protocol.agent.records import AgentRecord, RunRecord
from dlsched.protocol.agent.state import AgentState, Asking, Held

__all__ = [
    "AgentRecord",
    "AgentState",
    "AnswerWitness",
    "Ask",
    "Asking",
    "Command",
    "DropRecord",
    "EndWritten",
    "Event",
    "HealthChanged",
    "Held",
    "KeeperGone",
    "KeeperSpoke",
    "KillLeftovers",
    "LeftoversGone",
    "Note",
    "Nudged",
    "Persist",
    "Persisted",
    "ReplyArrived",
    "RunRecord",
    "SendSync",
    "Spawn",
    "Started",
    "Tell",
    "Tick",
    "WitnessAnswered",
    "WitnessAsked",
    "WriteEnd",
    "WriteLease",
    "step",
]
