"""`#DLSCHED` and `#SBATCH` lines: which are read, in which order they win, what is refused."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dlsched.client.submission.bulk import read_rows
from dlsched.client.submission.directives import read_directives
from dlsched.core.errors import BadInput


def read(*lines: str, ignore: bool = False) -> tuple[dict[str, str], tuple[str, ...]]:
    text = "\n".join(["#!/bin/bash", *lines, ""])
    found = read_directives("s.sh", text.encode(), ignore_unknown=ignore)
    return found.layer, found.notes


def test_the_forms_of_an_option() -> None:
    layer, notes = read(
        "#SBATCH -J a -t 10",
        "#SBATCH --nodes=2 --ntasks 4  # why",
        "#SBATCH -N3",
        "   # an indented remark",
        "",
        "#DLSCHED --comment 'two words' --hold --set a=1 --set b=2",
        "#SBATCHED is a remark",
    )
    assert notes == ()
    assert layer == {
        "name": "a",
        "time": "10",
        "nodes": "3",
        "ntasks": "4",
        "comment": "two words",
        "hold": "yes",
        "set": "a=1\nb=2",
    }


def test_dlsched_directives_precede_slurms_in_any_order() -> None:
    assert read("#DLSCHED --gpus 4", "#SBATCH --gres=gpu:8 -J x")[0] == {"gpus": "4", "name": "x"}


def test_only_the_first_block_counts_and_later_directives_cause_a_note() -> None:
    layer, notes = read("#SBATCH -J a", "echo", "#SBATCH -J b", "#DLSCHED --gpus 3")
    assert layer == {"name": "a"}
    assert notes == (
        "s.sh:4: #SBATCH after the first command is not read",
        "s.sh:5: #DLSCHED after the first command is not read",
    )


@pytest.mark.parametrize(
    ("line", "told"),
    [
        ("#SBATCH --licenses=1", "s.sh:2: #SBATCH --licenses: not supported"),
        ("#SBATCH --min-gpus=1", "s.sh:2: #SBATCH --min-gpus: not supported"),
        ("#DLSCHED --zzz", "s.sh:2: #DLSCHED --zzz: not supported"),
        ("#SBATCH foo", "s.sh:2: #SBATCH: 'foo' is not an option"),
        ("#SBATCH -J", "s.sh:2: -J: needs a value"),
        ("#SBATCH --job-name -- true", "s.sh:2: --job-name: needs a value"),
        ("#SBATCH --hold=yes", "s.sh:2: --hold: takes no value"),
        ("#SBATCH --exclusive=us", "s.sh:2: --exclusive: takes no value"),
        ("#SBATCH -J 'open", "s.sh:2: #SBATCH: no closing quotation"),
        ("#SBATCH --gres=nic:1", "s.sh:2: --gres: 'nic:1': gpu is the only resource known here"),
    ],
)
def test_refusals_name_the_line(line: str, told: str) -> None:
    with pytest.raises(BadInput) as error:
        read(line)
    assert str(error.value).startswith(told)


def test_unknown_directives_can_be_ignored() -> None:
    layer, notes = read("#SBATCH --licenses a@5 -J a --foo=1 -t 5", ignore=True)
    assert layer == {"name": "a", "time": "5"}
    assert notes == ("s.sh:2: #SBATCH --licenses: left out", "s.sh:2: #SBATCH --foo: left out")


def test_all_lines_that_are_refused_are_told_at_once() -> None:
    with pytest.raises(BadInput) as error:
        read("#SBATCH --licenses=a:1", "#SBATCH -J a", "#SBATCH --reboot --het-group=1")
    assert str(error.value) == (
        "s.sh:2: #SBATCH --licenses, s.sh:4: #SBATCH --reboot, s.sh:4: #SBATCH --het-group: "
        "not supported (--ignore-unknown-directives leaves them out)"
    )


def test_options_without_effect_here_are_named_in_one_note() -> None:
    lines = (
        "#SBATCH --cpu-bind=cores --wckey w --hint nomultithread",
        "#SBATCH --threads-per-core=1 --no-kill --propagate=STACK -J a --acctg-freq=30",
        "#SBATCH --profile none --quiet -v --get-user-env --kill-on-invalid-dep=yes",
    )
    layer, notes = read(*lines)
    assert layer == {"name": "a", "kill_on_invalid_dep": "yes"}
    assert notes == (
        "s.sh: without effect here: --cpu-bind, --wckey, --hint, "
        "--threads-per-core, --no-kill, --propagate, --acctg-freq, --profile, --quiet, -v, "
        "--get-user-env",
    )


def test_the_kind_of_exclusive_nodes_and_better_nodes_are_noted() -> None:
    layer, notes = read(
        "#SBATCH --exclusive=user --contiguous --gres-flags=enforce-binding",
        "#SBATCH --wait-all-nodes=1 --priority TOP -J a",
    )
    assert layer == {"name": "a", "exclusive": "yes"}
    assert notes == (
        "s.sh: without effect here: --exclusive=user, --contiguous, --gres-flags, "
        "--wait-all-nodes, --priority",
    )


def test_all_wrong_values_of_a_script_are_told_at_once() -> None:
    lines = (
        *(
            "-t abc",
            "--mem=10X",
            "--nodes=two",
            "--array=x",
            "--begin=whenever",
            "--exclusive=us",
        ),
        *("-J 'a", "--mail-type=NEVER", "--gres=shard:2", "--dependency=maybe:7", "--foo"),
    )
    with pytest.raises(BadInput) as error:
        read(*(f"#SBATCH {line}" for line in lines))
    assert "s.sh:8: #SBATCH: no closing quotation; " in str(error.value)
    places = re.findall(r"s\.sh:(\d+): (?:#SBATCH )?([-\w]+)", str(error.value))
    assert places == [
        *(("2", "-t"), ("3", "--mem"), ("4", "--nodes"), ("5", "--array"), ("6", "--begin")),
        *(("7", "--exclusive"), ("9", "--mail-type"), ("10", "--gres")),
        *(("11", "--dependency"), ("12", "--foo")),
    ]


def test_slurms_other_word_for_tasks_on_each_node() -> None:
    assert read("#SBATCH --tasks-per-node=2")[0] == {"ntasks_per_node": "2"}


@pytest.mark.parametrize(
    ("script", "told"),
    [
        (b"", "s.sh: is empty"),
        (b"echo\n", "s.sh:1: the first line must name the interpreter (#!/bin/bash)"),
        (b"#!\n", "s.sh:1: the first line must name the interpreter (#!/bin/bash)"),
        (b"#!/bin/sh\r\necho\r\n", "s.sh:1: has DOS line ends"),
        (b"#!/bin/sh\n\0", "s.sh: holds a NUL character"),
        (b"#!/bin/sh\n#SBATCH -J \xff\n", "s.sh:2: not valid UTF-8"),
        (b"#!/bin/sh\n" + b"#" * 2_000_000, "s.sh: 2000010 bytes; at most 1048576"),
    ],
)
def test_files_that_are_no_scripts_are_refused(script: bytes, told: str) -> None:
    with pytest.raises(BadInput) as error:
        read_directives("s.sh", script)
    assert str(error.value).startswith(told)


@given(st.binary(max_size=60))
def test_any_directive_line_is_read_or_refused_in_one_line(line: bytes) -> None:
    said = "s.sh: read"
    try:
        read_directives("s.sh", b"#!/bin/sh\n#DLSCHED " + line + b"\n", ignore_unknown=True)
    except BadInput as error:
        said = str(error)
    assert said.startswith("s.sh:")


@given(st.binary(max_size=80))
def test_any_file_of_rows_is_read_or_refused(data: bytes) -> None:
    for head in (b"", b"command,gpus\n", b'{"command":'):
        said = "f: read"
        try:
            assert list(read_rows("f", head + data))
        except BadInput as error:
            said = str(error)
        assert said.startswith("f:")


@pytest.mark.parametrize("line", ["#SBATCH hetjob", "#SBATCH packjob"])
def test_a_heterogeneous_job_is_refused(line: str) -> None:
    with pytest.raises(BadInput, match="heterogeneous jobs are not supported"):
        read(line)
