"""A small network with dropout under the Trainer of HuggingFace; stops itself where it is told."""

from __future__ import annotations

import hashlib
import os
import signal
import sys
import warnings

warnings.simplefilter("ignore")
os.environ["HF_HUB_OFFLINE"] = "1"

import torch  # noqa: E402
from transformers import Trainer, TrainerCallback, TrainingArguments  # noqa: E402

from dlsched.job import attach  # noqa: E402
from dlsched.job.frameworks.huggingface import DlschedCallback  # noqa: E402

OUTPUT, FOLDER, STOP_AT, SAVE_STEPS = sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4])


class Lines(torch.utils.data.Dataset):
    def __init__(self, count: int) -> None:
        draw = torch.Generator().manual_seed(3)
        self.x = torch.randn(count, 8, generator=draw)
        self.y = self.x.sum(1, keepdim=True)

    def __len__(self) -> int:
        return len(self.x)

    def __getitem__(self, place: int) -> dict[str, torch.Tensor]:
        return {"x": self.x[place], "labels": self.y[place]}


class Net(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layers = torch.nn.Sequential(
            torch.nn.Linear(8, 16), torch.nn.ReLU(), torch.nn.Dropout(0.2), torch.nn.Linear(16, 1)
        )

    def forward(self, x: torch.Tensor, labels: torch.Tensor) -> dict[str, torch.Tensor]:
        found = self.layers(x)
        return {"loss": torch.nn.functional.mse_loss(found, labels), "logits": found}


class StopSelf(TrainerCallback):
    def on_step_end(self, args, state, control, **more) -> None:
        if state.global_step == STOP_AT and int(os.environ.get("RANK", "0")) == 0:
            os.kill(os.getpid(), signal.SIGTERM)


torch.manual_seed(0)
torch.set_num_threads(1)
with attach(folder=FOLDER, every_s=None) as job:
    trainer = Trainer(
        model=Net(),
        args=TrainingArguments(
            output_dir=OUTPUT, num_train_epochs=3, per_device_train_batch_size=4,
            gradient_accumulation_steps=2, learning_rate=0.01, use_cpu=True, report_to=[],
            save_strategy="steps" if SAVE_STEPS else "no", save_steps=SAVE_STEPS or 500,
            eval_strategy="steps", eval_steps=3, logging_steps=1, disable_tqdm=True,
        ),
        train_dataset=Lines(80), eval_dataset=Lines(8), callbacks=[StopSelf()],
    )  # fmt: skip
    callback = DlschedCallback(job, trainer)
    begin = callback.restore()
    print("from", job.steps, flush=True)
    trainer.train(resume_from_checkpoint=begin)
    weights = b"".join(p.detach().numpy().tobytes() for p in trainer.model.parameters())
    print("end", trainer.state.global_step, hashlib.sha256(weights).hexdigest())
    print("evaluated", [each["step"] for each in trainer.state.log_history if "eval_loss" in each])
if torch.distributed.is_initialized():
    torch.distributed.destroy_process_group()
