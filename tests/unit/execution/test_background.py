"""What an actor does beside its calls: nobody waits for it, and its errors are said."""

from __future__ import annotations

import asyncio

import pytest

from sentdist.execution.board.submissions import BackgroundTasks


def test_what_a_task_raises_is_logged_at_once_and_a_cancelled_one_says_nothing(caplog: pytest.LogCaptureFixture) -> None:
    error = ValueError("of a body")
    done: list[str] = []

    async def works() -> None:
        await asyncio.sleep(0)
        done.append("it")

    async def fails() -> None:
        raise error

    async def drive() -> None:
        background = BackgroundTasks()
        for work in (works(), fails(), asyncio.sleep(60.0)):
            background.start(work)
        sleeping = next(task for task in asyncio.all_tasks() if "sleep" in repr(task.get_coro()))
        await asyncio.sleep(0.01)
        sleeping.cancel()
        await asyncio.sleep(0.01)
        assert [record.exc_info[1] for record in caplog.records if record.exc_info] == [error]

    asyncio.run(drive())
    of_tasks = [record for record in caplog.records if record.name.startswith(("sentdist.execution.board", "asyncio"))]
    assert done == ["it"] and len(of_tasks) == 1  # a thread that another test has left may log, too
