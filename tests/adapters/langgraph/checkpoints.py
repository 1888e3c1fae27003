"""Checkpoints as LangGraph puts them, for tests that need no graph."""

from langchain_core.messages import AIMessage, HumanMessage
from langgraph.checkpoint.base.id import uuid6


def config(thread="t", ns="", id=None):
    given = {"thread_id": thread, "checkpoint_ns": ns}
    return {"configurable": given if id is None else {**given, "checkpoint_id": id}}


def checkpoint(values, versions, id=None):
    return {
        "v": 4,
        "id": id or str(uuid6()),
        "ts": "2026-11-18T12:00:00+00:00",
        "channel_values": values,
        "channel_versions": versions,
        "versions_seen": {"agent": dict(versions)},
        "updated_channels": sorted(versions),
    }


def put(saver, values, *, after=None, thread="t", ns="", changed=None, **metadata):
    """Put a checkpoint in which `changed` channels (all of them, by default) have new versions; gives its config."""
    before = saver.get_tuple(after).checkpoint["channel_versions"] if after else {}
    new = {
        channel: saver.get_next_version(before.get(channel), None)
        for channel in (values if changed is None else changed)
    }
    made = checkpoint(values, {**before, **new})
    return saver.put(after or config(thread, ns), made, {"source": "loop", "step": 1, "parents": {}, **metadata}, new)


def turn(number, size=500):
    """Two messages of a conversation."""
    return [
        HumanMessage(f"{number} " + "q" * size, id=f"h{number}"),
        AIMessage(f"{number} " + "a" * size, id=f"a{number}"),
    ]


def talk(saver, turns, **place):
    """A conversation that grows by two messages a turn; gives the last config and the messages."""
    messages, at = [], None
    for number in range(turns):
        messages = messages + turn(number)
        at = put(saver, {"messages": messages}, after=at, **place)
    return at, messages
