"""Run workers as Ray actors: Ray finds machines for them and starts them again, Holdfast gives them tasks.

    ray.init()
    crew = on_ray.workers("postgresql://…", [recap], number=4, concurrency=100)
    crew.scale(8)
    print(crew.metrics())
    crew.stop()

Each actor hosts an ordinary worker: queues, timers, signals, take-over and quarantine are Holdfast's. Nothing is sent
through Ray but the agents. An actor that dies is started again by Ray; its tasks are taken over by the others at once.
"""

from __future__ import annotations

import contextlib
import inspect
import itertools
import os
import threading
from collections.abc import Callable, Sequence
from importlib import import_module
from importlib.util import find_spec
from typing import Any, Literal, Self, TypedDict, Unpack

from msgspec import Struct

import holdfast
from holdfast import Agent, HoldfastError, InvalidValue, MissingExtra, Queue, Retention, Schedule, StoreError
from holdfast.core.errors import InvalidUrl
from holdfast.engine.reading.values import Duration, seconds as as_seconds

if find_spec("ray") is None:
    raise MissingExtra("ray is not installed", hint="from a checkout: pip install 'path/to/holdfast[postgres,ray]'")

ray: Any = import_module("ray")  # it has types for little of what is used here

READY_SECONDS = 60.0
"""How long the first start of an actor may take."""

ANSWER_SECONDS = 5.0
"""How long an actor may take to say how it is. One that is just being started again takes longer."""

GRACE_SECONDS = 30.0
"""How long tasks under way may take to reach the end of their step when a worker is stopped."""

PAUSE_SECONDS = 5.0
"""How long an actor waits at the most before it tries again to open a store that can't be reached."""


class Given(TypedDict, total=False):
    """What the workers are given besides their agents: see `app.worker`."""

    concurrency: int
    queues: Sequence[str | Queue] | None
    namespaces: Sequence[str] | Literal["*"] | None
    schedules: Sequence[Schedule]
    max_deaths: int
    gc: Retention | None


class RayWorker(Struct, frozen=True, kw_only=True):
    """One actor and its worker. `state` is `working`, `starting`, `stopping`, or `away` while Ray starts it again."""

    name: str
    state: Literal["working", "starting", "stopping", "away"]
    node: str = ""
    pid: int = 0
    busy: int = 0
    counts: dict[str, int] = {}
    trouble: str = ""


def workers(
    url: str | os.PathLike[str],
    agents: Sequence[Agent],
    *,
    number: int = 1,
    name: str = "",
    options: dict[str, Any] | None = None,
    opened: dict[str, Any] | None = None,
    **given: Unpack[Given],
) -> RayWorkers:
    """Start so many actors that host a worker each, and return when all of them work.

    `url`: the store, as the actors' machines reach it; a file by its absolute path. `agents` and what is not named
    here are as for `app.worker`: `concurrency`, `queues`, `namespaces`, `schedules`, `max_deaths`, `gc`. `name`: a name
    under which the workers outlive this program, and under which another call finds them, as they are. Default: they
    end with this program. `options`: options of Ray actors, such as `num_cpus`, `resources` and `runtime_env`.
    `opened`: options of `holdfast.open`.
    """
    address = _address(url)
    if not isinstance(agents, Sequence) or not agents or not all(isinstance(one, Agent) for one in agents):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise InvalidValue(f"agents={agents!r} is not a list of agents", hint="give a list: [agent]")
    inspect.signature(holdfast.open).bind(address, agents=agents, **(opened or {}))  # refuse an unknown name here,
    inspect.signature(holdfast.App.worker).bind(None, agents, **given)  # not in each actor
    made = RayWorkers(lambda: (address, [*agents], given, opened or {}), name, options or {})
    made.scale(number)
    return made


def _address(url: str | os.PathLike[str]) -> str:
    """Return the address of one store for all actors, or refuse it."""
    address = str(url)
    if not address.startswith(("postgres:", "postgresql:", "sqlite:////")) and not os.path.isabs(address):
        raise InvalidUrl(
            "url= names another store in each actor: each has a memory and a working directory of its own",
            hint="write postgresql://…, or on one machine the absolute path of a file",
        )
    return address


class RayWorkers:
    """The actors that host workers. Made by `on_ray.workers`."""

    def __init__(self, arguments: Callable[[], tuple[Any, ...]], name: str, options: dict[str, Any]) -> None:
        self._arguments = arguments
        self._name = name
        self._options = options
        self._actors: dict[int, Any] = _named(name) if name else {}
        """By place. A place is free again when its actor is stopped, or was ended by others."""

    def __repr__(self) -> str:
        return f"<{len(self._actors)} workers on Ray>"

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *raised: object) -> None:
        self.stop()

    @property
    def number(self) -> int:
        """How many actors there are."""
        return len(self._actors)

    def scale(self, number: int, *, grace: Duration = GRACE_SECONDS) -> None:
        """Start more actors, or stop the last ones: their tasks stop after their step, and others take them."""
        if not isinstance(number, int) or number < 0:  # pyright: ignore[reportUnnecessaryIsInstance]
            raise InvalidValue(f"number={number!r} is not a number of workers", hint="give 0 or more")
        seconds = as_seconds(grace, "grace")
        free = (place for place in itertools.count() if place not in self._actors)
        more = list(itertools.islice(free, max(0, number - len(self._actors))))
        try:
            self._actors |= {place: self._start(place) for place in more}
            self._wait_until_ready(more)
        except BaseException:  # Ctrl-C too: none of the new actors is left behind
            self._stop([place for place in more if place in self._actors], 0)
            raise
        self._stop(sorted(self._actors)[number:], seconds)

    def stop(self, *, grace: Duration = GRACE_SECONDS) -> None:
        """Stop all of them: tasks under way stop after their step and are released, at most after `grace`."""
        self._stop(sorted(self._actors), as_seconds(grace, "grace"))

    def status(self) -> list[RayWorker]:
        """Return how each worker is: its machine and process, what it works on, what it has counted."""
        asked = {place: actor.status.remote() for place, actor in sorted(self._actors.items())}
        if not asked:
            return []
        ready, _ = ray.wait([*asked.values()], num_returns=len(asked), timeout=ANSWER_SECONDS)
        return [_answer(one, place, one in ready) for place, one in asked.items()]

    def metrics(self) -> str:
        """Return the counts of all workers, as Prometheus reads them."""
        lines = ["# TYPE holdfast_ray_worker_busy gauge"]
        found = self.status()
        lines += [f'holdfast_ray_worker_busy{{worker="{one.name}"}} {one.busy}' for one in found]
        lines += ["# TYPE holdfast_ray_worker_tasks_total counter"]
        for one in found:
            label = f'worker="{one.name}",outcome='
            lines += [f'holdfast_ray_worker_tasks_total{{{label}"{what}"}} {n}' for what, n in one.counts.items()]
        return "\n".join([*lines, ""])

    def _start(self, place: int) -> Any:
        """Start an actor. It works as soon as it is there, also when Ray has started it again."""
        options: dict[str, Any] = {"scheduling_strategy": "SPREAD", **self._options}
        if self._name:
            options |= {"name": f"{self._name}-{place}", "namespace": NAMESPACE, "lifetime": "detached"}
            options["get_if_exists"] = True
        made: Any = ray.remote(WorkerActor).options(max_restarts=-1, max_task_retries=0, max_concurrency=8, **options)
        actor = made.remote(*self._arguments())
        _HELD.append(actor)
        return actor

    def _wait_until_ready(self, places: list[int]) -> None:
        asked = [self._actors[place].ready.remote() for place in places]
        try:
            ray.get(asked, timeout=READY_SECONDS)
        except ray.exceptions.GetTimeoutError:
            ready, _ = ray.wait(asked, num_returns=len(asked), timeout=0)
            raise HoldfastError(
                f"{len(asked) - len(ready)} of {len(asked)} workers were not started within {READY_SECONDS:.0f} s",
                hint="see with `ray status` whether the cluster has room for their options=",
            ) from None
        except ray.exceptions.RayTaskError as error:
            if isinstance(error.cause, HoldfastError):
                raise error.cause from None  # what it says is enough, without the traceback of the actor
            raise

    def _stop(self, places: list[int], grace: float) -> None:
        some = [self._actors[place] for place in places]
        asked = [one.drain.remote(grace) for one in some]
        if asked:
            ray.wait(asked, num_returns=len(asked), timeout=grace + ANSWER_SECONDS)
        for one in some:
            ray.kill(one, no_restart=True)
            _HELD[:] = [held for held in _HELD if held is not one]
        self._actors = {place: one for place, one in self._actors.items() if place not in places}


_HELD: list[Any] = []
"""The actors that this program has started: Ray would end one that nothing refers to any more."""

NAMESPACE = "holdfast"
"""Ray's namespace of named actors."""


def _named(name: str) -> dict[int, Any]:
    """The actors of that name that are there, by place."""
    places: list[int] = []
    for one in ray.util.list_named_actors(all_namespaces=True):
        stem, _, place = one["name"].rpartition("-")
        if one["namespace"] == NAMESPACE and stem == name and place.isdigit():
            places.append(int(place))
    return {place: ray.get_actor(f"{name}-{place}", namespace=NAMESPACE) for place in places}


def _answer(asked: Any, place: int, is_ready: bool) -> RayWorker:
    with contextlib.suppress(ray.exceptions.RayError):
        if is_ready:
            return RayWorker(**ray.get(asked))
    return RayWorker(name=str(place), state="away")


class WorkerActor:
    """What runs in the actor's process: an app, and a worker in a thread. Ray calls its methods in other threads."""

    def __init__(self, url: str, agents: list[Agent], given: dict[str, Any], opened: dict[str, Any]) -> None:
        self._open = lambda: holdfast.open(url, agents=agents, **opened)
        self._given = given
        self._stopping = threading.Event()
        self._at_work = threading.Event()
        self._failed: BaseException | None = None
        self._trouble = ""
        self._worker: holdfast.Worker | None = None
        self._thread = threading.Thread(target=self._work, name="holdfast-worker", daemon=True)
        self._thread.start()

    def ready(self) -> None:
        """Return when the worker works, or raise why it can't."""
        while not self._at_work.wait(0.05):
            if self._failed is not None:
                raise self._failed
            if self._trouble:
                raise StoreError(
                    f"the worker can't open its store: {self._trouble}", hint="see that Ray's machines reach it"
                )

    def status(self) -> dict[str, Any]:
        """Return what RayWorker shows."""
        worker = self._worker
        state = "stopping" if self._stopping.is_set() else "starting" if worker is None else "working"
        node = ray.get_runtime_context().get_node_id()
        return {
            "name": f"{node[:8]}-{os.getpid()}" if worker is None else worker.name,
            "state": state,
            "node": node,
            "pid": os.getpid(),
            "busy": 0 if worker is None else worker.busy,
            "counts": {} if worker is None else worker.counts.all(),
            "trouble": self._trouble if worker is None else worker.trouble,
        }

    def drain(self, grace: float) -> None:
        """Stop the worker; return when its tasks have stopped after their step, at most after so long."""
        self._stopping.set()
        if self._worker is not None:
            self._worker.stop()
        self._thread.join(grace)

    def _work(self) -> None:
        """Work until it is stopped. A store that can't be reached is tried again; after other errors, Ray restarts."""
        pause = 0.1
        while not self._stopping.is_set():
            try:
                with self._open() as app:
                    self._worker = app.worker(**self._given)
                    self._trouble = ""
                    self._at_work.set()
                    if self._stopping.is_set():
                        return
                    self._worker.run()
                return
            except StoreError as error:
                self._trouble, self._worker = error.message, None
                self._stopping.wait(pause)
                pause = min(PAUSE_SECONDS, pause * 2)
            except BaseException as error:  # noqa: BLE001 — ready() raises it; or Ray starts the actor again
                self._failed, self._trouble = error, f"{type(error).__name__}: {error}"
                if self._at_work.is_set():
                    os._exit(1)
                return
