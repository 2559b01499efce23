"""The shape of `--json`: that of Slurm's data parser v0.0.41, with the fields that there are."""

from __future__ import annotations

import json
import sys
from typing import Any

from dlsched.cli.slurm.arguments import own_name
from dlsched.cli.slurm.cluster import cluster_name
from dlsched.cli.slurm.version import RELEASE, version_text


def number(value: float | None, *, infinite: bool = False) -> dict[str, Any]:
    """A number that may be missing, or infinite."""
    whole = 0 if value is None else int(value)
    return {"set": value is not None, "infinite": infinite, "number": whole}


def exit_of(code: int | None, signal: int | None) -> dict[str, Any]:
    """How something ended; None: it has not."""
    if code is None and signal is None:
        status = ["PENDING"]
    else:
        status = ["SIGNALED"] if signal else ["ERROR"] if code else ["SUCCESS"]
    return {
        "status": status,
        "return_code": number(code),
        "signal": {"id": number(signal or None), "name": _signal_name(signal)},
    }


def _signal_name(number_: int | None) -> str:
    import signal  # noqa: PLC0415  # only of those that one has ended

    try:
        return signal.Signals(number_).name.removeprefix("SIG") if number_ else ""
    except ValueError:
        return ""


def minutes(seconds: float | None) -> dict[str, Any]:
    """A time limit; None: there is none."""
    return number(None if seconds is None else seconds // 60, infinite=seconds is None)


def print_document(command: list[str], **content: Any) -> None:
    """Print what a command tells, with what Slurm says about it."""
    major, minor = RELEASE.split(".")
    document = {
        **content,
        "meta": {
            "plugin": {
                "type": "",
                "name": "",
                "data_parser": "data_parser/v0.0.41",
                "accounting_storage": "",
            },
            "client": {"source": "", "user": own_name(), "group": ""},
            "command": command,
            "slurm": {
                "version": {"major": major, "micro": "0", "minor": minor},
                "release": version_text().removeprefix("slurm "),
                "cluster": cluster_name(),
            },
        },
        "errors": [],
        "warnings": [],
    }
    json.dump(document, sys.stdout, indent=2)
    sys.stdout.write("\n")
