"""The operations of a training, as a JSON file describes them.

    {"name": "vgg16", "batch_size": 64,
     "operations": [
       {"name": "conv", "us": {"v100": 4000, "t4": 8000}, "parameter_bytes": 1000000},
       {"name": "dense", "us": {"v100": 9000, "t4": 18000}, "parameter_bytes": 8000000,
        "inputs": {"conv": 600000}}]}

`us` is the time of the whole batch on one GPU of a type, in microseconds. `inputs` are the bytes
that an operation takes from others, for the whole batch. `gradient_bytes` are summed over all
replicas after the operation; without it, they are as many as `parameter_bytes`. Operations with
the same `group`, such as one and its backward pass, run on the same GPUs; without it, each is one.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from dlsched.core.errors import BadInput

MOST_OPERATIONS = 2_000
_LARGEST = 2**53
_KEYS = {"name", "us", "parameter_bytes", "gradient_bytes", "inputs", "group"}


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelOperation:
    """One operation of the whole batch.

    Attributes:
        name: unique in its model.
        us: µs of the whole batch on one GPU, by type.
        parameter_bytes: of its parameters, which stay in memory.
        gradient_bytes: that are summed over its replicas.
        inputs: bytes that it takes from others, by their names.
        group: operations of one group run on the same GPUs.
    """

    name: str
    us: Mapping[str, int]
    parameter_bytes: int
    gradient_bytes: int
    inputs: Mapping[str, int]
    group: str


@dataclass(frozen=True)
class Model:
    """The operations of one training.

    Attributes:
        name: of the model, as in a trace's column `model`.
        batch_size: of all GPUs together; 0: not said.
        operations: each after those that it takes from.
    """

    name: str
    batch_size: int
    operations: Sequence[ModelOperation]

    @cached_property
    def groups(self) -> list[str]:
        """The groups, in the order of their first operations."""
        return list(dict.fromkeys(each.group for each in self.operations))

    def parameter_bytes(self, group: str) -> int:
        """Bytes of a group's parameters."""
        return sum(each.parameter_bytes for each in self.operations if each.group == group)

    def total_us(self, gpu_type: str) -> int:
        """µs of all operations on one GPU of a type.

        Raises:
            BadInput: the time of one is not known there.
        """
        for each in self.operations:
            if gpu_type not in each.us:
                known = ", ".join(sorted(each.us))
                raise BadInput(
                    f"model {self.name}: operation {each.name} has no time on {gpu_type}; "
                    f"it has one on {known}"
                )
        return sum(each.us[gpu_type] for each in self.operations)


def read_model(path: Path) -> Model:
    """Read a model.

    Raises:
        BadInput: one line that says what is wrong, and where.
    """
    try:
        said = json.loads(path.read_text())
    except OSError as error:
        raise BadInput(f"{path}: {error.strerror}") from None
    except ValueError as error:
        raise BadInput(f"{path}: no JSON: {error}") from None
    listed = said.get("operations") if isinstance(said, dict) else None
    if not isinstance(listed, list) or not 1 <= len(listed) <= MOST_OPERATIONS:
        raise BadInput(f"{path}: needs a list `operations` of 1 to {MOST_OPERATIONS}")
    name = said.get("name", path.stem)
    if not isinstance(name, str) or not name:
        raise BadInput(f"{path}: name must be a text")
    operations = [_operation(f"{path}: operation {n}", each) for n, each in enumerate(listed, 1)]
    seen: set[str] = set()
    for each in operations:
        for source in each.inputs:
            if source not in seen:
                raise BadInput(
                    f"{path}: operation {each.name} takes from {source}, which is no operation "
                    "before it"
                )
        if each.name in seen:
            raise BadInput(f"{path}: two operations are called {each.name}")
        seen.add(each.name)
    return Model(name, _whole(str(path), "batch_size", said.get("batch_size", 0)), operations)


def _operation(where: str, said: Any) -> ModelOperation:
    if not isinstance(said, dict) or not isinstance(said.get("name"), str) or not said["name"]:
        raise BadInput(f"{where}: needs a name")
    where = f"{where} ({said['name']})"
    unknown = sorted(set(said) - _KEYS)
    if unknown:
        raise BadInput(f"{where}: {unknown[0]} is not known; known are {', '.join(sorted(_KEYS))}")
    times, inputs = said.get("us"), said.get("inputs", {})
    if not isinstance(times, dict) or not times:
        raise BadInput(f"{where}: us must give µs by GPU type")
    if not isinstance(inputs, dict):
        raise BadInput(f"{where}: inputs must give bytes by operation")
    parameters = _whole(where, "parameter_bytes", said.get("parameter_bytes", 0))
    group = said.get("group", said["name"])
    if not isinstance(group, str) or not group:
        raise BadInput(f"{where}: group must be a text")
    return ModelOperation(
        name=said["name"],
        us={gpu: _whole(where, f"us of {gpu}", time) for gpu, time in times.items()},
        parameter_bytes=parameters,
        gradient_bytes=_whole(where, "gradient_bytes", said.get("gradient_bytes", parameters)),
        inputs={name: _whole(where, f"inputs of {name}", size) for name, size in inputs.items()},
        group=group,
    )


def _whole(where: str, name: str, said: Any) -> int:
    if not isinstance(said, int) or isinstance(said, bool) or not 0 <= said <= _LARGEST:
        raise BadInput(f"{where}: {name} must be a whole number from 0 up, not {said!r}")
    return said
