"""Any DataLoader as a state of each checkpoint: it continues after the last batch that it gave.

The order of the script's own sampler or batch sampler stays; batches that were given before are
skipped without being loaded. Another number of ranks would have another order, and is refused;
`data_loader` of `dlsched.job.torch` is for trainings that are resized.
"""

from __future__ import annotations

import random
import sys
from collections.abc import Iterator
from itertools import chain, islice
from typing import Any, BinaryIO

import torch
from torch.utils.data import DataLoader, IterableDataset

from dlsched.job.errors import JobError
from dlsched.job.job import Job
from dlsched.job.pytorch.loading import generators, keep_through_stop, set_generators
from dlsched.job.pytorch.sampler_memory import SamplerMemory

SAME = (
    "num_workers", "collate_fn", "pin_memory", "timeout", "worker_init_fn",
    "multiprocessing_context", "generator", "prefetch_factor", "persistent_workers",
)  # fmt: skip
DRAWS = (
    "draws for each batch from the random numbers of the process: after a stop within an epoch its "
    "order is another one; draw at the epoch's beginning, or from a torch.Generator of its own"
)


class ResumableLoader:
    """A DataLoader whose position checkpoints keep, and `job.epoch` and `job.batch` tell.

    Each `for` over the loader is an epoch. `enumerate(loader, job.batch)` numbers its batches as
    if the training had not been stopped.
    """

    def __init__(self, job: Job, loader: Any) -> None:
        """Make the position a state of each checkpoint; call `job.restore()` afterwards.

        Args:
            job: this process.
            loader: over a data set with any sampler or batch sampler; over an IterableDataset with
                `state_dict` and `load_state_dict`, without workers; a StatefulDataLoader; or
                timm's PrefetchLoader.

        Raises:
            JobError: when the position of the loader could not be restored.
        """
        self._job = job
        self._begin: dict[str, Any] = {}  # random numbers at the epoch's beginning
        self._had_workers = False  # then: were there workers of an epoch before it?
        self._restored: dict[str, Any] | None = None
        inner = loader.loader if _prefetches(loader) else loader
        self._own = _generators_of(inner)
        self._memory = SamplerMemory(inner)
        self._take(loader)
        states = job.checkpoint
        states.register("loader", save=self._save, load=self._load, each_rank=True, try_load=False)
        states.register(
            "loader-ranks",
            save=lambda file: file.write(str(job.world_size).encode()),
            load=self._check_ranks,
            try_load=False,
        )

    def __len__(self) -> int:
        """Return the number of batches of a whole epoch."""
        return len(self._loader)

    def epochs(self, count: int) -> Iterator[int]:
        """Give the numbers of epochs below `count`, from the present one on, until a stop."""
        while self._job.epoch < count and not self._job.stopped:
            yield self._job.epoch

    def __iter__(self) -> Iterator[Any]:
        """Give the rest of the epoch, until a stop; a batch counts as used when it is given."""
        restored, self._restored = self._restored, None
        if restored is not None:  # an epoch that begins has what the last one has left
            is_over = self._is_over()
            if self._keeps_workers and (is_over or self._had_workers_in(restored)):
                self._start_workers()
            between = {
                "process": restored["now"],
                "own": restored.get("own", []),
                "samplers": restored.get("samplers", []),
            }
            self._set(restored["begin"] if self._job.batch and not is_over else between)
            if is_over:
                self._next_epoch()
                return
        self._begin = {
            "process": generators(), "own": self._own_states(), "samplers": self._memory.state(),
        }  # fmt: skip
        self._had_workers = self._has_workers()
        self._set_epoch()
        if restored is not None and self._job.batch and self._stateful is not None:
            self._stateful.load_state_dict(restored["state"])
        batches = self._rest()
        if restored is not None and self._job.batch:
            set_generators(restored["now"])
        for batch in batches:
            self._job.batch += 1
            yield batch
            if self._job.stopped:
                return
        self._next_epoch()

    def _next_epoch(self) -> None:
        self._job.epoch += 1
        self._job.batch = 0

    def _is_over(self) -> bool:
        """Were all batches given, and have samplers drawn their last, as workers run ahead?"""
        if self._stateful is not None or not self._job.batch or not self._plain().num_workers:
            return False
        try:
            return self._job.batch >= len(self._loader)
        except TypeError:  # a batch sampler of the script's own without a length
            return False

    def _take(self, loader: Any) -> None:
        """Take the loader; make it one that skips batches where it keeps no position itself."""
        self._ahead = loader if _prefetches(loader) else None
        if self._ahead is not None:
            loader = _inside(self._ahead)
        self._skipping = _Skipping(getattr(loader, "batch_sampler", None))
        self._stateful = _stateful_part(loader)
        self._loader = loader if self._stateful is not None else self._skipping.loader_of(loader)
        if self._ahead is not None:
            self._ahead.loader = self._loader

    def _rest(self) -> Iterator[Any]:
        """Return the batches of the epoch that were not given; draw what the loader draws first."""
        self._skipping.count = self._job.batch if self._stateful is None else 0
        batches: Iterator[Any] = iter(self._loader if self._ahead is None else self._ahead)
        if self._ahead is not None:  # it begins with its first batch
            batches = chain([*islice(batches, 1)], batches)
        self._skipping.count = 0
        return batches

    # -- workers that stay -------------------------------------------------------------------------
    # A loader whose workers begin draws their seed first, one whose workers stay does not: an epoch
    # has its order again only with workers that are there if they were there.

    def _plain(self) -> Any:
        """Return the DataLoader of torch that has the workers."""
        return self._loader

    @property
    def _keeps_workers(self) -> bool:
        loader = self._plain()
        return self._stateful is None and loader.num_workers > 0 and loader.persistent_workers

    def _has_workers(self) -> bool:
        return self._keeps_workers and self._plain()._iterator is not None

    def _had_workers_in(self, restored: dict[str, Any]) -> bool:
        """Had the epoch, when it began, or would it have had, workers of an epoch before it?"""
        later = self._job.epoch > 0  # so it is in an older version's checkpoint, which says nothing
        return bool(restored.get("had_workers", later))

    def _start_workers(self) -> None:
        """Start workers that stay, without giving them anything to load."""
        self._skipping.count = None
        iter(self._loader)
        self._skipping.count = 0

    def _set(self, begin: dict[str, Any]) -> None:
        set_generators(begin["process"])
        for generator, state in zip(self._own, begin["own"], strict=False):
            generator.set_state(state)
        self._memory.load(begin.get("samplers", []))

    def _own_states(self) -> list[torch.Tensor]:
        return [each.get_state() for each in self._own]

    def _set_epoch(self) -> None:
        """Tell samplers the epoch, as scripts with a DistributedSampler do."""
        batches = getattr(self._loader, "batch_sampler", None)
        inner = getattr(batches, "inner", batches)
        for part in (
            inner,
            getattr(inner, "sampler", None),
            getattr(self._loader, "dataset", None),
        ):
            set_epoch = getattr(part, "set_epoch", None)
            if set_epoch is not None:
                set_epoch(self._job.epoch)

    # -- as a state of the checkpoint --------------------------------------------------------------

    def _save(self, file: BinaryIO) -> None:
        state = {
            "epoch": self._job.epoch,
            "given": self._job.batch,
            "begin": self._begin,
            "now": generators(),
            "own": self._own_states(),
            "samplers": self._memory.state(),
            "had_workers": self._had_workers if self._job.batch else self._has_workers(),
            "state": self._stateful.state_dict() if self._stateful is not None else None,
        }
        torch.save(state, file)

    def _load(self, file: BinaryIO) -> None:
        self._restored = torch.load(file, map_location="cpu", weights_only=True)
        self._job.epoch, self._job.batch = self._restored["epoch"], self._restored["given"]

    def _check_ranks(self, file: BinaryIO) -> None:
        ranks = int(file.read())
        if ranks != self._job.world_size:
            raise JobError(
                f"the order of the loader's data is that of {ranks} rank{'s'[: ranks != 1]} and "
                f"this run has {self._job.world_size}: "
                "submit with --gpus, or use data_loader with job.sampler"
            )


def _prefetches(loader: object) -> bool:
    """Whether this is timm's PrefetchLoader, around a DataLoader."""
    inner = getattr(loader, "loader", None)
    return type(loader).__name__ == "PrefetchLoader" and isinstance(inner, DataLoader)


def _inside(ahead: Any) -> object:
    """Return the DataLoader that a PrefetchLoader reads one batch ahead.

    Raises:
        JobError: when it draws random numbers for a batch before the training has done the last.
    """
    if ahead.random_erasing is not None:
        raise JobError(
            "PrefetchLoader draws what it erases (reprob) a batch ahead of the training: after a "
            "stop it would draw other numbers; use use_prefetcher=False, or reprob 0"
        )
    return ahead.loader


class _Skipping:
    """A batch sampler without its first batches, whose samples need not be loaded."""

    def __init__(self, inner: Any) -> None:
        """Skip nothing."""
        self.inner = inner
        self.has_said = False
        self.count: int | None = 0  # None: all

    def __len__(self) -> int:
        """Return the number of batches of a whole epoch."""
        return len(self.inner)

    def __iter__(self) -> Iterator[Any]:
        """Draw the order now, always before the loader draws its own random numbers."""
        if self.count is None:
            return iter(())
        batches = iter(self.inner)
        head = list(islice(batches, self.count + 1))
        return chain(head[self.count :], self._looked_at(batches))

    def _looked_at(self, batches: Iterator[Any]) -> Iterator[Any]:
        """Give the batches; say so when the second one draws what the training draws from, too."""
        before = torch.get_rng_state(), random.getstate()
        following = list(islice(batches, 1))
        is_same = torch.equal(before[0], torch.get_rng_state()) and before[1] == random.getstate()
        if not is_same and not self.has_said:
            self.has_said = True
            print(f"dlsched.job: {type(self.inner).__name__} {DRAWS}", file=sys.stderr)
        yield from chain(following, batches)

    def loader_of(self, loader: Any) -> Any:
        """Return a DataLoader as the given one, over this sampler."""
        same = {name: getattr(loader, name) for name in SAME}
        if same["num_workers"] and same["worker_init_fn"] is None:
            same["worker_init_fn"] = keep_through_stop
        return DataLoader(loader.dataset, batch_sampler=self, **same)


def _stateful_part(loader: Any) -> Any:
    """Return what holds the position: the loader, its data set, or None for its batch sampler.

    Raises:
        JobError: when nothing does.
    """
    if _has_state(loader) and not _gives_known_batches(loader):
        data = getattr(loader, "dataset", None)
        if getattr(loader, "persistent_workers", False) and not isinstance(data, IterableDataset):
            raise JobError(
                f"{type(data).__name__} has a state of its own and workers that stay: after a stop "
                "the order would be another one; use persistent_workers=False"
            )
        return loader
    how = "use StatefulDataLoader of torchdata"
    if type(loader) is not DataLoader and not _has_state(loader):
        raise JobError(f"a {type(loader).__name__} has no state_dict and load_state_dict; {how}")
    if not isinstance(loader.dataset, IterableDataset):
        if loader.batch_sampler is None:
            raise JobError("a DataLoader with batch_size=None gives no batches to count; " + how)
        return None
    name = type(loader.dataset).__name__
    if not _has_state(loader.dataset):
        raise JobError(f"{name} is iterable without state_dict and load_state_dict; add them")
    if loader.num_workers:
        raise JobError(f"{name} is iterable and has {loader.num_workers} workers; {how}")
    return loader.dataset


def _gives_known_batches(loader: object) -> bool:
    """Whether a loader's batches follow from its batch sampler, over a data set without a state.

    A StatefulDataLoader would restore less: it forgets what samplers of the script's own remember,
    and draws other orders with a generator that it shares with its sampler.
    """
    if not isinstance(loader, DataLoader) or isinstance(loader.dataset, IterableDataset):
        return False
    return loader.batch_sampler is not None and not _has_state(loader.dataset)


def _has_state(part: Any) -> bool:
    return hasattr(part, "state_dict") and hasattr(part, "load_state_dict")


def _generators_of(loader: Any) -> list[torch.Generator]:
    """Return the generators that a loader and its samplers have of their own."""
    batches = getattr(loader, "batch_sampler", None)
    parts = (loader, batches, getattr(batches, "sampler", None))
    found = [getattr(part, "generator", None) for part in parts]
    return [each for each in dict.fromkeys(found) if isinstance(each, torch.Generator)]
