"""Windows as they were made before groups were written once: all messages repaired and written again, every time.

The slow, plain way is the reference for the quick one.
"""

from holdfast.core.context import window as core
from holdfast.core.errors import WindowTooSmall
from holdfast.core.messages import NO_RESULT, ToolCall, answer, anthropic, repair
from holdfast.core.messages.conversation import render
from holdfast.core.messages.grouping import Arranged
from holdfast.core.messages.tokens import count


def cut(tally, read, limit, reserve, known, **options):
    """The window, its messages, the repairs, and how many tokens it has."""
    most = limit
    for _ in range(4):
        answers = {id: answer(ToolCall(id, ""), text) for id, text in known.items()}
        found = core.window(tally, max_tokens=max(most, 1), reserve=reserve, answers=answers, **options)
        kept = core.fitted(found, tally, [read[position] for position in found.positions])
        whole, notes = repair(kept, known)
        tokens = found.tokens + grown(kept, whole, tally, known)
        over = tokens - (limit - reserve)
        if over <= 0:
            return found, whole, notes, tokens
        most -= over
    raise WindowTooSmall("too small", hint="allow more")


def grown(kept, whole, tally, known):
    if len(kept) == len(whole) and all(one is other for one, other in zip(kept, whole, strict=True)):
        return 0
    told = [answer(ToolCall(id, ""), known.get(id, NO_RESULT), is_error=id not in known) for id in tally.groups.open]
    before, after = (sum(count(one, tally.counter).tokens for one in some) for some in ([*kept, *told], whole))
    return max(0, after - before)


def in_form(messages, form):
    """All messages written together."""
    if form != "anthropic":
        return render(messages, form)
    found = []
    for message in Arranged(messages).in_order():
        role = "user" if message.role in ("user", "tool") else message.role
        blocks = [] if message.role in ("system", "developer") else anthropic._blocks(message)
        if not blocks:
            continue
        if not found and role == "assistant":
            found.append(("user", [{"type": "text", "text": anthropic.OPENING}]))
        if found and found[-1][0] == role:
            found[-1][1].extend(blocks)
        else:
            found.append((role, blocks))
    return [{"role": role, "content": anthropic._content(blocks)} for role, blocks in found]
