"""A daemon and an agent as they are installed: made by `dlsched admin init`, over mutual TLS."""

from __future__ import annotations

import asyncio
import base64
import json
import os
import pwd
import re
import signal
import ssl
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from http.client import HTTPSConnection
from pathlib import Path
from typing import Any
from urllib.request import urlopen

import pytest

from dlsched.rpc.server import ServerTrust
from dlsched.rpc.tls import KeyFiles
from tests.other_users import BECOME

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        os.geteuid() != 0, reason="only root can run an agent whose jobs are other users'"
    ),
]
BEAT = "\n[timing]\nbeat_s = 0.4\n"
SCRIPT = "#!/bin/sh\necho seen by $(id -u)\n"
AS_USER = (
    BECOME
    + """
import contextlib, io, json
from dlsched.cli.main import run
answers = []
for config, words in json.load(sys.stdin):
    os.environ["XDG_CONFIG_HOME"] = config
    sys.argv = ["dlsched", *words]
    text = io.TextIOWrapper(io.BytesIO(), write_through=True)
    with contextlib.redirect_stdout(text), contextlib.redirect_stderr(text):
        try:
            run()
        except SystemExit as end:
            answers.append((end.code or 0, text.buffer.getvalue().decode().strip()))
json.dump(answers, sys.stdout)
"""
)


def eventually(what: str, condition: Callable[[], Any], within: float = 60.0) -> Any:
    until = time.monotonic() + within
    while not (found := condition()):
        assert time.monotonic() < until, what
        time.sleep(0.02)
    return found


@dataclass
class Cluster:
    """The processes of one cluster and its folder."""

    folder: Path
    processes: list[subprocess.Popen[bytes]] = field(default_factory=list)
    port: int = 0
    users_port: int = 0

    socket: str = ""  # of a login node; empty: the daemon's own

    @property
    def local(self) -> str:
        return f"unix:{self.socket or f'{self.folder}/run/daemon.sock'}"

    def start(self, log: str, *words: str) -> Path:
        """A process of ours in the background; its log."""
        path = self.folder / log
        with path.open("wb") as file:
            started = subprocess.Popen(
                [sys.executable, "-m", *words],
                stdout=file,
                stderr=subprocess.STDOUT,
                cwd=self.folder,
                env={**os.environ, "GRPC_VERBOSITY": "NONE"},
            )
        self.processes.append(started)
        return path

    def agent(self, log: str, *, name: str, certificate: str = "", daemon: str = "") -> Path:
        """An agent; `certificate` is of another node."""
        home = self.folder / "nodes" / name
        text = (home / "agent.toml").read_text()
        text = text.replace("0.0.0.0:7818", "127.0.0.1:0")
        text = re.sub(r"daemon = .*", f'daemon = ["{daemon or f"127.0.0.1:{self.port}"}"]', text)
        if certificate:
            text = text.replace(f"/nodes/{name}/", f"/nodes/{certificate}/")
        own = {
            "state_dir": f"{self.folder}/{log}.state",
            "run_dir": f"{self.folder}/{log}.run",
            "address": "127.0.0.1",
            "fake_gpus": "2:v100",
            "launcher": "plain",
            "metrics": "127.0.0.1:0",
        }
        lines = [f'{key} = "{value}"' for key, value in own.items()]
        config = self.folder / f"{log}.toml"
        config.write_text("\n".join([*lines, "minimum_uid = 1", text, BEAT]))
        return self.start(log, "dlsched.nodeagent", "--config", str(config))

    def call(self, *words: str, uid: int = 0, config: Path | None = None) -> tuple[int, str]:
        """Exit code and output of one command."""
        return self.calls((*words,), uid=uid, config=config)[0]

    def calls(
        self, *commands: tuple[str, ...], uid: int = 0, config: Path | None = None
    ) -> list[tuple[int, str]]:
        """Of several, in one process, as root or as another user."""
        asked = [(str(config or self.folder / "none"), words) for words in commands]
        found = subprocess.run(
            [sys.executable, "-c", AS_USER, str(uid)],
            input=json.dumps(asked),
            capture_output=True,
            text=True,
            check=False,
            cwd=self.folder / "home",
            env={
                **os.environ,
                "GRPC_VERBOSITY": "NONE",
                "DLSCHED_DAEMON": "" if config else self.local,
                "HOME": str(self.folder / "home"),
            },
        )
        assert found.returncode == 0, found.stderr
        return [(code, said) for code, said in json.loads(found.stdout)]

    def page_status(self, token: str) -> int:
        """The status with which the web page answers a token, over TLS."""
        log = self.folder / "daemon.log"
        address = r"event=web-page address=https://0\.0\.0\.0:(\d+)/"
        port = eventually("the page listens", lambda: re.search(address, log.read_text()))[1]
        trust = ssl.create_default_context(cafile=self.folder / "tls" / "ca.crt")
        line = HTTPSConnection("localhost", int(port), context=trust, timeout=30)
        try:
            known = base64.b64encode(f"anyone:{token}".encode()).decode()
            line.request("GET", "/", headers={"Authorization": f"Basic {known}"})
            return line.getresponse().status
        finally:
            line.close()

    def stop(self) -> None:
        for process in reversed(self.processes):
            process.send_signal(signal.SIGTERM)
        for process in self.processes:
            try:
                process.wait(15)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


@pytest.fixture(scope="module")
def cluster(shared_place: Path) -> Iterator[Cluster]:
    folder = shared_place
    made = Cluster(folder)
    (folder / "run").mkdir()
    (folder / "home").mkdir()
    (folder / "home").chmod(0o777)
    code, said = made.call(
        *("admin", "init", str(folder), "--node", "n[1-3]", "--operator", "olga", "--in-place"),
        *("--daemon-host", "localhost", "--socket", f"{folder}/run/daemon.sock"),
        *("--database", f"sqlite:///{folder}/run/dlsched.db"),
    )
    assert code == 0, said
    os.chown(folder / "tls" / "daemon.key", 0, 0)  # on a machine with dlsched it is that user's
    config = folder / "dlsched.toml"
    text = config.read_text().replace('"0.0.0.0:7817"', '"127.0.0.1:0", "users:127.0.0.1:0"')
    text = text.replace('# web = "127.0.0.1:7821"', 'web = "0.0.0.0:0"')
    config.write_text(text.replace(":7819", ":0") + BEAT)
    log = made.start("daemon.log", "dlsched.daemon", "--config", str(config))
    try:
        ports = eventually(
            "the daemon listens",
            lambda: re.search(r"ports=\"\[0, (\d+), (\d+)\]\"", log.read_text()),
        )
        made.port, made.users_port = int(ports[1]), int(ports[2])
        agent = made.agent("n1.log", name="n1")
        eventually("the agent is known", lambda: "daemon-reached" in agent.read_text())
        yield made
    finally:
        made.stop()


@pytest.fixture(scope="module")
def script(cluster: Cluster) -> str:
    path = cluster.folder / "home" / "job.sh"
    path.write_text(SCRIPT)
    return str(path)


def written(folder: Path, name: str, text: str) -> Path:
    """A client's configuration; the folder to look in."""
    home = folder / name / "dlsched"
    home.mkdir(parents=True, exist_ok=True)
    (home / "config.toml").write_text(text)
    return home.parent


def test_a_job_runs_as_its_user_over_mutual_tls(
    cluster: Cluster, script: str, account: tuple[str, int]
) -> None:
    _, uid = account
    code, said = cluster.call("submit", "--wait", "-o", "seen.out", script, uid=uid)
    assert code == 0, said
    seen = cluster.folder / "home" / "seen.out"
    assert (seen.read_text(), seen.stat().st_uid) == (f"seen by {uid}\n", uid)


@pytest.mark.parametrize(
    ("log", "port", "name"),
    [
        ("daemon.log", r"event=listening .*metrics=(\d+)", "dlsched"),
        ("n1.log", r"metrics port=(\d+)", "dlsched_agent"),
    ],
)
def test_metrics_tell_when_a_certificate_expires(
    cluster: Cluster, log: str, port: str, name: str
) -> None:
    found = re.search(port, (cluster.folder / log).read_text())
    assert found is not None
    pattern = rf"^{name}_certificate_expiry_timestamp_seconds (\S+)$"

    def told() -> re.Match[str] | None:
        with urlopen(f"http://127.0.0.1:{found[1]}/metrics", timeout=60) as answer:
            return re.search(pattern, answer.read().decode(), re.M)

    expires_at = float(eventually("it is told", told)[1])
    assert expires_at - time.time() == pytest.approx(365 * 86400, abs=86400)


def test_another_users_job_is_neither_cancelled_nor_read(
    cluster: Cluster, script: str, account: tuple[str, int], other_account: tuple[str, int]
) -> None:
    owner, uid = account
    other, other_uid = other_account
    code, said = cluster.call("submit", "--hold", script, uid=uid)
    assert code == 0, said
    job = re.findall(r"Submitted job (\d+)", said)[0]  # a slow daemon is told of, too
    cancelled, logs, reloaded = cluster.calls(
        ("cancel", job), ("logs", job), ("admin", "reload"), uid=other_uid
    )
    assert cancelled == (1, f"cancelled 0 jobs\ndlsched: job {job}: not yours (owner {owner})")
    assert logs == (1, f"dlsched: job {job} belongs to {owner}, not to {other}")
    refusal = f"reloading the configuration is for operators only; {other} is none"
    assert reloaded == (1, f"dlsched: {refusal}")
    assert cluster.call("cancel", job, uid=uid) == (0, "cancelled 1 job")


def test_logs_of_a_folder_that_became_a_link_to_another_users_process_show_nothing(
    cluster: Cluster, account: tuple[str, int], other_account: tuple[str, int]
) -> None:
    uid, other_uid = account[1], other_account[1]
    home, secret = cluster.folder / "home", "what only the other user may read"
    closed, swapped = home / "closed", home / f"swapped-{uid}"
    for folder, owner in ((closed, other_uid), (closed / "work", other_uid), (swapped, uid)):
        folder.mkdir()
        os.chown(folder, owner, owner)
    (closed / "work" / "out").write_text(secret)
    closed.chmod(0o700)
    stay = BECOME + "print(flush=True); os.execvp('sleep', ['sleep', '600'])"
    begun = subprocess.Popen(
        [sys.executable, "-c", stay, str(other_uid)],
        stdout=subprocess.PIPE,
        cwd=closed / "work",
    )
    with begun as process:
        assert process.stdout is not None
        process.stdout.readline()
        submit = ("submit", "--parsable", "-o", f"{swapped}/out", "--wrap", "echo mine; sleep 600")
        code, said = cluster.call(*submit, uid=uid)
        assert code == 0, said
        job = said.split()[-1]
        try:
            eventually("it writes", lambda: cluster.call("logs", job, uid=uid) == (0, "mine"))
            swapped.rename(home / "before")
            swapped.symlink_to(f"/proc/{process.pid}/cwd")
            code, said = cluster.call("logs", job, uid=uid)
            assert code == 1
            assert secret not in said
            assert f"cannot open {swapped}/out: " in said
        finally:
            process.kill()
            cluster.call("cancel", job, uid=uid)
            kept = cluster.folder / "n1.log.run" / "jobs"
            eventually("its keeper ends", lambda: not [*kept.glob(f"{job}.*")])


def test_a_command_in_a_job_and_its_output_go_over_mutual_tls(
    cluster: Cluster, account: tuple[str, int], other_account: tuple[str, int]
) -> None:
    owner, uid = account
    other, other_uid = other_account
    code, said = cluster.call("submit", "--parsable", "--wrap", "sleep 600", uid=uid)
    assert code == 0, said
    job = said.split()[-1]

    def runs() -> bool:
        return "RUNNING" in cluster.call("show", job, uid=uid)[1]

    eventually("it runs", runs)
    try:
        none = f"dlsched: no process of job {job} listens on port 1 of node n1"
        entered, forwarded = cluster.calls(
            ("attach", job, "--", "sh", "-c", "id -u >seen.inside; exit 3"),
            ("forward", job, "1:0"),
            uid=uid,
        )
        assert entered == (3, "")
        assert (cluster.folder / "home" / "seen.inside").read_text() == f"{uid}\n"
        assert forwarded == (1, none)
        for words in (("attach", job, "--", "true"), ("forward", job, "1:0")):
            refused = cluster.call(*words, uid=other_uid)
            assert refused == (1, f"dlsched: job {job} belongs to {owner}, not to {other}")
    finally:
        cluster.call("cancel", job, uid=uid)
        kept = cluster.folder / "n1.log.run" / "jobs"  # until the agent lets the keeper go
        eventually("its keeper ends", lambda: not [*kept.glob(f"{job}.*")])


def test_root_submits_nothing_and_gets_no_token_unless_it_is_allowed(
    cluster: Cluster, script: str
) -> None:
    create = ("admin", "token", "create", "--user")
    submitted, *tokens = cluster.calls(("submit", script), (*create, "root"), (*create, "nobody"))
    assert submitted == (
        1,
        "dlsched: root's jobs are not run here: submit as a user ([trust] root_jobs)",
    )
    for user, found in zip(("root", "nobody"), tokens, strict=True):
        assert found == (1, f"dlsched: {user} gets no token: not for use from a distance")


def test_an_operator_at_a_distance_governs_but_runs_nothing(cluster: Cluster, script: str) -> None:
    text = (cluster.folder / "operators/olga/config.toml").read_text()
    home = written(cluster.folder, "olga", text.replace("7817", str(cluster.port)))
    drained, resumed, submitted = cluster.calls(
        ("drain", "n1", "--reason", "test"), ("resume-node", "n1"), ("submit", script), config=home
    )
    assert (drained[0], resumed[0]) == (0, 0), (drained, resumed)
    assert submitted == (1, "dlsched: submitting jobs is not for operator olga: users only")


def test_a_token_from_creation_to_revocation(
    cluster: Cluster, account: tuple[str, int], other_account: tuple[str, int]
) -> None:
    name, uid = account
    other, other_uid = other_account
    file, token = cluster.folder / "home" / "token", ("admin", "token")
    code, said = cluster.call(*token, "create", "--days", "1", "-o", str(file), uid=uid)
    assert code == 0, said
    assert file.stat().st_mode & 0o777 == 0o600
    token_id = re.findall(r"token (\w+) of", said)[0]
    text = f'ca = "{cluster.folder}/tls/ca.crt"\ntoken_file = "{file}"\n'
    home = written(
        cluster.folder / "home", "far", f'daemon = "127.0.0.1:{cluster.users_port}"\n{text}'
    )
    queue, again = cluster.calls(("queue",), (*token, "create"), uid=uid, config=home)
    assert queue[0] == 0, queue
    assert cluster.page_status(file.read_text().strip()) == 200
    assert cluster.page_status("guessed") == cluster.page_status("") == 401
    assert again == (1, "dlsched: a token makes no tokens: log in on the daemon's machine")
    # another user neither sees nor ends it
    listed, ended = cluster.calls((*token, "list"), (*token, "revoke", token_id), uid=other_uid)
    assert token_id not in listed[1]
    assert ended == (1, f"dlsched: no token '{token_id}' of {other}")
    listed, ended = cluster.calls((*token, "list", "--all"), (*token, "revoke", token_id))
    assert re.search(rf"{token_id} +{name} +good", listed[1])
    assert ended == (0, f"revoked token {token_id} of {name}")
    code, said = cluster.call("queue", uid=uid, config=home)
    assert (code, said) == (1, f"dlsched: token {token_id} has been revoked")
    # the page may still be the one of three seconds ago
    eventually("the page refuses it", lambda: cluster.page_status(file.read_text().strip()) == 401)
    # on the port that asks for certificates
    home = written(cluster.folder / "home", "wrong", f'daemon = "127.0.0.1:{cluster.port}"\n{text}')
    code, said = cluster.call("queue", uid=uid, config=home)
    assert (code, len(said.splitlines())) == (1, 1), said
    assert "it requires a certificate, and this client has only a token" in said


def test_a_node_does_not_join_under_another_nodes_name(cluster: Cluster) -> None:
    log = cluster.agent("posing.log", name="n2", certificate="n3")
    why = "node n3 cannot speak for node n2"
    eventually("it is refused", lambda: why in log.read_text())
    assert "daemon-reached" not in log.read_text()
    _, said = cluster.call("nodes")
    assert "n2" not in said


def test_an_agent_does_not_obey_what_is_not_the_daemon(cluster: Cluster, serving: Any) -> None:
    async def work() -> None:
        files = KeyFiles.of(cluster.folder / "nodes" / "n3" / "tls", "node")
        async with serving(ServerTrust(files=files)) as served:
            log = await asyncio.to_thread(
                cluster.agent, "deceived.log", name="n2", daemon=served.target
            )
            why = f"{served.target} has a certificate of another role than the daemon"
            await asyncio.to_thread(eventually, "it notices", lambda: why in log.read_text())
            assert not served.seen

    asyncio.run(work())


# -- a login node ---------------------------------------------------------------------------------


def login_node(cluster: Cluster, name: str, tls: str) -> tuple[Cluster, Path]:
    """Start a login node's service; the commands of its users, and its log."""
    place = cluster.folder / name
    place.mkdir()
    place.chmod(0o755)
    config = place / "login.toml"
    config.write_text(
        f'daemon = ["127.0.0.1:1", "127.0.0.1:{cluster.port}"]\n'  # no daemon is at the first
        f'tls = "{cluster.folder}/{tls}"\nsocket = "{place}/daemon.sock"\n'
    )
    log = cluster.start(f"{name}.log", "dlsched.rpc.login_node", "--config", str(config))
    said = ("event=listening", "dlsched login:")
    eventually("it begins or says why not", lambda: any(x in log.read_text() for x in said))
    return Cluster(cluster.folder, socket=f"{place}/daemon.sock"), log


@pytest.fixture(scope="module")
def login(cluster: Cluster) -> Cluster:
    code, said = cluster.call("admin", "ca", "issue", "login/l1", "--folder", str(cluster.folder))
    assert code == 0, said
    return login_node(cluster, "l1", "logins/l1/tls")[0]


def test_users_of_a_login_node_need_no_token(
    login: Cluster, script: str, account: tuple[str, int]
) -> None:
    name, uid = account
    code, said = login.call("submit", "--gpus=1", "--wait", "-o", "l.out", script, uid=uid)
    assert code == 0, said
    job = re.findall(r"\d+", said)[0]
    seen = login.folder / "home" / "l.out"
    assert (seen.read_text(), seen.stat().st_uid) == (f"seen by {uid}\n", uid)
    for words in (("logs", job), ("show", job), ("history",), ("queue", "-a"), ("wait", job)):
        code, said = login.call(*words, uid=uid)
        assert code == 0, (words, said)
    assert f"seen by {uid}" in login.call("logs", job, uid=uid)[1]
    assert name in login.call("history", "-o", "user", uid=uid)[1]


def test_a_login_node_gives_no_rights_of_root_or_of_operators(
    cluster: Cluster, login: Cluster, account: tuple[str, int]
) -> None:
    _, uid = account
    assert login.call("queue")[1].endswith("login/l1 cannot speak for user id 0")
    for words in (("admin", "reload"), ("drain", "n1", "--reason", "x"), ("admin", "orphans")):
        code, said = login.call(*words, uid=uid)
        assert (code, "operators" in said) == (1, True), said
    other = next(each.pw_uid for each in pwd.getpwall() if each.pw_uid not in (0, uid, 65534))
    code, said = cluster.call("submit", "--gpus=1", "--hold", "--wrap", "true", uid=other)
    assert code == 0, said
    assert "not yours" in login.call("cancel", re.findall(r"\d+", said)[0], uid=uid)[1]


def test_what_a_user_claims_at_a_login_node_is_not_believed(
    login: Cluster, account: tuple[str, int]
) -> None:
    """A client of one's own, which sends the metadata by which login nodes vouch."""
    name, uid = account
    program = (
        BECOME
        + """
import grpc
from dlsched.rpc.channels import ClientTrust, open_blocking_channel
from dlsched.rpc.v1 import control_pb2 as c, control_pb2_grpc
target, beside, name, number = sys.argv[1:]
channel = open_blocking_channel(target, ClientTrust.local(beside))
stub = control_pb2_grpc.ControlStub(channel)
for claim in ((("dlsched-user", name), ("dlsched-uid", number)), (("dlsched-role", "dlsched://daemon"),)):
    asked = c.SubmitRequest(jobs=[c.JobRequest(name="x", argv=["true"], held=True)])
    print(stub.Submit(asked, metadata=claim).jobs[0].job)
try:
    stub.Reload(c.ReloadRequest(), metadata=claim)
except grpc.RpcError as error:
    print(error.code().name)
"""
    )
    beside = login.local.removeprefix("unix:").replace("daemon.sock", "login.sock")
    done = subprocess.run(
        [sys.executable, "-c", program, str(uid), login.local, beside, "root", "0"],
        capture_output=True, text=True, check=True, cwd=login.folder / "home",
    )  # fmt: skip
    first, second, refused = done.stdout.split()
    assert refused == "PERMISSION_DENIED"
    for job in (first, second):
        shown = json.loads(login.call("show", "--json", job, uid=uid)[1])["jobs"][0]
        assert shown["user"] == name


def test_no_other_certificate_makes_a_login_node(cluster: Cluster) -> None:
    wrong = cluster.folder / "wrong"
    wrong.mkdir()
    for suffix in ("crt", "key"):
        source = cluster.folder / "nodes" / "n2" / "tls" / f"node.{suffix}"
        (wrong / f"login.{suffix}").write_bytes(source.read_bytes())
        (wrong / f"login.{suffix}").chmod(0o600)
    (wrong / "ca.crt").write_bytes((cluster.folder / "tls" / "ca.crt").read_bytes())
    _, log = login_node(cluster, "l2", "wrong")
    assert "is of node/n2, not of a login" in log.read_text()


def test_a_denied_login_node_is_cut_off_at_once(
    cluster: Cluster, login: Cluster, account: tuple[str, int]
) -> None:
    _, uid = account
    assert login.call("queue", uid=uid)[0] == 0
    code, said = cluster.call("admin", "ca", "deny", "login/l1", "--folder", str(cluster.folder))
    assert code == 0, said
    code, said = login.call("queue", uid=uid)
    assert (code, "has been denied" in said) == (1, True), said


def test_a_denied_node_is_cut_off_at_once(cluster: Cluster) -> None:
    log = cluster.agent("denied.log", name="n3")
    eventually("it joins", lambda: "daemon-reached" in log.read_text())
    code, said = cluster.call("admin", "ca", "deny", "node/n3", "--folder", str(cluster.folder))
    assert code == 0, said
    eventually("it is refused", lambda: "has been denied" in log.read_text())
    assert re.search(r"the certificate of node/n3 \(serial \w+\) has been denied", log.read_text())
