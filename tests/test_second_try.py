"""A test of real processes may fail once, and a failure leaves nothing to the next test."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest_plugins = ["pytester"]

TESTS = """
import pytest

made = []


@pytest.fixture(scope="module")
def cluster():
    made.append(["n1", "n2"])
    yield made[-1]
    if len(made) == 1:
        raise RuntimeError("a keeper is left")


def test_a_node_is_killed_and_started(cluster):
    cluster.remove("n2")
    assert len(made) > 1
    cluster.append("n2")


def test_both_nodes_are_there(cluster):
    assert cluster == ["n1", "n2"]
    assert len(made) == 2


def test_a_node_is_lost(cluster):
    assert not cluster
"""


def test_the_second_try_and_the_next_test_have_a_new_cluster(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parents[1]))
    for folder in ("live/policies", "fidelity"):
        (pytester.path / folder).mkdir(parents=True)
        (pytester.path / folder / f"test_{folder[:4]}.py").write_text(TESTS)
    done = pytester.runpytest_subprocess("-p", "tests.second_try", "-rR", "live")
    assert done.parseoutcomes() == {"passed": 2, "failed": 1, "rerun": 2}
    done.stdout.fnmatch_lines(
        [
            "* failed first, and is tried again: live/*::test_a_node_is_killed_and_started *",
            "*assert 1 > 1",
            "* failed first, and is tried again: live/*::test_a_node_is_lost *",
        ]
    )
    for options in (["fidelity"], ["--reruns", "0", "live"]):
        done = pytester.runpytest_subprocess("-p", "tests.second_try", *options)
        assert done.parseoutcomes() == {"passed": 1, "failed": 2}
