"""What counts of a node when configuration and agent differ; a site rehearsed on this machine."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from dlsched.system import ports
from dlsched.torture.local_cluster import LocalCluster, eventually

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[3]
NODES = """
[[nodes]]
name = "n1"
gpus = 4
gpu_type = "v100"
cpus = 8
memory_gb = 400

[[nodes]]
name = "n2"
gpus = 4
memory_gb = 64

[[nodes]]
name = "n3"
gpus = 8
gpu_type = "a100"
"""
SIZES: Mapping[str, tuple[int, float]] = {"n1": (64, 512.0), "n2": (16, 15.5), "n3": (4, 100.0)}


class Rehearsed(LocalCluster):
    """Three nodes of any size, and a configuration that says something else."""

    def write_config(self) -> Path:
        """Write it with its nodes."""
        path = super().write_config()
        path.write_text(path.read_text() + NODES)
        return path

    def _agent_settings(self, name: str) -> dict[str, object]:
        cpus, memory = SIZES[name]
        return {**super()._agent_settings(name), "fake_cpus": cpus, "fake_memory_gb": memory}

    def wait_until_up(self, within: float = 60.0) -> None:
        """Until n1 can take work; the others are drained."""
        eventually("n1 is up", lambda: self.node("n1").state == "idle", within)


@pytest.fixture(scope="module")
def rehearsed() -> Iterator[Rehearsed]:
    """The nodes."""
    with Rehearsed(nodes=3) as cluster:
        yield cluster


def test_a_node_with_less_than_configured_is_drained(rehearsed: Rehearsed) -> None:
    for name, why in (
        ("n2", "low memory: 15.5 GB reported, 64 GB in the configuration"),
        (
            "n3",
            "low GPUs: 4 reported, 8 in the configuration; "
            "GPU type: v100 reported, a100 in the configuration",
        ),
    ):
        eventually(f"{name} is drained", lambda name=name: rehearsed.node(name).state == "drained")
        assert rehearsed.node(name).reason == why
    assert "low memory: 15.5 GB reported" in rehearsed.cli("nodes", "-R")


def test_the_configuration_counts_where_it_says_something(rehearsed: Rehearsed) -> None:
    assert "CPUs: 64 reported, 8 in the configuration" in rehearsed.node("n1").reason
    refused = rehearsed.run("submit", "-w", "n1", "-c", "9", "--wrap", "true")
    assert refused.returncode == 1
    assert "node n1 has 8 CPUs, 9 are asked for" in refused.stderr
    job = int(rehearsed.cli("submit", "--parsable", "-w", "n1", "-c", "8", "--wrap", "true"))
    rehearsed.until(job, "COMPLETED")


def test_an_agent_counts_where_the_configuration_is_silent(rehearsed: Rehearsed) -> None:
    refused = rehearsed.run("submit", "-w", "n2", "-c", "17", "--wrap", "true")
    assert "node n2 has 16 CPUs, 17 are asked for" in refused.stderr


@pytest.mark.parametrize(
    ("program", "lines", "said"),
    [
        ("daemon", '[daemon]\nlisten = ["0.0.0.0:7817"]\nmetrics = "127.0.0.1:7817"\n', "7817"),
        ("daemon", '[daemon]\nlisten = ["127.0.0.1:1", "users:127.0.0.1:1"]\n', "port 1"),
        ("daemon", '[daemon]\nmetrics = "7819"\n', "HOST:PORT"),
        ("agent", 'daemon = "x:1"\nlisten = "127.0.0.1:9"\nmetrics = "0.0.0.0:9"\n', "port 9"),
        ("agent", 'daemon = "x:1"\nmetrics = "nine"\n', "HOST:PORT"),
    ],
)
def test_check_finds_ports_that_clash(tmp_path: Path, program: str, lines: str, said: str) -> None:
    file = tmp_path / "settings.toml"
    file.write_text(lines)
    cluster = LocalCluster(nodes=0)
    refused = cluster.run(program, "--config", str(file), "--check")
    cluster.__exit__(None, None, None)
    assert refused.returncode == 2
    assert said in refused.stderr


def test_check_of_good_settings_starts_nothing(tmp_path: Path) -> None:
    file = tmp_path / "agent.toml"
    file.write_text(f'daemon = "x:1"\nstate_dir = "{tmp_path}/state"\n')
    cluster = LocalCluster(nodes=0)
    done = cluster.run("agent", "--config", str(file), "--check")
    cluster.__exit__(None, None, None)
    assert (done.returncode, done.stdout) == (0, "the settings are fine\n")
    assert list(tmp_path.iterdir()) == [file]


def test_ports_have_one_meaning_in_docs_and_packaging() -> None:
    meanings = {
        rf"users:[\w.]+:({ports.REMOTE_USERS})": ports.REMOTE_USERS,
        r'^# ?web = "[\w.]+:(\d+)|^web = "[\w.]+:(\d+)': ports.WEB,
        r'^name.*\n(?:.*\n)*?listen = "[\w.]+:(\d+)': ports.AGENT,
        r'^listen = \[.*"[\d.]+:(\d+)"': ports.DAEMON,
    }
    files = [*(ROOT / "docs").glob("*.md"), *(ROOT / "packaging").rglob("*.toml")]
    found = 0
    for path in files:
        text = path.read_text()
        for pattern, port in meanings.items():
            for match in re.finditer(pattern, text, re.MULTILINE):
                numbers = {int(n) for n in match.groups() if n and n.startswith("78")}
                assert numbers <= {port, ports.REMOTE_USERS}, f"{path.name}: {match[0]}"
                found += 1
    assert found >= 3
    table = (ROOT / "docs" / "deploying.md").read_text()
    named = {name: getattr(ports, name) for name in dir(ports) if name.isupper()}
    for name, number in named.items():
        if isinstance(number, int):
            assert f"| {number} |" in table, name


def test_a_node_is_of_the_type_that_it_reports_now() -> None:
    tables = {"nodes": [{"name": "n1"}, {"name": "n2", "gpu_type": "v100"}]}
    with LocalCluster(nodes=2, gpus="2:v100", tables=tables) as cluster:
        for gpus, shown, reported in (
            ("1:v100+1:a100", "gpu", "v100 and a100"),
            ("2:a100", "a100", "a100"),
        ):
            for name in cluster.names:
                cluster.kill(name)
                cluster.gpus[name] = gpus
                cluster.start_agent(name)
            why = f"GPU type: {reported} reported, v100 in the configuration"
            eventually("n2 says so", lambda why=why: why in (cluster.node("n2").reason or ""))
            eventually("n2 is drained", lambda: cluster.node("n2").state == "drained")
            eventually("n1 has that type", lambda shown=shown: cluster.node("n1").gpu_type == shown)
            v100, any_type = (
                int(cluster.cli("submit", "--parsable", "--gpus", gpus, "--", "true"))
                for gpus in ("v100:1", "2")
            )
            assert cluster.until(any_type, "COMPLETED").nodes == ("n1",)
            assert cluster.job(v100).state == "PENDING"
            cluster.cli("cancel", str(v100))
            cluster.kill("daemon")
            cluster.start_daemon()
            eventually("n1 is heard", lambda: cluster.node("n1").state == "idle")
            assert cluster.node("n1").gpu_type == shown


@pytest.fixture(scope="module")
def mixed() -> Iterator[LocalCluster]:
    """A node with GPUs of two types, and one with GPUs of one."""
    with LocalCluster(nodes=2, gpus=["2:a100+2:v100", "4:v100"]) as cluster:
        yield cluster


def test_a_node_with_gpus_of_two_types_serves_jobs_that_name_none(mixed: LocalCluster) -> None:
    node = mixed.node("n1")
    types = ["a100", "a100", "v100", "v100"]
    assert (node.gpu_type, [each.type for each in node.devices]) == ("gpu", types)
    job = mixed.submit("echo $CUDA_VISIBLE_DEVICES", gpus="3", nodelist="n1")
    mixed.until(job, "COMPLETED")
    assert mixed.output(job).count("GPU-") == 3


@pytest.mark.parametrize(
    ("options", "gpus"),
    [
        ({"gpus": "a100:2"}, [0, 1]),
        ({"constraint": "a100", "gpus_per_node": 2}, [0, 1]),
        ({"gpus": "v100:2", "nodelist": "n1"}, [2, 3]),  # n2 has the type alone, but may not be
    ],
)
def test_a_job_of_one_type_gets_it_where_no_other_node_has_it(
    mixed: LocalCluster, options: dict[str, object], gpus: list[int]
) -> None:
    job = mixed.submit("echo $CUDA_VISIBLE_DEVICES", **options)
    assert mixed.until(job, "COMPLETED").nodes == ("n1",)
    devices = mixed.node("n1").devices
    assert mixed.output(job).strip() == ",".join(str(devices[k].uuid) for k in gpus)


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (("--gpus", "a100:3"), "no node has 3 a100; n1 has 2 a100"),
        (("--gpus", "a100:1", "--share", ".5"), "GPU type 'a100': only nodes with several types"),
        (("-C", "a100|x", "-G", "2"), "no node has GPUs of this type alone; n1 has several"),
        (("--gpus", "v100:6"), "the cluster has 4 of that kind (v100; n1 has several types and so"),
        (("--gpus", "h100:2"), "GPU type 'h100' is not known; known: v100"),
    ],
)
def test_a_type_is_refused_where_its_nodes_cannot_give_what_is_asked(
    mixed: LocalCluster, words: tuple[str, ...], why: str
) -> None:
    refused = mixed.run("submit", *words, "--wrap", "true")
    assert (refused.returncode, refused.stdout) == (1, "")
    assert why in refused.stderr
