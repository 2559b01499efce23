"""For PyTorch: the process group, what a training consists of, loaders, the agreed stop.

Imported only by scripts that use it, or by a step of a job that has made a process group.
"""

from __future__ import annotations

import random
import signal
import sys
from datetime import timedelta
from typing import Any, BinaryIO

import torch
import torch.distributed as dist

from dlsched.job.errors import JobError
from dlsched.job.job import Job
from dlsched.job.sampler import ElasticSampler

__all__ = [
    "data_loader",
    "init_process_group",
    "keep_through_stop",
    "register_training",
]


def init_process_group(job: Job, backend: str = "", *, timeout_s: float = 600.0) -> None:
    """Make the process group of all ranks of this run, as the environment says.

    Args:
        job: this process.
        backend: empty: nccl where this rank has a GPU, else gloo.
        timeout_s: of a collective.
    """
    runtime = job.runtime
    if job.world_size > 1 and not runtime.master_port:
        raise JobError(f"WORLD_SIZE={job.world_size} but no MASTER_PORT")
    use_gpu = torch.cuda.is_available()
    if use_gpu:
        torch.cuda.set_device(job.local_rank % torch.cuda.device_count())
    _keep_to_share(job)
    where: dict[str, Any] = {"store": torch.distributed.HashStore()}  # type: ignore[attr-defined]  # nobody to meet
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
    """Beside others on a GPU, no more of its memory than the job has said that it needs."""
    if job.runtime.gpu_share < 1 and torch.cuda.is_available():
        torch.cuda.set_per_process_memory_fraction(job.runtime.gpu_share)


def register_training(
    job: Job,
    *,
    model: torch.nn.Module,
    optimizer: torch.optim.Optimizer | None = None,
    randomness: bool = True,
    **more: Any,
) -> None:
    """Make model, optimizer and the like part of each checkpoint.

    Args:
        job: this process.
        model: its weights are saved without the wrapper of data-parallel training, so that any
            number of ranks can load them.
        optimizer: as it is on rank 0.
        randomness: also the generators of each rank, which dropout and the like draw from.
        more: anything else with `state_dict` and `load_state_dict`: a schedule, a scaler.
    """
    _keep_to_share(job)
    inner = getattr(model, "module", model)
    parts = {"model": inner, **({"optimizer": optimizer} if optimizer is not None else {}), **more}

    def save(file: BinaryIO) -> None:
        torch.save({name: part.state_dict() for name, part in parts.items()}, file)

    def load(file: BinaryIO) -> None:
        states = torch.load(file, map_location="cpu", weights_only=True)
        for name, part in parts.items():
            part.load_state_dict(states[name])

    job.checkpoint.register("training", save=save, load=load)
    if randomness:
        job.checkpoint.register(
            "randomness", save=_save_randomness, load=_load_randomness, each_rank=True
        )


def data_loader(dataset: Any, sampler: ElasticSampler, batch_size: int, **options: Any) -> Any:
    """A DataLoader of the rest of the epoch, whose workers live through a stop.

    After each batch the training calls `sampler.advance(batch_size)`; a new epoch, a new loader.
    """
    options.setdefault("worker_init_fn", keep_through_stop)
    return torch.utils.data.DataLoader(dataset, batch_size, sampler=sampler, **options)


def keep_through_stop(worker: int) -> None:
    """For `worker_init_fn`: a data-loading worker ignores SIGTERM, its parent ends it itself."""
    signal.signal(signal.SIGTERM, signal.SIG_IGN)


def _save_randomness(file: BinaryIO) -> None:
    state: dict[str, Any] = {"torch": torch.get_rng_state(), "python": random.getstate()}
    if torch.cuda.is_available():
        state["cuda"] = torch.cuda.get_rng_state()
    if "numpy" in sys.modules:
        kind, keys, *rest = sys.modules["numpy"].random.get_state()
        state["numpy"] = [kind, keys.tolist(), *rest]
    torch.save(state, file)


def _load_randomness(file: BinaryIO) -> None:
    state = torch.load(file, map_location="cpu", weights_only=True)
    torch.set_rng_state(state["torch"])
    version, numbers, gauss = state["python"]
    random.setstate((version, tuple(numbers), gauss))
    if "cuda" in state and torch.cuda.is_available():
        torch.cuda.set_rng_state(state["cuda"])
    if "numpy" in state and "numpy" in sys.modules:
        kind, keys, *rest = state["numpy"]
        sys.modules["numpy"].random.set_state((kind, keys, *rest))
