from dlsched.rpc.v1 import run_pb2 as _run_pb2
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class Order(_message.Message):
    __slots__ = ("release", "freeze", "thaw", "signal", "stop", "kill", "forget", "adjust")
    RELEASE_FIELD_NUMBER: _ClassVar[int]
    FREEZE_FIELD_NUMBER: _ClassVar[int]
    THAW_FIELD_NUMBER: _ClassVar[int]
    SIGNAL_FIELD_NUMBER: _ClassVar[int]
    STOP_FIELD_NUMBER: _ClassVar[int]
    KILL_FIELD_NUMBER: _ClassVar[int]
    FORGET_FIELD_NUMBER: _ClassVar[int]
    ADJUST_FIELD_NUMBER: _ClassVar[int]
    release: Release
    freeze: Freeze
    thaw: Thaw
    signal: Signal
    stop: Stop
    kill: Kill
    forget: Forget
    adjust: Adjust
    def __init__(self, release: _Optional[_Union[Release, _Mapping]] = ..., freeze: _Optional[_Union[Freeze, _Mapping]] = ..., thaw: _Optional[_Union[Thaw, _Mapping]] = ..., signal: _Optional[_Union[Signal, _Mapping]] = ..., stop: _Optional[_Union[Stop, _Mapping]] = ..., kill: _Optional[_Union[Kill, _Mapping]] = ..., forget: _Optional[_Union[Forget, _Mapping]] = ..., adjust: _Optional[_Union[Adjust, _Mapping]] = ...) -> None: ...

class Release(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class Freeze(_message.Message):
    __slots__ = ("level", "suspension")
    LEVEL_FIELD_NUMBER: _ClassVar[int]
    SUSPENSION_FIELD_NUMBER: _ClassVar[int]
    level: _run_pb2.SuspendLevel
    suspension: int
    def __init__(self, level: _Optional[_Union[_run_pb2.SuspendLevel, str]] = ..., suspension: _Optional[int] = ...) -> None: ...

class Thaw(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class Signal(_message.Message):
    __slots__ = ("number",)
    NUMBER_FIELD_NUMBER: _ClassVar[int]
    number: int
    def __init__(self, number: _Optional[int] = ...) -> None: ...

class Stop(_message.Message):
    __slots__ = ("reason", "step")
    REASON_FIELD_NUMBER: _ClassVar[int]
    STEP_FIELD_NUMBER: _ClassVar[int]
    reason: _run_pb2.StopReason
    step: int
    def __init__(self, reason: _Optional[_Union[_run_pb2.StopReason, str]] = ..., step: _Optional[int] = ...) -> None: ...

class Adjust(_message.Message):
    __slots__ = ("limits", "grace_s")
    LIMITS_FIELD_NUMBER: _ClassVar[int]
    GRACE_S_FIELD_NUMBER: _ClassVar[int]
    limits: _run_pb2.Limits
    grace_s: float
    def __init__(self, limits: _Optional[_Union[_run_pb2.Limits, _Mapping]] = ..., grace_s: _Optional[float] = ...) -> None: ...

class Kill(_message.Message):
    __slots__ = ("reason",)
    REASON_FIELD_NUMBER: _ClassVar[int]
    reason: _run_pb2.StopReason
    def __init__(self, reason: _Optional[_Union[_run_pb2.StopReason, str]] = ...) -> None: ...

class Forget(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class KeeperStatus(_message.Message):
    __slots__ = ("desired", "phase", "exit", "quarantined", "suspension", "let_go")
    DESIRED_FIELD_NUMBER: _ClassVar[int]
    PHASE_FIELD_NUMBER: _ClassVar[int]
    EXIT_FIELD_NUMBER: _ClassVar[int]
    QUARANTINED_FIELD_NUMBER: _ClassVar[int]
    SUSPENSION_FIELD_NUMBER: _ClassVar[int]
    LET_GO_FIELD_NUMBER: _ClassVar[int]
    desired: _run_pb2.DesiredRun
    phase: _run_pb2.Phase
    exit: _run_pb2.ExitRecord
    quarantined: bool
    suspension: int
    let_go: bool
    def __init__(self, desired: _Optional[_Union[_run_pb2.DesiredRun, _Mapping]] = ..., phase: _Optional[_Union[_run_pb2.Phase, str]] = ..., exit: _Optional[_Union[_run_pb2.ExitRecord, _Mapping]] = ..., quarantined: _Optional[bool] = ..., suspension: _Optional[int] = ..., let_go: _Optional[bool] = ...) -> None: ...
