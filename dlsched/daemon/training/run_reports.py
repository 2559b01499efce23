"""What runs report of their training: steps, losses, times; speeds and profiles are made of it."""

from __future__ import annotations

import logging
import math

from dlsched.core.cluster.description import ANY_TYPE
from dlsched.daemon.cluster import Cluster
from dlsched.daemon.live.live_state import LiveState
from dlsched.db.speeds import SpeedKey
from dlsched.db.trainings import TrainingRow
from dlsched.protocol.ledger import Run
from dlsched.rpc.v1.control_pb2 import RunReport
from dlsched.system.clock import wall

log = logging.getLogger("dlsched.daemon")
MOST_IGNORED = 1_000_000  # invalid messages that one report may count


def note_steps(
    cluster: Cluster,
    run: Run,
    step: int,
    executed_s: float,
    loss: float = math.nan,
    accuracy: float = math.nan,
) -> None:
    """Note how far a run is, and measure its speed.

    Args:
        cluster: with the live state and the speeds.
        run: the run that reports.
        step: the steps that its job has done.
        executed_s: seconds that the run has executed.
        loss: at that step; NaN when the run did not report it.
        accuracy: likewise.
    """
    live, job = cluster.live, run.key.job
    live.note_steps(job, step, loss, accuracy)
    key = None if run.stop is not None or run.suspended else speed_key(live, run)
    least_s = cluster.settings.round.measure_s
    rate = cluster.speeds.rate_of(run.key.run_id, key, step, executed_s, least_s)
    if rate is not None and key is not None:
        cluster.driver.note(*cluster.speeds.measured(key, rate, wall()))


def speed_key(live: LiveState, run: Run) -> SpeedKey | None:
    """What a measured speed of a run is stored under.

    None where its GPUs are of several types or of an unknown type, or shared by more than two jobs.
    """
    kinds, job = live.constraints.kinds, run.key.job
    kind, place = kinds.get(job), live.nodes.place_of(run)
    if kind is None or not kind[0] or place.gpu_type in ("", ANY_TYPE) or not place.gpus:
        return None
    partners = [kinds.get(other) for other in live.co_located(job)]
    if not partners:
        return SpeedKey(*kind, place.gpu_type, place.gpus)
    partner = partners[0] if len(partners) == 1 else None
    if partner is None or not partner[0]:
        return None
    return SpeedKey(*kind, place.gpu_type, place.gpus, *partner)


def note_training(cluster: Cluster, run: Run, report: RunReport) -> tuple[int, int] | None:
    """Note what an elastic job reports of its training.

    Returns:
        the batch size that would be better (see `TrainingProfile.better_batch`); None for none.
    """
    profiles, job, changed = cluster.trainings, run.key.job, False
    if report.ignored > 0:
        profiles.ignore(job, min(report.ignored, MOST_IGNORED))
    if report.HasField("restart_s"):
        profiles.restarted(job, report.restart_s)
        changed = True
    if report.HasField("save_s"):
        profiles.saved(job, report.save_s)
        changed = True
    batch: tuple[int, int] | None = None
    if report.HasField("training"):
        place, changed = cluster.live.nodes.place_of(run), True
        why = profiles.take(job, run.key.run, place, report.training)
        if why:
            log.info("event=report-ignored job=%s run=%s why=%r", job, run.key.run, why)
        elif run.stop is None:
            batch = profiles.of(job).better_batch(place)
    if changed and profiles.of(job).limits is not None:
        row = TrainingRow(job=job, known=profiles.of(job).known(), at=wall())
        cluster.driver.note(row)
    return batch
