"""Names of attributes: the GenAI conventions of OpenTelemetry, OpenInference's kind of a span, and Holdfast's own.

What users wrote (prompts, arguments, results, texts of errors) is in none of them unless it is asked for: then a
`Reader` reads it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

from msgspec import Raw

from holdfast.core import codec, events as ev
from holdfast.core.codec import Fetch
from holdfast.core.errors import ValueDamaged
from holdfast.core.traces.span import Attributes, AttributeValue
from holdfast.core.usage import CACHED, CHAT_INPUT, reported_tokens

MAX_CONTENT = 16_384
"""How many characters of one value are exported, if content is asked for."""

KIND = "openinference.span.kind"
OPERATION = "gen_ai.operation.name"
TASK = "holdfast.task.id"
SEQ = "holdfast.seq"
KEY = "holdfast.step.key"
OUTCOME = "holdfast.outcome"
IN_DOUBT = "holdfast.in_doubt"
LINK = "holdfast.link"

SHOWN: dict[type[ev.Event], tuple[str, ...]] = {
    ev.TaskReleased: ("wake_us",),
    ev.TaskSuspended: ("why", "wake_us"),
    ev.StageSet: ("stage",),
    ev.PhaseSet: ("phase",),
    ev.TurnStarted: ("turn",),
    ev.CheckpointMade: ("label",),
    ev.FlagRaised: ("flag",),
    ev.FlagCleared: ("flag",),
    ev.ArtifactAdded: ("type", "bytes"),
    ev.SignalReceived: ("name",),
    ev.CancelRequested: ("expired",),
    ev.RolledBack: ("to",),
    ev.TaskDiverged: ("known_seq", "head_seq"),
    ev.StepObserved: ("key", "ended"),
    ev.StepVoided: ("key",),
    ev.StepSettled: ("key", "happened"),
    ev.ChildSpent: ("child", "calls", "lost"),
    ev.PatchRefused: ("required",),
    ev.StateMigrated: ("version",),
}
"""Fields that the event of a span tells beside its kind and seq: labels and counts, never what users wrote."""


def shown_fields(event: ev.Event) -> Attributes:
    """Return what a span's event tells of a log's event."""
    told: Attributes = {}
    for name in SHOWN.get(type(event), ()):
        value: AttributeValue | None = getattr(event, name)
        if value is not None:
            told[f"holdfast.{name}"] = value
    return told


def usage_of(usage: ev.Usage) -> Attributes:
    """Return what a model's answer took."""
    told: Attributes = {
        "gen_ai.usage.input_tokens": usage.input_tokens,
        "gen_ai.usage.output_tokens": usage.output_tokens,
    }
    if usage.model:
        told["gen_ai.request.model"] = told["gen_ai.response.model"] = usage.model
    if usage.cost is not None:
        told["holdfast.cost"] = usage.cost
    return told


def reply_of(result: Raw) -> Attributes:
    """Return what a reply says of itself, if it lies in the log: its id, why it ended, its tokens in detail."""
    try:
        reply = codec.parse(bytes(result).decode())
    except ValueError:
        return {}
    if not isinstance(reply, Mapping):
        return {}
    given, told = cast("Mapping[str, Any]", reply), cast("Attributes", {})
    if isinstance(given.get("id"), str):
        told["gen_ai.response.id"] = given["id"]
    reason = given.get("finish_reason") or given.get("stop_reason")
    if isinstance(reason, str):
        told["gen_ai.response.finish_reasons"] = (reason,)
    tokens, usage = reported_tokens(given), given.get("usage")
    if tokens is not None and tokens.thought:
        told["gen_ai.usage.reasoning.output_tokens"] = tokens.thought
    counts: Mapping[str, Any] = cast("Mapping[str, Any]", usage) if isinstance(usage, Mapping) else {}
    for name, ours in _CACHED.items():
        count = counts.get(name)
        if type(count) is int:
            told[ours] = count
    provider = _provider(given, counts)
    if provider:
        told["gen_ai.provider.name"] = provider
    return told


def _provider(reply: Mapping[str, Any], counts: Mapping[str, Any]) -> str:
    """Return whose form a reply has, which is what the convention asks for; empty if it is neither's.

    An endpoint that speaks OpenAI's form counts as openai: the log does not say which server answered.

    >>> _provider({"stop_reason": "end_turn"}, {}), _provider({}, {"prompt_tokens": 3}), _provider({}, {"tokens": 3})
    ('anthropic', 'openai', '')
    """
    is_chat = "finish_reason" in reply or CHAT_INPUT in counts
    if is_chat or reply.get("object") == "response" or "input_tokens_details" in counts:
        return "openai"
    return "anthropic" if "stop_reason" in reply or any(name in counts for name in CACHED) else ""


_CACHED = dict(
    zip(CACHED, ("gen_ai.usage.cache_read.input_tokens", "gen_ai.usage.cache_creation.input_tokens"), strict=True)
)


class Reader:
    """Reads what users wrote, for traces that are to have it. Each value is cut at 16,384 characters."""

    def __init__(self, fetch: Fetch) -> None:
        self._fetch = fetch

    def text(self, value: object) -> str:
        """Return a value, or a mapping of values, as JSON text; empty if there is none."""
        if isinstance(value, Mapping):
            named = cast("Mapping[str, Raw]", value)
            inside = ", ".join(f"{codec.text(name)}: {self.text(one)}" for name, one in named.items())
            return f"{{{inside}}}"[:MAX_CONTENT]
        if not isinstance(value, Raw):
            return ""
        try:
            return codec.text(codec.unpack(value, self._fetch))[:MAX_CONTENT]
        except ValueDamaged:
            return "(damaged)"
