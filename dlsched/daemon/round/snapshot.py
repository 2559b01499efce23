"""A live cluster at one moment, as plain columns: the input of a round.

A snapshot is everything that a decision depends on, including the state of the policy. So it can be
sent to another process, kept in a file, and decided again years later with the same bytes.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dlsched.core.arrays import Floats, Ints
from dlsched.core.cluster.reservations import Reservation
from dlsched.core.cluster.site_rules import Account, PriorityClass, SiteRules
from dlsched.core.context import Mode
from dlsched.core.errors import BadInput
from dlsched.core.sharing.decayed_usage import Owner
from dlsched.daemon.round.codec import decode, encode
from dlsched.daemon.round.parts import RoundSettings

FORMAT = 1
# fields that have a form of their own among the bytes
_BY_HAND = (
    "settings",
    "held",
    "homes",
    "quotas",
    "rules",
    "reservations",
    "columns",
    "names",
    "shapes",
)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Held:
    """Rows and their GPUs: one entry for each GPU, those of a row together, in rank order."""

    row: Ints = field(default_factory=lambda: np.zeros(0, np.int64))
    node: Ints = field(default_factory=lambda: np.zeros(0, np.int64))
    gpu: Ints = field(default_factory=lambda: np.zeros(0, np.int64))  # index in its node


@dataclass(frozen=True, slots=True, kw_only=True)
class Quota:
    """A virtual cluster that has a number of GPUs."""

    name: str
    gpus: int
    guaranteed: int
    borrow: bool
    parent: str = ""  # the virtual cluster that it is a part of


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class LiveSnapshot:
    """The input of a round.

    Attributes:
        number: the round's number.
        mode: full, or fill.
        now: seconds of the policy's clock.
        settings: parts, options and costs.
        columns: arrays with one entry for each row, in the order of job ids; `status` as in core.
        names: what the codes of users, accounts and virtual clusters stand for.
        shapes: GPUs on each node, by row, of jobs that ask for a layout.
        whole_nodes: rows that share their nodes with no other job.
        gpus_by_type: how many GPUs of each type on every node, by row, of jobs that say it.
        held: rows and the GPUs that they hold or have claims on.
        homes: suspended rows and the GPUs on which they can resume.
        finished: rows that have completed, in order.
        cluster: the nodes, encoded (see `RoundState.encoded_cluster`).
        service: per node 2 (takes work), 1 (keeps what it has), 0 (is away).
        closed: GPUs that no job may get, as (node, GPU) pairs of indices.
        pools: per pool its key and its nodes as a bit array.
        quotas: virtual clusters with quotas.
        rules: accounts, priority classes, and how usage fades.
        reservations: nodes that are kept.
        owners: user, account and virtual cluster of each owner of jobs.
        used: what each owner has used, in GPU-seconds as they count now.
        cells: the cells of machines and virtual clusters, see `CellRules`.
        speeds: measured speeds, as columns (see `SpeedTable.columns`); empty when there are none.
        trainings: what elastic jobs have reported, as columns (see `TrainingProfiles.columns`);
            empty when none has.
        host: what is known of speeds by processors and memory (see `host_columns`); empty when
            nothing is.
        later: jobs that no round sees yet, for those who run a snapshot on (see
            `later_arrivals`); empty in what rounds decide on.
        state: what the last decision left behind; empty before the first.
    """

    number: int
    mode: Mode
    now: float
    settings: RoundSettings
    columns: Mapping[str, NDArray[Any]]
    names: Mapping[str, tuple[str, ...]]
    shapes: Mapping[int, tuple[int, ...]]
    whole_nodes: tuple[int, ...]
    held: Held
    homes: Held
    finished: Ints
    cluster: bytes
    service: NDArray[np.int8]
    closed: Ints
    pools: tuple[tuple[str, bytes], ...]
    gpus_by_type: Mapping[int, str] = field(default_factory=dict)
    quotas: tuple[Quota, ...] = ()
    rules: SiteRules = field(default_factory=SiteRules)
    reservations: tuple[Reservation, ...] = ()
    owners: tuple[Owner, ...] = ()
    used: Floats = field(default_factory=lambda: np.zeros(0))
    cells: bytes = b""
    speeds: Mapping[str, Any] = field(default_factory=dict)
    trainings: Mapping[str, Any] = field(default_factory=dict)
    host: Mapping[str, Any] = field(default_factory=dict)
    later: Mapping[str, Any] = field(default_factory=dict)
    state: bytes = b""

    def __len__(self) -> int:
        return len(self.columns["job"])

    def to_bytes(self) -> bytes:
        """The snapshot as bytes; equal snapshots give equal bytes."""
        plain: dict[str, Any] = {
            name: getattr(self, name) for name in self.__slots__ if name not in _BY_HAND
        }
        plain["settings"] = asdict(self.settings)
        plain["columns"] = dict(self.columns)
        plain["names"] = dict(self.names)
        plain["shapes"] = _flattened(self.shapes)
        for name, held in (("held", self.held), ("homes", self.homes)):
            plain[name] = [held.row, held.node, held.gpu]
        plain["quotas"] = [asdict(quota) for quota in self.quotas]
        plain["rules"] = asdict(self.rules)
        plain["reservations"] = [asdict(each) for each in self.reservations]
        return encode({"format": FORMAT, **plain})

    @classmethod
    def from_bytes(cls, data: bytes) -> LiveSnapshot:
        """The snapshot of `to_bytes`.

        Raises:
            BadInput: they are not of this form.
        """
        plain = decode(data)
        if not isinstance(plain, dict) or plain.pop("format", None) != FORMAT:
            raise BadInput(f"not a live snapshot of format {FORMAT}")
        try:
            for name in ("held", "homes"):
                row, node, gpu = plain[name]
                plain[name] = Held(row=row, node=node, gpu=gpu)
            plain["shapes"] = _gathered(*plain["shapes"])
            plain["settings"] = RoundSettings(**plain["settings"])
            plain["quotas"] = tuple(Quota(**quota) for quota in plain["quotas"])
            plain["rules"] = _rules(plain.get("rules", {}))
            kept = plain.get("reservations", ())
            plain["reservations"] = tuple(Reservation(**each) for each in kept)
            return cls(**plain)
        except (TypeError, KeyError, ValueError) as error:
            raise BadInput(f"a damaged live snapshot: {error}") from None

    def under(self, settings: RoundSettings) -> LiveSnapshot:
        """The same moment under other parts, which know nothing yet."""
        return replace(self, settings=settings, state=b"")


def _rules(plain: Mapping[str, Any]) -> SiteRules:
    kinds: dict[str, type[Any]] = {"accounts": Account, "classes": PriorityClass}
    lists = {k: tuple(kind(**each) for each in plain.get(k, ())) for k, kind in kinds.items()}
    return SiteRules(**{**plain, **lists})


def _flattened(shapes: Mapping[int, tuple[int, ...]]) -> list[Ints]:
    """Rows, how many nodes each has, and the GPUs of all nodes one after the other."""
    return [
        np.fromiter(shapes, np.int64, len(shapes)),
        np.fromiter(map(len, shapes.values()), np.int64, len(shapes)),
        np.array([gpus for shape in shapes.values() for gpus in shape], np.int64),
    ]


def _gathered(rows: Ints, nodes: Ints, gpus: Ints) -> dict[int, tuple[int, ...]]:
    ends = np.cumsum(nodes).tolist()
    flat, begins = gpus.tolist(), [0, *ends]
    return {row: tuple(flat[a:b]) for row, a, b in zip(rows.tolist(), begins, ends, strict=False)}


def read_snapshot(file: str) -> LiveSnapshot:
    """The snapshot of a file.

    Raises:
        BadInput: it cannot be read, or is no snapshot; names the file.
    """
    try:
        return LiveSnapshot.from_bytes(Path(file).read_bytes())
    except OSError as error:
        raise BadInput(f"{file}: can't be read ({error.strerror})") from None
    except BadInput as error:
        raise BadInput(f"{file}: {error}") from None
