"""Mistakes of a configuration: what `--check` says of each, and what a start does."""

from __future__ import annotations

import asyncio
import getpass
import json
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

import pytest

from dlsched.core.errors import BadInput
from dlsched.daemon.__main__ import main
from dlsched.daemon.settings import load_settings
from dlsched.rpc.certificate_folder import CertificateFolder
from dlsched.rpc.identity import DAEMON
from dlsched.rpc.v1 import control_pb2 as c

from .cluster_of_tests import Running, eventually, settings_of
from .scripted_agent import ScriptedAgent

NODES = '[[nodes]]\nname = "n[1-2]"\ngpus = 4\n'
PARTITION = '[[partitions]]\nname = "a"\n'


@dataclass(frozen=True)
class Mistake:
    """A key of the file with a wrong value, or wrong sections at its end."""

    check: str  # what `--check` says
    key: str = ""
    value: object = ""
    more: str = ""
    start: str = ""  # what a start says, where it says something else
    starts: bool = False  # it starts, and its status says what is wrong


MISTAKES = {
    "another word for Postgres": Mistake(
        "daemon.database: postgres://db/x: Postgres' URLs begin with postgresql+psycopg://",
        "database",
        "postgres://db/x",
    ),
    "another database": Mistake(
        "daemon.database: mysql://db/x: neither a SQLite file nor Postgres",
        "database",
        "mysql://db/x",
    ),
    "three slashes": Mistake("four slashes make it absolute", "database", "sqlite:///lib/x.db"),
    "no folder": Mistake(
        "daemon.database: there is no folder /none",
        "database",
        "sqlite:////none/x.db",
        start="database: /none is not a folder",
    ),
    "no certificates": Mistake(
        "trust.folder: /none/ca.crt", "folder", "/none", start="/none/ca.crt: No such file"
    ),
    "no deny list": Mistake(
        "trust.denied: there is no /none/denied, the list of denied certificates: none would be",
        "denied",
        "/none/denied",
        start="there is no /none/denied, the list of denied certificates: none would be refused",
    ),
    "operator": Mistake(
        "trust.operators: this machine knows no user nobody-at-all",
        "operators",
        ["nobody-at-all"],
        starts=True,
    ),
    "group": Mistake(
        "partitions: a: groups: this machine knows no group none-at-all",
        more=f'{PARTITION}groups = ["none-at-all"]',
        starts=True,
    ),
    "user": Mistake(
        "partitions: a: users: this machine knows no user nobody-at-all",
        more=f'{PARTITION}users = ["nobody-at-all"]',
        starts=True,
    ),
    "a partition's node": Mistake(
        "partitions: a: nodes: n3 is no node of [[nodes]]",
        more=f'{NODES}{PARTITION}nodes = "n[2-3]"',
    ),
    "a virtual cluster's node": Mistake(
        "vcs: v: nodes: n7 is no node of [[nodes]]",
        more=f'{NODES}[[vcs]]\nname = "v"\nnodes = "n7"',
    ),
    "a virtual cluster that is too large": Mistake(
        "vcs: v: gpus: 9 is more than the 8 GPUs of [[nodes]]",
        more=f'{NODES}[[vcs]]\nname = "v"\ngpus = 9',
    ),
    "two defaults": Mistake(
        "partitions: a and b are both the default",
        more=f"{PARTITION}default = true\n[[partitions]]\nname = 'b'\ndefault = true",
    ),
}
REFUSED = sorted(name for name, each in MISTAKES.items() if not each.starts)


class Site:
    """A folder with certificates, and a configuration that is right."""

    def __init__(self, folder: Path) -> None:
        """Make the certificates."""
        made = CertificateFolder(folder / "etc")
        made.create("lab", now=time.time())
        made.issue(DAEMON, now=time.time())
        self.file = folder / "dlsched.toml"
        self.values: dict[str, object] = {
            "database": f"sqlite:///{folder}/dlsched.db",
            "listen": ["127.0.0.1:0"],
            "metrics": "",
            "folder": str(folder / "etc" / "tls"),
            "denied": str(made.deny_list),
            "operators": [getpass.getuser()],
        }

    def write(self, mistake: Mistake | None = None, more: str = "") -> Path:
        """Write the file, with a mistake or with more at its end."""
        wrong = {mistake.key: mistake.value} if mistake and mistake.key else {}
        lines = [f"{key} = {json.dumps(v)}" for key, v in (self.values | wrong).items()]
        end = [mistake.more if mistake else more]
        self.file.write_text("\n".join(["[daemon]", *lines[:3], "[trust]", *lines[3:], *end]))
        return self.file

    def check(self) -> int:
        """Check the file."""
        return main(["--config", str(self.file), "--check"])


@pytest.fixture
def site(tmp_path: Path) -> Site:
    return Site(tmp_path)


def test_a_configuration_that_is_right_is_fine(
    site: Site, capsys: pytest.CaptureFixture[str]
) -> None:
    site.write(more=f'{NODES}{PARTITION}nodes = "n2"')
    assert site.check() == 0
    assert capsys.readouterr() == (f"{site.file}: fine\n", "")


@pytest.mark.parametrize("name", sorted(MISTAKES))
def test_the_check_of_a_mistake_is_one_line(
    site: Site, capsys: pytest.CaptureFixture[str], name: str
) -> None:
    site.write(MISTAKES[name])
    assert site.check() == 2
    out, err = capsys.readouterr()
    (line,) = err.splitlines()
    assert out == ""
    assert MISTAKES[name].check in line


@pytest.mark.parametrize("name", REFUSED)
def test_a_start_refuses_it_with_one_line_and_with_exit_2(site: Site, name: str) -> None:
    site.write(MISTAKES[name])
    # systemd does not try again after this code
    done = subprocess.run(
        [sys.executable, "-m", "dlsched.daemon", "--config", str(site.file)],
        capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    assert done.returncode == 2, done.stderr
    assert (MISTAKES[name].start or MISTAKES[name].check) in done.stderr.splitlines()[-1]


@pytest.mark.parametrize("name", sorted(MISTAKES.keys() - set(REFUSED)))
def test_the_status_says_it_where_a_start_can_go_on(site: Site, name: str) -> None:
    async def work() -> None:
        async with Running(load_settings(site.write(MISTAKES[name]))) as running:
            await eventually(lambda: running.daemon.cluster.unknown_names)
            status = await running.caller("root", 0).control.Status(c.StatusRequest(), timeout=60)
            assert status.health == "yellow"
            assert MISTAKES[name].check in status.problems

    asyncio.run(work())


def test_several_mistakes_are_told_at_once(site: Site, capsys: pytest.CaptureFixture[str]) -> None:
    site.values |= {"denied": "/none/denied", "operators": ["nobody-at-all"]}
    site.write()
    assert site.check() == 2
    assert len(capsys.readouterr().err.splitlines()) == 2


def test_without_a_list_of_nodes_those_that_never_registered_are_noted(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    site = Site(tmp_path)
    site.write(more=f'{PARTITION}nodes = "n[1-2]"')
    assert site.check() == 0  # no node has registered yet: that says nothing of any
    assert capsys.readouterr().err == ""

    async def work() -> None:
        async with Running(settings_of(tmp_path)) as running:
            agent = ScriptedAgent("n1", running.target)
            await agent.start()
            await eventually(lambda: running.daemon.driver.committed.nodes)
            await agent.stop()

    asyncio.run(work())
    assert site.check() == 0
    out, err = capsys.readouterr()
    assert out == f"{site.file}: fine\n"
    assert err == f"{site.file}: note: partitions: a: nodes: n2 has never registered\n"


def test_a_reload_refuses_what_a_start_refuses(tmp_path: Path) -> None:
    async def work(file: Path) -> None:
        async with Running(settings_of(tmp_path), file=file) as running:
            with pytest.raises(BadInput, match=r"nodes: n3 is no node of \[\[nodes\]\]"):
                await running.daemon.reload("test")

    site = Site(tmp_path)
    asyncio.run(work(site.write(MISTAKES["a partition's node"])))
