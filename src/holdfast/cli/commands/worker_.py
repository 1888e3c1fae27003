"""`holdfast worker`."""

from __future__ import annotations

from typing import Any

import click

from holdfast.cli.command import command
from holdfast.cli.completion import files
from holdfast.cli.environment import Environment


@command("worker", lines=True, namespace=False)
@click.argument("target", metavar="[FILE][:AGENT,…]", required=False, shell_complete=files)
@click.option(
    "--queue", "queues", multiple=True, metavar="NAME", help="A queue to serve; repeatable. Default: all in FILE."
)
@click.option("--concurrency", type=int, metavar="N", help="Tasks at a time in each process. Default: 100.")
@click.option("--processes", type=int, default=1, show_default=True, metavar="N", help="Number of processes.")
@click.option(
    "--namespace",
    "namespaces",
    multiple=True,
    metavar="NAME",
    help="A tenant to work for; repeatable. Default: HOLDFAST_NAMESPACE.",
)
@click.option("--all-namespaces", is_flag=True, help="Work for every tenant, in turns.")
@click.option(
    "--health",
    metavar="[HOST:]PORT",
    help="Serve /livez, /readyz, /healthz and /metrics on 127.0.0.1; 0 takes any free port. "
    "On a HOST that other machines reach: /livez and /readyz only.",
)
@click.option("--traces", is_flag=True, help="Send spans to the OTLP collector that OTEL_EXPORTER_OTLP_ENDPOINT names.")
@click.option("--metrics", is_flag=True, help="Send metrics to that collector, every minute.")
@click.option(
    "--grace",
    default="30s",
    show_default=True,
    metavar="TIME",
    help="How long to wait for running steps when it is stopped.",
)
@click.option("--drain", is_flag=True, help="Stop when no task is left.")
@click.option("--gc-every", metavar="TIME", help="How often to remove old tasks. Of several workers, one does it.")
@click.option(
    "--gc-older-than", metavar="TIME", help='With --gc-every: remove tasks that ended longer ago, such as "30d".'
)
@click.option("--gc-keep", type=int, metavar="N", help="With --gc-every: keep the newest N ended tasks.")
@click.option(
    "--rare-gc/--no-rare-gc",
    default=True,
    show_default=True,
    help="Look for garbage in memory less often than Python does. Thousands of live tasks cost a third less CPU.",
)
@click.option("--quiet", is_flag=True, help="Do not print a line for each task.")
@click.option("--child", type=int, hidden=True)
def worker_(environment: Environment, target: str | None, processes: int, child: int | None, **given: Any) -> None:
    """Run a worker: take tasks from queues and work on many at a time.

    Agents, queues and schedules come from FILE. Without FILE they come from the files that [tool.holdfast] agents in
    pyproject.toml lists. Progress goes to stderr. --jsonl prints it to stdout; --json prints one document at the end.

    SIGTERM or Ctrl-C, once: the worker takes no more tasks, lets each finish its step and releases it. Exit code 0.
    Twice, or after --grace: it ends at once with 130, and other workers take over. With --processes, a process that
    dies is started again. With --drain, the worker stops when its queues have no task that is ready or running.

    Example: holdfast worker agents.py:travel --queue default --concurrency 20 --health 9100
    """
    from holdfast.cli.work import supervisor, worker

    environment.runs_agents()
    wanted = worker.wanted(environment, target, processes=processes, child=child, **given)
    if processes > 1 and child is None:
        supervisor.supervise(environment, wanted)
    else:
        worker.serve(environment, wanted)
