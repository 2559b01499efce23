"""Jobs of the slot world as columns: read from a file, or drawn at random."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from dlsched.core.arrays import Floats, Ints
from dlsched.core.errors import BadInput
from simulate.bounded_tables import FROM_1, WHOLE, WHOLE_FROM_1, read_rows

BOUNDS = {
    "job_id": WHOLE,
    "type": WHOLE_FROM_1,
    "arrival_ts": WHOLE,
    "num_epochs": FROM_1,
    "batches_per_epoch": FROM_1,
    "cpu_worker": WHOLE,
    "gpuslot_worker": WHOLE,
    "cpu_ps": WHOLE,
    "gpuslot_ps": WHOLE,
}
COLUMNS = ("job_id", "type", "model", *list(BOUNDS)[2:])


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
    table = read_rows(path, BOUNDS, required=COLUMNS, unique=(), nouns="jobs")
    order = np.lexsort((table.number("job_id"), table.number("arrival_ts")))
    columns = {name: table.number(name)[order] for name in BOUNDS}
    whole = {name: column.astype(np.int64) for name, column in columns.items()}
    if len(np.unique(whole["job_id"])) < len(order):
        raise BadInput(f"{path}: a job_id is there twice")
    return SlotJobs(
        number=whole["job_id"],
        type=whole["type"],
        model=tuple(table.text("model")[order].tolist()),
        arrival=whole["arrival_ts"],
        epochs=columns["num_epochs"],
        batches=columns["batches_per_epoch"],
        worker=np.stack([whole["cpu_worker"], whole["gpuslot_worker"]], axis=1),
        server=np.stack([whole["cpu_ps"], whole["gpuslot_ps"]], axis=1),
    )
