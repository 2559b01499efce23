"""The state of a training on its way from running ranks to those that go on in their place.

Each new rank listens, and gets the states that all ranks have in common either from rank 0 of the
running ranks or, where that is nearer, from another new rank that has them already; the daemon's
plan says from which. A state of one rank alone comes from the running rank of the same number.
Nothing is written to a file. A new rank uses what it has only when its keeper says so. Before a
connection has proved that it knows the plan's word, nothing that it sends is decoded.
"""

from __future__ import annotations

import contextlib
import hashlib
import hmac
import json
import socket
import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from dlsched.job.errors import JobError
from dlsched.job.gang.greetings import Greetings

PROOF = hashlib.sha256
LENGTH = struct.Struct("!Q")
LONGEST_HEADER = 1 << 20  # bytes
CHUNK = 1 << 20
ACCEPTED = b"\x01"
PATIENCE_S = 60.0  # without any byte
FROM_BEFORE = -1  # in place of a new rank's number: rank 0 of the running ranks


class NotHandedOver(Exception):
    """The state did not arrive; the text says why."""


@dataclass(frozen=True, slots=True)
class Place:
    """Where a new rank waits, and which rank brings it the states of all: or `FROM_BEFORE`."""

    host: str
    port: int
    source: int


@dataclass(frozen=True, slots=True)
class Plan:
    """Where all new ranks wait, in order of rank, and the word that they expect."""

    word: str
    places: tuple[Place, ...]

    def to_text(self) -> str:
        """The plan as text."""
        return json.dumps([self.word, [[p.host, p.port, p.source] for p in self.places]])

    @classmethod
    def of(cls, text: str) -> Plan:
        """The plan of `to_text`.

        Raises:
            JobError: the text is none.
        """
        try:
            word, places = json.loads(text)
            return cls(str(word), tuple(Place(str(h), int(p), int(s)) for h, p, s in places))
        except (ValueError, TypeError) as error:
            raise JobError(f"not a plan of a hand-over: {error}") from None

    def served_by(self, source: int) -> list[int]:
        """The ranks that get the common states from a source, in order."""
        return [rank for rank, place in enumerate(self.places) if place.source == source]


@dataclass(frozen=True, slots=True)
class Parcel:
    """Some states after a step.

    Attributes:
        step: how many steps are done.
        own: whether they are those of one rank alone; else of all ranks.
        own_ranks: how many of the new ranks get states of their own beside these.
        states: by name.
    """

    step: int
    own: bool
    own_ranks: int
    states: Mapping[str, bytes]

    @property
    def bytes(self) -> int:
        """Of all states."""
        return sum(map(len, self.states.values()))


def bring(plan: Plan, parcel: Parcel, ranks: Sequence[int]) -> None:
    """Send a parcel to new ranks, one after the other; return when all have it.

    Raises:
        NotHandedOver: one of them does not.
    """
    waiting: list[tuple[int, socket.socket]] = []
    try:
        for rank in ranks:
            place = plan.places[rank]
            link = socket.create_connection((place.host, place.port), PATIENCE_S)
            waiting.append((rank, link))
            _send(link, plan, parcel)
        for rank, link in waiting:
            if _exactly(link, len(ACCEPTED)) != ACCEPTED:
                raise NotHandedOver(f"rank {rank} has not taken the state")
    except OSError as error:
        raise NotHandedOver(str(error)) from None
    finally:
        for _, link in waiting:
            link.close()


class Receiver:
    """The end of one new rank.

    Attributes:
        port: at which it waits.
        copied: bytes that it has received.
    """

    def __init__(self, rank: int) -> None:
        """Listen on a free port."""
        self._rank = rank
        self._word = ""
        listener = socket.create_server(("", 0))
        self.port: int = listener.getsockname()[1]
        self._greetings = Greetings(listener, PROOF().digest_size)
        self.copied = 0
        self._common: Parcel | None = None
        self._own: Parcel | None = None

    def expect(self, word: str) -> None:
        """Take states from now on, from those that know a word."""
        self._word = word

    def fileno(self) -> int:
        """The descriptor that is readable when `take` has something to do."""
        return self._greetings.fileno()

    def take(self) -> None:
        """Take what ranks bring, and pass it on; whatever is wrong with it is dropped."""
        for proof, link in self._greetings.take():
            with link, contextlib.suppress(OSError, NotHandedOver):
                if self._word and hmac.compare_digest(proof, _proof(self._word)):
                    link.settimeout(PATIENCE_S)
                    self._receive(link)

    def _receive(self, link: socket.socket) -> None:
        header, payload = _received(link)
        names: list[tuple[str, int]] = header["states"]
        states, at = {}, 0
        for name, size in names:
            states[name] = bytes(payload[at : at + size])
            at += size
        parcel = Parcel(header["step"], header["own"], header["own_ranks"], states)
        self.copied += parcel.bytes
        if parcel.own:
            self._own = parcel
        else:
            plan = Plan.of(header["plan"])
            bring(plan, parcel, plan.served_by(self._rank))
            self._common = parcel
        link.sendall(ACCEPTED)

    @property
    def step(self) -> int | None:
        """How many steps are done, once all states are here."""
        common = self._common
        if common is None:
            return None
        has_own = self._own is not None and self._own.step == common.step
        return common.step if has_own or self._rank >= common.own_ranks else None

    def states(self) -> dict[str, bytes]:
        """All states that have arrived, by name."""
        parcels = (self._common, self._own)
        return {name: data for each in parcels if each for name, data in each.states.items()}

    def close(self) -> None:
        """Listen no more."""
        self._greetings.close()


def _proof(word: str) -> bytes:
    """What a rank that knows the word sends first."""
    return PROOF(word.encode()).digest()


def _send(link: socket.socket, plan: Plan, parcel: Parcel) -> None:
    header = {
        "plan": plan.to_text(),
        "step": parcel.step,
        "own": parcel.own,
        "own_ranks": parcel.own_ranks,
        "states": [[name, len(data)] for name, data in parcel.states.items()],
    }
    packed = json.dumps(header).encode()
    link.sendall(_proof(plan.word) + LENGTH.pack(len(packed)) + packed)
    for data in parcel.states.values():
        link.sendall(data)


def _received(link: socket.socket) -> tuple[dict[str, Any], bytearray]:
    (length,) = LENGTH.unpack(_exactly(link, LENGTH.size))
    if length > LONGEST_HEADER:
        raise NotHandedOver("not a header")
    try:
        header = json.loads(_exactly(link, length))
        size = sum(int(each) for _, each in header["states"])
    except (ValueError, TypeError, KeyError) as error:
        raise NotHandedOver(f"not a header: {error}") from None
    return header, _exactly(link, size)


def _exactly(link: socket.socket, count: int) -> bytearray:
    found = bytearray(count)
    view, at = memoryview(found), 0
    while at < count:
        got = link.recv_into(view[at : at + CHUNK])
        if not got:
            raise NotHandedOver("the connection has ended")
        at += got
    return found
