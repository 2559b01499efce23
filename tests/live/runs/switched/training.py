"""A training with dropout and Adam, which writes its weights when it is done."""

from __future__ import annotations

import os
import time
from typing import Any

import torch

OVER = os.environ.get("SWITCHED_OVER", "")  # it ends when there is a file of this name


def build() -> Any:
    torch.manual_seed(13)
    model = torch.nn.Sequential(
        torch.nn.Linear(256, 256), torch.nn.ReLU(inplace=True), torch.nn.Dropout(0.1),
        torch.nn.Linear(256, 256), torch.nn.ReLU(), torch.nn.Linear(256, 1),
    )  # fmt: skip
    return model, torch.optim.Adam(model.parameters())


def iteration(model: torch.nn.Module, optimizer: torch.optim.Optimizer, number: int) -> None:
    if OVER:
        time.sleep(0.01)  # so that the same iterations are soon done again, to compare
        if os.path.exists(OVER):
            torch.save(model.state_dict(), os.environ["SWITCHED_WEIGHTS"])
            raise StopIteration
    value = torch.randn(64, 256)
    loss = (model(value) ** 2).mean()
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
