"""From what users write to what flows are asked for: a function and its arguments, a tool's call, an undoing."""

from __future__ import annotations

import hmac
import os
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from msgspec import UNSET, Raw
from msgspec.structs import replace

from holdfast.core import codec, names
from holdfast.core.codec import Secret
from holdfast.core.durations import Duration, seconds
from holdfast.core.errors import InvalidValue
from holdfast.core.events import Fields, Usage
from holdfast.core.flows.requests import StepRequest
from holdfast.core.retries import Retry
from holdfast.core.state.shapes import Undo
from holdfast.engine.definitions.agent import Agent
from holdfast.engine.definitions.call import Call
from holdfast.engine.definitions.signature import Parameters, parameters_of
from holdfast.engine.definitions.step import Step
from holdfast.engine.definitions.tool import Errors, Tool, as_retry, error_test, is_tool, undo_name

_DECLARED = (Tool, Agent)

SECRET_KEY = "HOLDFAST_SECRET_KEY"
"""The environment variable that keys the fingerprints of secrets in tasks of older versions."""

UNDO_RETRY = Retry(attempts=5)
"""How often something is tried that undoes, by default."""


def step_request(
    agent: Agent,
    fn: Callable[..., Any],
    args: tuple[Any, ...],
    kwargs: Mapping[str, Any],
    *,
    name: str | None = None,
    key: str | None = None,
    retry: Retry | int | None = None,
    retry_on: Errors = (),
    timeout: Duration | None = None,
    estimate: Usage | int | None = None,
) -> tuple[StepRequest, Parameters]:
    """A plain step: any function with arguments."""
    if isinstance(fn, Step):
        name, retry = name or fn.name, fn.retry if retry is None else retry
        timeout, retry_on = fn.timeout if timeout is None else timeout, retry_on or fn.retry_on
        fn = fn.fn
    if isinstance(fn, _DECLARED):
        verb = "call" if isinstance(fn, Tool) else "spawn"
        raise InvalidValue(f"{fn!r} is not a plain function", hint=f"use task.{verb}, which heeds what it declares")
    if not callable(fn):
        raise InvalidValue(f"{fn!r} cannot be called", hint="give a function, and its arguments after it")
    parameters = parameters_of(fn, name)
    if parameters.returns_set:
        parameters.refuse_set()
    arguments = parameters.bind(args, kwargs)
    request = StepRequest(
        name=parameters.name,
        key="" if key is None else names.given_key(key),
        fn=_bound(fn, args, kwargs),
        input={key: _packed(value, parameters.name, key) for key, value in arguments.items()},
        arguments=arguments,
        retry=agent.retry if retry is None else as_retry(retry),
        retry_on=error_test(retry_on, f"retry_on= of {parameters.name!r}"),
        timeout=None if timeout is None else seconds(timeout, "timeout", above_zero=True),
        on_change=agent.on_change,
        is_async=parameters.is_async,
        result=parameters.result,
        estimate=None if estimate is None else as_usage(estimate),
    )
    return request, parameters


def as_usage(given: Usage | int) -> Usage:
    """An estimate as usage: a number is one of tokens."""
    usage = given if isinstance(given, Usage) else Usage(given)
    if any(not isinstance(one, int) or one < 0 for one in (usage.input_tokens, usage.output_tokens)):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise InvalidValue(f"{given!r} is not an estimate", hint="give a number of tokens, or Usage(…)")
    return usage


def call_request(
    agent: Agent,
    tool: Tool,
    arguments: Mapping[str, Any],
    *,
    is_old: bool = False,
    secret_key: Callable[[], bytes] = bytes,
) -> StepRequest:
    """A call of a tool. In a task that is old, its identity covers fingerprints of its secrets."""
    secret = {name: value for name, value in arguments.items() if name in tool.redact or type(value) is Secret}
    if tool.parameters.returns_set:
        tool.parameters.refuse_set()
    given, input, shown = _checked(tool, arguments, secret, is_old)
    compensate = tool.compensate
    hides = secret or tool.redact
    return StepRequest(
        name=tool.name,
        fn=tool.fn,
        given=tool.parameters.given,
        input=input,
        arguments=given,
        retry=agent.retry if tool.retry is None else tool.retry,
        timeout=tool.timeout,
        tool=tool.name,
        effect=tool.effect,
        risk=tool.risk,
        rate=tool.rate,
        unique=tool.unique_key({**tool.parameters.with_defaults(given), **shown}) if tool.unique else "",
        undo="" if compensate is None else undo_name(compensate),
        approval=bool(tool.risk) and tool.risk in agent.risks,
        approval_seconds=agent.approve_within,
        retry_on=tool.retry_on,
        definite=tool.definite,
        reconcile=tool.reconcile,
        reconcile_after=tool.reconcile_after,
        abandoned_after=tool.abandoned_after,
        on_doubt=tool.on_doubt,
        on_raise=tool.on_raise,
        marks_sending=tool.marks_sending,
        declared=tool.declared,
        on_change=agent.on_change,
        mock=tool.mock,
        secrets=_secret_texts(tool, given, secret) if hides else (),
        secret_print=partial(_secret_print, secret_key, secret) if secret else None,
        old_input=_input(tool, arguments, secret, True)[0] if secret and not is_old else None,
        result=tool.parameters.result,
        is_async=tool.is_async,
    )


def undo_request(
    undo: Any, one: Undo, task_id: str, value: Callable[[Raw], Any], instead: Callable[..., Any] | None = None
) -> StepRequest:
    """A step that undoes: what a tool declared is given the call, what an agent registered its own arguments.

    `instead` is what is called in a mock task.
    """
    arguments = {name: value(raw) for name, raw in one.input.items()}
    plain: Callable[..., Any] = instead or (undo.fn if is_tool(undo) else undo)
    parameters = parameters_of(plain)
    known: dict[str, Any] = {"tool": one.tool, "arguments": arguments, "idempotency_key": one.idempotency_key}
    call = Call(task_id, one.step, 1, **known, result=value(one.result), maybe_done=one.maybe_done)

    def fn(**filled: Any) -> Any:
        return plain(call, **filled) if one.step else plain(**arguments, **filled)

    request = StepRequest(
        name=one.name,
        fn=fn,
        given=tuple(name for name in parameters.given if name == "idempotency_key"),
        input={"of": codec.pack(one.step)} if one.step else one.input,
        frees=one.unique,
        arguments={},
        retry=UNDO_RETRY,
        tool=one.name,
        effect="idempotent",
        on_change="keep",
        mock=UNSET if instead is None else fn,
        is_async=parameters.is_async,
    )
    return _as_declared(request, undo) if is_tool(undo) else request


def _as_declared(request: StepRequest, tool: Tool) -> StepRequest:
    """Return the effect of a tool that undoes. A tool that declares none can be repeated: it has a key."""
    return replace(
        request,
        tool=tool.name,
        effect=tool.effect if tool.declared else "idempotent",
        retry=UNDO_RETRY if tool.retry is None else tool.retry,
        retry_on=tool.retry_on,
        definite=tool.definite,
        timeout=tool.timeout,
        rate=tool.rate,
        reconcile=tool.reconcile,
        reconcile_after=tool.reconcile_after,
        abandoned_after=tool.abandoned_after,
        on_doubt=tool.on_doubt,
        on_raise=tool.on_raise,
        marks_sending=tool.marks_sending and tool.declared,
        secrets=request.secrets,
    )


def _checked(
    tool: Tool, arguments: Mapping[str, Any], secret: Mapping[str, Any], is_old: bool
) -> tuple[dict[str, Any], Fields, dict[str, str]]:
    """Arguments as the tool gets them, as they are recorded, and what stands for secret ones in a unique key."""
    if not secret:
        given = tool.parameters.check(arguments)
        return given, {name: _packed(value, tool.name, name) for name, value in arguments.items()}, {}
    given = tool.parameters.check({name: codec.reveal(value) for name, value in arguments.items()})
    input, shown = _input(tool, arguments, secret, is_old)
    tool.refuse_unlabelled(name for name, label in shown.items() if not label)
    return given, input, shown


def _input(
    tool: Tool, arguments: Mapping[str, Any], secret: Mapping[str, Any], is_old: bool
) -> tuple[Fields, dict[str, str]]:
    """Arguments as they are recorded, and what stands for the secret ones in a unique key.

    Of a secret the label is recorded, and nothing of its value. Older tasks keep a fingerprint, as they began.
    """
    input: Fields = {}
    shown: dict[str, str] = {}
    for name, value in arguments.items():
        if name not in secret:
            input[name] = _packed(value, tool.name, name)
            continue
        label = value.label if isinstance(value, Secret) else ""
        shown[name] = _old_fingerprint(tool, name, value) if is_old else label
        input[name] = codec.pack({"secret": shown[name]})
    return input, shown


def _old_fingerprint(tool: Tool, name: str, value: Any) -> str:
    data = bytes(codec.pack_typed(codec.reveal(value), f"{tool.name}({name})"))
    key = f"{os.environ.get(SECRET_KEY, '')} {tool.name} {name}".encode()
    return hmac.new(key, data, "sha256").hexdigest()[:16]


def _secret_texts(tool: Tool, given: Mapping[str, Any], secret: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the texts that must not be shown: secret arguments, and the defaults of those that were not given."""
    known = tool.parameters.with_defaults(given)
    names = {*tool.redact, *secret}
    return tuple({text for name in names if name in known for text in codec.secret_texts(known[name])})


def _secret_print(key: Callable[[], bytes], secret: Mapping[str, Any]) -> str:
    """A fingerprint of secret arguments under the store's own key: an approval is void when they change."""
    data = b"".join(name.encode() + bytes(codec.pack_typed(codec.reveal(secret[name]))) for name in sorted(secret))
    return hmac.new(key(), data, "sha256").hexdigest()[:16]


_PLAIN = frozenset((str, int, float, bool, type(None), dict, list, tuple))
"""Types that are what they are: most arguments are of one."""


def _bound(fn: Callable[..., Any], args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Callable[[], Any]:
    """The function with its arguments."""
    if not kwargs and _PLAIN.issuperset(map(type, args)):
        return partial(fn, *args)
    return lambda: fn(*map(_handed, args), **{key: _handed(value) for key, value in kwargs.items()})


def _packed(value: Any, fn: str, name: str) -> Raw:
    """An argument as it is recorded. Messages are in the log already: of them only their identity is."""
    if type(value) in _PLAIN:
        return codec.pack_typed(value, "%s(%s)", fn, name)
    ref: Any = getattr(value, "ref", None)
    return (
        codec.messages_value(ref) if isinstance(ref, codec.MessagesRef) else codec.pack_typed(value, "%s(%s)", fn, name)
    )


def _handed(value: Any) -> Any:
    """An argument as the function gets it: a conversation as a list of its messages, which it may change."""
    if isinstance(value, codec.READ_ONLY):
        return codec.ordinary(value)
    ref: Any = getattr(value, "ref", None)
    return value[:] if isinstance(ref, codec.MessagesRef) and not hasattr(value, "append") else value
