"""The model of scale: what it says of loads that one can reckon by hand, and that costs are found again."""

import math
import os
from itertools import pairwise
from pathlib import Path

import msgspec
import pytest
from benchmarks.scale_model import (
    CHECKED,
    DAY,
    EVENTS_BESIDE_STEPS,
    HERE,
    LEARNT,
    TICK_SECONDS,
    Costs,
    Found,
    Load,
    Machines,
    Measured,
    Run,
    commits_of,
    day,
    errors,
    main,
    measure,
    measured,
    plan,
    solved,
)

PAGE = Path(__file__).parents[2] / "docs" / "scale.md"
EVEN = Load(tasks_a_day=864_000, steps=10, wait_seconds=1.0, peak=1.0)
"""Ten tasks a second, all day, of ten seconds each."""
SIMPLE = Measured(
    worker=Costs(process=1, task=0.01, step=0.009, commit=0),
    server=Costs(process=0, task=0.002, step=0.0008, commit=0),
    wal=Costs(process=0, task=1_000, step=100, commit=0),
    connections=4,
    indexed_updates=2,
    shared=0.5,
    commit_seconds=0.001,
)
DEAR = msgspec.structs.replace(
    SIMPLE,
    worker=Costs(process=0, task=1e-6, step=0, commit=0),
    server=Costs(process=0, task=0, step=0, commit=0.001),
)
"""Only commits cost the server something."""


def test_the_curve_of_a_day_has_its_mean_and_its_peak():
    for load in (Load(tasks_a_day=1e6), EVEN, Load(tasks_a_day=5e4, peak=3)):
        whole = sum(load.rate(at) for at in range(0, DAY, TICK_SECONDS)) * TICK_SECONDS
        assert math.isclose(whole, load.tasks_a_day, rel_tol=0.001)
        assert math.isclose(load.rate(DAY / 2), load.peak * load.tasks_a_day / DAY, rel_tol=0.001)


def test_an_even_load_needs_what_one_reckons_by_hand():
    # Ten tasks a second of 0.1 s worker CPU: one core, so two half busy. 100 tasks at a time: two of 50.
    found = plan(EVEN, SIMPLE, Machines(busy=0.5, concurrency=50, cores=1))
    assert (found.workers, found.primaries, found.connections) == (2, 1, 8)
    assert math.isclose(found.day.busiest["worker CPU"], 1.0) and math.isclose(found.day.busiest["server CPU"], 0.2)
    assert plan(EVEN, SIMPLE, Machines(busy=0.5, concurrency=10, cores=1)).workers == 10, "places are in the way"
    assert plan(EVEN, SIMPLE, Machines(busy=0.25, concurrency=50, cores=1)).workers == 4, "processors are"


def test_too_few_workers_make_tasks_wait_and_the_day_says_for_what():
    machines = Machines(busy=0.5, concurrency=50, cores=1)
    short = day(EVEN, SIMPLE, machines, workers=1, primaries=1)
    assert short.wait_seconds == pytest.approx(DAY, rel=0.01), "half of what came in a day is left"
    assert short.bottleneck in ("worker CPU", "places of workers")
    assert day(EVEN, SIMPLE, machines, workers=100, primaries=1).wait_seconds == 0


def test_more_load_never_needs_less_and_connections_ask_for_primaries():
    plans = [plan(Load(tasks_a_day=10.0**power), HERE, Machines()) for power in range(4, 10)]
    for less, more in pairwise(plans):
        assert less.workers <= more.workers and less.primaries <= more.primaries
        assert more.connections <= more.primaries * Machines().connections
    assert all(one.day.wait_seconds <= 5 for one in plans)


def test_tasks_that_write_seldom_share_no_commit_and_busy_ones_do():
    assert DEAR.events_a_commit(tasks=100, rate=10) == 1
    assert DEAR.events_a_commit(tasks=100, rate=20_000) == 20, "what comes while one is on its way"
    assert DEAR.events_a_commit(tasks=100, rate=math.inf) == 50, "the others' are being worked on meanwhile"
    # 120 events a second, each of 1 ms of a server core by itself: 12 %.
    even = day(EVEN, DEAR, Machines(busy=1.0, concurrency=1_000, cores=1), workers=2, primaries=1)
    assert even.busiest["server CPU"] == pytest.approx(0.12)
    # A hundred times as many, in two processes: 6 share a commit.
    many = msgspec.structs.replace(EVEN, tasks_a_day=86_400_000)
    assert day(many, DEAR, Machines(busy=1.0, concurrency=10_000, cores=2), 2, 1).busiest[
        "server CPU"
    ] == pytest.approx(1.0)
    assert commits_of(DEAR, Run(processes=2, tasks=400, steps=20, wait=0.2)) == 400 * 22
    assert commits_of(DEAR, Run(processes=2, tasks=400, steps=20)) == 400 * 22 / 50


def test_costs_are_found_again_from_what_runs_took():
    def took(run):
        commits = round(commits_of(SIMPLE, run))
        work = run.processes, run.tasks, run.tasks * run.steps, commits
        return Found(
            worker=SIMPLE.worker.of(*work),
            server=SIMPLE.server.of(*work),
            wal=SIMPLE.wal.of(*work),
            commits=commits,
            seconds=1 + run.tasks * run.steps / 1_000,
            connections=4 * run.processes,
            indexed_updates=2 * run.tasks,
        )

    found = measured(LEARNT, [took(one) for one in LEARNT])
    for name in ("worker", "server", "wal"):
        for part in ("process", "task", "step", "commit"):
            assert getattr(getattr(found, name), part) == pytest.approx(getattr(getattr(SIMPLE, name), part), abs=1e-6)
    assert (found.connections, found.indexed_updates) == (4, 2)
    for run in CHECKED:
        for said, taken in errors(found, run, took(run)).values():
            assert said == pytest.approx(taken)


def test_four_runs_that_say_the_same_are_not_enough():
    with pytest.raises(ZeroDivisionError):
        solved([Run(processes=1, tasks=1, steps=1)] * 4, [1.0] * 4, [1.0] * 4)


@pytest.mark.parametrize("given", [[], ["--concurrency", "1000"], ["--wait-seconds", "0.05"]], ids=" ".join)
def test_the_page_has_the_tables_that_the_model_prints(given, monkeypatch, capsys):
    monkeypatch.setattr("sys.argv", ["scale_model", *given])
    main()
    assert capsys.readouterr().out.strip() in PAGE.read_text("utf-8")


def test_the_page_has_the_costs_that_the_model_uses():
    text = PAGE.read_text("utf-8")
    for costs, name in ((HERE.worker, "workers"), (HERE.server, "the server")):
        cells = f"{costs.task * 1e3:.2f} ms | {costs.step * 1e3:.2g} ms | {costs.commit * 1e3:.2g} ms"
        assert f"| CPU of {name} | {costs.process * 1e3:.0f} ms | {cells} |" in text
    wal = HERE.wal
    assert f"| {wal.task / 1e3:.1f} KB | {wal.step / 1e3:.1f} KB | {wal.commit / 1e3:.2f} KB |" in text


def test_the_page_says_what_a_task_of_20_steps_takes_alone_and_in_company():
    text, machines = PAGE.read_text("utf-8"), Machines()

    def takes(costs, together):
        return costs.of(0, 1, 20, (20 + EVENTS_BESIDE_STEPS) / together)

    alone, company = (takes(HERE.worker, n) for n in (1, 40))
    assert f"{machines.busy / alone:.0f} tasks of 20 steps a second" in text
    assert f"and {round(machines.busy / company, -1):.0f} if 40 share one" in text
    alone, company = (takes(HERE.server, n) for n in (1, 40))
    assert f"{alone * 1e3:.1f} ms for such a task" in text and f"{company * 1e3:.2f} ms and 15,000" in text
    assert [round(machines.cores * machines.busy / one, -2) for one in (alone, company)] == [1_300, 15_200]


@pytest.mark.skipif(os.environ.get("HOLDFAST_TEST_ALL") != "1", reason="real workers, a minute: HOLDFAST_TEST_ALL=1")
def test_the_model_says_what_three_real_runs_take(postgres_url):
    """With the costs of this machine. CPU time of a busy one differs; a model that is wrong is off by far more."""
    _, checks = measure(rounds=2, say=lambda line: None)
    for check in checks:
        for name, (said, took) in check["said"].items():
            rel = 0.7 if name == "commits" else 0.5  # how many events share one differs with all that runs here
            assert said == pytest.approx(took, rel=rel), (check["run"], name)
