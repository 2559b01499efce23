"""The configuration files that `dlsched admin init` writes."""

from __future__ import annotations

from dlsched.system import ports


def _quoted(text: str) -> str:
    """Return a TOML string: every JSON string is one."""
    import json  # noqa: PLC0415  # only here

    return json.dumps(text, ensure_ascii=False)


def daemon_toml(*, cluster: str, database: str, listen: list[str], tls: str) -> str:
    """Return the daemon's configuration.

    Args:
        cluster: name of the cluster.
        database: URL of the database.
        listen: addresses to listen on.
        tls: folder of the certificates.
    """
    addresses = ", ".join(map(_quoted, listen))
    return f"""\
# dlsched daemon --config THIS FILE. Every key has a default; an unknown one is refused.

[cluster]
name = {_quoted(cluster)}
# Jobs on a node that the daemon cannot reach: "hold" continues them, "lease" freezes them.
fence = "lease"

[daemon]
# SQLite for one daemon; for a standby: postgresql+psycopg://dlsched@HOST/dlsched
database = {_quoted(database)}
# unix:/path     users of this machine, known by the kernel (with login.sock in the same folder)
# HOST:PORT      nodes and operators, by their certificates
# users:HOST:PORT  users on other machines, by tokens (dlsched admin token create)
listen = [{addresses}]
# Prometheus; empty: none.
metrics = "127.0.0.1:{ports.DAEMON_METRICS}"
# The web page; viewers show tokens, so it needs a users: address above. Empty: none.
# web = "127.0.0.1:{ports.WEB}"

[round]
interval_s = 60
policy = "fifo"
# options = ["KEY=VALUE"]

[trust]
mode = "tls"
folder = {_quoted(tls)}
denied = {_quoted(f"{tls}/denied")}
# Users who may do everything, as root and the daemon's own user.
operators = ["root"]

# Nodes that may join; without any [[nodes]], every node that has a certificate may.
# [[nodes]]
# name = "n[1-4]"
# gpus = 8
# gpu_type = "v100"

# [[partitions]]
# name = "short"
# nodes = "n[1-2]"
# max_time_s = 3600

# [[vcs]]
# name = "vision"
# gpus = 16
"""


def agent_toml(*, name: str, daemon: str, listen: str, tls: str) -> str:
    """Return the configuration of a node's agent."""
    return f"""\
# dlsched agent --config THIS FILE. An unknown key is refused.

name = {_quoted(name)}
daemon = [{_quoted(daemon)}]
listen = {_quoted(listen)}
# How the daemon and other nodes reach this agent; default: this machine's name.
# address = "{name}.example.org:{ports.AGENT}"
# state_dir = "/var/lib/dlsched/agent"
# Refuse jobs of users with lower ids.
# minimum_uid = 1000

[tls]
ca = {_quoted(f"{tls}/ca.crt")}
certificate = {_quoted(f"{tls}/node.crt")}
key = {_quoted(f"{tls}/node.key")}
# A copy of the daemon's list of denied certificates.
# denied = {_quoted(f"{tls}/denied")}
"""


def operator_toml(*, daemon: str, tls: str) -> str:
    """Return the configuration of an operator's client."""
    return f"""\
# Goes to ~/.config/dlsched/config.toml on the operator's machine.
daemon = {_quoted(daemon)}
ca = {_quoted(f"{tls}/ca.crt")}
certificate = {_quoted(f"{tls}/operator.crt")}
key = {_quoted(f"{tls}/operator.key")}
"""
