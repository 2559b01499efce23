"""No daemon, a daemon elsewhere, wrong configuration; and what a verb may import."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import threading
import time
from concurrent import futures
from importlib.metadata import requires

import grpc
import pytest

from dlsched.cli.verbs import ADMIN_VERBS, VERBS
from dlsched.rpc.v1 import control_pb2 as pb

PARSER = {"pydantic"} if any("pydantic" in each for each in requires("typer") or ()) else set()
HEAVY = {
    "numpy",
    "sqlalchemy",
    "alembic",
    "pydantic",
    "cryptography",
    "rich",
    "psutil",
    "polars",
} - PARSER
OURS = ("dlsched.policies", "dlsched.daemon", "dlsched.db", "dlsched.protocol", "simulate")
LIGHT = [
    ["submit", "--", "true"],
    ["queue"],
    ["show", "7"],
    ["cancel", "7"],
    ["hold", "7"],
    ["update", "7", "--time", "1h"],
    ["wait", "7"],
    ["logs", "7"],
    ["history"],
    ["usage"],
    ["nodes"],
    ["drain", "n1", "--reason", "x"],
    ["top", "--once"],
    ["admin", "status"],
]


@pytest.fixture
def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        yield probe.getsockname()[1]  # bound and not listening: connections are refused


def test_a_daemon_that_is_away_is_one_line_within_three_seconds(dlsched, control, free_port):
    address = f"127.0.0.1:{free_port}"
    begun = time.monotonic()
    done = dlsched("queue", "--daemon", address)
    assert time.monotonic() - begun < 3
    line = f"dlsched: cannot reach the daemon at {address} (connection refused)\n"
    assert done == (1, "", line)


def test_a_local_socket_that_is_not_there(dlsched, control, tmp_path):
    done = dlsched("queue", "--daemon", f"unix:{tmp_path}/no.sock")
    line = (
        f"dlsched: cannot reach the daemon at unix:{tmp_path}/no.sock (no such file or directory)\n"
    )
    assert done == (1, "", line)


def test_a_daemon_that_starts_meanwhile_is_reached(dlsched, control, free_port, tmp_path):
    path = str(tmp_path / "late.sock")
    server: list[grpc.Server] = []

    def begin() -> None:
        late = grpc.server(futures.ThreadPoolExecutor(1))
        late.add_generic_rpc_handlers(
            [
                grpc.method_handlers_generic_handler(
                    "dlsched.v1.Control",
                    {
                        "Usage": grpc.unary_unary_rpc_method_handler(
                            lambda request, context: pb.UsageReply(),
                            request_deserializer=pb.UsageRequest.FromString,
                            response_serializer=pb.UsageReply.SerializeToString,
                        )
                    },
                )
            ]
        )
        late.add_insecure_port(f"unix:{path}")
        late.start()
        server.append(late)

    timer = threading.Timer(0.5, begin)
    timer.start()
    try:
        assert dlsched("usage", "--daemon", f"unix:{path}").code == 0
    finally:
        timer.join()
        server[0].stop(None).wait()


def test_an_answer_that_is_none(dlsched, control, refusal):
    control.answers["Usage"] = refusal(grpc.StatusCode.UNIMPLEMENTED, "")
    done = dlsched("usage")
    assert done.code == 1
    assert "does not know this request; is it older?" in done.err
    control.answers["Usage"] = refusal(grpc.StatusCode.INTERNAL, "a\x1b[31mdefect\nof two lines")
    assert dlsched("usage").err.count("\n") == 1
    assert "\x1b" not in dlsched("usage").err


def test_the_users_configuration_names_the_daemon(dlsched, control, monkeypatch, tmp_path):
    monkeypatch.delenv("DLSCHED_DAEMON")
    monkeypatch.delenv("DLSCHED_INSECURE_LOOPBACK")
    folder = tmp_path / "config" / "dlsched"
    folder.mkdir(parents=True)
    path = folder / "config.toml"
    path.write_text(f'daemon = "{control.address}"\ninsecure_loopback = true\n')
    control.answers["Usage"] = pb.UsageReply()
    assert dlsched("usage").code == 0
    path.write_text('deamon = "x"\n')
    done = dlsched("usage")
    assert done.code == 2
    assert done.err.startswith(f"dlsched: {path}: 'deamon' is not known; known: daemon, ca,")
    path.write_text("daemon = 7\n")
    assert dlsched("usage") == (2, "", f"dlsched: {path}: daemon: not a text\n")


def test_without_trust_no_port_is_dialled(dlsched, control, monkeypatch):
    monkeypatch.delenv("DLSCHED_INSECURE_LOOPBACK")
    done = dlsched("usage")
    assert done.code == 2
    assert "without a token or a certificate only the local socket can be used" in done.err
    assert not control.asked


@pytest.mark.parametrize("words", LIGHT, ids=lambda words: words[0])
def test_a_verb_that_asks_the_daemon_imports_nothing_heavy(words, free_port, tmp_path):
    loaded = modules_of(words, DLSCHED_DAEMON=f"unix:{tmp_path}/none.sock")
    assert "grpc" in loaded
    assert not loaded & HEAVY
    assert not [name for name in loaded if name.startswith(OURS)]


@pytest.mark.parametrize("verb", [*VERBS, *(f"admin {verb}" for verb in ADMIN_VERBS)])
def test_help_imports_no_grpc(verb):
    if VERBS.get(verb) and VERBS[verb].passes:
        pytest.skip("its own program answers")
    loaded = modules_of([*verb.split(), "--help"])
    assert not loaded & (HEAVY | {"grpc", "google.protobuf"})


def modules_of(words: list[str], **variables: str) -> set[str]:
    script = (
        "import sys, json\n"
        "sys.argv = ['dlsched'] + json.loads(sys.argv[1])\n"
        + ("import dlsched.client.connection as c\nc.REACH_S = 0.0\n" if variables else "")
        + "from dlsched.cli.main import run\n"
        "try:\n    run()\nfinally:\n    print(*sys.modules, file=sys.stderr)\n"
    )
    found = subprocess.run(
        [sys.executable, "-c", script, json.dumps(words)],
        capture_output=True,
        text=True,
        check=False,
        stdin=subprocess.DEVNULL,
        env={**os.environ, **variables},
    )
    assert found.returncode == (1 if variables else 0), found.stderr
    return set(found.stderr.split())
