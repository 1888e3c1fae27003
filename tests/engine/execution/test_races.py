"""task.race and task.select: the winner is recorded, and is the same on every replay."""

import asyncio
import random

import pytest

from holdfast import StepFailed, agent, tool

STORES = ("memory", "sqlite", "postgres")
CLOCK = None  # the real one


async def shop(task, name, seconds, paid):
    """Look around for a while that is no verb, then buy."""
    await asyncio.sleep(seconds)
    await task.step(lambda: paid.append(name), name="buy")
    return name


def test_one_wins_and_it_is_the_same_on_a_replay_that_takes_other_times(app):
    paid, times = [], [[0.0, 0.5], [0.5, 0.0]]

    @agent
    async def worker(task):
        waits = times.pop(0) if times else [0.0, 0.0]
        first, value = await task.race(*(shop(task, name, wait, paid) for name, wait in zip("ab", waits, strict=True)))
        await task.wait("go")
        return [first, value]

    app.run(worker, id="t")
    app.signal("t", "go")
    assert app.run(worker, id="t").result == [0, "a"] and paid == ["a"]


def test_a_signal_against_a_timer(app):
    @agent
    async def worker(task):
        return list(await task.race(task.wait("go"), task.sleep(600)))

    assert app.run(worker, id="t", hold=0).waiting.kind in ("signal", "timer")
    app.signal("t", "go", 7)
    assert app.run(worker, id="t").result == [0, 7]


def test_what_the_winner_raises_is_raised(app):
    @tool(effect="read")
    def fails() -> None:
        raise ValueError("no")

    @agent
    async def worker(task):
        try:
            await task.race(task.call(fails), task.wait("never"))
        except StepFailed as error:
            return error.details["step"]

    assert app.run(worker, id="t").result == "~1/fails#1"


def test_losers_of_a_race_do_not_confuse_a_replay(app):
    """A loser may have steps on record that the replay does not come to."""
    times = [[0.0, 0.0], [0.0, 0.3]]

    @agent
    async def worker(task):
        waits = times.pop(0) if times else [0.0, 0.0]

        async def line(name, wait):
            await asyncio.sleep(wait)
            await task.step(int, "1", name="look")
            await asyncio.sleep(0.1 if name == "b" else 0)
            return name

        first = await task.race(line("a", waits[0]), line("b", waits[1]))
        await task.wait("go")
        return [list(first), await task.step(int, "2", name="look")]

    app.run(worker, id="t")
    app.signal("t", "go")
    done = app.run(worker, id="t")
    assert done.result == [[0, "a"], 2], done.failure


def test_select_gives_the_first_and_lets_the_others_go_on(app):
    times = [[0.3, 0.0], [0.0, 0.3]]

    @agent
    async def worker(task):
        waits = times.pop(0) if times else [0.0, 0.0]
        tasks = [asyncio.create_task(shop(task, name, wait, [])) for name, wait in zip("ab", waits, strict=True)]
        first = await task.select(*tasks)
        values = [await one for one in tasks]
        await task.wait("go")
        return [first, values]

    app.run(worker, id="t")
    app.signal("t", "go")
    assert app.run(worker, id="t").result == [1, ["a", "b"]]


def test_many_races_in_a_row_replay_as_they_were(app):
    def times(seed):
        chance = random.Random(seed)
        return [[chance.random() / 100 for _ in range(3)] for _ in range(6)]

    lives, seen = [], []

    @agent
    async def worker(task):
        lives.append(1)
        winners = []
        for waits in times(len(lives)):
            first, _ = await task.race(*(shop(task, str(n), wait, []) for n, wait in enumerate(waits)))
            winners.append(first)
        seen.append(winners)
        await task.wait("go")
        return winners

    app.run(worker, id="t")
    app.signal("t", "go")
    done = app.run(worker, id="t")
    assert done.status == "completed" and seen[0] == seen[1], (done.failure, seen)


@pytest.mark.parametrize("verb", ["race", "select"])
def test_a_race_of_one_and_in_a_def_agent_is_refused(app, verb):
    @agent
    async def alone(task):
        await getattr(task, verb)(asyncio.get_running_loop().create_future())

    @agent
    def plain(task):
        getattr(task, verb)()

    for one, told in ((alone, "two or more"), (plain, "async def")):
        failed = app.run(one, id=one.name)
        assert failed.failure.code == "invalid-value" and told in failed.failure.message
