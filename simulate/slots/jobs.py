"""Jobs of the slot world as columns: read from a file, or drawn at random."""

from __future__ import annotations

import csv
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from dlsched.core.arrays import Floats, Ints
from dlsched.core.errors import BadInput
from simulate.traces.textfile import open_text

COLUMNS = (
    "job_id", "type", "model", "arrival_ts", "num_epochs", "batches_per_epoch",
    "cpu_worker", "gpuslot_worker", "cpu_ps", "gpuslot_ps",
)  # fmt: skip
WHOLE = frozenset(COLUMNS) - {"model", "num_epochs", "batches_per_epoch"}


@dataclass(frozen=True, slots=True)
class SlotJobs:
    """The jobs of one trace, in order of arrival and number.

    Attributes:
        number: of each job, unique.
        type: number of its model's kind, from 1.
        model: its name, as in the speeds.
        arrival: slot in which it arrives, from 0.
        epochs: until it has ended.
        batches: of an epoch.
        worker: processor and GPU slots of a worker, [job, 2].
        server: of a parameter server, [job, 2].
    """

    number: Ints
    type: Ints
    model: tuple[str, ...]
    arrival: Ints
    epochs: Floats
    batches: Floats
    worker: Ints
    server: Ints

    def __len__(self) -> int:
        return len(self.number)


@dataclass(frozen=True, slots=True)
class Kind:
    """A model of the published workload.

    Attributes:
        model: its name.
        batches: of an epoch.
        gpu_slots: of a worker; a GPU has four.
        share: its epochs, as a part of the most that any job may have.
    """

    model: str
    batches: int
    gpu_slots: int
    share: float


# Peng et al., DL2 (the published program): workers and servers take two processor slots each
KINDS = (
    Kind("resnet-50", 115, 4, 0.30),
    Kind("vgg-16", 115, 4, 0.96),
    Kind("resnext-110", 390, 4, 0.05),
    Kind("inception-bn", 120, 4, 0.54),
    Kind("seq2seq", 780, 4, 0.95),
    Kind("cnn-text-classification", 193, 0, 0.46),
    Kind("dssm", 349, 0, 0.33),
    Kind("wlm", 165, 4, 0.23),
)
CPU_SLOTS = 2


def drawn_jobs(
    count: int, *, arrivals: int, most_epochs: float, rng: np.random.RandomState
) -> SlotJobs:
    """Draw jobs of the published workload, so many arriving in each slot.

    With numpy's legacy generator and this order of draws, some of which are not used, these are the
    traces of the published program under its uniform arrivals, one call after the other.

    Args:
        count: jobs.
        arrivals: of each slot, until all have arrived.
        most_epochs: a job of kind k has `KINDS[k].share` of it.
        rng: where the types come from.
    """
    types = np.empty(count, np.int64)
    rng.randint(5)
    for place in range(count):
        types[place] = rng.randint(1, len(KINDS) + 1)
        rng.random_sample()
    kinds = [KINDS[each - 1] for each in types.tolist()]
    return SlotJobs(
        number=np.arange(1, count + 1),
        type=types,
        model=tuple(kind.model for kind in kinds),
        arrival=np.arange(count) // arrivals,
        epochs=np.array([float(int(kind.share * most_epochs)) for kind in kinds]),
        batches=np.array([float(kind.batches) for kind in kinds]),
        worker=np.array([(CPU_SLOTS, kind.gpu_slots) for kind in kinds], np.int64),
        server=np.array([(CPU_SLOTS, 0)] * count, np.int64),
    )


def read_jobs(path: Path) -> SlotJobs:
    """Read jobs from CSV, plain or gzip; columns that are not known are passed over.

    Raises:
        BadInput: one line with the file and the line number.
    """
    rows: list[dict[str, float]] = []
    models: list[str] = []
    with open_text(path) as lines:
        reader = csv.DictReader(lines)
        lacking = [name for name in COLUMNS if name not in (reader.fieldnames or ())]
        if lacking:
            raise BadInput(f"{path}: jobs of the slot world have a column {lacking[0]}")
        for row in reader:
            models.append(row["model"])
            rows.append(_numbers(f"{path}:{reader.line_num}", row))
    if not rows:
        raise BadInput(f"{path}: holds no jobs")
    columns = {name: np.array([row[name] for row in rows]) for name in rows[0]}
    order = np.lexsort((columns["job_id"], columns["arrival_ts"]))
    whole = {name: columns[name][order].astype(np.int64) for name in WHOLE}
    if len(np.unique(whole["job_id"])) < len(order):
        raise BadInput(f"{path}: a job_id is there twice")
    return SlotJobs(
        number=whole["job_id"],
        type=whole["type"],
        model=tuple(models[place] for place in order.tolist()),
        arrival=whole["arrival_ts"],
        epochs=columns["num_epochs"][order],
        batches=columns["batches_per_epoch"][order],
        worker=np.stack([whole["cpu_worker"], whole["gpuslot_worker"]], axis=1),
        server=np.stack([whole["cpu_ps"], whole["gpuslot_ps"]], axis=1),
    )


def _numbers(where: str, row: dict[str, str]) -> dict[str, float]:
    found = {}
    for name in COLUMNS:
        if name == "model":
            continue
        try:
            value = float(row[name])
        except (TypeError, ValueError):
            raise BadInput(f"{where}: {name} is {row[name]!r}; a number is expected") from None
        least = 1 if name in ("type", "num_epochs", "batches_per_epoch") else 0
        if not least <= value < 2**53 or (name in WHOLE and not value.is_integer()):
            kind = "whole number" if name in WHOLE else "number"
            raise BadInput(f"{where}: {name} is {row[name]!r}; a {kind} from {least} is expected")
        found[name] = value
    return found
