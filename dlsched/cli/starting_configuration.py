"""The configuration files that `dlsched admin init` writes, with what can be said in them."""

from __future__ import annotations

__all__ = ["agent_toml", "daemon_toml", "operator_toml"]


def _quoted(text: str) -> str:
    """A TOML string: JSON's rules are within TOML's."""
    import json  # noqa: PLC0415  # only here

    return json.dumps(text, ensure_ascii=False)


def daemon_toml(*, cluster: str, database: str, listen: list[str], tls: str) -> str:
    """Of the daemon."""
    addresses = ", ".join(map(_quoted, listen))
    return f"""\
# dlsched daemon --config THIS FILE. Every key has a default; an unknown one is refused.

[cluster]
name = {_quoted(cluster)}
# What jobs do on a node that nobody is heard of any more: "hold" runs on, "lease" freezes.
fence = "hold"

[daemon]
# SQLite for one daemon; for a standby: postgresql+psycopg://dlsched@HOST/dlsched
database = {_quoted(database)}
# unix:/path     users of this machine, by the kernel's word (with login.sock beside it)
# HOST:PORT      nodes and operators, by their certificates
# users:HOST:PORT  users at a distance, by tokens (dlsched admin token create)
listen = [{addresses}]
# Prometheus; empty: none.
metrics = "127.0.0.1:7820"

[round]
interval_s = 60
policy = "fifo"
# options = ["KEY=VALUE"]

[trust]
mode = "tls"
folder = {_quoted(tls)}
denied = {_quoted(f"{tls}/denied")}
# Users who may do everything, beside root and the daemon's own user.
operators = ["root"]

# Who may join, when only these may; without any [[nodes]], whoever has a node's certificate.
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


def agent_toml(*, name: str, daemon: str, tls: str) -> str:
    """Of one node's agent."""
    return f"""\
# dlsched agent --config THIS FILE. An unknown key is refused.

name = {_quoted(name)}
daemon = [{_quoted(daemon)}]
listen = "0.0.0.0:7818"
# How the daemon and other nodes reach this agent; default: this machine's name.
# address = "{name}.example.org:7818"
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
    """Of an operator's client."""
    return f"""\
# Goes to ~/.config/dlsched/config.toml on the operator's machine.
daemon = {_quoted(daemon)}
ca = {_quoted(f"{tls}/ca.crt")}
certificate = {_quoted(f"{tls}/operator.crt")}
key = {_quoted(f"{tls}/operator.key")}
"""
