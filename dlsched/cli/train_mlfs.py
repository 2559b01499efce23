"""`dlsched train mlfs`: a network for MLF-RL, trained in replays (needs PyTorch)."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from dlsched.cli.option_groups import option
from dlsched.core.errors import BadInput

if TYPE_CHECKING:
    from simulate.learner.mlfs import Step

MOST = 1_000_000


def mlfs_command(
    traces: Annotated[list[Path], typer.Argument(metavar="TRACE…", help="Traces to learn from.")],
    out: Annotated[Path, option("--out FILE", "The trained network.")],
    cluster: Annotated[str, option("--cluster SPEC", "As `dlsched replay` takes it: 4x4:v100.")],
    validate: Annotated[
        list[Path] | None,
        option("--validate TRACE", "A trace to be judged by; repeat it. [default: the TRACEs]"),
    ] = None,
    trace_format: Annotated[str, option("--format NAME", "Of the traces.")] = "auto",
    round_s: Annotated[float, option("--round S", "Seconds of a round.")] = 60.0,
    overhead: Annotated[float, option("--restart-overhead S", "Seconds of each start.")] = 0.0,
    seed: Annotated[int, option("--seed N", "Of everything that is drawn.")] = 0,
    imitations: Annotated[int, option("--imitations N", "Passes over what MLF-H did.")] = 20,
    updates: Annotated[int, option("--updates N", "Changes that are tried by their reward.")] = 100,
    every: Annotated[int, option("--every N", "Updates between two validations.")] = 10,
) -> None:
    """Train a network that takes the next job and its servers in the place of MLF-H.

    The best network so far is kept. The same seed gives the same network on the same machine.
    """
    for flag, value, low in (
        ("--imitations", imitations, 0), ("--updates", updates, 0), ("--every", every, 1),
    ):  # fmt: skip
        if not low <= value <= MOST:
            raise BadInput(f"{flag} must be from {low} to {MOST:,}, not {value}")
    if not 0 <= overhead < float("inf"):
        raise BadInput(f"--restart-overhead must be 0 or more, not {overhead:g}")
    from dlsched.cli.extras import check_installed  # noqa: PLC0415

    check_installed("torch")
    import torch  # noqa: PLC0415

    from dlsched.cli.output.file_output import save  # noqa: PLC0415
    from dlsched.composition.network_files import network_bytes  # noqa: PLC0415
    from dlsched.composition.settings import Costs  # noqa: PLC0415
    from simulate.clusters.cluster_files import open_cluster  # noqa: PLC0415
    from simulate.learner.mlfs import MlfsTraining  # noqa: PLC0415
    from simulate.settings import RunSettings  # noqa: PLC0415
    from simulate.traces.open import open_trace  # noqa: PLC0415

    torch.set_num_threads(1)  # batches are small: more threads would only be slower
    training = MlfsTraining(
        [open_trace(file, trace_format) for file in traces],
        [open_trace(file, trace_format) for file in validate or traces],
        open_cluster(cluster),
        RunSettings(policy="mlfs", round_s=round_s, costs=Costs(restart_overhead=overhead)),
        seed=seed,
    )

    def tell(step: Step) -> None:
        typer.echo(f"{step.phase:<9} {step.updates:>6}  reward {step.reward:.4f} (MLF-H: 1)")
        assert training.best is not None, "it has been validated"
        save([network_bytes(training.best)], str(out))

    training.run(imitations, updates, every, tell)
    best = max(training.curve, key=lambda step: step.reward)
    print(
        f"dlsched: {out}: the network after {best.updates} of phase {best.phase}, reward "
        f"{best.reward:.4f}; MLF-H has 1",
        file=sys.stderr,
    )
