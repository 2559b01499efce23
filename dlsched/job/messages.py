"""The messages between a job's processes and their keeper; both sides import this module.

The socket is `DLSCHED_CTL_SOCK`, AF_UNIX and SOCK_SEQPACKET. A message is one JSON object, named by
its `type`. A receiver skips messages and drops fields that it does not know, so that either side
may be the newer one. This module uses the standard library only.

The library (a *rank*: a process that has sent `hello`) expects of the keeper:

- SO_PEERCRED proves the user of a peer; the messages hold no secrets.
- To stop a rank that sent `hello` with the capability `stop`, send it `stop`. A SIGTERM to the
  process that the keeper started may come with it, but none to its data-loading workers. The ranks
  agree on the step after which all of them save and exit with 143. One `stop` to any rank is
  enough; one to each is better. `deadline_s` counts from the sending.
- `stop_at` names the step instead: every rank stops after it, or soon when it is past.
- One rank sends `checkpoint` when the folder `path` is complete and durable. The keeper asks the
  daemon to commit it and answers `checkpoint` with `accepted`, `why` and the same `path`; `held`
  names older checkpoints of the job that must stay, because other jobs begin at them. One is asked
  for at a time, until the daemon answers; of those that come meanwhile the newest follows. The
  training does not wait for the answer, but a rank that stops does, within its deadline.
- `DLSCHED_CKPT_DIR` is the job's folder, the same for all its runs; `DLSCHED_RESUME_FROM` is the
  `path` that was committed last, or empty.
- A rank of a run that follows another one (`DLSCHED_FOLLOWS`) waits, ready, until the keeper sends
  `take_over`; rank 0 says with `ready` where all of them wait for the state. A `stop` with
  `hand_over` says the same to the ranks of the run before, which bring it there; when all have,
  each says so with `leaving`.
- A rank sends `leaving` when its training is over, before it saves: finished, or stopped by
  agreement. The keeper sends no TERM (but for a cancel) while a process that has finished goes on.
- Each rank sends `step` at most once a second, and `restored` once, at its first step.
- Rank 0 of an elastic training sends `trained` about every 30 s and when it stops: measured times,
  gradient noise, batch limits. The daemon fits a model to it and answers `use_batch` when another
  batch size would be better; the ranks use it as soon as they can.
- A rank of a job that shares its GPUs sends `step_begin` and waits for `turn`; `step_end` gives the
  turn back. All ranks of the run have the turn together, one step each. Jobs whose GPUs are on
  several nodes get it at once.
- `processors` says how many processors of its node the run may use from now on, all its ranks there
  together; what it may use when it starts is in `DLSCHED_CPUS`.
- A rank with the capability `limit` obeys `limit`: after each step it pauses for as long as its
  share of the GPU asks for. With a share of 0 it does no step until it gets more or must stop.
- A rank that can write its stacks sends `hello` with the capability `stacks` and the descriptor of
  a file in memory as SCM_RIGHTS; at STACKS_SIGNAL it writes them there.
- A process of a job with short tasks sends `want_tasks`, and gets `tasks` as soon as the daemon has
  stored what has ended and what is given. It may get a task again that it has had; it skips it.
- `save_failed` says why a rank could not write its part of a checkpoint; the training goes on.
- `failed` says with which exception a rank ends; `doing`, that a long save or evaluation is not a
  training that hangs.
- Messages of a rank that names the `run_id` of another run are dropped.
- A message with impossible numbers (not finite, of another type) is counted and skipped, and the
  rank's next message is taken again. A packet that is no message ends the connection.

`dlsched run` (a *caller*: a process that sends `run` instead of `hello`) expects:

- `run` starts `ntasks` ranks over the nodes of the allocation, or some `nodes` of it, in blocks:
  `per_node` on each node (0: one for each GPU, on nodes in order), with `gpus_per_task` GPUs each
  (0: the node's, shared), or as `tasks_per_gpu` or `gpu_masks` say. With `plane` the nodes take
  turns, in place of blocks. With `gpus`, it gets so many GPUs on each node that no other such call
  has, with `own_gpus` all of them, and waits until they are free. Their environment is the
  caller's, with the variables that the runtime sets for each rank. The message carries the caller's
  stdout and stderr as SCM_RIGHTS, in this order: ranks of the same node may write there themselves.
  The output of other ranks, with `label` of all, is sent as `output`.
- A third descriptor is the caller's input, for the rank `input_to` or all. One rank alone that is
  on this node reads it itself. Else `started` has `sends_input`: the caller sends `input`, the end
  as an empty one, at most INPUT_WINDOW bytes more than `input_taken` says that every rank has
  taken. A rank that has ended, or has closed its input, is not waited for. With `input_file`, each
  rank opens its own file.
- Answers: `refused` alone; or `started`, then `exited` once for each rank, then `done`.
- `signal` passes a signal on to all ranks. When a caller closes its connection, the ranks get TERM,
  then KILL. With `kill_on_bad_exit` the first rank that fails ends the others in the same way; they
  have `with_others` in `exited`, because their codes say nothing.
"""

from __future__ import annotations

import base64
import binascii
import json
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from typing import Any, ClassVar

VERSION = 1
MAX_MESSAGE = 192 * 1024  # bytes; fits the usual socket buffer of 208 KiB
STACKS_SIGNAL = 44  # SIGRTMIN + 10: a rank writes the stacks of its threads
INPUT_CHUNK = 32 * 1024  # bytes of input in one message, before base64
INPUT_WINDOW = 1024 * 1024  # bytes of input that not every rank has taken yet
EVERY_RANK = -1  # as `input_to`


class BadMessage(ValueError):
    """A message that cannot be read; the text says why, in one line."""


class Nonsense(BadMessage):
    """A message about the training with impossible values: it is counted and skipped."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Message:
    """Any message; `type` is its name on the socket."""

    type: ClassVar[str] = ""


# -- a rank to the keeper --------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Hello(Message):
    """The first message of a rank: from now on it obeys `stop`."""

    type: ClassVar[str] = "hello"
    rank: int
    version: int = VERSION
    capabilities: tuple[str, ...] = ()
    pid: int = 0
    run_id: str = ""  # of its run, as its environment says


@dataclass(frozen=True, slots=True, kw_only=True)
class StepDone(Message):
    """The progress of the training; `batch_s` is the mean since the last such message."""

    type: ClassVar[str] = "step"
    step: int
    batch_s: float | None = None
    loss: float | None = None
    gpu_memory: int | None = None  # the most at once, in bytes
    metrics: Mapping[str, float] = field(default_factory=dict)
    not_finite: tuple[str, ...] = ()  # names of values that are NaN or infinite


@dataclass(frozen=True, slots=True, kw_only=True)
class Failed(Message):
    """The rank ends because of an exception; `at` is in seconds since the epoch."""

    type: ClassVar[str] = "failed"
    error: str  # in one line
    at: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Doing(Message):
    """The rank does something else than steps, which may take long; empty: steps again."""

    type: ClassVar[str] = "doing"
    what: str  # save, evaluation, end


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckpointMade(Message):
    """A checkpoint is complete and durable in the folder `path`, and is to be committed."""

    type: ClassVar[str] = "checkpoint"
    path: str
    step: int
    bytes: int
    sha256: str  # of its manifest, which has the sums of the files
    save_s: float | None = None
    loss: float | None = None
    keep: int = 0  # the job deletes all committed ones but so many; 0: not said


@dataclass(frozen=True, slots=True, kw_only=True)
class SaveFailed(Message):
    """There is no checkpoint after a step, because this rank could not write its part."""

    type: ClassVar[str] = "save_failed"
    step: int
    why: str  # in one line


@dataclass(frozen=True, slots=True, kw_only=True)
class Restored(Message):
    """The first step is done; `restart_s` is the time from the start of the process to its end."""

    type: ClassVar[str] = "restored"
    step: int  # with which the run began
    restart_s: float
    saves: bool = True  # whether a stop leaves a checkpoint: a state is registered
    save_bytes: int | None = None  # that a checkpoint is known to need, before the first one
    room_bytes: int | None = None  # that are free where it will be
    save_s: float | None = None  # that it will take about


@dataclass(frozen=True, slots=True, kw_only=True)
class Leaving(Message):
    """The training of this rank is over: it has finished, or has agreed to stop before that."""

    type: ClassVar[str] = "leaving"
    finished: bool
    job: bool = False  # nothing is left to do for the whole job, whatever stop may come
    handed_over: bool = False  # the ranks of the next run have the state of all ranks


@dataclass(frozen=True, slots=True, kw_only=True)
class Ready(Message):
    """All ranks of a run that follows another one wait for the state."""

    type: ClassVar[str] = "ready"
    ports: tuple[int, ...]  # of each rank, on its node
    word: str  # that they expect with it


@dataclass(frozen=True, slots=True, kw_only=True)
class Trained(Message):
    """The speed and the gradients of an elastic training; tuples have one entry per batch size.

    Times are means over all measurements of this run, in seconds: of a pass forward and backward
    without synchronisation, and of the pass that ends with the optimiser's step.
    """

    type: ClassVar[str] = "trained"
    nodes: int
    replicas: int
    local: tuple[int, ...] = ()  # samples of each replica and pass
    steps: tuple[int, ...] = ()  # measured
    accumulation_s: tuple[float, ...] = ()
    optimiser_s: tuple[float, ...] = ()
    gradient_sqr: float | None = None  # at the initial batch size
    gradient_var: float | None = None
    initial: int = 1  # samples of a step, all replicas together
    maximum: int = 1
    local_min: int = 1
    local_max: int = 1
    may_accumulate: bool = False
    fixed: bool = False  # the batch size must not change
    local_now: int = 1
    accumulation_now: int = 0  # passes before the one that synchronises
    progress: float = 0.0  # in steps at the initial batch size


@dataclass(frozen=True, slots=True, kw_only=True)
class StepBegin(Message):
    """The rank waits for its turn on shared GPUs; the answer is `turn`."""

    type: ClassVar[str] = "step_begin"
    held_bytes: int = 0  # of memory, now
    left_s: float | None = None  # seconds of steps that the training still needs


@dataclass(frozen=True, slots=True, kw_only=True)
class StepEnd(Message):
    """The rank's turn is over."""

    type: ClassVar[str] = "step_end"
    held_bytes: int = 0  # of memory, now
    most_bytes: int = 0  # at once, during the step


@dataclass(frozen=True, slots=True, kw_only=True)
class WantTasks(Message):
    """The short tasks that have ended, one entry each, and those still held; wants more."""

    type: ClassVar[str] = "want_tasks"
    ended: tuple[int, ...] = ()  # numbers
    codes: tuple[int, ...] = ()
    signals: tuple[int, ...] = ()
    ran_s: tuple[float, ...] = ()
    held: tuple[int, ...] = ()


# -- a caller of `dlsched run` to the keeper -------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class RunRanks(Message):
    """Start ranks inside the allocation."""

    type: ClassVar[str] = "run"
    argv: tuple[str, ...]
    ntasks: int = 0  # 0: one for each GPU
    per_node: int = 0
    gpus_per_task: int = 0
    nodes: tuple[str, ...] = ()  # of the allocation, in its order; empty: all
    gpus: int | None = None  # on each node, of this call alone; None: all, shared with other calls
    overlap: bool = False  # with `gpus`: other calls may have the same ones
    own_gpus: bool = False  # without `gpus`: all of its nodes, and no other such call's
    tasks_per_gpu: int = 0  # so many ranks, one after the other, see one GPU; 0: not said
    gpu_masks: tuple[int, ...] = ()  # bits of the GPUs that ranks of a node see, in turn
    plane: int = 0  # so many ranks, one after the other, on each node in turn; 0: blocks
    name: str = ""  # for accounts; empty: of the program
    overcommit: bool = False  # ranks may be more than GPUs
    cpus_per_task: int = 0  # told to the ranks; 0: as the job has it
    environment: Mapping[str, str] = field(default_factory=dict)
    working_directory: str = ""
    label: bool = False
    kill_on_bad_exit: bool = True
    # the rank that reads the caller's input; None: rank 0 if it can read it itself (older callers)
    input_to: int | None = None
    input_file: str = ""  # that each rank reads instead, with %N, %n, %t


@dataclass(frozen=True, slots=True, kw_only=True)
class SignalRanks(Message):
    """Pass a signal on to all ranks that the caller started."""

    type: ClassVar[str] = "signal"
    number: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Input(Message):
    """What the ranks that read the caller's input read next; empty: its end."""

    type: ClassVar[str] = "input"
    data: bytes


# -- the keeper to a rank --------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Stop(Message):
    """Stop between two steps, with a checkpoint, within `deadline_s` seconds."""

    type: ClassVar[str] = "stop"
    reason: str = "preempt"
    deadline_s: float | None = None
    hand_over: str = ""  # where the ranks of the next run wait for the state


@dataclass(frozen=True, slots=True, kw_only=True)
class TakeOver(Message):
    """The run before is over: go on in its place."""

    type: ClassVar[str] = "take_over"


@dataclass(frozen=True, slots=True, kw_only=True)
class StopAt(Message):
    """Stop after this step."""

    type: ClassVar[str] = "stop_at"
    step: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Limit(Message):
    """The share of its GPUs that the job may use from now on."""

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
    held: tuple[str, ...] = ()  # paths of older checkpoints that other jobs begin at


@dataclass(frozen=True, slots=True, kw_only=True)
class UseBatch(Message):
    """A batch size that is expected to train faster on the GPUs of this run."""

    type: ClassVar[str] = "use_batch"
    local: int
    accumulation: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Turn(Message):
    """The rank may begin its step."""

    type: ClassVar[str] = "turn"
    memory_bytes: int | None = None  # that the process may hold; None: no limit is known
    shared: bool = False  # others use the memory that it frees at the end of the step


@dataclass(frozen=True, slots=True, kw_only=True)
class Processors(Message):
    """How many processors of its node the run may use from now on."""

    type: ClassVar[str] = "processors"
    count: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Tasks(Message):
    """Short tasks to execute; the ends that were told are durable."""

    type: ClassVar[str] = "tasks"
    numbers: tuple[int, ...] = ()
    lines: tuple[str, ...] = ()  # for the shell
    over: bool = False  # no task waits any more


# -- the keeper to a caller of `dlsched run` -------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Started(Message):
    """The ranks have been started."""

    type: ClassVar[str] = "started"
    ranks: int
    call: int = 1  # its number among those of the run
    nodes: tuple[str, ...] = ()  # of each rank
    sends_input: bool = False  # the caller is to send its input


@dataclass(frozen=True, slots=True, kw_only=True)
class InputTaken(Message):
    """How many bytes of the caller's input every rank that reads it has taken."""

    type: ClassVar[str] = "input_taken"
    bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Output(Message):
    """Bytes that a rank has written to stream 1 or 2."""

    type: ClassVar[str] = "output"
    rank: int
    data: bytes
    stream: int = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Exited(Message):
    """A rank has ended; `with_others`: it was ended, because another one had failed."""

    type: ClassVar[str] = "exited"
    rank: int
    code: int = 0
    signal: int = 0
    node: str = ""
    with_others: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Done(Message):
    """All ranks have ended and all their output has been sent."""

    type: ClassVar[str] = "done"


@dataclass(frozen=True, slots=True, kw_only=True)
class Refused(Message):
    """The ranks cannot be started."""

    type: ClassVar[str] = "refused"
    why: str


FromJob = (
    Hello
    | StepDone
    | Failed
    | Doing
    | CheckpointMade
    | SaveFailed
    | Restored
    | Leaving
    | Ready
    | Trained
    | StepBegin
    | StepEnd
    | WantTasks
    | RunRanks
    | SignalRanks
    | Input
)
FromKeeper = (
    Stop
    | TakeOver
    | StopAt
    | Limit
    | Turn
    | CheckpointAnswer
    | UseBatch
    | Processors
    | Tasks
    | Started
    | InputTaken
    | Output
    | Exited
    | Done
    | Refused
)


# -- to bytes and back -----------------------------------------------------------------------------


def encode(message: Message) -> bytes:
    """Return the packet of a message; it omits fields that are None or not finite."""
    packet: dict[str, Any] = {"type": message.type}
    for each in fields(message):
        value = _plain(getattr(message, each.name))
        if value is not None:
            packet[each.name] = value
    return json.dumps(packet, separators=(",", ":"), allow_nan=False).encode()


def decode_from_job(packet: bytes) -> FromJob | None:
    """Return the message of a rank or a caller; None for one that only newer versions know.

    Raises:
        BadMessage: when the packet is no message.
    """
    found: FromJob | None = _decode(packet, _FROM_JOB)
    return found


def decode_from_keeper(packet: bytes) -> FromKeeper | None:
    """Return the message of a keeper; None for one that only newer versions know.

    Raises:
        BadMessage: when the packet is no message.
    """
    found: FromKeeper | None = _decode(packet, _FROM_KEEPER)
    return found


def _plain(value: object) -> object:
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


def _made(kind: Any, given: Mapping[str, object]) -> Any:
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


Reader = Callable[[str, object], Any]  # of a field by its name; what it gives, its annotation says


def _reader(kinds: type | tuple[type, ...], expected: str) -> Reader:
    def read(name: str, value: object) -> Any:
        wanted = isinstance(value, kinds) and (kinds is bool or not isinstance(value, bool))
        if not wanted:
            raise BadMessage(f"{name}: {expected} expected, found {type(value).__name__}")
        return value

    return read


_integer = _reader(int, "a whole number")
_characters = _reader(str, "text")
_number = _reader((int, float), "a number")


def _whole(name: str, value: object) -> int:
    found: int = _integer(name, value)
    if not -(1 << 63) <= found < 1 << 63:
        raise BadMessage(f"{name}: a whole number of 64 bits expected")
    return found


def _text(name: str, value: object) -> str:
    found: str = _characters(name, value)
    try:
        found.encode("utf-8", "surrogateescape")  # as file names may be
    except UnicodeEncodeError:
        raise BadMessage(f"{name}: text that no file name could be") from None
    if "\0" in found:
        raise BadMessage(f"{name}: text without zero bytes expected")
    return found


def _real(name: str, value: object) -> float:
    try:
        found = float(_number(name, value))
    except OverflowError:  # a whole number of hundreds of digits
        found = math.inf
    if not math.isfinite(found):
        raise BadMessage(f"{name}: a finite number expected")
    return found


def _several(of: Reader) -> Reader:
    def read(name: str, value: object) -> tuple[Any, ...]:
        return tuple(of(name, item) for item in _reader(list, "a list")(name, value))

    return read


def _mapping(of: Reader) -> Reader:
    def read(name: str, value: object) -> dict[str, Any]:
        entries = _reader(dict, "an object")(name, value)
        return {_text(name, key): of(f"{name}.{key}", item) for key, item in entries.items()}

    return read


def _bytes(name: str, value: object) -> bytes:
    try:
        return base64.b64decode(_text(name, value), validate=True)
    except binascii.Error:
        raise BadMessage(f"{name}: base64 expected") from None


_READERS: dict[str, Reader] = {  # by the annotation of a field
    "int": _whole,
    "int | None": _whole,
    "float": _real,
    "float | None": _real,
    "bool": _reader(bool, "true or false"),
    "str": _text,
    "bytes": _bytes,
    "tuple[str, ...]": _several(_text),
    "tuple[int, ...]": _several(_whole),
    "tuple[float, ...]": _several(_real),
    "Mapping[str, float]": _mapping(_real),
    "Mapping[str, str]": _mapping(_text),
}
_OF_TRAININGS = (
    StepDone, Failed, Doing, Restored, Leaving, Ready, Trained, CheckpointMade, SaveFailed,
    StepBegin, StepEnd,
)  # fmt: skip
_FROM_JOB: dict[str, Any] = {
    kind.type: kind for kind in (Hello, *_OF_TRAININGS, WantTasks, RunRanks, SignalRanks, Input)
}
_FROM_KEEPER: dict[str, Any] = {
    kind.type: kind
    for kind in (
        Stop,
        TakeOver,
        StopAt,
        Limit,
        Turn,
        CheckpointAnswer,
        UseBatch,
        Processors,
        Tasks,
        Started,
        InputTaken,
        Output,
        Exited,
        Done,
        Refused,
    )
}
