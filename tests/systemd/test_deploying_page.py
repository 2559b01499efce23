"""What `docs/deploying.md` says to type, typed in its order on one machine, head and node."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from installed_cluster import AGENT, DAEMON, until
from machine import HOME

PAGE = Path(__file__).parents[2] / "docs" / "deploying.md"
USER = "grace"
_BLOCK = re.compile(r"^```sh\n(# on .*?)^```", re.M | re.S)
# The node's own configuration, on a machine without GPUs.
_PRETEND = 'fake_gpus = "2:v100"\ndevice_prefix = "/dev/gpu"\n'


def test_every_command_of_the_page_works(machine: Any) -> None:
    machine.install_program()
    machine.run("sh", "-c", "echo 127.0.0.1 head n1 n2 >>/etc/hosts")
    machine.write("/usr/local/bin/ssh", '#!/bin/sh\nshift\nexec "$@"\n', "755")
    machine.run("useradd", "-m", "-s", "/bin/sh", USER)
    blocks = _BLOCK.findall(PAGE.read_text())
    assert len(blocks) == PAGE.read_text().count("```sh\n")
    said = []
    for block in blocks:
        if "enable --now dlsched-agent" in block:
            toml = machine.run("cat", "/etc/dlsched/agent.toml").stdout
            machine.write("/etc/dlsched/agent.toml", _PRETEND + toml)
        if "dlsched nodes" in block or "as a user" in block:
            machine.eventually("dlsched", "nodes", says="idle")
        script = f"set -e; cd {HOME}/project; {block}"
        command = ["sh", "-c", script]
        if "as a user" in block:
            command = ["runuser", "-l", USER, "-c", f"set -e; {block}"]
        said.append(machine.run(*command).stdout)
        if "systemctl restart" in block:
            until(lambda: "idle" in machine.run("dlsched", "nodes").stdout)
    everything = "".join(said)
    assert "can=supervise,signal,freeze,kill-tree" in everything
    assert "COMPLETED" in everything
    output = machine.run("sh", "-c", f"cat /home/{USER}/*1*").stdout
    assert output.startswith("on n1\n")
    assert "/dlsched.slice/dls-1-1-0.service/job" in output
    assert machine.show(AGENT, "ActiveState") == "inactive"
    assert machine.show(DAEMON, "ActiveState") == "inactive"
