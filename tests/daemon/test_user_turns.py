"""Work that is done one at a time goes from user to user."""

from __future__ import annotations

import asyncio

from dlsched.daemon.turns import UserTurns


def test_a_user_with_many_calls_waits_for_one_of_each_other_user() -> None:
    async def scene() -> list[str]:
        turns, order = UserTurns(), list[str]()

        async def work(user: str) -> None:
            async with turns.of(user):
                order.append(user)
                await asyncio.sleep(0)

        await asyncio.gather(*map(work, ["ann"] * 5 + ["bob"] * 2 + ["eve"]))
        return order

    order = asyncio.run(scene())
    assert sorted(order) == ["ann"] * 5 + ["bob"] * 2 + ["eve"]
    assert set(order[:3]) == {"ann", "bob", "eve"}


def test_a_call_that_is_given_up_leaves_its_place() -> None:
    async def scene() -> None:
        turns = UserTurns()
        async with turns.of("ann"):
            waits = [asyncio.ensure_future(enter(turns, user)) for user in ("ann", "bob")]
            await asyncio.sleep(0)
            for each in waits:
                each.cancel()
            await asyncio.gather(*waits, return_exceptions=True)
        await enter(turns, "bob")
        await enter(turns, "ann")

    async def enter(turns: UserTurns, user: str) -> None:
        async with turns.of(user):
            pass

    asyncio.run(asyncio.wait_for(scene(), 60))
