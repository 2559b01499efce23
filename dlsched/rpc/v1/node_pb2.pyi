from dlsched.rpc.v1 import attach_pb2 as _attach_pb2
from dlsched.rpc.v1 import run_pb2 as _run_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class Health(_message.Message):
    __slots__ = ("quarantined", "unhealthy")
    QUARANTINED_FIELD_NUMBER: _ClassVar[int]
    UNHEALTHY_FIELD_NUMBER: _ClassVar[int]
    quarantined: _containers.RepeatedScalarFieldContainer[str]
    unhealthy: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, quarantined: _Optional[_Iterable[str]] = ..., unhealthy: _Optional[_Iterable[str]] = ...) -> None: ...

class Inventory(_message.Message):
    __slots__ = ("gpus", "gpu_type", "agent_version", "can_freeze", "can_fence", "machine")
    GPUS_FIELD_NUMBER: _ClassVar[int]
    GPU_TYPE_FIELD_NUMBER: _ClassVar[int]
    AGENT_VERSION_FIELD_NUMBER: _ClassVar[int]
    CAN_FREEZE_FIELD_NUMBER: _ClassVar[int]
    CAN_FENCE_FIELD_NUMBER: _ClassVar[int]
    MACHINE_FIELD_NUMBER: _ClassVar[int]
    gpus: _containers.RepeatedScalarFieldContainer[str]
    gpu_type: str
    agent_version: str
    can_freeze: bool
    can_fence: bool
    machine: str
    def __init__(self, gpus: _Optional[_Iterable[str]] = ..., gpu_type: _Optional[str] = ..., agent_version: _Optional[str] = ..., can_freeze: _Optional[bool] = ..., can_fence: _Optional[bool] = ..., machine: _Optional[str] = ...) -> None: ...

class NodeDescription(_message.Message):
    __slots__ = ("node", "facts", "uses", "problems", "faults", "starts", "start_check")
    NODE_FIELD_NUMBER: _ClassVar[int]
    FACTS_FIELD_NUMBER: _ClassVar[int]
    USES_FIELD_NUMBER: _ClassVar[int]
    PROBLEMS_FIELD_NUMBER: _ClassVar[int]
    FAULTS_FIELD_NUMBER: _ClassVar[int]
    STARTS_FIELD_NUMBER: _ClassVar[int]
    START_CHECK_FIELD_NUMBER: _ClassVar[int]
    node: str
    facts: NodeFacts
    uses: _containers.RepeatedCompositeFieldContainer[GpuUse]
    problems: _containers.RepeatedScalarFieldContainer[str]
    faults: _containers.RepeatedScalarFieldContainer[str]
    starts: _containers.RepeatedScalarFieldContainer[str]
    start_check: str
    def __init__(self, node: _Optional[str] = ..., facts: _Optional[_Union[NodeFacts, _Mapping]] = ..., uses: _Optional[_Iterable[_Union[GpuUse, _Mapping]]] = ..., problems: _Optional[_Iterable[str]] = ..., faults: _Optional[_Iterable[str]] = ..., starts: _Optional[_Iterable[str]] = ..., start_check: _Optional[str] = ...) -> None: ...

class DescribeReply(_message.Message):
    __slots__ = ("want_facts", "peers", "check_starts")
    class PeersEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    WANT_FACTS_FIELD_NUMBER: _ClassVar[int]
    PEERS_FIELD_NUMBER: _ClassVar[int]
    CHECK_STARTS_FIELD_NUMBER: _ClassVar[int]
    want_facts: bool
    peers: _containers.ScalarMap[str, str]
    check_starts: bool
    def __init__(self, want_facts: _Optional[bool] = ..., peers: _Optional[_Mapping[str, str]] = ..., check_starts: _Optional[bool] = ...) -> None: ...

class NodeFacts(_message.Message):
    __slots__ = ("address", "cpus", "memory_bytes", "launcher", "capabilities", "gpus", "driver", "version", "tmp_bytes")
    ADDRESS_FIELD_NUMBER: _ClassVar[int]
    CPUS_FIELD_NUMBER: _ClassVar[int]
    MEMORY_BYTES_FIELD_NUMBER: _ClassVar[int]
    LAUNCHER_FIELD_NUMBER: _ClassVar[int]
    CAPABILITIES_FIELD_NUMBER: _ClassVar[int]
    GPUS_FIELD_NUMBER: _ClassVar[int]
    DRIVER_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    TMP_BYTES_FIELD_NUMBER: _ClassVar[int]
    address: str
    cpus: int
    memory_bytes: int
    launcher: str
    capabilities: _containers.RepeatedScalarFieldContainer[str]
    gpus: _containers.RepeatedCompositeFieldContainer[GpuFacts]
    driver: str
    version: str
    tmp_bytes: int
    def __init__(self, address: _Optional[str] = ..., cpus: _Optional[int] = ..., memory_bytes: _Optional[int] = ..., launcher: _Optional[str] = ..., capabilities: _Optional[_Iterable[str]] = ..., gpus: _Optional[_Iterable[_Union[GpuFacts, _Mapping]]] = ..., driver: _Optional[str] = ..., version: _Optional[str] = ..., tmp_bytes: _Optional[int] = ...) -> None: ...

class GpuFacts(_message.Message):
    __slots__ = ("uuid", "index", "type", "memory_bytes", "numa_node", "linked")
    UUID_FIELD_NUMBER: _ClassVar[int]
    INDEX_FIELD_NUMBER: _ClassVar[int]
    TYPE_FIELD_NUMBER: _ClassVar[int]
    MEMORY_BYTES_FIELD_NUMBER: _ClassVar[int]
    NUMA_NODE_FIELD_NUMBER: _ClassVar[int]
    LINKED_FIELD_NUMBER: _ClassVar[int]
    uuid: str
    index: int
    type: str
    memory_bytes: int
    numa_node: int
    linked: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, uuid: _Optional[str] = ..., index: _Optional[int] = ..., type: _Optional[str] = ..., memory_bytes: _Optional[int] = ..., numa_node: _Optional[int] = ..., linked: _Optional[_Iterable[str]] = ...) -> None: ...

class GpuUse(_message.Message):
    __slots__ = ("uuid", "utilization", "memory_used_bytes", "temperature_c", "problem", "foreign", "usable")
    UUID_FIELD_NUMBER: _ClassVar[int]
    UTILIZATION_FIELD_NUMBER: _ClassVar[int]
    MEMORY_USED_BYTES_FIELD_NUMBER: _ClassVar[int]
    TEMPERATURE_C_FIELD_NUMBER: _ClassVar[int]
    PROBLEM_FIELD_NUMBER: _ClassVar[int]
    FOREIGN_FIELD_NUMBER: _ClassVar[int]
    USABLE_FIELD_NUMBER: _ClassVar[int]
    uuid: str
    utilization: float
    memory_used_bytes: int
    temperature_c: float
    problem: str
    foreign: bool
    usable: bool
    def __init__(self, uuid: _Optional[str] = ..., utilization: _Optional[float] = ..., memory_used_bytes: _Optional[int] = ..., temperature_c: _Optional[float] = ..., problem: _Optional[str] = ..., foreign: _Optional[bool] = ..., usable: _Optional[bool] = ...) -> None: ...

class HeldSet(_message.Message):
    __slots__ = ("runs",)
    RUNS_FIELD_NUMBER: _ClassVar[int]
    runs: _containers.RepeatedCompositeFieldContainer[_run_pb2.HeldRun]
    def __init__(self, runs: _Optional[_Iterable[_Union[_run_pb2.HeldRun, _Mapping]]] = ...) -> None: ...

class DesiredSet(_message.Message):
    __slots__ = ("runs",)
    RUNS_FIELD_NUMBER: _ClassVar[int]
    runs: _containers.RepeatedCompositeFieldContainer[_run_pb2.DesiredRun]
    def __init__(self, runs: _Optional[_Iterable[_Union[_run_pb2.DesiredRun, _Mapping]]] = ...) -> None: ...

class SyncRequest(_message.Message):
    __slots__ = ("node", "boot_id", "incarnation", "sequence", "last", "applied", "held_digest", "held", "ended", "desired_digest", "renewed_sequence", "health", "inventory", "starts", "witnesses")
    NODE_FIELD_NUMBER: _ClassVar[int]
    BOOT_ID_FIELD_NUMBER: _ClassVar[int]
    INCARNATION_FIELD_NUMBER: _ClassVar[int]
    SEQUENCE_FIELD_NUMBER: _ClassVar[int]
    LAST_FIELD_NUMBER: _ClassVar[int]
    APPLIED_FIELD_NUMBER: _ClassVar[int]
    HELD_DIGEST_FIELD_NUMBER: _ClassVar[int]
    HELD_FIELD_NUMBER: _ClassVar[int]
    ENDED_FIELD_NUMBER: _ClassVar[int]
    DESIRED_DIGEST_FIELD_NUMBER: _ClassVar[int]
    RENEWED_SEQUENCE_FIELD_NUMBER: _ClassVar[int]
    HEALTH_FIELD_NUMBER: _ClassVar[int]
    INVENTORY_FIELD_NUMBER: _ClassVar[int]
    STARTS_FIELD_NUMBER: _ClassVar[int]
    WITNESSES_FIELD_NUMBER: _ClassVar[int]
    node: str
    boot_id: str
    incarnation: int
    sequence: int
    last: _run_pb2.Term
    applied: _run_pb2.Term
    held_digest: str
    held: HeldSet
    ended: _containers.RepeatedCompositeFieldContainer[_run_pb2.ExitRecord]
    desired_digest: str
    renewed_sequence: int
    health: Health
    inventory: Inventory
    starts: _containers.RepeatedScalarFieldContainer[str]
    witnesses: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, node: _Optional[str] = ..., boot_id: _Optional[str] = ..., incarnation: _Optional[int] = ..., sequence: _Optional[int] = ..., last: _Optional[_Union[_run_pb2.Term, _Mapping]] = ..., applied: _Optional[_Union[_run_pb2.Term, _Mapping]] = ..., held_digest: _Optional[str] = ..., held: _Optional[_Union[HeldSet, _Mapping]] = ..., ended: _Optional[_Iterable[_Union[_run_pb2.ExitRecord, _Mapping]]] = ..., desired_digest: _Optional[str] = ..., renewed_sequence: _Optional[int] = ..., health: _Optional[_Union[Health, _Mapping]] = ..., inventory: _Optional[_Union[Inventory, _Mapping]] = ..., starts: _Optional[_Iterable[str]] = ..., witnesses: _Optional[_Iterable[str]] = ...) -> None: ...

class Lease(_message.Message):
    __slots__ = ("duration_s", "covers")
    DURATION_S_FIELD_NUMBER: _ClassVar[int]
    COVERS_FIELD_NUMBER: _ClassVar[int]
    duration_s: float
    covers: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, duration_s: _Optional[float] = ..., covers: _Optional[_Iterable[str]] = ...) -> None: ...

class Reply(_message.Message):
    __slots__ = ("node", "incarnation", "sequence", "term", "desired_digest", "desired", "acknowledged", "over", "lease", "register", "want_held", "witnesses", "refused", "count_on_from")
    NODE_FIELD_NUMBER: _ClassVar[int]
    INCARNATION_FIELD_NUMBER: _ClassVar[int]
    SEQUENCE_FIELD_NUMBER: _ClassVar[int]
    TERM_FIELD_NUMBER: _ClassVar[int]
    DESIRED_DIGEST_FIELD_NUMBER: _ClassVar[int]
    DESIRED_FIELD_NUMBER: _ClassVar[int]
    ACKNOWLEDGED_FIELD_NUMBER: _ClassVar[int]
    OVER_FIELD_NUMBER: _ClassVar[int]
    LEASE_FIELD_NUMBER: _ClassVar[int]
    REGISTER_FIELD_NUMBER: _ClassVar[int]
    WANT_HELD_FIELD_NUMBER: _ClassVar[int]
    WITNESSES_FIELD_NUMBER: _ClassVar[int]
    REFUSED_FIELD_NUMBER: _ClassVar[int]
    COUNT_ON_FROM_FIELD_NUMBER: _ClassVar[int]
    node: str
    incarnation: int
    sequence: int
    term: _run_pb2.Term
    desired_digest: str
    desired: DesiredSet
    acknowledged: _containers.RepeatedScalarFieldContainer[str]
    over: _containers.RepeatedScalarFieldContainer[str]
    lease: Lease
    register: bool
    want_held: bool
    witnesses: _containers.RepeatedScalarFieldContainer[str]
    refused: str
    count_on_from: int
    def __init__(self, node: _Optional[str] = ..., incarnation: _Optional[int] = ..., sequence: _Optional[int] = ..., term: _Optional[_Union[_run_pb2.Term, _Mapping]] = ..., desired_digest: _Optional[str] = ..., desired: _Optional[_Union[DesiredSet, _Mapping]] = ..., acknowledged: _Optional[_Iterable[str]] = ..., over: _Optional[_Iterable[str]] = ..., lease: _Optional[_Union[Lease, _Mapping]] = ..., register: _Optional[bool] = ..., want_held: _Optional[bool] = ..., witnesses: _Optional[_Iterable[str]] = ..., refused: _Optional[str] = ..., count_on_from: _Optional[int] = ...) -> None: ...

class NudgeRequest(_message.Message):
    __slots__ = ("node", "term")
    NODE_FIELD_NUMBER: _ClassVar[int]
    TERM_FIELD_NUMBER: _ClassVar[int]
    node: str
    term: _run_pb2.Term
    def __init__(self, node: _Optional[str] = ..., term: _Optional[_Union[_run_pb2.Term, _Mapping]] = ...) -> None: ...

class NudgeReply(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class WitnessQuery(_message.Message):
    __slots__ = ("asker", "witness", "nonce")
    ASKER_FIELD_NUMBER: _ClassVar[int]
    WITNESS_FIELD_NUMBER: _ClassVar[int]
    NONCE_FIELD_NUMBER: _ClassVar[int]
    asker: str
    witness: str
    nonce: int
    def __init__(self, asker: _Optional[str] = ..., witness: _Optional[str] = ..., nonce: _Optional[int] = ...) -> None: ...

class WitnessAnswer(_message.Message):
    __slots__ = ("asker", "witness", "nonce", "renewed_ago_s")
    ASKER_FIELD_NUMBER: _ClassVar[int]
    WITNESS_FIELD_NUMBER: _ClassVar[int]
    NONCE_FIELD_NUMBER: _ClassVar[int]
    RENEWED_AGO_S_FIELD_NUMBER: _ClassVar[int]
    asker: str
    witness: str
    nonce: int
    renewed_ago_s: float
    def __init__(self, asker: _Optional[str] = ..., witness: _Optional[str] = ..., nonce: _Optional[int] = ..., renewed_ago_s: _Optional[float] = ...) -> None: ...

class OutputRequest(_message.Message):
    __slots__ = ("key", "rank", "error", "tail_lines", "follow", "path", "user", "uid", "working_directory", "only_rank")
    KEY_FIELD_NUMBER: _ClassVar[int]
    RANK_FIELD_NUMBER: _ClassVar[int]
    ERROR_FIELD_NUMBER: _ClassVar[int]
    TAIL_LINES_FIELD_NUMBER: _ClassVar[int]
    FOLLOW_FIELD_NUMBER: _ClassVar[int]
    PATH_FIELD_NUMBER: _ClassVar[int]
    USER_FIELD_NUMBER: _ClassVar[int]
    UID_FIELD_NUMBER: _ClassVar[int]
    WORKING_DIRECTORY_FIELD_NUMBER: _ClassVar[int]
    ONLY_RANK_FIELD_NUMBER: _ClassVar[int]
    key: _run_pb2.RunKey
    rank: int
    error: bool
    tail_lines: int
    follow: bool
    path: str
    user: str
    uid: int
    working_directory: str
    only_rank: bool
    def __init__(self, key: _Optional[_Union[_run_pb2.RunKey, _Mapping]] = ..., rank: _Optional[int] = ..., error: _Optional[bool] = ..., tail_lines: _Optional[int] = ..., follow: _Optional[bool] = ..., path: _Optional[str] = ..., user: _Optional[str] = ..., uid: _Optional[int] = ..., working_directory: _Optional[str] = ..., only_rank: _Optional[bool] = ...) -> None: ...

class OutputChunk(_message.Message):
    __slots__ = ("data",)
    DATA_FIELD_NUMBER: _ClassVar[int]
    data: bytes
    def __init__(self, data: _Optional[bytes] = ...) -> None: ...

class SignalRequest(_message.Message):
    __slots__ = ("key", "number", "to", "step")
    KEY_FIELD_NUMBER: _ClassVar[int]
    NUMBER_FIELD_NUMBER: _ClassVar[int]
    TO_FIELD_NUMBER: _ClassVar[int]
    STEP_FIELD_NUMBER: _ClassVar[int]
    key: _run_pb2.RunKey
    number: int
    to: str
    step: int
    def __init__(self, key: _Optional[_Union[_run_pb2.RunKey, _Mapping]] = ..., number: _Optional[int] = ..., to: _Optional[str] = ..., step: _Optional[int] = ...) -> None: ...

class SignalReply(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class DeleteCheckpointsRequest(_message.Message):
    __slots__ = ("user", "uid", "paths")
    USER_FIELD_NUMBER: _ClassVar[int]
    UID_FIELD_NUMBER: _ClassVar[int]
    PATHS_FIELD_NUMBER: _ClassVar[int]
    user: str
    uid: int
    paths: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, user: _Optional[str] = ..., uid: _Optional[int] = ..., paths: _Optional[_Iterable[str]] = ...) -> None: ...

class DeleteCheckpointsReply(_message.Message):
    __slots__ = ("gone",)
    GONE_FIELD_NUMBER: _ClassVar[int]
    gone: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, gone: _Optional[_Iterable[str]] = ...) -> None: ...

class RankPlace(_message.Message):
    __slots__ = ("rank", "local_rank", "gpus")
    RANK_FIELD_NUMBER: _ClassVar[int]
    LOCAL_RANK_FIELD_NUMBER: _ClassVar[int]
    GPUS_FIELD_NUMBER: _ClassVar[int]
    rank: int
    local_rank: int
    gpus: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, rank: _Optional[int] = ..., local_rank: _Optional[int] = ..., gpus: _Optional[_Iterable[str]] = ...) -> None: ...

class RanksRequest(_message.Message):
    __slots__ = ("asker", "key", "call", "argv", "environment", "working_directory", "ranks", "world", "master_port", "tasks_per_node", "nodes", "master_address", "cpus_per_task", "changed", "input_to", "input_file", "input", "attempt", "received", "input_at", "taken", "stop")
    class EnvironmentEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    ASKER_FIELD_NUMBER: _ClassVar[int]
    KEY_FIELD_NUMBER: _ClassVar[int]
    CALL_FIELD_NUMBER: _ClassVar[int]
    ARGV_FIELD_NUMBER: _ClassVar[int]
    ENVIRONMENT_FIELD_NUMBER: _ClassVar[int]
    WORKING_DIRECTORY_FIELD_NUMBER: _ClassVar[int]
    RANKS_FIELD_NUMBER: _ClassVar[int]
    WORLD_FIELD_NUMBER: _ClassVar[int]
    MASTER_PORT_FIELD_NUMBER: _ClassVar[int]
    TASKS_PER_NODE_FIELD_NUMBER: _ClassVar[int]
    NODES_FIELD_NUMBER: _ClassVar[int]
    MASTER_ADDRESS_FIELD_NUMBER: _ClassVar[int]
    CPUS_PER_TASK_FIELD_NUMBER: _ClassVar[int]
    CHANGED_FIELD_NUMBER: _ClassVar[int]
    INPUT_TO_FIELD_NUMBER: _ClassVar[int]
    INPUT_FILE_FIELD_NUMBER: _ClassVar[int]
    INPUT_FIELD_NUMBER: _ClassVar[int]
    ATTEMPT_FIELD_NUMBER: _ClassVar[int]
    RECEIVED_FIELD_NUMBER: _ClassVar[int]
    INPUT_AT_FIELD_NUMBER: _ClassVar[int]
    TAKEN_FIELD_NUMBER: _ClassVar[int]
    STOP_FIELD_NUMBER: _ClassVar[int]
    asker: str
    key: _run_pb2.RunKey
    call: int
    argv: _containers.RepeatedScalarFieldContainer[str]
    environment: _containers.ScalarMap[str, str]
    working_directory: str
    ranks: _containers.RepeatedCompositeFieldContainer[RankPlace]
    world: int
    master_port: int
    tasks_per_node: str
    nodes: _containers.RepeatedScalarFieldContainer[str]
    master_address: str
    cpus_per_task: int
    changed: _containers.RepeatedScalarFieldContainer[str]
    input_to: int
    input_file: str
    input: bytes
    attempt: int
    received: int
    input_at: int
    taken: int
    stop: bool
    def __init__(self, asker: _Optional[str] = ..., key: _Optional[_Union[_run_pb2.RunKey, _Mapping]] = ..., call: _Optional[int] = ..., argv: _Optional[_Iterable[str]] = ..., environment: _Optional[_Mapping[str, str]] = ..., working_directory: _Optional[str] = ..., ranks: _Optional[_Iterable[_Union[RankPlace, _Mapping]]] = ..., world: _Optional[int] = ..., master_port: _Optional[int] = ..., tasks_per_node: _Optional[str] = ..., nodes: _Optional[_Iterable[str]] = ..., master_address: _Optional[str] = ..., cpus_per_task: _Optional[int] = ..., changed: _Optional[_Iterable[str]] = ..., input_to: _Optional[int] = ..., input_file: _Optional[str] = ..., input: _Optional[bytes] = ..., attempt: _Optional[int] = ..., received: _Optional[int] = ..., input_at: _Optional[int] = ..., taken: _Optional[int] = ..., stop: _Optional[bool] = ...) -> None: ...

class RankEvent(_message.Message):
    __slots__ = ("rank", "stream", "data", "exited", "code", "signal", "refused", "cpu_s", "peak_memory_bytes", "input_taken", "number", "started")
    RANK_FIELD_NUMBER: _ClassVar[int]
    STREAM_FIELD_NUMBER: _ClassVar[int]
    DATA_FIELD_NUMBER: _ClassVar[int]
    EXITED_FIELD_NUMBER: _ClassVar[int]
    CODE_FIELD_NUMBER: _ClassVar[int]
    SIGNAL_FIELD_NUMBER: _ClassVar[int]
    REFUSED_FIELD_NUMBER: _ClassVar[int]
    CPU_S_FIELD_NUMBER: _ClassVar[int]
    PEAK_MEMORY_BYTES_FIELD_NUMBER: _ClassVar[int]
    INPUT_TAKEN_FIELD_NUMBER: _ClassVar[int]
    NUMBER_FIELD_NUMBER: _ClassVar[int]
    STARTED_FIELD_NUMBER: _ClassVar[int]
    rank: int
    stream: int
    data: bytes
    exited: bool
    code: int
    signal: int
    refused: str
    cpu_s: float
    peak_memory_bytes: int
    input_taken: int
    number: int
    started: bool
    def __init__(self, rank: _Optional[int] = ..., stream: _Optional[int] = ..., data: _Optional[bytes] = ..., exited: _Optional[bool] = ..., code: _Optional[int] = ..., signal: _Optional[int] = ..., refused: _Optional[str] = ..., cpu_s: _Optional[float] = ..., peak_memory_bytes: _Optional[int] = ..., input_taken: _Optional[int] = ..., number: _Optional[int] = ..., started: _Optional[bool] = ...) -> None: ...

class RanksSignal(_message.Message):
    __slots__ = ("asker", "key", "call", "number")
    ASKER_FIELD_NUMBER: _ClassVar[int]
    KEY_FIELD_NUMBER: _ClassVar[int]
    CALL_FIELD_NUMBER: _ClassVar[int]
    NUMBER_FIELD_NUMBER: _ClassVar[int]
    asker: str
    key: _run_pb2.RunKey
    call: int
    number: int
    def __init__(self, asker: _Optional[str] = ..., key: _Optional[_Union[_run_pb2.RunKey, _Mapping]] = ..., call: _Optional[int] = ..., number: _Optional[int] = ...) -> None: ...
