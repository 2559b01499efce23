"""What a training and a service are: Python files with a few functions.

A training has `build() -> (model, optimizer)` and `iteration(model, optimizer, number)`, which
raises StopIteration when all is done. A service has `build() -> model` and `example()`, an input.
"""

from __future__ import annotations

from importlib import util
from pathlib import Path
from types import ModuleType

from dlsched.core.errors import BadInput

OF_TRAININGS = ("build", "iteration")
OF_SERVICES = ("build", "example")


def load(path: str, needed: tuple[str, ...]) -> ModuleType:
    """Load a file that has these functions.

    Raises:
        BadInput: there is no such file, or a function is missing.
    """
    if not Path(path).is_file():
        raise BadInput(f"{path}: there is no such file")
    spec = util.spec_from_file_location(f"program_{Path(path).stem}", path)
    if spec is None or spec.loader is None:
        raise BadInput(f"{path}: not a Python file")
    module = util.module_from_spec(spec)
    spec.loader.exec_module(module)
    missing = [name for name in needed if not callable(getattr(module, name, None))]
    if missing:
        raise BadInput(f"{path}: no function {missing[0]}; needed are {', '.join(needed)}")
    return module
