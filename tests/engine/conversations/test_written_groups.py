"""Windows made of groups that were written once, beside windows that are written anew: they are the same."""

import os
import random
import threading

import pytest

from holdfast.core import codec
from holdfast.core.codec import MessagesRef
from holdfast.core.context.window import WindowSummary
from holdfast.core.errors import WindowTooSmall
from holdfast.core.messages import NO_RESULT, Image, Message, Reasoning, Text, ToolCall, ToolResult, complete
from holdfast.core.state.shapes import Summarised
from holdfast.engine.conversations.conversation import NO_LIMIT, Conversation, Counted, Shown
from tests.engine.conversations import plain_windows

SEEDS = 10_000 if os.environ.get("HOLDFAST_TEST_ALL") == "1" else 200
WORDS = ["df", "disk", "日本", "full " * 30, '{"a": 1}', "  ", "x"]
THOUGHTS = {
    "chat": {"reasoning_content": "hm"},
    "responses": {"type": "reasoning", "id": "rs_1", "summary": []},
    "anthropic": {"type": "thinking", "thinking": "hm", "signature": "EqQB"},
}


class Talker:
    """Says what well-kept conversations have, and, if it is sloppy, what crashes and weak gateways leave."""

    def __init__(self, seed):
        self.chance = random.Random(seed)
        self.sloppy = self.chance.random() < 0.5
        self.ids = self.chance.choice(["own", "own", "own", "again", "few"])
        self.made = 0
        self.later = []

    def more(self):
        """The next exchange."""
        chance = self.chance
        said = self._exchange()
        if self.sloppy and said and chance.random() < 0.15:
            at = chance.randrange(len(said))
            match chance.choice(["lose", "double", "late", "orphan", "intrude", "nothing"]):
                case "lose":
                    del said[at]
                case "double":
                    said.append(said[at])
                case "late":
                    self.later.append(said.pop(at))
                case "orphan":
                    said.insert(at, Message("tool", (ToolResult("nobody", (Text("lost"),)),)))
                case "intrude":
                    said.insert(at, Message("user", (Text("by the way"),)))
                case _:
                    said = [
                        Message("tool", (ToolResult(one.result.call_id, (Text(NO_RESULT),), is_error=True),))
                        if one.role == "tool"
                        else one
                        for one in said
                    ]
        if self.later and chance.random() < 0.3:
            said.append(self.later.pop())
        return said

    def _exchange(self):
        chance = self.chance
        kind = chance.choice(["user", "user", "reply", "calls", "calls", "calls", "system"])
        if kind == "user":
            return [Message("user", (self._text(), *([Image("https://x.y/a.png")] if chance.random() < 0.1 else [])))]
        if kind == "system":
            return [Message(chance.choice(["system", "developer"]), (self._text(),))] if chance.random() < 0.3 else []
        thought = [self._thought()] if chance.random() < 0.3 else []
        if kind == "reply":
            return [Message("assistant", (*thought, *([self._text()] if chance.random() < 0.9 else [])))]
        calls = [
            ToolCall(self._id(), "df", chance.choice(['{"a":1}', "", "[1]", "{"])) for _ in range(chance.randint(1, 3))
        ]
        said = [self._text()] if chance.random() < 0.3 else []
        parts = [*thought, *said, *calls]
        replies = (
            [Message("assistant", (part,)) for part in parts]
            if chance.random() < 0.4
            else [Message("assistant", tuple(parts))]
        )
        results = [
            Message("tool", (ToolResult(one.id, (self._text(),), is_error=chance.random() < 0.1),)) for one in calls
        ]
        chance.shuffle(results)
        return [*replies, *results]

    def _text(self):
        return Text(self.chance.choice(WORDS) * self.chance.choice([1, 1, 5]))

    def _thought(self):
        form = self.chance.choice(list(THOUGHTS))
        return Reasoning("" if form == "responses" else "hm", complete(THOUGHTS[form], form))

    def _id(self):
        self.made += 1
        if self.ids == "own":
            return f"call/{self.made}" if self.made % 3 == 0 else f"call_{self.made}"
        return (
            f"call_{self.made % 3}"
            if self.ids == "again"
            else self.chance.choice(["call_1", "call_1-2", f"c{self.made}"])
        )


class Ledger:
    """Knows what became of some calls."""

    def known(self, calls, upto):
        return {call.id: "it happened " * 9 for asked in calls.values() for call in asked if call.id.endswith("1")}


class Talk:
    """A conversation that grows, and is sometimes said otherwise than it was recorded."""

    def __init__(self, seed):
        self.talker = Talker(seed)
        self.raws = []
        self.counted = Counted(_value, Ledger(), threading.RLock())
        self.compared = 0

    def grow(self, most):
        for _ in range(self.talker.chance.randint(1, most)):
            self.raws += [codec.pack(codec.as_json(one)) for one in self.talker.more() if one.parts]
        if self.talker.chance.random() < 0.1:
            del self.raws[len(self.raws) - self.talker.chance.randint(0, min(8, len(self.raws))) :]

    def compare(self):
        chance = self.talker.chance
        total = len(self.raws)
        covers = ((0, chance.randrange(total)),) if total and chance.random() < 0.3 else ()
        summarised = Summarised(text=codec.pack({"text": "they talked"}), covers=list(covers)) if covers else None
        shown = Shown([(at + 1, raw) for at, raw in enumerate(self.raws)], total, (), total)
        talk = Conversation(shown, MessagesRef("t", total, ""), self.counted, summarised)
        counter = chance.choice([None, None, _count])
        options = {
            "keep_last": chance.choice([None, None, 2, 12]),
            "keep_turns": chance.choice([None, None, 1, 4]),
            "pinned": sorted(chance.sample(range(total), min(total, 2))) if chance.random() < 0.2 else (),
            "strategy": chance.choice(["drop_oldest", "summarise"]),
        }
        most, reserve = chance.choice([None, None, 150, 600, 2_000, 6_000]), chance.choice([0, 0, 20])
        try:
            sent = talk.window(max_tokens=most, counter=counter, reserve=reserve, **options)
        except WindowTooSmall:
            sent = None
        tally = self.counted.tally(counter)
        limit = NO_LIMIT if most is None else most
        summary = WindowSummary("they talked", tuple(range(*one) for one in covers)) if covers else None
        given = options | {"summary": summary if options["strategy"] == "summarise" else None}
        try:
            wanted = plain_windows.cut(tally, self.counted.read, limit, reserve, talk._known(tally, limit), **given)
        except WindowTooSmall:
            wanted = None
        assert (sent is None) == (wanted is None)
        if sent is None:
            return
        found, whole, notes, tokens = wanted
        assert sent._messages.messages == whole
        assert (sent.tokens, sent.repaired, sent.uncovered) == (tokens, notes, found.uncovered)
        assert (
            sent
            == plain_windows.in_form(whole, "chat")
            == list(talk.view(max_tokens=most, counter=counter, reserve=reserve, **options))
        )
        for form in ("responses", "anthropic"):
            assert sent.render(form) == plain_windows.in_form(whole, form)
        quick = any(isinstance(part, range) and part for part in sent._messages.parts)
        self.compared += quick
        for one in sent:
            one["content"] = "spoiled"  # by the caller, whose copy it is


def _value(raw):
    return codec.unpack(raw, None)


def _count(text):
    return len(text.split()) + len(text) // 9


@pytest.mark.parametrize("first", range(0, SEEDS, 100))
def test_windows_of_written_groups_are_those_written_anew(first):
    quick = 0
    for seed in range(first, first + 100):
        talk = Talk(seed)
        for _ in range(12):
            talk.grow(8)
            talk.compare()
        quick += talk.compared
    assert quick > 300, "most windows are made of written groups"
