"""The daemon's configuration file: TOML, read into models that refuse unknown keys.

Invariant: a file is taken as a whole or not at all; an error is one line with the path of the key.
"""

from __future__ import annotations

import os
import stat
import tomllib
from collections.abc import Iterable
from pathlib import Path
from typing import Annotated, Any, Literal, get_args

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    ValidationError,
    ValidationInfo,
    field_validator,
    model_validator,
)

from dlsched.core.cluster.cell_rules import CellRules
from dlsched.core.cluster.host_lists import expand
from dlsched.core.cluster.site_rules import WEEK_S, Level, refuse_mutual
from dlsched.core.errors import BadInput, NotTrusted, not_known
from dlsched.daemon.site_rules.priority_classes import NORMAL, check_class
from dlsched.daemon.site_rules.table_sections import (
    HostList,
    TenantSection,
    keys_of,
    with_facts,
)
from dlsched.daemon.site_rules.vc_tree import check_tree
from dlsched.daemon.site_rules.webhook_urls import read_url
from dlsched.db.engine import has_password, parse_url
from dlsched.protocol.messages import Fence
from dlsched.protocol.timing import Timing
from dlsched.rpc.endpoint import Endpoint, parse_endpoint
from dlsched.system import ports
from dlsched.system.log_lines import LogForm
from dlsched.tenants.fields import Partition, PriorityClass, Tenant, Vc

Seconds = Annotated[float, Field(gt=0, le=10 * 366 * 86400, allow_inf_nan=False)]
Feature = Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9_.+-]{0,63}$")]
Name = Annotated[str, Field(min_length=1, max_length=64, pattern=r"^[A-Za-z0-9_.-]+$")]


class _Section(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class ClusterSection(_Section):
    """The cluster's name, and the rule for silent nodes."""

    name: Name = "cluster"
    fence: Literal["hold", "lease"] = "lease"
    kill_on_bad_exit: bool = False  # do all tasks of `srun` end when one fails?


class DaemonSection(_Section):
    """Where this process listens, and its database, metrics and log."""

    database: str = "sqlite:////var/lib/dlsched/daemon/dlsched.db"
    listen: tuple[str, ...] = ("unix:/run/dlsched/daemon.sock", f"127.0.0.1:{ports.DAEMON}")
    name: str = ""  # unique among the daemons of one database; empty: host and process
    metrics: str = f"127.0.0.1:{ports.DAEMON_METRICS}"  # empty: none; port 0: any free one, logged
    web: str = ""  # HOST:PORT of the web page; empty: none
    log_level: Literal["debug", "info", "warning", "error"] = "info"
    log_format: LogForm = "logfmt"
    migrate: bool = False

    @field_validator("database")
    @classmethod
    def _is_usable(cls, value: str) -> str:
        try:
            url = parse_url(value)
        except BadInput as error:
            raise ValueError(str(error).removeprefix("database: ")) from None
        file = url.database or ""
        if url.get_backend_name() == "sqlite" and not os.path.isabs(file):
            raise ValueError(
                f"{value} is relative to the folder that the daemon begins in; four slashes make "
                f"it absolute: sqlite:////{file}"
            )
        return value


class RoundSection(_Section):
    """When rounds are decided, and the policy that decides them."""

    interval_s: Seconds = 60.0
    fill_after_s: Annotated[float, Field(ge=0, le=10)] = 0.01
    time_limit_s: Seconds = 20.0  # for one decision of a policy
    red_after: Annotated[int, Field(ge=1, le=1000)] = 3
    policy: Name = "fifo"
    placement: Name = "min-nodes"
    admission: str = ""
    fairness: str = ""
    estimate: str = "user"
    host: str = ""
    host_profiles: str = ""  # a file: how fast models are with how many processors
    options: tuple[str, ...] = ()
    predict_every_s: Annotated[float, Field(ge=0, le=86400)] = 60.0  # 0: only when a client asks
    predict_within_s: Seconds = 10.0
    seed: int = 0
    restart_overhead_s: Annotated[float, Field(ge=0, le=86400)] = 0.0
    min_run_s: Annotated[float, Field(ge=0, le=86400)] = 0.0
    measure_s: Seconds = 30.0  # the shortest time over which a speed is measured
    ready_s: Seconds = 120.0  # in which the ranks of a run in place must be ready
    preempt_mode: Literal["requeue", "suspend"] = "requeue"
    send_user_signal: bool = False  # at a preemption, in place of TERM, to jobs with --signal


class WhatIfSection(_Section):
    """Bounds on what a user's question about alternatives may cost."""

    within_s: Annotated[float, Field(gt=0, le=50)] = 20.0  # of one question
    alternatives: Annotated[int, Field(ge=1, le=100)] = 16  # in one question


class ShadowSection(_Section):
    """A second policy that decides without acting, and what it may cost."""

    policy: str = ""  # empty: none
    placement: str = ""  # empty here and below: as the present policy has it
    admission: str = ""
    fairness: str = ""
    estimate: str = ""
    host: str = ""
    options: tuple[str, ...] = ()
    every_s: Seconds = 60.0
    within_s: Annotated[float, Field(gt=0, le=600)] = 10.0  # for a decision, and for a prediction
    share: Annotated[float, Field(gt=0, le=1)] = 0.05  # of one processor's time, at most


class HangSection(_Section):
    """When a training seems to hang, and what is done then; a job may say otherwise."""

    action: Literal["requeue", "fail", "tell", "off"] = "tell"
    factor: Annotated[float, Field(ge=2, le=1e9)] = 30.0  # usual step times without a step
    least_s: Seconds = 300.0  # without a step, however short a step usually is


class IdleSection(_Section):
    """When the GPUs of a job count as idle; its owner and operators are told, no more."""

    below: Annotated[float, Field(ge=0, le=1)] = 0.05  # of their utilisation
    after_s: Seconds = 1800.0


class FaultsSection(_Section):
    """What is done about a job whose GPU has a fault, and about a node where starts fail."""

    action: Literal["tell", "requeue"] = "tell"
    gpu_retries: Annotated[int, Field(ge=0)] = 3  # of a job, in a row
    failed_starts: Annotated[int, Field(ge=0)] = 3  # of different jobs drain a node; 0: none do
    failed_starts_s: Seconds = 600.0  # within so long


class FencingSection(_Section):
    """The site's command that switches a silent node off."""

    command: tuple[str, ...] = ()  # empty: none; `{node}` stands for the node's name
    timeout_s: Seconds = 60.0
    retries: Annotated[int, Field(ge=0, le=100)] = 2  # after the first try has failed

    @field_validator("command")
    @classmethod
    def _names_the_node(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        if value and not value[0].startswith("/"):
            raise ValueError(f"{value[0]!r} is not the full path of a program")
        if value and not any("{node}" in word for word in value[1:]):
            raise ValueError("no word after the program has {node} in it")
        return value

    def command_for(self, node: str) -> list[str]:
        """The command's words for a node; no shell reads them."""
        return [word.replace("{node}", node) for word in self.command]


class NotificationsSection(_Section):
    """Where users are told of their jobs; without any of these they are not told."""

    command: tuple[str, ...] = ()  # reads each notice as JSON
    url: str = ""  # gets each notice
    allowed_urls: tuple[str, ...] = ()  # how a job's own URL may begin
    mail_command: tuple[str, ...] = ()  # reads a mail; `{to}` and `{subject}` are replaced
    mail_domains: tuple[str, ...] = ()  # of addresses; empty: this machine's own, "*": all
    timeout_s: Annotated[float, Field(gt=0, le=120)] = 10.0
    retries: Annotated[int, Field(ge=0, le=100)] = 12  # after the first try has failed
    waiting: Annotated[int, Field(ge=1, le=1_000_000)] = 10_000  # notices at once, at most
    waiting_per_user: Annotated[int, Field(ge=1, le=1_000_000)] = 1_000  # the same of one user

    @field_validator("command", "mail_command")
    @classmethod
    def _is_a_program(cls, value: tuple[str, ...], info: ValidationInfo) -> tuple[str, ...]:
        if value and not value[0].startswith("/"):
            raise ValueError(f"{value[0]!r} is not the full path of a program")
        if value and info.field_name == "mail_command" and "{to}" not in value[1:]:
            raise ValueError('no word after the program is "{to}"')
        return value

    @field_validator("url")
    @classmethod
    def _is_a_url(cls, value: str) -> str:
        try:
            return str(read_url(value)) if value else ""
        except BadInput as error:
            raise ValueError(str(error)) from None

    @field_validator("allowed_urls")
    @classmethod
    def _are_urls(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        return tuple(cls._is_a_url(each) for each in value)


class TrustSection(_Section):
    """Certificates, or the development mode that trusts this machine."""

    mode: Literal["tls", "insecure-loopback"] = "tls"
    folder: str = "/etc/dlsched/tls"  # ca.crt, daemon.crt, daemon.key
    denied: str = ""  # file of refused certificates; empty: `denied` in the folder
    operators: tuple[str, ...] = ("root",)
    attach: Literal["owner", "operators"] = "operators"  # they enter a job beside its owner
    root_jobs: bool = False  # also run root's jobs; each agent decides for itself too


class SubmitSection(_Section):
    """The site's own function that looks at what is submitted and updated."""

    filter: str = ""  # MODULE:FUNCTION or /PATH/OF/FILE.py:FUNCTION; empty: none
    within_s: Annotated[float, Field(gt=0, le=60)] = 5.0  # of one call


class LimitsSection(_Section):
    """Bounds on what users may submit."""

    array_size: Annotated[int, Field(ge=1, le=1_000_000)] = 10_000
    batch_size: Annotated[int, Field(ge=1, le=1_000_000)] = 10_000
    jobs_per_user: Annotated[int, Field(ge=1)] = 50_000
    jobs: Annotated[int, Field(ge=1)] = 200_000
    submits_per_s: Annotated[float, Field(gt=0, le=1e6)] = 100.0  # calls of one user, on average
    submit_burst: Annotated[int, Field(ge=1)] = 1_000  # calls of one user at once
    connections: Annotated[int, Field(ge=16)] = 256  # of one user id or address
    bytes_per_user: Annotated[int, Field(ge=1)] = 1 << 30  # scripts and environments of live jobs
    bytes: Annotated[int, Field(ge=1)] = 4 << 30  # the same of all users together
    # what the database has of a user's jobs, ended ones too, and what a user submits in an hour
    stored_bytes_per_user: Annotated[int, Field(ge=1)] = 16 << 30
    submitted_bytes_per_hour: Annotated[int, Field(ge=1)] = 4 << 30
    disk_reserve_bytes: Annotated[int, Field(ge=0)] = 1 << 30  # at most a tenth of the disk
    gpu_share: Annotated[float, Field(gt=0, le=1)] = 0.05  # the smallest part of a GPU for a job
    script_bytes: Annotated[int, Field(ge=1)] = 4 * 1024 * 1024
    environment_bytes: Annotated[int, Field(ge=1)] = 1024 * 1024
    grace_s: Seconds = 600.0  # the longest grace time of a job
    retries: Annotated[int, Field(ge=0)] = 1000
    timeouts: Annotated[int, Field(ge=0)] = 100  # after which a job may be queued again


class CheckpointsSection(_Section):
    """Which users may begin at a job's checkpoints, and which of ended jobs are deleted."""

    shared: Literal["owner", "account", "all"] = "account"
    keep: Annotated[int, Field(ge=0)] | None = None  # of each ended job
    max_age_s: Seconds | None = None  # since the end of its job
    max_bytes: Annotated[int, Field(ge=0)] | None = None  # of one user's ended jobs together
    prune_every_s: Seconds = 600.0


class HistorySection(_Section):
    """How long ended jobs, events and rounds are kept."""

    keep_days: Annotated[float, Field(ge=1, le=36_600)] | None = None  # None: for ever
    prune_every_s: Seconds = 600.0


@with_facts
class NodeSection(_Section):
    """A configured node, or several equal ones."""

    name: HostList = ""  # a host list: n[1-4]; empty: `count` nodes n1, n2, ...
    count: Annotated[int, Field(ge=1, le=100_000)] = 1
    gpus: Annotated[int, Field(ge=0, le=1024)] = 0
    gpu_type: str = ""
    features: tuple[Feature, ...] = ()  # that jobs may ask for (`-C`)
    spare: bool = False  # only for jobs that have lost a node or a GPU

    def facts(self) -> dict[str, object]:
        """What the section says of each of its nodes, by the names of `LiveNode`."""
        return self.model_dump(exclude={"name", "count", "gpus", "features", "spare"})


class CellTypeSection(_Section):
    """A shape of GPUs, made of smaller ones."""

    child: str
    count: Annotated[int, Field(ge=1)]
    node: bool = False  # is it one machine?


class PhysicalCellSection(_Section):
    """A top-level cell of the machines, with all below it."""

    type: str
    address: str = ""
    pinned: str = ""  # the name by which a virtual cluster owns it
    nodes: HostList = ""  # names of its machines, in order
    children: tuple[dict[str, object], ...] = ()


class GrantSection(_Section):
    """So many cells of a type that a virtual cluster owns."""

    type: str
    count: Annotated[int, Field(ge=0)] = 1


@keys_of(Vc)
class VcSection(TenantSection):
    """A virtual cluster: a tenant's share."""

    borrow: bool = True
    cells: tuple[GrantSection, ...] = ()  # that it owns
    pinned: tuple[Name, ...] = ()  # names of the very cells that it owns


@keys_of(Partition)
class PartitionSection(TenantSection):
    """A name for some of the nodes, with rules for the jobs there."""

    default_gpus: Literal[0, 1] = 1  # of jobs that say nothing of GPUs; 0: none

    @model_validator(mode="after")
    def _within(self) -> PartitionSection:
        longest = self.tenant.max_time_s
        if longest is not None and (self.tenant.default_time_s or 0.0) > longest:
            raise ValueError(f"default_time_s is above max_time_s, {longest:g}")
        return self


@keys_of(PriorityClass)
class ClassSection(TenantSection):
    """A priority class."""


class FairShareSection(_Section):
    """How usage fades, and in which groups users share."""

    half_life_s: Seconds = WEEK_S
    level: Level = "account"


class TimingSection(_Section):
    """The protocol's times, which are checked together."""

    beat_s: Seconds = 5.0
    reply_age_s: Seconds = 5.0
    confirmed_s: Seconds = 4.0
    lease_s: Seconds = 30.0
    kill_s: Seconds = 15.0
    margin_s: Seconds = 20.0
    prepare_s: Seconds = 30.0
    unkillable_s: Seconds = 60.0
    obeys_s: Seconds = 30.0

    def timing(self) -> Timing:
        """The times as the protocol takes them."""
        return Timing(**self.model_dump())


class Settings(_Section):
    """The whole file."""

    cluster: ClusterSection = ClusterSection()
    daemon: DaemonSection = DaemonSection()
    round: RoundSection = RoundSection()
    what_if: WhatIfSection = WhatIfSection()
    shadow: ShadowSection = ShadowSection()
    hang: HangSection = HangSection()
    idle: IdleSection = IdleSection()
    fencing: FencingSection = FencingSection()
    faults: FaultsSection = FaultsSection()
    notifications: NotificationsSection = NotificationsSection()
    trust: TrustSection = TrustSection()
    submit: SubmitSection = SubmitSection()
    limits: LimitsSection = LimitsSection()
    checkpoints: CheckpointsSection = CheckpointsSection()
    history: HistorySection = HistorySection()
    timing: TimingSection = TimingSection()
    fair_share: FairShareSection = FairShareSection()
    nodes: tuple[NodeSection, ...] = ()
    vcs: tuple[VcSection, ...] = ()
    partitions: tuple[PartitionSection, ...] = ()
    classes: tuple[ClassSection, ...] = ()
    cell_types: dict[str, CellTypeSection] = Field(default_factory=dict)
    physical_cells: tuple[PhysicalCellSection, ...] = ()
    topology: dict[str, object] = Field(default_factory=dict)

    @field_validator("vcs", "partitions", "classes")
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
        self.configured_nodes()
        try:
            check_tree({vc.name: vc.tenant for vc in self.vcs})
        except BadInput as error:
            raise ValueError(f"vcs: {error}") from None
        try:
            CellRules.from_bytes(self.cells()).check(where="cells")
        except BadInput as error:
            raise ValueError(str(error)) from None
        self._check_nodes()
        default = [each.name for each in self.partitions if each.tenant.is_default]
        if len(default) > 1:
            raise ValueError(f"partitions: {default[0]} and {default[1]} are both the default")
        tokens = any(text.startswith("users:") for text in self.daemon.listen)
        if self.daemon.web and self.trust.mode == "tls" and not tokens:
            raise ValueError(
                "daemon.web: viewers show tokens, which the daemon takes at a users:HOST:PORT "
                "address only: add one to daemon.listen"
            )
        self._check_classes()
        self._check_ports()
        return self

    def _check_nodes(self) -> None:
        """Refuse nodes that the file does not have, and more GPUs than it has."""
        hosts = {
            f"{kind}: {each.name}": _hosts(each.tenant.nodes) if each.tenant.nodes else []
            for kind, tenants in (("partitions", self.partitions), ("vcs", self.vcs))
            for each in tenants
        }
        nodes = self.configured_nodes()
        if not nodes:
            return  # every node may register, so that none is unknown
        for where, names in hosts.items():
            for name in names:
                if name not in nodes:
                    raise ValueError(f"{where}: nodes: {name} is no node of [[nodes]]")
        gpus = [section.gpus for section in nodes.values()]
        if 0 in gpus:
            return  # the file does not say how large the cluster is
        for vc in self.vcs:
            for key, number in (("gpus", vc.tenant.gpus), ("guaranteed", vc.tenant.guaranteed)):
                if number is not None and number > sum(gpus):
                    raise ValueError(
                        f"vcs: {vc.name}: {key}: {number} is more than the {sum(gpus)} GPUs of "
                        "[[nodes]]"
                    )

    def _check_ports(self) -> None:
        listen = {
            f"daemon.listen {text}": text.removeprefix("users:") for text in self.daemon.listen
        }
        texts = {**listen, "daemon.metrics": self.daemon.metrics, "daemon.web": self.daemon.web}
        ends: dict[str, tuple[str, int]] = {}
        for name, text in texts.items():
            try:
                end = parse_endpoint(text) if text else Endpoint(path="/")
            except BadInput as error:
                raise ValueError(f"{name.split()[0]}: {error}") from None
            if not end.path:
                ends[name] = (end.host, end.port)
        if both := ports.clash(ends):
            raise ValueError(both)

    def _check_classes(self) -> None:
        classes = {each.name: each.tenant for each in self.classes}
        try:
            for each in classes.values():
                check_class(each, classes)
            refuse_mutual({name: each.preempts for name, each in classes.items()})
            for each in classes.values():
                if each.grace_s is not None and each.grace_s > self.limits.grace_s:
                    raise BadInput(f"class {each.name}: grace_s is above limits.grace_s")
                for name in each.preempts:
                    if name not in (NORMAL, *classes):
                        raise not_known(f"class {each.name}: preempts", name, (NORMAL, *classes))
        except BadInput as error:
            raise ValueError(f"classes: {error}") from None

    @property
    def fence(self) -> Fence:
        """The fence of a job that names none."""
        return Fence(self.cluster.fence)

    def configured_nodes(self) -> dict[str, NodeSection]:
        """The nodes that the file names, in order; without any, every node may register.

        Raises:
            ValueError: for a node that is there twice.
        """
        found: dict[str, NodeSection] = {}
        for section in self.nodes:
            unnamed = [f"n{len(found) + k + 1}" for k in range(section.count)]
            for name in _hosts(section.name) if section.name else unnamed:
                if name in found:
                    raise ValueError(f"nodes: {name} is there twice")
                found[name] = section
        return found

    def node_features(self) -> dict[str, tuple[str, ...]]:
        """The features of the configured nodes that have any."""
        nodes = self.configured_nodes().items()
        return {name: section.features for name, section in nodes if section.features}

    def cells(self) -> bytes:
        """The cells of machines and virtual clusters, as rounds take them; empty: none are said."""
        owners = {
            vc.name: (vc.model_dump(include={"cells"})["cells"], vc.pinned)
            for vc in self.vcs
            if vc.cells or vc.pinned
        }
        types = {name: kind.model_dump() for name, kind in self.cell_types.items()}
        tops = [top.model_dump(exclude_defaults=True) for top in self.physical_cells]
        return CellRules(types=types, tops=tops, owners=owners).to_bytes()

    def tenants(self) -> tuple[Tenant, ...]:
        """The virtual clusters, partitions and priority classes of the file."""
        return tuple(each.tenant for each in (*self.vcs, *self.partitions, *self.classes))

    def partition_rules(self) -> dict[str, Partition]:
        """The partitions by name."""
        return {each.name: each.tenant for each in self.partitions}

    def partition_nodes(self) -> dict[str, frozenset[str] | None]:
        """The nodes of each partition; None for all."""
        rules = self.partition_rules().values()
        return {p.name: frozenset(_hosts(p.nodes)) if p.nodes else None for p in rules}

    def partitions_of(self, node: str) -> tuple[str, ...]:
        """The partitions that a node is in."""
        members = self.partition_nodes().items()
        return tuple(name for name, nodes in members if nodes is None or node in nodes)

    def default_partition(self) -> str:
        """The partition of a job that names none; empty when the cluster has none."""
        rules = self.partition_rules()
        return ([p.name for p in rules.values() if p.is_default] or [*rules, ""])[0]

    def default_gpus(self, partition: str) -> int | None:
        """The GPUs of a job that says nothing of them; None: as everywhere."""
        found = [p.default_gpus for p in self.partitions if p.name == partition]
        return 0 if found == [0] else None


def _hosts(text: str) -> list[str]:
    """The names of a host list; a malformed one is a ValueError, as pydantic wants it."""
    try:
        return expand("nodes", text)
    except BadInput as error:
        raise ValueError(str(error)) from None


def load_settings(path: Path) -> Settings:
    """The settings of a file.

    Raises:
        BadInput: one line: the file, the key and what is wrong with it.
        NotTrusted: it has a password, and other users can read it.
    """
    try:
        with path.open() as file:
            mode = stat.S_IMODE(os.fstat(file.fileno()).st_mode)
            content = tomllib.loads(file.read())
    except OSError as error:
        raise BadInput(f"{path}: {error.strerror}") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise BadInput(f"{path}: {error}") from None
    try:
        settings = Settings.model_validate(content)
    except ValidationError as error:
        # of a misspelt key: its own name says more than that another one is missing
        first = min(error.errors(), key=lambda each: each["type"] != "extra_forbidden")
        where = ".".join(map(str, first["loc"]))  # empty where the reason itself begins with it
        why = first["msg"].removeprefix("Value error, ")
        if first["type"] == "extra_forbidden":
            known = not_known("", str(first["loc"][-1]), _keys_beside(first["loc"]))
            why = "unknown key" + str(known).partition(" is not known")[2]
        raise BadInput(": ".join(part for part in (str(path), where, why) if part)) from None
    if mode & 0o077 and has_password(settings.daemon.database):
        raise NotTrusted(
            f"{path} has a password in daemon.database and can be read by others "
            f"(mode {mode:04o}): chmod 600 {path}"
        )
    return settings


def _keys_beside(place: tuple[int | str, ...]) -> Iterable[str]:
    """The keys that a section may have, of which the last of `place` is none."""
    section: type[BaseModel] = Settings
    for name in place[:-1]:
        if isinstance(name, str) and name in section.model_fields:
            (section,) = _models_in(section.model_fields[name].annotation)
    return section.model_fields


def _models_in(annotation: object) -> list[type[BaseModel]]:
    """The model in an annotation such as `tuple[VcSection, ...]`."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return [annotation]
    return [found for each in get_args(annotation) for found in _models_in(each)]


def differences(old: Settings, new: Settings) -> list[str]:
    """What a reload changes, one line for each key; a line says when its key needs a restart."""
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
