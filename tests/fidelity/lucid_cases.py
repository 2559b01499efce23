"""The recorded cases of Lucid's simulator: what each golden file was made with."""

from __future__ import annotations

import csv
import gzip
import os
from pathlib import Path

from dlsched.core.cluster.description import Cluster, Node, VirtualCluster, parse_cluster_spec

ROOT = Path(os.environ.get("DLSCHED_DATA", Path(__file__).parents[3] / "shared" / "data"))
FOLDER = ROOT / "lucid"
SEMANTICS = {"srtf": "lucid", "tiresias": "lucid-tiresias", "lucid": "lucid"}
VENUS = {"vc8Gr": 7, "vcefl": 9, "vcYVn": 11}  # nodes, those that profile included
LENDER = "vcYVn"


SMALL, LARGE = 6, 32  # nodes of the Philly cases: `small`, and those of whole weeks


def cases() -> list[tuple[str, str]]:
    """Every (case, policy) with a golden file."""
    found = []
    for path in sorted(FOLDER.glob("*_golden.csv.gz")):
        case, _, policy = path.name.removesuffix("_golden.csv.gz").rpartition("_")
        if (FOLDER / f"{case}_jobs.csv.gz").exists():
            found.append((case, policy))
    return found


def golden(case: str, policy: str) -> dict[str, dict[str, str]]:
    """The rows of a golden file by job."""
    with gzip.open(FOLDER / f"{case}_{policy}_golden.csv.gz", "rt") as file:
        return {row["job_id"]: row for row in csv.DictReader(file)}


def jobs_of(case: str) -> Path:
    """The jobs of a case."""
    return FOLDER / f"{case}_jobs.csv.gz"


def is_venus(case: str) -> bool:
    """Has a case the three virtual clusters of Venus?"""
    with gzip.open(jobs_of(case), "rt") as file:
        return next(csv.DictReader(file))["vc"] in VENUS


def cluster_of(case: str, *, profiles: bool = False) -> Cluster:
    """The nodes of a case, of 8 GPUs each; where some `profiles`, these are the last two."""
    if not is_venus(case):
        return parse_cluster_spec(f"{SMALL if case == 'small' else LARGE}x8")
    own = {vc: count - (profiles and vc != LENDER) for vc, count in VENUS.items()}
    names = {vc: tuple(f"{vc}-{number:02}" for number in range(own[vc])) for vc in own}
    profiling = ["profile-0", "profile-1"] if profiles else []
    owned = [name for each in names.values() for name in each]
    return Cluster(
        [Node(name=name, gpus=8) for name in (*owned, *profiling)],
        [VirtualCluster(name=vc, nodes=each) for vc, each in names.items()],
    )
