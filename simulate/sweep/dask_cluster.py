"""Runs on a Dask cluster that is already there; needs the extra `dlsched[dask]`.

The inputs are scattered once. The workers must run the same dlsched as this process, which is
checked before the first run: results of different code are not comparable.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from dlsched.core.errors import BadInput, DlschedError
from simulate.results.tables import ReplayResult
from simulate.sweep.digest import code_digest
from simulate.sweep.executor import Progress
from simulate.sweep.order import LongestFirst
from simulate.sweep.run import Failed, Finished, Inputs, Run, execute

CONNECT_S = 10


class DaskCluster:
    """The executor `dask://HOST:PORT`."""

    def __init__(self, address: str) -> None:
        """Name a scheduler by HOST:PORT.

        Raises:
            BadInput: the address has no port, or `distributed` is not installed.
        """
        host, _, port = address.rpartition(":")
        if not host or not port.isdigit():
            raise BadInput(f"--executor dask://{address}: give the scheduler as dask://HOST:PORT")
        try:
            import distributed  # noqa: PLC0415 - an extra
        except ImportError:
            raise BadInput(
                "distributed is needed for --executor dask://…: pip install 'dlsched[dask]'"
            ) from None
        self.address = f"tcp://{address}"
        self._distributed: Any = distributed

    def start(
        self, inputs: Inputs, runs: Sequence[Run], on_progress: Progress
    ) -> Iterator[Finished]:
        """Do the runs on whatever workers the cluster has.

        Raises:
            DlschedError: the scheduler cannot be reached, has no workers, or they run other code.
        """
        client = self._connect()
        futures: dict[Any, Run] = {}
        try:
            self._check_workers(client)
            shared = client.scatter(inputs, broadcast=True, hash=False)
            # the same run may be asked for twice, so a future's key says nothing about its content
            left = LongestFirst(inputs, runs)
            while left:
                run = left.take()
                futures[client.submit(execute, shared, run, pure=False)] = run
            for future in self._distributed.as_completed(list(futures)):
                run = futures.pop(future)
                yield run, _result_of(future)
        finally:
            client.cancel(list(futures))
            client.close()

    def _connect(self) -> Any:
        try:
            return self._distributed.Client(self.address, timeout=CONNECT_S, name="dlsched")
        except OSError as error:
            reason = str(error).splitlines()[0] if str(error) else type(error).__name__
            raise DlschedError(
                f"cannot reach the Dask scheduler at {self.address} ({reason})"
            ) from None

    def _check_workers(self, client: Any) -> None:
        try:
            digests: dict[str, str] = client.run(code_digest)
        except ImportError as error:
            raise DlschedError(f"the Dask workers lack a module of ours: {error}") from None
        if not digests:
            raise DlschedError(f"the Dask cluster at {self.address} has no workers")
        for worker, digest in digests.items():
            if digest != code_digest():
                raise DlschedError(f"the Dask worker {worker} runs another dlsched than this one")


def _result_of(future: Any) -> ReplayResult | Failed:
    error = future.exception()  # of the cluster itself: `execute` turns all others into values
    if error is not None:
        return Failed(message=f"the Dask cluster lost it: {error!r}")
    result: ReplayResult | Failed = future.result()
    return result
