"""The model of scale: what it says of loads that one can reckon by hand, and that costs are found again."""

import math
import os
from itertools import pairwise
from pathlib import Path

import pytest
from benchmarks.scale_model import (
    CHECKED,
    DAY,
    HERE,
    LEARNT,
    TICK_SECONDS,
    Costs,
    Found,
    Load,
    Machines,
    Measured,
    Run,
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
    worker=Costs(process=1, task=0.01, step=0.009),
    server=Costs(process=0, task=0.002, step=0.0008),
    wal=Costs(process=0, task=1_000, step=100),
    connections=4,
    indexed_updates=2,
)


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


def test_costs_are_found_again_from_what_runs_took():
    def took(run):
        work = run.processes, run.tasks, run.tasks * run.steps
        return Found(
            worker=SIMPLE.worker.of(*work),
            server=SIMPLE.server.of(*work),
            wal=SIMPLE.wal.of(*work),
            connections=4 * run.processes,
            indexed_updates=2 * run.tasks,
        )

    found = measured(LEARNT, [took(one) for one in LEARNT])
    for name in ("worker", "server", "wal"):
        for part in ("process", "task", "step"):
            assert getattr(getattr(found, name), part) == pytest.approx(getattr(getattr(SIMPLE, name), part), abs=1e-6)
    assert (found.connections, found.indexed_updates) == (4, 2)
    for run in CHECKED:
        for said, taken in errors(found, run, took(run)).values():
            assert said == pytest.approx(taken)


def test_three_runs_that_say_the_same_are_not_enough():
    with pytest.raises(ZeroDivisionError):
        solved([Run(processes=1, tasks=1, steps=1)] * 3, [1.0, 1.0, 1.0])


@pytest.mark.parametrize("given", [[], ["--concurrency", "1000"], ["--wait-seconds", "0.05"]], ids=" ".join)
def test_the_page_has_the_tables_that_the_model_prints(given, monkeypatch, capsys):
    monkeypatch.setattr("sys.argv", ["scale_model", *given])
    main()
    assert capsys.readouterr().out.strip() in PAGE.read_text("utf-8")


def test_the_page_has_the_costs_that_the_model_uses():
    text = PAGE.read_text("utf-8")
    worker, server, wal = HERE.worker, HERE.server, HERE.wal
    for task, step, unit in (
        (worker.task * 1e3, worker.step * 1e3, "ms"),
        (server.task * 1e3, server.step * 1e3, "ms"),
    ):
        assert f"| {task:.2f} {unit} | {step:.2g} {unit} |" in text
    assert f"| {wal.task / 1e3:.1f} KB | {wal.step / 1e3:.1f} KB |" in text


@pytest.mark.skipif(os.environ.get("HOLDFAST_TEST_ALL") != "1", reason="real workers, a minute: HOLDFAST_TEST_ALL=1")
def test_the_model_says_what_two_real_runs_take(postgres_url):
    """With the costs of this machine. CPU time of a busy one differs; a model that is wrong is off by far more."""
    _, checks = measure(rounds=2, say=lambda line: None)
    for check in checks:
        for name, (said, took) in check["said"].items():
            assert said == pytest.approx(took, rel=0.5), (check["run"], name)
