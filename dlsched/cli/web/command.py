"""`dlsched web`: the cluster as a page, for the user who calls it."""

from __future__ import annotations

import contextlib
from typing import Annotated

import typer

from dlsched.cli.daemon_options import DaemonOptions
from dlsched.cli.option_groups import option


def web_command(
    *,
    listen: Annotated[
        str, option("--listen HOST:PORT", "Loopback; port 0 is any free one.")
    ] = "127.0.0.1:0",
    daemon: DaemonOptions,
) -> None:
    """Serve a page with queue, nodes, predicted schedule and past days, until Ctrl-C.

    The address that is printed has a key, so that the page is yours alone; it asks the daemon with
    your rights, and changes nothing.
    """
    from dlsched.cli.web.page_server import PageServer  # noqa: PLC0415
    from dlsched.cli.web.viewers import ByKey  # noqa: PLC0415
    from dlsched.client.daemon_address import find_daemon  # noqa: PLC0415
    from dlsched.rpc.endpoint import parse_endpoint  # noqa: PLC0415

    address = find_daemon(
        daemon.daemon, insecure_loopback=daemon.insecure, wait=daemon.wait_for_daemon
    )
    with daemon.client() as cluster:
        cluster.status()  # says in one line what is wrong
    viewers = ByKey(address)
    server = PageServer(parse_endpoint(listen), viewers)
    typer.echo(f"{server.address}?key={viewers.key}")
    try:
        with contextlib.suppress(KeyboardInterrupt):
            server.serve()
    finally:
        server.close()
