"""Every field of the tables of tenants, from the command line to the database and back.

`dlsched admin` and `dlsched reserve` in this process, a real daemon with its gRPC server and
database, what a second daemon reads from that database, and the lists with `--json`. What the
daemon's file may say goes the same way, and has the same bounds.
"""

from __future__ import annotations

import asyncio
import getpass
import json
from collections.abc import Awaitable, Callable
from dataclasses import fields
from pathlib import Path
from typing import Any

import grpc
import pytest
from pydantic import ValidationError

from dlsched.daemon.settings import Settings
from dlsched.db.store import Store
from dlsched.rpc.v1 import control_pb2 as c
from dlsched.tenants.field import Row, rows_of
from dlsched.tenants.fields import KINDS, key_of
from tests.daemon.cluster_of_tests import Running, eventually, settings_of
from tests.daemon.scripted_agent import ScriptedAgent
from tests.running import dlsched

MESSAGES = {kind: c.Tenant.DESCRIPTOR.fields_by_name[kind].message_type for kind in KINDS}
SECTIONS = {"vc": "vcs", "partition": "partitions", "class": "classes"}
VERBS = {kind: ["admin", kind] for kind in ("user", "account", "vc", "class", "quota")}
# what is there already, so that tenants can name it
FIRST = {"account": ["lab"], "vc": ["speech", "--gpus", "8"], "class": ["idle"]}
# what a value must have beside it
BESIDE = {
    ("vc", "guaranteed"): ["--gpus", "9"],
    ("vc", "parent"): ["--gpus", "1"],
}
TIMES = ["--start", "2033-05-18T03:33:20+00:00", "--end", "2033-05-18T04:33:20+00:00"]
START, END = 2_000_000_000.0, 2_000_003_600.0

Call = Callable[..., Awaitable[str]]


def said(kind: str, row: Row) -> tuple[str, object]:
    """How a value of the field is written on the command line, and the value."""
    if row.names == "class":
        return "idle", ("idle",)
    if row.names:
        name = "lab" if row.names == "account" else "speech"
        return name, (name,) if row.form == "names" else name
    match row.form:
        case "hosts":
            return ("n1", "n1")
        case "names":
            return "ann,bob", ("ann", "bob")
        case "whole":
            return "7", 7
        case "number":
            return "2.5", 2.5
        case "seconds":
            return "90s", 90.0
    return "hello", "hello"


def named(kind: str, row: str) -> list[str]:
    """The name of a tenant that has this field only."""
    return ["account", "lab"] if kind == "quota" else [f"{kind}-{row.replace('_', '-')}"]


def words_of(kind: str, row: Row) -> tuple[list[str], object]:
    """The words that set a field, and its value."""
    option = row.words.split()[0]
    if row.form == "flag":
        return [option.split("/")[0]], True
    text, value = said(kind, row)
    return [option, text, *BESIDE.get((kind, row.name), [])], value


def calls(running: Running) -> Call:
    async def call(*words: str) -> str:
        to = ("--daemon", running.target, "--insecure-loopback")
        return await asyncio.to_thread(dlsched, *words, *to)

    return call


def operated(folder: Path, **sections: Any) -> Settings:
    """Settings of a daemon; the user that runs this test is an operator."""
    trust = {"mode": "insecure-loopback", "operators": ["root", getpass.getuser()]}
    return settings_of(folder, trust=trust, **sections)


async def listed(call: Call, kind: str) -> dict[tuple[str, ...], dict[str, Any]]:
    verb = ["reserve"] if kind == "reservation" else VERBS[kind]
    found = json.loads(await call(*verb, "list", "--json"))
    rows = found["reservations" if kind == "reservation" else "tenants"]
    key = ("kind", "name") if kind == "quota" else ("name",)
    return {tuple(each[part] for part in key): each for each in rows}


def stored(folder: Path) -> dict[tuple[str, str], Any]:
    with Store.open(f"sqlite:///{folder / 'dlsched.db'}") as store:
        return {key_of(row.tenant): row.tenant for row in store.load().tenants}


def in_json(value: object) -> object:
    return list(value) if isinstance(value, tuple) else value


OPTIONS = [
    (kind, name) for kind in VERBS for name, row in rows_of(KINDS[kind]).items() if row.words
]


def test_every_option_of_a_tenant_reaches_the_database_and_comes_back(tmp_path: Path) -> None:
    async def first() -> None:
        async with Running(operated(tmp_path)) as running:
            call = calls(running)
            for kind, words in FIRST.items():
                assert "added" in await call("admin", kind, "add", *words)
            for kind, name in OPTIONS:
                words, _ = words_of(kind, rows_of(KINDS[kind])[name])
                if kind == "quota":
                    continue
                assert "added" in await call("admin", kind, "add", *named(kind, name), *words)
                if name == "is_default":  # there is one at most
                    off = await call("admin", kind, "set", *named(kind, name), "--no-default")
                    assert "is_default yes -> no" in off
                    again = await call("admin", kind, "set", *named(kind, name), *words)
                    assert "is_default no -> yes" in again
            all_of_quota = [w for k, n in OPTIONS if k == "quota"
                            for w in words_of(k, rows_of(KINDS[k])[n])[0]]  # fmt: skip
            told = await call("admin", "quota", "add", *named("quota", ""), *all_of_quota)
            assert "quota account lab: added" in told

    asyncio.run(first())
    known = stored(tmp_path)

    async def second() -> None:
        async with Running(operated(tmp_path)) as running:
            call = calls(running)
            lists = {kind: await listed(call, kind) for kind in VERBS}
            for kind, name in OPTIONS:
                _, value = words_of(kind, rows_of(KINDS[kind])[name])
                key = named(kind, name)
                assert getattr(known[kind, " ".join(key)], name) == value, (kind, name)
                assert lists[kind][tuple(key)][name] == in_json(value), (kind, name)

    asyncio.run(second())


def test_every_field_of_a_reservation_reaches_the_database_and_comes_back(tmp_path: Path) -> None:
    rows = rows_of(KINDS["reservation"])
    options = [name for name, row in rows.items() if row.words and row.form != "hosts"]

    async def first() -> None:
        async with (
            Running(operated(tmp_path)) as running,
            ScriptedAgent("n1", running.target, gpus=1),
        ):
            await eventually(lambda: running.daemon.cluster.capacity().hosts)
            call = calls(running)
            await call("admin", "account", "add", "lab")
            for k, name in enumerate(options):
                words, _ = words_of("reservation", rows[name])
                day = [text.replace("05-18", f"05-{18 + k}") for text in TIMES]
                made = named("reservation", name)
                told = await call("reserve", "create", *made, "-w", "n1", *day, *words)
                assert "added" in told, told

    asyncio.run(first())
    known = stored(tmp_path)

    async def second() -> None:
        async with Running(operated(tmp_path)) as running:
            lists = await listed(calls(running), "reservation")
            for k, name in enumerate(options):
                _, value = words_of("reservation", rows[name])
                (key,) = named("reservation", name)
                found = known["reservation", key]
                assert (getattr(found, name), found.nodes) == (value, "n1"), name
                assert (found.start_at, found.end_at) == (START + k * 86400, END + k * 86400)
                assert lists[(key,)][name] == in_json(value), name

    asyncio.run(second())


@pytest.mark.parametrize("kind", SECTIONS)
def test_every_key_of_the_file_reaches_the_database_and_the_wire(tmp_path: Path, kind: str) -> None:
    rows = rows_of(KINDS[kind])
    values = {name: True if r.form == "flag" else said(kind, r)[1] for name, r in rows.items()}
    values |= {"parent": "", "nodes": ""} if kind == "vc" else {}
    values |= {"preempts": ()} if kind == "class" else {}
    entry = {"name": "one", **{row.key: in_json(values[name]) for name, row in rows.items()}}

    async def whole() -> None:
        async with Running(operated(tmp_path, **{SECTIONS[kind]: [entry]})) as running:
            reply = await running.caller().control.Tenants(c.TenantsRequest(kind=kind))
            (found,) = (t for t in reply.tenants if getattr(t, kind).name == "one")
            message = getattr(found, kind)
            for name, row in rows.items():
                value = getattr(message, name)
                shown = tuple(value) if row.form == "names" else value
                assert shown == values[name], name

    asyncio.run(whole())
    known = stored(tmp_path)[kind, "one"]
    assert {name: getattr(known, name) for name in rows} == values


NUMBERS = [
    (kind, name)
    for kind in ("vc", "class")
    for name, row in rows_of(KINDS[kind]).items()
    if row.is_number
]


def test_the_file_has_the_bounds_that_operators_have(tmp_path: Path) -> None:
    async def whole() -> None:
        async with Running(operated(tmp_path)) as running:
            root = running.caller("root", 0)
            for kind, name in NUMBERS:
                row = rows_of(KINDS[kind])[name]
                whole = row.form == "whole"
                for value in (row.least - 1, row.most + (1 if whole else row.most)):
                    number: Any = int(value) if whole else value
                    tenant = c.Tenant()
                    message = getattr(tenant, kind)
                    message.name = "x"
                    setattr(message, name, number)
                    asked = c.SetTenantRequest(tenant=tenant, create=True, fields=[name])
                    with pytest.raises(grpc.aio.AioRpcError, match=f"{name}: .* is not within"):
                        await root.control.SetTenant(asked)
                    with pytest.raises(ValidationError, match="than or equal to"):
                        settings_of(tmp_path, **{SECTIONS[kind]: [{"name": "x", row.key: number}]})

    asyncio.run(whole())


@pytest.mark.parametrize("kind", KINDS)
def test_the_message_of_a_kind_has_the_fields_of_its_table(kind: str) -> None:
    assert set(MESSAGES[kind].fields_by_name) == {each.name for each in fields(KINDS[kind])}
