"""What a job's processes and their keeper say to each other; both sides import this module.

The socket is `DLSCHED_CTL_SOCK`, AF_UNIX and SOCK_SEQPACKET: one JSON object a message, named by
its `type`. Words that a receiver does not know are skipped, fields it does not know are dropped,
so that either side may be the newer one. Standard library only.

What the library (a *rank*: a process that said `hello`) expects of the keeper:

- Who connects is what SO_PEERCRED proves; nothing here is a secret.
- To stop a rank that said `hello` with the capability `stop`, send it `stop`. A SIGTERM to the
  process that the keeper started is welcome beside it; one to its data-loading workers is not.
  The ranks agree among themselves on the step after which all leave, save, and exit with 143.
  One `stop` to any rank is enough; to all is better. `deadline_s` counts from the sending.
- `stop_at` names the step instead: every rank leaves after it, or soon when it is past.
- `checkpoint` is said by one rank, when the folder `path` is complete and durable. The keeper asks
  the daemon to commit it and answers `checkpoint` with `accepted`, `why` and the same `path`;
  while the daemon is away it keeps the newest one, asks again later, and answers then. Training
  does not wait, but a rank that stops does, within its deadline.
- `DLSCHED_CKPT_DIR` is the job's folder, one for all its runs; `DLSCHED_RESUME_FROM` the `path`
  that was committed last, or empty.
- `step` comes at most once a second and rank; `restored` once, at the first step after the start.
- `trained` is said by rank 0 of an elastic training, about every 30 s and when it leaves: measured
  times, gradient noise, batch limits. The daemon fits a model to it, and `use_batch` comes back
  when another batch size would do better; the ranks take it up when they next can.
- A rank that says the `run_id` of another run is not heard.
- Numbers that cannot be (not finite, of another type) make a message count as nonsense; it is
  skipped, the rank is heard again with its next one. What is no message at all ends the connection.

What `dlsched run` (a *caller*: a process that says `run` instead of `hello`) expects:

- `run` starts `ntasks` ranks over the nodes of the allocation, block by block: `per_node` on each
  (0: one a GPU, on nodes in order), with `gpus_per_task` GPUs each (0: the node's, shared out).
  The environment is the caller's own with what the runtime sets for each rank laid over it. The
  message carries the caller's stdout and stderr as SCM_RIGHTS, in this order: ranks of the same
  node may write there themselves. What other ranks write comes as `output`; with `label`, all.
- Answers: `refused` and nothing more, or `started`, then `exited` once a rank, then `done`.
- `signal` passes a signal on to all ranks. A caller that hangs up ends them: TERM, then KILL.
- With `kill_on_bad_exit` the first rank that fails ends the others the same way.
"""

from __future__ import annotations

import base64
import binascii
import json
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from typing import Any, ClassVar

__all__ = [
    "MAX_MESSAGE",
    "OUTPUT_CHUNK",
    "VERSION",
    "BadMessage",
    "CheckpointAnswer",
    "CheckpointMade",
    "Done",
    "Exited",
    "FromJob",
    "FromKeeper",
    "Hello",
    "Limit",
    "Nonsense",
    "Output",
    "Refused",
    "Restored",
    "RunRanks",
    "SignalRanks",
    "Started",
    "StepDone",
    "Stop",
    "StopAt",
    "Trained",
    "UseBatch",
    "decode_from_job",
    "decode_from_keeper",
    "encode",
]

VERSION = 1
MAX_MESSAGE = 192 * 1024  # bytes; fits the usual socket buffer of 208 KiB
OUTPUT_CHUNK = 32 * 1024  # bytes of output in one message, before base64


class BadMessage(ValueError):
    """A message that cannot be read; the text says why, in one line."""


class Nonsense(BadMessage):
    """A word about the training with values that cannot be: to be counted and skipped."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Message:
    """Any message; `type` is its name on the socket."""

    type: ClassVar[str] = ""


# -- a rank to the keeper --------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Hello(Message):
    """First of a rank: from now on it acts on `stop`."""

    type: ClassVar[str] = "hello"
    rank: int
    version: int = VERSION
    capabilities: tuple[str, ...] = ()
    pid: int = 0
    run_id: str = ""  # of its run, as its environment says


@dataclass(frozen=True, slots=True, kw_only=True)
class StepDone(Message):
    """How training goes; batch seconds are the mean since the last such message."""

    type: ClassVar[str] = "step"
    step: int
    batch_s: float | None = None
    loss: float | None = None
    gpu_memory: int | None = None  # bytes, the most at once
    metrics: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckpointMade(Message):
    """A checkpoint is complete and durable in the folder `path`; to be committed."""

    type: ClassVar[str] = "checkpoint"
    path: str
    step: int
    bytes: int
    sha256: str  # of its manifest, which has those of the files
    save_s: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Restored(Message):
    """The first step after the start is done; seconds from the start of the process to there."""

    type: ClassVar[str] = "restored"
    step: int  # that the run began from
    restart_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Trained(Message):
    """How fast and how well an elastic training learns; columns have an entry a batch size.

    Times are means over all that this run has measured, in seconds: of a pass forward and backward
    without synchronising, and of the pass that ends with the optimiser's step.
    """

    type: ClassVar[str] = "trained"
    nodes: int
    replicas: int
    local: tuple[int, ...] = ()  # samples a replica and pass
    steps: tuple[int, ...] = ()  # that were measured
    accumulation_s: tuple[float, ...] = ()
    optimiser_s: tuple[float, ...] = ()
    gradient_sqr: float | None = None  # at the initial batch size
    gradient_var: float | None = None
    initial: int = 1  # samples a step, all replicas together
    maximum: int = 1
    local_min: int = 1
    local_max: int = 1
    may_accumulate: bool = False
    fixed: bool = False  # the batch size is not to change
    local_now: int = 1
    accumulation_now: int = 0  # passes before the one that synchronises
    progress: float = 0.0  # in steps at the initial batch size


# -- a caller of `dlsched run` to the keeper -------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class RunRanks(Message):
    """Start ranks inside the allocation."""

    type: ClassVar[str] = "run"
    argv: tuple[str, ...]
    ntasks: int = 0  # 0: one a GPU
    per_node: int = 0
    gpus_per_task: int = 0
    environment: Mapping[str, str] = field(default_factory=dict)
    working_directory: str = ""
    label: bool = False
    kill_on_bad_exit: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class SignalRanks(Message):
    """Pass a signal on to all ranks that the caller started."""

    type: ClassVar[str] = "signal"
    number: int


# -- the keeper to a rank --------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Stop(Message):
    """Leave at a step boundary, with a checkpoint, within so many seconds."""

    type: ClassVar[str] = "stop"
    reason: str = "preempt"
    deadline_s: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class StopAt(Message):
    """Leave after this step."""

    type: ClassVar[str] = "stop_at"
    step: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Limit(Message):
    """How much of its GPUs the job may use from now on."""

    type: ClassVar[str] = "limit"
    share: float | None = None  # 0..1 of the compute
    memory_bytes: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckpointAnswer(Message):
    """Whether the daemon has committed a checkpoint."""

    type: ClassVar[str] = "checkpoint"
    accepted: bool
    why: str = ""
    path: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class UseBatch(Message):
    """A batch size that is thought to train faster on the GPUs of this run."""

    type: ClassVar[str] = "use_batch"
    local: int
    accumulation: int = 0


# -- the keeper to a caller of `dlsched run` -------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Started(Message):
    """The ranks have been started."""

    type: ClassVar[str] = "started"
    ranks: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Output(Message):
    """What a rank has written; stream 1 or 2."""

    type: ClassVar[str] = "output"
    rank: int
    data: bytes
    stream: int = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Exited(Message):
    """A rank has ended."""

    type: ClassVar[str] = "exited"
    rank: int
    code: int = 0
    signal: int = 0
    node: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Done(Message):
    """All ranks have ended and all their output has been sent."""

    type: ClassVar[str] = "done"


@dataclass(frozen=True, slots=True, kw_only=True)
class Refused(Message):
    """The ranks cannot be started."""

    type: ClassVar[str] = "refused"
    why: str


FromJob = Hello | StepDone | CheckpointMade | Restored | Trained | RunRanks | SignalRanks
FromKeeper = (
    Stop | StopAt | Limit | CheckpointAnswer | UseBatch | Started | Output | Exited | Done | Refused
)


# -- to bytes and back -----------------------------------------------------------------------------


def encode(message: Message) -> bytes:
    """A message as its packet; what is absent, and numbers that are not finite, are left out."""
    packet: dict[str, Any] = {"type": message.type}
    for each in fields(message):
        value = _plain(getattr(message, each.name))
        if value is not None:
            packet[each.name] = value
    return json.dumps(packet, separators=(",", ":"), allow_nan=False).encode()


def decode_from_job(packet: bytes) -> FromJob | None:
    """What a rank or a caller says; None for a word of a newer one."""
    found: FromJob | None = _decode(packet, _FROM_JOB)
    return found


def decode_from_keeper(packet: bytes) -> FromKeeper | None:
    """What a keeper says; None for a word of a newer one."""
    found: FromKeeper | None = _decode(packet, _FROM_KEEPER)
    return found


def _plain(value: Any) -> Any:
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    if isinstance(value, tuple):
        return list(value)
    if isinstance(value, Mapping):
        return {str(key): kept for key, item in value.items() if (kept := _plain(item)) is not None}
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value


def _decode(packet: bytes, known: Mapping[str, Any]) -> Any:
    try:
        given = json.loads(packet)
    except (ValueError, RecursionError) as error:
        raise BadMessage(f"not JSON: {error}") from None
    if not isinstance(given, dict) or not isinstance(given.get("type"), str):
        raise BadMessage("a message is an object with a `type`")
    kind = known.get(given["type"])
    if kind is None:
        return None
    try:
        return _made(kind, given)
    except BadMessage as error:
        raise (Nonsense if kind in _OF_TRAININGS else BadMessage)(str(error)) from None


def _made(kind: Any, given: Mapping[str, Any]) -> Any:
    values = {}
    for each in fields(kind):
        if given.get(each.name) is not None:
            values[each.name] = _READERS[str(each.type)](
                f"{kind.type}.{each.name}", given[each.name]
            )
    try:
        return kind(**values)
    except TypeError as error:
        missing = str(error).rpartition(": ")[2]
        raise BadMessage(f"{kind.type}: missing {missing}") from None


def _reader(kinds: type | tuple[type, ...], said: str) -> Callable[[str, Any], Any]:
    def read(name: str, value: Any) -> Any:
        wanted = isinstance(value, kinds) and (kinds is bool or not isinstance(value, bool))
        if not wanted:
            raise BadMessage(f"{name}: {said} expected, found {type(value).__name__}")
        return value

    return read


_characters = _reader(str, "text")
_number = _reader((int, float), "a number")


def _text(name: str, value: Any) -> str:
    found: str = _characters(name, value)
    try:
        found.encode("utf-8", "surrogateescape")  # as file names may be
    except UnicodeEncodeError:
        raise BadMessage(f"{name}: text that no file name could be") from None
    if "\0" in found:
        raise BadMessage(f"{name}: text without zero bytes expected")
    return found


def _real(name: str, value: Any) -> float:
    try:
        found = float(_number(name, value))
    except OverflowError:  # a whole number of hundreds of digits
        found = math.inf
    if not math.isfinite(found):
        raise BadMessage(f"{name}: a finite number expected")
    return found


def _several(of: Callable[[str, Any], Any]) -> Callable[[str, Any], Any]:
    def read(name: str, value: Any) -> Any:
        return tuple(of(name, item) for item in _reader(list, "a list")(name, value))

    return read


def _mapping(of: Callable[[str, Any], Any]) -> Callable[[str, Any], Any]:
    def read(name: str, value: Any) -> Any:
        entries = _reader(dict, "an object")(name, value)
        return {_text(name, key): of(f"{name}.{key}", item) for key, item in entries.items()}

    return read


def _bytes(name: str, value: Any) -> bytes:
    try:
        return base64.b64decode(_text(name, value), validate=True)
    except binascii.Error:
        raise BadMessage(f"{name}: base64 expected") from None


_READERS: dict[str, Callable[[str, Any], Any]] = {  # by the annotation of a field
    "int": _reader(int, "a whole number"),
    "int | None": _reader(int, "a whole number"),
    "float": _real,
    "float | None": _real,
    "bool": _reader(bool, "true or false"),
    "str": _text,
    "bytes": _bytes,
    "tuple[str, ...]": _several(_text),
    "tuple[int, ...]": _several(_reader(int, "a whole number")),
    "tuple[float, ...]": _several(_real),
    "Mapping[str, float]": _mapping(_real),
    "Mapping[str, str]": _mapping(_text),
}
_OF_TRAININGS = (StepDone, Restored, Trained, CheckpointMade)
_FROM_JOB: dict[str, Any] = {
    kind.type: kind
    for kind in (Hello, StepDone, CheckpointMade, Restored, Trained, RunRanks, SignalRanks)
}
_FROM_KEEPER: dict[str, Any] = {
    kind.type: kind
    for kind in (
        Stop,
        StopAt,
        Limit,
        CheckpointAnswer,
        UseBatch,
        Started,
        Output,
        Exited,
        Done,
        Refused,
    )
}
