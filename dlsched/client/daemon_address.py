"""The daemon's address, and the files with which client and daemon authenticate each other.

The first of these that is given: the caller's argument, DLSCHED_DAEMON,
`~/.config/dlsched/config.toml`, `/etc/dlsched/client.toml`, the local socket if its folder
exists, and this machine's port.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

from dlsched.client.submission.texts import as_flag
from dlsched.core.errors import BadInput, not_known
from dlsched.record import Record, field
from dlsched.system import ports

LOCAL_SOCKET = "unix:/run/dlsched/daemon.sock"
LOCAL_PORT = f"127.0.0.1:{ports.DAEMON}"
WAIT_S = 20.0  # longer than the takeover by a standby
_TEXTS = ("daemon", "daemon_wait", "ca", "token_file", "login_socket", "certificate", "key")


class DaemonAddress(Record):
    """An address, and the files needed for authentication there; an empty text is "not given".

    Several addresses, joined by commas, are those of a daemon and its standbys.
    """

    daemon: str
    wait_s: float = WAIT_S  # how long to wait for a daemon that is away, in seconds
    ca: str = ""
    token_file: str = ""
    certificate: str = ""
    key: str = ""
    login_socket: str = ""
    insecure_loopback: bool = False
    token: str = field(default="", repr=False)  # itself, in place of `token_file`


def find_daemon(
    daemon: str | None = None,
    *,
    insecure_loopback: bool = False,
    wait: str | None = None,
    variables: Mapping[str, str] | None = None,
    files: tuple[str, ...] | None = None,
) -> DaemonAddress:
    """Gather the settings; what one source does not give comes from the next.

    Args:
        daemon: HOST:PORT or unix:/PATH; None: from the other sources.
        insecure_loopback: for development: no authentication, and only on this machine.
        wait: how long to wait for a daemon that is away, a duration; None: from the other sources.
        variables: environment variables; None: those of this process.
        files: configuration files; None: the user's, then the machine's.

    Raises:
        BadInput: a configuration file that cannot be read or has unknown keys, or a malformed wait.
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
    wait_from: tuple[str, str] | None = None
    if wait is not None:
        wait_from = ("--daemon-wait", wait)
    elif variables.get("DLSCHED_DAEMON_WAIT"):
        wait_from = ("DLSCHED_DAEMON_WAIT", variables["DLSCHED_DAEMON_WAIT"])
    for path in _config_files(variables) if files is None else files:
        given = _read(path)
        told = given.pop("daemon_wait", None)
        if told is not None:
            wait_from = wait_from or (f"{path}: daemon_wait", told)
        for key, value in given.items():
            found.setdefault(key, value)
    if wait_from is not None:
        from dlsched.client.submission.durations import duration  # noqa: PLC0415  # rarely given

        found["wait_s"] = duration(*wait_from, bare="seconds")
    if "daemon" not in found:
        # the folder stays while a daemon restarts, the socket does not
        is_daemons = os.path.isdir(os.path.dirname(LOCAL_SOCKET.removeprefix("unix:")))
        found["daemon"] = LOCAL_SOCKET if is_daemons else LOCAL_PORT
    return DaemonAddress(**found)


def _config_files(variables: Mapping[str, str]) -> tuple[str, ...]:
    home = variables.get("XDG_CONFIG_HOME") or os.path.join(
        variables.get("HOME") or os.path.expanduser("~"), ".config"
    )
    return os.path.join(home, "dlsched", "config.toml"), "/etc/dlsched/client.toml"


def _read(path: str) -> dict[str, Any]:
    try:
        with open(path, "rb") as file:  # a `Path` would cost a third of Python's start
            raw = file.read()
    except (FileNotFoundError, NotADirectoryError):
        return {}
    except OSError as error:
        raise BadInput(f"{path}: can't be read ({error.strerror})") from None
    import tomllib  # noqa: PLC0415  # most users have no such file

    try:
        document = tomllib.loads(raw.decode())
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise BadInput(f"{path}: not TOML ({error})") from None
    for key, value in document.items():
        wanted: type = bool if key == "insecure_loopback" else str
        if key not in {*_TEXTS, "insecure_loopback"}:
            raise not_known(f"{path}:", key, (*_TEXTS, "insecure_loopback"))
        if not isinstance(value, wanted):
            raise BadInput(f"{path}: {key}: not a {'truth value' if wanted is bool else 'text'}")
    return {
        key: os.path.expanduser(value) if isinstance(value, str) else value
        for key, value in document.items()
    }
