"""Where each tensor of a model lies in the device's memory, and in which groups it is copied.

Controller and workers build the same model and so come to the same layout; no address is sent. The
tensors of a layer (a module without children) lie together, each padded to 512 bytes, layers in the
order in which the forward pass first uses them. A tensor that several layers use belongs to the
first of them, one of no layer to the first layer. Buffers travel like parameters.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from dlsched.policies.node.pipeswitch.grouping import Model, best_groups

ALIGNED = 512  # bytes
RUNS = 3  # of the model, to measure its layers


@dataclass(frozen=True, slots=True, kw_only=True)
class Layout:
    """A model in a block of memory.

    Attributes:
        layers: modules without children, in the order of their first use.
        tensors: of each layer, with where they begin, in bytes.
        ends: of each layer, in bytes; the last one is the size of all.
    """

    layers: list[torch.nn.Module]
    tensors: list[list[tuple[torch.Tensor, int]]]
    ends: list[int]

    @property
    def size(self) -> int:
        """Bytes of the whole model."""
        return self.ends[-1]

    def copy_into(self, block: torch.Tensor) -> None:
        """Copy all tensors into a block of bytes."""
        for view, tensor in self._views(block):
            view.copy_(tensor.detach())

    def move_into(self, block: torch.Tensor) -> None:
        """Have the model's tensors be views of a block of bytes, without copying."""
        with torch.no_grad():
            for view, tensor in self._views(block):
                tensor.data = view

    def _views(self, block: torch.Tensor) -> list[tuple[torch.Tensor, torch.Tensor]]:
        found = []
        for layer in self.tensors:
            for tensor, begin in layer:
                size = tensor.numel() * tensor.element_size()
                flat = block[begin : begin + size].view(tensor.dtype)
                found.append((flat.view(tensor.shape), tensor))
        return found


def layout_of(model: torch.nn.Module, example: torch.Tensor | None) -> Layout:
    """Lay a model out; without an example its layers are in the order of their definition."""
    leaves = [module for module in model.modules() if not list(module.children())]
    order = _used(model, leaves, example) if example is not None else []
    layers = [*order, *(leaf for leaf in leaves if leaf not in order)]
    of_layers = {id(t) for leaf in layers for t in (*leaf.parameters(), *leaf.buffers())}
    further = [t for t in (*model.parameters(), *model.buffers()) if id(t) not in of_layers]
    seen: set[int] = set()
    tensors: list[list[tuple[torch.Tensor, int]]] = []
    ends: list[int] = []
    at = 0
    for number, layer in enumerate(layers):
        mine = [*(further if number == 0 else ()), *layer.parameters(), *layer.buffers()]
        tensors.append([])
        for tensor in mine:
            if id(tensor) not in seen:
                seen.add(id(tensor))
                tensors[-1].append((tensor, at))
                at += -(-tensor.numel() * tensor.element_size() // ALIGNED) * ALIGNED
        ends.append(at)
    return Layout(layers=layers, tensors=tensors, ends=ends)


def _used(
    model: torch.nn.Module, leaves: Sequence[torch.nn.Module], example: torch.Tensor
) -> list[torch.nn.Module]:
    """Layers in the order in which the forward pass first uses them."""
    order: list[torch.nn.Module] = []

    def note(module: torch.nn.Module, _given: Any) -> None:
        if module not in order:
            order.append(module)

    hooks = [leaf.register_forward_pre_hook(note) for leaf in leaves]
    was_training = model.training
    model.eval()
    with torch.no_grad():
        model(example)
    model.train(was_training)
    for hook in hooks:
        hook.remove()
    return order


def measured_groups(model: torch.nn.Module, layout: Layout, example: torch.Tensor) -> list[int]:
    """The last layer of each group, by measured computing times and bandwidth of this machine."""
    begun: dict[torch.nn.Module, float] = {}
    took = dict.fromkeys(layout.layers, 0.0)

    def begin(module: torch.nn.Module, _given: Any) -> None:
        begun[module] = time.perf_counter()

    def end(module: torch.nn.Module, _given: Any, _found: Any) -> None:
        took[module] += time.perf_counter() - begun[module]

    hooks = [each.register_forward_pre_hook(begin) for each in layout.layers]
    hooks += [each.register_forward_hook(end) for each in layout.layers]
    with torch.no_grad():
        for _ in range(RUNS):
            model(example)
    for hook in hooks:
        hook.remove()
    source = torch.empty(max(layout.size, 1 << 20), dtype=torch.uint8)
    since = time.perf_counter()
    source.clone()
    bandwidth = source.numel() / 1e6 / max((time.perf_counter() - since) * 1000, 1e-6)
    sizes = np.diff([0, *layout.ends]) / 1e6
    times = np.array([took[each] / RUNS * 1000 for each in layout.layers])
    return best_groups(Model(size=sizes, compute=times, bandwidth=bandwidth, call=0.02, sync=0.02))
