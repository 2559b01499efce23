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

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from dlsched.core.documents import named_tables, whole_number
from dlsched.core.errors import BadInput
from simulate.document_files import read_document

MOST_OPERATIONS = 2_000
_KEYS = ("name", "us", "parameter_bytes", "gradient_bytes", "inputs", "group")


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
    said = read_document(path)
    if not isinstance(said, dict):
        raise BadInput(f"{path}: must be an object with a list `operations`")
    name = said.get("name", path.stem)
    if not isinstance(name, str) or not name:
        raise BadInput(f"{path}: name must be a text")
    batch_size = whole_number(str(path), "batch_size", said.get("batch_size", 0))
    listed = said.get("operations")
    described = named_tables(str(path), "operation", listed, _KEYS, most=MOST_OPERATIONS)
    operations: dict[str, ModelOperation] = {}
    for each, (where, fields) in described.items():
        made = operations[each] = _operation(where, each, fields)
        for source in made.inputs:
            if source == each or source not in operations:
                raise BadInput(f"{where}: takes from {source}, which is no operation before it")
    return Model(name, batch_size, list(operations.values()))


def _operation(where: str, name: str, said: Mapping[str, Any]) -> ModelOperation:
    def amounts(key: str, of: str, default: Any = None) -> dict[str, int]:
        given = said.get(key, default)
        if not isinstance(given, dict):
            raise BadInput(f"{where}: {key} must give {of}")
        return {each: whole_number(where, f"{key} of {each}", given[each]) for each in given}

    parameters = whole_number(where, "parameter_bytes", said.get("parameter_bytes", 0))
    times = amounts("us", "µs by GPU type")
    group = said.get("group", name)
    if not times:
        raise BadInput(f"{where}: us must give µs by GPU type")
    if not isinstance(group, str) or not group:
        raise BadInput(f"{where}: group must be a text")
    gradients = said.get("gradient_bytes", parameters)
    return ModelOperation(
        name=name,
        us=times,
        parameter_bytes=parameters,
        gradient_bytes=whole_number(where, "gradient_bytes", gradients),
        inputs=amounts("inputs", "bytes by operation", {}),
        group=group,
    )
