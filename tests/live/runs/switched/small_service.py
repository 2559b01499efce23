"""A service: a network with batch normalisation and a tied weight."""

from __future__ import annotations

import torch


class Tied(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first = torch.nn.Linear(64, 64)
        self.norm = torch.nn.BatchNorm1d(64)
        self.second = torch.nn.Linear(64, 64)
        self.second.weight = self.first.weight
        self.scale = torch.nn.Parameter(torch.full((1,), 1.5))

    def forward(self, value: torch.Tensor) -> torch.Tensor:
        return self.second(torch.relu(self.norm(self.first(value)))) * self.scale


def build() -> torch.nn.Module:
    torch.manual_seed(11)
    model = Tied()
    model(torch.randn(32, 64))  # the statistics of the normalisation are not those of a new one
    return model


def example() -> torch.Tensor:
    return torch.zeros(2, 64)
