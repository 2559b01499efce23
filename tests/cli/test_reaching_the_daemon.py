"""No daemon, a daemon elsewhere, wrong configuration; and what a verb may import."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import threading
from concurrent import futures
from importlib.metadata import requires

import grpc
import pytest

from dlsched.cli.command_table import ADMIN_COMMANDS, COMMANDS
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


def test_a_daemon_that_does_not_run_is_reported_at_once_in_one_line(dlsched, control, free_port):
    address = f"127.0.0.1:{free_port}"
    done = dlsched("queue", "--daemon", address, "--daemon-wait", "0")
    line = f"dlsched: cannot reach the daemon at {address} (connection refused)\n"
    assert done == (1, "", line)


def test_a_missing_local_socket_is_reported(dlsched, control, tmp_path):
    done = dlsched("queue", "--daemon", f"unix:{tmp_path}/no.sock", "--daemon-wait", "0")
    line = (
        f"dlsched: cannot reach the daemon at unix:{tmp_path}/no.sock (no such file or directory)\n"
    )
    assert done == (1, "", line)


def test_a_daemon_that_is_starting_is_reached(dlsched, control, free_port, tmp_path):
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

    timer = threading.Timer(1.5, begin)
    timer.start()
    try:
        done = dlsched("usage", "--daemon", f"unix:{path}", "--daemon-wait", "1m")
        assert done.code == 0
        assert done.err.count("waiting for up to 60 s (--daemon-wait)") == 1
    finally:
        timer.join()
        server[0].stop(None).wait()


def test_the_daemon_that_leads_is_found_among_several(dlsched, control, free_port, refusal):
    control.answers["Usage"] = pb.UsageReply()
    both = f"127.0.0.1:{free_port},{control.address}"
    assert dlsched("usage", "--daemon", both) == (0, dlsched("usage").out, "")


def test_how_long_to_wait_comes_from_option_variable_or_file(
    dlsched, control, monkeypatch, tmp_path, free_port
):
    done = dlsched("usage", "--daemon-wait", "soon")
    assert done.code == 2
    assert done.err.startswith("dlsched: --daemon-wait: 'soon' is not a duration")
    monkeypatch.setenv("DLSCHED_DAEMON_WAIT", "never")
    assert dlsched("usage").err.startswith("dlsched: DLSCHED_DAEMON_WAIT: 'never' is not")
    monkeypatch.delenv("DLSCHED_DAEMON_WAIT")
    folder = tmp_path / "config" / "dlsched"
    folder.mkdir(parents=True)
    path = folder / "config.toml"
    path.write_text('daemon_wait = "x"\n')
    assert dlsched("usage").err.startswith(f"dlsched: {path}: daemon_wait: 'x' is not a duration")
    path.write_text('daemon_wait = "0"\n')
    assert dlsched("usage", "--daemon", f"127.0.0.1:{free_port}").code == 1


def test_an_answer_of_another_server_is_reported(dlsched, control, refusal):
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
    assert done.err.startswith(
        f"dlsched: {path}: 'deamon' is not known; known: daemon, daemon_wait,"
    )
    path.write_text("daemon = 7\n")
    assert dlsched("usage") == (2, "", f"dlsched: {path}: daemon: not a text\n")


def test_without_authentication_no_port_is_connected(dlsched, control, monkeypatch):
    monkeypatch.delenv("DLSCHED_INSECURE_LOOPBACK")
    done = dlsched("usage")
    assert done.code == 2
    assert "without a token or a certificate only the local socket can be used" in done.err
    assert not control.asked


@pytest.mark.parametrize("words", LIGHT, ids=lambda words: words[0])
def test_a_verb_that_asks_the_daemon_imports_nothing_heavy(words, free_port, tmp_path):
    loaded = modules_of(words, DLSCHED_DAEMON=f"unix:{tmp_path}/none.sock", DLSCHED_DAEMON_WAIT="0")
    assert "grpc" in loaded
    assert not loaded & HEAVY
    assert not [name for name in loaded if name.startswith(OURS)]


def test_help_imports_no_grpc():
    own = [verb for verb, command in COMMANDS.items() if not command.passes_words]
    script = (
        "import json, sys\n"
        "from dlsched.cli.main import run\n"
        "for verb in json.loads(sys.argv[1]):\n"
        "    sys.argv = ['dlsched', *verb.split(), '--help']\n"
        "    try:\n        assert not run(), verb\n"
        "    except SystemExit as end:\n        assert not end.code, verb\n"
        "    print('after', verb, *sys.modules, file=sys.stderr)\n"
    )
    verbs = [*own, *(f"admin {verb}" for verb in ADMIN_COMMANDS)]
    found = started(script, verbs)
    assert found.returncode == 0, found.stderr
    lines = [line.split() for line in found.stderr.splitlines()]
    assert [line[1] for line in lines] == [verb.split()[0] for verb in verbs]
    heavy = HEAVY | {"grpc", "google.protobuf"}
    assert not [(line[:3], heavy & set(line)) for line in lines if heavy & set(line)][:1]


def modules_of(words: list[str], **variables: str) -> set[str]:
    script = (
        "import sys, json\n"
        "sys.argv = ['dlsched'] + json.loads(sys.argv[1])\n" + "from dlsched.cli.main import run\n"
        "try:\n    run()\nfinally:\n    print(*sys.modules, file=sys.stderr)\n"
    )
    found = started(script, words, **variables)
    assert found.returncode == 1, found.stderr
    return set(found.stderr.split())


def started(script: str, words: list[str], **variables: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", script, json.dumps(words)],
        capture_output=True,
        text=True,
        check=False,
        stdin=subprocess.DEVNULL,
        env={**os.environ, **variables},
    )
