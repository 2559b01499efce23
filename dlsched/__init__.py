"""dlsched: a batch system for deep-learning GPU clusters, live and in replay.

`dlsched.study` replays traces from Python; `dlsched.client` talks to a cluster. What they need is
imported when they are first used, so that a training script that imports `dlsched.job` stays light.
"""

from __future__ import annotations

from typing import Any

__version__: str  # counted in a checkout, when it is read first

_HOMES = {
    "Columns": "simulate.results.columns",
    "StudyResults": "simulate.study",
    "study": "simulate.study",
}


def __getattr__(name: str) -> Any:
    if name == "__version__":
        from dlsched.version import version  # noqa: PLC0415

        return version()
    if name not in _HOMES:
        raise AttributeError(f"module 'dlsched' has no attribute {name!r}")
    from importlib import import_module  # noqa: PLC0415

    return getattr(import_module(_HOMES[name]), name)
