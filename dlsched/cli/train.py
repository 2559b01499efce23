"""`dlsched train`: what policies decide by, learned from traces and measurements."""

from __future__ import annotations

import csv
import io
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal, cast

import typer

from dlsched.cli.option_groups import option
from dlsched.cli.train_lucid import lucid_command
from dlsched.cli.train_mlfs import mlfs_command
from dlsched.cli.typer_commands import CommandGroup
from dlsched.core.errors import BadInput

if TYPE_CHECKING:
    from simulate.learner.session import Point, Session
    from simulate.learner.worlds import World
    from simulate.settings import RunSettings
    from simulate.worlds.slots.world import Conditions

MOST_UPDATES, MOST_WINDOW, MOST_TRACES, MOST_HIDDEN = 1_000_000, 1_000, 1_000, 10_000
VALIDATION_TRACES = 4  # of those that are drawn, as in the published experiment

train_app = CommandGroup("Learn what policies decide by.")


@train_app.callback()
def _group() -> None:
    """Learn what policies decide by."""


@train_app.command("dl2")
def dl2_command(
    out: Annotated[Path, option("--out FILE", "The trained network; beside it FILE.state.")],
    traces: Annotated[
        list[Path] | None, typer.Argument(metavar="TRACE…", help="Traces to learn from.")
    ] = None,
    validate: Annotated[
        list[Path] | None,
        option("--validate TRACE", "A trace to be judged by; repeat it. [default: the TRACEs]"),
    ] = None,
    cluster: Annotated[
        str, option("--cluster SPEC", "Of replays, as `dlsched replay` takes it: 4x4:v100.")
    ] = "",
    profiles: Annotated[
        str, option("--profiles FILE", "Of replays: how fast jobs run on how many GPUs.")
    ] = "",
    trace_format: Annotated[str, option("--format NAME", "Of replays: of the traces.")] = "auto",
    round_s: Annotated[float, option("--round S", "Of replays: seconds of a round.")] = 1200.0,
    overhead: Annotated[
        float, option("--restart-overhead S", "Of replays: seconds of each start.")
    ] = 0.0,
    speeds: Annotated[
        Path | None, option("--speeds FILE", "Train for `dlsched slots`; as it takes it.")
    ] = None,
    nodes: Annotated[int, option("--nodes N", "Of slots.")] = 48,
    slot: Annotated[float, option("--slot S", "Of slots: seconds.")] = 1200.0,
    most: Annotated[int, option("--most-workers N", "Of slots: of a job.")] = 16,
    draw: Annotated[
        int, option("--draw N", "Of slots: draw N traces, and four more to be judged by.")
    ] = 0,
    draw_seed: Annotated[int, option("--draw-seed N", "Of the traces that are drawn.")] = 9973,
    seed: Annotated[int, option("--seed N", "Of everything else that is drawn.")] = 0,
    updates: Annotated[int, option("--updates N", "By rewards.")] = 1000,
    every: Annotated[int, option("--every N", "Updates between two validations.")] = 125,
    warmup: Annotated[
        str | None,
        option(
            "--warmup sl|none",
            "Imitate the baseline before (200 updates), or not. [default: sl; in slots none]",
        ),
    ] = None,
    window: Annotated[int, option("--window N", "Jobs that the network sees.")] = 20,
    hidden: Annotated[
        str, option("--hidden N,…", "Sizes of its layers. [default: 32; in slots 6 × window]")
    ] = "",
    curve: Annotated[
        Path | None, option("--curve FILE", "The learning curve, CSV: a row a validation.")
    ] = None,
    resume: Annotated[
        bool, option("--resume", "Go on from FILE.state, where the training was interrupted.")
    ] = False,
) -> None:
    """Train a network of DL2: numbers of GPUs in rounds, or of workers and servers in slots.

    The best network so far is kept. The same seed gives the same network on the same machine.
    """
    from dlsched.cli.extras import check_installed  # noqa: PLC0415

    for flag, value, high in (
        ("--updates", updates, MOST_UPDATES), ("--every", every, MOST_UPDATES),
        ("--window", window, MOST_WINDOW), ("--draw", draw or 1, MOST_TRACES),
    ):  # fmt: skip
        if not 1 <= value <= high:
            raise BadInput(f"{flag} must be from 1 to {high:,}, not {value}")
    if warmup not in ("sl", "none", None):
        raise BadInput(f"--warmup must be sl or none, not {warmup!r}")
    layers = _layers(hidden)
    check_installed("torch")
    import torch  # noqa: PLC0415

    from simulate.learner.session import Session, TrainingSettings  # noqa: PLC0415

    torch.set_num_threads(1)  # batches are small: more threads would only be slower
    files, judges = traces or [], validate or traces or []
    if speeds is not None:
        if cluster or profiles:
            raise BadInput("--speeds is for slots; --cluster and --profiles are for replays")
        from dlsched.cli.worlds.slots import slot_conditions  # noqa: PLC0415

        conditions = slot_conditions(nodes, slot, most)
        world: World = _slots(files, judges, speeds, conditions, (draw, draw_seed), window, seed)
    else:
        if draw:
            raise BadInput("--draw: only for slots (--speeds FILE)")
        settings = _replay_settings(round_s, overhead)
        world = _replays(files, judges, cluster, profiles, trace_format, settings, window, seed)
    chosen = TrainingSettings(
        seed=seed,
        warmup=cast("Literal['sl', 'none'] | None", warmup),
        updates=updates,
        every=every,
        hidden=layers,
    )
    session = Session(world, chosen)
    state = out.with_name(out.name + ".state")
    if resume:
        session.load(_content(state), str(state))
    _train(session, out, state, curve)


def _layers(text: str) -> tuple[int, ...]:
    try:
        found = tuple(int(word) for word in text.split(",") if word.strip())
    except ValueError:
        found = (0,)
    if not all(1 <= size <= MOST_HIDDEN for size in found):
        raise BadInput(f"--hidden: numbers from 1 to {MOST_HIDDEN:,} are needed, not {text!r}")
    return found


def _slots(
    files: list[Path],
    judges: list[Path],
    speeds: Path,
    conditions: Conditions,
    drawn: tuple[int, int],
    window: int,
    seed: int,
) -> World:
    import numpy as np  # noqa: PLC0415

    from simulate.learner.worlds import SlotTraces  # noqa: PLC0415
    from simulate.worlds.slots.jobs import drawn_jobs, read_jobs  # noqa: PLC0415
    from simulate.worlds.slots.speeds import read_speeds  # noqa: PLC0415

    surface = read_speeds(speeds, conditions.most + 1)
    count, draw_seed = drawn
    if bool(files) == bool(count):
        raise BadInput("give either traces or --draw N, to learn from")
    training, validation = ([read_jobs(file) for file in each] for each in (files, judges))
    if count:
        rng = np.random.RandomState(draw_seed)
        made = [
            drawn_jobs(60, arrivals=3, most_epochs=4000, rng=rng)
            for _ in range(VALIDATION_TRACES + count)
        ]
        validation, training = made[:VALIDATION_TRACES], made[VALIDATION_TRACES:]
    return SlotTraces(training, validation, surface, conditions, window=window, seed=seed)


def _replay_settings(round_s: float, overhead: float) -> RunSettings:
    from dlsched.composition.settings import Costs  # noqa: PLC0415
    from simulate.settings import RunSettings  # noqa: PLC0415

    if not 0 <= overhead < float("inf"):
        raise BadInput(f"--restart-overhead must be 0 or more, not {overhead:g}")
    return RunSettings(
        policy="dl2", round_s=round_s, costs=Costs(restart_overhead=overhead), record=False
    )


def _replays(
    files: list[Path],
    judges: list[Path],
    cluster: str,
    profiles: str,
    trace_format: str,
    settings: RunSettings,
    window: int,
    seed: int,
) -> World:
    from simulate.clusters.cluster_files import open_cluster  # noqa: PLC0415
    from simulate.learner.replays import ReplayedTraces  # noqa: PLC0415
    from simulate.profiles.open import open_profiles  # noqa: PLC0415
    from simulate.traces.open import open_trace  # noqa: PLC0415

    for flag, text in (("TRACE", files), ("--cluster", cluster), ("--profiles", profiles)):
        if not text:
            raise BadInput(f"{flag} is missing; a training in replays needs it")
    throughputs = open_profiles(profiles).throughputs
    if throughputs is None:
        raise BadInput(f"--profiles {profiles}: holds no throughputs")
    training, validation = (
        [open_trace(file, trace_format) for file in each] for each in (files, judges)
    )
    return ReplayedTraces(
        training,
        validation,
        open_cluster(cluster),
        settings,
        throughputs,
        window=window,
        seed=seed,
    )


def _content(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise BadInput(f"--resume: {path}: {error.strerror or error}") from None


def _train(session: Session, out: Path, state: Path, curve: Path | None) -> None:
    """Train, tell of each validation, and save what there is now and then."""
    from dlsched.cli.output.file_output import save  # noqa: PLC0415
    from dlsched.composition.network_files import network_bytes  # noqa: PLC0415

    began, baseline = time.process_time(), session.baseline.jct
    terminal = sys.stderr.isatty()

    def tell(point: Point) -> None:
        gain = point.verdict.jct / baseline - 1
        cpu = time.process_time() - began
        typer.echo(
            f"{point.phase:<9} {point.updates:>6} updates  average JCT "
            f"{point.verdict.jct:.6g}, baseline {baseline:.6g} ({gain:+.1%}), {cpu:.0f} s of CPU"
        )

    def count(phase: str, updates: int) -> None:
        if terminal:
            print(f"\r{phase} {updates}", end="\r", file=sys.stderr, flush=True)

    def keep() -> None:
        assert session.best is not None, "it has been validated"
        save([network_bytes(session.best)], str(out))
        save([session.state_bytes()], str(state))
        if curve is not None:
            save([_curve(session).encode()], str(curve))

    session.run(tell, count, keep)
    best = min(session.curve, key=lambda point: point.verdict.jct)
    print(
        f"dlsched: {out}: the network after {best.updates} updates ({best.phase}), "
        f"{best.verdict.jct / baseline - 1:+.1%} of the baseline's average JCT",
        file=sys.stderr,
    )


def _curve(session: Session) -> str:
    text = io.StringIO()
    table = csv.writer(text, lineterminator="\n")
    table.writerow(("phase", "updates", "avg_jct", "makespan", "avg_reward", "baseline_avg_jct"))
    for point in session.curve:
        verdict = point.verdict
        numbers = (verdict.jct, verdict.makespan, verdict.reward, session.baseline.jct)
        table.writerow((point.phase, point.updates, *map(repr, numbers)))
    return text.getvalue()


train_app.command("lucid")(lucid_command)
train_app.command("mlfs")(mlfs_command)
