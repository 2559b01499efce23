from dlsched.rpc.v1 import attach_pb2 as _attach_pb2
from dlsched.rpc.v1 import run_pb2 as _run_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class Broken(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    BROKEN_UNSPECIFIED: _ClassVar[Broken]
    BROKEN_CANCEL: _ClassVar[Broken]
    BROKEN_KEEP: _ClassVar[Broken]

class OnHang(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    ON_HANG_UNSPECIFIED: _ClassVar[OnHang]
    ON_HANG_REQUEUE: _ClassVar[OnHang]
    ON_HANG_FAIL: _ClassVar[OnHang]
    ON_HANG_TELL: _ClassVar[OnHang]
    ON_HANG_OFF: _ClassVar[OnHang]

class DeadlineKind(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    DEADLINE_KIND_UNSPECIFIED: _ClassVar[DeadlineKind]
    DEADLINE_KIND_STRICT: _ClassVar[DeadlineKind]
    DEADLINE_KIND_SOFT: _ClassVar[DeadlineKind]
    DEADLINE_KIND_BEST_EFFORT: _ClassVar[DeadlineKind]

class Guarantee(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    GUARANTEE_UNSPECIFIED: _ClassVar[Guarantee]
    GUARANTEE_GUARANTEED: _ClassVar[Guarantee]
    GUARANTEE_OPPORTUNISTIC: _ClassVar[Guarantee]
    GUARANTEE_AUTO: _ClassVar[Guarantee]

class StopWhen(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    STOP_WHEN_UNSPECIFIED: _ClassVar[StopWhen]
    STOP_WHEN_END: _ClassVar[StopWhen]
    STOP_WHEN_TARGET: _ClassVar[StopWhen]
    STOP_WHEN_BEST: _ClassVar[StopWhen]

class StopUnderLoad(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    STOP_UNDER_LOAD_UNSPECIFIED: _ClassVar[StopUnderLoad]
    STOP_UNDER_LOAD_TARGET: _ClassVar[StopUnderLoad]
    STOP_UNDER_LOAD_BEST: _ClassVar[StopUnderLoad]
    STOP_UNDER_LOAD_EITHER: _ClassVar[StopUnderLoad]

class Label(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    LABEL_UNSPECIFIED: _ClassVar[Label]
    LABEL_YES: _ClassVar[Label]
    LABEL_NO: _ClassVar[Label]

class Action(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    ACTION_UNSPECIFIED: _ClassVar[Action]
    ACTION_CANCEL: _ClassVar[Action]
    ACTION_HOLD: _ClassVar[Action]
    ACTION_RELEASE: _ClassVar[Action]
    ACTION_REQUEUE: _ClassVar[Action]
    ACTION_SUSPEND: _ClassVar[Action]
    ACTION_RESUME: _ClassVar[Action]
    ACTION_SIGNAL: _ClassVar[Action]

class NodeAction(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    NODE_ACTION_UNSPECIFIED: _ClassVar[NodeAction]
    NODE_ACTION_DRAIN: _ClassVar[NodeAction]
    NODE_ACTION_RESUME: _ClassVar[NodeAction]
    NODE_ACTION_DOWN_CONFIRMED: _ClassVar[NodeAction]
BROKEN_UNSPECIFIED: Broken
BROKEN_CANCEL: Broken
BROKEN_KEEP: Broken
ON_HANG_UNSPECIFIED: OnHang
ON_HANG_REQUEUE: OnHang
ON_HANG_FAIL: OnHang
ON_HANG_TELL: OnHang
ON_HANG_OFF: OnHang
DEADLINE_KIND_UNSPECIFIED: DeadlineKind
DEADLINE_KIND_STRICT: DeadlineKind
DEADLINE_KIND_SOFT: DeadlineKind
DEADLINE_KIND_BEST_EFFORT: DeadlineKind
GUARANTEE_UNSPECIFIED: Guarantee
GUARANTEE_GUARANTEED: Guarantee
GUARANTEE_OPPORTUNISTIC: Guarantee
GUARANTEE_AUTO: Guarantee
STOP_WHEN_UNSPECIFIED: StopWhen
STOP_WHEN_END: StopWhen
STOP_WHEN_TARGET: StopWhen
STOP_WHEN_BEST: StopWhen
STOP_UNDER_LOAD_UNSPECIFIED: StopUnderLoad
STOP_UNDER_LOAD_TARGET: StopUnderLoad
STOP_UNDER_LOAD_BEST: StopUnderLoad
STOP_UNDER_LOAD_EITHER: StopUnderLoad
LABEL_UNSPECIFIED: Label
LABEL_YES: Label
LABEL_NO: Label
ACTION_UNSPECIFIED: Action
ACTION_CANCEL: Action
ACTION_HOLD: Action
ACTION_RELEASE: Action
ACTION_REQUEUE: Action
ACTION_SUSPEND: Action
ACTION_RESUME: Action
ACTION_SIGNAL: Action
NODE_ACTION_UNSPECIFIED: NodeAction
NODE_ACTION_DRAIN: NodeAction
NODE_ACTION_RESUME: NodeAction
NODE_ACTION_DOWN_CONFIRMED: NodeAction

class Dependency(_message.Message):
    __slots__ = ("kind", "job", "delay_s", "or_next", "task", "in_call")
    KIND_FIELD_NUMBER: _ClassVar[int]
    JOB_FIELD_NUMBER: _ClassVar[int]
    DELAY_S_FIELD_NUMBER: _ClassVar[int]
    OR_NEXT_FIELD_NUMBER: _ClassVar[int]
    TASK_FIELD_NUMBER: _ClassVar[int]
    IN_CALL_FIELD_NUMBER: _ClassVar[int]
    kind: str
    job: int
    delay_s: float
    or_next: bool
    task: int
    in_call: int
    def __init__(self, kind: _Optional[str] = ..., job: _Optional[int] = ..., delay_s: _Optional[float] = ..., or_next: _Optional[bool] = ..., task: _Optional[int] = ..., in_call: _Optional[int] = ...) -> None: ...

class EnvironmentVariable(_message.Message):
    __slots__ = ("name", "value")
    NAME_FIELD_NUMBER: _ClassVar[int]
    VALUE_FIELD_NUMBER: _ClassVar[int]
    name: str
    value: str
    def __init__(self, name: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...

class JobRequest(_message.Message):
    __slots__ = ("name", "argv", "script", "working_directory", "output", "error", "truncate", "environment", "partition", "vc", "priority_class", "priority", "gpus", "nodes", "gpus_per_node", "gpu_types", "min_gpus", "max_gpus", "share", "cpus", "memory_bytes", "only_nodes", "not_nodes", "exclusive", "time_limit_s", "begin_at", "deadline_at", "mode", "fence", "suspend_level", "grace_s", "warn_signal", "warn_before_s", "retries", "no_requeue", "held", "dependencies", "broken_dependency", "array", "model", "batch_size", "total_iterations", "weight", "expected_s", "comment", "notify", "no_slurm_environment", "extra", "adaptive", "fixed_batch", "submit_host", "open_ended", "deadline_value", "warn_script_only", "warn_at_preemption", "requeue_on_timeout", "keep_checkpoints", "resume_from", "on_hang", "hang_factor", "retry_elsewhere", "label", "sweep", "umask", "ntasks", "ntasks_per_node", "cpus_per_task", "notify_url", "mail_user", "container", "container_mounts", "deadline_kind", "reservation", "constraint", "cell", "sla", "time_min_s", "tmp_bytes", "gpu_retries", "max_nodes", "guarantee", "target_accuracy", "stop_when", "stop_under_load", "in_place", "terminal", "tasks", "script_path", "gpus_by_type")
    class ExtraEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    NAME_FIELD_NUMBER: _ClassVar[int]
    ARGV_FIELD_NUMBER: _ClassVar[int]
    SCRIPT_FIELD_NUMBER: _ClassVar[int]
    WORKING_DIRECTORY_FIELD_NUMBER: _ClassVar[int]
    OUTPUT_FIELD_NUMBER: _ClassVar[int]
    ERROR_FIELD_NUMBER: _ClassVar[int]
    TRUNCATE_FIELD_NUMBER: _ClassVar[int]
    ENVIRONMENT_FIELD_NUMBER: _ClassVar[int]
    PARTITION_FIELD_NUMBER: _ClassVar[int]
    VC_FIELD_NUMBER: _ClassVar[int]
    PRIORITY_CLASS_FIELD_NUMBER: _ClassVar[int]
    PRIORITY_FIELD_NUMBER: _ClassVar[int]
    GPUS_FIELD_NUMBER: _ClassVar[int]
    NODES_FIELD_NUMBER: _ClassVar[int]
    GPUS_PER_NODE_FIELD_NUMBER: _ClassVar[int]
    GPU_TYPES_FIELD_NUMBER: _ClassVar[int]
    MIN_GPUS_FIELD_NUMBER: _ClassVar[int]
    MAX_GPUS_FIELD_NUMBER: _ClassVar[int]
    SHARE_FIELD_NUMBER: _ClassVar[int]
    CPUS_FIELD_NUMBER: _ClassVar[int]
    MEMORY_BYTES_FIELD_NUMBER: _ClassVar[int]
    ONLY_NODES_FIELD_NUMBER: _ClassVar[int]
    NOT_NODES_FIELD_NUMBER: _ClassVar[int]
    EXCLUSIVE_FIELD_NUMBER: _ClassVar[int]
    TIME_LIMIT_S_FIELD_NUMBER: _ClassVar[int]
    BEGIN_AT_FIELD_NUMBER: _ClassVar[int]
    DEADLINE_AT_FIELD_NUMBER: _ClassVar[int]
    MODE_FIELD_NUMBER: _ClassVar[int]
    FENCE_FIELD_NUMBER: _ClassVar[int]
    SUSPEND_LEVEL_FIELD_NUMBER: _ClassVar[int]
    GRACE_S_FIELD_NUMBER: _ClassVar[int]
    WARN_SIGNAL_FIELD_NUMBER: _ClassVar[int]
    WARN_BEFORE_S_FIELD_NUMBER: _ClassVar[int]
    RETRIES_FIELD_NUMBER: _ClassVar[int]
    NO_REQUEUE_FIELD_NUMBER: _ClassVar[int]
    HELD_FIELD_NUMBER: _ClassVar[int]
    DEPENDENCIES_FIELD_NUMBER: _ClassVar[int]
    BROKEN_DEPENDENCY_FIELD_NUMBER: _ClassVar[int]
    ARRAY_FIELD_NUMBER: _ClassVar[int]
    MODEL_FIELD_NUMBER: _ClassVar[int]
    BATCH_SIZE_FIELD_NUMBER: _ClassVar[int]
    TOTAL_ITERATIONS_FIELD_NUMBER: _ClassVar[int]
    WEIGHT_FIELD_NUMBER: _ClassVar[int]
    EXPECTED_S_FIELD_NUMBER: _ClassVar[int]
    COMMENT_FIELD_NUMBER: _ClassVar[int]
    NOTIFY_FIELD_NUMBER: _ClassVar[int]
    NO_SLURM_ENVIRONMENT_FIELD_NUMBER: _ClassVar[int]
    EXTRA_FIELD_NUMBER: _ClassVar[int]
    ADAPTIVE_FIELD_NUMBER: _ClassVar[int]
    FIXED_BATCH_FIELD_NUMBER: _ClassVar[int]
    SUBMIT_HOST_FIELD_NUMBER: _ClassVar[int]
    OPEN_ENDED_FIELD_NUMBER: _ClassVar[int]
    DEADLINE_VALUE_FIELD_NUMBER: _ClassVar[int]
    WARN_SCRIPT_ONLY_FIELD_NUMBER: _ClassVar[int]
    WARN_AT_PREEMPTION_FIELD_NUMBER: _ClassVar[int]
    REQUEUE_ON_TIMEOUT_FIELD_NUMBER: _ClassVar[int]
    KEEP_CHECKPOINTS_FIELD_NUMBER: _ClassVar[int]
    RESUME_FROM_FIELD_NUMBER: _ClassVar[int]
    ON_HANG_FIELD_NUMBER: _ClassVar[int]
    HANG_FACTOR_FIELD_NUMBER: _ClassVar[int]
    RETRY_ELSEWHERE_FIELD_NUMBER: _ClassVar[int]
    LABEL_FIELD_NUMBER: _ClassVar[int]
    SWEEP_FIELD_NUMBER: _ClassVar[int]
    UMASK_FIELD_NUMBER: _ClassVar[int]
    NTASKS_FIELD_NUMBER: _ClassVar[int]
    NTASKS_PER_NODE_FIELD_NUMBER: _ClassVar[int]
    CPUS_PER_TASK_FIELD_NUMBER: _ClassVar[int]
    NOTIFY_URL_FIELD_NUMBER: _ClassVar[int]
    MAIL_USER_FIELD_NUMBER: _ClassVar[int]
    CONTAINER_FIELD_NUMBER: _ClassVar[int]
    CONTAINER_MOUNTS_FIELD_NUMBER: _ClassVar[int]
    DEADLINE_KIND_FIELD_NUMBER: _ClassVar[int]
    RESERVATION_FIELD_NUMBER: _ClassVar[int]
    CONSTRAINT_FIELD_NUMBER: _ClassVar[int]
    CELL_FIELD_NUMBER: _ClassVar[int]
    SLA_FIELD_NUMBER: _ClassVar[int]
    TIME_MIN_S_FIELD_NUMBER: _ClassVar[int]
    TMP_BYTES_FIELD_NUMBER: _ClassVar[int]
    GPU_RETRIES_FIELD_NUMBER: _ClassVar[int]
    MAX_NODES_FIELD_NUMBER: _ClassVar[int]
    GUARANTEE_FIELD_NUMBER: _ClassVar[int]
    TARGET_ACCURACY_FIELD_NUMBER: _ClassVar[int]
    STOP_WHEN_FIELD_NUMBER: _ClassVar[int]
    STOP_UNDER_LOAD_FIELD_NUMBER: _ClassVar[int]
    IN_PLACE_FIELD_NUMBER: _ClassVar[int]
    TERMINAL_FIELD_NUMBER: _ClassVar[int]
    TASKS_FIELD_NUMBER: _ClassVar[int]
    SCRIPT_PATH_FIELD_NUMBER: _ClassVar[int]
    GPUS_BY_TYPE_FIELD_NUMBER: _ClassVar[int]
    name: str
    argv: _containers.RepeatedScalarFieldContainer[str]
    script: bytes
    working_directory: str
    output: str
    error: str
    truncate: bool
    environment: _containers.RepeatedCompositeFieldContainer[EnvironmentVariable]
    partition: str
    vc: str
    priority_class: str
    priority: float
    gpus: int
    nodes: int
    gpus_per_node: int
    gpu_types: _containers.RepeatedScalarFieldContainer[str]
    min_gpus: int
    max_gpus: int
    share: float
    cpus: int
    memory_bytes: int
    only_nodes: _containers.RepeatedScalarFieldContainer[str]
    not_nodes: _containers.RepeatedScalarFieldContainer[str]
    exclusive: bool
    time_limit_s: float
    begin_at: float
    deadline_at: float
    mode: _run_pb2.LaunchMode
    fence: _run_pb2.Fence
    suspend_level: _run_pb2.SuspendLevel
    grace_s: float
    warn_signal: int
    warn_before_s: float
    retries: int
    no_requeue: bool
    held: bool
    dependencies: _containers.RepeatedCompositeFieldContainer[Dependency]
    broken_dependency: Broken
    array: str
    model: str
    batch_size: float
    total_iterations: float
    weight: float
    expected_s: float
    comment: str
    notify: str
    no_slurm_environment: bool
    extra: _containers.ScalarMap[str, str]
    adaptive: bool
    fixed_batch: bool
    submit_host: str
    open_ended: bool
    deadline_value: float
    warn_script_only: bool
    warn_at_preemption: bool
    requeue_on_timeout: bool
    keep_checkpoints: int
    resume_from: str
    on_hang: OnHang
    hang_factor: float
    retry_elsewhere: bool
    label: Label
    sweep: SweepTable
    umask: int
    ntasks: int
    ntasks_per_node: int
    cpus_per_task: int
    notify_url: str
    mail_user: str
    container: str
    container_mounts: str
    deadline_kind: DeadlineKind
    reservation: str
    constraint: str
    cell: str
    sla: str
    time_min_s: float
    tmp_bytes: int
    gpu_retries: int
    max_nodes: int
    guarantee: Guarantee
    target_accuracy: float
    stop_when: StopWhen
    stop_under_load: StopUnderLoad
    in_place: bool
    terminal: str
    tasks: _containers.RepeatedScalarFieldContainer[str]
    script_path: str
    gpus_by_type: str
    def __init__(self, name: _Optional[str] = ..., argv: _Optional[_Iterable[str]] = ..., script: _Optional[bytes] = ..., working_directory: _Optional[str] = ..., output: _Optional[str] = ..., error: _Optional[str] = ..., truncate: _Optional[bool] = ..., environment: _Optional[_Iterable[_Union[EnvironmentVariable, _Mapping]]] = ..., partition: _Optional[str] = ..., vc: _Optional[str] = ..., priority_class: _Optional[str] = ..., priority: _Optional[float] = ..., gpus: _Optional[int] = ..., nodes: _Optional[int] = ..., gpus_per_node: _Optional[int] = ..., gpu_types: _Optional[_Iterable[str]] = ..., min_gpus: _Optional[int] = ..., max_gpus: _Optional[int] = ..., share: _Optional[float] = ..., cpus: _Optional[int] = ..., memory_bytes: _Optional[int] = ..., only_nodes: _Optional[_Iterable[str]] = ..., not_nodes: _Optional[_Iterable[str]] = ..., exclusive: _Optional[bool] = ..., time_limit_s: _Optional[float] = ..., begin_at: _Optional[float] = ..., deadline_at: _Optional[float] = ..., mode: _Optional[_Union[_run_pb2.LaunchMode, str]] = ..., fence: _Optional[_Union[_run_pb2.Fence, str]] = ..., suspend_level: _Optional[_Union[_run_pb2.SuspendLevel, str]] = ..., grace_s: _Optional[float] = ..., warn_signal: _Optional[int] = ..., warn_before_s: _Optional[float] = ..., retries: _Optional[int] = ..., no_requeue: _Optional[bool] = ..., held: _Optional[bool] = ..., dependencies: _Optional[_Iterable[_Union[Dependency, _Mapping]]] = ..., broken_dependency: _Optional[_Union[Broken, str]] = ..., array: _Optional[str] = ..., model: _Optional[str] = ..., batch_size: _Optional[float] = ..., total_iterations: _Optional[float] = ..., weight: _Optional[float] = ..., expected_s: _Optional[float] = ..., comment: _Optional[str] = ..., notify: _Optional[str] = ..., no_slurm_environment: _Optional[bool] = ..., extra: _Optional[_Mapping[str, str]] = ..., adaptive: _Optional[bool] = ..., fixed_batch: _Optional[bool] = ..., submit_host: _Optional[str] = ..., open_ended: _Optional[bool] = ..., deadline_value: _Optional[float] = ..., warn_script_only: _Optional[bool] = ..., warn_at_preemption: _Optional[bool] = ..., requeue_on_timeout: _Optional[bool] = ..., keep_checkpoints: _Optional[int] = ..., resume_from: _Optional[str] = ..., on_hang: _Optional[_Union[OnHang, str]] = ..., hang_factor: _Optional[float] = ..., retry_elsewhere: _Optional[bool] = ..., label: _Optional[_Union[Label, str]] = ..., sweep: _Optional[_Union[SweepTable, _Mapping]] = ..., umask: _Optional[int] = ..., ntasks: _Optional[int] = ..., ntasks_per_node: _Optional[int] = ..., cpus_per_task: _Optional[int] = ..., notify_url: _Optional[str] = ..., mail_user: _Optional[str] = ..., container: _Optional[str] = ..., container_mounts: _Optional[str] = ..., deadline_kind: _Optional[_Union[DeadlineKind, str]] = ..., reservation: _Optional[str] = ..., constraint: _Optional[str] = ..., cell: _Optional[str] = ..., sla: _Optional[str] = ..., time_min_s: _Optional[float] = ..., tmp_bytes: _Optional[int] = ..., gpu_retries: _Optional[int] = ..., max_nodes: _Optional[int] = ..., guarantee: _Optional[_Union[Guarantee, str]] = ..., target_accuracy: _Optional[float] = ..., stop_when: _Optional[_Union[StopWhen, str]] = ..., stop_under_load: _Optional[_Union[StopUnderLoad, str]] = ..., in_place: _Optional[bool] = ..., terminal: _Optional[str] = ..., tasks: _Optional[_Iterable[str]] = ..., script_path: _Optional[str] = ..., gpus_by_type: _Optional[str] = ...) -> None: ...

class SweepTable(_message.Message):
    __slots__ = ("columns", "rows", "halving")
    COLUMNS_FIELD_NUMBER: _ClassVar[int]
    ROWS_FIELD_NUMBER: _ClassVar[int]
    HALVING_FIELD_NUMBER: _ClassVar[int]
    columns: _containers.RepeatedScalarFieldContainer[str]
    rows: _containers.RepeatedCompositeFieldContainer[SweepRow]
    halving: Halving
    def __init__(self, columns: _Optional[_Iterable[str]] = ..., rows: _Optional[_Iterable[_Union[SweepRow, _Mapping]]] = ..., halving: _Optional[_Union[Halving, _Mapping]] = ...) -> None: ...

class SweepRow(_message.Message):
    __slots__ = ("values",)
    VALUES_FIELD_NUMBER: _ClassVar[int]
    values: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, values: _Optional[_Iterable[str]] = ...) -> None: ...

class Halving(_message.Message):
    __slots__ = ("metric", "mode", "eta", "rung", "most")
    METRIC_FIELD_NUMBER: _ClassVar[int]
    MODE_FIELD_NUMBER: _ClassVar[int]
    ETA_FIELD_NUMBER: _ClassVar[int]
    RUNG_FIELD_NUMBER: _ClassVar[int]
    MOST_FIELD_NUMBER: _ClassVar[int]
    metric: str
    mode: str
    eta: int
    rung: int
    most: int
    def __init__(self, metric: _Optional[str] = ..., mode: _Optional[str] = ..., eta: _Optional[int] = ..., rung: _Optional[int] = ..., most: _Optional[int] = ...) -> None: ...

class SubmitRequest(_message.Message):
    __slots__ = ("request_id", "jobs", "test_only", "environment", "require_sla")
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    JOBS_FIELD_NUMBER: _ClassVar[int]
    TEST_ONLY_FIELD_NUMBER: _ClassVar[int]
    ENVIRONMENT_FIELD_NUMBER: _ClassVar[int]
    REQUIRE_SLA_FIELD_NUMBER: _ClassVar[int]
    request_id: str
    jobs: _containers.RepeatedCompositeFieldContainer[JobRequest]
    test_only: bool
    environment: _containers.RepeatedCompositeFieldContainer[EnvironmentVariable]
    require_sla: bool
    def __init__(self, request_id: _Optional[str] = ..., jobs: _Optional[_Iterable[_Union[JobRequest, _Mapping]]] = ..., test_only: _Optional[bool] = ..., environment: _Optional[_Iterable[_Union[EnvironmentVariable, _Mapping]]] = ..., require_sla: _Optional[bool] = ...) -> None: ...

class Submitted(_message.Message):
    __slots__ = ("job", "elements")
    JOB_FIELD_NUMBER: _ClassVar[int]
    ELEMENTS_FIELD_NUMBER: _ClassVar[int]
    job: int
    elements: int
    def __init__(self, job: _Optional[int] = ..., elements: _Optional[int] = ...) -> None: ...

class Supposed(_message.Message):
    __slots__ = ("start_at", "basis", "start", "end", "deadline")
    START_AT_FIELD_NUMBER: _ClassVar[int]
    BASIS_FIELD_NUMBER: _ClassVar[int]
    START_FIELD_NUMBER: _ClassVar[int]
    END_FIELD_NUMBER: _ClassVar[int]
    DEADLINE_FIELD_NUMBER: _ClassVar[int]
    start_at: float
    basis: str
    start: PredictedMoment
    end: PredictedMoment
    deadline: DeadlineOutlook
    def __init__(self, start_at: _Optional[float] = ..., basis: _Optional[str] = ..., start: _Optional[_Union[PredictedMoment, _Mapping]] = ..., end: _Optional[_Union[PredictedMoment, _Mapping]] = ..., deadline: _Optional[_Union[DeadlineOutlook, _Mapping]] = ...) -> None: ...

class DeadlineOutlook(_message.Message):
    __slots__ = ("job", "deadline_at", "on_time", "verdict", "earliest_at", "end")
    JOB_FIELD_NUMBER: _ClassVar[int]
    DEADLINE_AT_FIELD_NUMBER: _ClassVar[int]
    ON_TIME_FIELD_NUMBER: _ClassVar[int]
    VERDICT_FIELD_NUMBER: _ClassVar[int]
    EARLIEST_AT_FIELD_NUMBER: _ClassVar[int]
    END_FIELD_NUMBER: _ClassVar[int]
    job: int
    deadline_at: float
    on_time: float
    verdict: str
    earliest_at: float
    end: PredictedMoment
    def __init__(self, job: _Optional[int] = ..., deadline_at: _Optional[float] = ..., on_time: _Optional[float] = ..., verdict: _Optional[str] = ..., earliest_at: _Optional[float] = ..., end: _Optional[_Union[PredictedMoment, _Mapping]] = ...) -> None: ...

class SubmitReply(_message.Message):
    __slots__ = ("jobs", "warnings", "supposed", "deadlines", "declined")
    JOBS_FIELD_NUMBER: _ClassVar[int]
    WARNINGS_FIELD_NUMBER: _ClassVar[int]
    SUPPOSED_FIELD_NUMBER: _ClassVar[int]
    DEADLINES_FIELD_NUMBER: _ClassVar[int]
    DECLINED_FIELD_NUMBER: _ClassVar[int]
    jobs: _containers.RepeatedCompositeFieldContainer[Submitted]
    warnings: _containers.RepeatedScalarFieldContainer[str]
    supposed: _containers.RepeatedCompositeFieldContainer[Supposed]
    deadlines: _containers.RepeatedCompositeFieldContainer[DeadlineOutlook]
    declined: _containers.RepeatedCompositeFieldContainer[Declined]
    def __init__(self, jobs: _Optional[_Iterable[_Union[Submitted, _Mapping]]] = ..., warnings: _Optional[_Iterable[str]] = ..., supposed: _Optional[_Iterable[_Union[Supposed, _Mapping]]] = ..., deadlines: _Optional[_Iterable[_Union[DeadlineOutlook, _Mapping]]] = ..., declined: _Optional[_Iterable[_Union[Declined, _Mapping]]] = ...) -> None: ...

class Declined(_message.Message):
    __slots__ = ("place", "deadline", "why")
    PLACE_FIELD_NUMBER: _ClassVar[int]
    DEADLINE_FIELD_NUMBER: _ClassVar[int]
    WHY_FIELD_NUMBER: _ClassVar[int]
    place: int
    deadline: DeadlineOutlook
    why: str
    def __init__(self, place: _Optional[int] = ..., deadline: _Optional[_Union[DeadlineOutlook, _Mapping]] = ..., why: _Optional[str] = ...) -> None: ...

class RunView(_message.Message):
    __slots__ = ("run", "layout", "started_at", "ended_at", "end", "code", "signal", "executed_s", "last_step", "gpu_memory_bytes")
    RUN_FIELD_NUMBER: _ClassVar[int]
    LAYOUT_FIELD_NUMBER: _ClassVar[int]
    STARTED_AT_FIELD_NUMBER: _ClassVar[int]
    ENDED_AT_FIELD_NUMBER: _ClassVar[int]
    END_FIELD_NUMBER: _ClassVar[int]
    CODE_FIELD_NUMBER: _ClassVar[int]
    SIGNAL_FIELD_NUMBER: _ClassVar[int]
    EXECUTED_S_FIELD_NUMBER: _ClassVar[int]
    LAST_STEP_FIELD_NUMBER: _ClassVar[int]
    GPU_MEMORY_BYTES_FIELD_NUMBER: _ClassVar[int]
    run: int
    layout: _containers.RepeatedCompositeFieldContainer[_run_pb2.Share]
    started_at: float
    ended_at: float
    end: str
    code: int
    signal: int
    executed_s: float
    last_step: int
    gpu_memory_bytes: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, run: _Optional[int] = ..., layout: _Optional[_Iterable[_Union[_run_pb2.Share, _Mapping]]] = ..., started_at: _Optional[float] = ..., ended_at: _Optional[float] = ..., end: _Optional[str] = ..., code: _Optional[int] = ..., signal: _Optional[int] = ..., executed_s: _Optional[float] = ..., last_step: _Optional[int] = ..., gpu_memory_bytes: _Optional[_Iterable[int]] = ...) -> None: ...

class EventView(_message.Message):
    __slots__ = ("at", "kind", "actor", "text", "run", "node")
    AT_FIELD_NUMBER: _ClassVar[int]
    KIND_FIELD_NUMBER: _ClassVar[int]
    ACTOR_FIELD_NUMBER: _ClassVar[int]
    TEXT_FIELD_NUMBER: _ClassVar[int]
    RUN_FIELD_NUMBER: _ClassVar[int]
    NODE_FIELD_NUMBER: _ClassVar[int]
    at: float
    kind: str
    actor: str
    text: str
    run: int
    node: str
    def __init__(self, at: _Optional[float] = ..., kind: _Optional[str] = ..., actor: _Optional[str] = ..., text: _Optional[str] = ..., run: _Optional[int] = ..., node: _Optional[str] = ...) -> None: ...

class JobView(_message.Message):
    __slots__ = ("job", "array_job", "array_task", "name", "user", "vc", "partition", "state", "reason", "gpus", "gang", "gpu_types", "nodes", "submitted_at", "first_started_at", "started_at", "ended_at", "run_s", "gpu_s", "starts", "preemptions", "migrations", "resizes", "failures", "code", "signal", "time_limit_s", "priority", "held", "position", "predicted_start_at", "predicted_basis", "array_limit", "lost_s", "begin_at", "deadline_at", "run", "priority_class", "dependencies", "cancelled_by", "progress", "comment", "model", "where", "account", "predicted_end_at", "restart_s", "starting_s", "gpu_share", "asked", "training", "predicted_start_p10_at", "predicted_start_p90_at", "predicted_end_p10_at", "predicted_end_p90_at", "gpu_used", "steps", "cpu_s", "peak_memory_bytes", "working_directory", "interactive", "script_cpu_s", "script_peak_bytes", "gpus_by_type")
    JOB_FIELD_NUMBER: _ClassVar[int]
    ARRAY_JOB_FIELD_NUMBER: _ClassVar[int]
    ARRAY_TASK_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    USER_FIELD_NUMBER: _ClassVar[int]
    VC_FIELD_NUMBER: _ClassVar[int]
    PARTITION_FIELD_NUMBER: _ClassVar[int]
    STATE_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    GPUS_FIELD_NUMBER: _ClassVar[int]
    GANG_FIELD_NUMBER: _ClassVar[int]
    GPU_TYPES_FIELD_NUMBER: _ClassVar[int]
    NODES_FIELD_NUMBER: _ClassVar[int]
    SUBMITTED_AT_FIELD_NUMBER: _ClassVar[int]
    FIRST_STARTED_AT_FIELD_NUMBER: _ClassVar[int]
    STARTED_AT_FIELD_NUMBER: _ClassVar[int]
    ENDED_AT_FIELD_NUMBER: _ClassVar[int]
    RUN_S_FIELD_NUMBER: _ClassVar[int]
    GPU_S_FIELD_NUMBER: _ClassVar[int]
    STARTS_FIELD_NUMBER: _ClassVar[int]
    PREEMPTIONS_FIELD_NUMBER: _ClassVar[int]
    MIGRATIONS_FIELD_NUMBER: _ClassVar[int]
    RESIZES_FIELD_NUMBER: _ClassVar[int]
    FAILURES_FIELD_NUMBER: _ClassVar[int]
    CODE_FIELD_NUMBER: _ClassVar[int]
    SIGNAL_FIELD_NUMBER: _ClassVar[int]
    TIME_LIMIT_S_FIELD_NUMBER: _ClassVar[int]
    PRIORITY_FIELD_NUMBER: _ClassVar[int]
    HELD_FIELD_NUMBER: _ClassVar[int]
    POSITION_FIELD_NUMBER: _ClassVar[int]
    PREDICTED_START_AT_FIELD_NUMBER: _ClassVar[int]
    PREDICTED_BASIS_FIELD_NUMBER: _ClassVar[int]
    ARRAY_LIMIT_FIELD_NUMBER: _ClassVar[int]
    LOST_S_FIELD_NUMBER: _ClassVar[int]
    BEGIN_AT_FIELD_NUMBER: _ClassVar[int]
    DEADLINE_AT_FIELD_NUMBER: _ClassVar[int]
    RUN_FIELD_NUMBER: _ClassVar[int]
    PRIORITY_CLASS_FIELD_NUMBER: _ClassVar[int]
    DEPENDENCIES_FIELD_NUMBER: _ClassVar[int]
    CANCELLED_BY_FIELD_NUMBER: _ClassVar[int]
    PROGRESS_FIELD_NUMBER: _ClassVar[int]
    COMMENT_FIELD_NUMBER: _ClassVar[int]
    MODEL_FIELD_NUMBER: _ClassVar[int]
    WHERE_FIELD_NUMBER: _ClassVar[int]
    ACCOUNT_FIELD_NUMBER: _ClassVar[int]
    PREDICTED_END_AT_FIELD_NUMBER: _ClassVar[int]
    RESTART_S_FIELD_NUMBER: _ClassVar[int]
    STARTING_S_FIELD_NUMBER: _ClassVar[int]
    GPU_SHARE_FIELD_NUMBER: _ClassVar[int]
    ASKED_FIELD_NUMBER: _ClassVar[int]
    TRAINING_FIELD_NUMBER: _ClassVar[int]
    PREDICTED_START_P10_AT_FIELD_NUMBER: _ClassVar[int]
    PREDICTED_START_P90_AT_FIELD_NUMBER: _ClassVar[int]
    PREDICTED_END_P10_AT_FIELD_NUMBER: _ClassVar[int]
    PREDICTED_END_P90_AT_FIELD_NUMBER: _ClassVar[int]
    GPU_USED_FIELD_NUMBER: _ClassVar[int]
    STEPS_FIELD_NUMBER: _ClassVar[int]
    CPU_S_FIELD_NUMBER: _ClassVar[int]
    PEAK_MEMORY_BYTES_FIELD_NUMBER: _ClassVar[int]
    WORKING_DIRECTORY_FIELD_NUMBER: _ClassVar[int]
    INTERACTIVE_FIELD_NUMBER: _ClassVar[int]
    SCRIPT_CPU_S_FIELD_NUMBER: _ClassVar[int]
    SCRIPT_PEAK_BYTES_FIELD_NUMBER: _ClassVar[int]
    GPUS_BY_TYPE_FIELD_NUMBER: _ClassVar[int]
    job: int
    array_job: int
    array_task: int
    name: str
    user: str
    vc: str
    partition: str
    state: str
    reason: str
    gpus: int
    gang: _containers.RepeatedScalarFieldContainer[int]
    gpu_types: _containers.RepeatedScalarFieldContainer[str]
    nodes: _containers.RepeatedScalarFieldContainer[str]
    submitted_at: float
    first_started_at: float
    started_at: float
    ended_at: float
    run_s: float
    gpu_s: float
    starts: int
    preemptions: int
    migrations: int
    resizes: int
    failures: int
    code: int
    signal: int
    time_limit_s: float
    priority: float
    held: bool
    position: int
    predicted_start_at: float
    predicted_basis: str
    array_limit: int
    lost_s: float
    begin_at: float
    deadline_at: float
    run: int
    priority_class: str
    dependencies: _containers.RepeatedCompositeFieldContainer[Dependency]
    cancelled_by: str
    progress: float
    comment: str
    model: str
    where: _containers.RepeatedCompositeFieldContainer[GpusOnNode]
    account: str
    predicted_end_at: float
    restart_s: float
    starting_s: float
    gpu_share: float
    asked: JobRequest
    training: TrainingNow
    predicted_start_p10_at: float
    predicted_start_p90_at: float
    predicted_end_p10_at: float
    predicted_end_p90_at: float
    gpu_used: float
    steps: _containers.RepeatedCompositeFieldContainer[_run_pb2.StepRecord]
    cpu_s: float
    peak_memory_bytes: int
    working_directory: str
    interactive: bool
    script_cpu_s: float
    script_peak_bytes: int
    gpus_by_type: str
    def __init__(self, job: _Optional[int] = ..., array_job: _Optional[int] = ..., array_task: _Optional[int] = ..., name: _Optional[str] = ..., user: _Optional[str] = ..., vc: _Optional[str] = ..., partition: _Optional[str] = ..., state: _Optional[str] = ..., reason: _Optional[str] = ..., gpus: _Optional[int] = ..., gang: _Optional[_Iterable[int]] = ..., gpu_types: _Optional[_Iterable[str]] = ..., nodes: _Optional[_Iterable[str]] = ..., submitted_at: _Optional[float] = ..., first_started_at: _Optional[float] = ..., started_at: _Optional[float] = ..., ended_at: _Optional[float] = ..., run_s: _Optional[float] = ..., gpu_s: _Optional[float] = ..., starts: _Optional[int] = ..., preemptions: _Optional[int] = ..., migrations: _Optional[int] = ..., resizes: _Optional[int] = ..., failures: _Optional[int] = ..., code: _Optional[int] = ..., signal: _Optional[int] = ..., time_limit_s: _Optional[float] = ..., priority: _Optional[float] = ..., held: _Optional[bool] = ..., position: _Optional[int] = ..., predicted_start_at: _Optional[float] = ..., predicted_basis: _Optional[str] = ..., array_limit: _Optional[int] = ..., lost_s: _Optional[float] = ..., begin_at: _Optional[float] = ..., deadline_at: _Optional[float] = ..., run: _Optional[int] = ..., priority_class: _Optional[str] = ..., dependencies: _Optional[_Iterable[_Union[Dependency, _Mapping]]] = ..., cancelled_by: _Optional[str] = ..., progress: _Optional[float] = ..., comment: _Optional[str] = ..., model: _Optional[str] = ..., where: _Optional[_Iterable[_Union[GpusOnNode, _Mapping]]] = ..., account: _Optional[str] = ..., predicted_end_at: _Optional[float] = ..., restart_s: _Optional[float] = ..., starting_s: _Optional[float] = ..., gpu_share: _Optional[float] = ..., asked: _Optional[_Union[JobRequest, _Mapping]] = ..., training: _Optional[_Union[TrainingNow, _Mapping]] = ..., predicted_start_p10_at: _Optional[float] = ..., predicted_start_p90_at: _Optional[float] = ..., predicted_end_p10_at: _Optional[float] = ..., predicted_end_p90_at: _Optional[float] = ..., gpu_used: _Optional[float] = ..., steps: _Optional[_Iterable[_Union[_run_pb2.StepRecord, _Mapping]]] = ..., cpu_s: _Optional[float] = ..., peak_memory_bytes: _Optional[int] = ..., working_directory: _Optional[str] = ..., interactive: _Optional[bool] = ..., script_cpu_s: _Optional[float] = ..., script_peak_bytes: _Optional[int] = ..., gpus_by_type: _Optional[str] = ...) -> None: ...

class TrainingNow(_message.Message):
    __slots__ = ("loss", "steps_s", "samples_s", "gpu_memory_bytes", "gpu_utilization", "report_age_s", "metrics", "not_finite", "gpu_idle_s")
    class MetricsEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: float
        def __init__(self, key: _Optional[str] = ..., value: _Optional[float] = ...) -> None: ...
    LOSS_FIELD_NUMBER: _ClassVar[int]
    STEPS_S_FIELD_NUMBER: _ClassVar[int]
    SAMPLES_S_FIELD_NUMBER: _ClassVar[int]
    GPU_MEMORY_BYTES_FIELD_NUMBER: _ClassVar[int]
    GPU_UTILIZATION_FIELD_NUMBER: _ClassVar[int]
    REPORT_AGE_S_FIELD_NUMBER: _ClassVar[int]
    METRICS_FIELD_NUMBER: _ClassVar[int]
    NOT_FINITE_FIELD_NUMBER: _ClassVar[int]
    GPU_IDLE_S_FIELD_NUMBER: _ClassVar[int]
    loss: float
    steps_s: float
    samples_s: float
    gpu_memory_bytes: int
    gpu_utilization: float
    report_age_s: float
    metrics: _containers.ScalarMap[str, float]
    not_finite: _containers.RepeatedScalarFieldContainer[str]
    gpu_idle_s: float
    def __init__(self, loss: _Optional[float] = ..., steps_s: _Optional[float] = ..., samples_s: _Optional[float] = ..., gpu_memory_bytes: _Optional[int] = ..., gpu_utilization: _Optional[float] = ..., report_age_s: _Optional[float] = ..., metrics: _Optional[_Mapping[str, float]] = ..., not_finite: _Optional[_Iterable[str]] = ..., gpu_idle_s: _Optional[float] = ...) -> None: ...

class GpusOnNode(_message.Message):
    __slots__ = ("node", "gpus")
    NODE_FIELD_NUMBER: _ClassVar[int]
    GPUS_FIELD_NUMBER: _ClassVar[int]
    node: str
    gpus: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, node: _Optional[str] = ..., gpus: _Optional[_Iterable[int]] = ...) -> None: ...

class Filter(_message.Message):
    __slots__ = ("jobs", "users", "partitions", "vcs", "states", "nodes", "names", "elements", "all_users")
    JOBS_FIELD_NUMBER: _ClassVar[int]
    USERS_FIELD_NUMBER: _ClassVar[int]
    PARTITIONS_FIELD_NUMBER: _ClassVar[int]
    VCS_FIELD_NUMBER: _ClassVar[int]
    STATES_FIELD_NUMBER: _ClassVar[int]
    NODES_FIELD_NUMBER: _ClassVar[int]
    NAMES_FIELD_NUMBER: _ClassVar[int]
    ELEMENTS_FIELD_NUMBER: _ClassVar[int]
    ALL_USERS_FIELD_NUMBER: _ClassVar[int]
    jobs: _containers.RepeatedScalarFieldContainer[int]
    users: _containers.RepeatedScalarFieldContainer[str]
    partitions: _containers.RepeatedScalarFieldContainer[str]
    vcs: _containers.RepeatedScalarFieldContainer[str]
    states: _containers.RepeatedScalarFieldContainer[str]
    nodes: _containers.RepeatedScalarFieldContainer[str]
    names: _containers.RepeatedScalarFieldContainer[str]
    elements: _containers.RepeatedCompositeFieldContainer[ArrayElements]
    all_users: bool
    def __init__(self, jobs: _Optional[_Iterable[int]] = ..., users: _Optional[_Iterable[str]] = ..., partitions: _Optional[_Iterable[str]] = ..., vcs: _Optional[_Iterable[str]] = ..., states: _Optional[_Iterable[str]] = ..., nodes: _Optional[_Iterable[str]] = ..., names: _Optional[_Iterable[str]] = ..., elements: _Optional[_Iterable[_Union[ArrayElements, _Mapping]]] = ..., all_users: _Optional[bool] = ...) -> None: ...

class ArrayElements(_message.Message):
    __slots__ = ("array_job", "tasks")
    ARRAY_JOB_FIELD_NUMBER: _ClassVar[int]
    TASKS_FIELD_NUMBER: _ClassVar[int]
    array_job: int
    tasks: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, array_job: _Optional[int] = ..., tasks: _Optional[_Iterable[int]] = ...) -> None: ...

class QueueRequest(_message.Message):
    __slots__ = ("filter", "predict", "unfold", "brief", "columns")
    FILTER_FIELD_NUMBER: _ClassVar[int]
    PREDICT_FIELD_NUMBER: _ClassVar[int]
    UNFOLD_FIELD_NUMBER: _ClassVar[int]
    BRIEF_FIELD_NUMBER: _ClassVar[int]
    COLUMNS_FIELD_NUMBER: _ClassVar[int]
    filter: Filter
    predict: bool
    unfold: bool
    brief: bool
    columns: bool
    def __init__(self, filter: _Optional[_Union[Filter, _Mapping]] = ..., predict: _Optional[bool] = ..., unfold: _Optional[bool] = ..., brief: _Optional[bool] = ..., columns: _Optional[bool] = ...) -> None: ...

class FoldedView(_message.Message):
    __slots__ = ("first", "tasks", "count")
    FIRST_FIELD_NUMBER: _ClassVar[int]
    TASKS_FIELD_NUMBER: _ClassVar[int]
    COUNT_FIELD_NUMBER: _ClassVar[int]
    first: JobView
    tasks: str
    count: int
    def __init__(self, first: _Optional[_Union[JobView, _Mapping]] = ..., tasks: _Optional[str] = ..., count: _Optional[int] = ...) -> None: ...

class QueueSummary(_message.Message):
    __slots__ = ("running", "running_gpus", "pending", "pending_gpus", "gpus", "busy_gpus", "policy", "round", "round_s", "others", "policy_failure")
    RUNNING_FIELD_NUMBER: _ClassVar[int]
    RUNNING_GPUS_FIELD_NUMBER: _ClassVar[int]
    PENDING_FIELD_NUMBER: _ClassVar[int]
    PENDING_GPUS_FIELD_NUMBER: _ClassVar[int]
    GPUS_FIELD_NUMBER: _ClassVar[int]
    BUSY_GPUS_FIELD_NUMBER: _ClassVar[int]
    POLICY_FIELD_NUMBER: _ClassVar[int]
    ROUND_FIELD_NUMBER: _ClassVar[int]
    ROUND_S_FIELD_NUMBER: _ClassVar[int]
    OTHERS_FIELD_NUMBER: _ClassVar[int]
    POLICY_FAILURE_FIELD_NUMBER: _ClassVar[int]
    running: int
    running_gpus: int
    pending: int
    pending_gpus: int
    gpus: int
    busy_gpus: int
    policy: str
    round: int
    round_s: float
    others: int
    policy_failure: str
    def __init__(self, running: _Optional[int] = ..., running_gpus: _Optional[int] = ..., pending: _Optional[int] = ..., pending_gpus: _Optional[int] = ..., gpus: _Optional[int] = ..., busy_gpus: _Optional[int] = ..., policy: _Optional[str] = ..., round: _Optional[int] = ..., round_s: _Optional[float] = ..., others: _Optional[int] = ..., policy_failure: _Optional[str] = ...) -> None: ...

class JobColumns(_message.Message):
    __slots__ = ("count", "columns")
    COUNT_FIELD_NUMBER: _ClassVar[int]
    COLUMNS_FIELD_NUMBER: _ClassVar[int]
    count: int
    columns: _containers.RepeatedCompositeFieldContainer[JobColumn]
    def __init__(self, count: _Optional[int] = ..., columns: _Optional[_Iterable[_Union[JobColumn, _Mapping]]] = ...) -> None: ...

class JobColumn(_message.Message):
    __slots__ = ("field", "places", "text", "ends", "reals", "numbers", "views")
    FIELD_FIELD_NUMBER: _ClassVar[int]
    PLACES_FIELD_NUMBER: _ClassVar[int]
    TEXT_FIELD_NUMBER: _ClassVar[int]
    ENDS_FIELD_NUMBER: _ClassVar[int]
    REALS_FIELD_NUMBER: _ClassVar[int]
    NUMBERS_FIELD_NUMBER: _ClassVar[int]
    VIEWS_FIELD_NUMBER: _ClassVar[int]
    field: int
    places: _containers.RepeatedScalarFieldContainer[int]
    text: str
    ends: _containers.RepeatedScalarFieldContainer[int]
    reals: _containers.RepeatedScalarFieldContainer[float]
    numbers: _containers.RepeatedScalarFieldContainer[int]
    views: _containers.RepeatedCompositeFieldContainer[JobView]
    def __init__(self, field: _Optional[int] = ..., places: _Optional[_Iterable[int]] = ..., text: _Optional[str] = ..., ends: _Optional[_Iterable[int]] = ..., reals: _Optional[_Iterable[float]] = ..., numbers: _Optional[_Iterable[int]] = ..., views: _Optional[_Iterable[_Union[JobView, _Mapping]]] = ...) -> None: ...

class QueuePage(_message.Message):
    __slots__ = ("jobs", "folded", "summary", "columns")
    JOBS_FIELD_NUMBER: _ClassVar[int]
    FOLDED_FIELD_NUMBER: _ClassVar[int]
    SUMMARY_FIELD_NUMBER: _ClassVar[int]
    COLUMNS_FIELD_NUMBER: _ClassVar[int]
    jobs: _containers.RepeatedCompositeFieldContainer[JobView]
    folded: _containers.RepeatedCompositeFieldContainer[FoldedView]
    summary: QueueSummary
    columns: JobColumns
    def __init__(self, jobs: _Optional[_Iterable[_Union[JobView, _Mapping]]] = ..., folded: _Optional[_Iterable[_Union[FoldedView, _Mapping]]] = ..., summary: _Optional[_Union[QueueSummary, _Mapping]] = ..., columns: _Optional[_Union[JobColumns, _Mapping]] = ...) -> None: ...

class ShowRequest(_message.Message):
    __slots__ = ("filter", "why_order", "skip", "order_only")
    FILTER_FIELD_NUMBER: _ClassVar[int]
    WHY_ORDER_FIELD_NUMBER: _ClassVar[int]
    SKIP_FIELD_NUMBER: _ClassVar[int]
    ORDER_ONLY_FIELD_NUMBER: _ClassVar[int]
    filter: Filter
    why_order: bool
    skip: int
    order_only: bool
    def __init__(self, filter: _Optional[_Union[Filter, _Mapping]] = ..., why_order: _Optional[bool] = ..., skip: _Optional[int] = ..., order_only: _Optional[bool] = ...) -> None: ...

class JobOrder(_message.Message):
    __slots__ = ("policy", "jobs", "terms")
    POLICY_FIELD_NUMBER: _ClassVar[int]
    JOBS_FIELD_NUMBER: _ClassVar[int]
    TERMS_FIELD_NUMBER: _ClassVar[int]
    policy: str
    jobs: _containers.RepeatedScalarFieldContainer[int]
    terms: _containers.RepeatedCompositeFieldContainer[OrderTerm]
    def __init__(self, policy: _Optional[str] = ..., jobs: _Optional[_Iterable[int]] = ..., terms: _Optional[_Iterable[_Union[OrderTerm, _Mapping]]] = ...) -> None: ...

class OrderTerm(_message.Message):
    __slots__ = ("name", "values")
    NAME_FIELD_NUMBER: _ClassVar[int]
    VALUES_FIELD_NUMBER: _ClassVar[int]
    name: str
    values: _containers.RepeatedScalarFieldContainer[float]
    def __init__(self, name: _Optional[str] = ..., values: _Optional[_Iterable[float]] = ...) -> None: ...

class JobDetail(_message.Message):
    __slots__ = ("job", "request", "runs", "events", "why_pending", "order_numbers", "working_directory", "output", "error", "last_checkpoint_step", "last_checkpoint", "training", "beside", "host_share", "awaited_by", "cause", "unsaved")
    class OrderNumbersEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    JOB_FIELD_NUMBER: _ClassVar[int]
    REQUEST_FIELD_NUMBER: _ClassVar[int]
    RUNS_FIELD_NUMBER: _ClassVar[int]
    EVENTS_FIELD_NUMBER: _ClassVar[int]
    WHY_PENDING_FIELD_NUMBER: _ClassVar[int]
    ORDER_NUMBERS_FIELD_NUMBER: _ClassVar[int]
    WORKING_DIRECTORY_FIELD_NUMBER: _ClassVar[int]
    OUTPUT_FIELD_NUMBER: _ClassVar[int]
    ERROR_FIELD_NUMBER: _ClassVar[int]
    LAST_CHECKPOINT_STEP_FIELD_NUMBER: _ClassVar[int]
    LAST_CHECKPOINT_FIELD_NUMBER: _ClassVar[int]
    TRAINING_FIELD_NUMBER: _ClassVar[int]
    BESIDE_FIELD_NUMBER: _ClassVar[int]
    HOST_SHARE_FIELD_NUMBER: _ClassVar[int]
    AWAITED_BY_FIELD_NUMBER: _ClassVar[int]
    CAUSE_FIELD_NUMBER: _ClassVar[int]
    UNSAVED_FIELD_NUMBER: _ClassVar[int]
    job: JobView
    request: JobRequest
    runs: _containers.RepeatedCompositeFieldContainer[RunView]
    events: _containers.RepeatedCompositeFieldContainer[EventView]
    why_pending: _containers.RepeatedScalarFieldContainer[str]
    order_numbers: _containers.ScalarMap[str, str]
    working_directory: str
    output: str
    error: str
    last_checkpoint_step: int
    last_checkpoint: str
    training: TrainingView
    beside: _containers.RepeatedScalarFieldContainer[int]
    host_share: str
    awaited_by: _containers.RepeatedScalarFieldContainer[int]
    cause: str
    unsaved: UnsavedView
    def __init__(self, job: _Optional[_Union[JobView, _Mapping]] = ..., request: _Optional[_Union[JobRequest, _Mapping]] = ..., runs: _Optional[_Iterable[_Union[RunView, _Mapping]]] = ..., events: _Optional[_Iterable[_Union[EventView, _Mapping]]] = ..., why_pending: _Optional[_Iterable[str]] = ..., order_numbers: _Optional[_Mapping[str, str]] = ..., working_directory: _Optional[str] = ..., output: _Optional[str] = ..., error: _Optional[str] = ..., last_checkpoint_step: _Optional[int] = ..., last_checkpoint: _Optional[str] = ..., training: _Optional[_Union[TrainingView, _Mapping]] = ..., beside: _Optional[_Iterable[int]] = ..., host_share: _Optional[str] = ..., awaited_by: _Optional[_Iterable[int]] = ..., cause: _Optional[str] = ..., unsaved: _Optional[_Union[UnsavedView, _Mapping]] = ...) -> None: ...

class TrainingView(_message.Message):
    __slots__ = ("gpu_type", "model", "observations", "gradient_sqr", "gradient_var", "initial", "maximum", "local_min", "local_max", "may_accumulate", "fixed", "batch", "nodes", "replicas", "progress", "sizes", "restart_s", "save_s", "ignored")
    GPU_TYPE_FIELD_NUMBER: _ClassVar[int]
    MODEL_FIELD_NUMBER: _ClassVar[int]
    OBSERVATIONS_FIELD_NUMBER: _ClassVar[int]
    GRADIENT_SQR_FIELD_NUMBER: _ClassVar[int]
    GRADIENT_VAR_FIELD_NUMBER: _ClassVar[int]
    INITIAL_FIELD_NUMBER: _ClassVar[int]
    MAXIMUM_FIELD_NUMBER: _ClassVar[int]
    LOCAL_MIN_FIELD_NUMBER: _ClassVar[int]
    LOCAL_MAX_FIELD_NUMBER: _ClassVar[int]
    MAY_ACCUMULATE_FIELD_NUMBER: _ClassVar[int]
    FIXED_FIELD_NUMBER: _ClassVar[int]
    BATCH_FIELD_NUMBER: _ClassVar[int]
    NODES_FIELD_NUMBER: _ClassVar[int]
    REPLICAS_FIELD_NUMBER: _ClassVar[int]
    PROGRESS_FIELD_NUMBER: _ClassVar[int]
    SIZES_FIELD_NUMBER: _ClassVar[int]
    RESTART_S_FIELD_NUMBER: _ClassVar[int]
    SAVE_S_FIELD_NUMBER: _ClassVar[int]
    IGNORED_FIELD_NUMBER: _ClassVar[int]
    gpu_type: str
    model: _containers.RepeatedScalarFieldContainer[float]
    observations: int
    gradient_sqr: float
    gradient_var: float
    initial: int
    maximum: int
    local_min: int
    local_max: int
    may_accumulate: bool
    fixed: bool
    batch: Batch
    nodes: int
    replicas: int
    progress: float
    sizes: _containers.RepeatedCompositeFieldContainer[ExpectedGoodput]
    restart_s: float
    save_s: float
    ignored: int
    def __init__(self, gpu_type: _Optional[str] = ..., model: _Optional[_Iterable[float]] = ..., observations: _Optional[int] = ..., gradient_sqr: _Optional[float] = ..., gradient_var: _Optional[float] = ..., initial: _Optional[int] = ..., maximum: _Optional[int] = ..., local_min: _Optional[int] = ..., local_max: _Optional[int] = ..., may_accumulate: _Optional[bool] = ..., fixed: _Optional[bool] = ..., batch: _Optional[_Union[Batch, _Mapping]] = ..., nodes: _Optional[int] = ..., replicas: _Optional[int] = ..., progress: _Optional[float] = ..., sizes: _Optional[_Iterable[_Union[ExpectedGoodput, _Mapping]]] = ..., restart_s: _Optional[float] = ..., save_s: _Optional[float] = ..., ignored: _Optional[int] = ...) -> None: ...

class Batch(_message.Message):
    __slots__ = ("local", "accumulation")
    LOCAL_FIELD_NUMBER: _ClassVar[int]
    ACCUMULATION_FIELD_NUMBER: _ClassVar[int]
    local: int
    accumulation: int
    def __init__(self, local: _Optional[int] = ..., accumulation: _Optional[int] = ...) -> None: ...

class ExpectedGoodput(_message.Message):
    __slots__ = ("gpus", "nodes", "goodput", "throughput", "batch")
    GPUS_FIELD_NUMBER: _ClassVar[int]
    NODES_FIELD_NUMBER: _ClassVar[int]
    GOODPUT_FIELD_NUMBER: _ClassVar[int]
    THROUGHPUT_FIELD_NUMBER: _ClassVar[int]
    BATCH_FIELD_NUMBER: _ClassVar[int]
    gpus: int
    nodes: int
    goodput: float
    throughput: float
    batch: Batch
    def __init__(self, gpus: _Optional[int] = ..., nodes: _Optional[int] = ..., goodput: _Optional[float] = ..., throughput: _Optional[float] = ..., batch: _Optional[_Union[Batch, _Mapping]] = ...) -> None: ...

class ShowReply(_message.Message):
    __slots__ = ("jobs", "total", "order")
    JOBS_FIELD_NUMBER: _ClassVar[int]
    TOTAL_FIELD_NUMBER: _ClassVar[int]
    ORDER_FIELD_NUMBER: _ClassVar[int]
    jobs: _containers.RepeatedCompositeFieldContainer[JobDetail]
    total: int
    order: JobOrder
    def __init__(self, jobs: _Optional[_Iterable[_Union[JobDetail, _Mapping]]] = ..., total: _Optional[int] = ..., order: _Optional[_Union[JobOrder, _Mapping]] = ...) -> None: ...

class HistoryRequest(_message.Message):
    __slots__ = ("filter", "since", "until", "limit", "live_too")
    FILTER_FIELD_NUMBER: _ClassVar[int]
    SINCE_FIELD_NUMBER: _ClassVar[int]
    UNTIL_FIELD_NUMBER: _ClassVar[int]
    LIMIT_FIELD_NUMBER: _ClassVar[int]
    LIVE_TOO_FIELD_NUMBER: _ClassVar[int]
    filter: Filter
    since: float
    until: float
    limit: int
    live_too: bool
    def __init__(self, filter: _Optional[_Union[Filter, _Mapping]] = ..., since: _Optional[float] = ..., until: _Optional[float] = ..., limit: _Optional[int] = ..., live_too: _Optional[bool] = ...) -> None: ...

class HistoryPage(_message.Message):
    __slots__ = ("jobs",)
    JOBS_FIELD_NUMBER: _ClassVar[int]
    jobs: _containers.RepeatedCompositeFieldContainer[JobView]
    def __init__(self, jobs: _Optional[_Iterable[_Union[JobView, _Mapping]]] = ...) -> None: ...

class ActRequest(_message.Message):
    __slots__ = ("action", "filter", "signal", "reason", "only_count", "fresh", "environment", "limit", "after", "signal_to", "step")
    ACTION_FIELD_NUMBER: _ClassVar[int]
    FILTER_FIELD_NUMBER: _ClassVar[int]
    SIGNAL_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    ONLY_COUNT_FIELD_NUMBER: _ClassVar[int]
    FRESH_FIELD_NUMBER: _ClassVar[int]
    ENVIRONMENT_FIELD_NUMBER: _ClassVar[int]
    LIMIT_FIELD_NUMBER: _ClassVar[int]
    AFTER_FIELD_NUMBER: _ClassVar[int]
    SIGNAL_TO_FIELD_NUMBER: _ClassVar[int]
    STEP_FIELD_NUMBER: _ClassVar[int]
    action: Action
    filter: Filter
    signal: int
    reason: str
    only_count: bool
    fresh: bool
    environment: _containers.RepeatedCompositeFieldContainer[EnvironmentVariable]
    limit: int
    after: int
    signal_to: str
    step: int
    def __init__(self, action: _Optional[_Union[Action, str]] = ..., filter: _Optional[_Union[Filter, _Mapping]] = ..., signal: _Optional[int] = ..., reason: _Optional[str] = ..., only_count: _Optional[bool] = ..., fresh: _Optional[bool] = ..., environment: _Optional[_Iterable[_Union[EnvironmentVariable, _Mapping]]] = ..., limit: _Optional[int] = ..., after: _Optional[int] = ..., signal_to: _Optional[str] = ..., step: _Optional[int] = ...) -> None: ...

class Failure(_message.Message):
    __slots__ = ("subject", "why")
    SUBJECT_FIELD_NUMBER: _ClassVar[int]
    WHY_FIELD_NUMBER: _ClassVar[int]
    subject: str
    why: str
    def __init__(self, subject: _Optional[str] = ..., why: _Optional[str] = ...) -> None: ...

class ActReply(_message.Message):
    __slots__ = ("done", "failed", "lines", "next")
    DONE_FIELD_NUMBER: _ClassVar[int]
    FAILED_FIELD_NUMBER: _ClassVar[int]
    LINES_FIELD_NUMBER: _ClassVar[int]
    NEXT_FIELD_NUMBER: _ClassVar[int]
    done: _containers.RepeatedScalarFieldContainer[str]
    failed: _containers.RepeatedCompositeFieldContainer[Failure]
    lines: _containers.RepeatedScalarFieldContainer[str]
    next: int
    def __init__(self, done: _Optional[_Iterable[str]] = ..., failed: _Optional[_Iterable[_Union[Failure, _Mapping]]] = ..., lines: _Optional[_Iterable[str]] = ..., next: _Optional[int] = ...) -> None: ...

class UpdateRequest(_message.Message):
    __slots__ = ("filter", "fields", "set_dependencies", "dependencies")
    class FieldsEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    FILTER_FIELD_NUMBER: _ClassVar[int]
    FIELDS_FIELD_NUMBER: _ClassVar[int]
    SET_DEPENDENCIES_FIELD_NUMBER: _ClassVar[int]
    DEPENDENCIES_FIELD_NUMBER: _ClassVar[int]
    filter: Filter
    fields: _containers.ScalarMap[str, str]
    set_dependencies: bool
    dependencies: _containers.RepeatedCompositeFieldContainer[Dependency]
    def __init__(self, filter: _Optional[_Union[Filter, _Mapping]] = ..., fields: _Optional[_Mapping[str, str]] = ..., set_dependencies: _Optional[bool] = ..., dependencies: _Optional[_Iterable[_Union[Dependency, _Mapping]]] = ...) -> None: ...

class TasksRequest(_message.Message):
    __slots__ = ("job", "after", "only_failed")
    JOB_FIELD_NUMBER: _ClassVar[int]
    AFTER_FIELD_NUMBER: _ClassVar[int]
    ONLY_FAILED_FIELD_NUMBER: _ClassVar[int]
    job: int
    after: int
    only_failed: bool
    def __init__(self, job: _Optional[int] = ..., after: _Optional[int] = ..., only_failed: _Optional[bool] = ...) -> None: ...

class TaskView(_message.Message):
    __slots__ = ("number", "state", "code", "signal", "node", "ran_s", "line")
    NUMBER_FIELD_NUMBER: _ClassVar[int]
    STATE_FIELD_NUMBER: _ClassVar[int]
    CODE_FIELD_NUMBER: _ClassVar[int]
    SIGNAL_FIELD_NUMBER: _ClassVar[int]
    NODE_FIELD_NUMBER: _ClassVar[int]
    RAN_S_FIELD_NUMBER: _ClassVar[int]
    LINE_FIELD_NUMBER: _ClassVar[int]
    number: int
    state: str
    code: int
    signal: int
    node: str
    ran_s: float
    line: str
    def __init__(self, number: _Optional[int] = ..., state: _Optional[str] = ..., code: _Optional[int] = ..., signal: _Optional[int] = ..., node: _Optional[str] = ..., ran_s: _Optional[float] = ..., line: _Optional[str] = ...) -> None: ...

class TasksReply(_message.Message):
    __slots__ = ("job", "name", "total", "running", "done", "failed", "mean_s", "tasks", "more")
    JOB_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    TOTAL_FIELD_NUMBER: _ClassVar[int]
    RUNNING_FIELD_NUMBER: _ClassVar[int]
    DONE_FIELD_NUMBER: _ClassVar[int]
    FAILED_FIELD_NUMBER: _ClassVar[int]
    MEAN_S_FIELD_NUMBER: _ClassVar[int]
    TASKS_FIELD_NUMBER: _ClassVar[int]
    MORE_FIELD_NUMBER: _ClassVar[int]
    job: int
    name: str
    total: int
    running: int
    done: int
    failed: int
    mean_s: float
    tasks: _containers.RepeatedCompositeFieldContainer[TaskView]
    more: bool
    def __init__(self, job: _Optional[int] = ..., name: _Optional[str] = ..., total: _Optional[int] = ..., running: _Optional[int] = ..., done: _Optional[int] = ..., failed: _Optional[int] = ..., mean_s: _Optional[float] = ..., tasks: _Optional[_Iterable[_Union[TaskView, _Mapping]]] = ..., more: _Optional[bool] = ...) -> None: ...

class SweepRequest(_message.Message):
    __slots__ = ("job",)
    JOB_FIELD_NUMBER: _ClassVar[int]
    job: int
    def __init__(self, job: _Optional[int] = ...) -> None: ...

class SweepReply(_message.Message):
    __slots__ = ("table", "elements", "name", "job")
    TABLE_FIELD_NUMBER: _ClassVar[int]
    ELEMENTS_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    JOB_FIELD_NUMBER: _ClassVar[int]
    table: SweepTable
    elements: _containers.RepeatedCompositeFieldContainer[SweepElement]
    name: str
    job: int
    def __init__(self, table: _Optional[_Union[SweepTable, _Mapping]] = ..., elements: _Optional[_Iterable[_Union[SweepElement, _Mapping]]] = ..., name: _Optional[str] = ..., job: _Optional[int] = ...) -> None: ...

class SweepElement(_message.Message):
    __slots__ = ("job", "task", "values", "state", "reason", "step", "metrics", "not_finite", "rungs")
    class MetricsEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: float
        def __init__(self, key: _Optional[str] = ..., value: _Optional[float] = ...) -> None: ...
    JOB_FIELD_NUMBER: _ClassVar[int]
    TASK_FIELD_NUMBER: _ClassVar[int]
    VALUES_FIELD_NUMBER: _ClassVar[int]
    STATE_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    STEP_FIELD_NUMBER: _ClassVar[int]
    METRICS_FIELD_NUMBER: _ClassVar[int]
    NOT_FINITE_FIELD_NUMBER: _ClassVar[int]
    RUNGS_FIELD_NUMBER: _ClassVar[int]
    job: int
    task: int
    values: _containers.RepeatedScalarFieldContainer[str]
    state: str
    reason: str
    step: int
    metrics: _containers.ScalarMap[str, float]
    not_finite: _containers.RepeatedScalarFieldContainer[str]
    rungs: _containers.RepeatedCompositeFieldContainer[RungView]
    def __init__(self, job: _Optional[int] = ..., task: _Optional[int] = ..., values: _Optional[_Iterable[str]] = ..., state: _Optional[str] = ..., reason: _Optional[str] = ..., step: _Optional[int] = ..., metrics: _Optional[_Mapping[str, float]] = ..., not_finite: _Optional[_Iterable[str]] = ..., rungs: _Optional[_Iterable[_Union[RungView, _Mapping]]] = ...) -> None: ...

class RungView(_message.Message):
    __slots__ = ("rung", "step", "value", "stopped")
    RUNG_FIELD_NUMBER: _ClassVar[int]
    STEP_FIELD_NUMBER: _ClassVar[int]
    VALUE_FIELD_NUMBER: _ClassVar[int]
    STOPPED_FIELD_NUMBER: _ClassVar[int]
    rung: int
    step: int
    value: float
    stopped: bool
    def __init__(self, rung: _Optional[int] = ..., step: _Optional[int] = ..., value: _Optional[float] = ..., stopped: _Optional[bool] = ...) -> None: ...

class MetricsRequest(_message.Message):
    __slots__ = ("job",)
    JOB_FIELD_NUMBER: _ClassVar[int]
    job: int
    def __init__(self, job: _Optional[int] = ...) -> None: ...

class MetricCurve(_message.Message):
    __slots__ = ("name", "at", "step", "value")
    NAME_FIELD_NUMBER: _ClassVar[int]
    AT_FIELD_NUMBER: _ClassVar[int]
    STEP_FIELD_NUMBER: _ClassVar[int]
    VALUE_FIELD_NUMBER: _ClassVar[int]
    name: str
    at: _containers.RepeatedScalarFieldContainer[float]
    step: _containers.RepeatedScalarFieldContainer[int]
    value: _containers.RepeatedScalarFieldContainer[float]
    def __init__(self, name: _Optional[str] = ..., at: _Optional[_Iterable[float]] = ..., step: _Optional[_Iterable[int]] = ..., value: _Optional[_Iterable[float]] = ...) -> None: ...

class MetricsReply(_message.Message):
    __slots__ = ("curves", "left_out")
    CURVES_FIELD_NUMBER: _ClassVar[int]
    LEFT_OUT_FIELD_NUMBER: _ClassVar[int]
    curves: _containers.RepeatedCompositeFieldContainer[MetricCurve]
    left_out: int
    def __init__(self, curves: _Optional[_Iterable[_Union[MetricCurve, _Mapping]]] = ..., left_out: _Optional[int] = ...) -> None: ...

class WaitRequest(_message.Message):
    __slots__ = ("filter",)
    FILTER_FIELD_NUMBER: _ClassVar[int]
    filter: Filter
    def __init__(self, filter: _Optional[_Union[Filter, _Mapping]] = ...) -> None: ...

class WaitReply(_message.Message):
    __slots__ = ("job",)
    JOB_FIELD_NUMBER: _ClassVar[int]
    job: JobView
    def __init__(self, job: _Optional[_Union[JobView, _Mapping]] = ...) -> None: ...

class LogsRequest(_message.Message):
    __slots__ = ("job", "run", "rank", "error", "tail_lines", "follow", "node")
    JOB_FIELD_NUMBER: _ClassVar[int]
    RUN_FIELD_NUMBER: _ClassVar[int]
    RANK_FIELD_NUMBER: _ClassVar[int]
    ERROR_FIELD_NUMBER: _ClassVar[int]
    TAIL_LINES_FIELD_NUMBER: _ClassVar[int]
    FOLLOW_FIELD_NUMBER: _ClassVar[int]
    NODE_FIELD_NUMBER: _ClassVar[int]
    job: int
    run: int
    rank: int
    error: bool
    tail_lines: int
    follow: bool
    node: str
    def __init__(self, job: _Optional[int] = ..., run: _Optional[int] = ..., rank: _Optional[int] = ..., error: _Optional[bool] = ..., tail_lines: _Optional[int] = ..., follow: _Optional[bool] = ..., node: _Optional[str] = ...) -> None: ...

class LogChunk(_message.Message):
    __slots__ = ("data",)
    DATA_FIELD_NUMBER: _ClassVar[int]
    data: bytes
    def __init__(self, data: _Optional[bytes] = ...) -> None: ...

class GpuView(_message.Message):
    __slots__ = ("index", "uuid", "type", "state", "why", "jobs", "utilization", "memory_used_bytes", "memory_bytes", "temperature_c")
    INDEX_FIELD_NUMBER: _ClassVar[int]
    UUID_FIELD_NUMBER: _ClassVar[int]
    TYPE_FIELD_NUMBER: _ClassVar[int]
    STATE_FIELD_NUMBER: _ClassVar[int]
    WHY_FIELD_NUMBER: _ClassVar[int]
    JOBS_FIELD_NUMBER: _ClassVar[int]
    UTILIZATION_FIELD_NUMBER: _ClassVar[int]
    MEMORY_USED_BYTES_FIELD_NUMBER: _ClassVar[int]
    MEMORY_BYTES_FIELD_NUMBER: _ClassVar[int]
    TEMPERATURE_C_FIELD_NUMBER: _ClassVar[int]
    index: int
    uuid: str
    type: str
    state: str
    why: str
    jobs: _containers.RepeatedScalarFieldContainer[int]
    utilization: float
    memory_used_bytes: int
    memory_bytes: int
    temperature_c: float
    def __init__(self, index: _Optional[int] = ..., uuid: _Optional[str] = ..., type: _Optional[str] = ..., state: _Optional[str] = ..., why: _Optional[str] = ..., jobs: _Optional[_Iterable[int]] = ..., utilization: _Optional[float] = ..., memory_used_bytes: _Optional[int] = ..., memory_bytes: _Optional[int] = ..., temperature_c: _Optional[float] = ...) -> None: ...

class NodeView(_message.Message):
    __slots__ = ("name", "state", "why", "why_actor", "why_at", "gpu_type", "gpus", "busy_gpus", "cpus", "memory_bytes", "partitions", "jobs", "heard_ago_s", "address", "agent_version", "launcher", "capabilities", "devices", "job_names", "cpus_held", "memory_held_bytes", "features")
    NAME_FIELD_NUMBER: _ClassVar[int]
    STATE_FIELD_NUMBER: _ClassVar[int]
    WHY_FIELD_NUMBER: _ClassVar[int]
    WHY_ACTOR_FIELD_NUMBER: _ClassVar[int]
    WHY_AT_FIELD_NUMBER: _ClassVar[int]
    GPU_TYPE_FIELD_NUMBER: _ClassVar[int]
    GPUS_FIELD_NUMBER: _ClassVar[int]
    BUSY_GPUS_FIELD_NUMBER: _ClassVar[int]
    CPUS_FIELD_NUMBER: _ClassVar[int]
    MEMORY_BYTES_FIELD_NUMBER: _ClassVar[int]
    PARTITIONS_FIELD_NUMBER: _ClassVar[int]
    JOBS_FIELD_NUMBER: _ClassVar[int]
    HEARD_AGO_S_FIELD_NUMBER: _ClassVar[int]
    ADDRESS_FIELD_NUMBER: _ClassVar[int]
    AGENT_VERSION_FIELD_NUMBER: _ClassVar[int]
    LAUNCHER_FIELD_NUMBER: _ClassVar[int]
    CAPABILITIES_FIELD_NUMBER: _ClassVar[int]
    DEVICES_FIELD_NUMBER: _ClassVar[int]
    JOB_NAMES_FIELD_NUMBER: _ClassVar[int]
    CPUS_HELD_FIELD_NUMBER: _ClassVar[int]
    MEMORY_HELD_BYTES_FIELD_NUMBER: _ClassVar[int]
    FEATURES_FIELD_NUMBER: _ClassVar[int]
    name: str
    state: str
    why: str
    why_actor: str
    why_at: float
    gpu_type: str
    gpus: int
    busy_gpus: int
    cpus: int
    memory_bytes: int
    partitions: _containers.RepeatedScalarFieldContainer[str]
    jobs: _containers.RepeatedScalarFieldContainer[int]
    heard_ago_s: float
    address: str
    agent_version: str
    launcher: str
    capabilities: _containers.RepeatedScalarFieldContainer[str]
    devices: _containers.RepeatedCompositeFieldContainer[GpuView]
    job_names: _containers.RepeatedScalarFieldContainer[str]
    cpus_held: float
    memory_held_bytes: int
    features: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, name: _Optional[str] = ..., state: _Optional[str] = ..., why: _Optional[str] = ..., why_actor: _Optional[str] = ..., why_at: _Optional[float] = ..., gpu_type: _Optional[str] = ..., gpus: _Optional[int] = ..., busy_gpus: _Optional[int] = ..., cpus: _Optional[int] = ..., memory_bytes: _Optional[int] = ..., partitions: _Optional[_Iterable[str]] = ..., jobs: _Optional[_Iterable[int]] = ..., heard_ago_s: _Optional[float] = ..., address: _Optional[str] = ..., agent_version: _Optional[str] = ..., launcher: _Optional[str] = ..., capabilities: _Optional[_Iterable[str]] = ..., devices: _Optional[_Iterable[_Union[GpuView, _Mapping]]] = ..., job_names: _Optional[_Iterable[str]] = ..., cpus_held: _Optional[float] = ..., memory_held_bytes: _Optional[int] = ..., features: _Optional[_Iterable[str]] = ...) -> None: ...

class NodesRequest(_message.Message):
    __slots__ = ("names",)
    NAMES_FIELD_NUMBER: _ClassVar[int]
    names: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, names: _Optional[_Iterable[str]] = ...) -> None: ...

class NodesReply(_message.Message):
    __slots__ = ("nodes",)
    NODES_FIELD_NUMBER: _ClassVar[int]
    nodes: _containers.RepeatedCompositeFieldContainer[NodeView]
    def __init__(self, nodes: _Optional[_Iterable[_Union[NodeView, _Mapping]]] = ...) -> None: ...

class SetNodesRequest(_message.Message):
    __slots__ = ("action", "names", "reason", "now", "by_at")
    ACTION_FIELD_NUMBER: _ClassVar[int]
    NAMES_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    NOW_FIELD_NUMBER: _ClassVar[int]
    BY_AT_FIELD_NUMBER: _ClassVar[int]
    action: NodeAction
    names: _containers.RepeatedScalarFieldContainer[str]
    reason: str
    now: bool
    by_at: float
    def __init__(self, action: _Optional[_Union[NodeAction, str]] = ..., names: _Optional[_Iterable[str]] = ..., reason: _Optional[str] = ..., now: _Optional[bool] = ..., by_at: _Optional[float] = ...) -> None: ...

class StatusRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class StatusReply(_message.Message):
    __slots__ = ("health", "problems", "leader", "epoch", "database", "policy", "parts", "round", "round_s", "policy_failures", "nodes_up", "nodes_late", "nodes_down", "pending", "running", "up_s", "version", "cluster", "standby", "nodes_unheard", "past", "standbys")
    class PartsEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    HEALTH_FIELD_NUMBER: _ClassVar[int]
    PROBLEMS_FIELD_NUMBER: _ClassVar[int]
    LEADER_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    DATABASE_FIELD_NUMBER: _ClassVar[int]
    POLICY_FIELD_NUMBER: _ClassVar[int]
    PARTS_FIELD_NUMBER: _ClassVar[int]
    ROUND_FIELD_NUMBER: _ClassVar[int]
    ROUND_S_FIELD_NUMBER: _ClassVar[int]
    POLICY_FAILURES_FIELD_NUMBER: _ClassVar[int]
    NODES_UP_FIELD_NUMBER: _ClassVar[int]
    NODES_LATE_FIELD_NUMBER: _ClassVar[int]
    NODES_DOWN_FIELD_NUMBER: _ClassVar[int]
    PENDING_FIELD_NUMBER: _ClassVar[int]
    RUNNING_FIELD_NUMBER: _ClassVar[int]
    UP_S_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    CLUSTER_FIELD_NUMBER: _ClassVar[int]
    STANDBY_FIELD_NUMBER: _ClassVar[int]
    NODES_UNHEARD_FIELD_NUMBER: _ClassVar[int]
    PAST_FIELD_NUMBER: _ClassVar[int]
    STANDBYS_FIELD_NUMBER: _ClassVar[int]
    health: str
    problems: _containers.RepeatedScalarFieldContainer[str]
    leader: str
    epoch: int
    database: str
    policy: str
    parts: _containers.ScalarMap[str, str]
    round: int
    round_s: float
    policy_failures: int
    nodes_up: int
    nodes_late: int
    nodes_down: int
    pending: int
    running: int
    up_s: float
    version: str
    cluster: str
    standby: bool
    nodes_unheard: int
    past: _containers.RepeatedScalarFieldContainer[str]
    standbys: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, health: _Optional[str] = ..., problems: _Optional[_Iterable[str]] = ..., leader: _Optional[str] = ..., epoch: _Optional[int] = ..., database: _Optional[str] = ..., policy: _Optional[str] = ..., parts: _Optional[_Mapping[str, str]] = ..., round: _Optional[int] = ..., round_s: _Optional[float] = ..., policy_failures: _Optional[int] = ..., nodes_up: _Optional[int] = ..., nodes_late: _Optional[int] = ..., nodes_down: _Optional[int] = ..., pending: _Optional[int] = ..., running: _Optional[int] = ..., up_s: _Optional[float] = ..., version: _Optional[str] = ..., cluster: _Optional[str] = ..., standby: _Optional[bool] = ..., nodes_unheard: _Optional[int] = ..., past: _Optional[_Iterable[str]] = ..., standbys: _Optional[_Iterable[str]] = ...) -> None: ...

class UsageRequest(_message.Message):
    __slots__ = ("by_user", "since", "shares", "by")
    BY_USER_FIELD_NUMBER: _ClassVar[int]
    SINCE_FIELD_NUMBER: _ClassVar[int]
    SHARES_FIELD_NUMBER: _ClassVar[int]
    BY_FIELD_NUMBER: _ClassVar[int]
    by_user: bool
    since: float
    shares: bool
    by: str
    def __init__(self, by_user: _Optional[bool] = ..., since: _Optional[float] = ..., shares: _Optional[bool] = ..., by: _Optional[str] = ...) -> None: ...

class UsageView(_message.Message):
    __slots__ = ("name", "gpu_s", "gpus_now", "entitlement", "pending", "gpu_parts_now")
    NAME_FIELD_NUMBER: _ClassVar[int]
    GPU_S_FIELD_NUMBER: _ClassVar[int]
    GPUS_NOW_FIELD_NUMBER: _ClassVar[int]
    ENTITLEMENT_FIELD_NUMBER: _ClassVar[int]
    PENDING_FIELD_NUMBER: _ClassVar[int]
    GPU_PARTS_NOW_FIELD_NUMBER: _ClassVar[int]
    name: str
    gpu_s: float
    gpus_now: int
    entitlement: float
    pending: int
    gpu_parts_now: float
    def __init__(self, name: _Optional[str] = ..., gpu_s: _Optional[float] = ..., gpus_now: _Optional[int] = ..., entitlement: _Optional[float] = ..., pending: _Optional[int] = ..., gpu_parts_now: _Optional[float] = ...) -> None: ...

class ShareView(_message.Message):
    __slots__ = ("kind", "name", "group", "depth", "weight", "share", "used_gpu_s", "usage", "effective", "factor")
    KIND_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    GROUP_FIELD_NUMBER: _ClassVar[int]
    DEPTH_FIELD_NUMBER: _ClassVar[int]
    WEIGHT_FIELD_NUMBER: _ClassVar[int]
    SHARE_FIELD_NUMBER: _ClassVar[int]
    USED_GPU_S_FIELD_NUMBER: _ClassVar[int]
    USAGE_FIELD_NUMBER: _ClassVar[int]
    EFFECTIVE_FIELD_NUMBER: _ClassVar[int]
    FACTOR_FIELD_NUMBER: _ClassVar[int]
    kind: str
    name: str
    group: str
    depth: int
    weight: float
    share: float
    used_gpu_s: float
    usage: float
    effective: float
    factor: float
    def __init__(self, kind: _Optional[str] = ..., name: _Optional[str] = ..., group: _Optional[str] = ..., depth: _Optional[int] = ..., weight: _Optional[float] = ..., share: _Optional[float] = ..., used_gpu_s: _Optional[float] = ..., usage: _Optional[float] = ..., effective: _Optional[float] = ..., factor: _Optional[float] = ...) -> None: ...

class UsageReply(_message.Message):
    __slots__ = ("usage", "shares", "half_life_s", "level")
    USAGE_FIELD_NUMBER: _ClassVar[int]
    SHARES_FIELD_NUMBER: _ClassVar[int]
    HALF_LIFE_S_FIELD_NUMBER: _ClassVar[int]
    LEVEL_FIELD_NUMBER: _ClassVar[int]
    usage: _containers.RepeatedCompositeFieldContainer[UsageView]
    shares: _containers.RepeatedCompositeFieldContainer[ShareView]
    half_life_s: float
    level: str
    def __init__(self, usage: _Optional[_Iterable[_Union[UsageView, _Mapping]]] = ..., shares: _Optional[_Iterable[_Union[ShareView, _Mapping]]] = ..., half_life_s: _Optional[float] = ..., level: _Optional[str] = ...) -> None: ...

class CheckpointsRequest(_message.Message):
    __slots__ = ("filter",)
    FILTER_FIELD_NUMBER: _ClassVar[int]
    filter: Filter
    def __init__(self, filter: _Optional[_Union[Filter, _Mapping]] = ...) -> None: ...

class CheckpointView(_message.Message):
    __slots__ = ("job", "array_job", "array_task", "user", "run", "step", "bytes", "at", "loss", "path", "source", "next", "used_by")
    JOB_FIELD_NUMBER: _ClassVar[int]
    ARRAY_JOB_FIELD_NUMBER: _ClassVar[int]
    ARRAY_TASK_FIELD_NUMBER: _ClassVar[int]
    USER_FIELD_NUMBER: _ClassVar[int]
    RUN_FIELD_NUMBER: _ClassVar[int]
    STEP_FIELD_NUMBER: _ClassVar[int]
    BYTES_FIELD_NUMBER: _ClassVar[int]
    AT_FIELD_NUMBER: _ClassVar[int]
    LOSS_FIELD_NUMBER: _ClassVar[int]
    PATH_FIELD_NUMBER: _ClassVar[int]
    SOURCE_FIELD_NUMBER: _ClassVar[int]
    NEXT_FIELD_NUMBER: _ClassVar[int]
    USED_BY_FIELD_NUMBER: _ClassVar[int]
    job: int
    array_job: int
    array_task: int
    user: str
    run: int
    step: int
    bytes: int
    at: float
    loss: float
    path: str
    source: int
    next: bool
    used_by: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, job: _Optional[int] = ..., array_job: _Optional[int] = ..., array_task: _Optional[int] = ..., user: _Optional[str] = ..., run: _Optional[int] = ..., step: _Optional[int] = ..., bytes: _Optional[int] = ..., at: _Optional[float] = ..., loss: _Optional[float] = ..., path: _Optional[str] = ..., source: _Optional[int] = ..., next: _Optional[bool] = ..., used_by: _Optional[_Iterable[int]] = ...) -> None: ...

class UnsavedView(_message.Message):
    __slots__ = ("job", "array_job", "array_task", "step", "at", "why", "in_a_row", "newest_step", "newest_at")
    JOB_FIELD_NUMBER: _ClassVar[int]
    ARRAY_JOB_FIELD_NUMBER: _ClassVar[int]
    ARRAY_TASK_FIELD_NUMBER: _ClassVar[int]
    STEP_FIELD_NUMBER: _ClassVar[int]
    AT_FIELD_NUMBER: _ClassVar[int]
    WHY_FIELD_NUMBER: _ClassVar[int]
    IN_A_ROW_FIELD_NUMBER: _ClassVar[int]
    NEWEST_STEP_FIELD_NUMBER: _ClassVar[int]
    NEWEST_AT_FIELD_NUMBER: _ClassVar[int]
    job: int
    array_job: int
    array_task: int
    step: int
    at: float
    why: str
    in_a_row: int
    newest_step: int
    newest_at: float
    def __init__(self, job: _Optional[int] = ..., array_job: _Optional[int] = ..., array_task: _Optional[int] = ..., step: _Optional[int] = ..., at: _Optional[float] = ..., why: _Optional[str] = ..., in_a_row: _Optional[int] = ..., newest_step: _Optional[int] = ..., newest_at: _Optional[float] = ...) -> None: ...

class CheckpointsReply(_message.Message):
    __slots__ = ("checkpoints", "unsaved")
    CHECKPOINTS_FIELD_NUMBER: _ClassVar[int]
    UNSAVED_FIELD_NUMBER: _ClassVar[int]
    checkpoints: _containers.RepeatedCompositeFieldContainer[CheckpointView]
    unsaved: _containers.RepeatedCompositeFieldContainer[UnsavedView]
    def __init__(self, checkpoints: _Optional[_Iterable[_Union[CheckpointView, _Mapping]]] = ..., unsaved: _Optional[_Iterable[_Union[UnsavedView, _Mapping]]] = ...) -> None: ...

class SetPolicyRequest(_message.Message):
    __slots__ = ("parts", "options")
    class PartsEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    PARTS_FIELD_NUMBER: _ClassVar[int]
    OPTIONS_FIELD_NUMBER: _ClassVar[int]
    parts: _containers.ScalarMap[str, str]
    options: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, parts: _Optional[_Mapping[str, str]] = ..., options: _Optional[_Iterable[str]] = ...) -> None: ...

class SetPolicyReply(_message.Message):
    __slots__ = ("parts", "options")
    class PartsEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    PARTS_FIELD_NUMBER: _ClassVar[int]
    OPTIONS_FIELD_NUMBER: _ClassVar[int]
    parts: _containers.ScalarMap[str, str]
    options: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, parts: _Optional[_Mapping[str, str]] = ..., options: _Optional[_Iterable[str]] = ...) -> None: ...

class ReloadRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class ReloadReply(_message.Message):
    __slots__ = ("changes",)
    CHANGES_FIELD_NUMBER: _ClassVar[int]
    changes: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, changes: _Optional[_Iterable[str]] = ...) -> None: ...

class SnapshotRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class SnapshotChunk(_message.Message):
    __slots__ = ("data",)
    DATA_FIELD_NUMBER: _ClassVar[int]
    data: bytes
    def __init__(self, data: _Optional[bytes] = ...) -> None: ...

class WhatIfRequest(_message.Message):
    __slots__ = ("filter", "described", "gpus", "gpu_types", "policies", "options", "schedule")
    FILTER_FIELD_NUMBER: _ClassVar[int]
    DESCRIBED_FIELD_NUMBER: _ClassVar[int]
    GPUS_FIELD_NUMBER: _ClassVar[int]
    GPU_TYPES_FIELD_NUMBER: _ClassVar[int]
    POLICIES_FIELD_NUMBER: _ClassVar[int]
    OPTIONS_FIELD_NUMBER: _ClassVar[int]
    SCHEDULE_FIELD_NUMBER: _ClassVar[int]
    filter: Filter
    described: JobRequest
    gpus: _containers.RepeatedScalarFieldContainer[int]
    gpu_types: _containers.RepeatedScalarFieldContainer[str]
    policies: _containers.RepeatedScalarFieldContainer[str]
    options: _containers.RepeatedScalarFieldContainer[str]
    schedule: bool
    def __init__(self, filter: _Optional[_Union[Filter, _Mapping]] = ..., described: _Optional[_Union[JobRequest, _Mapping]] = ..., gpus: _Optional[_Iterable[int]] = ..., gpu_types: _Optional[_Iterable[str]] = ..., policies: _Optional[_Iterable[str]] = ..., options: _Optional[_Iterable[str]] = ..., schedule: _Optional[bool] = ...) -> None: ...

class PredictedMoment(_message.Message):
    __slots__ = ("at", "p10", "p90")
    AT_FIELD_NUMBER: _ClassVar[int]
    P10_FIELD_NUMBER: _ClassVar[int]
    P90_FIELD_NUMBER: _ClassVar[int]
    at: float
    p10: float
    p90: float
    def __init__(self, at: _Optional[float] = ..., p10: _Optional[float] = ..., p90: _Optional[float] = ...) -> None: ...

class WhatIfJob(_message.Message):
    __slots__ = ("job", "name", "user", "gpus", "waits", "start", "end", "submitted_at")
    JOB_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    USER_FIELD_NUMBER: _ClassVar[int]
    GPUS_FIELD_NUMBER: _ClassVar[int]
    WAITS_FIELD_NUMBER: _ClassVar[int]
    START_FIELD_NUMBER: _ClassVar[int]
    END_FIELD_NUMBER: _ClassVar[int]
    SUBMITTED_AT_FIELD_NUMBER: _ClassVar[int]
    job: int
    name: str
    user: str
    gpus: int
    waits: bool
    start: PredictedMoment
    end: PredictedMoment
    submitted_at: float
    def __init__(self, job: _Optional[int] = ..., name: _Optional[str] = ..., user: _Optional[str] = ..., gpus: _Optional[int] = ..., waits: _Optional[bool] = ..., start: _Optional[_Union[PredictedMoment, _Mapping]] = ..., end: _Optional[_Union[PredictedMoment, _Mapping]] = ..., submitted_at: _Optional[float] = ...) -> None: ...

class WhatIfBlocks(_message.Message):
    __slots__ = ("job", "node", "gpus", "start", "end")
    JOB_FIELD_NUMBER: _ClassVar[int]
    NODE_FIELD_NUMBER: _ClassVar[int]
    GPUS_FIELD_NUMBER: _ClassVar[int]
    START_FIELD_NUMBER: _ClassVar[int]
    END_FIELD_NUMBER: _ClassVar[int]
    job: _containers.RepeatedScalarFieldContainer[int]
    node: _containers.RepeatedScalarFieldContainer[int]
    gpus: _containers.RepeatedScalarFieldContainer[int]
    start: _containers.RepeatedScalarFieldContainer[float]
    end: _containers.RepeatedScalarFieldContainer[float]
    def __init__(self, job: _Optional[_Iterable[int]] = ..., node: _Optional[_Iterable[int]] = ..., gpus: _Optional[_Iterable[int]] = ..., start: _Optional[_Iterable[float]] = ..., end: _Optional[_Iterable[float]] = ...) -> None: ...

class WhatIfOutcome(_message.Message):
    __slots__ = ("gpus", "gpu_types", "policy", "why", "basis", "start", "end", "on_time", "verdict", "gpu_s", "others_later_s", "jobs", "never", "mean_jct_s", "p95_jct_s", "all_done_s", "was_cut", "all", "blocks", "must_move", "reward", "others_reward", "latest_submit_at")
    GPUS_FIELD_NUMBER: _ClassVar[int]
    GPU_TYPES_FIELD_NUMBER: _ClassVar[int]
    POLICY_FIELD_NUMBER: _ClassVar[int]
    WHY_FIELD_NUMBER: _ClassVar[int]
    BASIS_FIELD_NUMBER: _ClassVar[int]
    START_FIELD_NUMBER: _ClassVar[int]
    END_FIELD_NUMBER: _ClassVar[int]
    ON_TIME_FIELD_NUMBER: _ClassVar[int]
    VERDICT_FIELD_NUMBER: _ClassVar[int]
    GPU_S_FIELD_NUMBER: _ClassVar[int]
    OTHERS_LATER_S_FIELD_NUMBER: _ClassVar[int]
    JOBS_FIELD_NUMBER: _ClassVar[int]
    NEVER_FIELD_NUMBER: _ClassVar[int]
    MEAN_JCT_S_FIELD_NUMBER: _ClassVar[int]
    P95_JCT_S_FIELD_NUMBER: _ClassVar[int]
    ALL_DONE_S_FIELD_NUMBER: _ClassVar[int]
    WAS_CUT_FIELD_NUMBER: _ClassVar[int]
    ALL_FIELD_NUMBER: _ClassVar[int]
    BLOCKS_FIELD_NUMBER: _ClassVar[int]
    MUST_MOVE_FIELD_NUMBER: _ClassVar[int]
    REWARD_FIELD_NUMBER: _ClassVar[int]
    OTHERS_REWARD_FIELD_NUMBER: _ClassVar[int]
    LATEST_SUBMIT_AT_FIELD_NUMBER: _ClassVar[int]
    gpus: int
    gpu_types: _containers.RepeatedScalarFieldContainer[str]
    policy: str
    why: str
    basis: str
    start: PredictedMoment
    end: PredictedMoment
    on_time: float
    verdict: str
    gpu_s: float
    others_later_s: float
    jobs: int
    never: int
    mean_jct_s: float
    p95_jct_s: float
    all_done_s: float
    was_cut: bool
    all: _containers.RepeatedCompositeFieldContainer[WhatIfJob]
    blocks: WhatIfBlocks
    must_move: _containers.RepeatedScalarFieldContainer[int]
    reward: float
    others_reward: float
    latest_submit_at: float
    def __init__(self, gpus: _Optional[int] = ..., gpu_types: _Optional[_Iterable[str]] = ..., policy: _Optional[str] = ..., why: _Optional[str] = ..., basis: _Optional[str] = ..., start: _Optional[_Union[PredictedMoment, _Mapping]] = ..., end: _Optional[_Union[PredictedMoment, _Mapping]] = ..., on_time: _Optional[float] = ..., verdict: _Optional[str] = ..., gpu_s: _Optional[float] = ..., others_later_s: _Optional[float] = ..., jobs: _Optional[int] = ..., never: _Optional[int] = ..., mean_jct_s: _Optional[float] = ..., p95_jct_s: _Optional[float] = ..., all_done_s: _Optional[float] = ..., was_cut: _Optional[bool] = ..., all: _Optional[_Iterable[_Union[WhatIfJob, _Mapping]]] = ..., blocks: _Optional[_Union[WhatIfBlocks, _Mapping]] = ..., must_move: _Optional[_Iterable[int]] = ..., reward: _Optional[float] = ..., others_reward: _Optional[float] = ..., latest_submit_at: _Optional[float] = ...) -> None: ...

class WhatIfNode(_message.Message):
    __slots__ = ("name", "gpus", "gpu_type")
    NAME_FIELD_NUMBER: _ClassVar[int]
    GPUS_FIELD_NUMBER: _ClassVar[int]
    GPU_TYPE_FIELD_NUMBER: _ClassVar[int]
    name: str
    gpus: int
    gpu_type: str
    def __init__(self, name: _Optional[str] = ..., gpus: _Optional[int] = ..., gpu_type: _Optional[str] = ...) -> None: ...

class WhatIfReply(_message.Message):
    __slots__ = ("at", "policy", "job", "state", "deadline_at", "outcomes", "nodes", "sla", "submitted_at")
    AT_FIELD_NUMBER: _ClassVar[int]
    POLICY_FIELD_NUMBER: _ClassVar[int]
    JOB_FIELD_NUMBER: _ClassVar[int]
    STATE_FIELD_NUMBER: _ClassVar[int]
    DEADLINE_AT_FIELD_NUMBER: _ClassVar[int]
    OUTCOMES_FIELD_NUMBER: _ClassVar[int]
    NODES_FIELD_NUMBER: _ClassVar[int]
    SLA_FIELD_NUMBER: _ClassVar[int]
    SUBMITTED_AT_FIELD_NUMBER: _ClassVar[int]
    at: float
    policy: str
    job: int
    state: str
    deadline_at: float
    outcomes: _containers.RepeatedCompositeFieldContainer[WhatIfOutcome]
    nodes: _containers.RepeatedCompositeFieldContainer[WhatIfNode]
    sla: str
    submitted_at: float
    def __init__(self, at: _Optional[float] = ..., policy: _Optional[str] = ..., job: _Optional[int] = ..., state: _Optional[str] = ..., deadline_at: _Optional[float] = ..., outcomes: _Optional[_Iterable[_Union[WhatIfOutcome, _Mapping]]] = ..., nodes: _Optional[_Iterable[_Union[WhatIfNode, _Mapping]]] = ..., sla: _Optional[str] = ..., submitted_at: _Optional[float] = ...) -> None: ...

class SetShadowRequest(_message.Message):
    __slots__ = ("off", "parts", "options")
    class PartsEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    OFF_FIELD_NUMBER: _ClassVar[int]
    PARTS_FIELD_NUMBER: _ClassVar[int]
    OPTIONS_FIELD_NUMBER: _ClassVar[int]
    off: bool
    parts: _containers.ScalarMap[str, str]
    options: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, off: _Optional[bool] = ..., parts: _Optional[_Mapping[str, str]] = ..., options: _Optional[_Iterable[str]] = ...) -> None: ...

class ShadowRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class ShadowDifference(_message.Message):
    __slots__ = ("job", "name", "user", "gpus", "would", "nodes")
    JOB_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    USER_FIELD_NUMBER: _ClassVar[int]
    GPUS_FIELD_NUMBER: _ClassVar[int]
    WOULD_FIELD_NUMBER: _ClassVar[int]
    NODES_FIELD_NUMBER: _ClassVar[int]
    job: int
    name: str
    user: str
    gpus: int
    would: str
    nodes: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, job: _Optional[int] = ..., name: _Optional[str] = ..., user: _Optional[str] = ..., gpus: _Optional[int] = ..., would: _Optional[str] = ..., nodes: _Optional[_Iterable[str]] = ...) -> None: ...

class ShadowReply(_message.Message):
    __slots__ = ("on", "policy", "parts", "options", "present", "set_by", "since", "looks", "differing", "failures", "failure", "at", "cost_s", "every_s", "differences", "more_differences", "under_present", "under_shadow")
    class PartsEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    ON_FIELD_NUMBER: _ClassVar[int]
    POLICY_FIELD_NUMBER: _ClassVar[int]
    PARTS_FIELD_NUMBER: _ClassVar[int]
    OPTIONS_FIELD_NUMBER: _ClassVar[int]
    PRESENT_FIELD_NUMBER: _ClassVar[int]
    SET_BY_FIELD_NUMBER: _ClassVar[int]
    SINCE_FIELD_NUMBER: _ClassVar[int]
    LOOKS_FIELD_NUMBER: _ClassVar[int]
    DIFFERING_FIELD_NUMBER: _ClassVar[int]
    FAILURES_FIELD_NUMBER: _ClassVar[int]
    FAILURE_FIELD_NUMBER: _ClassVar[int]
    AT_FIELD_NUMBER: _ClassVar[int]
    COST_S_FIELD_NUMBER: _ClassVar[int]
    EVERY_S_FIELD_NUMBER: _ClassVar[int]
    DIFFERENCES_FIELD_NUMBER: _ClassVar[int]
    MORE_DIFFERENCES_FIELD_NUMBER: _ClassVar[int]
    UNDER_PRESENT_FIELD_NUMBER: _ClassVar[int]
    UNDER_SHADOW_FIELD_NUMBER: _ClassVar[int]
    on: bool
    policy: str
    parts: _containers.ScalarMap[str, str]
    options: _containers.RepeatedScalarFieldContainer[str]
    present: str
    set_by: str
    since: float
    looks: int
    differing: int
    failures: int
    failure: str
    at: float
    cost_s: float
    every_s: float
    differences: _containers.RepeatedCompositeFieldContainer[ShadowDifference]
    more_differences: int
    under_present: WhatIfOutcome
    under_shadow: WhatIfOutcome
    def __init__(self, on: _Optional[bool] = ..., policy: _Optional[str] = ..., parts: _Optional[_Mapping[str, str]] = ..., options: _Optional[_Iterable[str]] = ..., present: _Optional[str] = ..., set_by: _Optional[str] = ..., since: _Optional[float] = ..., looks: _Optional[int] = ..., differing: _Optional[int] = ..., failures: _Optional[int] = ..., failure: _Optional[str] = ..., at: _Optional[float] = ..., cost_s: _Optional[float] = ..., every_s: _Optional[float] = ..., differences: _Optional[_Iterable[_Union[ShadowDifference, _Mapping]]] = ..., more_differences: _Optional[int] = ..., under_present: _Optional[_Union[WhatIfOutcome, _Mapping]] = ..., under_shadow: _Optional[_Union[WhatIfOutcome, _Mapping]] = ...) -> None: ...

class CalibrationRequest(_message.Message):
    __slots__ = ("since",)
    SINCE_FIELD_NUMBER: _ClassVar[int]
    since: float
    def __init__(self, since: _Optional[float] = ...) -> None: ...

class CalibrationView(_message.Message):
    __slots__ = ("basis", "jobs", "mean_error_s", "median_abs_error_s", "p90_abs_error_s", "mean_lead_s", "start_within", "start_relative", "ended", "end_within", "end_relative")
    BASIS_FIELD_NUMBER: _ClassVar[int]
    JOBS_FIELD_NUMBER: _ClassVar[int]
    MEAN_ERROR_S_FIELD_NUMBER: _ClassVar[int]
    MEDIAN_ABS_ERROR_S_FIELD_NUMBER: _ClassVar[int]
    P90_ABS_ERROR_S_FIELD_NUMBER: _ClassVar[int]
    MEAN_LEAD_S_FIELD_NUMBER: _ClassVar[int]
    START_WITHIN_FIELD_NUMBER: _ClassVar[int]
    START_RELATIVE_FIELD_NUMBER: _ClassVar[int]
    ENDED_FIELD_NUMBER: _ClassVar[int]
    END_WITHIN_FIELD_NUMBER: _ClassVar[int]
    END_RELATIVE_FIELD_NUMBER: _ClassVar[int]
    basis: str
    jobs: int
    mean_error_s: float
    median_abs_error_s: float
    p90_abs_error_s: float
    mean_lead_s: float
    start_within: float
    start_relative: float
    ended: int
    end_within: float
    end_relative: float
    def __init__(self, basis: _Optional[str] = ..., jobs: _Optional[int] = ..., mean_error_s: _Optional[float] = ..., median_abs_error_s: _Optional[float] = ..., p90_abs_error_s: _Optional[float] = ..., mean_lead_s: _Optional[float] = ..., start_within: _Optional[float] = ..., start_relative: _Optional[float] = ..., ended: _Optional[int] = ..., end_within: _Optional[float] = ..., end_relative: _Optional[float] = ...) -> None: ...

class CalibrationReply(_message.Message):
    __slots__ = ("by_basis", "by_policy", "by_class")
    BY_BASIS_FIELD_NUMBER: _ClassVar[int]
    BY_POLICY_FIELD_NUMBER: _ClassVar[int]
    BY_CLASS_FIELD_NUMBER: _ClassVar[int]
    by_basis: _containers.RepeatedCompositeFieldContainer[CalibrationView]
    by_policy: _containers.RepeatedCompositeFieldContainer[CalibrationView]
    by_class: _containers.RepeatedCompositeFieldContainer[CalibrationView]
    def __init__(self, by_basis: _Optional[_Iterable[_Union[CalibrationView, _Mapping]]] = ..., by_policy: _Optional[_Iterable[_Union[CalibrationView, _Mapping]]] = ..., by_class: _Optional[_Iterable[_Union[CalibrationView, _Mapping]]] = ...) -> None: ...

class ConfirmOverRequest(_message.Message):
    __slots__ = ("jobs",)
    JOBS_FIELD_NUMBER: _ClassVar[int]
    jobs: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, jobs: _Optional[_Iterable[str]] = ...) -> None: ...

class OrphansRequest(_message.Message):
    __slots__ = ("end",)
    END_FIELD_NUMBER: _ClassVar[int]
    end: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, end: _Optional[_Iterable[str]] = ...) -> None: ...

class OrphanView(_message.Message):
    __slots__ = ("node", "job", "run", "run_id", "state", "gpus", "nodes")
    NODE_FIELD_NUMBER: _ClassVar[int]
    JOB_FIELD_NUMBER: _ClassVar[int]
    RUN_FIELD_NUMBER: _ClassVar[int]
    RUN_ID_FIELD_NUMBER: _ClassVar[int]
    STATE_FIELD_NUMBER: _ClassVar[int]
    GPUS_FIELD_NUMBER: _ClassVar[int]
    NODES_FIELD_NUMBER: _ClassVar[int]
    node: str
    job: int
    run: int
    run_id: str
    state: str
    gpus: _containers.RepeatedScalarFieldContainer[str]
    nodes: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, node: _Optional[str] = ..., job: _Optional[int] = ..., run: _Optional[int] = ..., run_id: _Optional[str] = ..., state: _Optional[str] = ..., gpus: _Optional[_Iterable[str]] = ..., nodes: _Optional[_Iterable[str]] = ...) -> None: ...

class OrphansReply(_message.Message):
    __slots__ = ("orphans", "failed")
    ORPHANS_FIELD_NUMBER: _ClassVar[int]
    FAILED_FIELD_NUMBER: _ClassVar[int]
    orphans: _containers.RepeatedCompositeFieldContainer[OrphanView]
    failed: _containers.RepeatedCompositeFieldContainer[Failure]
    def __init__(self, orphans: _Optional[_Iterable[_Union[OrphanView, _Mapping]]] = ..., failed: _Optional[_Iterable[_Union[Failure, _Mapping]]] = ...) -> None: ...

class AuditRequest(_message.Message):
    __slots__ = ("actors", "kinds", "nodes", "jobs", "since", "until", "limit", "parts_too")
    ACTORS_FIELD_NUMBER: _ClassVar[int]
    KINDS_FIELD_NUMBER: _ClassVar[int]
    NODES_FIELD_NUMBER: _ClassVar[int]
    JOBS_FIELD_NUMBER: _ClassVar[int]
    SINCE_FIELD_NUMBER: _ClassVar[int]
    UNTIL_FIELD_NUMBER: _ClassVar[int]
    LIMIT_FIELD_NUMBER: _ClassVar[int]
    PARTS_TOO_FIELD_NUMBER: _ClassVar[int]
    actors: _containers.RepeatedScalarFieldContainer[str]
    kinds: _containers.RepeatedScalarFieldContainer[str]
    nodes: _containers.RepeatedScalarFieldContainer[str]
    jobs: _containers.RepeatedScalarFieldContainer[int]
    since: float
    until: float
    limit: int
    parts_too: bool
    def __init__(self, actors: _Optional[_Iterable[str]] = ..., kinds: _Optional[_Iterable[str]] = ..., nodes: _Optional[_Iterable[str]] = ..., jobs: _Optional[_Iterable[int]] = ..., since: _Optional[float] = ..., until: _Optional[float] = ..., limit: _Optional[int] = ..., parts_too: _Optional[bool] = ...) -> None: ...

class AuditLine(_message.Message):
    __slots__ = ("id", "at", "kind", "actor", "job", "node", "text")
    ID_FIELD_NUMBER: _ClassVar[int]
    AT_FIELD_NUMBER: _ClassVar[int]
    KIND_FIELD_NUMBER: _ClassVar[int]
    ACTOR_FIELD_NUMBER: _ClassVar[int]
    JOB_FIELD_NUMBER: _ClassVar[int]
    NODE_FIELD_NUMBER: _ClassVar[int]
    TEXT_FIELD_NUMBER: _ClassVar[int]
    id: int
    at: float
    kind: str
    actor: str
    job: int
    node: str
    text: str
    def __init__(self, id: _Optional[int] = ..., at: _Optional[float] = ..., kind: _Optional[str] = ..., actor: _Optional[str] = ..., job: _Optional[int] = ..., node: _Optional[str] = ..., text: _Optional[str] = ...) -> None: ...

class AuditPage(_message.Message):
    __slots__ = ("lines",)
    LINES_FIELD_NUMBER: _ClassVar[int]
    lines: _containers.RepeatedCompositeFieldContainer[AuditLine]
    def __init__(self, lines: _Optional[_Iterable[_Union[AuditLine, _Mapping]]] = ...) -> None: ...

class SpeedView(_message.Message):
    __slots__ = ("model", "batch_size", "gpu_type", "gpus", "partner", "partner_batch_size", "steps_per_s", "measurements", "source", "at")
    MODEL_FIELD_NUMBER: _ClassVar[int]
    BATCH_SIZE_FIELD_NUMBER: _ClassVar[int]
    GPU_TYPE_FIELD_NUMBER: _ClassVar[int]
    GPUS_FIELD_NUMBER: _ClassVar[int]
    PARTNER_FIELD_NUMBER: _ClassVar[int]
    PARTNER_BATCH_SIZE_FIELD_NUMBER: _ClassVar[int]
    STEPS_PER_S_FIELD_NUMBER: _ClassVar[int]
    MEASUREMENTS_FIELD_NUMBER: _ClassVar[int]
    SOURCE_FIELD_NUMBER: _ClassVar[int]
    AT_FIELD_NUMBER: _ClassVar[int]
    model: str
    batch_size: int
    gpu_type: str
    gpus: int
    partner: str
    partner_batch_size: int
    steps_per_s: float
    measurements: int
    source: str
    at: float
    def __init__(self, model: _Optional[str] = ..., batch_size: _Optional[int] = ..., gpu_type: _Optional[str] = ..., gpus: _Optional[int] = ..., partner: _Optional[str] = ..., partner_batch_size: _Optional[int] = ..., steps_per_s: _Optional[float] = ..., measurements: _Optional[int] = ..., source: _Optional[str] = ..., at: _Optional[float] = ...) -> None: ...

class SpeedsRequest(_message.Message):
    __slots__ = ("model", "batch_size", "gpu_type")
    MODEL_FIELD_NUMBER: _ClassVar[int]
    BATCH_SIZE_FIELD_NUMBER: _ClassVar[int]
    GPU_TYPE_FIELD_NUMBER: _ClassVar[int]
    model: str
    batch_size: int
    gpu_type: str
    def __init__(self, model: _Optional[str] = ..., batch_size: _Optional[int] = ..., gpu_type: _Optional[str] = ...) -> None: ...

class SpeedsReply(_message.Message):
    __slots__ = ("speeds",)
    SPEEDS_FIELD_NUMBER: _ClassVar[int]
    speeds: _containers.RepeatedCompositeFieldContainer[SpeedView]
    def __init__(self, speeds: _Optional[_Iterable[_Union[SpeedView, _Mapping]]] = ...) -> None: ...

class SetSpeedsRequest(_message.Message):
    __slots__ = ("speeds",)
    SPEEDS_FIELD_NUMBER: _ClassVar[int]
    speeds: _containers.RepeatedCompositeFieldContainer[SpeedView]
    def __init__(self, speeds: _Optional[_Iterable[_Union[SpeedView, _Mapping]]] = ...) -> None: ...

class SpeedsChanged(_message.Message):
    __slots__ = ("count",)
    COUNT_FIELD_NUMBER: _ClassVar[int]
    count: int
    def __init__(self, count: _Optional[int] = ...) -> None: ...

class TenantUser(_message.Message):
    __slots__ = ("name", "account", "vc", "accounts")
    NAME_FIELD_NUMBER: _ClassVar[int]
    ACCOUNT_FIELD_NUMBER: _ClassVar[int]
    VC_FIELD_NUMBER: _ClassVar[int]
    ACCOUNTS_FIELD_NUMBER: _ClassVar[int]
    name: str
    account: str
    vc: str
    accounts: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, name: _Optional[str] = ..., account: _Optional[str] = ..., vc: _Optional[str] = ..., accounts: _Optional[_Iterable[str]] = ...) -> None: ...

class TenantAccount(_message.Message):
    __slots__ = ("name", "parent", "weight", "vc", "users")
    NAME_FIELD_NUMBER: _ClassVar[int]
    PARENT_FIELD_NUMBER: _ClassVar[int]
    WEIGHT_FIELD_NUMBER: _ClassVar[int]
    VC_FIELD_NUMBER: _ClassVar[int]
    USERS_FIELD_NUMBER: _ClassVar[int]
    name: str
    parent: str
    weight: float
    vc: str
    users: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, name: _Optional[str] = ..., parent: _Optional[str] = ..., weight: _Optional[float] = ..., vc: _Optional[str] = ..., users: _Optional[_Iterable[str]] = ...) -> None: ...

class TenantVc(_message.Message):
    __slots__ = ("name", "gpus", "nodes", "guaranteed", "borrow", "parent")
    NAME_FIELD_NUMBER: _ClassVar[int]
    GPUS_FIELD_NUMBER: _ClassVar[int]
    NODES_FIELD_NUMBER: _ClassVar[int]
    GUARANTEED_FIELD_NUMBER: _ClassVar[int]
    BORROW_FIELD_NUMBER: _ClassVar[int]
    PARENT_FIELD_NUMBER: _ClassVar[int]
    name: str
    gpus: int
    nodes: str
    guaranteed: int
    borrow: bool
    parent: str
    def __init__(self, name: _Optional[str] = ..., gpus: _Optional[int] = ..., nodes: _Optional[str] = ..., guaranteed: _Optional[int] = ..., borrow: _Optional[bool] = ..., parent: _Optional[str] = ...) -> None: ...

class TenantPartition(_message.Message):
    __slots__ = ("name", "nodes", "max_time_s", "is_default", "default_time_s", "users", "accounts", "groups", "cpus_per_gpu", "memory_gb_per_gpu")
    NAME_FIELD_NUMBER: _ClassVar[int]
    NODES_FIELD_NUMBER: _ClassVar[int]
    MAX_TIME_S_FIELD_NUMBER: _ClassVar[int]
    IS_DEFAULT_FIELD_NUMBER: _ClassVar[int]
    DEFAULT_TIME_S_FIELD_NUMBER: _ClassVar[int]
    USERS_FIELD_NUMBER: _ClassVar[int]
    ACCOUNTS_FIELD_NUMBER: _ClassVar[int]
    GROUPS_FIELD_NUMBER: _ClassVar[int]
    CPUS_PER_GPU_FIELD_NUMBER: _ClassVar[int]
    MEMORY_GB_PER_GPU_FIELD_NUMBER: _ClassVar[int]
    name: str
    nodes: str
    max_time_s: float
    is_default: bool
    default_time_s: float
    users: _containers.RepeatedScalarFieldContainer[str]
    accounts: _containers.RepeatedScalarFieldContainer[str]
    groups: _containers.RepeatedScalarFieldContainer[str]
    cpus_per_gpu: int
    memory_gb_per_gpu: float
    def __init__(self, name: _Optional[str] = ..., nodes: _Optional[str] = ..., max_time_s: _Optional[float] = ..., is_default: _Optional[bool] = ..., default_time_s: _Optional[float] = ..., users: _Optional[_Iterable[str]] = ..., accounts: _Optional[_Iterable[str]] = ..., groups: _Optional[_Iterable[str]] = ..., cpus_per_gpu: _Optional[int] = ..., memory_gb_per_gpu: _Optional[float] = ...) -> None: ...

class TenantQuota(_message.Message):
    __slots__ = ("kind", "name", "gpus", "jobs", "gpu_hours", "window_s")
    KIND_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    GPUS_FIELD_NUMBER: _ClassVar[int]
    JOBS_FIELD_NUMBER: _ClassVar[int]
    GPU_HOURS_FIELD_NUMBER: _ClassVar[int]
    WINDOW_S_FIELD_NUMBER: _ClassVar[int]
    kind: str
    name: str
    gpus: int
    jobs: int
    gpu_hours: float
    window_s: float
    def __init__(self, kind: _Optional[str] = ..., name: _Optional[str] = ..., gpus: _Optional[int] = ..., jobs: _Optional[int] = ..., gpu_hours: _Optional[float] = ..., window_s: _Optional[float] = ...) -> None: ...

class TenantClass(_message.Message):
    __slots__ = ("name", "priority", "preempts", "grace_s", "max_time_s", "gpus", "gpus_per_user", "jobs", "jobs_per_user", "users", "accounts", "is_default")
    NAME_FIELD_NUMBER: _ClassVar[int]
    PRIORITY_FIELD_NUMBER: _ClassVar[int]
    PREEMPTS_FIELD_NUMBER: _ClassVar[int]
    GRACE_S_FIELD_NUMBER: _ClassVar[int]
    MAX_TIME_S_FIELD_NUMBER: _ClassVar[int]
    GPUS_FIELD_NUMBER: _ClassVar[int]
    GPUS_PER_USER_FIELD_NUMBER: _ClassVar[int]
    JOBS_FIELD_NUMBER: _ClassVar[int]
    JOBS_PER_USER_FIELD_NUMBER: _ClassVar[int]
    USERS_FIELD_NUMBER: _ClassVar[int]
    ACCOUNTS_FIELD_NUMBER: _ClassVar[int]
    IS_DEFAULT_FIELD_NUMBER: _ClassVar[int]
    name: str
    priority: float
    preempts: _containers.RepeatedScalarFieldContainer[str]
    grace_s: float
    max_time_s: float
    gpus: int
    gpus_per_user: int
    jobs: int
    jobs_per_user: int
    users: _containers.RepeatedScalarFieldContainer[str]
    accounts: _containers.RepeatedScalarFieldContainer[str]
    is_default: bool
    def __init__(self, name: _Optional[str] = ..., priority: _Optional[float] = ..., preempts: _Optional[_Iterable[str]] = ..., grace_s: _Optional[float] = ..., max_time_s: _Optional[float] = ..., gpus: _Optional[int] = ..., gpus_per_user: _Optional[int] = ..., jobs: _Optional[int] = ..., jobs_per_user: _Optional[int] = ..., users: _Optional[_Iterable[str]] = ..., accounts: _Optional[_Iterable[str]] = ..., is_default: _Optional[bool] = ...) -> None: ...

class TenantReservation(_message.Message):
    __slots__ = ("name", "nodes", "start_at", "end_at", "users", "accounts", "maintenance", "reason")
    NAME_FIELD_NUMBER: _ClassVar[int]
    NODES_FIELD_NUMBER: _ClassVar[int]
    START_AT_FIELD_NUMBER: _ClassVar[int]
    END_AT_FIELD_NUMBER: _ClassVar[int]
    USERS_FIELD_NUMBER: _ClassVar[int]
    ACCOUNTS_FIELD_NUMBER: _ClassVar[int]
    MAINTENANCE_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    name: str
    nodes: str
    start_at: float
    end_at: float
    users: _containers.RepeatedScalarFieldContainer[str]
    accounts: _containers.RepeatedScalarFieldContainer[str]
    maintenance: bool
    reason: str
    def __init__(self, name: _Optional[str] = ..., nodes: _Optional[str] = ..., start_at: _Optional[float] = ..., end_at: _Optional[float] = ..., users: _Optional[_Iterable[str]] = ..., accounts: _Optional[_Iterable[str]] = ..., maintenance: _Optional[bool] = ..., reason: _Optional[str] = ...) -> None: ...

class Tenant(_message.Message):
    __slots__ = ("user", "account", "vc", "partition", "quota", "reservation", "source", "set_by", "set_at", "gpus_now", "jobs_now", "gpu_hours_now", "gpu_parts_now")
    USER_FIELD_NUMBER: _ClassVar[int]
    ACCOUNT_FIELD_NUMBER: _ClassVar[int]
    VC_FIELD_NUMBER: _ClassVar[int]
    PARTITION_FIELD_NUMBER: _ClassVar[int]
    QUOTA_FIELD_NUMBER: _ClassVar[int]
    CLASS_FIELD_NUMBER: _ClassVar[int]
    RESERVATION_FIELD_NUMBER: _ClassVar[int]
    SOURCE_FIELD_NUMBER: _ClassVar[int]
    SET_BY_FIELD_NUMBER: _ClassVar[int]
    SET_AT_FIELD_NUMBER: _ClassVar[int]
    GPUS_NOW_FIELD_NUMBER: _ClassVar[int]
    JOBS_NOW_FIELD_NUMBER: _ClassVar[int]
    GPU_HOURS_NOW_FIELD_NUMBER: _ClassVar[int]
    GPU_PARTS_NOW_FIELD_NUMBER: _ClassVar[int]
    user: TenantUser
    account: TenantAccount
    vc: TenantVc
    partition: TenantPartition
    quota: TenantQuota
    reservation: TenantReservation
    source: str
    set_by: str
    set_at: float
    gpus_now: int
    jobs_now: int
    gpu_hours_now: float
    gpu_parts_now: float
    def __init__(self, user: _Optional[_Union[TenantUser, _Mapping]] = ..., account: _Optional[_Union[TenantAccount, _Mapping]] = ..., vc: _Optional[_Union[TenantVc, _Mapping]] = ..., partition: _Optional[_Union[TenantPartition, _Mapping]] = ..., quota: _Optional[_Union[TenantQuota, _Mapping]] = ..., reservation: _Optional[_Union[TenantReservation, _Mapping]] = ..., source: _Optional[str] = ..., set_by: _Optional[str] = ..., set_at: _Optional[float] = ..., gpus_now: _Optional[int] = ..., jobs_now: _Optional[int] = ..., gpu_hours_now: _Optional[float] = ..., gpu_parts_now: _Optional[float] = ..., **kwargs) -> None: ...

class TenantsRequest(_message.Message):
    __slots__ = ("kind",)
    KIND_FIELD_NUMBER: _ClassVar[int]
    kind: str
    def __init__(self, kind: _Optional[str] = ...) -> None: ...

class TenantsReply(_message.Message):
    __slots__ = ("tenants",)
    TENANTS_FIELD_NUMBER: _ClassVar[int]
    tenants: _containers.RepeatedCompositeFieldContainer[Tenant]
    def __init__(self, tenants: _Optional[_Iterable[_Union[Tenant, _Mapping]]] = ...) -> None: ...

class SetTenantRequest(_message.Message):
    __slots__ = ("tenant", "create", "fields", "ignore_jobs")
    TENANT_FIELD_NUMBER: _ClassVar[int]
    CREATE_FIELD_NUMBER: _ClassVar[int]
    FIELDS_FIELD_NUMBER: _ClassVar[int]
    IGNORE_JOBS_FIELD_NUMBER: _ClassVar[int]
    tenant: Tenant
    create: bool
    fields: _containers.RepeatedScalarFieldContainer[str]
    ignore_jobs: bool
    def __init__(self, tenant: _Optional[_Union[Tenant, _Mapping]] = ..., create: _Optional[bool] = ..., fields: _Optional[_Iterable[str]] = ..., ignore_jobs: _Optional[bool] = ...) -> None: ...

class RemoveTenantRequest(_message.Message):
    __slots__ = ("kind", "name")
    KIND_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    kind: str
    name: str
    def __init__(self, kind: _Optional[str] = ..., name: _Optional[str] = ...) -> None: ...

class TenantReply(_message.Message):
    __slots__ = ("lines",)
    LINES_FIELD_NUMBER: _ClassVar[int]
    lines: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, lines: _Optional[_Iterable[str]] = ...) -> None: ...

class TokenView(_message.Message):
    __slots__ = ("token_id", "user", "created_at", "expires_at", "revoked_at", "comment")
    TOKEN_ID_FIELD_NUMBER: _ClassVar[int]
    USER_FIELD_NUMBER: _ClassVar[int]
    CREATED_AT_FIELD_NUMBER: _ClassVar[int]
    EXPIRES_AT_FIELD_NUMBER: _ClassVar[int]
    REVOKED_AT_FIELD_NUMBER: _ClassVar[int]
    COMMENT_FIELD_NUMBER: _ClassVar[int]
    token_id: str
    user: str
    created_at: float
    expires_at: float
    revoked_at: float
    comment: str
    def __init__(self, token_id: _Optional[str] = ..., user: _Optional[str] = ..., created_at: _Optional[float] = ..., expires_at: _Optional[float] = ..., revoked_at: _Optional[float] = ..., comment: _Optional[str] = ...) -> None: ...

class CreateTokenRequest(_message.Message):
    __slots__ = ("user", "lifetime_s", "comment")
    USER_FIELD_NUMBER: _ClassVar[int]
    LIFETIME_S_FIELD_NUMBER: _ClassVar[int]
    COMMENT_FIELD_NUMBER: _ClassVar[int]
    user: str
    lifetime_s: float
    comment: str
    def __init__(self, user: _Optional[str] = ..., lifetime_s: _Optional[float] = ..., comment: _Optional[str] = ...) -> None: ...

class CreateTokenReply(_message.Message):
    __slots__ = ("token", "view")
    TOKEN_FIELD_NUMBER: _ClassVar[int]
    VIEW_FIELD_NUMBER: _ClassVar[int]
    token: str
    view: TokenView
    def __init__(self, token: _Optional[str] = ..., view: _Optional[_Union[TokenView, _Mapping]] = ...) -> None: ...

class ListTokensRequest(_message.Message):
    __slots__ = ("user", "all_users")
    USER_FIELD_NUMBER: _ClassVar[int]
    ALL_USERS_FIELD_NUMBER: _ClassVar[int]
    user: str
    all_users: bool
    def __init__(self, user: _Optional[str] = ..., all_users: _Optional[bool] = ...) -> None: ...

class ListTokensReply(_message.Message):
    __slots__ = ("tokens",)
    TOKENS_FIELD_NUMBER: _ClassVar[int]
    tokens: _containers.RepeatedCompositeFieldContainer[TokenView]
    def __init__(self, tokens: _Optional[_Iterable[_Union[TokenView, _Mapping]]] = ...) -> None: ...

class RevokeTokenRequest(_message.Message):
    __slots__ = ("token_id",)
    TOKEN_ID_FIELD_NUMBER: _ClassVar[int]
    token_id: str
    def __init__(self, token_id: _Optional[str] = ...) -> None: ...

class RevokeTokenReply(_message.Message):
    __slots__ = ("view",)
    VIEW_FIELD_NUMBER: _ClassVar[int]
    view: TokenView
    def __init__(self, view: _Optional[_Union[TokenView, _Mapping]] = ...) -> None: ...

class LaunchRequest(_message.Message):
    __slots__ = ("node", "key", "more")
    NODE_FIELD_NUMBER: _ClassVar[int]
    KEY_FIELD_NUMBER: _ClassVar[int]
    MORE_FIELD_NUMBER: _ClassVar[int]
    node: str
    key: _run_pb2.RunKey
    more: _containers.RepeatedCompositeFieldContainer[_run_pb2.RunKey]
    def __init__(self, node: _Optional[str] = ..., key: _Optional[_Union[_run_pb2.RunKey, _Mapping]] = ..., more: _Optional[_Iterable[_Union[_run_pb2.RunKey, _Mapping]]] = ...) -> None: ...

class LaunchSpec(_message.Message):
    __slots__ = ("key", "user", "uid", "argv", "script", "environment", "working_directory", "output", "error", "append", "warn_signal", "warn_before_s", "job_name", "array_job", "array_task", "array_count", "array_min", "array_max", "array_step", "partition", "submit_directory", "submit_host", "resume_from", "resume_step", "slurm_environment", "deadline_at", "vc", "cluster", "node_addresses", "executed_s", "fixed_batch", "batch", "warn_script_only", "warn_at_preemption", "keep_checkpoints", "label_output", "label_error", "rungs", "umask", "ntasks", "ntasks_per_node", "cpus_per_task", "container", "container_mounts", "terminal", "in_place", "takes_tasks", "more")
    KEY_FIELD_NUMBER: _ClassVar[int]
    USER_FIELD_NUMBER: _ClassVar[int]
    UID_FIELD_NUMBER: _ClassVar[int]
    ARGV_FIELD_NUMBER: _ClassVar[int]
    SCRIPT_FIELD_NUMBER: _ClassVar[int]
    ENVIRONMENT_FIELD_NUMBER: _ClassVar[int]
    WORKING_DIRECTORY_FIELD_NUMBER: _ClassVar[int]
    OUTPUT_FIELD_NUMBER: _ClassVar[int]
    ERROR_FIELD_NUMBER: _ClassVar[int]
    APPEND_FIELD_NUMBER: _ClassVar[int]
    WARN_SIGNAL_FIELD_NUMBER: _ClassVar[int]
    WARN_BEFORE_S_FIELD_NUMBER: _ClassVar[int]
    JOB_NAME_FIELD_NUMBER: _ClassVar[int]
    ARRAY_JOB_FIELD_NUMBER: _ClassVar[int]
    ARRAY_TASK_FIELD_NUMBER: _ClassVar[int]
    ARRAY_COUNT_FIELD_NUMBER: _ClassVar[int]
    ARRAY_MIN_FIELD_NUMBER: _ClassVar[int]
    ARRAY_MAX_FIELD_NUMBER: _ClassVar[int]
    ARRAY_STEP_FIELD_NUMBER: _ClassVar[int]
    PARTITION_FIELD_NUMBER: _ClassVar[int]
    SUBMIT_DIRECTORY_FIELD_NUMBER: _ClassVar[int]
    SUBMIT_HOST_FIELD_NUMBER: _ClassVar[int]
    RESUME_FROM_FIELD_NUMBER: _ClassVar[int]
    RESUME_STEP_FIELD_NUMBER: _ClassVar[int]
    SLURM_ENVIRONMENT_FIELD_NUMBER: _ClassVar[int]
    DEADLINE_AT_FIELD_NUMBER: _ClassVar[int]
    VC_FIELD_NUMBER: _ClassVar[int]
    CLUSTER_FIELD_NUMBER: _ClassVar[int]
    NODE_ADDRESSES_FIELD_NUMBER: _ClassVar[int]
    EXECUTED_S_FIELD_NUMBER: _ClassVar[int]
    FIXED_BATCH_FIELD_NUMBER: _ClassVar[int]
    BATCH_FIELD_NUMBER: _ClassVar[int]
    WARN_SCRIPT_ONLY_FIELD_NUMBER: _ClassVar[int]
    WARN_AT_PREEMPTION_FIELD_NUMBER: _ClassVar[int]
    KEEP_CHECKPOINTS_FIELD_NUMBER: _ClassVar[int]
    LABEL_OUTPUT_FIELD_NUMBER: _ClassVar[int]
    LABEL_ERROR_FIELD_NUMBER: _ClassVar[int]
    RUNGS_FIELD_NUMBER: _ClassVar[int]
    UMASK_FIELD_NUMBER: _ClassVar[int]
    NTASKS_FIELD_NUMBER: _ClassVar[int]
    NTASKS_PER_NODE_FIELD_NUMBER: _ClassVar[int]
    CPUS_PER_TASK_FIELD_NUMBER: _ClassVar[int]
    CONTAINER_FIELD_NUMBER: _ClassVar[int]
    CONTAINER_MOUNTS_FIELD_NUMBER: _ClassVar[int]
    TERMINAL_FIELD_NUMBER: _ClassVar[int]
    IN_PLACE_FIELD_NUMBER: _ClassVar[int]
    TAKES_TASKS_FIELD_NUMBER: _ClassVar[int]
    MORE_FIELD_NUMBER: _ClassVar[int]
    key: _run_pb2.RunKey
    user: str
    uid: int
    argv: _containers.RepeatedScalarFieldContainer[str]
    script: bytes
    environment: _containers.RepeatedCompositeFieldContainer[EnvironmentVariable]
    working_directory: str
    output: str
    error: str
    append: bool
    warn_signal: int
    warn_before_s: float
    job_name: str
    array_job: int
    array_task: int
    array_count: int
    array_min: int
    array_max: int
    array_step: int
    partition: str
    submit_directory: str
    submit_host: str
    resume_from: str
    resume_step: int
    slurm_environment: bool
    deadline_at: float
    vc: str
    cluster: str
    node_addresses: _containers.RepeatedScalarFieldContainer[str]
    executed_s: float
    fixed_batch: bool
    batch: Batch
    warn_script_only: bool
    warn_at_preemption: bool
    keep_checkpoints: int
    label_output: bool
    label_error: bool
    rungs: str
    umask: int
    ntasks: int
    ntasks_per_node: int
    cpus_per_task: int
    container: str
    container_mounts: str
    terminal: str
    in_place: bool
    takes_tasks: bool
    more: _containers.RepeatedCompositeFieldContainer[LaunchSpec]
    def __init__(self, key: _Optional[_Union[_run_pb2.RunKey, _Mapping]] = ..., user: _Optional[str] = ..., uid: _Optional[int] = ..., argv: _Optional[_Iterable[str]] = ..., script: _Optional[bytes] = ..., environment: _Optional[_Iterable[_Union[EnvironmentVariable, _Mapping]]] = ..., working_directory: _Optional[str] = ..., output: _Optional[str] = ..., error: _Optional[str] = ..., append: _Optional[bool] = ..., warn_signal: _Optional[int] = ..., warn_before_s: _Optional[float] = ..., job_name: _Optional[str] = ..., array_job: _Optional[int] = ..., array_task: _Optional[int] = ..., array_count: _Optional[int] = ..., array_min: _Optional[int] = ..., array_max: _Optional[int] = ..., array_step: _Optional[int] = ..., partition: _Optional[str] = ..., submit_directory: _Optional[str] = ..., submit_host: _Optional[str] = ..., resume_from: _Optional[str] = ..., resume_step: _Optional[int] = ..., slurm_environment: _Optional[bool] = ..., deadline_at: _Optional[float] = ..., vc: _Optional[str] = ..., cluster: _Optional[str] = ..., node_addresses: _Optional[_Iterable[str]] = ..., executed_s: _Optional[float] = ..., fixed_batch: _Optional[bool] = ..., batch: _Optional[_Union[Batch, _Mapping]] = ..., warn_script_only: _Optional[bool] = ..., warn_at_preemption: _Optional[bool] = ..., keep_checkpoints: _Optional[int] = ..., label_output: _Optional[bool] = ..., label_error: _Optional[bool] = ..., rungs: _Optional[str] = ..., umask: _Optional[int] = ..., ntasks: _Optional[int] = ..., ntasks_per_node: _Optional[int] = ..., cpus_per_task: _Optional[int] = ..., container: _Optional[str] = ..., container_mounts: _Optional[str] = ..., terminal: _Optional[str] = ..., in_place: _Optional[bool] = ..., takes_tasks: _Optional[bool] = ..., more: _Optional[_Iterable[_Union[LaunchSpec, _Mapping]]] = ...) -> None: ...

class TaskExchange(_message.Message):
    __slots__ = ("node", "key", "ended", "codes", "signals", "ran_s", "held")
    NODE_FIELD_NUMBER: _ClassVar[int]
    KEY_FIELD_NUMBER: _ClassVar[int]
    ENDED_FIELD_NUMBER: _ClassVar[int]
    CODES_FIELD_NUMBER: _ClassVar[int]
    SIGNALS_FIELD_NUMBER: _ClassVar[int]
    RAN_S_FIELD_NUMBER: _ClassVar[int]
    HELD_FIELD_NUMBER: _ClassVar[int]
    node: str
    key: _run_pb2.RunKey
    ended: _containers.RepeatedScalarFieldContainer[int]
    codes: _containers.RepeatedScalarFieldContainer[int]
    signals: _containers.RepeatedScalarFieldContainer[int]
    ran_s: _containers.RepeatedScalarFieldContainer[float]
    held: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, node: _Optional[str] = ..., key: _Optional[_Union[_run_pb2.RunKey, _Mapping]] = ..., ended: _Optional[_Iterable[int]] = ..., codes: _Optional[_Iterable[int]] = ..., signals: _Optional[_Iterable[int]] = ..., ran_s: _Optional[_Iterable[float]] = ..., held: _Optional[_Iterable[int]] = ...) -> None: ...

class TaskBundle(_message.Message):
    __slots__ = ("numbers", "lines", "over")
    NUMBERS_FIELD_NUMBER: _ClassVar[int]
    LINES_FIELD_NUMBER: _ClassVar[int]
    OVER_FIELD_NUMBER: _ClassVar[int]
    numbers: _containers.RepeatedScalarFieldContainer[int]
    lines: _containers.RepeatedScalarFieldContainer[str]
    over: bool
    def __init__(self, numbers: _Optional[_Iterable[int]] = ..., lines: _Optional[_Iterable[str]] = ..., over: _Optional[bool] = ...) -> None: ...

class RunReport(_message.Message):
    __slots__ = ("node", "key", "rank", "step", "batch_s", "loss", "gpu_memory_bytes", "metrics", "restart_s", "save_s", "training", "ignored", "saves", "not_finite", "error", "error_at", "doing", "stacks", "ready_ports", "ready_word", "calls", "unsaved_step", "unsaved_why", "save_bytes", "room_bytes", "expected_save_s")
    class MetricsEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: float
        def __init__(self, key: _Optional[str] = ..., value: _Optional[float] = ...) -> None: ...
    NODE_FIELD_NUMBER: _ClassVar[int]
    KEY_FIELD_NUMBER: _ClassVar[int]
    RANK_FIELD_NUMBER: _ClassVar[int]
    STEP_FIELD_NUMBER: _ClassVar[int]
    BATCH_S_FIELD_NUMBER: _ClassVar[int]
    LOSS_FIELD_NUMBER: _ClassVar[int]
    GPU_MEMORY_BYTES_FIELD_NUMBER: _ClassVar[int]
    METRICS_FIELD_NUMBER: _ClassVar[int]
    RESTART_S_FIELD_NUMBER: _ClassVar[int]
    SAVE_S_FIELD_NUMBER: _ClassVar[int]
    TRAINING_FIELD_NUMBER: _ClassVar[int]
    IGNORED_FIELD_NUMBER: _ClassVar[int]
    SAVES_FIELD_NUMBER: _ClassVar[int]
    NOT_FINITE_FIELD_NUMBER: _ClassVar[int]
    ERROR_FIELD_NUMBER: _ClassVar[int]
    ERROR_AT_FIELD_NUMBER: _ClassVar[int]
    DOING_FIELD_NUMBER: _ClassVar[int]
    STACKS_FIELD_NUMBER: _ClassVar[int]
    READY_PORTS_FIELD_NUMBER: _ClassVar[int]
    READY_WORD_FIELD_NUMBER: _ClassVar[int]
    CALLS_FIELD_NUMBER: _ClassVar[int]
    UNSAVED_STEP_FIELD_NUMBER: _ClassVar[int]
    UNSAVED_WHY_FIELD_NUMBER: _ClassVar[int]
    SAVE_BYTES_FIELD_NUMBER: _ClassVar[int]
    ROOM_BYTES_FIELD_NUMBER: _ClassVar[int]
    EXPECTED_SAVE_S_FIELD_NUMBER: _ClassVar[int]
    node: str
    key: _run_pb2.RunKey
    rank: int
    step: int
    batch_s: float
    loss: float
    gpu_memory_bytes: int
    metrics: _containers.ScalarMap[str, float]
    restart_s: float
    save_s: float
    training: TrainingReport
    ignored: int
    saves: bool
    not_finite: _containers.RepeatedScalarFieldContainer[str]
    error: str
    error_at: float
    doing: str
    stacks: str
    ready_ports: _containers.RepeatedScalarFieldContainer[int]
    ready_word: str
    calls: _containers.RepeatedCompositeFieldContainer[_run_pb2.StepRecord]
    unsaved_step: int
    unsaved_why: str
    save_bytes: int
    room_bytes: int
    expected_save_s: float
    def __init__(self, node: _Optional[str] = ..., key: _Optional[_Union[_run_pb2.RunKey, _Mapping]] = ..., rank: _Optional[int] = ..., step: _Optional[int] = ..., batch_s: _Optional[float] = ..., loss: _Optional[float] = ..., gpu_memory_bytes: _Optional[int] = ..., metrics: _Optional[_Mapping[str, float]] = ..., restart_s: _Optional[float] = ..., save_s: _Optional[float] = ..., training: _Optional[_Union[TrainingReport, _Mapping]] = ..., ignored: _Optional[int] = ..., saves: _Optional[bool] = ..., not_finite: _Optional[_Iterable[str]] = ..., error: _Optional[str] = ..., error_at: _Optional[float] = ..., doing: _Optional[str] = ..., stacks: _Optional[str] = ..., ready_ports: _Optional[_Iterable[int]] = ..., ready_word: _Optional[str] = ..., calls: _Optional[_Iterable[_Union[_run_pb2.StepRecord, _Mapping]]] = ..., unsaved_step: _Optional[int] = ..., unsaved_why: _Optional[str] = ..., save_bytes: _Optional[int] = ..., room_bytes: _Optional[int] = ..., expected_save_s: _Optional[float] = ...) -> None: ...

class TrainingReport(_message.Message):
    __slots__ = ("nodes", "replicas", "local", "steps", "accumulation_s", "optimiser_s", "gradient_sqr", "gradient_var", "initial", "maximum", "local_min", "local_max", "may_accumulate", "fixed", "local_now", "accumulation_now", "progress")
    NODES_FIELD_NUMBER: _ClassVar[int]
    REPLICAS_FIELD_NUMBER: _ClassVar[int]
    LOCAL_FIELD_NUMBER: _ClassVar[int]
    STEPS_FIELD_NUMBER: _ClassVar[int]
    ACCUMULATION_S_FIELD_NUMBER: _ClassVar[int]
    OPTIMISER_S_FIELD_NUMBER: _ClassVar[int]
    GRADIENT_SQR_FIELD_NUMBER: _ClassVar[int]
    GRADIENT_VAR_FIELD_NUMBER: _ClassVar[int]
    INITIAL_FIELD_NUMBER: _ClassVar[int]
    MAXIMUM_FIELD_NUMBER: _ClassVar[int]
    LOCAL_MIN_FIELD_NUMBER: _ClassVar[int]
    LOCAL_MAX_FIELD_NUMBER: _ClassVar[int]
    MAY_ACCUMULATE_FIELD_NUMBER: _ClassVar[int]
    FIXED_FIELD_NUMBER: _ClassVar[int]
    LOCAL_NOW_FIELD_NUMBER: _ClassVar[int]
    ACCUMULATION_NOW_FIELD_NUMBER: _ClassVar[int]
    PROGRESS_FIELD_NUMBER: _ClassVar[int]
    nodes: int
    replicas: int
    local: _containers.RepeatedScalarFieldContainer[int]
    steps: _containers.RepeatedScalarFieldContainer[int]
    accumulation_s: _containers.RepeatedScalarFieldContainer[float]
    optimiser_s: _containers.RepeatedScalarFieldContainer[float]
    gradient_sqr: float
    gradient_var: float
    initial: int
    maximum: int
    local_min: int
    local_max: int
    may_accumulate: bool
    fixed: bool
    local_now: int
    accumulation_now: int
    progress: float
    def __init__(self, nodes: _Optional[int] = ..., replicas: _Optional[int] = ..., local: _Optional[_Iterable[int]] = ..., steps: _Optional[_Iterable[int]] = ..., accumulation_s: _Optional[_Iterable[float]] = ..., optimiser_s: _Optional[_Iterable[float]] = ..., gradient_sqr: _Optional[float] = ..., gradient_var: _Optional[float] = ..., initial: _Optional[int] = ..., maximum: _Optional[int] = ..., local_min: _Optional[int] = ..., local_max: _Optional[int] = ..., may_accumulate: _Optional[bool] = ..., fixed: _Optional[bool] = ..., local_now: _Optional[int] = ..., accumulation_now: _Optional[int] = ..., progress: _Optional[float] = ...) -> None: ...

class ReportReply(_message.Message):
    __slots__ = ("stop_step", "batch")
    STOP_STEP_FIELD_NUMBER: _ClassVar[int]
    BATCH_FIELD_NUMBER: _ClassVar[int]
    stop_step: int
    batch: Batch
    def __init__(self, stop_step: _Optional[int] = ..., batch: _Optional[_Union[Batch, _Mapping]] = ...) -> None: ...

class CheckpointCommit(_message.Message):
    __slots__ = ("node", "key", "path", "step", "bytes", "sha256", "loss", "keep")
    NODE_FIELD_NUMBER: _ClassVar[int]
    KEY_FIELD_NUMBER: _ClassVar[int]
    PATH_FIELD_NUMBER: _ClassVar[int]
    STEP_FIELD_NUMBER: _ClassVar[int]
    BYTES_FIELD_NUMBER: _ClassVar[int]
    SHA256_FIELD_NUMBER: _ClassVar[int]
    LOSS_FIELD_NUMBER: _ClassVar[int]
    KEEP_FIELD_NUMBER: _ClassVar[int]
    node: str
    key: _run_pb2.RunKey
    path: str
    step: int
    bytes: int
    sha256: str
    loss: float
    keep: int
    def __init__(self, node: _Optional[str] = ..., key: _Optional[_Union[_run_pb2.RunKey, _Mapping]] = ..., path: _Optional[str] = ..., step: _Optional[int] = ..., bytes: _Optional[int] = ..., sha256: _Optional[str] = ..., loss: _Optional[float] = ..., keep: _Optional[int] = ...) -> None: ...

class CheckpointReply(_message.Message):
    __slots__ = ("accepted", "why", "held")
    ACCEPTED_FIELD_NUMBER: _ClassVar[int]
    WHY_FIELD_NUMBER: _ClassVar[int]
    HELD_FIELD_NUMBER: _ClassVar[int]
    accepted: bool
    why: str
    held: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, accepted: _Optional[bool] = ..., why: _Optional[str] = ..., held: _Optional[_Iterable[str]] = ...) -> None: ...
