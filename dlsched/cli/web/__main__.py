"""`python -m dlsched.cli.web`: the page of a daemon, which starts and ends this process."""

from __future__ import annotations

import argparse
import sys
import threading
from pathlib import Path

from dlsched.cli.web.page_server import PageServer
from dlsched.cli.web.viewers import ByToken, EveryViewer, Viewers
from dlsched.client.daemon_address import DaemonAddress
from dlsched.core.errors import DlschedError
from dlsched.rpc.endpoint import parse_endpoint
from dlsched.rpc.tls import KeyFiles


def main(argv: list[str] | None = None) -> int:
    """Serve until standard input is closed, which the daemon holds; returns the exit code.

    The first line on standard output is the page's address.
    """
    parser = argparse.ArgumentParser(prog="python -m dlsched.cli.web")
    parser.add_argument("--listen", required=True, help="HOST:PORT of the page")
    parser.add_argument("--daemon", required=True, help="address where the daemon takes tokens")
    parser.add_argument("--trust", type=Path, help="folder of ca.crt, daemon.crt and daemon.key")
    parser.add_argument("--insecure-loopback", action="store_true")
    given = parser.parse_args(argv)
    try:
        server = PageServer(
            parse_endpoint(given.listen),
            _viewers(given.daemon, given.trust),
            tls=None if given.trust is None else KeyFiles.of(given.trust, "daemon"),
        )
    except DlschedError as error:
        print(f"dlsched: {error}", file=sys.stderr)
        return error.exit_code
    print(server.address, flush=True)
    threading.Thread(target=server.serve, daemon=True).start()
    sys.stdin.buffer.read()
    server.close()
    return 0


def _viewers(daemon: str, trust: Path | None) -> Viewers:
    if trust is None:
        return EveryViewer(DaemonAddress(daemon=daemon, insecure_loopback=True, wait_s=2.0))
    return ByToken(DaemonAddress(daemon=daemon, ca=str(trust / "ca.crt"), wait_s=2.0))


if __name__ == "__main__":
    sys.exit(main())
