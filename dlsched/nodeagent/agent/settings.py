"""The settings of an agent, from its command line or a TOML file; the command line wins.

A file with a name that this version does not know is refused: a misspelt limit would limit nothing.
"""

from __future__ import annotations

import argparse
import os
import socket
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any, get_args

from dlsched.core.errors import BadInput, not_known
from dlsched.nodeagent.keeper.run_files import LONGEST_NAME
from dlsched.nodeagent.ranks.launch_spec import HookSpec
from dlsched.policies.node.salus.turns import Order
from dlsched.protocol.timing import Timing
from dlsched.rpc.endpoint import parse_endpoint
from dlsched.system import ports
from dlsched.system.log_lines import FORMS, LogForm

LAUNCHERS = ("plain", "cgroup", "systemd", "auto")
_DAY_S = 86400
_NO_NUMBER = 2**32 - 1  # the user id of no user; more than any number here
_SOCKET_PATH = 107  # bytes, of the kernel
_BELOW = len("/jobs//keeper.new") + LONGEST_NAME


@dataclass(frozen=True, slots=True, kw_only=True)
class TlsFiles:
    """The paths of this node's certificate, its key and its authority."""

    ca: str
    certificate: str
    key: str
    denied: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class HookSettings(HookSpec):
    """The site's hooks on this node, and its command that looks after the node's health."""

    health: tuple[str, ...] = ()  # empty: none
    health_every_s: float = 300.0
    health_limit_s: float = 30.0

    @property
    def of_runs(self) -> HookSpec:
        """What keepers need of it."""
        return HookSpec(**{each.name: getattr(self, each.name) for each in fields(HookSpec)})


@dataclass(frozen=True, slots=True, kw_only=True)
class TurnSettings:
    """How jobs on the same GPUs take turns, where their scripts ask for turns."""

    order: Order = "fair"  # of the jobs of a lane: fifo, srtf, fair, rr or pack
    conserves_work: bool = True  # a lane goes on with the next job when the first wants no turn
    memory_gb: float = 0.0  # of each GPU, in 10^9 bytes; 0: what it has, less 300 MiB
    patience_s: float = 60.0  # a longer turn is taken away, unless the job's steps last as long


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """The settings of one agent."""

    name: str
    daemon: tuple[str, ...]  # tried in turn
    listen: str = f"0.0.0.0:{ports.AGENT}"
    address: str = ""  # for the daemon and other agents; empty: the machine's name and its port
    state_dir: str = "/var/lib/dlsched/agent"
    run_dir: str = "/run/dlsched-agent"
    fake_gpus: str = ""
    fake_cpus: int = 0  # 0: as many as the machine has
    fake_memory_gb: float = 0.0  # in 10^9 bytes; 0: the machine's
    launcher: str = "auto"
    insecure_loopback: bool = False
    tls: TlsFiles | None = None
    timing: Timing = Timing()
    hooks: HookSettings = HookSettings()
    turns: TurnSettings = TurnSettings()
    minimum_uid: int = 1000
    allow_root: bool = False
    gpus_by_index: bool = False
    checkpoint_tool: str = ""  # empty: cuda-checkpoint, where it is installed
    container_tool: str = ""  # path of apptainer or enroot; empty: where it is installed; none
    checkpoint_lock_s: float = 10.0  # how long the driver may wait for a job's kernels
    device_prefix: str = "/dev/nvidia"
    foreign: str = "drain"  # a GPU with a process of no job is not used; ignore: it is used
    gpu_fault: str = "gpu"  # a GPU with a fault is not used; node: its whole node is drained
    gpu_look_s: float = 30.0  # between two readings of the GPUs
    gpu_limit_s: float = 10.0  # for one reading
    start_limit_s: float = 30.0
    no_new_privileges: bool = False
    node_policy: Mapping[str, Any] = field(default_factory=dict)  # its name and options; none
    metrics: str = ""  # HOST:PORT for Prometheus; port 0: any free one, logged; empty: none
    log_level: str = "INFO"
    log_format: LogForm = "logfmt"


def parser() -> argparse.ArgumentParser:
    """Return the parser of the agent's command line."""
    found = argparse.ArgumentParser(
        prog="dlsched agent",
        description="Run jobs on this machine's GPUs for a dlsched daemon.",
        allow_abbrev=False,
    )
    add = found.add_argument
    add("--config", metavar="FILE", help="settings in TOML; options win over them")
    add("--name", help="this node's name (the machine's)")
    add("--daemon", metavar="ADDRESS", help="HOST:PORT or unix:/path; several separated by commas")
    add(
        "--listen",
        metavar="HOST:PORT",
        help=f"address for the daemon and other agents (0.0.0.0:{ports.AGENT})",
    )
    add(
        "--address",
        metavar="HOST[:PORT]",
        help="where the daemon and other agents reach this agent",
    )
    add("--state-dir", metavar="DIR", help="folder of records that survive a reboot")
    add("--run-dir", metavar="DIR", help="folder of sockets; a reboot empties it")
    add("--fake-gpus", metavar="N:TYPE[+N:TYPE]", help="pretend to have GPUs, for tests")
    add("--fake-cpus", type=int, metavar="N", help="pretend to have N processors")
    add(
        "--fake-memory", dest="fake_memory_gb", type=float, metavar="GB",
        help="pretend to have so much memory, in 10^9 bytes",
    )  # fmt: skip
    add("--check", action="store_true", default=None, help="check the settings and stop")
    add("--launcher", choices=LAUNCHERS)
    add("--checkpoint-tool", metavar="PATH", help="the program cuda-checkpoint")
    add("--minimum-uid", type=int, help="refuse jobs of users with a lower id (1000)")
    add("--allow-root", action="store_true", default=None, help="run root's jobs too")
    add("--gpus-by-index", action="store_true", default=None, help="CUDA_VISIBLE_DEVICES=0,1")
    add("--metrics", metavar="HOST:PORT", help="where Prometheus reads metrics (nowhere)")
    add("--log-level", choices=("DEBUG", "INFO", "WARNING", "ERROR"))
    add(
        "--insecure-loopback",
        action="store_true",
        default=None,
        help="development: no certificates, this machine only; root's jobs are run",
    )
    return found


def read_settings(argv: Sequence[str]) -> Settings:
    """Return the settings that a command line, and the file that it names, make.

    Raises:
        BadInput: names the option or the key that is wrong.
    """
    given = {k: v for k, v in vars(parser().parse_args(list(argv))).items() if v is not None}
    given.pop("check", None)
    path = given.pop("config", None)
    merged: dict[str, Any] = {**(_file(path) if path else {}), **given}
    return _checked(merged, path or "the command line")


def _file(path: str) -> dict[str, Any]:
    try:
        return tomllib.loads(Path(path).read_text())
    except (OSError, UnicodeDecodeError) as error:
        raise BadInput(f"{path}: {getattr(error, 'strerror', error)}") from None
    except tomllib.TOMLDecodeError as error:
        raise BadInput(f"{path}: {error}") from None


def _checked(values: dict[str, Any], where: str) -> Settings:  # noqa: PLR0912  # one case a rule
    values = {key.replace("-", "_"): value for key, value in values.items()}
    known = {each.name: each for each in fields(Settings)}
    for key in values:
        if key not in known:
            raise not_known(f"{where}: setting", key, known)
    daemon = values.get("daemon", ())
    targets = tuple(daemon.split(",")) if isinstance(daemon, str) else tuple(daemon)
    if not any(targets):
        raise BadInput("no daemon is named: --daemon HOST:PORT")
    values["daemon"] = tuple(target.strip() for target in targets if target.strip())
    values.setdefault("name", socket.gethostname().split(".")[0])
    if "timing" in values:
        values["timing"] = _group(Timing, values["timing"], f"{where}: timing")
    if values.get("tls") is not None:
        values["tls"] = _group(TlsFiles, values["tls"], f"{where}: tls")
    if "hooks" in values:
        values["hooks"] = _hooks(values["hooks"], f"{where}: hooks")
    if "turns" in values:
        values["turns"] = _turns(values["turns"], f"{where}: turns")
    if "node_policy" in values:
        _check_node_policy(values["node_policy"], f"{where}: node_policy")
    for key, value in values.items():
        kind = str(known[key].type)
        is_bool = isinstance(value, bool)  # to Python it is a whole number too
        if kind in _KINDS and (not isinstance(value, _KINDS[kind]) or is_bool != (kind == "bool")):
            raise BadInput(f"{where}: {key} is {value!r}: expected {kind}")
    values["name"] = values["name"].lower()  # as DNS, which a certificate's name is for
    settings = Settings(**values)
    settings.timing.check()
    _check_prolog(settings, where)
    _check_ports(settings, where)
    for key in ("minimum_uid", "fake_cpus", "fake_memory_gb"):
        if not 0 <= getattr(settings, key) < _NO_NUMBER:
            raise BadInput(f"{where}: {key} is {getattr(settings, key)}: 0 or more is expected")
    for key in ("checkpoint_lock_s", "gpu_look_s", "gpu_limit_s", "start_limit_s"):
        if not 0 < getattr(settings, key) <= _DAY_S:
            raise BadInput(f"{where}: {key} is {getattr(settings, key)}: seconds, above 0")
    if settings.launcher not in LAUNCHERS:
        raise BadInput(f"{where}: launcher {settings.launcher!r}: {', '.join(LAUNCHERS)}")
    chosen: dict[str, tuple[str, ...]] = {
        "foreign": ("drain", "ignore"), "gpu_fault": ("gpu", "node"), "log_format": FORMS,
    }  # fmt: skip
    for key, choices in chosen.items():
        if getattr(settings, key) not in choices:
            known_ = ", ".join(choices)
            raise BadInput(f"{where}: {key} {getattr(settings, key)!r}: {known_}")
    if len(os.fsencode(os.path.abspath(settings.run_dir))) > _SOCKET_PATH - _BELOW:
        most = _SOCKET_PATH - _BELOW
        raise BadInput(f"run_dir {settings.run_dir}: at most {most} bytes, for sockets below it")
    return settings


def _check_node_policy(given: Any, where: str) -> None:
    """The table of a node policy; whether there is such a policy is seen where it is made."""
    if not isinstance(given, Mapping) or not isinstance(given.get("name"), str):
        raise BadInput(f'{where}: a table with a name is expected, such as name = "antman-node"')


def _check_prolog(settings: Settings, where: str) -> None:
    hooks, prepare_s = settings.hooks, settings.timing.prepare_s
    if hooks.prolog and hooks.prolog_limit_s >= prepare_s:
        raise BadInput(
            f"{where}: hooks: prolog_limit_s is {hooks.prolog_limit_s:g}, must be less than "
            f"timing.prepare_s ({prepare_s:g}): no longer do the nodes of a job wait for each other"
        )


def _check_ports(settings: Settings, where: str) -> None:
    ends = {}
    for name in ("listen", "metrics"):
        if text := getattr(settings, name):
            try:
                end = parse_endpoint(text)
            except BadInput as error:
                raise BadInput(f"{where}: {name}: {error}") from None
            ends[name] = (end.host, end.port)
    if both := ports.clash(ends):
        raise BadInput(f"{where}: {both}")


def _hooks(given: Any, where: str) -> HookSettings:
    """The site's hooks; a command is a path, or a list of words that begins with one."""
    made: HookSettings = _group(HookSettings, given, where)
    chosen: dict[str, Any] = {}
    for name in ("prolog", "epilog", "health"):
        words = getattr(made, name)
        words = (words,) if isinstance(words, str) and words else tuple(words)
        if not all(isinstance(word, str) for word in words):
            raise BadInput(f"{where}: {name}: a path is expected, or a list of words")
        if words and not os.path.isabs(words[0]):
            raise BadInput(f"{where}: {name}: {words[0]!r} is not the full path of a program")
        chosen[name] = words
    made = replace(made, **chosen)
    for name in ("prolog_limit_s", "epilog_limit_s", "health_limit_s", "health_every_s"):
        value = getattr(made, name)
        if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value <= _DAY_S:
            raise BadInput(f"{where}: {name} is {value!r}: seconds are expected, above 0")
    return made


def _turns(given: Any, where: str) -> TurnSettings:
    made: TurnSettings = _group(TurnSettings, given, where)
    if made.order not in get_args(Order):
        raise BadInput(f"{where}: order {made.order!r}: {', '.join(get_args(Order))}")
    for name, least in (("memory_gb", "0 or more"), ("patience_s", "above 0")):
        value = getattr(made, name)
        is_number = isinstance(value, int | float) and not isinstance(value, bool)
        if not is_number or not 0 <= value < 1e9 or (name == "patience_s" and not value):
            raise BadInput(f"{where}: {name} is {value!r}: a number {least} is expected")
    if not isinstance(made.conserves_work, bool):
        raise BadInput(f"{where}: conserves_work is {made.conserves_work!r}: true or false")
    return made


_KINDS: dict[str, tuple[type, ...]] = {
    "str": (str,),
    "int": (int,),
    "bool": (bool,),
    "float": (int, float),
}


def _group(kind: Any, given: Any, where: str) -> Any:
    if not isinstance(given, Mapping):
        raise BadInput(f"{where}: a table is expected")
    values = {key.replace("-", "_"): value for key, value in given.items()}
    known = [each.name for each in fields(kind)]
    for key in values:
        if key not in known:
            raise not_known(f"{where}: setting", key, known)
    try:
        return kind(**values)
    except TypeError as error:
        raise BadInput(f"{where}: {error}") from None
