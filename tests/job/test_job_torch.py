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

if importlib.util.find_spec("torch") is None:
    pytest.skip("PyTorch is not installed", allow_module_level=True)


def losses(path: Path) -> list[list[str]]:
    return [line.split() for line in path.read_text().splitlines()] if path.exists() else []


def until(path: Path, count: int) -> None:
    """Wait until so many steps are done."""
    deadline = time.monotonic() + 60
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
def test_a_gang_that_is_stopped_and_goes_on_has_the_losses_of_one_that_is_not(
    ranks: Any, free_port: int, tmp_path: Path
) -> None:
    whole, parts = tmp_path / "whole", tmp_path / "parts"
    for process in ranks.gang(GANG, 2, free_port, "--epochs", "2", "--losses", str(whole)):
        assert ranks.end(process)[0] == 0
    words = ("--epochs", "2", "--losses", str(parts), "--folder", str(tmp_path / "ckpt"))
    gang = ranks.gang(GANG, 2, free_port, *words, "--pause", "0.02")
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
        gang = ranks.gang(GANG, size, free_port, *words, "--pause", "0.02")
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
from dlsched.job.group_exchange import GroupExchange
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
    exchange.post((1, 2, 3, 4))
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
def test_who_shares_a_gpu_keeps_to_its_part_of_the_memory(ranks: Any) -> None:
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
    assert out == ["from 0", "4 2 True", "True", "1 0", "[(1, 2, 3, 4)]"]
