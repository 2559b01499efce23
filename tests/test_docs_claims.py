"""Sentences of the documents that can be checked by running something."""

from __future__ import annotations

import re
from importlib import import_module
from pathlib import Path
from typing import Any, get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel
from typer.testing import CliRunner

from dlsched.cli.typer_app import app
from dlsched.daemon.settings import Settings
from dlsched.policies.registry import names
from simulate.clusters.cluster_events import Kind
from simulate.results.output import JOB_COLUMNS, TRAJECTORY_COLUMNS
from simulate.traces.open import FORMATS

ROOT = Path(__file__).parent.parent
DOCS = ROOT / "docs"
ROUND_MODULES = (
    "dlsched.daemon.live.live_columns",
    "dlsched.daemon.live.live_state",
    "dlsched.daemon.round.round_state",
    "dlsched.daemon.round.snapshot_builder",
    "dlsched.daemon.round.worker",
    "dlsched.daemon.round.plan",
)

JOBS = st.lists(
    st.tuples(st.integers(0, 2000), st.integers(1, 8), st.integers(1, 5000)),
    min_size=1,
    max_size=25,
)


@pytest.mark.parametrize("policy", ["fifo", "first-fit", "sjf", "easy", "conservative"])
@given(jobs=JOBS)
def test_a_policy_that_never_preempts_is_the_same_in_rounds_and_at_every_change(
    lab: Any, policy: str, jobs: list[tuple[int, int, int]]
) -> None:
    one, other = (
        lab.run(jobs, policy, cluster="2x4", clock=clock) for clock in ("rounds", "events")
    )
    assert lab.spans(one) == lab.spans(other)


@pytest.mark.parametrize("clock", ["rounds", "events"])
@given(jobs=JOBS)
def test_multi_queue_is_tiresias_with_its_defaults(
    lab: Any, clock: str, jobs: list[tuple[int, int, int]]
) -> None:
    options = ("limits=300,900",)
    one, other = (
        lab.run(jobs, policy, cluster="2x4", clock=clock, options=options)
        for policy in ("multi-queue", "tiresias")
    )
    assert lab.spans(one) == lab.spans(other)


def test_min_nodes_is_not_greedy(lab: Any) -> None:
    # free GPUs: 4, 3 and 3; a gang of 6 goes to the two nodes with 3
    jobs = [(0, 1, 100), (0, 1, 100), (1, 6, 10)]
    engine = lab.engine(jobs, cluster="3x4", placement="worst-fit", clock="events")
    min_nodes = lab.engine(jobs, cluster="3x4", clock="events").parts.placement
    seen: list[tuple[int, ...]] = []

    def swap(now: Any, allocation: Any) -> None:
        now.parts.placement = min_nodes
        seen.extend(placement.nodes for placement in allocation.launched.values())

    engine.observers.append(swap)
    engine.run()
    assert seen == [(0,), (1,), (0, 1)]


def test_a_gang_that_only_the_placement_rules_out_is_refused_and_the_others_run(lab: Any) -> None:
    run = lab.run([(0, 6, 10), (0, 4, 10)], cluster="2x4", placement="consolidated")
    assert run.jobs.status.tolist() == ["refused", "completed"]
    assert "even on the empty cluster" in run.jobs.reason[0]


def first_cells(page: str, heading: str) -> list[str]:
    """The words in backquotes in the first column of the first table below a heading."""
    part = (DOCS / page).read_text().split(f"\n{heading}\n")[1]
    table = re.search(r"(?:^\|.*\n)+", part, re.MULTILINE)
    assert table is not None
    rows = [line.split("|")[1] for line in table[0].splitlines()[2:]]
    return [word for row in rows for word in re.findall(r"`([^`]+)`", row)]


def test_the_table_of_traces_and_the_help_name_every_format() -> None:
    assert sorted(first_cells("traces.md", "## What is read")) == sorted(FORMATS)
    for words in (["replay", "--help"], ["trace", "import", "--help"]):
        shown = CliRunner().invoke(app, words, env={"COLUMNS": "200"}).output
        about = shown.split("--format")[1].split(";")[0]  # before what "auto" means
        assert set(FORMATS) <= set(re.findall(r"[\w-]+", about))


def test_the_help_of_replay_names_every_estimator() -> None:
    shown = CliRunner().invoke(app, ["replay", "--help"], env={"COLUMNS": "200"}).output
    about = shown.split("--estimate")[1].split("--launch")[0]
    assert set(names("estimator")) <= set(re.findall(r"[\w-]+", about))


def test_the_page_of_replays_names_every_column_and_every_key_of_the_summary(lab: Any) -> None:
    text = (DOCS / "replay.md").read_text()
    assert f"\n`{','.join(JOB_COLUMNS)}`\n" in text
    assert f"`{','.join(TRAJECTORY_COLUMNS)}`" in text
    summary = lab.run([(0, 1, 10)]).summary
    assert set(summary) <= set(first_cells("replay.md", "## Outputs"))


def packages_imported() -> dict[str, set[str]]:
    """The packages of ours that each package of ours imports, by their short names."""
    found: dict[str, set[str]] = {}
    for path in [*ROOT.glob("dlsched/*/**/*.py"), *ROOT.glob("simulate/**/*.py")]:
        parts = path.relative_to(ROOT).parts
        package = parts[1] if parts[0] == "dlsched" else parts[0]
        text = "" if path.stem.endswith(("_pb2", "_pb2_grpc")) else path.read_text()
        named = re.findall(r"^ *(?:from|import) (?:dlsched\.)?(\w+)", text, re.MULTILINE)
        found.setdefault(package, set()).update({*named} - {package})
    return {package: named & found.keys() for package, named in found.items()}


def test_the_table_of_packages_says_what_each_one_imports() -> None:
    text = (DOCS / "architecture.md").read_text()
    table = re.findall(r"^\| `(?:dlsched\.)?(\w+)` \| .* \| (.*) \|$", text, re.MULTILINE)
    assert {name: {*re.findall(r"`(\w+)`", cell)} for name, cell in table} == packages_imported()
    layout = (ROOT / "CONTRIBUTING.md").read_text()
    assert not [name for name, _ in table if not re.search(rf"`(dlsched/)?{name}`", layout)]


def test_the_page_of_replays_names_every_cluster_event() -> None:
    assert sorted(first_cells("replay.md", "## Cluster events")) == sorted(get_args(Kind))


def test_the_daemon_page_has_every_key_of_the_configuration_with_its_default() -> None:
    part = (DOCS / "daemon.md").read_text().split("\n## Configuration\n")[1].split("\n## ")[0]
    rows = [line.split("|")[1:4] for line in part.splitlines() if line.startswith("| `")]
    defaults: dict[str, str] = {}
    lists: dict[str, str] = {}
    for cell, default, meaning in rows:
        words = re.findall(r"`([^`]+)`", cell)
        if words[0].startswith("[["):
            lists[words[0].strip("[]")] = meaning
            continue
        section = words[0].split(".")[0]
        shown = re.split(r", (?=\d+ MiB|`|none|\d)", default.strip())
        for place, word in enumerate(words):
            name = word if "." in word or len(words) == 1 else f"{section}.{word}"
            defaults[name] = shown[place] if len(shown) == len(words) else default.strip()
    settings = Settings()
    for section, field in Settings.model_fields.items():
        value = getattr(settings, section)
        if section in lists:
            [entry] = get_args(field.annotation)[:1]
            for key in entry.model_fields:
                assert f"`{key}`" in lists[section], f"{section}.{key}"
        elif isinstance(value, BaseModel) and f"{section}.*" not in defaults:
            for key in type(value).model_fields:
                shown = defaults[f"{section}.{key}"].replace(",", "")
                default = getattr(value, key)
                if isinstance(default, float | int) and not isinstance(default, bool):
                    known = (f"{default:g}", str(default), f"{default / 2**20:g} MiB")
                    assert shown in known, f"{section}.{key}"


@pytest.mark.parametrize("name", first_cells("live-rounds.md", "## In the code"))
def test_the_names_on_the_page_of_live_rounds_exist(name: str) -> None:
    kind, _, method = name.partition(".")
    found = [module for module in map(import_module, ROUND_MODULES) if hasattr(module, kind)]
    assert found, f"no module has {kind}"
    assert not method or hasattr(getattr(found[0], kind), method)
