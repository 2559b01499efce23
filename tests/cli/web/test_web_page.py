"""The web page of a live cluster: what it shows, to which browsers, and how it looks."""

from __future__ import annotations

import re
import struct
import subprocess
import sys
from collections.abc import Iterator
from html import unescape
from http.client import HTTPConnection
from pathlib import Path

import pytest

from dlsched.client.daemon_client import filter_of
from dlsched.torture.local_cluster import LocalCluster, eventually
from tests.browser import browse, chromium

pytestmark = pytest.mark.slow

__all__ = ["chromium"]


@pytest.fixture(scope="module")
def cluster() -> Iterator[LocalCluster]:
    """Two nodes of four GPUs with a page: a job that runs, two that wait, two that have ended."""
    with LocalCluster(nodes=2, tables={"daemon": {"web": "127.0.0.1:0"}}) as running:
        ended = [
            running.submit("exit 3", gpus="1", name="fails"),
            running.submit("true", gpus="2", name="works"),
        ]
        for job in ended:
            running.until(job, "FAILED", "COMPLETED")
        job = running.submit("sleep 1000", gpus="4", time="60", name="<b>train</b>")
        running.until(job, "RUNNING")
        for _ in range(2):
            running.submit("sleep 1000", gpus="8", time="30", name="large")
        yield running


def address_of(cluster: LocalCluster) -> str:
    """Host and port of the daemon's page."""

    def logged() -> str:
        found = re.findall(r"event=web-page address=http://(\S+)/", cluster.log("daemon", 10**6))
        return found[-1] if found else ""

    return eventually("the page listens", logged)


def get(address: str, path: str = "/", method: str = "GET", **headers: str) -> tuple[int, str, str]:
    """Status, body, and the cookie or place that the answer names."""
    line = HTTPConnection(address, timeout=30)
    try:
        line.request(method, path, headers=headers)
        answer = line.getresponse()
        text = answer.read().decode()
        return answer.status, text, answer.getheader("Set-Cookie") or ""
    finally:
        line.close()


def whole_page(cluster: LocalCluster, address: str) -> str:
    """The page with the parts that are fetched beside it."""

    def whole() -> str:
        status, text, _ = get(address)
        assert status == 200, text
        return text if text.count("<figcaption") == 2 else ""

    return eventually("schedule and past days are there", whole)


def test_queue_nodes_schedule_and_past_days_are_on_one_page(cluster: LocalCluster) -> None:
    text = whole_page(cluster, address_of(cluster))
    with cluster.client() as client:
        waiting = [job for job in client.queue().jobs if job.is_pending]
        ended = list(client.history(filter_of([])))
    assert len(waiting) == len(ended) == 2
    assert "<b>train</b>" not in text
    assert "&lt;b&gt;train&lt;/b&gt;" in text
    for job in waiting:
        assert f'<td class="n">{job.job_id}</td>' in text
        assert f"{job.reason}; starts ~" in unescape(text)
    assert "Nodes: 4 of 8 GPUs busy" in text
    held = re.findall(r'title="GPU \d, job 3 [^"]*"', text)
    assert len(held) == 4
    assert text.count('title="GPU ') == 8
    assert "2 jobs; at the left" in text  # of the past days
    assert {"completed", "failed"} <= set(re.findall(r"<span>(\w+)</span>", text))


def test_a_page_whose_only_ended_job_never_began_is_drawn() -> None:
    with LocalCluster(nodes=1, tables={"daemon": {"web": "127.0.0.1:0"}}) as running:
        job = running.submit("true", hold=True)
        running.cli("cancel", "-y", str(job))
        running.until(job, "CANCELLED")
        address = address_of(running)
        eventually("it is drawn", lambda: "1 job; at the left" in get(address)[1])


def test_only_reading_and_only_under_its_own_name(cluster: LocalCluster) -> None:
    address = address_of(cluster)
    assert get(address, method="POST")[0] == 501
    assert get(address, "/jobs")[0] == 404
    status, text, _ = get(address, Host="cluster.example.org")
    assert (status, text) == (421, f"this is http://{address}/\n")


def test_a_user_opens_a_page_of_their_own_with_the_printed_key(cluster: LocalCluster) -> None:
    with subprocess.Popen(
        [sys.executable, "-m", "dlsched", "web"],
        env=cluster.environment,
        stdout=subprocess.PIPE,
        text=True,
    ) as served:
        assert served.stdout is not None
        line = served.stdout.readline().strip()
        found = re.fullmatch(r"http://(127\.0\.0\.1:\d+)(/\?key=\S+)", line)
        assert found is not None, line
        address, path = found.groups()
        assert get(address)[:2] == (403, "open the address that `dlsched web` has printed\n")
        assert get(address, "/?key=guessed")[0] == 403
        status, _, cookie = get(address, path)
        assert status == 303
        assert "HttpOnly" in cookie
        assert "SameSite=Strict" in cookie
        key = cookie.partition(";")[0]
        status, text, _ = get(address, Cookie=key)
        assert (status, "Running: 1 job" in text) == (200, True)
        served.terminate()


def test_a_user_without_a_daemon_is_told_so_at_once(cluster: LocalCluster) -> None:
    done = cluster.run("web", "--daemon", "127.0.0.1:1", "--daemon-wait", "0")
    assert done.returncode == 1
    assert done.stderr.startswith("dlsched: cannot reach the daemon at 127.0.0.1:1")
    done = cluster.run("web", "--listen", "0.0.0.0:0")
    assert done.returncode == 1
    assert "0.0.0.0:0 is not a loopback address" in done.stderr


@pytest.mark.parametrize(
    ("size", "flags"),
    [
        ((1200, 2000), []),
        ((420, 2400), []),
        ((1200, 2000), ["--blink-settings=preferredColorScheme=0"]),
    ],
    ids=["wide", "narrow", "dark"],
)
def test_a_browser_draws_it_without_a_complaint(
    cluster: LocalCluster, chromium: str, tmp_path: Path, size: tuple[int, int], flags: list[str]
) -> None:
    address = address_of(cluster)
    whole_page(cluster, address)
    picture = tmp_path / "page.png"
    window = f"--window-size={size[0]},{size[1]}"
    browse(chromium, f"http://{address}/", tmp_path, *flags, window, f"--screenshot={picture}")
    seen = browse(chromium, f"http://{address}/", tmp_path, *flags, window, "--dump-dom")
    assert "CONSOLE" not in seen.stderr
    assert seen.stdout.count("<figcaption") == 2
    data = picture.read_bytes()
    assert struct.unpack(">II", data[16:24]) == size
    assert len(data) > 40_000  # an empty page takes a few kilobytes
