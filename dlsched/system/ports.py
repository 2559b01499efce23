"""The ports of a cluster, one meaning each, so that every service fits on one machine."""

from __future__ import annotations

DAEMON = 7817  # nodes, operators, users
AGENT = 7818  # the daemon, other agents
DAEMON_METRICS = 7819
AGENT_METRICS = 7820  # where a site wants them
WEB = 7821  # the web page, likewise
REMOTE_USERS = 7822  # by tokens, likewise

_ALL_HOSTS = ("0.0.0.0", "::", "*", "")


def clash(addresses: dict[str, tuple[str, int]]) -> str:
    """Two addresses that one machine cannot listen on at once, in words; empty: none.

    Args:
        addresses: host and port, by what names them; port 0 stands for any free one.
    """
    seen: list[tuple[str, str, int]] = []
    for name, (host, port) in addresses.items():
        for other, its, same in seen:
            if port and port == same and (host == its or {host, its} & set(_ALL_HOSTS)):
                return f"{other} and {name} both listen on port {port}"
        seen.append((name, host, port))
    return ""
