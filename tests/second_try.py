"""After a failure: new fixtures for the next test, and a second try (decision 0064)."""

from __future__ import annotations

import traceback
from collections.abc import Generator
from typing import Any

import pytest

# folders of tests without other processes: nothing there depends on a machine's load
WITHOUT_PROCESSES = {"core", "fidelity", "jobs", "policies", "protocol", "simulate"}

Made = list[tuple[pytest.FixtureDef[Any], Any]]  # with the request that made it
SHARED = pytest.StashKey[Made]()


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Let a test of real processes fail once, unless `--reruns N` says something else."""
    if config.getoption("reruns") is None:
        for item in items:
            if item.nodeid.removeprefix("tests/").split("/")[0] not in WITHOUT_PROCESSES:
                item.add_marker(pytest.mark.flaky(reruns=1))


def pytest_sessionstart(session: pytest.Session) -> None:
    """No fixture is there yet."""
    session.stash[SHARED] = []


@pytest.hookimpl(wrapper=True)
def pytest_fixture_setup(
    fixturedef: pytest.FixtureDef[Any], request: Any
) -> Generator[None, object, object]:
    """Note a fixture that several tests of a module share."""
    if fixturedef.scope in ("class", "module"):
        request.session.stash[SHARED].append((fixturedef, request))
    return (yield)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Let fixtures see how a test went; after a failure, end what it shared with other tests.

    A test that failed half way leaves a cluster with a node that it killed, or with its jobs.
    """
    report = yield
    outcomes = vars(item).setdefault("outcomes", {})
    outcomes[report.when] = report.outcome
    if report.when == "teardown" and "failed" in outcomes.values():
        made = item.session.stash[SHARED]
        while made:
            fixture, request = made.pop()
            try:
                fixture.finish(request)
            except Exception:
                report.sections.append((f"end of {fixture.argname}", traceback.format_exc()))
    return report


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Print why tests failed that passed when they were tried again."""
    for report in terminalreporter.stats.get("rerun", []):
        terminalreporter.section(f"failed first, and is tried again: {report.nodeid}", sep="_")
        terminalreporter.write_line(report.longreprtext)
