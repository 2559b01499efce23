"""Write what this process is told of its rank into a file of its own in the folder `$TOLD`.

    python telling_program.py [spawn|lightning]

A line for each variable that `$NAMES` names, `-` where it is not set. With `spawn` two processes of
PyTorch's `mp.spawn` write it; with `lightning` the two processes of a training.
"""

from __future__ import annotations

import os
import sys
import uuid
from pathlib import Path


def tell(*_: object) -> None:
    """Write the file."""
    lines = [os.environ.get(name) or "-" for name in os.environ["NAMES"].split()]
    Path(os.environ["TOLD"], uuid.uuid4().hex).write_text("\n".join(lines))


def spawn() -> None:
    """Two processes of PyTorch."""
    import torch  # noqa: PLC0415

    torch.multiprocessing.spawn(tell, nprocs=2)


def lightning() -> None:
    """The two processes of a training with Lightning, which starts the second one itself."""
    import lightning as L  # noqa: N812, PLC0415
    import torch  # noqa: PLC0415
    from torch.utils.data import DataLoader, TensorDataset  # noqa: PLC0415

    class Line(L.LightningModule):
        """A line through points."""

        def __init__(self) -> None:
            super().__init__()
            self.layer = torch.nn.Linear(1, 1)

        def on_train_start(self) -> None:
            """All ranks have met."""
            tell()

        def training_step(self, batch: list[torch.Tensor], number: int) -> torch.Tensor:
            """The loss of a batch."""
            return self.layer(batch[0]).pow(2).mean()

        def configure_optimizers(self) -> torch.optim.Optimizer:
            """Plain gradient descent."""
            return torch.optim.SGD(self.parameters(), lr=0.1)

    trainer = L.Trainer(
        accelerator="cpu", devices=2, strategy="ddp", max_steps=2, logger=False,
        enable_checkpointing=False, enable_progress_bar=False,
    )  # fmt: skip
    trainer.fit(Line(), DataLoader(TensorDataset(torch.ones(8, 1)), 2))


if __name__ == "__main__":
    {"": tell, "spawn": spawn, "lightning": lightning}["".join(sys.argv[1:])]()
