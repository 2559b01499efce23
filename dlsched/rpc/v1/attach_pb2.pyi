from dlsched.rpc.v1 import run_pb2 as _run_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class AttachInput(_message.Message):
    __slots__ = ("target", "data", "end", "window", "taken", "signal")
    TARGET_FIELD_NUMBER: _ClassVar[int]
    DATA_FIELD_NUMBER: _ClassVar[int]
    END_FIELD_NUMBER: _ClassVar[int]
    WINDOW_FIELD_NUMBER: _ClassVar[int]
    TAKEN_FIELD_NUMBER: _ClassVar[int]
    SIGNAL_FIELD_NUMBER: _ClassVar[int]
    target: AttachTarget
    data: bytes
    end: bool
    window: Window
    taken: int
    signal: int
    def __init__(self, target: _Optional[_Union[AttachTarget, _Mapping]] = ..., data: _Optional[bytes] = ..., end: _Optional[bool] = ..., window: _Optional[_Union[Window, _Mapping]] = ..., taken: _Optional[int] = ..., signal: _Optional[int] = ...) -> None: ...

class AttachTarget(_message.Message):
    __slots__ = ("job", "node", "argv", "ticket", "terminal", "window", "term", "fresh", "again", "taken", "wait", "port", "key", "user", "uid")
    JOB_FIELD_NUMBER: _ClassVar[int]
    NODE_FIELD_NUMBER: _ClassVar[int]
    ARGV_FIELD_NUMBER: _ClassVar[int]
    TICKET_FIELD_NUMBER: _ClassVar[int]
    TERMINAL_FIELD_NUMBER: _ClassVar[int]
    WINDOW_FIELD_NUMBER: _ClassVar[int]
    TERM_FIELD_NUMBER: _ClassVar[int]
    FRESH_FIELD_NUMBER: _ClassVar[int]
    AGAIN_FIELD_NUMBER: _ClassVar[int]
    TAKEN_FIELD_NUMBER: _ClassVar[int]
    WAIT_FIELD_NUMBER: _ClassVar[int]
    PORT_FIELD_NUMBER: _ClassVar[int]
    KEY_FIELD_NUMBER: _ClassVar[int]
    USER_FIELD_NUMBER: _ClassVar[int]
    UID_FIELD_NUMBER: _ClassVar[int]
    job: int
    node: str
    argv: _containers.RepeatedScalarFieldContainer[str]
    ticket: str
    terminal: bool
    window: Window
    term: str
    fresh: bool
    again: bool
    taken: int
    wait: bool
    port: int
    key: _run_pb2.RunKey
    user: str
    uid: int
    def __init__(self, job: _Optional[int] = ..., node: _Optional[str] = ..., argv: _Optional[_Iterable[str]] = ..., ticket: _Optional[str] = ..., terminal: _Optional[bool] = ..., window: _Optional[_Union[Window, _Mapping]] = ..., term: _Optional[str] = ..., fresh: _Optional[bool] = ..., again: _Optional[bool] = ..., taken: _Optional[int] = ..., wait: _Optional[bool] = ..., port: _Optional[int] = ..., key: _Optional[_Union[_run_pb2.RunKey, _Mapping]] = ..., user: _Optional[str] = ..., uid: _Optional[int] = ...) -> None: ...

class Window(_message.Message):
    __slots__ = ("rows", "columns")
    ROWS_FIELD_NUMBER: _ClassVar[int]
    COLUMNS_FIELD_NUMBER: _ClassVar[int]
    rows: int
    columns: int
    def __init__(self, rows: _Optional[int] = ..., columns: _Optional[int] = ...) -> None: ...

class AttachOutput(_message.Message):
    __slots__ = ("attached", "data", "end", "taken", "notice", "ended", "waits")
    ATTACHED_FIELD_NUMBER: _ClassVar[int]
    DATA_FIELD_NUMBER: _ClassVar[int]
    END_FIELD_NUMBER: _ClassVar[int]
    TAKEN_FIELD_NUMBER: _ClassVar[int]
    NOTICE_FIELD_NUMBER: _ClassVar[int]
    ENDED_FIELD_NUMBER: _ClassVar[int]
    WAITS_FIELD_NUMBER: _ClassVar[int]
    attached: Attached
    data: bytes
    end: bool
    taken: int
    notice: str
    ended: AttachEnd
    waits: str
    def __init__(self, attached: _Optional[_Union[Attached, _Mapping]] = ..., data: _Optional[bytes] = ..., end: _Optional[bool] = ..., taken: _Optional[int] = ..., notice: _Optional[str] = ..., ended: _Optional[_Union[AttachEnd, _Mapping]] = ..., waits: _Optional[str] = ...) -> None: ...

class Attached(_message.Message):
    __slots__ = ("node", "ticket", "position", "taken", "started")
    NODE_FIELD_NUMBER: _ClassVar[int]
    TICKET_FIELD_NUMBER: _ClassVar[int]
    POSITION_FIELD_NUMBER: _ClassVar[int]
    TAKEN_FIELD_NUMBER: _ClassVar[int]
    STARTED_FIELD_NUMBER: _ClassVar[int]
    node: str
    ticket: str
    position: int
    taken: int
    started: bool
    def __init__(self, node: _Optional[str] = ..., ticket: _Optional[str] = ..., position: _Optional[int] = ..., taken: _Optional[int] = ..., started: _Optional[bool] = ...) -> None: ...

class AttachEnd(_message.Message):
    __slots__ = ("code", "signal", "why", "elsewhere")
    CODE_FIELD_NUMBER: _ClassVar[int]
    SIGNAL_FIELD_NUMBER: _ClassVar[int]
    WHY_FIELD_NUMBER: _ClassVar[int]
    ELSEWHERE_FIELD_NUMBER: _ClassVar[int]
    code: int
    signal: int
    why: str
    elsewhere: bool
    def __init__(self, code: _Optional[int] = ..., signal: _Optional[int] = ..., why: _Optional[str] = ..., elsewhere: _Optional[bool] = ...) -> None: ...
