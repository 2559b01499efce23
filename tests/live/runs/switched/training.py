"""A training with dropout and Adam, which writes its weights when it is done."""

from __future__ import annotations

import os
from typing import Any

import torch

ITERATIONS = int(os.environ.get("SWITCHED_ITERATIONS", "400"))


def build() -> Any:
    torch.manual_seed(13)
    model = torch.nn.Sequential(
        torch.nn.Linear(256, 256), torch.nn.ReLU(inplace=True), torch.nn.Dropout(0.1),
        torch.nn.Linear(256, 256), torch.nn.ReLU(), torch.nn.Linear(256, 1),
    )  # fmt: skip
    return model, torch.optim.Adam(model.parameters())


def iteration(model: torch.nn.Module, optimizer: torch.optim.Optimizer, number: int) -> None:
    if number == ITERATIONS:
        torch.save(model.state_dict(), os.environ["SWITCHED_WEIGHTS"])
        raise StopIteration
    value = torch.randn(64, 256)
    loss = (model(value) ** 2).mean()
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
