"""The daemon's program: `python -m dlsched.daemon --config FILE`, which `dlsched daemon` runs."""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import logging
import signal
import sys
from collections.abc import Sequence
from pathlib import Path

from dlsched.core.errors import BadInput, DlschedError
from dlsched.daemon.configuration_check import faults, notes
from dlsched.daemon.daemon import Daemon
from dlsched.daemon.long_lived import share_one_heap
from dlsched.daemon.round.configured import named_policies, of_section
from dlsched.daemon.round.parts import refuse_unknown
from dlsched.daemon.settings import Settings, load_settings
from dlsched.system.log_lines import log_to_stderr, take_stderr

log = logging.getLogger("dlsched.daemon")


def main(argv: Sequence[str] | None = None) -> int:
    """Run until a signal stops the daemon; returns the exit code."""
    parser = argparse.ArgumentParser(prog="dlsched daemon", description="Lead a cluster.")
    parser.add_argument("--config", metavar="FILE", type=Path, help="configuration, TOML")
    parser.add_argument("--database", metavar="URL", help="instead of the file's")
    parser.add_argument(
        "--listen", metavar="ADDRESS", action="append",
        help="HOST:PORT or unix:/PATH, instead of the file's; may be given again",
    )  # fmt: skip
    parser.add_argument("--migrate", action="store_true", help="bring an older database up to date")
    parser.add_argument(
        "--insecure-loopback", action="store_true",
        help="development: no certificates, this machine only",
    )  # fmt: skip
    parser.add_argument("--check", action="store_true", help="check the configuration and stop")
    given = parser.parse_args(argv)
    try:
        settings = _settings(given)
        if given.check:
            for section, policy in named_policies(settings).items():
                with of_section(section):
                    refuse_unknown(policy)
            found = list(faults(settings, insecure=given.insecure_loopback))
            if found:
                raise BadInput("\n".join(f"{given.config}: {each}" for each in found))
            for note in notes(settings):
                print(f"{given.config}: note: {note}", file=sys.stderr)
            print(f"{given.config}: fine")  # the answer
            return 0
        log_to_stderr(settings.daemon.log_level.upper(), settings.daemon.log_format)
        take_stderr()
        share_one_heap()
        return asyncio.run(run(settings, given.config, given.insecure_loopback))
    except DlschedError as error:
        print(f"dlsched daemon: {error}", file=sys.stderr)
        return error.exit_code
    except KeyboardInterrupt:
        return 130


def _settings(given: argparse.Namespace) -> Settings:
    settings = load_settings(given.config) if given.config is not None else Settings()
    changes: dict[str, object] = {}
    if given.database:
        changes["database"] = given.database
    if given.listen:
        changes["listen"] = tuple(given.listen)
    if given.migrate:
        changes["migrate"] = True
    if not changes:
        return settings
    return settings.model_copy(update={"daemon": settings.daemon.model_copy(update=changes)})


async def run(settings: Settings, file: Path | None, insecure: bool) -> int:
    """Run a daemon until a signal or a failure; returns the exit code."""
    daemon = Daemon(settings, file=file, insecure_loopback=insecure)
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    starting = asyncio.create_task(daemon.start())
    stopping = asyncio.create_task(stop.wait())
    try:
        await asyncio.wait((starting, stopping), return_when=asyncio.FIRST_COMPLETED)
        if not starting.done():
            starting.cancel()
            await asyncio.gather(starting, return_exceptions=True)
            return 0
        await starting
        tasks: set[asyncio.Task[None]] = set()

        def hang_up() -> None:
            task = loop.create_task(_reload(daemon))
            tasks.add(task)
            task.add_done_callback(tasks.discard)

        loop.add_signal_handler(signal.SIGHUP, hang_up)
        failing = asyncio.create_task(daemon.driver.failed.wait())
        await asyncio.wait((stopping, failing), return_when=asyncio.FIRST_COMPLETED)
        failing.cancel()
        if daemon.driver.failed.is_set():
            raise DlschedError(daemon.driver.failure)
        return 0
    finally:
        stopping.cancel()
        with contextlib.suppress(Exception):
            await daemon.stop()


async def _reload(daemon: Daemon) -> None:
    try:
        await daemon.reload("SIGHUP")
    except DlschedError as error:
        log.error("event=reload-refused why=%r", str(error))


if __name__ == "__main__":
    sys.exit(main())
