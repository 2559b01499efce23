"""Clusters as users describe them: a spec such as `16x8:v100`, or a TOML file."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from dlsched.core.cluster.description import Cluster, cluster_from_tables, parse_cluster_spec
from dlsched.core.cluster.host_lists import expand
from dlsched.core.errors import BadInput, not_known
from simulate.document_files import read_toml

_PARTITION_KEYS = ("name", "nodes", "max_time")


def open_cluster(text: str) -> Cluster:
    """Make the cluster of `--cluster`: a file when the text ends in .toml or names one.

    Raises:
        BadInput: the file cannot be read or the spec is malformed.
    """
    # unlike Path's methods, these raise no error for a spec that is too long for a file's name
    if text.endswith(".toml") or os.path.isfile(text):
        return read_cluster_file(Path(text))
    if not text or os.path.isdir(text):
        raise BadInput(f"--cluster {text}: a folder; give a TOML file, or a spec like 16x8:v100")
    if "/" in text:
        raise BadInput(f"--cluster {text}: no such file")
    return parse_cluster_spec(text)


def read_cluster_file(path: Path) -> Cluster:
    """Read `[[nodes]]`, `[[vcs]]`, `[[partitions]]` and `[topology]`.

    Partitions are checked, but a replay does not use them. Of the topology it uses only what the
    nodes say of their switch, rack and domain.

    Raises:
        BadInput: one line with the file, and the line number where the TOML itself is broken.
    """
    document = read_toml(path)
    for table in ("nodes", "vcs", "partitions"):
        entries = document.get(table, [])
        if not isinstance(entries, list) or not all(isinstance(each, dict) for each in entries):
            raise BadInput(f"{path}: {table} must be given as [[{table}]], a table for each")
    cluster = cluster_from_tables(document, where=str(path))
    _check_partitions(document.get("partitions", []), cluster, path)
    return cluster


def _check_partitions(entries: Sequence[Mapping[str, Any]], cluster: Cluster, path: Path) -> None:
    for number, entry in enumerate(entries, 1):
        where = f"{path}: [[partitions]] {number}"
        for key in entry:
            if key not in _PARTITION_KEYS:
                raise not_known(f"{where}: key", key, _PARTITION_KEYS)
        if not entry.get("name"):
            raise BadInput(f"{where}: name is missing")
        nodes = str(entry.get("nodes", ""))
        for host in expand(f"{where}: nodes", nodes) if nodes else ():
            if host not in cluster.names:
                raise BadInput(f"{where}: node {host} does not exist")
