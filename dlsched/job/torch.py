"""For PyTorch: the process group, the states of a training, data loaders.

Only scripts that use it import it.
"""

from __future__ import annotations

import sys
import weakref
from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import timedelta
from functools import partial
from typing import Any, BinaryIO

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

from dlsched.job.errors import JobError
from dlsched.job.job import Job
from dlsched.job.pytorch.host_copies import HostCopies
from dlsched.job.pytorch.loading import Keys, generators, seeded_loader, set_generators
from dlsched.job.pytorch.pending_gradients import PendingGradients
from dlsched.job.pytorch.reduction import BucketOrder
from dlsched.job.pytorch.resumable import ResumableLoader  # noqa: F401  # scripts take it from here
from dlsched.job.sampler import ElasticSampler

BUCKETS = "order of buckets"  # with spaces: no part of a training has this name
OWN_WAY = "save and load it in functions of your own, with job.checkpoint.register_shards"


def init_process_group(job: Job, backend: str = "", *, timeout_s: float = 600.0) -> None:
    """Make the process group of all ranks of this run, as the environment describes it.

    Args:
        job: this process.
        backend: empty: nccl where this rank has a GPU, else gloo.
        timeout_s: of a collective.

    Raises:
        JobError: when there are several ranks and no MASTER_PORT.
    """
    runtime = job.runtime
    if job.world_size > 1 and not runtime.master_port:
        raise JobError(f"WORLD_SIZE={job.world_size} but no MASTER_PORT")
    use_gpu = torch.cuda.is_available()
    if use_gpu:
        torch.cuda.set_device(job.local_rank % torch.cuda.device_count())
    _keep_to_share(job)
    where: dict[str, Any] = {"store": torch.distributed.HashStore()}  # type: ignore[attr-defined]  # there is no other rank
    if job.world_size > 1:
        where = {"init_method": f"tcp://{runtime.master_addr}:{runtime.master_port}"}
    dist.init_process_group(
        backend or ("nccl" if use_gpu else "gloo"),
        rank=job.rank,
        world_size=job.world_size,
        timeout=timedelta(seconds=timeout_s),
        **where,
    )


def _keep_to_share(job: Job) -> None:
    """On GPUs that other jobs share, use only the part of the memory that the job has asked for."""
    if job.runtime.gpu_share < 1 and torch.cuda.is_available():
        torch.cuda.set_per_process_memory_fraction(job.runtime.gpu_share)


def register_training(
    job: Job,
    *,
    model: torch.nn.Module,
    optimizer: torch.optim.Optimizer | Sequence[torch.optim.Optimizer] | None = None,
    randomness: bool = True,
    **more: Any,
) -> None:
    """Make the model, the optimizer and other parts of a training states of each checkpoint.

    Args:
        job: this process.
        model: its weights are saved without the wrapper of data-parallel training, so that any
            number of ranks can load them; weights that FSDP spreads over the ranks too.
        optimizer: the one of rank 0 is saved, or the parts of all ranks if they are spread; or
            several optimisers.
        randomness: save also what differs from rank to rank: the random generators, which dropout
            uses, and in the middle of an accumulation the gradients so far.
        more: other parts with `state_dict` and `load_state_dict`: a schedule, a scaler.

    Raises:
        JobError: when a part is spread over the ranks in a way that is not known here.
    """
    _keep_to_share(job)
    *wrappers, inner = _layers(model)
    wrapper = next((each for each in wrappers if isinstance(each, DistributedDataParallel)), None)
    buckets = None if wrapper is None else BucketOrder(wrapper)
    optimizers = optimizers_of(optimizer)
    names = ["optimizer", *(f"optimizer{k}" for k in range(2, len(optimizers) + 1))]
    parts = {"model": inner, **dict(zip(names, optimizers, strict=False)), **more}
    for name, part in parts.items():
        if type(part).__module__.partition(".")[0] == "deepspeed":
            raise JobError(f"{name}: DeepSpeed saves its own way; {OWN_WAY}")
        if name in more and (_has_sharded_weights(part) or _has_sharded_state(part)):
            raise JobError(f"{name}: only `model` and `optimizer` may be sharded; {OWN_WAY}")
    sharded, gathered = _has_sharded_weights(inner), any(map(_has_sharded_state, optimizers))
    if gathered and len(optimizers) > 1:
        raise JobError(f"several optimisers, one a ZeroRedundancyOptimizer: {OWN_WAY}")
    if sharded and gathered:
        raise JobError(f"a ZeroRedundancyOptimizer of sharded weights cannot be saved; {OWN_WAY}")
    plain = more if sharded else parts

    def states() -> dict[str, Any]:
        found = {name: part.state_dict() for name, part in plain.items()}
        return found if buckets is None else {**found, BUCKETS: buckets.state()}

    def write(found: dict[str, Any], file: BinaryIO) -> None:
        torch.save(found, file)
        _check_readable(file)

    def save(file: BinaryIO) -> None:
        write(states(), file)

    copies = HostCopies()

    def load(file: BinaryIO) -> None:
        states = torch.load(file, map_location="cpu", weights_only=True)
        for name, part in plain.items():
            part.load_state_dict(states[name])
        if buckets is not None:
            buckets.load(states.get(BUCKETS, []))

    if sharded or gathered:
        from dlsched.job.pytorch.sharded import register_gathered, register_sharded  # noqa: PLC0415  # slow
    if gathered:
        register_gathered(job, optimizers[0], save, load)
    else:
        # `save` has read it back
        job.checkpoint.register(
            "training",
            save=save,
            load=load,
            try_load=False,
            copy=lambda: partial(write, copies.of(states())),
            size=lambda: sum(bytes_by_storage(states()).values()),
        )
    job.signs.add(_Versions(inner, more.values()))
    if sharded:
        register_sharded(job, inner, optimizers)
    if not randomness:
        return
    pending = PendingGradients([] if sharded or gathered else optimizers, job.world_size)

    def save_own(file: BinaryIO) -> None:
        torch.save({**generators(), "pending": pending.state()}, file)

    def load_own(file: BinaryIO) -> None:
        state = torch.load(file, map_location="cpu", weights_only=True)
        set_generators(state)
        pending.load(state.get("pending", {"gradients": {}}))

    job.checkpoint.register(
        "randomness", save=save_own, load=load_own, each_rank=True, try_load=False
    )


def bytes_by_storage(found: object) -> dict[int, int]:
    """Return how many bytes of tensors states have, by storage: shared ones are written once."""
    if isinstance(found, torch.Tensor):
        stored = found.untyped_storage()
        return {stored.data_ptr(): stored.nbytes()}
    if not isinstance(found, dict | list | tuple):
        return {}
    several = found.values() if isinstance(found, dict) else found
    return {at: size for each in several for at, size in bytes_by_storage(each).items()}


def optimizers_of(optimizer: Any) -> list[torch.optim.Optimizer]:
    """Return no, one or several optimisers as a list."""
    if optimizer is None:
        return []
    return list(optimizer) if isinstance(optimizer, list | tuple) else [optimizer]


class _Versions:
    """A sign of a training step: what passes forward and backward, and the optimiser, change.

    Tensors count their changes in place. A skipped step of mixed precision changes the scaler's
    tensors. A step that changes no weight at all still draws random numbers, as dropout does.
    """

    def __init__(self, model: torch.nn.Module, others: Iterable[Any]) -> None:
        """Watch a model, its gradients, and the tensors of other parts of the training."""
        self._weights = [*model.parameters(), *model.buffers()]
        self._others = list(others)
        self._gradient: Callable[[], torch.Tensor | None] = lambda: None
        self._renewed = 0  # zero_grad removes gradients; the next pass makes others

    def __call__(self) -> tuple[int, ...]:
        gradients = [each.grad for each in self._weights if each.grad is not None]
        first = gradients[0] if gradients else None
        if first is not self._gradient():
            self._renewed += 1
            self._gradient = (lambda: None) if first is None else weakref.ref(first)
        tensors = [*self._weights, *gradients]
        for part in self._others:
            values = getattr(part, "__dict__", {}).values()
            tensors += [each for each in values if isinstance(each, torch.Tensor)]
        drawn = [torch.get_rng_state()]
        if torch.cuda.is_initialized():  # type: ignore[no-untyped-call]
            drawn.append(torch.cuda.get_rng_state())
        versions = sum(each._version for each in tensors)
        return (
            versions,
            len(gradients),
            self._renewed,
            *(hash(bytes(each.tolist())) for each in drawn),
        )


def _layers(model: torch.nn.Module) -> Iterator[torch.nn.Module]:
    """Give the wrappers of data-parallel training and `torch.compile`, and the network inside."""
    yield model
    inner = model.__dict__.get("_modules", {}).get("_orig_mod")  # of torch.compile
    if inner is None and isinstance(model, DistributedDataParallel | torch.nn.DataParallel):
        inner = model.module
    if inner is not None:
        yield from _layers(inner)


def _has_sharded_weights(part: object) -> bool:
    """Whether a module, or the weights of an optimiser, are spread over the ranks."""
    weights = [each for group in getattr(part, "param_groups", []) for each in group["params"]]
    if isinstance(part, torch.nn.Module):
        fsdp = _imported("torch.distributed.fsdp", "FullyShardedDataParallel")
        if any(isinstance(inner, fsdp) for inner in part.modules()):
            return True
        weights = list(part.parameters())
    distributed = _imported("torch.distributed.tensor", "DTensor")
    return any(isinstance(each, distributed) for each in weights)


def _has_sharded_state(part: object) -> bool:
    """Whether it is an optimiser with a part of its state on each rank."""
    return isinstance(part, _imported("torch.distributed.optim", "ZeroRedundancyOptimizer"))


def _imported(module: str, name: str) -> Any:
    """Return a class of PyTorch; a program that has not imported it has no objects of it."""
    return getattr(sys.modules.get(module), name, ())


def _check_readable(file: BinaryIO) -> None:
    """Read back what has just been saved, as `load` will, without reading the tensors.

    Raises:
        JobError: when `load` would refuse it.
    """
    file.flush()
    unknown = torch.serialization.get_unsafe_globals_in_checkpoint(file.name)
    if unknown:
        raise JobError(
            f"it holds {', '.join(unknown)}, which a restore refuses: a state_dict may hold "
            "tensors, numbers, text, lists and dicts"
        )
    torch.load(file.name, map_location="cpu", weights_only=True, mmap=True)


def data_loader(dataset: Any, sampler: ElasticSampler, batch_size: int, **options: Any) -> Any:
    """Return a DataLoader of the rest of the epoch; its workers ignore the signal to stop.

    After each batch the training calls `sampler.advance(batch_size)`. Each `for` over the loader
    begins at the sampler's position, so that one loader serves all epochs.

    Args:
        dataset: with a length, indexed by number.
        sampler: of this rank.
        batch_size: samples of each batch.
        options: further options of the DataLoader.
    """
    return seeded_loader(dataset, sampler, batch_size=batch_size, sampler=Keys(sampler), **options)
