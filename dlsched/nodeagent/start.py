"""An agent from its command line to its end.

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
from dlsched.nodeagent import runfiles, settings
from dlsched.nodeagent.launchers import choose
from dlsched.nodeagent.zygote_link import ZygoteLink, lock

log = logging.getLogger(__name__)


def start(argv: Sequence[str]) -> int:
    """Run an agent; the exit code."""
    try:
        found = settings.read(argv)
        logging.basicConfig(
            level=found.log_level,
            stream=sys.stderr,
            format="%(asctime)s %(levelname)s %(name)s %(message)s",
        )
        try:
            runfiles.prepare(found.state_dir, found.run_dir)
        except OSError as error:
            raise DlschedError(f"{error.filename}: {error.strerror}") from None
        held = lock(os.path.join(found.state_dir, "agent.lock"), wait_s=1.0)
        os.set_inheritable(held, False)
        zygote = ZygoteLink(found.run_dir)
        from dlsched.nodeagent.serving import serve  # noqa: PLC0415  # gRPC after the zygote

        launcher = choose(found.launcher, found.name, namespaces=zygote.namespaces)
        log.info("launcher name=%s can=%s", launcher.name, ",".join(launcher.capabilities))
        try:
            with asyncio.Runner() as runner:
                return runner.run(serve(found, zygote, launcher))
        finally:
            zygote.close()
    except KeyboardInterrupt:
        return 130
    except DlschedError as error:
        print(f"dlsched agent: {error}", file=sys.stderr)
        return error.exit_code
