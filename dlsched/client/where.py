"""Where the daemon is, and by what the client makes sure of it and says who calls.

In this order: what the caller says, DLSCHED_DAEMON, `~/.config/dlsched/config.toml`,
`/etc/dlsched/client.toml`, the local socket if it is there, else this machine's port.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dlsched.client.submission.texts import as_flag
from dlsched.core.errors import BadInput

__all__ = ["LOCAL_PORT", "LOCAL_SOCKET", "Where", "find_daemon"]

LOCAL_SOCKET = "unix:/run/dlsched/daemon.sock"
LOCAL_PORT = "127.0.0.1:7817"
_TEXTS = ("daemon", "ca", "token_file", "login_socket", "certificate", "key")


@dataclass(frozen=True, slots=True, kw_only=True)
class Where:
    """An address, and what is needed to be trusted there; empty is "not said"."""

    daemon: str
    ca: str = ""
    token_file: str = ""
    certificate: str = ""
    key: str = ""
    login_socket: str = ""
    insecure_loopback: bool = False


def find_daemon(
    daemon: str | None = None,
    *,
    insecure_loopback: bool = False,
    variables: Mapping[str, str] | None = None,
    files: tuple[Path, ...] | None = None,
) -> Where:
    """Gather what is said, the nearest first; what one source leaves out comes from the next.

    Args:
        daemon: HOST:PORT or unix:/PATH; None: look further.
        insecure_loopback: development: no proof of anything, and only on this machine.
        variables: the environment; None: this process's.
        files: configuration files; None: the user's, then the machine's.

    Raises:
        BadInput: a configuration file that cannot be read or holds unknown words.
    """
    variables = os.environ if variables is None else variables
    found: dict[str, Any] = {}
    if daemon:
        found["daemon"] = daemon
    elif variables.get("DLSCHED_DAEMON"):
        found["daemon"] = variables["DLSCHED_DAEMON"]
    if insecure_loopback:
        found["insecure_loopback"] = True
    elif variables.get("DLSCHED_INSECURE_LOOPBACK"):
        name = "DLSCHED_INSECURE_LOOPBACK"
        found["insecure_loopback"] = as_flag(name, variables[name]) == "yes"
    if variables.get("DLSCHED_TOKEN_FILE"):
        found["token_file"] = variables["DLSCHED_TOKEN_FILE"]
    for path in _config_files(variables) if files is None else files:
        for key, value in _read(path).items():
            found.setdefault(key, value)
    if "daemon" not in found:
        there = os.path.exists(LOCAL_SOCKET.removeprefix("unix:"))
        found["daemon"] = LOCAL_SOCKET if there else LOCAL_PORT
    return Where(**found)


def _config_files(variables: Mapping[str, str]) -> tuple[Path, ...]:
    home = variables.get("XDG_CONFIG_HOME") or os.path.join(
        variables.get("HOME") or os.path.expanduser("~"), ".config"
    )
    return Path(home, "dlsched", "config.toml"), Path("/etc/dlsched/client.toml")


def _read(path: Path) -> dict[str, Any]:
    try:
        raw = path.read_bytes()
    except (FileNotFoundError, NotADirectoryError):
        return {}
    except OSError as error:
        raise BadInput(f"{path}: can't be read ({error.strerror})") from None
    import tomllib  # noqa: PLC0415  # most have no such file

    try:
        document = tomllib.loads(raw.decode())
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise BadInput(f"{path}: not TOML ({error})") from None
    for key, value in document.items():
        wanted: type = bool if key == "insecure_loopback" else str
        if key not in {*_TEXTS, "insecure_loopback"}:
            known = ", ".join([*_TEXTS, "insecure_loopback"])
            raise BadInput(f"{path}: {key!r} is not known; known: {known}")
        if not isinstance(value, wanted):
            raise BadInput(f"{path}: {key}: not a {'truth value' if wanted is bool else 'text'}")
    return {
        key: os.path.expanduser(value) if isinstance(value, str) else value
        for key, value in document.items()
    }
