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
    "--queue", "queues", multiple=True, metavar="NAME", help="A queue to serve; repeatable. Else all in FILE."
)
@click.option("--concurrency", type=int, metavar="N", help="How many tasks at a time in each process; else 100.")
@click.option("--processes", type=int, default=1, show_default=True, metavar="N", help="How many processes.")
@click.option("--namespace", "namespaces", multiple=True, metavar="NAME", help="A tenant to work for; repeatable.")
@click.option("--all-namespaces", is_flag=True, help="Work for every tenant, in turns.")
@click.option(
    "--health", type=int, metavar="PORT", help="Serve /healthz and /metrics on 127.0.0.1; 0 is any free port."
)
@click.option("--traces", is_flag=True, help="Send spans to the OTLP collector that OTEL_EXPORTER_OTLP_ENDPOINT names.")
@click.option("--metrics", is_flag=True, help="Send metrics to that collector, every minute.")
@click.option("--grace", default="30s", show_default=True, metavar="TIME", help="How long a stop may take.")
@click.option("--drain", is_flag=True, help="Stop when nothing is left to do.")
@click.option("--gc-every", metavar="TIME", help="Remove old tasks so often; of several workers one does.")
@click.option("--gc-older-than", metavar="TIME", help='Of those that ended longer ago than this, such as "30d".')
@click.option("--gc-keep", type=int, metavar="N", help="Of those beyond the newest N that have ended.")
@click.option("--quiet", is_flag=True, help="No line for each task.")
@click.option("--child", type=int, hidden=True)
def worker_(environment: Environment, target: str | None, processes: int, child: int | None, **given: Any) -> None:
    """Take tasks from queues and work on many at a time, until told to stop.

    Agents, queues and schedules come from FILE, or from the files that [tool.holdfast] agents of pyproject.toml names.
    What happens is told on stderr; --jsonl tells it on stdout, --json gives one document at the end. SIGTERM or
    Ctrl-C once: takes no more tasks, each stops after its step and is released; ends with 0. Twice, or after --grace:
    ends at once with 130, and others take over. With --processes, one that dies is started anew. With --drain it stops
    by itself when no task that it serves is ready, and none of its queues is being worked on.

    Example: holdfast worker agents.py:travel --queue default --concurrency 20 --health 9100
    """
    from holdfast.cli.work import supervisor, worker

    environment.runs_agents()
    wanted = worker.wanted(environment, target, processes=processes, child=child, **given)
    if processes > 1 and child is None:
        supervisor.supervise(environment, wanted)
    else:
        worker.serve(environment, wanted)
