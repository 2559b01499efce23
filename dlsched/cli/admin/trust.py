"""`dlsched admin init`, `ca` and `token`: certificates and tokens.

`init` and `ca` work on a folder and need no daemon; `token` asks the daemon.
"""

from __future__ import annotations

import os
import pwd
import shutil
import socket
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, TextIO

import typer

from dlsched.cli.daemon_options import DaemonOptions
from dlsched.cli.option_groups import option
from dlsched.cli.output.output_options import AsJson
from dlsched.cli.output.times import local_text, utc_text
from dlsched.cli.typer_commands import CommandGroup
from dlsched.core.errors import BadInput, DlschedError
from dlsched.system import ports

if TYPE_CHECKING:
    from dlsched.rpc.certificate_folder import CertificateFolder, Listed
    from dlsched.rpc.identity import Role
    from dlsched.rpc.v1.control_pb2 import TokenView

DAY_S = 86400.0
ETC = "/etc/dlsched"
FolderOption = Annotated[str, option("--folder DIR", "The folder of `dlsched admin init`.")]
DaysOption = Annotated[float, option("--days N", "Lifetime.", min=0.001)]


def init_command(
    folder: Annotated[str, typer.Argument(metavar="[DIR]", help="A new or empty folder.")] = ETC,
    cluster: Annotated[str, option("--cluster NAME", "Name of the cluster.")] = ("cluster"),
    node: Annotated[list[str] | None, option("--node HOSTS", "n1 or n[1-4]; repeatable.")] = None,
    operator: Annotated[list[str] | None, option("--operator NAME", "Repeatable.")] = None,
    daemon: Annotated[
        str | None, option("--daemon-host HOST", "The daemon's host, as nodes reach it.")
    ] = None,
    port: Annotated[int, option("--port", "The daemon's port.", min=1, max=65535)] = ports.DAEMON,
    socket_path: Annotated[
        str, option("--socket PATH", "Socket for users of the daemon's machine.")
    ] = "/run/dlsched/daemon.sock",
    database: Annotated[str, option("--database URL", "Of the daemon.")] = (
        "sqlite:////var/lib/dlsched/daemon/dlsched.db"
    ),
    in_place: Annotated[
        bool, option("--in-place", "Nodes read their files here, not in /etc/dlsched.")
    ] = False,
    user: Annotated[
        str, option("--user NAME", "User of the daemon; as root: owner of its key.")
    ] = "dlsched",
) -> None:
    """Make a cluster's certificates and configuration files in a folder."""
    from dlsched.cli.admin.starting_configuration import (  # noqa: PLC0415
        agent_toml,
        daemon_toml,
        operator_toml,
    )
    from dlsched.rpc.certificate_folder import CertificateFolder, write_file  # noqa: PLC0415
    from dlsched.rpc.endpoint import endpoint_at, parse_endpoint  # noqa: PLC0415
    from dlsched.rpc.identity import DAEMON, Role  # noqa: PLC0415

    here, now = Path(os.path.abspath(folder)), time.time()
    roles = [DAEMON, *(Role("node", name) for name in _expanded(node)), *_operators(operator)]
    parse_endpoint(f"unix:{socket_path}")
    reached = endpoint_at(daemon or socket.gethostname(), port)
    target = str(reached)
    every = "[::]" if ":" in reached.host else "0.0.0.0"  # `[::]` takes IPv4 too
    _check_new(here)
    made = CertificateFolder(here)
    try:
        made.create(cluster, now=now)
        for role in roles:
            made.issue(role, [reached.host] if role == DAEMON else [], now=now)
            home = made.home(role)
            tls = f"{home}/tls" if in_place or role.kind == "operator" else f"{ETC}/tls"
            if role == DAEMON:
                listen = [f"unix:{socket_path}", f"{every}:{port}"]
                text = daemon_toml(
                    cluster=cluster, database=database, listen=listen, tls=f"{here}/tls"
                )
                write_file(home / "dlsched.toml", text.encode(), mode=0o600)
            elif role.kind == "node":
                text = agent_toml(
                    name=role.name, daemon=target, listen=f"{every}:{ports.AGENT}", tls=tls
                )
                write_file(home / "agent.toml", text.encode(), mode=0o600)
            else:
                text = operator_toml(daemon=target, tls=tls)
                write_file(home / "config.toml", text.encode(), mode=0o600)
        for file in (made.files(DAEMON).key, made.folder / "dlsched.toml"):
            _give(file, user)
    except BaseException:
        for part in ("ca", "tls", "nodes", "operators", "dlsched.toml"):
            _remove(here / part)
        raise
    for line in _next_steps(made, roles, in_place=in_place):
        typer.echo(line)


def _expanded(hosts: list[str] | None) -> list[str]:
    from dlsched.core.cluster.host_lists import node_names  # noqa: PLC0415

    names = [name for word in hosts or [] for name in node_names("--node", [word])]
    for name in names:
        if names.count(name) > 1:
            raise BadInput(f"--node: {name} is named twice")
    return names


def _operators(names: list[str] | None) -> list[Role]:
    from dlsched.rpc.identity import Role  # noqa: PLC0415

    return [Role("operator", name) for name in dict.fromkeys(names or ["admin"])]


def _check_new(folder: Path) -> None:
    for part in ("ca", "tls", "nodes", "operators", "dlsched.toml"):
        if (folder / part).exists():
            raise BadInput(f"{folder / part} exists: nothing was changed")


def _remove(path: Path) -> None:
    if path.is_dir():
        shutil.rmtree(path, ignore_errors=True)
    else:
        path.unlink(missing_ok=True)


def _give(file: Path, user: str) -> None:
    """Give a file that only its owner can read to the user of the daemon."""
    if os.geteuid() != 0:
        return
    try:
        entry = pwd.getpwnam(user)
    except KeyError:
        return
    os.chown(file, entry.pw_uid, entry.pw_gid)


def _next_steps(made: CertificateFolder, roles: list[Role], *, in_place: bool) -> list[str]:
    nodes = [role for role in roles if role.kind == "node"]
    lines = [f"daemon     dlsched daemon --config {made.folder}/dlsched.toml"]
    for role in nodes:
        home = made.home(role)
        if in_place:
            lines.append(f"{role.name:<9}  dlsched agent --config {home}/agent.toml")
        else:
            lines.append(f"{role.name:<9}  copy {home}/ to {ETC}/ on {role.name}")
    lines += [
        f"operator   {made.home(role)}/config.toml"
        for role in roles
        if role.name and role not in nodes
    ]
    lines.append(
        f"authority  {made.folder}/ca: ca.key can sign for the whole cluster; keep it secret"
    )
    return lines


# -- ca -------------------------------------------------------------------------------------------

ca_app = CommandGroup("Certificates: issue, renew, deny, show.")


def _opened(folder: str) -> CertificateFolder:
    from dlsched.rpc.certificate_folder import CertificateFolder  # noqa: PLC0415

    return CertificateFolder(Path(os.path.abspath(folder)))


def _role(text: str) -> Role:
    from dlsched.rpc.identity import SCHEME, Role  # noqa: PLC0415

    try:
        plain = text.removeprefix(SCHEME)
        return Role.parse(SCHEME + (plain.lower() if plain.startswith("node/") else plain))
    except BadInput as error:
        if "/" in text and "is not a role" not in str(error):
            raise
        raise BadInput(f"{text!r}: daemon, node/NAME, operator/NAME or login/NAME") from None


@ca_app.command("issue")
def ca_issue(
    role: Annotated[str, typer.Argument(metavar="ROLE", help="node/n3, operator/ann, login/l1.")],
    address: Annotated[list[str] | None, option("--address HOST", "Further host names.")] = None,
    days: DaysOption = 365,
    folder: FolderOption = ETC,
) -> None:
    """Make a certificate for a role that has none."""
    made = _opened(folder)
    files = made.issue(_role(role), address or [], now=time.time(), life_s=days * DAY_S)
    typer.echo(str(files.certificate.parent))


@ca_app.command("renew")
def ca_renew(
    roles: Annotated[
        list[str] | None, typer.Argument(metavar="[ROLE…]", help="[default: those that are due]")
    ] = None,
    days: DaysOption = 365,
    folder: FolderOption = ETC,
) -> None:
    """Replace certificates: those named, or those that are due.

    A certificate is due when two thirds of its lifetime are over.
    """
    made, now = _opened(folder), time.time()
    wanted = [_role(text) for text in roles or []]
    if not roles:
        due = {"renew", "expires", "expired"}
        wanted = [each.certificate.role for each in made.listed(now) if each.state in due]
    for role in wanted:
        files = made.renew(role, now=now, life_s=days * DAY_S)
        typer.echo(f"{role}: {files.certificate.parent}")
    if not wanted:
        typer.echo("none is due")


@ca_app.command("deny")
def ca_deny(
    what: Annotated[str, typer.Argument(metavar="ROLE|FILE|SERIAL", help="See `ca show`.")],
    reason: Annotated[str, option("--reason TEXT", "Stored with it.")] = "",
    folder: FolderOption = ETC,
) -> None:
    """Refuse a certificate from now on, on open connections too."""
    made = _opened(folder)
    found = made.deny(what, reason, now=time.time())
    typer.echo(f"denied {found[0].role if found else what}: {made.deny_list}")
    if found and found[0].role.kind == "daemon":
        typer.echo(
            "agents do not read that list: after theft of the daemon's key, make a new authority",
            err=True,
        )


@ca_app.command("show")
def ca_show(folder: FolderOption = ETC, as_json: AsJson = False) -> None:
    """List certificates, the first to expire at the top."""
    from dlsched.cli.output.listing import Column, print_listing  # noqa: PLC0415
    from dlsched.cli.output.terminal import terminal  # noqa: PLC0415

    made, now = _opened(folder), time.time()
    authority, found = made.authority(), made.listed(now)
    if as_json:
        from dlsched.cli.output.json_output import print_json  # noqa: PLC0415

        rows = [
            {
                "role": str(each.certificate.role),
                "state": each.state,
                "ends_at": utc_text(each.certificate.ends_at),
                "serial": each.certificate.serial_text,
                "path": str(each.path),
            }
            for each in found
        ]
        print_json(
            "dlsched.certificates/1",
            authority={"ends_at": utc_text(authority.ends_at)},
            certificates=rows,
        )
        return
    columns: list[Column[Listed]] = [
        Column("role", "ROLE", "", lambda each: str(each.certificate.role)),
        Column("state", "STATE", "", lambda each: each.state),
        Column("ends", "ENDS", "", lambda each: local_text(each.certificate.ends_at)),
        Column("serial", "SERIAL", "", lambda each: each.certificate.serial_text),
    ]
    print_listing(columns, found, terminal())
    typer.echo(f"the authority ends {local_text(authority.ends_at)}")


# -- tokens ---------------------------------------------------------------------------------------

token_app = CommandGroup("Tokens for users on other machines.")


@token_app.command("create")
def token_create(
    user: Annotated[str, option("--user NAME", "For this user (operators only).")] = "",
    days: DaysOption = 30,
    comment: Annotated[str, option("--comment TEXT", "Shown in lists.")] = "",
    output: Annotated[
        str, option("--output -o FILE", "A new file, readable only by its owner.")
    ] = "",
    *,
    daemon: DaemonOptions,
) -> None:
    """Make a token and print it; it is not shown again."""
    with _new_file(output) as file, daemon.client() as cluster:
        reply = cluster.create_token(user, days * DAY_S, comment)
        print(reply.token, file=file)
    view: TokenView = reply.view
    told = f"token {view.token_id} of {view.user}, until {local_text(view.expires_at)}"
    typer.echo(f"{output}: {told}" if output else told, err=not output)


@contextmanager
def _new_file(path: str) -> Iterator[TextIO]:
    """Yield a new file for its owner only, or standard output; remove the file after an error."""
    if not path:
        yield sys.stdout
        return
    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600)
    except OSError as error:
        raise DlschedError(f"{path}: cannot be written ({error.strerror})") from None
    try:
        with open(descriptor, "w") as file:
            yield file
    except BaseException:
        os.unlink(path)
        raise


@token_app.command("list")
def token_list(
    user: Annotated[str, option("--user NAME", "Of this user (operators only).")] = "",
    all_users: Annotated[bool, option("--all", "Of all users (operators only).")] = False,
    as_json: AsJson = False,
    *,
    daemon: DaemonOptions,
) -> None:
    """List tokens by their ids; the tokens themselves are not stored."""
    from dlsched.cli.output.listing import Column, print_listing  # noqa: PLC0415
    from dlsched.cli.output.terminal import terminal  # noqa: PLC0415

    with daemon.client() as cluster:
        found: list[TokenView] = cluster.list_tokens(user, all_users=all_users)
    now = time.time()
    if as_json:
        from dlsched.cli.output.json_output import print_json  # noqa: PLC0415

        print_json("dlsched.tokens/1", tokens=[_token_object(each, now) for each in found])
        return
    columns: list[Column[TokenView]] = [
        Column("token", "TOKEN", "", lambda each: each.token_id),
        Column("user", "USER", "", lambda each: each.user),
        Column("state", "STATE", "", lambda each: _token_state(each, now)),
        Column("ends", "ENDS", "", lambda each: local_text(each.expires_at)),
        Column("comment", "COMMENT", "", lambda each: each.comment, least=8),
    ]
    print_listing(columns, found, terminal())


@token_app.command("revoke")
def token_revoke(
    token_id: Annotated[str, typer.Argument(metavar="ID", help="See `token list`.")],
    *,
    daemon: DaemonOptions,
) -> None:
    """End a token at once."""
    with daemon.client() as cluster:
        view: TokenView = cluster.revoke_token(token_id)
    typer.echo(f"revoked token {view.token_id} of {view.user}")


def _token_state(view: TokenView, now: float) -> str:
    if view.HasField("revoked_at"):
        return "revoked"
    return "expired" if now >= view.expires_at else "good"


def _token_object(view: TokenView, now: float) -> dict[str, str | None]:
    return {
        "token_id": view.token_id,
        "user": view.user,
        "state": _token_state(view, now),
        "created_at": utc_text(view.created_at),
        "expires_at": utc_text(view.expires_at),
        "revoked_at": utc_text(view.revoked_at) if view.HasField("revoked_at") else None,
        "comment": view.comment,
    }
