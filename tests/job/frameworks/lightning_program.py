"""A small network with dropout under the Trainer of Lightning; stops itself where it is told."""

from __future__ import annotations

import hashlib
import logging
import os
import signal
import sys
import warnings

warnings.simplefilter("ignore")

import torch  # noqa: E402
from lightning.pytorch import Callback, LightningModule, Trainer  # noqa: E402
from torchdata.stateful_dataloader import StatefulDataLoader  # noqa: E402

from dlsched.job import attach  # noqa: E402
from dlsched.job.frameworks.lightning import DlschedCallback  # noqa: E402

FOLDER, STOP_AT, LOADER = sys.argv[1], int(sys.argv[2]), sys.argv[3]
RANKS = int(os.environ.get("WORLD_SIZE", "1"))


class Net(LightningModule):
    def __init__(self) -> None:
        super().__init__()
        self.layers = torch.nn.Sequential(
            torch.nn.Linear(8, 16), torch.nn.ReLU(), torch.nn.Dropout(0.2), torch.nn.Linear(16, 1)
        )

    def training_step(self, batch: tuple[torch.Tensor, torch.Tensor]) -> torch.Tensor:
        loss = torch.nn.functional.mse_loss(self.layers(batch[0]), batch[1])
        self.log("train_loss", loss)
        return loss

    def validation_step(self, batch: tuple[torch.Tensor, torch.Tensor]) -> None:
        self.log("validation_loss", torch.nn.functional.mse_loss(self.layers(batch[0]), batch[1]))

    def configure_optimizers(self) -> dict:
        optimizer = torch.optim.AdamW(self.parameters(), lr=0.01)
        schedule = torch.optim.lr_scheduler.StepLR(optimizer, 5, 0.7)
        return {
            "optimizer": optimizer,
            "lr_scheduler": {"scheduler": schedule, "interval": "step"},
        }


class StopSelf(Callback):
    def on_train_batch_end(self, trainer, module, outputs, batch, batch_idx) -> None:
        if trainer.global_step == STOP_AT > 0 and trainer.global_rank == 0:
            os.kill(os.getpid(), signal.SIGTERM)

    def on_validation_end(self, trainer, module) -> None:
        if not trainer.sanity_checking and trainer.is_global_zero:
            print("validated", trainer.global_step, flush=True)


for name in ("lightning", "lightning.pytorch"):
    logging.getLogger(name).setLevel(logging.ERROR)
torch.manual_seed(0)
torch.set_num_threads(1)
draw = torch.Generator().manual_seed(3)
x = torch.randn(80, 8, generator=draw)
data = torch.utils.data.TensorDataset(x, x.sum(1, keepdim=True))
kind = torch.utils.data.DataLoader if LOADER == "plain" else StatefulDataLoader
order: dict = {"shuffle": True}
if RANKS > 1 and LOADER == "stateful":
    place = {"num_replicas": RANKS, "rank": int(os.environ["RANK"])}
    order = {"sampler": torch.utils.data.distributed.DistributedSampler(data, **place)}
with attach(folder=FOLDER, every_s=None) as job:
    callback = DlschedCallback(job)
    trainer = Trainer(
        max_epochs=3, accelerator="cpu", devices=RANKS, strategy="ddp" if RANKS > 1 else "auto",
        accumulate_grad_batches=2, val_check_interval=0.4 if RANKS == 1 else 1.0, logger=False,
        enable_checkpointing=False, enable_progress_bar=False, enable_model_summary=False,
        callbacks=[StopSelf(), callback],
    )  # fmt: skip
    model = Net()
    begin = callback.restore()
    print("from", job.steps, flush=True)
    validation = torch.utils.data.DataLoader(data, 40)
    trainer.fit(model, kind(data, 4, **order), validation, ckpt_path=begin)
    weights = b"".join(p.detach().numpy().tobytes() for p in model.parameters())
    print("end", trainer.global_step, hashlib.sha256(weights).hexdigest())
if torch.distributed.is_initialized():
    torch.distributed.destroy_process_group()
