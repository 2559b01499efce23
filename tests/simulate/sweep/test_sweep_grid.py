from __future__ import annotations

import pytest

from dlsched.core.errors import BadInput
from simulate.settings import RunSettings
from simulate.sweep import Dimensions, expand, share_out


def shared(*options, **dimensions):
    runs = expand(Dimensions(**dimensions), RunSettings(options=options))
    return [run.settings.options for run in share_out(runs)]


def test_runs_are_numbered_by_trace_parts_load_and_seed():
    dimensions = Dimensions(policy=("fifo", "las"), load=(0.8, 1.0), seed=(1, 2))
    runs = expand(dimensions, RunSettings(), traces=2)
    assert [run.number for run in runs] == list(range(16))
    told = [(run.trace, run.settings.policy, run.settings.load, run.settings.seed) for run in runs]
    assert told[:5] == [
        (0, "fifo", 0.8, 1),
        (0, "fifo", 0.8, 2),
        (0, "fifo", 1.0, 1),
        (0, "fifo", 1.0, 2),
        (0, "las", 0.8, 1),
    ]
    assert told[8][0] == 1


def test_a_label_names_the_parts_that_the_study_varies():
    dimensions = Dimensions(
        policy=("fifo", "las"), placement=("count", "yarn"), estimate=("oracle",)
    )
    runs = expand(dimensions, RunSettings())
    assert [run.settings.label for run in runs] == [
        "fifo/count", "fifo/yarn", "las/count", "las/yarn",
    ]  # fmt: skip
    assert runs[0].title == "fifo/count, seed 0"
    assert runs[0].settings.estimate == "oracle"


def test_a_bare_option_goes_to_the_runs_that_have_it():
    assert shared("limits=5", policy=("fifo", "tiresias")) == [(), ("limits=5",)]
    assert shared("guard_s=5", policy=("fifo", "tiresias", "las")) == [
        ("guard_s=5",),
        (),
        ("guard_s=5",),
    ]


def test_an_option_of_one_policy_goes_to_it_alone_by_any_of_its_names():
    assert shared("las.guard_s=5", policy=("fifo", "las")) == [(), ("las.guard_s=5",)]
    assert shared("first-fit.guard_s=5", policy=("fjf", "fifo")) == [("fjf.guard_s=5",), ()]


def test_an_option_of_a_stage_goes_to_the_parts_that_have_it():
    assert shared("admission.threshold=2", policy=("fifo",), admission=("", "load-threshold")) == [
        (),
        ("admission.threshold=2",),
    ]


def test_semantics_goes_to_every_run_and_a_later_option_wins():
    assert shared("semantics=blox", "semantics=tiresias", policy=("fifo", "las")) == [
        ("semantics=tiresias",),
        ("semantics=tiresias",),
    ]


@pytest.mark.parametrize(
    ("option", "message"),
    [
        ("x=1", "-o x: neither fifo, tiresias nor another part of this call have it; known: "),
        ("las.guard_s=1", "-o las.guard_s: 'las' names no part of this call; known: fifo, tires"),
        ("tiresias.x=1", "-o tiresias.x: tiresias has no option 'x'; known: clock, "),
        ("placement.x=1", "-o placement.x: placement has no option 'x'; known: none"),
        ("x", "-o 'x' does not read KEY=VALUE"),
    ],
)
def test_an_option_that_no_run_has_is_refused(option, message):
    with pytest.raises(BadInput) as refused:
        shared(option, policy=("fifo", "tiresias"))
    assert str(refused.value).startswith(message)


@pytest.mark.parametrize(
    ("option", "policy", "names"),
    [
        ("marginal=paper", "elasticflow", "elasticflow or elasticflow-edf"),
        ("queue=one", "gavel", "gavel or shockwave"),
    ],
)
def test_an_option_of_a_published_simulator_is_said_with_its_semantics(option, policy, names):
    with pytest.raises(BadInput, match=f"part of this call has it \\(-o semantics={names} has it"):
        shared(option, policy=(policy,))
