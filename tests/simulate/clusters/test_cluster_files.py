from __future__ import annotations

import re
from pathlib import Path

import pytest

from dlsched.core.cluster.site_rules import live_only
from dlsched.core.errors import BadInput
from simulate.clusters.cluster_files import open_cluster

FILE = """
[[nodes]]
name = "n[1-2]"
gpus = 8
gpu_type = "v100"
cpus = 96
memory_gb = 512
rack = "r1"

[[nodes]]
count = 2
gpus = 4
gpu_type = "k80"

[[vcs]]
name = "vision"
nodes = "n1"

[[vcs]]
name = "speech"
gpus = 6
guaranteed = 4
borrow = true

[[partitions]]
name = "debug"
nodes = "n[1-2]"
max_time = "1:00:00"

[topology]
"""


@pytest.fixture
def write(tmp_path):
    def written(text, name="c.toml"):
        path = tmp_path / name
        path.write_text(text)
        return path

    return written


def test_a_spec_and_a_file_describe_the_same(write):
    assert open_cluster("2x8:v100").total_gpus == 16
    cluster = open_cluster(str(write(FILE)))
    assert cluster.names == ("n1", "n2", "n3", "n4")
    assert cluster.gpus.tolist() == [8, 8, 4, 4]
    assert cluster.gpu_types == ("v100", "k80")
    assert cluster.vcs["vision"].nodes == ("n1",)
    assert (cluster.vcs["speech"].gpus, cluster.vcs["speech"].guaranteed) == (6, 4)
    assert cluster.nodes[0].rack == "r1"


def test_the_example_of_the_guide_is_read(write):
    guide = Path(__file__).parents[3] / "docs" / "clusters.md"
    (example,) = re.findall(r"```toml\n(.*?)```", guide.read_text(), re.DOTALL)
    cluster = open_cluster(str(write(example)))
    assert cluster.total_gpus == 80
    assert set(cluster.vcs) == {"vision", "speech", "speech-interns"}


def test_a_spec_may_be_longer_than_a_file_name():
    assert open_cluster("+".join(["1x4:v100"] * 100)).total_gpus == 400


def test_an_existing_file_needs_no_ending(write):
    assert open_cluster(str(write("[[nodes]]\ngpus = 2\n", "cluster"))).total_gpus == 2


BROKEN = {
    "[[nodes]]\ngpus = = 4\n": ":2: not TOML: Invalid value (column 8)",
    '[[nodes]]\nname = "a\n': ":2: not TOML: Illegal character",
    'x = """': ": not TOML: Unterminated string",
    "": ": no [[nodes]]; give at least one with gpus = N",
    "[nodes]\ngpus = 4\n": ": nodes must be given as [[nodes]], a table for each",
    "nodes = 4\n": ": nodes must be given as [[nodes]], a table for each",
    "[[node]]\ngpus = 4\n": ": table 'node' is not known; known: ",
    "[[nodes]]\ngpu = 4\n": ": [[nodes]] 1: key 'gpu' is not known; known: ",
    "[[nodes]]\ncount = 4\n": ": [[nodes]] 1: gpus must be a whole number from 1 to 1,024, not 0",
    "[[nodes]]\ngpus = true\n": "not True",
    "[[nodes]]\ngpus = 4\ncount = 2.5\n": "count must be a whole number",
    "[[nodes]]\ngpus = 4\ncount = 999999999\n": "count must be a whole number from 1 to 100,000",
    '[[nodes]]\ngpus = 4\nname = "n[1-99999999]"\n': "more than 100,000 hosts",
    '[[nodes]]\ngpus = 4\nname = "n[2-1]"\n': "'2-1' runs backwards",
    '[[nodes]]\ngpus = 4\n[[vcs]]\nname = "a"\nnodes = "n9"\n': ": [[vcs]] 1: node n9 does not",
    '[[nodes]]\ngpus = 4\n[[vcs]]\nname = "a"\n': "give either gpus (a quota) or nodes",
    '[[nodes]]\ngpus = 4\n[[partitions]]\nname = "a"\nnodes = "n9"\n': "node n9 does not exist",
    '[[nodes]]\ngpus = 4\n[[partitions]]\nname = "a"\nmax = 1\n': "key 'max' is not known",
    "[[nodes]]\ngpus = 4\n[[partitions]]\n": ": [[partitions]] 1: name is missing",
    '[[nodes]]\ngpus = 4\n[[classes]]\nname = "a"\ngpus = 1.5\n': (
        ": [[classes]] 1: gpus must be a whole number from 0 on, not 1.5"
    ),
    '[[nodes]]\ngpus = 4\n[[classes]]\nname = "a"\ndefault = "yes"\n': (
        ": [[classes]] 1: default must be true or false, not 'yes'"
    ),
    '[[nodes]]\ngpus = 4\n[[classes]]\nname = "a"\nmax_gpus = 1\n': (
        ": [[classes]] 1: key 'max_gpus' is not known; known: "
    ),
    '[[nodes]]\ngpus = 4\n[[classes]]\nname = "a"\ndefault = true\n'
    '[[classes]]\nname = "b"\ndefault = true\n': ": class b: class a is the default already",
}


def test_classes_may_have_all_keys_of_the_daemons_configuration(write):
    (config,) = re.findall(
        r"^\| `\[\[classes\]\]` .*?: (`name`.*) \|$",
        (Path(__file__).parents[3] / "docs" / "daemon.md").read_text(),
        re.MULTILINE,
    )
    values = {"name": '"a"', "preempts": "[]", "users": '["u"]', "accounts": '["x"]'}
    lines = [f"{key} = {values.get(key, 2)}" for key in re.findall(r"`(\w+)`", config)]
    text = "\n".join(["[[nodes]]", "gpus = 4", "[[classes]]", *lines])
    cluster = open_cluster(str(write(text.replace("default = 2", "default = true"))))
    (found,) = cluster.rules.classes
    assert (found.gpus, found.gpus_per_user, found.is_default) == (2, 2, True)
    assert live_only(found) == (
        *("grace_s", "max_time_s", "jobs", "jobs_per_user", "users", "accounts"),
    )


@pytest.mark.parametrize("text", BROKEN)
def test_a_broken_file_is_one_line_that_names_it(write, text):
    path = write(text)
    with pytest.raises(BadInput) as refused:
        open_cluster(str(path))
    assert str(refused.value).startswith(str(path))
    assert BROKEN[text] in str(refused.value)
    assert "\n" not in str(refused.value)


def test_a_name_of_no_file_is_reported_as_such(tmp_path, write):
    with pytest.raises(BadInput, match="no such file"):
        open_cluster("nowhere.toml")
    with pytest.raises(BadInput, match="no such file"):
        open_cluster("a/b")
    with pytest.raises(BadInput, match="a folder; give a TOML file"):
        open_cluster(str(tmp_path))
    path = write("")
    path.write_bytes(b"\xff\xfe")
    with pytest.raises(BadInput, match="not UTF-8"):
        open_cluster(str(path))


@pytest.mark.parametrize("spec", ["999999999x8", "1x9999999999", "60000x1+60000x1"])
def test_an_absurd_spec_is_refused_before_it_fills_the_memory(spec):
    with pytest.raises(BadInput, match="at most 100,000 nodes of at most 1,024 GPUs"):
        open_cluster(spec)
