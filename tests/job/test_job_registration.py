"""What `register_training` refuses in one line, and what it takes a training out of.

The parts are PyTorch's own. DeepSpeed is not installed: its parts are empty classes in modules of
its names, as only these names are looked at.
"""

from __future__ import annotations

import importlib.util
from typing import Any

import pytest

if importlib.util.find_spec("torch") is None:
    pytest.skip("PyTorch is not installed", allow_module_level=True)

OWN_WAY = "save and load it in functions of your own, with job.checkpoint.register_shards"

REFUSED = """
import warnings

warnings.simplefilter("ignore")  # what PyTorch's own modules warn of when they are imported
import torch
from torch.distributed.fsdp import FullyShardedDataParallel, fully_shard
from torch.distributed.optim import ZeroRedundancyOptimizer
from dlsched.job import JobError, attach
from dlsched.job.torch import init_process_group, register_training

job = attach(folder="ckpt", every_s=None)
init_process_group(job, "gloo")
net = torch.nn.Linear(3, 1)


def named(module, name):
    return type(name, (), {"__module__": module})()


def zero(net):
    return ZeroRedundancyOptimizer(net.parameters(), torch.optim.SGD, lr=0.1)


cpu = torch.device("cpu")
engine = named("deepspeed.runtime.engine", "DeepSpeedEngine")
sharded = FullyShardedDataParallel(torch.nn.Linear(3, 1), device_id=cpu)
spread = fully_shard(torch.nn.Linear(3, 1), mesh=torch.distributed.init_device_mesh("cpu", (1,)))
for parts in (
    {"model": torch.nn.parallel.DataParallel(net), "engine": engine},
    {"model": net, "optimizer": named("deepspeed.runtime.zero.stage3", "DeepSpeedZeroOptimizer")},
    {"model": net, "average": spread},
    {"model": net, "average": sharded},
    {"model": net, "of_average": torch.optim.SGD(spread.parameters(), lr=0.1)},
    {"model": net, "second": zero(net)},
    {"model": sharded, "optimizer": zero(sharded)},
):
    try:
        register_training(job, **parts)
    except JobError as error:
        print(error)
register_training(job, model=net)  # a part that was refused has left nothing behind
job.save()
print("saved")
torch.distributed.destroy_process_group()
"""


@pytest.mark.slow
def test_parts_that_cannot_be_saved_are_refused_in_one_line_at_registration(ranks: Any) -> None:
    (process,) = ranks.gang(REFUSED, 1, 0)
    code, out, err = ranks.end(process)
    assert (code, err) == (0, "")
    only = f"only `model` and `optimizer` may be sharded; {OWN_WAY}"
    assert out == [
        f"engine: DeepSpeed saves its own way; {OWN_WAY}",
        f"optimizer: DeepSpeed saves its own way; {OWN_WAY}",
        f"average: {only}",
        f"average: {only}",
        f"of_average: {only}",
        f"second: {only}",
        f"a ZeroRedundancyOptimizer of sharded weights cannot be saved; {OWN_WAY}",
        "saved",
    ]


WRAPPED = """
import warnings

warnings.simplefilter("ignore")  # what PyTorch's own modules warn of when they are imported
import torch
from torch.nn.parallel import DataParallel, DistributedDataParallel
from dlsched.job import attach
from dlsched.job.torch import init_process_group, register_training

WRAPPERS = {
    "none": lambda net: net,
    "compiled": torch.compile,
    "compiled, then data-parallel": lambda net: DistributedDataParallel(torch.compile(net)),
    "data-parallel, then compiled": lambda net: torch.compile(DistributedDataParallel(net)),
    "data-parallel in one process": DataParallel,
}
weight = None
for name, wrapped in WRAPPERS.items():
    with attach(folder="ckpt", every_s=None) as job:
        if weight is None:
            init_process_group(job, "gloo")
        net = torch.nn.Linear(3, 1)
        register_training(job, model=wrapped(net), randomness=False)
        if job.restore():
            print(name, torch.equal(net.weight, weight))
            torch.nn.init.normal_(net.weight)
        weight = net.weight.detach().clone()
        job.step()
        job.save()
torch.distributed.destroy_process_group()
"""


@pytest.mark.slow
def test_a_checkpoint_is_the_same_with_and_without_compile_and_data_parallel_training(
    ranks: Any,
) -> None:
    """Each way of wrapping goes on from the checkpoint of the one before it."""
    (process,) = ranks.gang(WRAPPED, 1, 0)
    code, out, err = ranks.end(process)
    assert (code, err) == (0, "")
    assert out == [
        "compiled True",
        "compiled, then data-parallel True",
        "data-parallel, then compiled True",
        "data-parallel in one process True",
    ]
