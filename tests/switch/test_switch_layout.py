"""Where a model's tensors lie in device memory; files that are no programs."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow  # PyTorch takes seconds to import


def test_layers_lie_in_the_order_of_their_use_and_a_tied_weight_once() -> None:
    torch = pytest.importorskip("torch")
    from dlsched.switch.layout import layout_of  # noqa: PLC0415  # it needs PyTorch

    class Crossed(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.last = torch.nn.Linear(4, 4)
            self.norm = torch.nn.BatchNorm1d(4)
            self.first = torch.nn.Linear(4, 4)
            self.last.weight = self.first.weight
            self.scale = torch.nn.Parameter(torch.ones(1))

        def forward(self, value: torch.Tensor) -> torch.Tensor:
            return self.last(self.norm(self.first(value))) * self.scale

    model = Crossed().eval()
    layout = layout_of(model, torch.zeros(2, 4))
    assert layout.layers == [model.first, model.norm, model.last]
    named = {id(t): name for name, t in (*model.named_parameters(), *model.named_buffers())}
    assert [[named[id(t)] for t, _ in layer] for layer in layout.tensors] == [
        ["scale", "last.weight", "first.bias"],
        ["norm.weight", "norm.bias", "norm.running_mean", "norm.running_var",
         "norm.num_batches_tracked"],
        ["last.bias"],
    ]  # fmt: skip
    begins = [begin for layer in layout.tensors for _, begin in layer]
    assert begins == [512 * n for n in range(9)]
    assert layout.ends == [3 * 512, 8 * 512, 9 * 512]
    value = torch.randn(3, 4)
    before = model(value)
    block = torch.zeros(layout.size, dtype=torch.uint8)
    layout.copy_into(block)
    layout.move_into(block)
    assert torch.equal(model(value), before)
    block.zero_()
    assert not model(value).any(), "the model is not in the block"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (None, "service.py: there is no such file"),
        ("def build(): pass\n", "service.py: no function example; needed are build, example"),
    ],
)
def test_files_that_are_no_services_are_refused_in_one_line(
    tmp_path: Path, text: str | None, said: str
) -> None:
    pytest.importorskip("torch")
    file = tmp_path / "service.py"
    if text is not None:
        file.write_text(text)
    words = ["--listen", str(tmp_path / "ask"), f"--service=a={file}"]
    found = subprocess.run(
        [sys.executable, "-m", "dlsched.switch", *words],
        capture_output=True,
        text=True,
        check=False,
    )
    assert found.returncode == 2
    assert found.stderr.endswith(f"{said}\n")
    assert len(found.stderr.splitlines()) == 1
