"""A job that trains and answers requests on one device: submitted, asked, and equal to the bit."""

from __future__ import annotations

import importlib.util
import json
import re
import shlex
import socket
import sys
import urllib.request
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from dlsched.torture.local_cluster import LocalCluster, eventually

pytestmark = pytest.mark.slow

PROGRAMS = Path(__file__).parent / "switched"
SERVICES = {"small": 64, "large": 256}  # with the length of an input


def program(name: str) -> Any:
    spec = importlib.util.spec_from_file_location(name, PROGRAMS / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


class Asking:
    """A client of the job."""

    def __init__(self, path: Path) -> None:
        self._socket = socket.socket(socket.AF_UNIX)
        self._socket.settimeout(120)
        self._socket.connect(str(path))
        self._lines = self._socket.makefile("r")

    def __call__(self, service: str, value: Any) -> dict[str, Any]:
        line = json.dumps({"service": service, "input": value}) + "\n"
        self._socket.sendall(line.encode())
        found: dict[str, Any] = json.loads(self._lines.readline())
        return found

    def close(self) -> None:
        self._lines.close()
        self._socket.close()


def test_requests_are_answered_between_iterations_and_change_no_bit(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    torch = pytest.importorskip("torch")
    torch.set_num_threads(1)
    with LocalCluster(nodes=1, gpus="1:v100") as cluster:
        path, weights, over = (cluster.folder / name for name in ("ask", "weights", "over"))
        words = [
            sys.executable, "-m", "dlsched.switch", "--listen", str(path), "--until-trained",
            "--training", str(PROGRAMS / "training.py"),
            *(f"--service={name}={PROGRAMS / f'{name}_service.py'}" for name in SERVICES),
        ]  # fmt: skip
        told = cluster.cli(
            "submit", "--output", f"{cluster.out}/%j.out", "--export",
            f"ALL,SWITCHED_WEIGHTS={weights},SWITCHED_OVER={over}",
            "--wrap", "exec " + shlex.join(words),
        )  # fmt: skip
        job = int("".join(filter(str.isdigit, told)))
        try:
            eventually("it listens", path.exists)
        except AssertionError as error:
            raise AssertionError(f"{error}\n{cluster.output(job)}\n{cluster.story(job)}") from None
        ask = Asking(path)
        models = {name: program(f"{name}_service").build().eval() for name in SERVICES}

        def switched(number: int) -> bool:
            """Whether the training was stopped for a request that is answered as it should be."""
            name = list(SERVICES)[number % 2]
            value = torch.randn(2, SERVICES[name], generator=torch.Generator().manual_seed(number))
            answer = ask(name, value.tolist())
            with torch.no_grad():
                assert answer["output"] == models[name](value).tolist()
            return bool(answer["switched"])

        for number in range(20):
            switched(number)
        numbers = count(20)
        for _ in range(3):
            eventually("the training is stopped for a request", lambda: switched(next(numbers)))
            assert "no service other" in ask("other", [])["error"]
        assert "error" in ask("small", [[1.0]])
        assert "output" in ask("small", [[1.0] * 64])
        ask.close()
        over.touch()
        cluster.until(job, "COMPLETED")
        [done] = re.findall(r"training done after (\d+) iterations", cluster.output(job))
        found = torch.load(weights)
        monkeypatch.setenv("SWITCHED_WEIGHTS", str(tmp_path / "weights"))
        training = program("training")
        model, optimizer = training.build()
        for number in range(int(done)):
            training.iteration(model, optimizer, number)
        for key, value in model.state_dict().items():
            assert torch.equal(found[key], value), key


def test_a_replica_of_a_service_trains_between_the_requests_on_its_one_gpu() -> None:
    torch = pytest.importorskip("torch")
    torch.set_num_threads(1)
    with LocalCluster(nodes=1, gpus="1:v100") as cluster:
        server = [
            sys.executable, "-m", "dlsched.switch", "--listen", "http",
            "--training", str(PROGRAMS / "training.py"),
            f"--service=small={PROGRAMS / 'small_service.py'}",
        ]  # fmt: skip
        told = cluster.cli(
            "submit", "--service", "within=10,share=0.9,most=1", "--gpus", "1",
            "--output", f"{cluster.out}/%j.out",
            "--export", "ALL,SWITCHED_WEIGHTS=/dev/null", "--", *server,
        )  # fmt: skip
        job = int("".join(filter(str.isdigit, told)))

        def address() -> str:
            return "".join(re.findall(r"requests at (\S+)", cluster.output(job)))

        url = eventually("the leader takes requests", address) + "small"
        model = program("small_service").build().eval()

        def switched(number: int) -> bool:
            """Whether the training was stopped for a request that is answered as it should be."""
            value = torch.randn(
                2, SERVICES["small"], generator=torch.Generator().manual_seed(number)
            )
            body = json.dumps({"input": value.tolist()}).encode()
            with urllib.request.urlopen(urllib.request.Request(url, body), timeout=120) as found:
                answer = json.loads(found.read())
            with torch.no_grad():
                assert answer["output"] == model(value).tolist()
            return bool(answer["switched"])

        for number in range(10):
            switched(number)
        numbers = count(10)
        eventually("the training is stopped for a request", lambda: switched(next(numbers)))
        cluster.cli("cancel", str(job))
        cluster.until(job, "CANCELLED")
        cluster.until(job + 1, "CANCELLED")
