"""`dlsched forward`: a port of the user's machine for a server in a job, and for no other one."""

from __future__ import annotations

import http.client
import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from dlsched.torture.local_cluster import LocalCluster, eventually
from tests.live.login_node import LoginNode
from tests.live.terminal import Terminal
from tests.other_users import BECOME

pytestmark = pytest.mark.slow
STRANGER = 12345  # another user of this machine
BYTES = 3_000_000
# writes the port that it got, after it listens
SERVER = """
import http.server, os
server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), http.server.SimpleHTTPRequestHandler)
with open("port.new", "w") as file:
    file.write(str(server.server_address[1]))
os.rename("port.new", "port")
server.serve_forever()
"""


class Notebook:
    """A job with an HTTP server, as a notebook is one."""

    def __init__(self, cluster: LocalCluster, name: str) -> None:
        self.folder = cluster.folder / name
        self.folder.mkdir()
        (self.folder / "page").write_bytes(os.urandom(BYTES))
        (self.folder / "server.py").write_text(SERVER)
        script = f"exec {sys.executable} server.py"
        self.job = cluster.submit(script, gpus=1, chdir=self.folder)
        path = self.folder / "port"
        eventually("the server listens", path.exists)
        self.port = int(path.read_text())
        cluster.until(self.job, "RUNNING")

    @property
    def page(self) -> bytes:
        return (self.folder / "page").read_bytes()


@pytest.fixture(scope="module")
def login() -> Iterator[LoginNode]:
    """A user's shell on a cluster of one node of four GPUs."""
    with LocalCluster(nodes=1, gpus="4:v100") as running:
        yield LoginNode(running)


@pytest.fixture(scope="module")
def notebook(login: LoginNode) -> Notebook:
    return Notebook(login.cluster, "notebook")


def local_port(user: Terminal) -> int:
    """Where a forward listens, once it does."""
    return int(user.expect(r"127\.0\.0\.1:(\d+) is port \d+ of job \d+ on n1")[1])


def get(port: int, path: str = "/page") -> bytes:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    try:
        connection.request("GET", path)
        return connection.getresponse().read()
    finally:
        connection.close()


def test_a_server_in_a_job_is_reached_by_many_connections_at_once(
    login: LoginNode, notebook: Notebook
) -> None:
    with login.terminal(f"dlsched forward {notebook.job} {notebook.port}:0") as user:
        port = local_port(user)
        with ThreadPoolExecutor(6) as threads:
            pages = list(threads.map(get, [port] * 12))
        assert pages == [notebook.page] * 12
        user.type("\x03")
        assert user.ends() == 0


def test_only_ports_of_the_jobs_own_processes_are_reached(
    login: LoginNode, notebook: Notebook
) -> None:
    other = Notebook(login.cluster, "other")  # of the same user, on the same node
    with socket.create_server(("127.0.0.1", 0)) as outside:  # of no job
        for port in (other.port, outside.getsockname()[1], login.cluster.port):
            done = login.run(f"dlsched forward {notebook.job} {port}:0")
            told = f"no process of job {notebook.job} listens on port {port} of node n1"
            assert (done.returncode, done.stdout) == (1, "")
            assert done.stderr == f"dlsched: {told}\n"
    login.typed(f"dlsched cancel {other.job}")


@pytest.mark.parametrize("ports", ["0", "70000", "80:x", "8888:70000", "", "-1"])
def test_what_is_no_port_is_refused(login: LoginNode, ports: str) -> None:
    done = login.run(f"dlsched forward 1 -- '{ports}'")
    assert done.returncode == 2
    assert "PORT or PORT:LOCAL, each within 1 and 65535" in done.stderr


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")
def test_another_user_of_this_machine_is_not_let_through(
    login: LoginNode, notebook: Notebook
) -> None:
    program = BECOME + (
        "import socket\n"
        "with socket.create_connection(('127.0.0.1', int(sys.argv[1])), 60) as line:\n"
        "    line.sendall(b'GET /page HTTP/1.0\\r\\n\\r\\n')\n"
        "    try:\n"
        "        print(len(line.recv(1)))\n"
        "    except ConnectionError:\n"
        "        print(0)\n"
    )
    with login.terminal(f"dlsched forward {notebook.job} {notebook.port}:0") as user:
        port = local_port(user)
        argv = [sys.executable, "-c", program, str(STRANGER), str(port)]
        done = subprocess.run(argv, capture_output=True, text=True, cwd=Path("/"), check=True)
        assert done.stdout == "0\n"
        user.expect(r"dlsched: a connection of another user")
        assert get(port) == notebook.page


@pytest.mark.parametrize("lost", ["n1", "daemon"])
def test_a_forward_goes_on_after_a_restart_and_ends_with_its_job(
    lost: str, login: LoginNode
) -> None:
    own, cluster = Notebook(login.cluster, f"without-{lost}"), login.cluster
    with login.terminal(f"dlsched forward {own.job} {own.port}:0") as user:
        port = local_port(user)
        assert get(port) == own.page
        cluster.kill(lost)
        if lost == "daemon":
            cluster.start_daemon()
        else:
            cluster.start_agent(lost)
        assert get(port) == own.page
        login.typed(f"dlsched cancel {own.job}")
        user.expect(rf"dlsched: job {own.job} has ended")
        assert user.ends() == 1
