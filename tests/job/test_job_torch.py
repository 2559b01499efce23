from __future__ import annotations

import importlib.util
import os
import signal
import time
from pathlib import Path
from typing import Any

import pytest

from dlsched.quickstart import jobs

HERE = Path(jobs.__path__[0])
GANG = (HERE / "gloo_gang.py").read_text()
IMPORTED = ("torch", "torch._dynamo")  # the second by the first optimiser

if importlib.util.find_spec("torch") is None:
    pytest.skip("PyTorch is not installed", allow_module_level=True)


def losses(path: Path) -> list[list[str]]:
    return [line.split() for line in path.read_text().splitlines()] if path.exists() else []


def until(path: Path, count: int) -> None:
    """Wait until so many steps are done."""
    deadline = time.monotonic() + 180
    while len(losses(path)) < count:
        assert time.monotonic() < deadline, path
        time.sleep(0.01)


def stop(gang: list[Any], ranks: Any) -> int:
    """Ask one rank; all leave after the same step, which is returned."""
    os.kill(gang[-1].pid, signal.SIGTERM)
    ends = [ranks.end(process) for process in gang]
    assert [(code, err) for code, _, err in ends] == [(143, "")] * len(gang)
    (step,) = {int(out[-1].split()[-1]) for _, out, _ in ends}
    return step


@pytest.mark.slow
def test_a_loss_with_a_gradient_keeps_nothing_of_its_step(ranks: Any, tmp_path: Path) -> None:
    program = """
import sys, warnings, weakref
import torch
from dlsched.job import attach

warnings.simplefilter("error")  # float() of a tensor with a gradient warns
weight = torch.nn.Parameter(torch.ones(3))
with attach(folder=sys.argv[1], every_s=None) as job:
    job.checkpoint.register("w", save=lambda file: file.write(b"w"), load=lambda file: file.read())
    hidden = weight * 2
    loss, inside = (hidden**2).mean(), weakref.ref(hidden)
    job.step(loss=loss, error=loss)
    del hidden, loss
    print(inside() is None)
    job.save()
"""
    code, out, err = ranks.end(ranks.start(program, str(tmp_path / "ckpt")))
    assert (code, out, err) == (0, ["True"], "")


@pytest.mark.slow
def test_a_gang_that_is_stopped_and_goes_on_has_the_losses_of_one_that_is_not(
    ranks: Any, free_port: int, tmp_path: Path
) -> None:
    whole, parts = tmp_path / "whole", tmp_path / "parts"
    for process in ranks.gang(GANG, 2, free_port, "--epochs", "2", "--losses", str(whole)):
        assert ranks.end(process)[0] == 0
    words = ("--epochs", "2", "--losses", str(parts), "--folder", str(tmp_path / "ckpt"))
    gang = ranks.gang(GANG, 2, free_port, *words, "--pause", "0.1")
    until(parts, 10)
    step = stop(gang, ranks)
    assert 10 <= step < 64
    assert len(losses(parts)) == step
    for process in ranks.gang(GANG, 2, free_port, *words):
        code, _, err = ranks.end(process)
        assert (code, err) == (0, "")
    assert losses(parts) == losses(whole)
    assert len(losses(whole)) == 64


@pytest.mark.slow
def test_a_gang_goes_on_with_more_and_with_fewer_ranks(
    ranks: Any, free_port: int, tmp_path: Path
) -> None:
    told = tmp_path / "losses"
    words = ("--epochs", "2", "--losses", str(told), "--folder", str(tmp_path / "ckpt"))
    done = 0
    for size in (2, 3):
        gang = ranks.gang(GANG, size, free_port, *words, "--pause", "0.1")
        until(told, done + 5)
        done = stop(gang, ranks)
        assert len(losses(told)) == done
    (last,) = ranks.gang(GANG, 1, free_port, *words)
    code, out, _ = ranks.end(last)
    assert code == 0
    assert out[0] == f"run 3: 1 ranks from step {done}"
    steps = [int(step) for step, _ in losses(told)]
    assert steps == list(range(len(steps)))


ALONE = """
import torch
from dlsched.job import attach
from dlsched.job.gang.group_exchange import GroupExchange
from dlsched.job.torch import data_loader, init_process_group, register_training

torch.manual_seed(1)
with attach(folder="ckpt", every_s=None) as job:
    init_process_group(job)
    model = torch.nn.Linear(2, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    sampler = job.sampler(8)
    register_training(job, model=model, optimizer=optimizer)
    print("from", job.restore())
    for batch in data_loader(torch.arange(16.0).reshape(8, 2), sampler, 2):
        sampler.advance(2)
        optimizer.zero_grad()
        model(batch).sum().backward()
        optimizer.step()
        job.step()
    job.save()
    before = [p.detach().clone() for p in model.parameters()]
    drawn = torch.rand(1)
    with torch.no_grad():
        for p in model.parameters():
            p.zero_()
    optimizer.state.clear()
    print(job.restore(), len(optimizer.state), torch.equal(drawn, torch.rand(1)))
    print(all(torch.equal(*each) for each in zip(before, model.parameters())))
    print(sampler.epoch, sampler.consumed)
    exchange = GroupExchange()
    exchange.post((1, 2, 3, 4, 5))
    print(exchange.collect())
    exchange.close()
torch.distributed.destroy_process_group()
"""


SHARING = """
import torch
from dlsched.job import attach
from dlsched.job.torch import register_training

kept = []
torch.cuda.is_available = lambda: True  # no GPU here: what would be asked of it
torch.cuda.set_per_process_memory_fraction = kept.append
with attach(folder="ckpt", every_s=None) as job:
    register_training(job, model=torch.nn.Linear(2, 1), randomness=False)
    print(job.runtime.gpu_share, kept)
"""


@pytest.mark.slow
def test_a_job_that_shares_a_gpu_uses_only_its_part_of_the_memory(ranks: Any) -> None:
    for share, expected in (("0.25", "0.25 [0.25]"), ("", "1.0 []")):
        code, out, err = ranks.end(ranks.start(SHARING, environment={"DLSCHED_GPU_SHARE": share}))
        assert (code, err, out) == (0, "", [expected])
    code, _, err = ranks.end(ranks.start(SHARING, environment={"DLSCHED_GPU_SHARE": "2"}))
    assert code != 0
    assert "DLSCHED_GPU_SHARE=2: a number above 0 and at most 1 is needed" in err


@pytest.mark.slow
def test_model_optimizer_and_randomness_are_what_they_were(ranks: Any) -> None:
    code, out, err = ranks.end(ranks.start(ALONE))
    assert (code, err) == (0, "")
    assert out == ["from 0", "4 2 True", "True", "1 0", "[(1, 2, 3, 4, 5)]"]


LOSSES = """
import resource, sys
import torch
from dlsched.job import attach
from dlsched.job.torch import register_training

class Head(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.module = torch.nn.Linear(2, 2)
        self.head = torch.nn.Linear(2, 1)

class Recipe:
    def state_dict(self):
        return {"recipe": self if sys.argv[1] == "object" else 1}

    def load_state_dict(self, state):
        pass

net = Head()
with attach(folder="ckpt", every_s=None, every_steps=1) as job:
    register_training(job, model=net, recipe=Recipe())
    job.restore()
    job.step()
    before = net.head.weight.detach().clone()
    torch.nn.init.zeros_(net.head.weight)
    job.restore()
    print("head", torch.equal(before, net.head.weight))
    if sys.argv[1] == "full disk":
        resource.setrlimit(resource.RLIMIT_FSIZE, (700, resource.RLIM_INFINITY))
    print("goes on", job.step())
"""


@pytest.mark.slow
def test_a_net_with_an_attribute_named_module_keeps_its_head_and_a_full_disk_ends_nothing(
    ranks: Any, tmp_path: Path
) -> None:
    code, out, err = ranks.end(ranks.start(LOSSES, "full disk"))
    assert (code, out) == (0, ["head True", "goes on True"])
    assert "dlsched.job: no checkpoint after step 2: " in err
    assert [path.name for path in (tmp_path / "ckpt").iterdir()] == ["0001-000000001"]


@pytest.mark.slow
def test_a_state_that_a_restore_would_refuse_is_named_when_it_is_saved(
    ranks: Any, tmp_path: Path
) -> None:
    code, out, err = ranks.end(ranks.start(LOSSES, "object"))
    assert (code, out[-1]) == (0, "goes on True")
    assert "no checkpoint after step 1: it holds __main__.Recipe, which a restore refuses" in err
    assert list((tmp_path / "ckpt").iterdir()) == []


SIGNS = """
import sys
import torch
from dlsched.job import attach
from dlsched.job.torch import register_training

torch.manual_seed(1)
kind = sys.argv[1]
net = torch.nn.Linear(3, 1)
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
scaler = torch.amp.GradScaler("cpu", init_scale=2.0**100 if kind == "skipped" else 1.0)
with attach() as job:
    register_training(job, model=net, optimizer=optimizer, scaler=scaler)
    for step in range(24):
        if kind == "frozen":
            net.requires_grad_(step % 2 == 0)
        loss = net(torch.randn(2, 3)).square().sum()
        if kind == "skipped" and step % 2:
            loss = loss * float("inf")
        if loss.requires_grad:
            scaler.scale(loss / 4).backward()
        if kind != "accumulates" or step % 4 == 3:
            if loss.requires_grad:
                scaler.step(optimizer)
                scaler.update()
            optimizer.zero_grad(set_to_none=kind != "zeros")
        job.step()
        if kind == "twice":
            job.step()
"""


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["once", "accumulates", "skipped", "frozen", "zeros", "twice"])
def test_only_a_step_that_is_called_twice_is_told(ranks: Any, kind: str) -> None:
    code, _, err = ranks.end(ranks.start(SIGNS, kind))
    assert code == 0
    assert err.count("step() seems to be called twice") == (kind == "twice")


OPTIMISERS = """
import torch
from dlsched.job import attach
from dlsched.job.elastic import ElasticTraining

torch.manual_seed(1)
net = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.Linear(4, 1))
adam, sgd = torch.optim.Adam(net[0].parameters()), torch.optim.SGD(net[1].parameters(), lr=0.1)
rate = torch.optim.lr_scheduler.StepLR(sgd, 1, 0.5)
norms = []

def clip():
    norms.append(float(torch.nn.utils.clip_grad_norm_(net.parameters(), 0.01)))

with attach(folder="ckpt", every_s=None) as job:
    scaler = torch.amp.GradScaler("cpu", init_scale=1024.0)
    training = ElasticTraining(
        job, net, [adam, sgd], torch.randn(32, 3), batch_size=8, local=(1, 4), fixed=True,
        scaler=scaler, schedules=[rate], before_step=clip,
    )
    print("from", job.restore(), rate.last_epoch, len(adam.state))
    for epoch in training.epochs(job.steps // 4 + 1):
        for place, x in enumerate(training.batches()):
            factor = float("inf") if place == 3 else 1.0  # the second step is skipped
            training.step(training.model(x).square().mean() * factor)
            print(place, training.stepped, job.steps, rate.last_epoch)
    print(all(norm < 512 or norm != norm for norm in norms), len(norms))
    job.save()
"""


@pytest.mark.slow
def test_an_elastic_training_tells_when_its_optimisers_stepped(ranks: Any) -> None:
    code, out, err = ranks.end(ranks.start(OPTIMISERS))
    assert (code, err) == (0, "")
    assert out[0] == "from 0 0 0"
    assert out[1:-1] == [
        "0 False 0 0", "1 True 1 1", "2 False 1 1", "3 False 2 1",
        "4 False 2 1", "5 True 3 2", "6 False 3 2", "7 True 4 3",
    ]  # fmt: skip
    assert out[-1] == "True 4"  # clipped once a step, unscaled
    code, out, err = ranks.end(ranks.start(OPTIMISERS))
    assert (code, err, out[0]) == (0, "", "from 4 3 2")
