"""The documents say what is so: names, options, profiles, links, commands, examples."""

from __future__ import annotations

import ast
import importlib
import re
import runpy
import shlex
import tomllib
from collections.abc import Iterator
from dataclasses import fields
from datetime import UTC, datetime
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import typer.main
from typer.testing import CliRunner

from dlsched.cli.replay.option_values import several
from dlsched.cli.typer_app import app
from dlsched.client.submission.moments import moment
from dlsched.composition import parts as parts_module
from dlsched.core.options import describe, show_value
from dlsched.core.semantics import PHASES
from dlsched.policies.registry import STAGES, find, names
from simulate.clusters.cluster_files import open_cluster
from simulate.clusters.event_files import read_events
from simulate.published.profiles import PROFILES, semantics_of
from simulate.settings import RunSettings
from simulate.sweep import Dimensions, expand, share_out

ROOT = Path(__file__).parent.parent
DOCS = ROOT / "docs"
EXAMPLE = ROOT / "examples" / "third_party_policy"
PAGES = sorted(
    [*ROOT.glob("*.md"), *DOCS.rglob("*.md"), *(ROOT / "examples").rglob("*.md")],
)
COLUMN_TABLES = runpy.run_path(str(ROOT / ".ci" / "column_tables.py"))
WRITER = runpy.run_path(str(ROOT / ".ci" / "option_tables.py"))
PAGE_OF_COLUMNS = (DOCS / "columns.md").read_text()
POLICY_PAGES = sorted((DOCS / "policies").glob("*.md"))
HEADING = re.compile(r"^#+ +(.*)$", re.M)
LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")
FENCE = re.compile(r"^```(\w*)\n(.*?)^```", re.M | re.S)


def shown(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


def without_code(text: str) -> str:
    """A page without its code, in which brackets mean something else."""
    return re.sub(r"`[^`\n]*`", "", FENCE.sub("", text))


def blocks(page: Path, language: str) -> list[str]:
    """The fenced blocks of one language."""
    return [code for kind, code in FENCE.findall(page.read_text()) if kind == language]


def tables(text: str) -> Iterator[list[list[str]]]:
    """Tables as rows of cells; the header first, the line beneath it left out."""
    rows: list[list[str]] = []
    for line in [*text.splitlines(), ""]:
        if line.startswith("|"):
            cells = re.split(r"(?<!\\)\|", line.strip()[1:-1])
            rows.append([cell.strip().replace("\\|", "|") for cell in cells])
        elif rows:
            yield [row for row in rows if not set("".join(row)) <= set("-: ")]
            rows = []


def anchors(page: Path) -> set[str]:
    """The names that headings can be linked by."""
    found = set()
    for heading in HEADING.findall(FENCE.sub("", page.read_text())):
        plain = re.sub(r"[`*]", "", heading).lower()
        found.add(re.sub(r"[^\w\- ]", "", plain).replace(" ", "-"))
    return found


def unquoted(cell: str) -> str:
    return cell.strip("`").strip()


# -- links ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("page", PAGES, ids=shown)
def test_every_relative_link_leads_somewhere(page: Path) -> None:
    broken = []
    for target in LINK.findall(without_code(page.read_text())):
        if "://" in target:
            continue
        name, _, anchor = target.partition("#")
        path = (page.parent / name).resolve() if name else page
        if not path.exists() or (anchor and anchor not in anchors(path)):
            broken.append(target)
    assert not broken


def test_every_page_can_be_reached_from_the_readme() -> None:
    reached, todo = set(), [ROOT / "README.md", ROOT / "examples" / "README.md"]
    while todo:
        page = todo.pop()
        if page in reached or page.suffix != ".md" or not page.exists():
            continue
        reached.add(page)
        targets = LINK.findall(without_code(page.read_text()))
        todo += [(page.parent / t.partition("#")[0]).resolve() for t in targets if "://" not in t]
    assert not [shown(page) for page in PAGES if page not in reached]


# -- parts and their options ----------------------------------------------------------------------

PARTS = [
    (stage, name)
    for stage in STAGES
    for name in [*names(stage), *names(stage, for_tests=True)]
    if find(stage, name).__module__.startswith("dlsched.")
]


def described_names(page: Path) -> set[str]:
    """Names that stand in a heading, or as code in a table."""
    text = page.read_text()
    found = set(re.findall(r"[\w-]+", " ".join(HEADING.findall(text))))
    for table in tables(text):
        found.update(re.findall(r"`([\w-]+)`", " ".join(cell for row in table for cell in row)))
    return found


@pytest.mark.parametrize(("stage", "name"), PARTS, ids=[f"{s}-{n}" for s, n in PARTS])
def test_every_part_is_described(stage: str, name: str) -> None:
    own = [page for page in POLICY_PAGES if page.name != "index.md"]
    assert any(name in described_names(page) for page in own)
    if not name.startswith("testing-"):
        assert name in described_names(DOCS / "policies" / "index.md")


def test_every_part_with_options_has_a_table_and_every_option_a_meaning() -> None:
    options = {name: describe(find(stage, name).Options) for stage, name in PARTS}
    found = [name for page in POLICY_PAGES for name, _ in WRITER["tables_in"](page.read_text())]
    assert sorted(found) == sorted(name for name, known in options.items() if known)
    assert all(option.doc for known in options.values() for option in known)


@pytest.mark.parametrize("page", POLICY_PAGES, ids=shown)
def test_option_tables_are_those_of_the_code(page: Path) -> None:
    """`python .ci/option_tables.py --write` brings them up to date."""
    for name, table in WRITER["tables_in"](page.read_text()):
        assert table == WRITER["table_of"](name)


def test_the_index_has_each_part_once_under_its_stage() -> None:
    text = (DOCS / "policies" / "index.md").read_text()
    table = text[text.index("| scheduling |") :].partition("\n\n")[0]
    found: dict[str, list[str]] = {}
    stage = ""
    for line in table.splitlines():
        cells = [cell.strip() for cell in line.split("|")]
        stage = cells[1] or stage
        found.setdefault(stage, []).extend(re.findall(r"`([\w-]+)`", cells[3]))
    for each in STAGES:
        assert sorted(found[each]) == sorted(names(each)), each


def test_the_tables_of_columns_are_those_of_the_code() -> None:
    """`python .ci/column_tables.py --write` brings them up to date."""
    found = {each[2]: each[3] for each in COLUMN_TABLES["TABLE"].finditer(PAGE_OF_COLUMNS)}
    assert found == {heading: COLUMN_TABLES["table_of"](heading) for heading in found}
    assert set(found) == set(COLUMN_TABLES["TABLES"])
    assert not re.search(r"\| *\|$", PAGE_OF_COLUMNS, re.M)  # each has a meaning


# -- semantics ------------------------------------------------------------------------------------

TABLED = {
    "name",
    "source",
    "phases",
    "option_defaults",
    "part_defaults",
    "variants",
}  # fields that are not in the first table


def semantics_tables() -> list[list[list[str]]]:
    return list(tables((DOCS / "semantics.md").read_text()))


def test_the_table_of_profiles_agrees_with_the_code() -> None:
    header, *rows = semantics_tables()[0]
    profiles = [PROFILES[unquoted(cell)] for cell in header[1:]]
    assert {profile.name for profile in profiles} == set(PROFILES)
    expected = [
        [f.name, *(show_value(getattr(profile, f.name)) for profile in profiles)]
        for f in fields(profiles[0])
        if f.name not in TABLED
    ]
    assert [[unquoted(cell) for cell in row] for row in rows] == expected
    assert all(profile.phases == PHASES for profile in profiles)


def test_every_field_of_the_semantics_is_explained() -> None:
    text = (DOCS / "semantics.md").read_text()
    known = {f.name for f in fields(PROFILES["rounds"])} - {"name", "source"}
    assert not {name for name in known if f"**`{name}`**" not in text}


def test_the_table_of_option_defaults_agrees_with_the_code() -> None:
    header, *rows = semantics_tables()[1]
    written: dict[str, dict[str, str]] = {unquoted(cell): {} for cell in header[1:]}
    for key, *values in rows:
        for profile, value in zip(written, values, strict=True):
            if value:
                written[profile][unquoted(key)] = value
    expected = {
        profile.name: {key: show_value(value) for key, value in profile.option_defaults.items()}
        for profile in PROFILES.values()
        if profile.option_defaults
    }
    assert written == expected


# -- the example of a third party -----------------------------------------------------------------


@pytest.fixture(scope="module")
def installed_example(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """The example package as an installer leaves it, with the smallest policy of the guide."""
    site = tmp_path_factory.mktemp("site")
    project = tomllib.loads((EXAMPLE / "pyproject.toml").read_text())["project"]
    points = dict(project["entry-points"]["dlsched.scheduling"])
    (site / "user_turns.py").write_text((EXAMPLE / "user_turns.py").read_text())
    smallest = blocks(DOCS / "writing-a-policy.md", "python")[0]
    (site / "largest_first.py").write_text(smallest)
    points["largest-first"] = "largest_first:LargestFirst"
    info = site / f"user_turns-{project['version']}.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(
        f"Metadata-Version: 2.1\nName: {project['name']}\nVersion: {project['version']}\n"
    )
    lines = [f"{name} = {target}" for name, target in points.items()]
    (info / "entry_points.txt").write_text("\n".join(["[dlsched.scheduling]", *lines, ""]))
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(site))
        importlib.invalidate_caches()
        yield
        for module in ("user_turns", "largest_first"):
            patch.delitem("sys.modules", module, raising=False)


@pytest.mark.usefixtures("installed_example")
def test_the_example_policy_is_found_and_serves_users_in_turns(lab: Any) -> None:
    assert "user-turns" in names("scheduling")
    jobs = [(0, 4, 100), (1, 4, 100), (2, 4, 100), (3, 4, 100)]
    users = ["ann", "ann", "ann", "bob"]
    run = lab.run(lab.trace(jobs, user=users), "user-turns", cluster="1x8")
    assert lab.spans(run) == {"A": (0, 100), "B": (1, 101), "C": (101, 201), "D": (100, 200)}
    capped = lab.run(
        lab.trace(jobs, user=users), "user-turns", cluster="1x8", options=("user-turns.cap=4",)
    )
    assert lab.spans(capped)["D"] == (3, 103)


@pytest.mark.usefixtures("installed_example")
@pytest.mark.parametrize("policy", ["user-turns", "largest-first"])
def test_example_policies_decide_alike_with_and_without_skipping(lab: Any, policy: str) -> None:
    jobs = [(17.0 * k, 1 + k % 5, 40.0 + 13 * (k % 7)) for k in range(60)]
    trace = lab.trace(jobs, user=[f"u{k % 4}" for k in range(60)])
    one, other = (
        lab.run(trace, policy, cluster="2x4", clock="rounds", skipping=skipping)
        for skipping in (True, False)
    )
    assert lab.outcome(one) == lab.outcome(other)
    assert one.summary["completed"] == 60


@pytest.mark.usefixtures("installed_example")
def test_the_command_line_shows_the_example_policy() -> None:
    result = CliRunner().invoke(app, ["policy", "show", "user-turns"])
    assert result.exit_code == 0
    assert "GPUs that one user may hold at once" in result.output


def test_the_guide_shows_the_example_as_it_is() -> None:
    code = (EXAMPLE / "user_turns.py").read_text()
    assert any(code in block for block in blocks(DOCS / "writing-a-policy.md", "python"))


def test_the_example_cluster_and_events_can_be_read() -> None:
    cluster = open_cluster(str(ROOT / "examples" / "clusters" / "two_tenants.toml"))
    extended, events = read_events(ROOT / "examples" / "events" / "maintenance.csv", cluster)
    assert cluster.total_gpus == 96
    assert extended.total_gpus == 112
    assert events


# -- code and commands ----------------------------------------------------------------------------


@pytest.mark.parametrize("page", PAGES, ids=shown)
def test_python_in_the_documents_is_python(page: Path) -> None:
    for code in blocks(page, "python"):
        ast.parse(code)


def commands(page: Path) -> Iterator[list[str]]:
    """The words after `dlsched` of each command in the page's shell blocks."""
    for block in blocks(page, "sh") + blocks(page, "console"):
        text = block.replace("\\\n", " ").replace("&&\n", "\n").replace("&&", "\n")
        for line in text.splitlines():
            match = re.match(r"^(?:\$ )?(?:\.venv/bin/)?dlsched\s+(.*)$", line.strip())
            if match:
                yield shlex.split(match[1], comments=True)


COMMANDS = [
    pytest.param(words, id=f"{shown(page)}-{number}")
    for page in PAGES
    for number, words in enumerate(commands(page), 1)
]


def parsed(words: list[str]) -> tuple[str, dict[str, Any]]:
    """The verb and the values of its flags, without running it."""
    command: Any = typer.main.get_command(app)
    context = command.make_context("dlsched", list(words))
    verb, args = "", list(words)
    while hasattr(command, "commands"):
        verb, command, args = command.resolve_command(context, args)
        context = command.make_context(verb, list(args), parent=context)
    return verb, context.params


@pytest.mark.usefixtures("installed_example")
@pytest.mark.parametrize("words", COMMANDS)
def test_every_command_in_the_documents_is_understood(
    words: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    verb, given = parsed(words)
    for option in ("begin", "deadline"):
        if isinstance(given.get(option), str):
            moment(f"--{option}", given[option], now=datetime.now(UTC))
    if verb != "replay":
        return
    known = given["from_db"] or given["snapshot"]
    assert given["cluster"] or known, "a replay needs a cluster"
    given["policy"] = given["policy"] or "fifo"
    monkeypatch.setattr(parts_module, "read_numbers", lambda name: (1.0, 2.0))
    monkeypatch.setattr(parts_module, "read_network", lambda name: None)
    stages = {f.name for f in fields(Dimensions)} & set(given) - {"load", "seed"}
    dimensions = Dimensions(
        **{name: several(f"--{name}", given[name]) for name in stages}, load=(None,), seed=(0,)
    )
    base = RunSettings(
        options=tuple(given["options"] or ()), clock=given["clock"] or "", round_s=given["round_s"]
    )
    for run in share_out(expand(dimensions, base, traces=1), has_quotas=True):
        semantics = semantics_of(run.settings)
        parts_module.build_parts(run.settings, semantics, has_quotas=True)


def readme_study() -> tuple[list[str], list[str]]:
    """The words that make up a trace and those that replay it."""
    every = list(commands(ROOT / "README.md"))
    (generate,) = (words for words in every if words[:2] == ["trace", "generate"])
    (replay,) = (words for words in every if words[:2] == ["replay", "philly.csv"])
    return generate, replay


def invoked(words: list[str]) -> str:
    result = CliRunner().invoke(app, words)
    assert result.exit_code == 0, result.output
    return str(result.output)


def test_the_study_of_the_readme_writes_its_report(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    generate, replay = readme_study()
    jobs = generate.index("--jobs") + 1
    invoked([*generate[:jobs], "150", *generate[jobs + 1 :]])
    invoked([*replay, "--executor", "processes:1"])
    assert "<html" in (tmp_path / "report.html").read_text()


@pytest.mark.slow
def test_the_sample_in_the_readme_is_what_the_study_prints(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    generate, replay = readme_study()
    invoked(generate)
    printed = invoked([*replay, "--executor", "processes:1"])
    (sample,) = blocks(ROOT / "README.md", "text")
    assert sample.strip() in printed


# -- decisions and changes ------------------------------------------------------------------------


def test_decisions_are_numbered_without_gaps_and_listed() -> None:
    records = sorted((DOCS / "decisions").glob("[0-9]*.md"))
    numbers = [int(record.name[:4]) for record in records]
    assert all(after == before + 1 for before, after in pairwise(numbers))
    listed = (DOCS / "decisions" / "index.md").read_text()
    for record in records:
        assert f"({record.name})" in listed
        headings = HEADING.findall(record.read_text())
        assert headings[1:] == ["Context", "Options", "Choice", "What would change our mind"]


def test_the_changelog_has_the_version() -> None:
    release = (ROOT / "dlsched/RELEASE").read_text().strip()
    assert f"## [{release}]" in (ROOT / "CHANGELOG.md").read_text()


@pytest.mark.parametrize("page", [*PAGES, *sorted(ROOT.glob("*/**/README.md"))], ids=shown)
def test_files_that_are_named_exist(page: Path) -> None:
    if ".venv" in page.parts or page.name == "CHANGELOG.md" or "decisions" in page.parts:
        return
    named = re.findall(r"`((?:dlsched|simulate|tests|benchmarks)/[\w/]+\.\w+)`", page.read_text())
    assert [name for name in named if not (ROOT / name).exists()] == []
