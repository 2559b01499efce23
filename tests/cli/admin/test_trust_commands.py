"""`dlsched admin init` and `ca`: what they make can be used as it is, and is never overwritten."""

from __future__ import annotations

import json
import os
import pwd
import stat
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from dlsched.cli.typer_app import app
from dlsched.client.daemon_address import find_daemon
from dlsched.core.errors import BadInput, DlschedError
from dlsched.daemon.settings import load_settings
from dlsched.nodeagent.agent.settings import read_settings
from dlsched.rpc.authority import issued_for


def admin(*words: str) -> str:
    result = CliRunner().invoke(app, ["admin", *words], catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return str(result.output)


def refused(*words: str) -> str:
    result = CliRunner().invoke(app, ["admin", *words])
    assert isinstance(result.exception, DlschedError), result.output
    return str(result.exception)


@pytest.fixture
def made(tmp_path: Path) -> Path:
    folder = tmp_path / "cluster"
    admin("init", str(folder), "--cluster", "lab", "--node", "n[1-2]", "--daemon-host", "h1")
    return folder


def test_init_makes_what_a_daemon_agents_and_an_operator_read(made: Path) -> None:
    settings = load_settings(made / "dlsched.toml")
    assert settings.cluster.name == "lab"
    assert settings.trust.mode == "tls"
    assert settings.trust.folder == f"{made}/tls"
    assert settings.daemon.listen == ("unix:/run/dlsched/daemon.sock", "0.0.0.0:7817")
    agent = read_settings(["--config", str(made / "nodes" / "n2" / "agent.toml")])
    assert (agent.name, agent.daemon) == ("n2", ("h1:7817",))
    assert agent.tls
    assert agent.tls.key == "/etc/dlsched/tls/node.key"
    where = find_daemon(variables={}, files=(made / "operators" / "admin" / "config.toml",))
    assert where.key == f"{made}/operators/admin/tls/operator.key"


@pytest.mark.parametrize("host", ["::1", "[::1]"])
def test_a_cluster_over_ipv6_is_made_from_an_address_with_or_without_brackets(
    host: str, tmp_path: Path
) -> None:
    admin("init", str(tmp_path / "c"), "--node", "n1", "--daemon-host", host)
    settings = load_settings(tmp_path / "c" / "dlsched.toml")
    assert settings.daemon.listen == ("unix:/run/dlsched/daemon.sock", "[::]:7817")
    agent = read_settings(["--config", str(tmp_path / "c" / "nodes" / "n1" / "agent.toml")])
    assert (agent.daemon, agent.listen) == (("[::1]:7817",), "[::]:7818")
    assert "::1" in issued_for((tmp_path / "c" / "tls" / "daemon.crt").read_bytes())[1]


def test_capital_letters_in_node_names_are_small_ones(tmp_path: Path) -> None:
    made = tmp_path / "c"
    admin("init", str(made), "--node", "GPU[1-2]", "--daemon-host", "h1")
    assert sorted(os.listdir(made / "nodes")) == ["gpu1", "gpu2"]
    admin("ca", "issue", "node/GPU3", "--folder", str(made))
    assert (made / "nodes" / "gpu3").is_dir()


def test_keys_and_configurations_are_readable_by_their_owner_only(made: Path) -> None:
    for pattern, number in (("*.key", 5), ("*.toml", 4)):
        files = sorted(made.rglob(pattern))
        assert len(files) == number
        assert {stat.S_IMODE(file.stat().st_mode) for file in files} == {0o600}
    assert stat.S_IMODE((made / "ca").stat().st_mode) == 0o700


def test_init_refuses_a_folder_with_files_of_a_cluster(made: Path) -> None:
    before = {path: path.read_bytes() for path in made.rglob("*") if path.is_file()}
    assert refused("init", str(made), "--node", "n3") == f"{made}/ca exists: nothing was changed"
    assert {path: path.read_bytes() for path in made.rglob("*") if path.is_file()} == before


@pytest.mark.parametrize(
    "words",
    [
        ("--node", "n[1"),
        ("--node", "n1", "--node", "n1"),
        ("--node", "n1", "--node", "N1"),
        ("--operator", "../x"),
        ("--socket", "relative"),
        ("--daemon-host", "a b"),
    ],
    ids=" ".join,
)
def test_init_writes_nothing_after_bad_input(tmp_path: Path, words: tuple[str, ...]) -> None:
    folder = tmp_path / "cluster"
    assert "\n" not in refused("init", str(folder), *words)
    assert not [path for path in tmp_path.rglob("*") if path.is_file()]


def test_certificates_from_issue_to_denial(made: Path) -> None:
    folder = ("--folder", str(made))
    assert admin("ca", "issue", "node/n3", *folder).strip() == f"{made}/nodes/n3/tls"
    assert "has a certificate" in refused("ca", "issue", "node/n3", *folder)
    admin("ca", "issue", "login/l1", "--days", "0.01", *folder)
    assert admin("ca", "renew", *folder).strip() == "none is due"
    admin("ca", "renew", "node/n1", "daemon", *folder)
    admin("ca", "deny", "node/n2", "--reason", "stolen", *folder)
    found: dict[str, Any] = json.loads(admin("ca", "show", "--json", *folder))
    assert {each["role"]: each["state"] for each in found["certificates"]} == {
        "daemon": "good",
        "node/n1": "good",
        "node/n2": "denied",
        "node/n3": "good",
        "login/l1": "good",
        "operator/admin": "good",
    }
    table = admin("ca", "show", *folder).splitlines()
    assert table[0].split() == ["ROLE", "STATE", "ENDS", "SERIAL"]
    assert table[1].startswith("login/l1")  # ends first


@pytest.mark.parametrize("role", ["node", "user/ann", "node/N1", "daemon/x", "", "node/a/b"])
def test_an_unknown_role_is_refused_with_the_known_ones(made: Path, role: str) -> None:
    with pytest.raises(BadInput):
        CliRunner().invoke(
            app, ["admin", "ca", "issue", role, "--folder", str(made)], catch_exceptions=False
        )


@pytest.mark.parametrize("words", [("show",), ("issue", "node/n1"), ("deny", "ff")], ids=" ".join)
def test_without_an_authority_the_error_is_one_line(tmp_path: Path, words: tuple[str, ...]) -> None:
    said = refused("ca", *words, "--folder", str(tmp_path))
    assert said == f"{tmp_path}/ca has no authority: dlsched admin init makes one"
    assert not list(tmp_path.iterdir())


@pytest.mark.skipif(os.geteuid() != 0, reason="only root gives the key to the daemon's user")
def test_the_daemons_key_and_configuration_belong_to_its_user(tmp_path: Path) -> None:
    folder = tmp_path / "cluster"
    account = next((e.pw_name, e.pw_uid) for e in pwd.getpwall() if e.pw_uid)
    admin("init", str(folder), "--user", account[0])
    assert (folder / "tls" / "daemon.key").stat().st_uid == account[1]
    assert (folder / "dlsched.toml").stat().st_uid == account[1]
    assert (folder / "ca" / "ca.key").stat().st_uid == 0
    admin("ca", "renew", "daemon", "--folder", str(folder))
    assert (folder / "tls" / "daemon.key").stat().st_uid == account[1]


def test_help_loads_neither_cryptography_nor_grpc() -> None:
    code = (
        "import sys\nfrom dlsched.cli.main import run\n"
        "sys.argv = ['dlsched', 'admin', 'ca', 'issue', '--help']\n"
        "try:\n    run()\nfinally:\n"
        "    print(*sys.modules, file=sys.stderr)\n"
    )
    found = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=False
    )
    assert found.returncode == 0
    assert not set(found.stderr.split()) & {"cryptography", "grpc", "numpy", "sqlalchemy"}
