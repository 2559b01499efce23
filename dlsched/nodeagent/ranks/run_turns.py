"""The turns of one run on GPUs that it shares: its ranks ask, the agent answers.

All ranks of the run have a turn together, one step each; it is over when all of them have ended
their step, or when one that has had its step wants the next. While the agent is away the runs on
the same GPUs take turns by a lock of the file system, all in one lane, which is never too little
memory for jobs that fit at all. A run on several nodes, and one that has its GPUs alone, takes no
turns: its ranks go on at once.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
from typing import TYPE_CHECKING

from dlsched.job import messages as words
from dlsched.system import clock

if TYPE_CHECKING:
    from dlsched.nodeagent.ranks.job_socket import Peer
    from dlsched.nodeagent.ranks.keeper_interface import KeeperInterface

AWAY_S = 5.0  # that an agent may be away before its runs take turns without it
AGAIN_S = 0.02  # between two tries to get the lock
PATIENCE_S = 60.0  # for the lock: the run that holds it hangs, and must not hold up the others


class RunTurns:
    """The ranks of one run on this node, and their turn."""

    def __init__(self, keeper: KeeperInterface) -> None:
        """No rank takes turns yet."""
        self._keeper = keeper
        desired = keeper.spec.desired
        self._takes_turns = bool(desired.gpu_share) and len(desired.layout) <= 1
        self._gpus = max(1, len(desired.gpus))
        first = min(desired.gpus, default="").replace("/", "_")  # those that share have the same
        self._path = os.path.join(keeper.spec.run_dir, f"turns-{first}.lock")
        self._waiting: dict[Peer, words.StepBegin] = {}
        self._inside: set[Peer] = set()
        self._done: set[Peer] = set()  # had their step in the present turn
        self._held: dict[Peer, int] = {}  # bytes, by rank that takes turns
        self._ephemeral = -1  # bytes, the most of any rank so far; -1: no step has ended
        self._most = 0  # bytes, in the present turn
        self._has_turn = False
        self._turn = words.Turn()
        self._asked = False
        self._away_since: float | None = None
        self._try_at: float | None = None
        self._lock: int | None = None
        self._is_frozen = False

    # -- ranks ---------------------------------------------------------------------------------

    def from_job(self, peer: Peer, message: words.FromJob) -> None:
        """Take a message of a rank."""
        if peer.is_foreign:
            return
        if isinstance(message, words.StepBegin):
            if not self._takes_turns:
                peer.send_message(words.Turn())
                return
            self._waiting[peer] = message
            self._held[peer] = max(0, message.held_bytes)
            self._go_on()
        elif isinstance(message, words.StepEnd) and peer in self._inside:
            self._inside.discard(peer)
            self._done.add(peer)
            held = self._held[peer] = max(0, message.held_bytes)
            self._most = max(self._most, message.most_bytes)
            self._ephemeral = max(self._ephemeral, message.most_bytes - held, 0)
            self._go_on()

    def closed(self, peer: Peer) -> None:
        """A rank has closed its connection: its step is over."""
        if self._held.pop(peer, None) is None:
            return
        self._waiting.pop(peer, None)
        self._inside.discard(peer)
        self._done.discard(peer)
        if self._held:
            self._go_on()
            return
        self._has_turn = self._asked = False
        self._unlock()
        self._tell(gone=True)

    def _go_on(self) -> None:
        """Let ranks begin that may, end the turn when it is over, and ask for the next."""
        if self._has_turn:
            for peer in [peer for peer in self._waiting if peer not in self._done]:
                self._inside.add(peer)
                del self._waiting[peer]
                peer.send_message(self._turn)
            if not self._inside and (self._waiting or self._done >= self._held.keys()):
                self._end_turn()
        if self._waiting and not self._has_turn:
            self._ask()

    def _end_turn(self) -> None:
        self._has_turn = False
        self._done.clear()
        self._unlock()
        self._tell(ended=True, held=self._memory(max(self._held.values())), most=self._peak())
        self._most = 0

    def _memory(self, of_rank: int) -> int:
        """The bytes on each GPU, where each rank has so many."""
        return of_rank * -(-len(self._held) // self._gpus)

    def _peak(self) -> int:
        return self._memory(max(self._most, *self._held.values()))

    # -- the agent -----------------------------------------------------------------------------

    def _ask(self) -> None:
        if self._asked or self._is_frozen:
            return
        left = [each.left_s for each in self._waiting.values() if each.left_s is not None]
        held = self._memory(max(self._held.values()))
        stops = self._keeper.state.stop is not None
        self._asked = self._tell(
            wants=True, held=held, left_s=max(left, default=None), urgent=stops
        )
        if not self._asked:
            self._without_agent(clock.boottime())

    def _tell(self, **values: object) -> bool:
        known = {name: value for name, value in values.items() if value is not None}
        return self._keeper.send_to_agent({"turn": known})

    def from_agent(self, message: dict[str, object]) -> None:
        """Take the agent's answer."""
        given = message.get("turn")
        if isinstance(given, dict) and self._asked:
            self._asked = False
            memory = given.get("memory")
            limit = memory if isinstance(memory, int) else None
            self._begin(words.Turn(memory_bytes=limit, shared=bool(given.get("shared"))))

    def _begin(self, turn: words.Turn) -> None:
        self._has_turn, self._turn = True, turn
        self._away_since = self._try_at = None
        if self._waiting:
            self._go_on()
        else:  # the ranks that wanted it are gone
            self._end_turn() if self._held else self._tell(gone=True)

    def new_agent(self) -> None:
        """Tell an agent that has just connected what it must know before it gives turns."""
        self._away_since = self._try_at = None
        if self._held:
            self._tell(
                resumes=True,
                runs=self._has_turn,
                held=self._memory(max(self._held.values())),
                ephemeral=self._memory(self._ephemeral) if self._ephemeral >= 0 else None,
            )
            self._asked = False
            self._go_on()

    def agent_gone(self) -> None:
        """The agent is away: what it was asked for it may have forgotten."""
        self._asked = False
        if self._waiting and not self._has_turn:
            self._without_agent(clock.boottime())

    def must_stop(self) -> None:
        """The run is asked to stop, for which it may need one more step."""
        if self._asked:
            self._tell(urgent=True)

    def frozen(self) -> None:
        """The run stands still; others go on meanwhile."""
        self._is_frozen = True
        if self._held:
            self._asked = False
            self._tell(frozen=True)

    def thawed(self) -> None:
        """The run goes on."""
        self._is_frozen = False
        if self._held:
            self._go_on()

    # -- without an agent ----------------------------------------------------------------------

    @property
    def deadline(self) -> float | None:
        """When `wake` has something to do, in seconds since the boot; None: not at all."""
        return self._try_at

    def wake(self, now: float) -> None:
        """Try to get a turn without the agent."""
        if self._try_at is not None and now >= self._try_at:
            self._without_agent(now)

    def _without_agent(self, now: float) -> None:
        """Wait for an agent for a while, then for the lock of the runs on these GPUs."""
        if self._away_since is None:
            self._away_since = now
        since = now - self._away_since
        if not self._waiting or self._has_turn or self._is_frozen:
            self._try_at = None
        elif since < AWAY_S:
            self._try_at = self._away_since + AWAY_S
        elif self._is_locked() or since > AWAY_S + PATIENCE_S:
            self._begin(words.Turn(shared=True))
        else:
            self._try_at = now + AGAIN_S

    def _is_locked(self) -> bool:
        """Whether this run has the lock now."""
        if self._lock is None:
            with contextlib.suppress(OSError):
                fd = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
                try:
                    fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
                except OSError:
                    os.close(fd)
                else:
                    self._lock = fd
        return self._lock is not None

    def _unlock(self) -> None:
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None
