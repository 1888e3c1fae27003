"""Task: the verbs of an agent, one line each."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any

from msgspec import UNSET

from holdfast.core import codec, flows
from holdfast.core import events as ev
from holdfast.core.flows import Branch, Want
from holdfast.core.hot import Hot
from holdfast.core.policy import Duration, Retry, seconds
from holdfast.core.records import moment
from holdfast.engine.agent import Tool, as_retry
from holdfast.engine.bag import Bag
from holdfast.engine.callables import parameters_of
from holdfast.engine.drive import drive
from holdfast.engine.run import Run
from holdfast.engine.view import message_values

if TYPE_CHECKING:
    from random import Random
    from uuid import UUID

pack = codec.pack


class Task:
    """What a `def` agent works with.

    Waiting verbs are durable when they return; immediate ones with the next waiting verb.
    """

    def __init__(self, run: Run) -> None:
        self._run = run
        self.state = Bag(run, lambda: self._branch)

    # Waiting verbs

    def step(
        self,
        fn: Callable[..., Any],
        *args: Any,
        name: str | None = None,
        retry: Retry | int | None = None,
        timeout: Duration | None = None,
        **kwargs: Any,
    ) -> Any:
        """Do this once, ever; the same value on every replay."""
        parameters = parameters_of(fn, name)
        arguments = parameters.bind(args, kwargs)
        want = Want(
            name=parameters.name,
            fn=lambda: fn(*args, **kwargs),
            input={key: pack(value, f"{parameters.name}({key})") for key, value in arguments.items()},
            arguments=arguments,
            retry=as_retry(retry),
            timeout=None if timeout is None else seconds(timeout, "timeout"),
            on_change=self._run.agent.on_change,
        )
        return parameters.result(self._drive("step", flows.step(self._run, self._branch, want)))

    def call(self, tool: Tool, **arguments: Any) -> Any:
        """Call a tool, as its declared effect asks."""
        given = tool.parameters.check(arguments)
        want = Want(
            name=tool.name,
            fn=tool.fn,
            given=tool.parameters.given,
            input={key: pack(value, f"{tool.name}({key})") for key, value in arguments.items()},
            arguments=given,
            retry=tool.retry,
            timeout=tool.timeout,
            tool=tool.name,
            effect=tool.effect,
            risk=tool.risk,
            unique=tool.unique_key(given),
            retry_on=tool.retry_on,
            reconcile=tool.reconcile,
            reconcile_after=tool.reconcile_after,
            on_doubt=tool.on_doubt,
            on_change=self._run.agent.on_change,
        )
        return tool.parameters.result(self._drive("call", flows.step(self._run, self._branch, want)))

    def ask(self, question: str, *, name: str = "ask", timeout: Duration | None = None) -> Any:
        """Ask a person and wait for the answer; None if nobody answered in time."""
        limit = None if timeout is None else seconds(timeout)
        return self._drive("ask", flows.wait(self._run, self._branch, name, "person", pack(question), limit))

    def wait(self, signal: str, *, timeout: Duration | None = None) -> Any:
        """Wait for a signal; gives its value, or None if it did not come in time."""
        limit = None if timeout is None else seconds(timeout)
        return self._drive("wait", flows.wait(self._run, self._branch, signal, "signal", None, limit))

    def sleep(self, length: Duration) -> None:
        """Let time pass, also across restarts."""
        self._drive("sleep", flows.wait(self._run, self._branch, "sleep", "timer", None, seconds(length)))

    def checkpoint(self, label: str) -> None:
        """Everything before this is durable when it returns; `app.rollback(id, to=label)` comes back here."""
        self._say(ev.CheckpointMade(label=label))
        self._run.flush()
        self._branch.see(self._run.log.head.seq)

    # Immediate verbs

    def stage(self, name: str) -> None:
        """Say how far the work is."""
        self._say(ev.StageSet(stage=name))

    def phase(self, name: str) -> None:
        """Move to another phase of the agent's life."""
        self._say(ev.PhaseSet(phase=name))

    def decide(self, question: str, choice: Any, *, why: str = "", options: Sequence[Any] = ()) -> None:
        """Record a choice, its reason and the options not taken."""
        left = pack(list(options)) if options else UNSET
        self._say(ev.DecisionMade(question=question, choice=pack(choice), why=why, options=left))

    def fact(self, key: str, value: Any, *, source: str = "") -> None:
        """Record something learned, and from where."""
        self._say(ev.FactLearned(key=key, value=pack(value, f"fact {key!r}"), source=source))

    def plan(self, steps: Sequence[str]) -> None:
        """Replace the plan."""
        self._say(ev.PlanSet(steps=tuple(steps)))

    def done(self, plan_step: str) -> None:
        """Tick off a step of the plan."""
        self._say(ev.PlanStepDone(step=plan_step))

    def question(self, text: str) -> None:
        """Note an open question."""
        self._say(ev.QuestionOpened(question=text))

    def artifact(self, data: Any, *, type: str = "text", summary: str = "") -> str:
        """Keep something made; gives its id."""
        raw = pack(data, "artifact")
        artifact_id = f"{type}-{codec.fingerprint([type, bytes(raw).decode()])[:12]}"
        event = ev.ArtifactAdded(artifact_id=artifact_id, type=type, data=raw, summary=summary, bytes=len(raw))
        self._say(event)
        return artifact_id

    def note(self, key: str, value: Any) -> None:
        """Keep a working note."""
        self._say(ev.NoteSet(key=key, value=pack(value, f"note {key!r}")))

    def flag(self, name: str) -> None:
        """Raise a flag."""
        self._say(ev.FlagRaised(flag=name))

    def message(self, message: Mapping[str, Any]) -> None:
        """Add a message to the conversation."""
        self._say(ev.MessageAdded(message=pack(message, "message")))

    def log(self, text: str) -> None:
        """Write a line to the log; silent on replay."""
        self._say(ev.LogWritten(text=text))

    # What the task is

    @property
    def id(self) -> str:
        """The task's id."""
        return self._run.log.name

    @property
    def turn(self) -> int:
        """Which pass of a loop this is, from 1; 0 outside a loop."""
        return self._run.hot.turn

    @property
    def input(self) -> dict[str, Any]:
        """What the task was started with."""
        return {name: self._run.value(raw) for name, raw in self._run.hot.input.items()}

    @property
    def deadline(self) -> datetime | None:
        """When the task must be done."""
        deadline_us = self._run.hot.summary.deadline_us
        return None if deadline_us is None else moment(deadline_us)

    @property
    def messages(self) -> list[Any]:
        """The conversation, as far as this branch sees it."""
        seen = [self._run.value(raw) for raw in message_values(self._run.logs, self.id, self._branch.seen)]
        said = [one for one in self._branch.own if isinstance(one, ev.MessageAdded)]
        return seen + [self._run.value(one.message) for one in said if one.message is not UNSET]

    def now(self) -> datetime:
        """The time of the last event this branch sees; the same on every replay."""
        return moment(self._seen.updated_us)

    def uuid(self) -> UUID:
        """An id made of chance that is the same on every replay."""
        from uuid import UUID

        return UUID(int=self._chance("uuid").getrandbits(128), version=4)

    def random(self) -> float:
        """A number from 0 to 1 that is the same on every replay."""
        return self._chance("random").random()

    def _chance(self, what: str) -> Random:
        from random import Random  # few agents draw lots, and it takes a while to import

        hot = self._run.hot
        return Random(f"{hot.seed} {hot.turn} {self._branch.key(f'({what})')}")

    # Behind the verbs

    @property
    def _branch(self) -> Branch:
        return self._run.root

    @property
    def _seen(self) -> Hot:
        return self._run.view(self._branch)

    def _say(self, event: ev.Event) -> None:
        self._run.say(self._branch, event)

    def _drive(self, verb: str, flow: flows.Flow) -> Any:
        self._run.refuse_inside_a_step(verb)
        return self._run.value(drive(flow, self._run))
