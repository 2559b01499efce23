"""The wire contract: recorded messages still parse, nothing is lost, generated code is current."""

from __future__ import annotations

import dataclasses
import importlib.util
import os
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

pytest.importorskip("google.protobuf")

from dlsched.core.errors import BadInput
from dlsched.protocol import messages as plain
from dlsched.rpc import conversion
from dlsched.rpc.v1 import keeper_pb2, node_pb2, run_pb2

ROOT = Path(__file__).parents[2]


def load(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, Path(__file__).parent / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


recording = load("recording")


@pytest.mark.parametrize("name", sorted(recording.VALUES))
def test_a_recorded_message_still_means_the_same(name: str) -> None:
    value = recording.VALUES[name]
    message = conversion.WIRE[type(value)]()
    message.ParseFromString((recording.FOLDER / f"{name}.bin").read_bytes())
    assert conversion.from_wire(type(value), message) == value


@pytest.mark.parametrize("name", sorted(recording.ORDERS))
def test_a_recorded_order_still_means_the_same(name: str) -> None:
    message = keeper_pb2.Order()
    message.ParseFromString((recording.FOLDER / f"order-{name}.bin").read_bytes())
    assert conversion.order_from_wire(message) == recording.ORDERS[name]


def test_every_recorded_file_has_its_value() -> None:
    names = {path.stem for path in recording.FOLDER.glob("*.bin")}
    assert names == set(recording.VALUES) | {f"order-{name}" for name in recording.ORDERS}


def test_every_field_of_every_value_is_on_the_wire_and_back() -> None:
    for kind, wire in conversion.WIRE.items():
        ours = {field.name for field in dataclasses.fields(kind)}
        assert ours == set(wire.DESCRIPTOR.fields_by_name), kind.__name__


def test_every_enumeration_is_on_the_wire_and_zero_means_nothing() -> None:
    for kind, wire in conversion.ENUMS.items():
        ours = {conversion.wire_name(value) for value in kind}
        theirs = set(wire.keys())
        unsaid = theirs - ours
        assert ours < theirs
        assert {wire.Value(name) for name in unsaid} == {0}


def test_an_unknown_value_is_refused_with_the_field() -> None:
    message = conversion.to_wire(recording.HELD)
    message.phase = 99  # type: ignore[attr-defined]
    with pytest.raises(BadInput, match=r"HeldRun\.phase is 99"):
        conversion.from_wire(plain.HeldRun, message)
    with pytest.raises(BadInput, match="order"):
        conversion.order_from_wire(keeper_pb2.Order())


def test_unknown_fields_of_a_later_version_are_kept() -> None:
    later = node_pb2.NudgeRequest(node="n1").SerializeToString() + b"\xfa\x3e\x03abc"  # field 1007
    message = node_pb2.NudgeRequest()
    message.ParseFromString(later)
    assert message.node == "n1"
    assert message.SerializeToString() == later


def test_field_numbers_are_what_they_were() -> None:
    """Numbers are for ever: a change here is a new field, never a new meaning."""
    lines = []
    for module in (run_pb2, node_pb2, keeper_pb2):
        for name, message in sorted(module.DESCRIPTOR.message_types_by_name.items()):
            lines += [f"{name}.{f.name} = {f.number}" for f in message.fields]
        for name, enum in sorted(module.DESCRIPTOR.enum_types_by_name.items()):
            lines += [f"{name}.{v.name} = {v.number}" for v in enum.values]
    frozen = set((recording.FOLDER / "numbers.txt").read_text().splitlines())
    assert frozen <= set(lines), sorted(frozen - set(lines))


def test_generated_code_is_current(tmp_path: Path) -> None:
    tools = pytest.importorskip("grpc_tools")
    assert tools
    subprocess.run(
        ["bash", str(ROOT / "proto/generate.sh"), str(tmp_path)],
        check=True,
        env={**os.environ, "PYTHON": sys.executable},
    )
    made = sorted(path.relative_to(tmp_path) for path in tmp_path.rglob("*_pb2*.py*"))
    here = {path.relative_to(ROOT) for path in (ROOT / "dlsched/rpc/v1").glob("*_pb2*.py*")}
    assert here == set(made)
    stale = [p for p in made if (tmp_path / p).read_text() != (ROOT / p).read_text()]
    assert not stale
