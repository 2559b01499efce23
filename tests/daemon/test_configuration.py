"""The configuration file: taken as a whole or not at all, with one line for each error."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import grpc
import pytest

from dlsched.core.errors import BadInput, NotTrusted
from dlsched.daemon.__main__ import main
from dlsched.daemon.daemon import Daemon
from dlsched.daemon.round.configured import round_settings
from dlsched.daemon.settings import load_settings
from dlsched.rpc.v1 import control_pb2 as c

from .cluster_of_tests import Running, eventually, job, settings_of
from .scripted_agent import ScriptedAgent

WRONG = [
    (
        "unknown key",
        "[daemon]\nlisten_on = 1\n",
        "daemon.listen_on: unknown key; known: database, listen, name, metrics, web, log_level, "
        "log_format, migrate (did you mean 'listen'?)",
    ),
    ("unknown section", "[demon]\n", "(did you mean 'daemon'?)"),
    ("in a list", "[[vcs]]\nname='a'\ngpu=1\n", "(did you mean 'gpus'?)"),
    ("in a table", "[cell_types.a]\nchild='b'\ncont=2\n", "(did you mean 'count'?)"),
    ("two lists deep", "[[vcs]]\nname='a'\n[[vcs.cells]]\ntyp='b'\n", "(did you mean 'type'?)"),
    ("wrong kind", "[round]\ninterval_s = 'x'\n", "round.interval_s: Input should be a valid"),
    ("negative", "[round]\ninterval_s = -1\n", "round.interval_s: Input should be greater than 0"),
    ("unsafe timing", "[timing]\nmargin_s = 1.0\n", "timing: margin_s is 1, needs at least"),
    ("preempt mode", "[round]\npreempt_mode = 'kill'\n", "round.preempt_mode: Input should be"),
    ("minimum", "[round]\nmin_run_s = -1\n", "round.min_run_s: Input should be greater"),
    ("endless", "[round]\nrestart_overhead_s = inf\n", "round.restart_overhead_s: Input should be"),
    ("twice", "[[vcs]]\nname='a'\n[[vcs]]\nname='a'\n", "vcs: a is there twice"),
    ("host list", "[[partitions]]\nname='a'\nnodes='n]1['\n", "nodes: 'n]1[' is not a host list"),
    ("toml", "[daemon\n", "Expected ']'"),
]


@pytest.mark.parametrize(("text", "said"), [w[1:] for w in WRONG], ids=[w[0] for w in WRONG])
def test_each_error_of_a_configuration_is_one_line(tmp_path: Path, text: str, said: str) -> None:
    file = tmp_path / "d.toml"
    file.write_text(text)
    with pytest.raises(BadInput) as error:
        load_settings(file)
    assert said in str(error.value)
    assert "\n" not in str(error.value)


def test_capital_letters_in_node_names_of_a_configuration_are_small_ones(tmp_path: Path) -> None:
    file = tmp_path / "d.toml"
    file.write_text(
        "[[nodes]]\nname='GPU[1-2]'\ngpus=8\n"
        "[[partitions]]\nname='Short'\nnodes='gpu1,GPU2'\n[[vcs]]\nname='a'\nnodes='GPU2'\n"
    )
    settings = load_settings(file)
    assert list(settings.configured_nodes()) == ["gpu1", "gpu2"]
    assert settings.partition_nodes() == {"Short": {"gpu1", "gpu2"}}
    assert settings.vcs[0].nodes == "gpu2"


def test_a_wrong_file_exits_with_code_two(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "d.toml").write_text("[x]\n")
    assert main(["--config", str(tmp_path / "d.toml")]) == 2
    assert capsys.readouterr().err.count("\n") == 1


BAD_POLICIES = [
    (
        "[round]\npolicy = 'lass'\n",
        "round of the configuration: policy 'lass' is not known",
    ),
    (
        "[round]\nestimate = 'oracle'\n",
        "round of the configuration: --estimate oracle needs",
    ),
    (
        "[round]\npolicy = 'chronus'\noptions = ['lease_s=20']\n",
        "round of the configuration: option chronus.lease_s must be at least 60, not 20",
    ),
    ("[shadow]\npolicy = 'lass'\n", "shadow of the configuration: policy 'lass' is not"),
]


@pytest.mark.parametrize(("text", "said"), BAD_POLICIES, ids=["name", "part", "value", "shadow"])
def test_a_policy_that_cannot_be_made_is_refused_before_a_round_needs_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], text: str, said: str
) -> None:
    async def start() -> None:
        given = settings_of(tmp_path)
        daemon = Daemon(load_settings(file).model_copy(update={"daemon": given.daemon}))
        try:
            await daemon.start()
        finally:
            await daemon.stop()

    file = tmp_path / "d.toml"
    file.write_text(text)
    assert main(["--config", str(file), "--check"]) == 2
    told = capsys.readouterr().err
    assert told.startswith(f"dlsched daemon: section {said}")
    assert told.count("\n") == 1
    with pytest.raises(BadInput) as error:
        asyncio.run(start())
    assert f"dlsched daemon: {error.value}\n" == told


def test_a_policy_that_fails_only_in_rounds_does_not_stop_a_start(tmp_path: Path) -> None:
    """It may hang while it is imported: the daemon leads all the same, and says so."""

    async def scene() -> None:
        options = {"policy": "las", "options": ["misfit=skip"], "time_limit_s": 1e-6}
        async with Running(settings_of(tmp_path, round=options)) as running:
            assert await running.caller().submit()

    asyncio.run(scene())


def test_the_example_configuration_is_valid() -> None:
    example = Path(__file__).parents[2] / "packaging" / "dlsched.toml"
    assert load_settings(example).daemon.listen


@pytest.mark.parametrize("more", ["ann:secret@h/d", "ann@h/d?password=secret"])
def test_a_password_in_a_file_that_others_can_read_is_refused(tmp_path: Path, more: str) -> None:
    file = tmp_path / "d.toml"
    file.write_text(f'[daemon]\ndatabase = "postgresql+psycopg://{more}"\n')
    for mode in (0o644, 0o640, 0o604):
        file.chmod(mode)
        with pytest.raises(NotTrusted) as error:
            load_settings(file)
        assert str(error.value) == (
            f"{file} has a password in daemon.database and can be read by others "
            f"(mode {mode:04o}): chmod 600 {file}"
        )
    file.chmod(0o600)
    assert load_settings(file).daemon.database.endswith(more)


def test_preemption_settings_of_the_file_reach_the_rounds(tmp_path: Path) -> None:
    file = tmp_path / "d.toml"
    said = {"min_run_s": 90.0, "restart_overhead_s": 12.5, "preempt_mode": "suspend"}
    lines = [f"{key} = {json.dumps(value)}" for key, value in said.items()]
    file.write_text("\n".join(["[round]", *lines]))
    made = round_settings(load_settings(file))
    assert {key: getattr(made, key) for key in said} == said


TEXT = """
[daemon]
database = "sqlite:///{folder}/d.db"
listen = ["127.0.0.1:0"]
metrics = "127.0.0.1:0"
[trust]
mode = "insecure-loopback"
[timing]
beat_s = 0.4
[round]
policy = "{policy}"
{more}
"""


def test_a_reload_is_refused_as_a_whole_and_a_removed_node_drains(tmp_path: Path) -> None:
    file = tmp_path / "d.toml"

    def write(policy: str = "fifo", more: str = "") -> None:
        file.write_text(TEXT.format(folder=tmp_path, policy=policy, more=more))

    both = '[[nodes]]\nname = "n[1-2]"\ngpus = 4\n'

    async def scene() -> None:
        write(more=both + '[[partitions]]\nname = "main"\n')
        async with (
            Running(load_settings(file), file) as running,
            ScriptedAgent("n1", running.target),
            ScriptedAgent("n2", running.target),
        ):
            root = running.caller("root", 0)
            await eventually(lambda: len(running.daemon.driver.committed.nodes) == 2)
            [number] = await root.submit(job(held=True))

            async def reload() -> Any:
                return (await root.control.Reload(c.ReloadRequest(), timeout=60)).changes

            for wrong in ("[round]\nx = 1\n",):
                file.write_text(wrong)
                with pytest.raises(grpc.aio.AioRpcError):
                    await reload()
            write("no-such-policy", both + '[[partitions]]\nname = "main"\n')
            with pytest.raises(grpc.aio.AioRpcError, match="no-such-policy"):
                await reload()
            write(more=both)
            with pytest.raises(grpc.aio.AioRpcError, match=f"partition main .*job {number}"):
                await reload()
            assert running.daemon.cluster.settings.round.policy == "fifo"
            one = '[[nodes]]\nname = "n1"\ngpus = 4\n[[partitions]]\nname = "main"\n'
            write("las", one)
            assert any("fifo -> las" in line for line in await reload())
            assert running.daemon.cluster.round_state.settings.policy == "las"
            nodes = (await root.control.Nodes(c.NodesRequest(), timeout=60)).nodes
            assert {n.name: n.state for n in nodes} == {"n1": "idle", "n2": "drained"}

    asyncio.run(scene())


def test_nodes_that_a_configuration_lost_or_got_back_while_the_daemon_was_down(
    tmp_path: Path,
) -> None:
    file = tmp_path / "d.toml"

    def write(nodes: str) -> None:
        named = f'[[nodes]]\nname = "{nodes}"\ngpus = 4\n'
        file.write_text(TEXT.format(folder=tmp_path, policy="fifo", more=named))

    async def drained(running: Running) -> set[str]:
        root = running.caller("root", 0)
        nodes = (await root.control.Nodes(c.NodesRequest(), timeout=60)).nodes
        return {n.name for n in nodes if n.state == "drained"}

    async def scene() -> None:
        write("n[1-3]")
        async with Running(load_settings(file), file) as running:
            agents = [ScriptedAgent(f"n{k}", running.target) for k in (1, 2, 3)]
            async with agents[0], agents[1], agents[2]:
                await eventually(lambda: len(running.daemon.driver.committed.nodes) == 3)
                root = running.caller("root", 0)
                own = c.SetNodesRequest(
                    names=["n3"], action=c.NODE_ACTION_DRAIN, reason="no longer wanted"
                )
                await root.control.SetNodes(own, timeout=60)
        for nodes, expected in (("n[1,3]", {"n2", "n3"}), ("n[1-3]", {"n3"})):
            write(nodes)
            async with Running(load_settings(file), file) as running:
                cluster = running.daemon.cluster
                await eventually(lambda c=cluster, e=expected: set(c.drained) == e)
                assert await drained(running) == expected

    asyncio.run(scene())
