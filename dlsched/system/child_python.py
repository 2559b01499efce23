"""How a process of ours starts another one with the same modules."""

from __future__ import annotations

import os
from pathlib import Path

import dlsched


def child_environment() -> dict[str, str]:
    """The variables of a Python process that finds what this one imports.

    It never imports from the folder in which this process was started.
    """
    given = filter(os.path.isabs, os.environ.get("PYTHONPATH", "").split(os.pathsep))
    root = Path(dlsched.__file__).parents[1]
    path = os.pathsep.join([*given, *([] if root.name == "site-packages" else [str(root)])])
    return {**os.environ, "PYTHONPATH": path}
