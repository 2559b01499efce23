"""Reads of the store: one user's many reads leave the others theirs."""

from __future__ import annotations

import asyncio
import threading

import pytest

from dlsched.daemon.fair_readers import OF_ONE, THREADS, FairReaders


class Reads:
    """Reads that last until they may end, and how many there were at once."""

    def __init__(self) -> None:
        self.may_end = threading.Event()
        self.begun: list[str] = []
        self.at_once = self.most = 0
        self._changed = threading.Condition()

    def read(self, name: str) -> str:
        with self._changed:
            self.begun.append(name)
            self.at_once += 1
            self.most = max(self.most, self.at_once)
            self._changed.notify_all()
        assert self.may_end.wait(60)
        with self._changed:
            self.at_once -= 1
        return name

    async def until_begun(self, count: int) -> None:
        """Wait until so many threads read: one may be slow to run."""

        def wait() -> bool:
            with self._changed:
                return self._changed.wait_for(lambda: len(self.begun) >= count, 60)

        assert await asyncio.to_thread(wait)


def test_a_user_reads_while_another_one_s_many_reads_last() -> None:
    async def scenario() -> None:
        readers, reads = FairReaders(), Reads()
        many = [asyncio.create_task(readers.read(lambda: reads.read("b"), "bob")) for _ in range(9)]
        await reads.until_begun(OF_ONE)
        for _ in range(3):
            assert await asyncio.wait_for(readers.read(lambda: "found", "ann"), 60) == "found"
        assert reads.begun == ["b"] * OF_ONE
        reads.may_end.set()
        assert await asyncio.gather(*many) == ["b"] * 9
        assert reads.most == OF_ONE
        readers.close()

    asyncio.run(scenario())


def test_users_have_the_threads_in_turn() -> None:
    async def scenario() -> None:
        readers, reads = FairReaders(), Reads()
        reads.may_end.set()
        gate = Reads()
        closed = [
            asyncio.create_task(readers.read(lambda: gate.read("gate"), "")) for _ in range(THREADS)
        ]
        await asyncio.sleep(0)
        tasks = []
        for user, count in (("bob", 4), ("eve", 4), ("ann", 1)):
            tasks += [
                asyncio.create_task(readers.read(lambda u=user: reads.read(u), user))  # type: ignore[misc]
                for _ in range(count)
            ]
        await asyncio.sleep(0)
        gate.may_end.set()
        await asyncio.gather(*closed, *tasks)
        assert gate.begun == ["gate"] * THREADS
        assert reads.begun.index("ann") < 5  # not behind all of the others'
        assert sorted(reads.begun) == ["ann", *["bob"] * 4, *["eve"] * 4]
        readers.close()

    asyncio.run(scenario())


def test_a_read_that_fails_or_is_given_up_leaves_its_place() -> None:
    async def scenario() -> None:
        readers, reads = FairReaders(), Reads()

        def fail() -> None:
            raise ValueError("no")

        with pytest.raises(ValueError, match="no"):
            await readers.read(fail, "bob")
        begun = [
            asyncio.create_task(readers.read(lambda: reads.read("first"), "bob"))
            for _ in range(OF_ONE)
        ]
        waiting = asyncio.create_task(readers.read(lambda: reads.read("never"), "bob"))
        last = asyncio.create_task(readers.read(lambda: reads.read("last"), "bob"))
        await reads.until_begun(OF_ONE)
        for each in begun:
            each.cancel()
        waiting.cancel()
        reads.may_end.set()
        assert await last == "last"
        assert reads.begun == ["first"] * OF_ONE + ["last"]
        readers.close()

    asyncio.run(scenario())
