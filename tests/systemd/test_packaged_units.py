"""The files in `packaging/` as systemd itself reads them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

PACKAGING = Path(__file__).parents[2] / "packaging"
UNITS = sorted(path.name for path in (PACKAGING / "systemd").iterdir())


@pytest.fixture(scope="module")
def installed(machine: Any) -> Any:
    """The machine with our files where a package would put them."""
    machine.install()
    return machine


@pytest.mark.parametrize("unit", UNITS)
def test_systemd_finds_nothing_wrong_with_a_unit(installed: Any, unit: str) -> None:
    done = installed.run("systemd-analyze", "verify", "--man=no", unit, check=False)
    ours = [line for line in (done.stdout + done.stderr).splitlines() if "dlsched" in line]
    assert not ours
    assert done.returncode == 0


def test_the_daemon_runs_as_a_user_that_cannot_log_in(installed: Any) -> None:
    line = installed.run("getent", "passwd", "dlsched").stdout
    assert line.split(":")[5:] == ["/var/lib/dlsched", "/usr/sbin/nologin\n"]
    assert installed.show("dlsched-daemon.service", "User") == "dlsched"


def test_the_daemon_is_exposed_to_little(installed: Any) -> None:
    done = installed.run(
        "systemd-analyze", "security", "--threshold=25", "dlsched-daemon.service", check=False
    )
    assert done.returncode == 0, done.stdout.splitlines()[-1]


def test_the_daemon_cannot_write_outside_its_state(installed: Any) -> None:
    properties = ("ProtectSystem=strict", "ProtectHome=yes", "PrivateTmp=yes", "User=dlsched")
    options = [part for value in properties for part in ("-p", value)]
    script = "touch /var/lib/dlsched/daemon/in && ! touch /etc/out 2>&-"
    installed.run(
        *("systemd-run", "--wait", "-q", "-p", "StateDirectory=dlsched/daemon", *options),
        *("sh", "-c", script),
    )
