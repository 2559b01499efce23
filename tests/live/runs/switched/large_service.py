"""A service: twelve layers."""

from __future__ import annotations

import torch


def build() -> torch.nn.Module:
    torch.manual_seed(12)
    layers = [torch.nn.Sequential(torch.nn.Linear(256, 256), torch.nn.ReLU()) for _ in range(12)]
    return torch.nn.Sequential(*layers)


def example() -> torch.Tensor:
    return torch.zeros(2, 256)
