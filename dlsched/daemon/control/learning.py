"""What is believed of a job's training, for who looks at the job."""

from __future__ import annotations

from dlsched.daemon.cluster import Cluster
from dlsched.daemon.trainings import Expected, Place, Training
from dlsched.protocol.ledger import Run
from dlsched.rpc.v1 import control_pb2

__all__ = ["training_view"]


def training_view(
    cluster: Cluster, training: Training, run: Run | None
) -> control_pb2.TrainingView | None:
    """A training as it is shown; None for one that has told nothing.

    Args:
        cluster: whose nodes say what one more GPU would be.
        training: what is known.
        run: the job's live one; None: it has none, and is shown where it was last.
    """
    limits = training.limits
    if limits is None or training.place is None:
        return None
    place = training.place if run is None else cluster.training_place(run)
    view = control_pb2.TrainingView(
        gpu_type=place.gpu_type,
        observations=training.observations,
        initial=int(limits.initial),
        maximum=int(limits.maximum),
        local_min=int(limits.local_min),
        local_max=int(limits.local_max),
        may_accumulate=bool(limits.accumulation),
        fixed=bool(limits.fixed),
        batch=control_pb2.Batch(local=training.local, accumulation=training.accumulation),
        nodes=training.place.nodes,
        replicas=training.place.gpus,
        progress=training.progress,
        ignored=training.ignored,
    )
    model = training.models.get(place.gpu_type)
    if model is not None:
        view.model.extend(float(number) for number in model)
    if training.gradients is not None:
        view.gradient_sqr, view.gradient_var = (float(x) for x in training.gradients)
    if training.restarts:
        view.restart_s = training.restart_s
    if training.saves:
        view.save_s = training.save_s
    for gpus in (place.gpus - 1, place.gpus, place.gpus + 1):
        expected = training.expected(_with(cluster, place, gpus))
        if expected is not None:
            view.sizes.append(_size(expected))
    return view


def _with(cluster: Cluster, place: Place, gpus: int) -> Place:
    """Another number of GPUs, on no more nodes than that needs."""
    machines = cluster.board.machines
    largest = max((len(m.gpus) for m in machines.all() if m.gpu_type == place.gpu_type), default=1)
    nodes = max(-(-gpus // max(largest, 1)), 1)
    return place._replace(nodes=place.nodes if gpus == place.gpus else nodes, gpus=gpus)


def _size(expected: Expected) -> control_pb2.ExpectedGoodput:
    return control_pb2.ExpectedGoodput(
        gpus=expected.place.gpus,
        nodes=expected.place.nodes,
        goodput=expected.goodput,
        throughput=expected.throughput,
        batch=control_pb2.Batch(local=expected.local, accumulation=expected.accumulation),
    )
