"""The agent from its command line to its exit code.

Order counts: first the lock of the state folder, then the zygote, which must not inherit a thread
or a channel; only then gRPC is loaded.
"""

from __future__ import annotations

import asyncio
import logging
import os
import sys
from collections.abc import Sequence

from dlsched.core.errors import DlschedError
from dlsched.nodeagent.agent.keepers.spawning import lock_file
from dlsched.nodeagent.agent.keepers.zygote_link import ZygoteLink
from dlsched.nodeagent.agent.node_policies import make_policy
from dlsched.nodeagent.agent.settings import read_settings
from dlsched.nodeagent.host.launchers import choose_launcher
from dlsched.nodeagent.keeper import run_files
from dlsched.system import slurm_commands
from dlsched.system.log_lines import log_to_stderr, take_stderr

log = logging.getLogger(__name__)


def run_agent(argv: Sequence[str]) -> int:
    """Run an agent until it is asked to leave; return its exit code."""
    try:
        settings = read_settings(argv)
        if "--check" in argv:
            if settings.node_policy:
                make_policy(settings.node_policy, "--check")
            print("the settings are fine")  # the answer
            return 0
        log_to_stderr(settings.log_level, settings.log_format)
        try:
            run_files.make_folders(settings.state_dir, settings.run_dir)
            slurm_commands.install_for_jobs(os.path.abspath(settings.run_dir))
        except OSError as error:
            raise DlschedError(f"{error.filename}: {error.strerror}") from None
        lock = lock_file(os.path.join(settings.state_dir, "agent.lock"), wait_s=1.0)
        os.set_inheritable(lock, False)
        zygote = ZygoteLink(settings.run_dir)
        asyncio.run(zygote.begin())  # in a loop of its own, which starts no thread
        take_stderr()  # of this process, not of keepers, which outlive it
        from dlsched.nodeagent.agent.serving import serve  # noqa: PLC0415  # after the zygote

        launcher = choose_launcher(
            settings.launcher, settings.name, namespaces=zygote.has_namespaces
        )
        log.info("launcher name=%s can=%s", launcher.name, ",".join(launcher.capabilities))
        try:
            with asyncio.Runner() as runner:
                return runner.run(serve(settings, zygote, launcher))
        finally:
            zygote.close()
    except KeyboardInterrupt:
        return 130
    except DlschedError as error:
        print(f"dlsched agent: {error}", file=sys.stderr)
        return error.exit_code
