from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class LaunchMode(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    LAUNCH_MODE_UNSPECIFIED: _ClassVar[LaunchMode]
    LAUNCH_MODE_BATCH: _ClassVar[LaunchMode]
    LAUNCH_MODE_NODE: _ClassVar[LaunchMode]
    LAUNCH_MODE_GPU: _ClassVar[LaunchMode]

class Fence(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    FENCE_UNSPECIFIED: _ClassVar[Fence]
    FENCE_HOLD: _ClassVar[Fence]
    FENCE_LEASE: _ClassVar[Fence]

class SuspendLevel(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    SUSPEND_LEVEL_UNSPECIFIED: _ClassVar[SuspendLevel]
    SUSPEND_LEVEL_FREEZE: _ClassVar[SuspendLevel]
    SUSPEND_LEVEL_CUDA: _ClassVar[SuspendLevel]
    SUSPEND_LEVEL_COOPERATIVE: _ClassVar[SuspendLevel]

class Want(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    WANT_UNSPECIFIED: _ClassVar[Want]
    WANT_PREPARED: _ClassVar[Want]
    WANT_RUNNING: _ClassVar[Want]
    WANT_SUSPENDED: _ClassVar[Want]
    WANT_STOPPED: _ClassVar[Want]

class Phase(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    PHASE_UNSPECIFIED: _ClassVar[Phase]
    PHASE_STARTING: _ClassVar[Phase]
    PHASE_PREPARED: _ClassVar[Phase]
    PHASE_RUNNING: _ClassVar[Phase]
    PHASE_SUSPENDED: _ClassVar[Phase]
    PHASE_FENCED: _ClassVar[Phase]
    PHASE_STOPPING: _ClassVar[Phase]

class StopReason(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    STOP_REASON_UNSPECIFIED: _ClassVar[StopReason]
    STOP_REASON_CANCEL: _ClassVar[StopReason]
    STOP_REASON_PREEMPT: _ClassVar[StopReason]
    STOP_REASON_MIGRATE: _ClassVar[StopReason]
    STOP_REASON_RESIZE: _ClassVar[StopReason]
    STOP_REASON_ABORT: _ClassVar[StopReason]
    STOP_REASON_PEER: _ClassVar[StopReason]
    STOP_REASON_TIME_LIMIT: _ClassVar[StopReason]
    STOP_REASON_OVER: _ClassVar[StopReason]
    STOP_REASON_REQUEUE: _ClassVar[StopReason]
    STOP_REASON_TARGET: _ClassVar[StopReason]

class ExitReason(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    EXIT_REASON_UNSPECIFIED: _ClassVar[ExitReason]
    EXIT_REASON_EXITED: _ClassVar[ExitReason]
    EXIT_REASON_SIGNALLED: _ClassVar[ExitReason]
    EXIT_REASON_OUT_OF_MEMORY: _ClassVar[ExitReason]
    EXIT_REASON_TIME_LIMIT: _ClassVar[ExitReason]
    EXIT_REASON_NOT_STARTED: _ClassVar[ExitReason]
    EXIT_REASON_KEEPER_LOST: _ClassVar[ExitReason]
    EXIT_REASON_NODE_LOST: _ClassVar[ExitReason]
    EXIT_REASON_UNKILLABLE: _ClassVar[ExitReason]

class Told(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    TOLD_UNSPECIFIED: _ClassVar[Told]
    TOLD_STOPPED: _ClassVar[Told]
    TOLD_FINISHED: _ClassVar[Told]
    TOLD_HANDED_OVER: _ClassVar[Told]

class StartFault(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    START_FAULT_UNSPECIFIED: _ClassVar[StartFault]
    START_FAULT_NODE: _ClassVar[StartFault]
    START_FAULT_JOB_HERE: _ClassVar[StartFault]
LAUNCH_MODE_UNSPECIFIED: LaunchMode
LAUNCH_MODE_BATCH: LaunchMode
LAUNCH_MODE_NODE: LaunchMode
LAUNCH_MODE_GPU: LaunchMode
FENCE_UNSPECIFIED: Fence
FENCE_HOLD: Fence
FENCE_LEASE: Fence
SUSPEND_LEVEL_UNSPECIFIED: SuspendLevel
SUSPEND_LEVEL_FREEZE: SuspendLevel
SUSPEND_LEVEL_CUDA: SuspendLevel
SUSPEND_LEVEL_COOPERATIVE: SuspendLevel
WANT_UNSPECIFIED: Want
WANT_PREPARED: Want
WANT_RUNNING: Want
WANT_SUSPENDED: Want
WANT_STOPPED: Want
PHASE_UNSPECIFIED: Phase
PHASE_STARTING: Phase
PHASE_PREPARED: Phase
PHASE_RUNNING: Phase
PHASE_SUSPENDED: Phase
PHASE_FENCED: Phase
PHASE_STOPPING: Phase
STOP_REASON_UNSPECIFIED: StopReason
STOP_REASON_CANCEL: StopReason
STOP_REASON_PREEMPT: StopReason
STOP_REASON_MIGRATE: StopReason
STOP_REASON_RESIZE: StopReason
STOP_REASON_ABORT: StopReason
STOP_REASON_PEER: StopReason
STOP_REASON_TIME_LIMIT: StopReason
STOP_REASON_OVER: StopReason
STOP_REASON_REQUEUE: StopReason
STOP_REASON_TARGET: StopReason
EXIT_REASON_UNSPECIFIED: ExitReason
EXIT_REASON_EXITED: ExitReason
EXIT_REASON_SIGNALLED: ExitReason
EXIT_REASON_OUT_OF_MEMORY: ExitReason
EXIT_REASON_TIME_LIMIT: ExitReason
EXIT_REASON_NOT_STARTED: ExitReason
EXIT_REASON_KEEPER_LOST: ExitReason
EXIT_REASON_NODE_LOST: ExitReason
EXIT_REASON_UNKILLABLE: ExitReason
TOLD_UNSPECIFIED: Told
TOLD_STOPPED: Told
TOLD_FINISHED: Told
TOLD_HANDED_OVER: Told
START_FAULT_UNSPECIFIED: StartFault
START_FAULT_NODE: StartFault
START_FAULT_JOB_HERE: StartFault

class Term(_message.Message):
    __slots__ = ("epoch", "revision")
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    REVISION_FIELD_NUMBER: _ClassVar[int]
    epoch: int
    revision: int
    def __init__(self, epoch: _Optional[int] = ..., revision: _Optional[int] = ...) -> None: ...

class RunKey(_message.Message):
    __slots__ = ("job", "run", "run_id")
    JOB_FIELD_NUMBER: _ClassVar[int]
    RUN_FIELD_NUMBER: _ClassVar[int]
    RUN_ID_FIELD_NUMBER: _ClassVar[int]
    job: int
    run: int
    run_id: str
    def __init__(self, job: _Optional[int] = ..., run: _Optional[int] = ..., run_id: _Optional[str] = ...) -> None: ...

class Share(_message.Message):
    __slots__ = ("node", "gpus")
    NODE_FIELD_NUMBER: _ClassVar[int]
    GPUS_FIELD_NUMBER: _ClassVar[int]
    node: str
    gpus: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, node: _Optional[str] = ..., gpus: _Optional[_Iterable[str]] = ...) -> None: ...

class Limits(_message.Message):
    __slots__ = ("time_s", "memory_bytes", "cpus")
    TIME_S_FIELD_NUMBER: _ClassVar[int]
    MEMORY_BYTES_FIELD_NUMBER: _ClassVar[int]
    CPUS_FIELD_NUMBER: _ClassVar[int]
    time_s: float
    memory_bytes: int
    cpus: int
    def __init__(self, time_s: _Optional[float] = ..., memory_bytes: _Optional[int] = ..., cpus: _Optional[int] = ...) -> None: ...

class DesiredRun(_message.Message):
    __slots__ = ("key", "want", "epoch", "boot_id", "gpus", "layout", "mode", "fence", "environment", "limits", "grace_s", "suspend_level", "stop", "stop_step", "request_id", "suspension", "gpu_share", "follows", "hand_over")
    KEY_FIELD_NUMBER: _ClassVar[int]
    WANT_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    BOOT_ID_FIELD_NUMBER: _ClassVar[int]
    GPUS_FIELD_NUMBER: _ClassVar[int]
    LAYOUT_FIELD_NUMBER: _ClassVar[int]
    MODE_FIELD_NUMBER: _ClassVar[int]
    FENCE_FIELD_NUMBER: _ClassVar[int]
    ENVIRONMENT_FIELD_NUMBER: _ClassVar[int]
    LIMITS_FIELD_NUMBER: _ClassVar[int]
    GRACE_S_FIELD_NUMBER: _ClassVar[int]
    SUSPEND_LEVEL_FIELD_NUMBER: _ClassVar[int]
    STOP_FIELD_NUMBER: _ClassVar[int]
    STOP_STEP_FIELD_NUMBER: _ClassVar[int]
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    SUSPENSION_FIELD_NUMBER: _ClassVar[int]
    GPU_SHARE_FIELD_NUMBER: _ClassVar[int]
    FOLLOWS_FIELD_NUMBER: _ClassVar[int]
    HAND_OVER_FIELD_NUMBER: _ClassVar[int]
    key: RunKey
    want: Want
    epoch: int
    boot_id: str
    gpus: _containers.RepeatedScalarFieldContainer[str]
    layout: _containers.RepeatedCompositeFieldContainer[Share]
    mode: LaunchMode
    fence: Fence
    environment: str
    limits: Limits
    grace_s: float
    suspend_level: SuspendLevel
    stop: StopReason
    stop_step: int
    request_id: str
    suspension: int
    gpu_share: float
    follows: str
    hand_over: str
    def __init__(self, key: _Optional[_Union[RunKey, _Mapping]] = ..., want: _Optional[_Union[Want, str]] = ..., epoch: _Optional[int] = ..., boot_id: _Optional[str] = ..., gpus: _Optional[_Iterable[str]] = ..., layout: _Optional[_Iterable[_Union[Share, _Mapping]]] = ..., mode: _Optional[_Union[LaunchMode, str]] = ..., fence: _Optional[_Union[Fence, str]] = ..., environment: _Optional[str] = ..., limits: _Optional[_Union[Limits, _Mapping]] = ..., grace_s: _Optional[float] = ..., suspend_level: _Optional[_Union[SuspendLevel, str]] = ..., stop: _Optional[_Union[StopReason, str]] = ..., stop_step: _Optional[int] = ..., request_id: _Optional[str] = ..., suspension: _Optional[int] = ..., gpu_share: _Optional[float] = ..., follows: _Optional[str] = ..., hand_over: _Optional[str] = ...) -> None: ...

class HeldRun(_message.Message):
    __slots__ = ("key", "phase", "gpus", "nodes", "request_id", "suspension", "let_go", "in_doubt")
    KEY_FIELD_NUMBER: _ClassVar[int]
    PHASE_FIELD_NUMBER: _ClassVar[int]
    GPUS_FIELD_NUMBER: _ClassVar[int]
    NODES_FIELD_NUMBER: _ClassVar[int]
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    SUSPENSION_FIELD_NUMBER: _ClassVar[int]
    LET_GO_FIELD_NUMBER: _ClassVar[int]
    IN_DOUBT_FIELD_NUMBER: _ClassVar[int]
    key: RunKey
    phase: Phase
    gpus: _containers.RepeatedScalarFieldContainer[str]
    nodes: _containers.RepeatedScalarFieldContainer[str]
    request_id: str
    suspension: int
    let_go: bool
    in_doubt: bool
    def __init__(self, key: _Optional[_Union[RunKey, _Mapping]] = ..., phase: _Optional[_Union[Phase, str]] = ..., gpus: _Optional[_Iterable[str]] = ..., nodes: _Optional[_Iterable[str]] = ..., request_id: _Optional[str] = ..., suspension: _Optional[int] = ..., let_go: _Optional[bool] = ..., in_doubt: _Optional[bool] = ...) -> None: ...

class StepRecord(_message.Message):
    __slots__ = ("number", "name", "nodes", "tasks", "cpus", "began_at", "ran_s", "code", "signal", "cpu_s", "peak_memory_bytes", "running")
    NUMBER_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    NODES_FIELD_NUMBER: _ClassVar[int]
    TASKS_FIELD_NUMBER: _ClassVar[int]
    CPUS_FIELD_NUMBER: _ClassVar[int]
    BEGAN_AT_FIELD_NUMBER: _ClassVar[int]
    RAN_S_FIELD_NUMBER: _ClassVar[int]
    CODE_FIELD_NUMBER: _ClassVar[int]
    SIGNAL_FIELD_NUMBER: _ClassVar[int]
    CPU_S_FIELD_NUMBER: _ClassVar[int]
    PEAK_MEMORY_BYTES_FIELD_NUMBER: _ClassVar[int]
    RUNNING_FIELD_NUMBER: _ClassVar[int]
    number: int
    name: str
    nodes: str
    tasks: int
    cpus: int
    began_at: float
    ran_s: float
    code: int
    signal: int
    cpu_s: float
    peak_memory_bytes: int
    running: bool
    def __init__(self, number: _Optional[int] = ..., name: _Optional[str] = ..., nodes: _Optional[str] = ..., tasks: _Optional[int] = ..., cpus: _Optional[int] = ..., began_at: _Optional[float] = ..., ran_s: _Optional[float] = ..., code: _Optional[int] = ..., signal: _Optional[int] = ..., cpu_s: _Optional[float] = ..., peak_memory_bytes: _Optional[int] = ..., running: _Optional[bool] = ...) -> None: ...

class ExitRecord(_message.Message):
    __slots__ = ("key", "node", "reason", "code", "signal", "stop", "ran_s", "detail", "nodes", "request_id", "told", "checkpoint", "term_s", "at", "hook", "steps", "cpu_s", "peak_memory_bytes", "script_cpu_s", "script_peak_bytes", "stuck", "start_fault")
    KEY_FIELD_NUMBER: _ClassVar[int]
    NODE_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    CODE_FIELD_NUMBER: _ClassVar[int]
    SIGNAL_FIELD_NUMBER: _ClassVar[int]
    STOP_FIELD_NUMBER: _ClassVar[int]
    RAN_S_FIELD_NUMBER: _ClassVar[int]
    DETAIL_FIELD_NUMBER: _ClassVar[int]
    NODES_FIELD_NUMBER: _ClassVar[int]
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    TOLD_FIELD_NUMBER: _ClassVar[int]
    CHECKPOINT_FIELD_NUMBER: _ClassVar[int]
    TERM_S_FIELD_NUMBER: _ClassVar[int]
    AT_FIELD_NUMBER: _ClassVar[int]
    HOOK_FIELD_NUMBER: _ClassVar[int]
    STEPS_FIELD_NUMBER: _ClassVar[int]
    CPU_S_FIELD_NUMBER: _ClassVar[int]
    PEAK_MEMORY_BYTES_FIELD_NUMBER: _ClassVar[int]
    SCRIPT_CPU_S_FIELD_NUMBER: _ClassVar[int]
    SCRIPT_PEAK_BYTES_FIELD_NUMBER: _ClassVar[int]
    STUCK_FIELD_NUMBER: _ClassVar[int]
    START_FAULT_FIELD_NUMBER: _ClassVar[int]
    key: RunKey
    node: str
    reason: ExitReason
    code: int
    signal: int
    stop: StopReason
    ran_s: float
    detail: str
    nodes: _containers.RepeatedScalarFieldContainer[str]
    request_id: str
    told: Told
    checkpoint: int
    term_s: float
    at: float
    hook: str
    steps: _containers.RepeatedCompositeFieldContainer[StepRecord]
    cpu_s: float
    peak_memory_bytes: int
    script_cpu_s: float
    script_peak_bytes: int
    stuck: bool
    start_fault: StartFault
    def __init__(self, key: _Optional[_Union[RunKey, _Mapping]] = ..., node: _Optional[str] = ..., reason: _Optional[_Union[ExitReason, str]] = ..., code: _Optional[int] = ..., signal: _Optional[int] = ..., stop: _Optional[_Union[StopReason, str]] = ..., ran_s: _Optional[float] = ..., detail: _Optional[str] = ..., nodes: _Optional[_Iterable[str]] = ..., request_id: _Optional[str] = ..., told: _Optional[_Union[Told, str]] = ..., checkpoint: _Optional[int] = ..., term_s: _Optional[float] = ..., at: _Optional[float] = ..., hook: _Optional[str] = ..., steps: _Optional[_Iterable[_Union[StepRecord, _Mapping]]] = ..., cpu_s: _Optional[float] = ..., peak_memory_bytes: _Optional[int] = ..., script_cpu_s: _Optional[float] = ..., script_peak_bytes: _Optional[int] = ..., stuck: _Optional[bool] = ..., start_fault: _Optional[_Union[StartFault, str]] = ...) -> None: ...
