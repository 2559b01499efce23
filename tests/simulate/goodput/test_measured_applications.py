"""Reading profiles of applications, and what lies between their measurements."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest

from dlsched.core.errors import BadInput
from simulate.goodput.application import split_batch
from simulate.goodput.files import holds_applications, read_applications
from simulate.goodput.step_times import ring_of

Folder = Callable[..., Path]
Lines = list[str]


def test_a_folder_is_read(profile_folder: Folder, tmp_path: Path) -> None:
    folder = profile_folder()
    assert holds_applications(folder)
    assert not holds_applications(tmp_path)
    toy = read_applications(folder)["toy"]
    assert (toy.initial, toy.maximum, toy.local_min, toy.local_max, toy.epochs) == (
        *(16, 128, 4, 32),
        3,
    )
    assert toy.work == 300
    assert toy.limits.fixed is False
    assert toy.most_gpus == 32
    fixed = read_applications(folder)["fixed"]
    assert (fixed.fixed_batch, fixed.most_gpus, fixed.limits.fixed) == (64, 1, True)


def test_its_digest_changes_with_any_measurement(profile_folder: Folder) -> None:
    before = read_applications(profile_folder())["toy"].digest
    assert read_applications(profile_folder())["toy"].digest == before
    folder = profile_folder(validation=lambda lines: [x.replace(",32.0", ",33.0") for x in lines])
    assert read_applications(folder)["toy"].digest != before


def test_step_times_between_measured_sizes(profile_folder: Folder) -> None:
    times = read_applications(profile_folder())["toy"].times
    assert times.at((1,), 12).step_s == pytest.approx(0.22 + 1e-5)
    assert times.at((1, 1), 6) == pytest.approx((0.26, 0.1))


def test_rotations_of_a_shape_are_the_same_ring(profile_folder: Folder) -> None:
    times = read_applications(profile_folder())["toy"].times
    assert ring_of((2, 1, 1)) == ring_of((1, 2, 1)) == (1, 1, 2)
    assert times.at((2, 1, 1), 8) == times.at((1, 1, 2), 8)
    assert times.at((3, 1), 8) == times.at((1, 3), 8)


def test_a_shape_that_was_not_measured_lies_between_others(profile_folder: Folder) -> None:
    times = read_applications(profile_folder())["toy"].times
    found = times.at((2, 2, 2, 2), 18)
    assert found == pytest.approx((1.05, 0.75))


@pytest.mark.parametrize(
    ("shape", "local"), [((1,), 2), ((1,), 33), ((4, 4, 4, 4, 4, 4), 8), ((8,) * 20, 8)]
)
def test_outside_of_all_measurements_there_is_no_time(
    profile_folder: Folder, shape: tuple[int, ...], local: int
) -> None:
    times = read_applications(profile_folder())["toy"].times
    with pytest.raises(BadInput, match=f"the profile of toy has no time of {local} samples"):
        times.at(shape, local)


def test_gradients_between_measured_batch_sizes(profile_folder: Folder) -> None:
    def noisier(lines: Lines) -> Lines:
        return [x.replace("1.0,32.0", "2.0,64.0") if ",64," in x else x for x in lines]

    learning = read_applications(profile_folder(validation=noisier))["toy"].learning
    sqr, var = learning.gradients(40)
    assert (sqr[0], var[0]) == (1.25, 40.0)
    assert learning.gradients(64)[1].tolist() == [64.0] * 3
    assert learning.steps_by(48, 0) == pytest.approx(37.5)
    with pytest.raises(BadInput, match="batches of 16 to 128 samples, none around 129"):
        learning.gradients(129)


def test_a_batch_is_split_over_gpus_and_passes(profile_folder: Folder) -> None:
    toy = read_applications(profile_folder())["toy"]

    def split(batch: float, replicas: int) -> tuple[int, int, int]:
        found = split_batch(batch, replicas, toy)
        return found.local, found.accumulation, found.batch

    assert split(16, 1) == (16, 0, 16)
    assert split(20, 1) == (10, 1, 20)  # one GPU with more than the initial batch: two passes
    assert split(128, 3) == (21, 1, 126)  # not more than the largest batch
    assert split(100, 3) == (17, 1, 102)
    assert split(64, 4) == (16, 0, 64)


def replaced(old: str, new: str) -> Callable[[Lines], Lines]:
    return lambda lines: [line.replace(old, new) for line in lines]


def edited(place: int, new: str) -> Callable[[Lines], Lines]:
    return lambda lines: [*lines[:place], new, *lines[place + 1 :]]


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        (
            {"placements": edited(1, "toy,1,4,nan,0.01")},
            r"placements.csv:2: step_time must be a number from 0 up, not nan",
        ),
        ({"placements": edited(1, "toy,1,4,0,0")}, r"placements.csv:2: step_time must be above 0"),
        (
            {"placements": edited(1, "toy,1,4,0.1,0.2")},
            r"placements.csv:2: sync_time 0.2 must be below step_time 0.1",
        ),
        (
            {"placements": edited(1, "toy,1,4.5,0.2,0.1")},
            r"placements.csv:2: local_bsz must be a whole number from 1 up, not 4.5",
        ),
        (
            {"placements": edited(2, "toy,1,4,0.2,0.1")},
            r"placements.csv:3: toy on 1 with 4 samples is there twice",
        ),
        (
            {"placements": edited(1, "toy,1-1,4,0.2,0.1")},
            r"placements.csv:2: placement must be digits from 1 to 9, not '1-1'",
        ),
        (
            {"placements": lambda lines: [lines[0], *lines[-4:]]},
            r"applications.csv:2: toy has no step times in .*placements.csv",
        ),
        ({"placements": lambda lines: None}, r"needs placements.csv or placements.csv.gz"),
        ({"placements": replaced("step_time", "steps")}, r"placements.csv:1: .*step_time"),
        (
            {"scalability": edited(1, "toy,4,2,4,0.9,0.7")},
            r"scalability.csv:2: 2 replicas cannot be on 4 nodes",
        ),
        (
            {"validation": edited(2, "toy,16,1,99.0,200,1.0,32.0")},
            r"validation.csv:3: toy with batches of 16: progress must grow, not be 99",
        ),
        (
            {"validation": edited(2, "toy,16,1,200.0,100,1.0,32.0")},
            r"validation.csv:3: toy with batches of 16: iteration must grow, not be 100",
        ),
        (
            {"validation": edited(2, "toy,16,2,200.0,200,1.0,32.0")},
            r"validation.csv:3: toy with batches of 16: epoch_index must be 1 here, not 2",
        ),
        (
            {"validation": edited(2, "toy,16,1,200.0,200,inf,32.0")},
            r"validation.csv:3: .*grad_sqr",
        ),
        (
            {"validation": edited(2, "toy,16,1,200.0,200,1.0,0")},
            r"validation.csv:3: toy with batches of 16: grad_var must be above 0",
        ),
        (
            {"applications": edited(1, "toy,16,8,4,32,3,")},
            r"applications.csv:2: toy: the maximum batch size 8 is below the initial 16",
        ),
        (
            {"applications": edited(1, "toy,16,128,64,32,3,")},
            r"applications.csv:2: toy: the smallest local batch size 64 is above the largest, 32",
        ),
        (
            {"applications": edited(1, "toy,16,128,4,32,9,")},
            r"applications.csv:2: toy ends after 9 epochs, its validation runs have 3",
        ),
        (
            {"applications": edited(1, "toy,8,128,4,32,3,")},
            r"applications.csv:2: toy begins with batches of 8, its validation runs have 16 to 128",
        ),
        (
            {"applications": edited(1, "toy,16.5,128,4,32,3,")},
            r"applications.csv:2: init_batch_size must be a whole number, not 16.5",
        ),
        (
            {"applications": edited(1, "toy,16,128,0,32,3,")},
            r"the smallest local batch size must be a number from 1 up, not 0",
        ),
        (
            {"applications": edited(2, "toy,16,128,4,32,3,")},
            r"applications.csv:3: toy is there twice",
        ),
        ({"applications": lambda lines: lines[:1]}, r"applications.csv: .*"),
    ],
)
def test_what_cannot_be_is_refused_in_one_line(
    profile_folder: Folder,
    changed: dict[str, Callable[[Lines], Lines | None]],
    message: str,
) -> None:
    folder = profile_folder(**changed)
    with pytest.raises(BadInput) as refused:
        read_applications(folder)
    assert "\n" not in str(refused.value)
    assert re.search(message, str(refused.value)), str(refused.value)
