"""Users are told of their jobs: typed at the command line, delivered by a real daemon.

The receivers are real: an HTTP server, the site's command and a mail command, which write down what
they get.
"""

from __future__ import annotations

import json
import stat
import threading
from collections import defaultdict
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from dlsched.torture.local_cluster import LocalCluster, eventually
from tests.live.conftest import SELDOM_POSTGRES, database_of

pytestmark = pytest.mark.slow

MAIL = """#!/bin/bash
{{ printf '%s\\n' "$@"; cat; echo ----; }} >>{folder}/mail.txt
"""
COMMAND = """#!/bin/bash
cat >>{folder}/command.txt
env >{folder}/command-environment.txt
"""


class Sink(ThreadingHTTPServer):
    """A web server that keeps what is posted to it, by path.

    Attributes:
        got: the posted values, in order.
        answers: status codes that are given before it answers 200, by path.
        redirect: where every answer points.
    """

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.got: dict[str, list[dict[str, Any]]] = defaultdict(list)
        self.answers: dict[str, list[int]] = defaultdict(list)
        self.redirect = ""
        threading.Thread(target=self.serve_forever, kwargs={"poll_interval": 0.05}).start()

    @property
    def url(self) -> str:
        """Where it listens."""
        return f"http://127.0.0.1:{self.server_port}"

    def forget(self) -> None:
        """Start again as a new server: nothing was posted, every answer is 200."""
        self.got.clear()
        self.answers.clear()
        self.redirect = ""

    def events(self, path: str, job: int) -> list[str]:
        """The events of a job that came to a path, each once."""
        mine = {each["id"]: each["event"] for each in self.got[path] if each["job"] == job}
        return list(mine.values())


class _Handler(BaseHTTPRequestHandler):
    server: Sink

    def do_POST(self) -> None:
        content = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        assert self.headers["Idempotency-Key"] == content["id"]
        waiting = self.server.answers[self.path]
        self.server.got[self.path].append(content)
        self.send_response(waiting.pop(0) if waiting else 200)
        if self.server.redirect:
            self.send_header("Location", self.server.redirect)
        self.end_headers()

    def log_message(self, format: str, *args: object) -> None:
        pass


@pytest.fixture(scope="module")
def sink() -> Iterator[Sink]:
    """A web server."""
    server = Sink()
    yield server
    server.shutdown()
    server.server_close()


@pytest.fixture(scope="module", params=SELDOM_POSTGRES)
def telling(request: pytest.FixtureRequest, sink: Sink) -> Iterator[LocalCluster]:
    """A daemon that notifies in every way, and one node."""
    cluster = LocalCluster(database_of(request), nodes=1)
    cluster.sections["notifications"] = {
        "command": [_program(cluster.folder, "tell", COMMAND)],
        "mail_command": [_program(cluster.folder, "mail", MAIL), "-s", "{subject}", "--", "{to}"],
        "mail_domains": ["example.org"],
        "url": f"{sink.url}/site",
        "allowed_urls": [f"{sink.url}/users/"],
        "timeout_s": 10,
    }
    with cluster:
        yield cluster
    sink.forget()  # the next cluster counts its jobs from 1 again


def _program(folder: Path, name: str, text: str) -> str:
    path = folder / name
    path.write_text(text.format(folder=folder))
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return str(path)


def _submit(cluster: LocalCluster, *words: str, wrap: str = "true") -> int:
    return int(cluster.cli("submit", "--parsable", *words, "--wrap", wrap).split(";")[0])


def _mails(cluster: LocalCluster) -> list[str]:
    path = cluster.folder / "mail.txt"
    return path.read_text().split("----\n")[:-1] if path.exists() else []


def _command(cluster: LocalCluster, job: int) -> list[dict[str, Any]]:
    path = cluster.folder / "command.txt"
    lines = path.read_text().splitlines() if path.exists() else []
    return [each for each in map(json.loads, lines) if each["job"] == job]


def test_every_receiver_gets_what_the_user_asked_for(telling: LocalCluster, sink: Sink) -> None:
    job = _submit(
        telling,
        *("-J", "train", "--mail-type=BEGIN,END,FAIL", "--mail-user=ada@example.org"),
        *("--notify-url", f"{sink.url}/users/ada"),
        wrap="echo 'ValueError: no data' >&2; exit 3",
    )
    quiet = _submit(telling)
    eventually("it was told", lambda: len(sink.events("/users/ada", job)) == 2)
    assert sink.events("/users/ada", job) == ["begin", "fail"]
    eventually("so was the site", lambda: sink.events("/site", job) == ["begin", "fail"])
    told = sink.got["/site"][-1]
    assert (told["state"], told["code"], told["name"]) == ("FAILED", 3, "train")
    assert told["cause"] == "n1: exit 3: ValueError: no data"
    assert told["reason"] == "failed exit 3: ValueError: no data"
    subject = f"Job {job} (train) failed: FAILED, exit 3: ValueError: no data"
    assert told["text"] == subject
    assert told["nodes"] == ["n1"]
    eventually("the command too", lambda: len(_command(telling, job)) == 2)
    variables = (telling.folder / "command-environment.txt").read_text()
    assert f"DLSCHED_JOB_ID={job}" in variables
    assert "HOME" not in variables  # what the daemon's own environment has stays there
    eventually("and mail went out", lambda: len(_mails(telling)) == 2)
    lines = _mails(telling)[1].splitlines()
    assert lines[:4] == ["-s", subject, "--", "ada@example.org"]
    shown = telling.cli("show", str(job))
    assert told["cause"] in shown
    assert "notified" in shown
    assert "/users/ada" not in shown  # a path can be a secret
    telling.until(quiet, "COMPLETED")
    assert sink.events("/site", quiet) == []


def test_a_user_who_names_no_address_gets_the_mail(telling: LocalCluster) -> None:
    before = len(_mails(telling))
    job = _submit(telling, "--notify", "end")
    eventually("it was mailed", lambda: len(_mails(telling)) == before + 1)
    assert _mails(telling)[-1].splitlines()[3] == telling.job(job).user


def test_only_the_asked_events_are_told(telling: LocalCluster, sink: Sink) -> None:
    for words, wrap, expected in (
        (("--notify", "fail"), "true", []),
        (("--notify", "fail"), "exit 1", ["fail"]),
        (("--notify", "end"), "exit 1", ["end"]),
        (("--mail-type", "TIME_LIMIT", "-t", "1s"), "sleep 60", ["time_limit"]),
    ):
        job = _submit(telling, *words, wrap=wrap)
        telling.until(job, "COMPLETED", "FAILED", "TIMEOUT")
        after = _submit(telling, "--notify", "end")  # notices of one receiver come in order
        eventually("the next is told", lambda after=after: sink.events("/site", after) == ["end"])  # type: ignore[misc]
        assert sink.events("/site", job) == expected


def test_requeues_and_cancelled_jobs_are_told(telling: LocalCluster, sink: Sink) -> None:
    job = _submit(telling, "--notify", "all", wrap="sleep 600")
    telling.until(job, "RUNNING")
    telling.cli("requeue", str(job))
    eventually("it began twice", lambda: len(sink.events("/site", job)) >= 3)
    telling.cli("cancel", str(job))
    eventually("its end", lambda: "end" in sink.events("/site", job))
    assert sink.events("/site", job) == ["begin", "requeue", "begin", "end"]
    assert sink.got["/site"][-1]["state"] == "CANCELLED"


def test_an_array_is_told_of_as_a_whole(telling: LocalCluster, sink: Sink) -> None:
    words = ("--mail-type", "BEGIN,END,FAIL", "-a", "0-3")
    job = _submit(telling, *words, wrap='exit "$((SLURM_ARRAY_TASK_ID == 2))"')
    eventually("it has ended", lambda: "fail" in sink.events("/site", job))
    mine = [each for each in sink.got["/site"] if job <= each["job"] < job + 4]
    assert [(each["job"], each["event"], each["array"]) for each in mine] == [
        (job, "begin", True),
        (job, "fail", True),
    ]
    assert mine[1]["reason"] == "4 elements: 3 COMPLETED, 1 FAILED"
    each = _submit(telling, "--mail-type", "END,ARRAY_TASKS", "-a", "0-1")
    eventually("each has ended", lambda: all(sink.events("/site", each + k) for k in (0, 1)))
    (second,) = (told for told in sink.got["/site"] if told["job"] == each + 1)
    assert (second["array_job"], second["array_task"]) == (each, 1)
    assert second["text"].startswith(f"Job {each}_1 (")


def test_most_of_a_time_limit_is_told_once_a_run(telling: LocalCluster, sink: Sink) -> None:
    words = ("--mail-type", "TIME_LIMIT_50,TIME_LIMIT_80,END", "-t", "15s")
    job = _submit(telling, *words, wrap="sleep 600")
    eventually("80 % were told", lambda: "time_limit_80" in sink.events("/site", job))
    telling.until(job, "TIMEOUT")
    eventually("its end was told", lambda: "end" in sink.events("/site", job))
    assert sink.events("/site", job) == ["time_limit_50", "time_limit_80", "end"]


def test_a_webhook_that_fails_is_called_again_and_delays_no_other(
    telling: LocalCluster, sink: Sink
) -> None:
    sink.answers["/users/bad"] = [500]
    bad = _submit(telling, "--notify", "end", "--notify-url", f"{sink.url}/users/bad")
    good = _submit(telling, "--notify", "end", "--notify-url", f"{sink.url}/users/good")
    eventually("the other is told", lambda: sink.events("/users/good", good) == ["end"])
    eventually("it is called again", lambda: len(sink.got["/users/bad"]) == 2)
    first, second = sink.got["/users/bad"]
    assert first["id"] == second["id"]
    eventually("so is the site", lambda: sink.events("/site", bad) == ["end"])
    assert len([each for each in sink.got["/site"] if each["job"] == bad]) == 1  # it has it already


def test_redirects_are_not_followed(telling: LocalCluster, sink: Sink) -> None:
    sink.answers["/users/moved"] = [307]
    sink.redirect = f"{sink.url}/secret"
    try:
        job = _submit(telling, "--notify", "end", "--notify-url", f"{sink.url}/users/moved")
        eventually("it is called", lambda: sink.events("/users/moved", job) == ["end"])
        eventually(
            "that counts as a failure", lambda: "answered 307" in telling.log("daemon", 50_000)
        )
    finally:
        sink.redirect = ""
    assert not sink.got["/secret"]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--notify-url", "{sink}/other/x"), "this site allows no such URL"),
        (("--notify-url", "{sink}/users/../site"), "has . or .. in it"),
        (("--notify-url", "{sink}/users/%2e%2e/site"), "has . or .. in it"),
        (("--notify-url", "http://169.254.169.254/users/"), "this site allows no such URL"),
        (("--notify-url", "http://x@127.0.0.1/users/"), "with a user name"),
        (("--notify-url", "file:///etc/passwd"), "not an http:// or https:// URL"),
        (("--mail-user", "-oQ/tmp"), "is not an address"),
        (("--mail-user", "a@example.com"), "this site mails to example.org only"),
    ],
)
def test_receivers_that_a_site_does_not_allow_are_refused(
    telling: LocalCluster, sink: Sink, words: tuple[str, ...], said: str
) -> None:
    filled = [word.format(sink=sink.url) for word in words]
    done = telling.run("submit", "--notify", "end", f"{filled[0]}={filled[1]}", "--wrap", "true")
    assert done.returncode == 1
    assert said in done.stderr
    assert len(done.stderr.splitlines()) == 1


def test_notices_survive_a_killed_daemon(telling: LocalCluster, sink: Sink) -> None:
    """The webhook is away when the job ends; daemon after daemon is killed; then it is told."""
    sink.answers["/users/away"] = [503, 503]
    job = _submit(telling, "--notify", "end", "--notify-url", f"{sink.url}/users/away")
    eventually("the first try", lambda: len(sink.got["/users/away"]) >= 1)
    telling.kill("daemon")
    telling.start_daemon()
    telling.wait_until_up()
    eventually("it was told", lambda: len(sink.got["/users/away"]) == 3)
    ids = {each["id"] for each in sink.got["/users/away"]}
    assert len(ids) == 1
    eventually("that is noted", lambda: "notified" in telling.cli("show", str(job)))


def test_what_a_site_does_not_send_is_said_at_submit() -> None:
    with LocalCluster(nodes=1) as cluster:
        script = cluster.folder / "job.sh"
        script.write_text(
            "#!/bin/bash\n#SBATCH --mail-type=ALL\n#SBATCH --mail-user=a@b.org\ntrue\n"
        )
        done = cluster.run("submit", str(script))
        assert done.returncode == 0
        assert "this site sends no notifications" in done.stderr
        refused = cluster.run("submit", "--notify-url", "https://x.org/", "--wrap", "true")
        assert refused.returncode == 1
        assert "this site allows no such URL" in refused.stderr
        job = int(done.stdout.split()[-1])
        said = cluster.run("update", str(job), "--notify", "end")
        assert "this site sends no notifications" in said.stdout + said.stderr


@pytest.mark.parametrize(
    ("lines", "said"),
    [
        ('command = ["tell"]', "not the full path of a program"),
        (
            'mail_command = ["/usr/bin/mail", "-s", "{subject}"]',
            'no word after the program is "{to}"',
        ),
        ('allowed_urls = ["ftp://x/"]', "not an http:// or https:// URL"),
        ('url = "https://x.org/a/../b"', "has . or .. in it"),
    ],
)
def test_notifications_that_cannot_work_are_refused(lines: str, said: str) -> None:
    cluster = LocalCluster(nodes=0)
    file = cluster.write_config()
    file.write_text(f"{file.read_text()}\n[notifications]\n{lines}\n")
    refused = cluster.run("daemon", "--config", str(file), "--check")
    assert refused.returncode == 2
    assert said in refused.stderr
    cluster.__exit__(None, None, None)
