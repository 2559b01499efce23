"""The policy that decides the rounds of this term, and what its last decision left behind."""

from __future__ import annotations

from collections.abc import Container

import numpy as np

from dlsched.daemon.live.live_state import LiveState
from dlsched.daemon.round.codec import encode
from dlsched.daemon.round.decided import Decided
from dlsched.daemon.round.parts import PreemptMode, RoundSettings
from dlsched.daemon.round.policy_state import claims_of
from dlsched.db.reading.loading import Loaded
from dlsched.nodes.fields import ROWS
from dlsched.protocol.messages import JobId


class RoundState:
    """What rounds are decided on, beside their settings.

    Attributes:
        live: the jobs, nodes and GPUs.
        settings: how rounds are decided.
        policy_state: the bytes that the last accepted decision left for the next.
        number: of the last accepted decision.
        as_stored: the settings are as the database has them; whether the parts still take all
            options is not known yet.
        left_out: stored options that they no longer take.
    """

    def __init__(self, live: LiveState, settings: RoundSettings | None = None) -> None:
        self.live = live
        self.settings = settings or RoundSettings()
        self.policy_state = b""
        self.number = 0
        self.as_stored = False
        self.left_out: tuple[str, ...] = ()
        self._cluster: tuple[int, bytes] | None = None

    @classmethod
    def of_loaded(cls, live: LiveState, settings: RoundSettings, loaded: Loaded) -> RoundState:
        """The state at the start of a term; claims of the last decision hold on."""
        state = cls(live, settings)
        state.number = loaded.round_number
        state.policy_state = loaded.policy_state or b""
        if loaded.policy is not None:
            state.settings = settings.with_policy(loaded.policy.parts, loaded.policy.options)
            state.as_stored = True
        live.claims.restore(claims_of(state.policy_state, live.nodes))
        return state

    def accept(self, decided: Decided, stale: Container[int] = ()) -> None:
        """Follow a verified decision; `stale` jobs cannot have their GPUs any more."""
        self.policy_state = decided.state
        self.number = decided.number
        self.live.settle()
        self.note_order(decided, stale)

    def note_order(self, decided: Decided, stale: Container[int] = ()) -> None:
        """Follow a decision, but keep the policy's state of before it; arguments as `accept`."""
        self.live.take_decision(
            launched={j: where for j, where in decided.launched.items() if j not in stale},
            suspended=decided.suspended,
            reasons=decided.reason_texts(),
            positions=decided.positions(),
            terms=decided.terms,
        )

    def switch(self, settings: RoundSettings) -> None:
        """Have another policy decide, which begins without any state; running jobs run on."""
        self.settings = settings
        self.policy_state = b""
        self.as_stored, self.left_out = False, ()
        self.live.request_round()

    def leave_out(self, options: tuple[str, ...]) -> None:
        """Go on without some of the stored options; without any, all stay as they are."""
        if options:
            kept = tuple(each for each in self.settings.options if each not in options)
            self.switch(self.settings.with_policy(self.settings.parts, kept))
        self.as_stored, self.left_out = False, options

    def configure(self, settings: RoundSettings) -> None:
        """Take over other settings; a policy with other parts or options begins anew."""
        before = self.settings
        if (settings.parts, settings.options) != (before.parts, before.options):
            self.policy_state = b""
            self.as_stored, self.left_out = False, ()
        self.settings = settings
        self.live.request_round()

    def preempt_mode(self, job: JobId) -> PreemptMode:
        """How a job gives way.

        Ranks on several nodes wait for each other with a timeout that goes on while they are
        suspended. So such a job is stopped and queued again, unless it must not be.
        """
        where, requests = self.live.where(job), self.live.requests
        if self.settings.preempt_mode == "requeue" or job in requests.cooperative or where is None:
            return "requeue"
        spans = len(where.nodes) > 1 and requests.specs[job].body.requeue
        return "requeue" if spans else "suspend"

    def encoded_cluster(self) -> bytes:
        """The nodes, their GPUs and facts, as the bytes of a snapshot; encoded once a version."""
        nodes = self.live.nodes
        if self._cluster is None or self._cluster[0] != nodes.version:
            every = nodes.all()
            facts = [node.facts for node in every]
            texts = [key for key, row in ROWS.items() if row.form == "text"]
            numbers = [key for key, row in ROWS.items() if row.form == "number"]
            value = {
                "names": nodes.names,
                "gpus": np.array([len(node.gpus) for node in every], np.int64),
                "types": [node.gpu_type for node in every],
                **{k: np.array([getattr(f, k) for f in facts], np.float64) for k in numbers},
                **{key: [getattr(each, key) for each in facts] for key in texts},
                "nvlink": [list(node.nvlink) for node in every],
            }
            if any(node.gpu_types for node in every):
                value["gpu_types"] = [list(node.gpu_types) for node in every]
            for key, held in (("cpus", "host_cpus"), ("memory_gb", "host_memory_gb")):
                value[key] -= np.array([getattr(node, held) for node in every])
            self._cluster = (nodes.version, encode(value))
        return self._cluster[1]
