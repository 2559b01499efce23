"""The quality of Lucid's models on its published measurements."""

from __future__ import annotations

import csv
import gzip
from collections import defaultdict

import numpy as np
import pytest

from dlsched.policies.learning.additive import AdditiveModel
from dlsched.policies.learning.tree import grow
from dlsched.policies.scheduling.lucid.classes import (
    NAMES,
    classes_of_pairs,
    classes_of_use,
    learned_limits,
)
from dlsched.policies.scheduling.lucid.load import DAY, features_of
from dlsched.policies.scheduling.lucid.options import LucidOptions
from tests.fidelity.lucid_cases import FOLDER

pytestmark = [
    pytest.mark.fidelity,
    pytest.mark.skipif(not FOLDER.exists(), reason=f"no folder {FOLDER} (set DLSCHED_DATA)"),
]
FEATURES = ("gpu_util", "gmem_util", "gmem", "amp")


def workloads() -> list[dict[str, str]]:
    with (FOLDER / "workload_profiles.csv").open() as file:
        return list(csv.DictReader(file))


def test_classes_from_pairs_agree_with_the_published_ones_as_far_as_they_were_computed() -> None:
    """Published classes were partly set by hand: 42 of 56 workloads with pairs agree (sheet)."""
    speeds = defaultdict(list)
    with gzip.open(FOLDER / "colocation_speeds.csv.gz", "rt") as file:
        for row in csv.DictReader(file):
            for half in "12":
                key = tuple(row[f"{name}{half}"] for name in ("model", "dataset"))
                key += (int(row[f"batchsize{half}"]), int(row[f"amp{half}"]))
                speeds[key].append(float(row[f"speed{half}"]))
    rows = workloads()
    keys = [(r["model"], r["dataset"], int(r["batchsize"]), int(r["amp"])) for r in rows]
    mean = np.array([np.mean(speeds[key]) if key in speeds else 0.0 for key in keys])
    found = classes_of_pairs(mean)
    published = np.array([int(row["label"]) for row in rows])
    has_pairs = np.array([key in speeds for key in keys])
    assert (found == published).sum() == 52
    assert (found == published)[has_pairs].sum() == 42
    assert has_pairs.sum() == 56


@pytest.mark.parametrize(("depth", "accuracy"), [(2, 0.818), (3, 0.848)])
def test_the_tree_tells_classes_as_well_as_the_sheet_says(depth: int, accuracy: float) -> None:
    rows = workloads()
    features = {name: np.array([float(row[name]) for row in rows]) for name in FEATURES}
    classes = np.array([int(row["label"]) for row in rows])
    tree = grow(features, classes, depth=depth, cost=1e-4)
    answers = [
        tree.answer({name: features[name][k] for name in FEATURES}) for k in range(len(rows))
    ]
    assert np.mean(answers == classes) == pytest.approx(accuracy, abs=5e-4)
    assert next(tree.lines(NAMES)) == "gmem_util <= 30.5:"
    if depth == 2:  # the defaults of the policy are this tree
        use = classes_of_use(features["gpu_util"], features["gmem_util"], LucidOptions())
        assert use.tolist() == answers
        limits = learned_limits(features["gpu_util"], features["gmem_util"], classes)
        defaults = LucidOptions()
        assert {name: round(limit, 1) for name, limit in limits.items()} == {
            name: getattr(defaults, name) for name in limits
        }


@pytest.mark.parametrize("what", ["job", "num"])
def test_the_load_is_predicted_no_worse_than_by_the_artifact(what: str) -> None:
    """Learned from the first 19 days, compared on the last nine; its model had five months."""
    with gzip.open(FOLDER / "venus_sept_throughput_pred.csv.gz", "rt") as file:
        rows = list(csv.DictReader(file))
    actual = np.array([float(row[f"submit_gpu_{what}"]) for row in rows])
    theirs = np.array([float(row[f"pred_gpu_{what}"]) for row in rows])
    features = features_of(actual, first_slot=DAY)  # a Tuesday
    cut = len(rows) * 2 // 3
    model = AdditiveModel.fit(
        {name: column[DAY:cut] for name, column in features.items()}, actual[DAY:cut]
    )
    found = model.predict({name: column[cut:] for name, column in features.items()})
    ours = np.abs(found - actual[cut:]).mean()
    assert ours <= np.abs(theirs[cut:] - actual[cut:]).mean()
    assert ours <= np.abs(theirs - actual).mean()
