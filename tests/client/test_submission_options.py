"""GPUs, memory, gangs, dependencies, signals, patterns, variables: the pure grammars."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dlsched.client.submission.changes import changes
from dlsched.client.submission.dependencies import parse_dependencies
from dlsched.client.submission.exports import exported
from dlsched.client.submission.gpus import GpuWish, parse_gpus, parse_gres
from dlsched.client.submission.memory import memory_bytes, memory_text
from dlsched.client.submission.options import from_variables, merged
from dlsched.client.submission.output_patterns import of_slurm, output_pattern
from dlsched.client.submission.resources import resources
from dlsched.client.submission.warning_signals import parse_warning, signal_number
from dlsched.core.errors import BadInput
from dlsched.jobs.fields import OPTIONS


@pytest.mark.parametrize(
    ("text", "count", "types"),
    [
        ("8", 8, ()),
        ("0", 0, ()),
        ("A100:8", 8, ("a100",)),
        ("a100:8|v100:8", 8, ("a100", "v100")),
        ("rtx-2080.ti:1", 1, ("rtx-2080.ti",)),
    ],
)
def test_gpus(text: str, count: int, types: tuple[str, ...]) -> None:
    found = parse_gpus("-G", text)
    assert (found.count, found.types) == (count, types)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "x",
        "-1",
        "a100:",
        ":8",
        "a100:x",
        "1.5",
        "8|v100:8",
        "a100:8|v100:16",
        "9" * 20,
        "a b:1",
        "٨",
    ],
)
def test_texts_that_are_no_gpu_counts_are_refused(text: str) -> None:
    with pytest.raises(BadInput, match=r"^-G: "):
        parse_gpus("-G", text)


def test_gres() -> None:
    assert parse_gres("--gres", "gpu").count == 1
    assert parse_gres("--gres", "gpu:4").count == 4
    assert parse_gres("--gres", "gpu:A100:4").types == ("a100",)
    assert parse_gres("--gres", "gpu:a100").types == ("a100",)
    assert parse_gres("--gres", "gpu:1,gpu:a100:2") == GpuWish(count=3, types=("a100",))
    two = GpuWish(count=4, by_type="a100:2,v100:2")
    assert parse_gres("--gres", "gpu:V100:1,gpu:a100:2,gpu:v100:1") == two
    assert parse_gpus("--gpus-per-node", two.text, on_node=True) == two
    assert parse_gres("--gres", "gpu:a100:0,gpu:v100:2") == GpuWish(count=2, types=("v100",))
    for text in (
        "nic:1",
        "gpu:1,gpu:a100:1,gpu:v100:2",
        "gpu:a100:1|v100:1,gpu:v100:2",
        "gpu:1,nic:1",
        "",
        ",",
        "gpu:a:b:c",
        "gpu:x:y",
    ):
        with pytest.raises(BadInput, match=r"^--gres: "):
            parse_gres("--gres", text)


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({"gpus": "8"}, {"gpus": 8}),
        ({"gpus": "8", "nodes": "2"}, {"gpus": 8, "nodes": 2, "gpus_per_node": 4}),
        ({"gpus_per_node": "a100:4", "nodes": "2-2"}, {"gpus": 8, "nodes": 2, "gpus_per_node": 4}),
        ({"gpus_per_node": "4"}, {"gpus": 4, "nodes": 1, "gpus_per_node": 4}),
        ({"gpus": "8", "gpus_per_node": "4"}, {"gpus": 8, "nodes": 2, "gpus_per_node": 4}),
        ({"ntasks": "8", "ntasks_per_node": "4"}, {"nodes": 2, "cpus": 8}),
        ({"ntasks_per_gpu": "2", "gpus": "4"}, {"ntasks": 8, "gpus": 4}),
        ({"mem": "0", "gpus": "1"}, {"memory_bytes": None}),
        ({"nodes": "1-2", "gpus_per_node": "4"}, {"nodes": 1, "gpus": 4}),
        ({"nodes": "1-2", "gpus": "0"}, {"nodes": 1, "max_nodes": 2, "gpus": 0}),
        ({"gpus": "0", "cpus_per_task": "2"}, {"gpus": 0, "cpus": 2}),
        ({"ntasks_per_node": "1", "gpus": "8", "gpus_per_node": "4"}, {"nodes": 2, "ntasks": 2}),
        ({"ntasks_per_node": "4", "nodes": "2", "gpus_per_task": "1"},
         {"gpus": 8, "gpus_per_node": 4, "cpus": 8}),
        ({"ntasks": "2", "cpus_per_task": "3"}, {"cpus": 6}),
        ({"gpus": "4", "cpus_per_gpu": "6"}, {"cpus": 24}),
        ({"mem_per_gpu": "10G", "gpus": "8", "nodes": "2"}, {"memory_bytes": 40 << 30}),
        ({"mem_per_cpu": "1G", "ntasks": "4"}, {"memory_bytes": 4 << 30}),
        ({"share": "0.5"}, {"gpu_share": 0.5, "gpus": 1}),
        ({"share": "0.5", "gpus": "2"}, {"gpu_share": 0.5, "gpus": 2}),
        ({"gpus": "4", "min_gpus": "2", "max_gpus": "8"}, {"min_gpus": 2, "max_gpus": 8}),
        ({}, {"gpus": None, "nodes": None, "cpus": None}),
    ],
)  # fmt: skip
def test_gangs(options: dict[str, str], expected: dict[str, object]) -> None:
    found = resources(options)
    assert {key: getattr(found, key) for key in expected} == expected


@pytest.mark.parametrize(
    "options",
    [
        {"gpus": "7", "nodes": "2"},
        {"gpus": "8", "gpus_per_node": "3"},
        {"gpus": "8", "gpus_per_node": "4", "nodes": "3"},
        {"gpus_per_task": "1"},
        {"gpus": "3", "ntasks": "2", "gpus_per_task": "1"},
        {"nodes": "4-1"},
        {"nodes": "0"},
        {"share": "1"},
        {"share": "0.5", "exclusive": "yes"},
        {"min_gpus": "4", "max_gpus": "2"},
        {"gpus": "9", "max_gpus": "8"},
        {"adaptive": "yes", "nodes": "2"},
        {"fixed_batch": "yes", "gpus": "4", "gpus_per_node": "2"},
        {"max_gpus": "4", "share": "0.5"},
        {"min_gpus": "2", "exclusive": "yes"},
        {"mem": "1G", "mem_per_cpu": "1G"},
        {"mem_per_gpu": "1G"},
        {"cpus_per_gpu": "1"},
        {"ntasks": "99999999999999999999"},
    ],
)
def test_contradictions_are_one_line(options: dict[str, str]) -> None:
    with pytest.raises(BadInput) as told:
        resources(options)
    assert "--" in str(told.value) or "GPU types" in str(told.value)


def test_memory() -> None:
    assert memory_bytes("--mem", "512") == 512 << 20
    assert memory_bytes("--mem", "64g") == memory_bytes("--mem", "64GiB") == 64 << 30
    for text in ("", "0", "-1", "1X", "1.5G", "99999999P", "9" * 30, "G"):
        with pytest.raises(BadInput, match=r"^--mem: "):
            memory_bytes("--mem", text)
    assert [memory_text(amount) for amount in (200 << 30, 1536 << 20, 5)] == ["200G", "1.5G", "5B"]


def test_a_bare_id_among_dependencies_means_that_its_job_has_ended() -> None:
    """As on a real Slurm, which was asked."""
    for text, wanted in {
        "4": [("afterany", 4, None)],
        "4,5": [("afterany", 4, None), ("afterany", 5, None)],
        "afterok:4,5": [("afterok", 4, None), ("afterany", 5, None)],
        "singleton,4": [("singleton", 0, None), ("afterany", 4, None)],
        "4_3": [("afterany", 4, 3)],
    }.items():
        found = parse_dependencies("-d", text)
        assert [(each.kind, each.job, each.task) for each in found] == wanted
    with pytest.raises(BadInput, match=r"^-d: '4' is not known"):
        parse_dependencies("-d", "4:5")


@pytest.mark.parametrize(
    ("typed", "kept"),
    [
        ("log_%b.out", "log_%b.out"), ("%J-%4j", "%J-%4j"), ("%q.o", "%%q.o"), ("%3q", "%%3q"),
        ("%%", "%%"), ("100%", "100%%"), ("%%q", "%%q"), ("a%K%j%", "a%%K%j%%"),
    ],
)  # fmt: skip
def test_letters_that_slurm_does_not_know_stand_for_themselves(typed: str, kept: str) -> None:
    assert of_slurm(typed) == kept
    assert output_pattern("-o", kept) == kept


def test_dependencies() -> None:
    found = parse_dependencies("-d", "afterok:1:2_3,after:9+30,singleton")
    assert [(each.kind, each.job, each.task, each.delay_s) for each in found] == [
        ("afterok", 1, None, 0),
        ("afterok", 2, 3, 0),
        ("after", 9, None, 1800),
        ("singleton", 0, None, 0),
    ]
    either = parse_dependencies("-d", "afterany:1?afternotok:2")
    assert [each.or_next for each in either] == [True, False]


@pytest.mark.parametrize(
    "text",
    [
        *("", "afterok", "afterok:", "afterwards:1", "afterok:x", "afterok:1,afterany:2?after:3"),
        *("afterok:1+5", "after:1+x", "afterok:1_[2-3]", "afterok:0", "singleton:1", "expand:1"),
    ],
)
def test_malformed_dependencies(text: str) -> None:
    with pytest.raises(BadInput, match=r"^-d"):
        parse_dependencies("-d", text)


def test_signals() -> None:
    assert (signal_number("-s", "usr1"), signal_number("-s", "SIGKILL")) == (10, 9)
    assert signal_number("-s", "15") == 15
    found = parse_warning("--signal", "B:USR1@90")
    assert (found.number, found.before_s, found.script_only) == (10, 90, True)
    assert not found.at_preemption
    both = parse_warning("--signal", "RB:USR1")
    assert (both.script_only, both.overlaps_reservations) == (True, True)
    assert parse_warning("--signal", "P:USR1").at_preemption
    assert parse_warning("--signal", "12").before_s == 60
    for text in ("", "FOO@60", "Q:USR1", "USR1@", "USR1@x", "0@60", "99@60", "USR1@9999999"):
        with pytest.raises(BadInput):
            parse_warning("--signal", text)


def test_patterns() -> None:
    assert output_pattern("-o", "out/%4j-%A_%a.%N%%") == "out/%4j-%A_%a.%N%%"
    for text in ("%q", "a%", "", "a\nb", "%123j", "x" * 5000, "a\0b"):
        with pytest.raises(BadInput, match=r"^-o: "):
            output_pattern("-o", text)


def test_functions_that_bash_exports_go_along() -> None:
    module, odd = {"BASH_FUNC_module%%": "() {  echo $1\n}"}, {"BASH_FUNC_x": "", "a%%": ""}
    assert exported("--export", "ALL", {**module, **odd, "X": "1"}) == {
        **module,
        "BASH_FUNC_x": "",
        "X": "1",
    }
    assert exported("--export", "BASH_FUNC_module%%", module) == module
    assert exported("--export", "X", {**module, "X": "1"}) == {"X": "1"}


def test_exports() -> None:
    mine = {"HOME": "/h", "X": "1", "SLURM_JOB_ID": "7", "DLSCHED_RUN": "2", "RANK": "0"}
    assert exported("--export", "ALL", mine) == {"HOME": "/h", "X": "1", "RANK": "0"}
    assert exported("--export", "NONE", mine) == {}
    assert exported("--export", "X,Y=a=b,Z='p,q',GONE", mine) == {"X": "1", "Y": "a=b", "Z": "p,q"}
    assert exported("--export", "ALL,X=2", mine)["X"] == "2"
    assert "RANK" not in exported("--export", "ALL", {**mine, "DLSCHED_JOB_ID": "7"})
    for choice in ("1X", "a b=1", "A=\0", "A=\udcff", "A=" + "x" * 200_000):
        with pytest.raises(BadInput):
            exported("--export", choice, mine)


def test_layers() -> None:
    near, far = {"gpus": "4", "name": "a"}, {"gpus_per_node": "8", "name": "b", "time": "5"}
    assert merged(near, far) == {"gpus": "4", "name": "a", "time": "5"}


def test_variables_are_options_and_nothing_else() -> None:
    told = {"DLSCHED_SUBMIT_GRES": "gpu:a100:2", "DLSCHED_SUBMIT_HOLD": "1", "DLSCHED_GPUS": "9"}
    told |= {"DLSCHED_SUBMIT_DIR": "/x", "DLSCHED_SUBMIT_NO_REQUEUE": "yes"}
    assert from_variables(told) == {"gpus_per_node": "a100:2", "hold": "yes", "requeue": "no"}
    with pytest.raises(BadInput, match="DLSCHED_SUBMIT_GUPS"):
        from_variables({"DLSCHED_SUBMIT_GUPS": "1"})
    with pytest.raises(BadInput, match="neither yes nor no"):
        from_variables({"DLSCHED_SUBMIT_HOLD": "maybe"})


def test_no_word_names_two_options() -> None:
    words = [word for option in OPTIONS for word in option.words]
    assert len(words) == len(set(words))
    names = [option.name for option in OPTIONS]
    assert len(names) == len(set(names))


@given(st.text(max_size=25))
def test_any_text_is_read_or_refused_in_one_line(text: str) -> None:
    for read in (parse_gpus, parse_gres, parse_dependencies, parse_warning, memory_bytes):
        said = "--x: read"
        try:
            read("--x", text)
        except BadInput as error:
            said = str(error)
        assert said.startswith("--x")


def test_an_update_refuses_a_deadline_that_has_passed() -> None:
    with pytest.raises(BadInput, match=r"^--deadline: 2001-01-01T00:00 has passed$"):
        changes({"deadline": "2001-01-01T00:00"})
    assert changes({"deadline": ""}) == {"deadline_at": ""}
