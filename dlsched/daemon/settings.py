"""The daemon's configuration file: TOML, read through models that refuse what they do not know.

Invariant: a file is taken as a whole or not at all; a refusal is one line with the path of the key.
"""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator, model_validator

from dlsched.core.cluster import expand_hosts
from dlsched.core.errors import BadInput
from dlsched.daemon.vc_tree import check_tree
from dlsched.protocol.messages import Fence
from dlsched.protocol.timing import Timing

__all__ = [
    "ClusterSection",
    "DaemonSection",
    "LimitsSection",
    "NodeSection",
    "PartitionSection",
    "RoundSection",
    "Settings",
    "TrustSection",
    "VcSection",
    "differences",
    "load_settings",
]

Seconds = Annotated[float, Field(gt=0, le=10 * 366 * 86400, allow_inf_nan=False)]
Name = Annotated[str, Field(min_length=1, max_length=64, pattern=r"^[A-Za-z0-9_.-]+$")]


class _Section(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class ClusterSection(_Section):
    """What the cluster is called and by which rule silent nodes are treated."""

    name: Name = "cluster"
    fence: Literal["hold", "lease"] = "hold"


class DaemonSection(_Section):
    """Where this process listens, stores and logs."""

    database: str = "sqlite:////var/lib/dlsched/daemon/dlsched.db"
    listen: tuple[str, ...] = ("unix:/run/dlsched/daemon.sock", "127.0.0.1:7817")
    name: str = ""  # among several daemons on one database; empty: host and process
    metrics: str = "127.0.0.1:7819"  # empty: none; port 0: any free one, logged
    log_level: Literal["debug", "info", "warning", "error"] = "info"
    migrate: bool = False


class RoundSection(_Section):
    """When rounds are decided and by what."""

    interval_s: Seconds = 60.0
    fill_after_s: Annotated[float, Field(ge=0, le=10)] = 0.01
    time_limit_s: Seconds = 20.0  # of the policy, a round
    red_after: Annotated[int, Field(ge=1, le=1000)] = 3
    policy: Name = "fifo"
    placement: Name = "min-nodes"
    admission: str = ""
    fairness: str = ""
    estimate: str = "user"
    options: tuple[str, ...] = ()
    predict_every_s: Annotated[float, Field(ge=0, le=86400)] = 60.0  # 0: only when asked
    predict_within_s: Seconds = 10.0
    seed: int = 0
    restart_overhead_s: Annotated[float, Field(ge=0, le=86400)] = 0.0
    min_run_s: Annotated[float, Field(ge=0, le=86400)] = 0.0
    measure_s: Seconds = 30.0  # of a run, that one measured speed rests on
    preempt_mode: Literal["requeue", "suspend"] = "requeue"


class TrustSection(_Section):
    """Certificates, or the development mode that trusts this machine."""

    mode: Literal["tls", "insecure-loopback"] = "tls"
    folder: str = "/etc/dlsched/tls"  # ca.crt, daemon.crt, daemon.key
    denied: str = ""  # file of refused certificates; empty: `denied` in the folder
    operators: tuple[str, ...] = ("root",)
    root_jobs: bool = False  # run root's jobs too; each agent has a say of its own


class LimitsSection(_Section):
    """Bounds at the door."""

    array_size: Annotated[int, Field(ge=1, le=1_000_000)] = 10_000
    batch_size: Annotated[int, Field(ge=1, le=1_000_000)] = 20_000
    jobs_per_user: Annotated[int, Field(ge=1)] = 50_000
    jobs: Annotated[int, Field(ge=1)] = 200_000
    submits_per_s: Annotated[float, Field(gt=0, le=1e6)] = 100.0  # calls of a user, lastingly
    submit_burst: Annotated[int, Field(ge=1)] = 1_000  # calls at once
    script_bytes: Annotated[int, Field(ge=1)] = 4 * 1024 * 1024
    environment_bytes: Annotated[int, Field(ge=1)] = 1024 * 1024
    grace_s: Seconds = 600.0  # the longest that a job may ask for
    retries: Annotated[int, Field(ge=0)] = 1000


class NodeSection(_Section):
    """A node, or several alike, that the cluster is said to have."""

    name: str = ""  # a host list: n[1-4]; empty: `count` nodes n1, n2, ...
    count: Annotated[int, Field(ge=1, le=100_000)] = 1
    gpus: Annotated[int, Field(ge=0, le=1024)] = 0
    gpu_type: str = ""
    cpus: Annotated[int, Field(ge=1)] | None = None
    memory_gb: Annotated[float, Field(gt=0)] | None = None
    rack: str = ""
    switch: str = ""
    domain: str = ""
    nic_gbps: Annotated[float, Field(gt=0)] | None = None


class VcSection(_Section):
    """A virtual cluster: a tenant's share."""

    name: Name
    gpus: Annotated[int, Field(ge=0)] | None = None
    nodes: str = ""
    guaranteed: Annotated[int, Field(ge=0)] | None = None
    borrow: bool = True
    parent: str = ""  # the one that it is a part of


class PartitionSection(_Section):
    """Some of the nodes under a name, with a limit on time."""

    name: Name
    nodes: str = ""  # a host list; empty: all
    max_time_s: Seconds | None = None
    default: bool = False


class TimingSection(_Section):
    """The protocol's numbers; what they must satisfy is checked."""

    beat_s: Seconds = 5.0
    reply_age_s: Seconds = 5.0
    confirmed_s: Seconds = 10.0
    lease_s: Seconds = 30.0
    kill_s: Seconds = 15.0
    margin_s: Seconds = 20.0
    prepare_s: Seconds = 30.0
    unkillable_s: Seconds = 60.0

    def timing(self) -> Timing:
        """As the protocol takes them."""
        return Timing(**self.model_dump())


class Settings(_Section):
    """The whole file."""

    cluster: ClusterSection = ClusterSection()
    daemon: DaemonSection = DaemonSection()
    round: RoundSection = RoundSection()
    trust: TrustSection = TrustSection()
    limits: LimitsSection = LimitsSection()
    timing: TimingSection = TimingSection()
    nodes: tuple[NodeSection, ...] = ()
    vcs: tuple[VcSection, ...] = ()
    partitions: tuple[PartitionSection, ...] = ()
    topology: dict[str, Any] = Field(default_factory=dict)

    @field_validator("vcs", "partitions")
    @classmethod
    def _once_each(cls, value: tuple[Any, ...]) -> tuple[Any, ...]:
        names = [section.name for section in value]
        twice = sorted({name for name in names if names.count(name) > 1})
        if twice:
            raise ValueError(f"{twice[0]} is there twice")
        return value

    @model_validator(mode="after")
    def _safe(self) -> Settings:
        try:
            self.timing.timing().check()
        except BadInput as error:
            raise ValueError(f"timing: {error}") from None
        self.node_names()
        try:
            check_tree({vc.name: vc for vc in self.vcs})
        except BadInput as error:
            raise ValueError(f"vcs: {error}") from None
        for partition in self.partitions:
            expand(partition.nodes)
        return self

    @property
    def fence(self) -> Fence:
        """What a job's fence is when it does not say."""
        return Fence(self.cluster.fence)

    def node_names(self) -> tuple[str, ...]:
        """The nodes that the file names, in order; none: whoever registers is a node."""
        names: list[str] = []
        for section in self.nodes:
            if section.name:
                names += expand(section.name)
            else:
                names += [f"n{len(names) + k + 1}" for k in range(section.count)]
        if len(set(names)) < len(names):
            twice = next(name for name in names if names.count(name) > 1)
            raise ValueError(f"nodes: {twice} is there twice")
        return tuple(names)

    def partitions_of(self, node: str) -> tuple[str, ...]:
        """The partitions that a node is in."""
        return tuple(
            p.name for p in self.partitions if not p.nodes or node in frozenset(expand(p.nodes))
        )

    def default_partition(self) -> str:
        """The partition of a job that names none; empty when the cluster has none."""
        marked = [p.name for p in self.partitions if p.default]
        return (marked or [p.name for p in self.partitions] or [""])[0]


def expand(text: str) -> list[str]:
    """The names of a host list; a malformed one is a ValueError."""
    try:
        return expand_hosts(text) if text else []
    except BadInput as error:
        raise ValueError(str(error)) from None


def load_settings(path: Path) -> Settings:
    """The settings of a file.

    Raises:
        BadInput: one line: the file, the key and what is wrong with it.
    """
    try:
        content = tomllib.loads(path.read_text())
    except OSError as error:
        raise BadInput(f"{path}: {error.strerror}") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise BadInput(f"{path}: {error}") from None
    try:
        return Settings.model_validate(content)
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(map(str, first["loc"])) or "file"
        why = first["msg"].removeprefix("Value error, ")
        if first["type"] == "extra_forbidden":
            why = "unknown key"
        raise BadInput(f"{path}: {where}: {why}") from None


def differences(old: Settings, new: Settings) -> list[str]:
    """What a reload changes, one line each; keys that need a restart are said to."""
    lines: list[str] = []
    before, after = old.model_dump(), new.model_dump()
    for section, values in after.items():
        was = before[section]
        if not isinstance(values, dict):
            if values != was:
                lines.append(f"{section}: changed")
            continue
        for key, value in values.items():
            if value != was.get(key):
                late = section in ("daemon", "trust", "timing") or (section, key) == (
                    "cluster",
                    "name",
                )
                note = " (takes effect at the next start)" if late else ""
                lines.append(f"{section}.{key}: {was.get(key)} -> {value}{note}")
    return lines
