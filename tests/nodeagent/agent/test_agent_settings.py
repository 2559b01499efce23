"""Options and TOML of an agent: what is read, what is refused, in one line."""

from __future__ import annotations

from pathlib import Path

import pytest

from dlsched.core.errors import BadInput
from dlsched.nodeagent.agent.serving import advertised_address
from dlsched.nodeagent.agent.settings import read_settings
from dlsched.nodeagent.gpus.fake import FakeGpus, fake_uuid
from dlsched.nodeagent.ranks.job_environment import compact_names

ENOUGH = ("--name", "n1", "--daemon", "localhost:7817")


def test_options_win_over_the_file(tmp_path: Path) -> None:
    file = tmp_path / "agent.toml"
    file.write_text('daemon = ["a:1", "b:2"]\nname = "n7"\n[timing]\nbeat_s = 2.0\n')
    found = read_settings(["--config", str(file), "--name", "n8"])
    assert (found.name, found.daemon, found.timing.beat_s) == ("n8", ("a:1", "b:2"), 2.0)
    assert read_settings([*ENOUGH, "--daemon", "a:1,b:2"]).daemon == ("a:1", "b:2")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("mininum_uid = 5\n", "(did you mean 'minimum_uid'?)"),
        ("minimum_uid = 'x'\n", "minimum_uid is 'x': expected int"),
        ("minimum_uid = -5\n", "minimum_uid is -5: 0 or more is expected"),
        ("minimum_uid = true\n", "minimum_uid is True: expected int"),
        ("minimum_uid = 4294967295\n", "minimum_uid is 4294967295: 0 or more"),
        ("fake_cpus = -1\n", "fake_cpus is -1: 0 or more"),
        ("fake_memory_gb = nan\n", "fake_memory_gb is nan: 0 or more"),
        ("gpu_look_s = 0\n", "gpu_look_s is 0: seconds, above 0"),
        ("start_limit_s = inf\n", "start_limit_s is inf: seconds, above 0"),
        ("allow_root = 1\n", "allow_root is 1: expected bool"),
        ("[timing]\nbeat = 1\n", "setting 'beat' is not known; known: "),
        ("[timing]\nmargin_s = 1.0\n", "margin_s is 1, needs at least"),
        ("[tls]\nca = 'x'\n", "tls"),
        ("launcher = 'docker'\n", "launcher 'docker'"),
        ("foreign = 'kill'\n", "foreign 'kill'"),
        ("[turns]\norder = 'lifo'\n", "turns: order 'lifo': fifo, srtf, fair, rr, pack"),
        ("[turns]\nmemory_gb = -1\n", "turns: memory_gb is -1: a number 0 or more is expected"),
        ("[turns]\npatience_s = 0\n", "turns: patience_s is 0: a number above 0 is expected"),
        ("[turns]\nconserves_work = 1\n", "turns: conserves_work is 1: true or false"),
        ("name = \n", "Invalid value"),
    ],
)
def test_bad_files_are_refused(tmp_path: Path, text: str, said: str) -> None:
    file = tmp_path / "agent.toml"
    file.write_text(text)
    with pytest.raises(BadInput) as refused:
        read_settings(["--config", str(file), *ENOUGH])
    assert said in str(refused.value)
    assert "\n" not in str(refused.value)


def test_a_node_s_name_has_small_letters_as_its_certificate(tmp_path: Path) -> None:
    file = tmp_path / "agent.toml"
    file.write_text('daemon = ["a:1"]\nname = "GPU07"\n')
    assert read_settings(["--config", str(file)]).name == "gpu07"
    assert read_settings(["--config", str(file), "--name", "GPU08"]).name == "gpu08"


@pytest.mark.parametrize(
    ("given", "reached"),
    [
        ("::1", "[::1]:7"),
        ("[::1]", "[::1]:7"),
        ("[::1]:9", "[::1]:9"),
        ("node", "node:7"),
        ("node:9", "node:9"),
    ],
)
def test_an_agent_is_reached_at_its_address_with_its_port(given: str, reached: str) -> None:
    assert advertised_address(read_settings([*ENOUGH, "--address", given]), 7) == reached


def test_a_daemon_is_needed_and_sockets_need_short_paths() -> None:
    with pytest.raises(BadInput, match="no daemon is named"):
        read_settings(["--name", "n1"])
    with pytest.raises(BadInput, match="at most 62 bytes, for sockets"):
        read_settings([*ENOUGH, "--run-dir", "/" + "x" * 80])


def test_fake_gpus_have_stable_names() -> None:
    found = FakeGpus("n1", "2:v100+1:A100").inventory().gpus
    assert [gpu.type for gpu in found] == ["v100", "v100", "a100"]
    assert found[0].uuid == fake_uuid("n1", 0) != fake_uuid("n2", 0)
    assert found[0].linked == (found[0].uuid, found[1].uuid)
    assert FakeGpus("n1", "0").inventory().gpus == ()
    for text in ("8", "x:v100", "8:v100,1:a100", "100:v100", "8:../etc"):
        with pytest.raises(BadInput):
            FakeGpus("n1", text)


def test_node_names_in_short() -> None:
    assert compact_names(["n1", "n2", "n3", "x", "g08", "g09", "g10"]) == "n[1-3],x,g[08-10]"
    assert compact_names(["n9", "n10", "n12"]) == "n[9-10,12]"
    assert compact_names(["n9", "n010"]) == "n[9,010]"
    assert compact_names(["n1"]) == "n1"
    assert compact_names([]) == ""
