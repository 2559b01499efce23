"""What Prometheus reads of a daemon and of agents, and the files in packaging/ that use it."""

from __future__ import annotations

import json
import re
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families

from dlsched.torture.local_cluster import LocalCluster, eventually
from tests.nvml_stub import COMPILER, build_stub

pytestmark = pytest.mark.slow
ROOT = Path(__file__).resolve().parents[3]
MONITORING = ROOT / "packaging/monitoring"

Scrape = dict[tuple[str, frozenset[tuple[str, str]]], float]


class Monitored(LocalCluster):
    """A cluster whose agents have metrics; n2 reads its GPUs from a driver, n1 pretends."""

    def _agent_settings(self, name: str) -> dict[str, object]:
        more = {"metrics": "127.0.0.1:0", "gpu_look_s": 0.3}
        return {**super()._agent_settings(name), **more}

    def text(self, name: str) -> str:
        """What Prometheus reads of a process."""
        pattern = r"event=listening .*metrics=(\d+)" if name == "daemon" else r"metrics port=(\d+)"
        port = re.findall(pattern, self.log(name, 100_000))[-1]
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=60) as answer:
            found: bytes = answer.read()
        return found.decode()

    def scrape(self, name: str) -> Scrape:
        """The values by name and labels."""
        return {
            (each.name, frozenset(each.labels.items())): each.value
            for family in text_string_to_metric_families(self.text(name))
            for each in family.samples
        }

    def value(self, process: str, name: str, **labels: str) -> float | None:
        """One value; None: there is none."""
        return self.scrape(process).get((name, frozenset(labels.items())))


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Monitored]:
    if COMPILER is None:
        pytest.skip("no C compiler to build the driver's stand-in with")
    folder = build_stub(tmp_path_factory.mktemp("nvml"))
    (folder / "facts").write_text("gpus 2\nbusy 0 74\nbusy 1 0\nused 0 1024\n")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("LD_LIBRARY_PATH", str(folder))
        patch.setenv("STUB_NVML", str(folder / "facts"))
        shorter = {"policy": "srtf"}
        idle = {"idle": {"after_s": 4.0}}
        with Monitored(nodes=2, gpus=["2:v100", ""], round=shorter, tables=idle) as running:
            running.cli("admin", "vc", "add", "research", "--gpus", "3")
            yield running


@pytest.fixture(scope="module")
def a_day(cluster: Monitored) -> Monitored:
    """A cluster after a preemption, a completion, a failure and a cancel; one job runs on n2."""

    def queued(*options: str, run: str) -> int:
        common = ("submit", "--parsable", "-o", f"{cluster.out}/%j.out")
        return int(cluster.cli(*common, *options, "--wrap", run))

    running = queued("-w", "n2", "--gpus", "1", run="sleep 600")
    research = ("-A", "research", "-w", "n1", "--gpus", "2")
    long = queued(*research, "--time", "1h", run="sleep 600")
    for job in (running, long):
        cluster.until(job, "RUNNING")
    shorter = queued("-w", "n1", "--gpus", "2", "--time", "10m", run="true")
    cluster.until(shorter, "COMPLETED")
    cluster.until(long, "RUNNING")
    cluster.cli("cancel", str(long))
    cluster.until(long, "CANCELLED")
    failed = queued("-w", "n1", "--gpus", "1", run="exit 3")
    cluster.until(failed, "FAILED")
    eventually("the end is counted", lambda: cluster.value(
        "daemon", "dlsched_jobs_ended_total", state="failed"
    ))  # fmt: skip
    return cluster


def test_waits_preemptions_and_ends_are_counted(a_day: Monitored) -> None:
    found = a_day.scrape("daemon")

    def value(name: str, **labels: str) -> float | None:
        return found.get((name, frozenset(labels.items())))

    ended = {s: value("dlsched_jobs_ended_total", state=s) for s in
             ("completed", "failed", "cancelled", "timeout", "node_fail")}  # fmt: skip
    assert ended == {"completed": 1, "failed": 1, "cancelled": 1, "timeout": 0, "node_fail": 0}
    assert value("dlsched_jobs_submitted_total") == 4
    assert value("dlsched_job_preemptions_total") == 1
    assert value("dlsched_job_starts_total") == 5
    assert value("dlsched_job_wait_seconds_count", vc="research") == 1
    assert value("dlsched_job_wait_seconds_count", vc="-") == 3
    assert value("dlsched_job_wait_seconds_bucket", vc="-", le="300.0") == 3
    waited = value("dlsched_job_wait_seconds_sum", vc="-")
    assert waited is not None
    assert 0 < waited < 900


def test_the_use_of_each_virtual_cluster(a_day: Monitored) -> None:
    def held() -> list[float | None]:
        return [a_day.value("daemon", "dlsched_vc_gpus_held", vc=vc) for vc in ("research", "-")]

    eventually("only one job has a GPU", lambda: held() == [0, 1])
    assert a_day.value("daemon", "dlsched_vc_gpus_quota", vc="research") == 3
    assert a_day.value("daemon", "dlsched_vc_jobs", vc="-", state="placed") == 1
    assert a_day.value("daemon", "dlsched_account_gpus_held", account="-") == 1
    assert a_day.value("daemon", "dlsched_partition_jobs", partition="-", state="placed") == 1
    before = a_day.value("daemon", "dlsched_vc_gpu_seconds_total", vc="-") or 0.0
    eventually(
        "GPU-seconds grow",
        lambda: (a_day.value("daemon", "dlsched_vc_gpu_seconds_total", vc="-") or 0.0) > before,
    )


def test_the_use_of_gpus_comes_from_the_driver(a_day: Monitored) -> None:
    eventually(
        "the daemon knows",
        lambda: a_day.value("daemon", "dlsched_node_gpu_utilization", node="n2") == 0.37,
    )
    assert a_day.value("daemon", "dlsched_node_gpu_memory_used_bytes", node="n2") == 1 << 30
    # a pretended GPU says nothing of its use, and no number is made up
    assert a_day.value("daemon", "dlsched_node_gpu_utilization", node="n1") is None
    eventually(
        "the agent counts the run",
        lambda: a_day.value("n2", "dlsched_agent_runs", phase="running") == 1,
    )
    eventually(
        "the other agent counts the ends",
        lambda: (a_day.value("n1", "dlsched_agent_run_ends_total", reason="exited") or 0) >= 2,
    )
    agent = a_day.scrape("n2")
    use = {
        each: agent["dlsched_agent_gpu_utilization", frozenset({("gpu", each)})] for each in "01"
    }
    assert use == {"0": 0.74, "1": 0.0}
    held = [agent["dlsched_agent_gpu_held", frozenset({("gpu", each)})] for each in "01"]
    assert sorted(held) == [0, 1]
    assert a_day.value("n2", "dlsched_agent_connected") == 1


def test_each_process_tells_the_version_that_the_command_line_has(a_day: Monitored) -> None:
    version = a_day.cli("--version").split()[1]
    for process in ("daemon", "n2"):
        assert a_day.value(process, "dlsched_build_info", version=version) == 1
    assert a_day.cli("nodes", "-o", "version", "--noheader").split() == [version, version]


def test_names_follow_prometheus(a_day: Monitored) -> None:
    for process in ("daemon", "n2"):
        text = a_day.text(process)
        assert "_created" not in text
        for family in text_string_to_metric_families(text):
            name = family.name
            assert re.fullmatch(r"(dlsched|process)_[a-z_]+", name)
            assert family.documentation, name
            if family.type == "counter":
                assert {each.name for each in family.samples} <= {f"{name}_total"}
            else:
                assert not name.endswith(("_total", "_count", "_sum", "_bucket")), name


def used(expression: str) -> Iterator[tuple[str, set[str]]]:
    """The metrics that a PromQL expression names, each with the labels that it chooses by."""
    parser = pytest.importorskip("promql_parser")
    todo = [parser.parse(expression)]
    while todo:
        each = todo.pop()
        if isinstance(each, parser.VectorSelector):
            yield each.name, {matcher.name for matcher in each.matchers.matchers}
            continue
        for name in ("lhs", "rhs", "expr", "vector_selector"):
            inner = getattr(each, name, None)
            if inner is not None:
                todo.append(inner)
        todo += getattr(each, "args", ())


def expressions() -> Iterator[tuple[str, str]]:
    """Every expression of the dashboard and of the rules, with what it belongs to."""
    yaml = pytest.importorskip("yaml")
    board = json.loads((MONITORING / "dlsched-grafana.json").read_text())
    for panel in board["panels"]:
        for target in panel.get("targets", ()):
            yield panel["title"], target["expr"]
    rules = yaml.safe_load((MONITORING / "dlsched.rules.yml").read_text())
    for group in rules["groups"]:
        for rule in group["rules"]:
            yield rule["alert"], rule["expr"]


def test_the_dashboard_and_the_rules_name_metrics_that_exist(a_day: Monitored) -> None:
    # those of certificates, which this cluster has none of: tests/rpc/test_cluster_over_tls.py
    labels: dict[str, set[str]] = {
        f"dlsched_{of}certificate_expiry_timestamp_seconds": set() for of in ("", "agent_")
    }
    for process in ("daemon", "n2"):
        for name, pairs in a_day.scrape(process):
            labels.setdefault(name, set()).update(key for key, _ in pairs)
    wrong = [
        f"{where}: {name}{chosen or ''}"
        for where, expression in expressions()
        for name, chosen in used(expression)
        if name not in labels or not chosen <= labels[name]
    ]
    assert not wrong
    assert len(list(expressions())) > 30


def test_the_page_of_monitoring_lists_every_metric(a_day: Monitored) -> None:
    page = (ROOT / "docs/monitoring.md").read_text()
    for process in ("daemon", "n2"):
        for family in text_string_to_metric_families(a_day.text(process)):
            if family.name.startswith("dlsched_"):
                suffix = "_total" if family.type == "counter" else ""
                assert re.search(rf"`{family.name}{suffix}[`{{]", page), family.name


def test_a_job_that_does_not_use_its_gpus_is_named(a_day: Monitored) -> None:
    """To operators by `queue --idle`, to its owner in `show`; another one is left in peace."""
    common = ("submit", "--parsable", "-o", f"{a_day.out}/%j.out", "-w", "n2", "--gpus", "1")
    second = int(a_day.cli(*common, "--wrap", "sleep 600"))
    a_day.until(second, "RUNNING")
    with a_day.client() as client:
        on_n2 = {job.job_id: job.gpu_indices["n2"] for job in client.queue().jobs if job.nodes}
    # the driver says that GPU 0 is 74 % busy and GPU 1 does nothing
    (idle,) = (job for job, gpus in on_n2.items() if gpus == (1,))
    (busy,) = (job for job, gpus in on_n2.items() if gpus == (0,))
    listed = eventually(
        "it is listed",
        lambda: json.loads(a_day.cli("queue", "-a", "--idle", "4s", "--json"))["jobs"],
    )
    assert [job["job_id"] for job in listed] == [idle]
    assert listed[0]["gpu_idle_s"] >= 4
    assert "IDLE" in a_day.cli("queue", "-a", "--idle", "4s")
    assert a_day.cli("queue", "--idle", "10d").count("\n") == 1
    eventually("its owner is told", lambda: "idle-gpus" in a_day.cli("show", str(idle)))
    assert "its 1 GPU" in a_day.cli("show", str(idle))
    assert "idle-gpus" not in a_day.cli("show", str(busy))
    a_day.cli("cancel", str(idle), str(busy))
    a_day.until(idle, "CANCELLED")
    a_day.until(busy, "CANCELLED")

    def used() -> list[float]:
        jobs = json.loads(a_day.cli("history", "-j", f"{idle},{busy}", "--json"))["jobs"]
        known = {job["job_id"]: job["gpu_used"] for job in jobs}
        return [known[idle], known[busy]] if None not in known.values() else []

    assert eventually("use is in the history", used) == [0.0, pytest.approx(0.74)]
    assert "74% busy over its life" in a_day.cli("show", str(busy))
    bad = a_day.run("queue", "--idle", "soon")
    assert (bad.returncode, bad.stderr.count("\n")) == (2, 1)
