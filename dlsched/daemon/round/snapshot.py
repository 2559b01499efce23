"""A live cluster at one moment, as plain columns: the input of a round.

A snapshot is everything that a decision depends on, including the state of the policy. So it can be
sent to another process, kept in a file, and decided again years later with the same bytes.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dlsched.core.arrays import Floats, Ints
from dlsched.core.cluster.gpus_by_type import by_type_of, by_type_text
from dlsched.core.cluster.occupancy import Placement
from dlsched.core.cluster.reservations import Reservation
from dlsched.core.cluster.site_rules import SiteRules
from dlsched.core.context import Mode
from dlsched.core.errors import BadInput
from dlsched.core.sharing.decayed_usage import Owner
from dlsched.core.sharing.gpu_limits import RowLimits
from dlsched.daemon.live.job_columns import SeenJobs
from dlsched.daemon.round.codec import decode, encode
from dlsched.daemon.round.parts import RoundSettings
from dlsched.tenants.fields import Account, PriorityClass

FORMAT = 1
MOST_BITS = 62  # GPUs of a node whose bits fit one number of numpy's
# fields that have a form of their own among the bytes
_BY_HAND = (
    "settings",
    "held",
    "quotas",
    "rules",
    "reservations",
    "table",
)


@dataclass(frozen=True, slots=True, eq=False)
class Held:
    """Rows and their GPUs: one entry for each GPU, those of a row together, in rank order."""

    row: Ints = field(default_factory=lambda: np.zeros(0, np.int64))
    node: Ints = field(default_factory=lambda: np.zeros(0, np.int64))
    gpu: Ints = field(default_factory=lambda: np.zeros(0, np.int64))  # index in its node

    @classmethod
    def of(cls, placements: Iterable[tuple[int, Placement]]) -> Held:
        """Rows and where they are."""
        rows: list[int] = []
        nodes: list[int] = []
        gpus: list[int] = []
        for row, placement in placements:
            for node, mask in zip(placement.nodes, placement.masks, strict=True):
                rest = mask
                while rest:
                    bit = rest & -rest
                    rows.append(row)
                    nodes.append(node)
                    gpus.append(bit.bit_length() - 1)
                    rest ^= bit
        return cls(*(np.array(each, np.int64) for each in (rows, nodes, gpus)))

    def placements(self) -> dict[int, Placement]:
        """Placements by row, in the order in which the entries have them."""
        if not len(self.row):
            return {}
        begins = np.flatnonzero(
            np.concatenate([[True], (np.diff(self.row) != 0) | (np.diff(self.node) != 0)])
        )
        if int(self.gpu.max()) <= MOST_BITS:
            masks = np.bitwise_or.reduceat(np.left_shift(1, self.gpu), begins).tolist()
        else:
            ends = [*begins[1:].tolist(), len(self.gpu)]
            gpus = self.gpu.tolist()
            bounds = zip(begins.tolist(), ends, strict=True)
            masks = [sum(1 << g for g in gpus[a:b]) for a, b in bounds]
        rows, nodes = self.row[begins].tolist(), self.node[begins].tolist()
        found: dict[int, Placement] = {}
        for row, node, mask in zip(rows, nodes, masks, strict=True):
            before = found.get(row)
            if before is None:
                found[row] = Placement((node,), (mask,))
            else:
                found[row] = Placement((*before.nodes, node), (*before.masks, mask))
        return found

    def plain(self) -> list[Ints]:
        """As plain values."""
        return [self.row, self.node, self.gpu]

    @classmethod
    def of_plain(cls, plain: Sequence[Ints]) -> Held:
        """Of plain values."""
        return cls(*plain)


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
        table: the jobs, in the order of their ids; suspended ones have homes, where they can
            resume, and codes stand for the names that the live state has.
        held: rows and the GPUs that they hold or have claims on.
        finished: rows that have completed last, in order.
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
    table: SeenJobs
    held: Held
    finished: Ints
    cluster: bytes
    service: NDArray[np.int8]
    closed: Ints
    pools: tuple[tuple[str, bytes], ...]
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
        return len(self.table)

    def to_bytes(self) -> bytes:
        """The snapshot as bytes; equal snapshots give equal bytes."""
        plain: dict[str, Any] = {
            name: getattr(self, name) for name in self.__slots__ if name not in _BY_HAND
        }
        plain["settings"] = asdict(self.settings)
        plain["held"] = self.held.plain()
        plain |= _plain_table(self.table)
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
            plain["held"] = Held.of_plain(plain["held"])
            plain["table"] = _table(plain)
            plain["settings"] = RoundSettings(**plain["settings"])
            plain["quotas"] = tuple(Quota(**quota) for quota in plain["quotas"])
            plain["rules"] = _rules(plain.get("rules", {}))
            kept = plain.get("reservations", ())
            plain["reservations"] = tuple(Reservation(**each) for each in kept)
            return cls(**plain)
        except (TypeError, LookupError, ValueError, AttributeError) as error:
            raise BadInput(f"a damaged live snapshot: {error}") from None

    def under(self, settings: RoundSettings) -> LiveSnapshot:
        """The same moment under other parts, which know nothing yet."""
        return replace(self, settings=settings, state=b"")


def _rules(plain: Mapping[str, Any]) -> SiteRules:
    kinds: dict[str, type[Any]] = {"accounts": Account, "classes": PriorityClass}
    lists: dict[str, Any] = {}
    for key, kind in kinds.items():
        known = {each.name for each in fields(kind)}
        # a snapshot of before names the rules of a class that only a live cluster applies
        said = ({k: v for k, v in each.items() if k in known} for each in plain.get(key, ()))
        lists[key] = tuple(kind(**each) for each in said)
    return SiteRules(**{**plain, **lists})


def _plain_table(table: SeenJobs) -> dict[str, Any]:
    """A table as fields of plain values."""
    return {
        "columns": table.telling() | {f"extra:{n}": column for n, column in table.extra.items()},
        "names": dict(table.names),
        "shapes": _flattened(table.shapes),
        "whole_nodes": tuple(sorted(table.whole_nodes)),
        "gpus_by_type": {row: by_type_text(each) for row, each in table.gpus_by_type.items()},
        "homes": Held.of(table.homes.items()).plain(),
        "gpu_limits": table.gpu_limits.columns(),
    }


def _table(plain: dict[str, Any]) -> SeenJobs:
    """The table of `_plain_table`, whose fields are taken out; older ones lack some."""
    columns: dict[str, NDArray[Any]] = plain.pop("columns")
    own = {name: column for name, column in columns.items() if name in SeenJobs.kinds}
    table = SeenJobs.of_columns(len(columns["job"]), own)
    table.extra = {
        name.removeprefix("extra:"): column
        for name, column in columns.items()
        if name.startswith("extra:")
    }
    table.names = plain.pop("names")
    table.shapes = _gathered(*plain.pop("shapes"))
    table.whole_nodes = set(plain.pop("whole_nodes"))
    by_type: dict[int, str] = plain.pop("gpus_by_type", {})
    table.gpus_by_type = {row: by_type_of(text) for row, text in by_type.items()}
    table.homes = Held.of_plain(plain.pop("homes")).placements()
    table.gpu_limits = RowLimits.of_columns(plain.pop("gpu_limits", {}))
    return table


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
