"""What an agent is told at its start, by options or by a TOML file; options win.

A file that has a name this version does not know is refused: a misspelt limit is no limit.
"""

from __future__ import annotations

import argparse
import os
import socket
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from dlsched.core.errors import BadInput
from dlsched.nodeagent.runfiles import LONGEST_NAME
from dlsched.protocol.timing import Timing

LAUNCHERS = ("plain", "cgroup", "systemd", "auto")
_SOCKET_PATH = 107  # bytes, of the kernel
_BELOW = len("/jobs//keeper.new") + LONGEST_NAME


@dataclass(frozen=True, slots=True, kw_only=True)
class TlsFiles:
    """Where this node's certificate is."""

    ca: str
    certificate: str
    key: str
    denied: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """One agent's."""

    name: str
    daemon: tuple[str, ...]  # tried in turn
    listen: str = "0.0.0.0:7818"
    address: str = ""  # as others reach it; empty: the machine's name and the port listened on
    state_dir: str = "/var/lib/dlsched/agent"
    run_dir: str = "/run/dlsched-agent"
    fake_gpus: str = ""
    launcher: str = "auto"
    insecure_loopback: bool = False
    tls: TlsFiles | None = None
    timing: Timing = Timing()
    minimum_uid: int = 1000
    allow_root: bool = False
    gpus_by_index: bool = False
    checkpoint_tool: str = ""  # empty: cuda-checkpoint, where it is installed
    checkpoint_lock_s: float = 10.0  # how long the driver may wait for a job's kernels
    device_prefix: str = "/dev/nvidia"
    foreign: str = "drain"  # what a GPU with processes of others is: drain or ignore
    gpu_look_s: float = 30.0  # between two looks at the GPUs
    gpu_limit_s: float = 10.0  # of one look
    start_limit_s: float = 30.0
    no_new_privileges: bool = False
    log_level: str = "INFO"


def parser() -> argparse.ArgumentParser:
    """The options."""
    found = argparse.ArgumentParser(
        prog="dlsched agent",
        description="Run jobs on this machine's GPUs for a dlsched daemon.",
        allow_abbrev=False,
    )
    add = found.add_argument
    add("--config", metavar="FILE", help="TOML; options win over it")
    add("--name", help="this node's name (the machine's)")
    add("--daemon", metavar="ADDRESS", help="HOST:PORT or unix:/path; several by commas")
    add("--listen", metavar="HOST:PORT", help="for the daemon and other agents (0.0.0.0:7818)")
    add("--address", metavar="HOST[:PORT]", help="how others reach this agent")
    add("--state-dir", metavar="DIR", help="records that survive a reboot")
    add("--run-dir", metavar="DIR", help="sockets; emptied by a reboot")
    add("--fake-gpus", metavar="N:TYPE[+N:TYPE]", help="pretend, on a machine without GPUs")
    add("--launcher", choices=LAUNCHERS)
    add("--checkpoint-tool", metavar="PATH", help="cuda-checkpoint")
    add("--minimum-uid", type=int, help="refuse jobs of users below (1000)")
    add("--allow-root", action="store_true", default=None, help="run root's jobs too")
    add("--gpus-by-index", action="store_true", default=None, help="CUDA_VISIBLE_DEVICES=0,1")
    add("--log-level", choices=("DEBUG", "INFO", "WARNING", "ERROR"))
    add(
        "--insecure-loopback",
        action="store_true",
        default=None,
        help="development: no certificates, this machine only; root's jobs are run",
    )
    return found


def read(argv: Sequence[str]) -> Settings:
    """The settings in force.

    Raises:
        BadInput: naming the option or the key.
    """
    given = {k: v for k, v in vars(parser().parse_args(list(argv))).items() if v is not None}
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


def _checked(values: dict[str, Any], where: str) -> Settings:
    values = {key.replace("-", "_"): value for key, value in values.items()}
    known = {field.name: field for field in fields(Settings)}
    for key in values:
        if key not in known:
            raise BadInput(f"{where}: unknown setting {key!r}")
    daemon = values.get("daemon", ())
    targets = tuple(daemon.split(",")) if isinstance(daemon, str) else tuple(daemon)
    if not any(targets):
        raise BadInput("which daemon? --daemon HOST:PORT")
    values["daemon"] = tuple(target.strip() for target in targets if target.strip())
    values.setdefault("name", socket.gethostname().split(".")[0].lower())
    if "timing" in values:
        values["timing"] = _group(Timing, values["timing"], f"{where}: timing")
    if values.get("tls") is not None:
        values["tls"] = _group(TlsFiles, values["tls"], f"{where}: tls")
    for key, value in values.items():
        kind = str(known[key].type)
        if kind in _KINDS and not isinstance(value, _KINDS[kind]):
            raise BadInput(f"{where}: {key} is {value!r}, a {kind} expected")
    settings = Settings(**values)
    settings.timing.check()
    if settings.launcher not in LAUNCHERS:
        raise BadInput(f"{where}: launcher {settings.launcher!r}: {', '.join(LAUNCHERS)}")
    if settings.foreign not in ("drain", "ignore"):
        raise BadInput(f"{where}: foreign {settings.foreign!r}: drain, ignore")
    if len(os.fsencode(os.path.abspath(settings.run_dir))) > _SOCKET_PATH - _BELOW:
        most = _SOCKET_PATH - _BELOW
        raise BadInput(f"run_dir {settings.run_dir}: at most {most} bytes, for sockets below it")
    return settings


_KINDS: dict[str, tuple[type, ...]] = {
    "str": (str,),
    "int": (int,),
    "bool": (bool,),
    "float": (int, float),
}


def _group(kind: Any, given: Any, where: str) -> Any:
    if not isinstance(given, Mapping):
        raise BadInput(f"{where}: a table expected")
    values = {key.replace("-", "_"): value for key, value in given.items()}
    unknown = set(values) - {field.name for field in fields(kind)}
    if unknown:
        raise BadInput(f"{where}: unknown setting {sorted(unknown)[0]!r}")
    try:
        return kind(**values)
    except TypeError as error:
        raise BadInput(f"{where}: {error}") from None
