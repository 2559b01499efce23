"""Every field of the table, from the command line and from a trace to the policies and back.

Live: `dlsched submit` in this process, a real daemon with its gRPC server and database, the
snapshot that the policies get, and `dlsched show --json`. In a trace: CSV, the policies' table, and
CSV again.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from dataclasses import fields
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dlsched.cli.jobs.records.history_export import write_history
from dlsched.cli.output.times import utc_text
from dlsched.client.job_records import Job
from dlsched.core.allocation import Ranking
from dlsched.core.cluster.description import parse_cluster_spec
from dlsched.core.context import RoundContext
from dlsched.core.errors import BadInput
from dlsched.core.options import NoOptions
from dlsched.core.scheduling import SchedulingPolicy
from dlsched.core.units import Units, UnitTable
from dlsched.daemon.round.policy_state import PolicyState
from dlsched.daemon.round.restore import numbering_of, table_of
from dlsched.daemon.round.snapshot_builder import take_snapshot
from dlsched.db.records import JobBody
from dlsched.jobs.field import Field
from dlsched.jobs.fields import BY_NAME, COLUMNS, CSV, FIELDS
from dlsched.jobs.typed_forms import AskedColumns, JobFields
from dlsched.rpc.v1 import control_pb2 as c
from simulate.population import populate
from simulate.traces.open import open_trace
from simulate.traces.write import write_trace
from tests.daemon.cluster_of_tests import Running, eventually, settings_of
from tests.daemon.scripted_agent import ScriptedAgent
from tests.running import dlsched

T0 = 2_000_000_000  # seconds since the epoch
# what the client does itself or combines with other fields, which have rows of their own
OF_THE_CALL = {
    *(
        "input",
        "gpus_per_task",
        "ntasks_per_gpu",
        "gpu_bind",
        "distribution",
        "signal",
        "export",
        "open_ended",
        "wait",
    ),
    *("parsable", "sweep"),  # a sweep needs a file: tests/cli/jobs/test_sweep.py
    "tasks",  # they need a file, too: tests/live/runs/test_short_tasks_live.py
}
# how fields are said whose form alone does not tell, and what is kept then
SAID: dict[str, tuple[str, object]] = {
    "truncate": ("--open-mode truncate", True),
    "gpu_share": ("--share 0.25", 0.25),
    "gpu_types": ("--gpus a100:1", ["a100"]),
    "gpus_by_type": ("--gres gpu:v100:1,gpu:a100:2", "a100:2,v100:1"),
    "constraint": ("-C nvlink&ib", "ib&nvlink"),
    "memory_bytes": ("--mem 1G -N 2", 1 << 30),
    "tmp_bytes": ("--tmp 1M", 1 << 20),
    "max_gpus": ("--max-gpus 7", 7),
    "min_gpus": ("--min-gpus 1", 1),
    "keep_on_broken_dependency": ("--keep-on-broken-dependency", True),
    "requeue": ("--no-requeue", False),
    "requeue_on_timeout": ("--requeue-on-timeout --time 90", True),
    "retry_elsewhere": ("--retry-elsewhere", True),
    "slurm_environment": ("--no-slurm-env", False),
    "warn_signal": ("--signal USR1@60", 10),
    "warn_before_s": ("--signal USR1@60", 60),
    "warn_script_only": ("--signal B:USR1@60", True),
    "warn_at_preemption": ("--signal P:USR1@60", True),
    "notify": ("--notify end", "end"),
    "container": ("--container i.sif", "i.sif"),
    "container_mounts": ("--container i.sif --container-mounts /data", "/data"),
    "notify_url": ("--notify-url https://a.org/x", "https://a.org/x"),
    "partition": ("-p main", "main"),
    "vc": ("-A speech", "speech"),
    "account": ("-A speech", "speech"),
    "guarantee": ("--guarantee opportunistic", "opportunistic"),
    "stop_when": ("--stop-when target --target-accuracy 0.9", "target"),
    "stop_under_load": ("--stop-under-load either --target-accuracy 0.9", "either"),
    "time_min_s": ("--time-min 90s --time 90s", 90),
    "mode": ("--launch gpu", "gpu"),
    "label": ("--label --launch gpu", "yes"),
    "in_place": ("--in-place --launch gpu", True),
    "fence": ("--fence lease", "lease"),
    "on_hang": ("--on-hang requeue", "requeue"),
    "deadline_kind": ("--deadline-kind soft --deadline 2033-05-18T03:33:20+00:00", "soft"),
    "sla": ("--sla soft:1h,10,30m", "0:10 3600:10 5400:0"),
    "suspend_level": ("--suspend cuda", "cuda"),
    "working_directory": ("-D /tmp", "/tmp"),
    "error": ("-e err.txt", "err.txt"),
    "output": ("-o out.txt", "out.txt"),
    "dependencies": ("-d singleton", ["singleton"]),
    "extra": ("--set tokens=9", {"tokens": "9"}),
    "submit_host": ("", None),
    "script_path": ("", None),  # of a script: tests/live/slurm/test_what_tools_read.py
    "terminal": ("", None),  # of the user: tests/live/slurm/test_interactive.py
    "umask": ("", 0o022),
    "max_nodes": ("-N 1-2 --gpus-per-node 1", 2),
    "gpu_retries": ("--gpu-retries 2", 2),  # the site gives 3
    "reservation": ("", None),  # needs one: tests/daemon/test_reservations.py
    "resume_from": ("", None),  # tests/live/training/test_continuing.py
}
# fields that an update cannot change alone, or that need what is not there
NOT_ALONE = {"gpu_types", "min_gpus", "max_gpus", "reservation"}
# fields that are shown under another name: the key in JSON and the value there
SHOWN: dict[str, tuple[str, str, object]] = {
    "gpus_per_node": ("--gpus-per-node 3", "gang", [3]),
    "nodes": ("-N 2 -G 4", "gang", [2, 2]),
    "array": ("-a 5", "array_task_id", 5),
    "held": ("", "held", True),
}


def said(row: Field) -> tuple[list[str], object]:
    """The words for a field, and the value that JSON is to show."""
    if row.name in SAID:
        words, value = SAID[row.name]
        return words.split(), value
    word = row.options[0].words[-1]
    match row.form:
        case "flag":
            return [word], True
        case "moment":
            return [word, "2033-05-18T03:33:20+00:00"], utc_text(float(T0))
        case "seconds" | "limit":
            return [word, "90s"], 90
        case "hosts":
            return [word, "n[1-2]"], ["n1", "n2"]
        case "whole":
            return [word, "5"], 5
        case "number":
            return [word, "2.5"], 2.5
    return [word, "hello"], "hello"


Scene = Callable[[Running, Callable[..., Awaitable[str]]], Awaitable[None]]


def play(folder: Path, scene: Scene, policy: str = "fifo") -> None:
    """Run a scene against a daemon; its second argument is the command line."""
    sections: dict[str, Any] = {
        "round": {"policy": policy, "time_limit_s": 100.0},  # a busy machine is no failure
        "partitions": [{"name": "main", "default": True}],
        "vcs": [{"name": "speech"}],
        "classes": [{"name": "hello"}],
    }

    async def whole() -> None:
        told = {"allowed_urls": ["https://a.org/"]}
        async with Running(settings_of(folder, notifications=told, **sections)) as running:

            async def call(verb: str, *words: str) -> str:
                to = ("--daemon", running.target, "--insecure-loopback")
                return await asyncio.to_thread(dlsched, verb, *to, *words)

            await scene(running, call)

    asyncio.run(whole())


def seen(running: Running) -> tuple[UnitTable, dict[int, int]]:
    """The policies' table as the next decision would have it, and the row of each job."""
    cluster = running.daemon.cluster
    snapshot = take_snapshot(cluster.round_state, "full", cluster.now)
    rows = dict(cluster.live.jobs.row_of)
    return table_of(snapshot, numbering_of(snapshot, PolicyState())), rows


async def submitted(call: Callable[..., Awaitable[str]], *words: str) -> int:
    text = await call("submit", "--parsable", *words, "--", "true")
    assert text.strip().isdigit(), f"{words}: {text}"
    return int(text)


async def shown(call: Callable[..., Awaitable[str]], job: int) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(await call("show", str(job), "--json"))["jobs"][0]
    return found


def test_every_field_goes_from_submit_to_the_policies_columns_and_to_show(tmp_path: Path) -> None:
    async def scene(running: Running, call: Callable[..., Awaitable[str]]) -> None:
        async with ScriptedAgent("n1", running.target, gpus=8):  # else no job may have 7 GPUs
            await eventually(lambda: running.daemon.driver.committed.nodes)
            account = c.Tenant(account=c.TenantAccount(name="speech", vc="speech"))
            operator = running.caller("root", 0)
            await operator.control.SetTenant(c.SetTenantRequest(tenant=account, create=True))
            jobs: dict[str, int] = {}
            for row in FIELDS:
                if row.name not in OF_THE_CALL:
                    words = SHOWN[row.name][0].split() if row.name in SHOWN else said(row)[0]
                    jobs[row.name] = await submitted(call, "-H", "--open-ended", *words)
            table, row_of = seen(running)
            live = running.daemon.cluster.live
            for name, job in jobs.items():
                row, detail = BY_NAME[name], await shown(call, job)
                key, value = SHOWN[name][1:] if name in SHOWN else (name, said(row)[1])
                if name == "submit_host":
                    assert detail[key]
                else:
                    assert detail[key] == value, name
                spec = live.requests.specs[job]
                if isinstance(value, bool) and row.kept == "body":
                    assert getattr(spec.body, name) is value
                if row.column is not None:
                    kept = getattr(spec.body, name)
                    nodes = len(spec.body.gang or (1,))
                    expected = row.column.value(kept, spec.submitted_at, nodes)
                    assert getattr(table, row.column.name)[row_of[job]] == expected, name
                    assert expected != row.column.unknown
                if row.further:
                    assert str(table.extra[row.csv][row_of[job]]) == str(value)
            assert table.extra["tokens"][row_of[jobs["extra"]]] == 9

    play(tmp_path, scene)


def test_order_and_sign_are_the_users_in_the_policies_columns(tmp_path: Path) -> None:
    async def scene(running: Running, call: Callable[..., Awaitable[str]]) -> None:
        pairs = {
            "priority": ("--priority 5", "--priority 100"),
            "nice": ("--nice 100", "--nice 5"),
            "deadline": ("--deadline now+1hour", "--deadline now+2hour"),
            "deadline_value": ("--deadline-value 1", "--deadline-value 2"),
            "weight": ("--weight 1", "--weight 2"),
        }
        jobs = {
            name: [await submitted(call, *words.split()) for words in pair]
            for name, pair in pairs.items()
        }
        table, row_of = seen(running)
        for name, (smaller, larger) in jobs.items():
            column = getattr(table, "priority" if name == "nice" else name)
            assert column[row_of[smaller]] < column[row_of[larger]], name

    play(tmp_path, scene)


BY_COLUMN = '''"""Start jobs in the order of one column, as its documentation says the order."""

import numpy as np

from dlsched.core.allocation import Ranking
from dlsched.core.options import NoOptions
from dlsched.core.scheduling import SchedulingPolicy


class _ByColumn(SchedulingPolicy[NoOptions]):
    summary = "in the order of one column"

    def rank(self, units, ctx):
        return Ranking(order=np.argsort(self.key(units), kind="stable"), misfit="stop")


class Deadline(_ByColumn):
    name = "by-deadline"

    def key(self, units):
        return units.submit_time + units.deadline


class Weight(_ByColumn):
    name = "by-weight"

    def key(self, units):
        return -units.weight


class DeadlineValue(_ByColumn):
    name = "by-deadline-value"

    def key(self, units):
        return -units.deadline_value
'''

# by policy: the words of jobs in the order in which these are to start, and in which they are given
ORDERS = {
    "fifo": (
        ["--priority 100", "--nice -50", "--priority 5", "", "--nice 7"],
        [4, 2, 3, 0, 1],
    ),
    "by-deadline": (
        ["--deadline now+1hour", "--deadline 2033-05-18T03:33:20+00:00", ""],
        [2, 1, 0],
    ),
    "by-weight": (["--weight 3", "--weight 2", "--weight 0.5", ""], [3, 1, 2, 0]),
    "by-deadline-value": (["--deadline-value 9", "--deadline-value 1", ""], [1, 2, 0]),
}


@pytest.fixture
def policies_by_column(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Policies of another package, which the daemon and its policy worker find by entry point."""
    site = tmp_path / "site"
    info = site / "by_column-1.0.dist-info"
    info.mkdir(parents=True)
    (site / "by_column.py").write_text(BY_COLUMN)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: by_column\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(
        "[dlsched.scheduling]\nby-deadline = by_column:Deadline\n"
        "by-weight = by_column:Weight\nby-deadline-value = by_column:DeadlineValue\n"
    )
    monkeypatch.setenv("PYTHONPATH", str(site))
    monkeypatch.syspath_prepend(str(site))


@pytest.mark.usefixtures("policies_by_column")
@pytest.mark.parametrize(
    "update",
    [False, pytest.param(True, marks=pytest.mark.slow)],
    ids=["at submission", "by an update"],
)
@pytest.mark.parametrize("policy", ORDERS)
def test_live_jobs_start_in_the_order_that_their_users_asked_for(
    tmp_path: Path, policy: str, *, update: bool
) -> None:
    async def scene(running: Running, call: Callable[..., Awaitable[str]]) -> None:
        async with ScriptedAgent("n1", running.target, gpus=1) as agent:
            await eventually(lambda: running.daemon.cluster.agents.described)
            first = await submitted(call)
            await eventually(agent.running)
            words, given = ORDERS[policy]
            jobs: dict[int, int] = {}
            for place in given:
                at_submission = () if update else words[place].split()
                jobs[place] = await submitted(call, *at_submission)
                if update and words[place]:
                    changed = words[place].replace("--nice ", "--priority -").replace("--5", "5")
                    told = await call("update", str(jobs[place]), *changed.split())
                    assert "updated 1 job" in told
            for count in range(1, len(jobs) + 1):
                agent.end_job(agent.executed[-1].job)
                await eventually(lambda count=count: len(agent.executed) > count)
            started = [key.job for key in agent.executed]
            assert started == [first, *(jobs[place] for place in range(len(words)))]

    play(tmp_path, scene, policy)


def test_an_update_of_every_field_that_may_change_reaches_the_policies(tmp_path: Path) -> None:
    async def scene(running: Running, call: Callable[..., Awaitable[str]]) -> None:
        rows = [row for row in FIELDS if row.update != "never" and row.options]
        rows = [row for row in rows if row.name not in NOT_ALONE]
        jobs = {row.name: await submitted(call) for row in rows}
        for row in rows:
            assert "updated 1 job" in await call("update", str(jobs[row.name]), *said(row)[0])
        table, row_of = seen(running)
        for row in rows:
            detail = await shown(call, jobs[row.name])
            assert detail[row.name] == said(row)[1], row.name
            if row.column is not None:
                value = getattr(table, row.column.name)[row_of[jobs[row.name]]]
                assert not np.isnan(value), row.name

    play(tmp_path, scene)


# -- traces ---------------------------------------------------------------------------------------

NUMBERS = ("number", "whole", "seconds", "limit", "moment")


def cell(name: str, row: Field) -> str:
    """A value of a CSV column, not the one of a job that leaves it empty."""
    special = {"num_gpus": "3", "min_gpus": "2", "max_gpus": "5", "gpu_share": "0.25"}
    special |= {"exclusive": "yes", "deadline_kind": "soft", "sla": "0:5 7:5 9:0"}
    special |= {"guarantee": "auto", "stop_when": "best", "stop_under_load": "either"}
    return special.get(name, "2.5" if row.form == "number" else "7" if row.form in NUMBERS else "x")


def test_every_column_of_a_trace_reaches_the_policies_and_is_written_again(tmp_path: Path) -> None:
    cells = {"job_id": "a", "submit_time": "0", "duration": "10"}
    cells |= {name: cell(name, row) for name, row in CSV.items()}
    path = tmp_path / "one.csv"
    empty = dict.fromkeys(cells, "") | {"job_id": "b", "submit_time": "1", "num_gpus": "3"}
    empty["duration"] = "10"
    lines = [",".join(cells), ",".join(cells.values()), ",".join(empty.values())]
    path.write_text("\n".join(lines) + "\n")
    trace = open_trace(path)
    units, _, _, _ = populate(trace, parse_cluster_spec("2x4:x"))
    for row, column in COLUMNS.values():
        value, unknown = getattr(units, column.name).tolist()
        said = cells[row.csv] if row.form == "choice" else float(cells[row.csv])
        assert value == (column.value(said, 0.0, 1) if row.choices else said), column.name
        assert np.isnan(unknown) if np.isnan(column.unknown) else unknown == column.unknown
    for row in FIELDS:
        if row.further:
            assert str(units.extra[row.csv][0]) == cells[row.csv]
    write_trace(trace, tmp_path / "again.csv")
    again = open_trace(tmp_path / "again.csv")
    for name in COLUMNS:
        np.testing.assert_array_equal(
            getattr(populate(again, parse_cluster_spec("2x4:x"))[0], name), getattr(units, name)
        )


def test_a_history_is_exported_with_every_column_of_a_trace(tmp_path: Path) -> None:
    own = {each.name for each in fields(Job)}
    values: dict[str, Any] = {}
    for name, row in CSV.items():
        text = cell(name, row)
        if row.name != "gpus":
            values[row.name] = float(text) if row.form in NUMBERS else text
            if row.form == "flag":
                values[row.name] = True
    values |= {"gpu_types": ("x",), "deadline_at": T0 + 7.0, "memory_bytes": 7e9}
    job = Job(
        job_id=1,
        state="COMPLETED",
        gpus=3,
        run_s=10.0,
        submitted_at=float(T0),
        asked={name: value for name, value in values.items() if name not in own},
        **{name: value for name, value in values.items() if name in own},
    )
    write_history([job], str(tmp_path / "history.csv"))
    header, line = (tmp_path / "history.csv").read_text().splitlines()
    written = dict(zip(header.split(","), line.split(","), strict=True))
    assert {name: written[name] for name in CSV} == {n: cell(n, r) for n, r in CSV.items()}
    units, _, _, _ = populate(open_trace(tmp_path / "history.csv"), parse_cluster_spec("2x4:x"))
    for row, column in COLUMNS.values():
        text = cell(row.csv, row)
        expected = column.value(text, 0.0, 1) if row.choices else float(text)
        assert getattr(units, column.name).tolist() == [expected]


class MostValuableFirst(SchedulingPolicy[NoOptions]):
    """A policy that plans by a column of the table alone."""

    name = "most-valuable-first"

    def __init__(self) -> None:
        super().__init__(NoOptions())

    def rank(self, units: Units, ctx: RoundContext) -> Ranking:
        return Ranking(order=np.argsort(-units.deadline_value, kind="stable"), misfit="stop")


def test_a_policy_reads_a_new_field_as_it_reads_any_other(lab: Any) -> None:
    trace = lab.trace([(0, 4, 10), (1, 4, 10), (2, 4, 10)], deadline_value=[1.0, 2.0, 3.0])
    engine = lab.engine(trace, clock="events")
    engine.parts.scheduling = MostValuableFirst()
    engine.run()
    assert engine.world.table.first_start.tolist() == [0, 20, 10]


def test_a_deadlines_value_is_not_negative(lab: Any) -> None:
    trace = lab.trace([(0, 1, 10)], deadline_value=[-1.0])
    with pytest.raises(BadInput, match="job A has deadline value -1; a deadline value is 0 or mor"):
        populate(trace, parse_cluster_spec("2x4:x"))


# -- the typed forms beside the rows --------------------------------------------------------------


def test_the_typed_forms_have_the_rows_of_the_table() -> None:
    of_body = {row.name for row in FIELDS if row.kept == "body"}
    assert {each.name for each in fields(JobFields)} == of_body - {"dependencies", "extra"}
    assert of_body <= {each.name for each in fields(JobBody)}
    assert set(AskedColumns.__annotations__) == set(COLUMNS)
    assert len(BY_NAME) == len(FIELDS)


@pytest.mark.parametrize("name", sorted(COLUMNS))
def test_every_column_says_its_unit_or_sign(name: str) -> None:
    assert len(COLUMNS[name][1].doc.split()) > 3
