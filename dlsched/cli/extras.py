"""The parts of dlsched that are installed on request, and what says that one is missing."""

from __future__ import annotations

import importlib.util

from dlsched.core.errors import DlschedError

# the modules that the packages of each extra have
MODULES = {
    "daemon": (
        "alembic",
        "cryptography",
        "grpc_health",
        "msgspec",
        "prometheus_client",
        "psycopg",
        "pydantic",
        "sqlalchemy",
    ),
    "torch": ("torch",),
    "agent": ("cryptography", "prometheus_client", "psutil", "pynvml"),
}

CALLED = {"torch": "PyTorch"}  # where an extra is not a part of dlsched


def check_installed(*extras: str) -> None:
    """Refuse to go on without some extras.

    Raises:
        DlschedError: one is not installed; the line says what installs it.
    """
    missing = [
        extra
        for extra in extras
        if any(importlib.util.find_spec(module) is None for module in MODULES[extra])
    ]
    if missing:
        wanted = missing[0] if len(extras) == 1 else "live"
        names = " and ".join(CALLED.get(extra, f"the {extra}") for extra in missing)
        verb = "is" if len(missing) == 1 else "are"
        raise DlschedError(f"{names} {verb} not installed: pip install 'dlsched[{wanted}]'")


def hint_of(module: str | None) -> str:
    """What installs a module that is missing; empty where it is of no extra."""
    extras = [extra for extra, modules in MODULES.items() if module in modules]
    if not extras:
        return ""
    wanted = extras[0] if len(extras) == 1 else "live"
    return f"{module} is not installed: pip install 'dlsched[{wanted}]'"
