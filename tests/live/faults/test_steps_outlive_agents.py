"""A step of `srun` over two nodes goes on while the agents of its nodes are killed and started."""

from __future__ import annotations

import os

import pytest

from dlsched.torture.local_cluster import LocalCluster, eventually, free_port

pytestmark = pytest.mark.slow

# counts in the background, says each line that it reads, and ends with a code of its rank
COUNTS = """
(i=0; until [ -e stop ]; do echo $SLURM_PROCID counts $i; i=$((i + 1)); sleep 0.02; done) &
while read line; do echo $SLURM_PROCID reads $line; done
wait
exit $((SLURM_PROCID * 4))
"""


class WithPorts(LocalCluster):
    """A cluster whose agents keep their ports, as on real nodes."""

    def __init__(self) -> None:
        super().__init__(nodes=2)
        self.ports = {name: free_port() for name in self.names}

    def _agent_settings(self, name: str) -> dict[str, object]:
        listen = f"127.0.0.1:{self.ports[name]}"
        return {**super()._agent_settings(name), "listen": listen}


def test_no_line_no_input_and_no_code_of_a_step_is_lost() -> None:
    with WithPorts() as cluster:
        (cluster.folder / "counts.sh").write_text(COUNTS)
        os.mkfifo(cluster.folder / "in")
        script = "srun -N 2 -n 2 sh counts.sh < in; echo code $?"
        job = cluster.submit(script, nodes="2", gpus="2")

        def until_read(line: str, *ranks: int) -> None:
            for rank in ranks:
                said = f"{rank} reads {line}\n"
                eventually(said, lambda said=said: said in cluster.output(job))

        cluster.until_begun(job)
        with (cluster.folder / "in").open("w", buffering=1) as given:
            print("first", file=given)
            until_read("first", 0, 1)
            for name in cluster.names:
                cluster.kill(name)
                print(f"without {name}", file=given)
                until_read(f"without {name}", 0)
                cluster.start_agent(name)
                until_read(f"without {name}", 0, 1)
        for name in cluster.names:
            cluster.kill(name)
        (cluster.folder / "stop").touch()
        for name in cluster.names:
            cluster.start_agent(name)
        cluster.until(job, "COMPLETED")
        lines = cluster.output(job).splitlines()
        for rank in (0, 1):
            counted = [line for line in lines if line.startswith(f"{rank} counts ")]
            assert counted == [f"{rank} counts {k}" for k in range(len(counted))]
            read = [line for line in lines if line.startswith(f"{rank} reads ")]
            assert read == [
                f"{rank} reads {said}" for said in ("first", "without n1", "without n2")
            ]
            lines = [line for line in lines if line not in {*counted, *read}]
        assert lines == ["dlsched: run: rank 1 on n2: exit code 4", "code 4"]
