"""What an agent says of its machine."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import replace

from dlsched.nodeagent.agent.node_description import measured
from dlsched.nodeagent.agent.settings import Settings


def test_the_size_of_the_machine_is_what_the_kernel_says() -> None:
    settings = Settings(name="n1", daemon=("127.0.0.1:1",))
    space = os.statvfs("/tmp")
    pages = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    size = {"cpus": os.cpu_count(), "memory_bytes": pages}
    assert measured(settings) == size | {"tmp_bytes": space.f_frsize * space.f_blocks}
    pretended = measured(replace(settings, fake_cpus=3, fake_memory_gb=2.0))
    assert (pretended["cpus"], pretended["memory_bytes"]) == (3, 2 * 10**9)


def test_a_keeper_does_not_load_psutil() -> None:
    """There is one beside each job."""
    script = "import sys, dlsched.nodeagent.keeper.zygote; sys.exit('psutil' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", script], check=False).returncode == 0
