"""Names of logs. A task's log has the task's id; other logs begin with `@`, which no task id may."""

from __future__ import annotations

import re
from typing import Any

from holdfast.core import limits
from holdfast.core.errors import InvalidId, InvalidValue

_LONE = re.compile("[\ud800-\udfff]")
_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.:/~#+=,-]*")


def task_log(id: str) -> str:
    """The log of a task; refuses an id that could not be shown, typed or put in a URL.

    >>> task_log("recap-42")
    'recap-42'
    """
    return _checked(id, "task id")


def thread_log(id: str) -> str:
    """The log of a conversation."""
    return "@thread/" + _checked(id, "thread id")


def user_log(id: str) -> str:
    """The log of a person's lasting state."""
    return "@user/" + _checked(id, "user id")


def user_of(log: str) -> str:
    """Whose log it is, if it is one of a person.

    >>> user_of("@user/ana"), user_of("recap-42")
    ('ana', '')
    """
    return log.removeprefix("@user/") if log.startswith("@user/") else ""


def thread_of(log: str) -> str:
    """Which conversation's log it is, if it is one of a conversation.

    >>> thread_of("@thread/t-9"), thread_of("@user/ana")
    ('t-9', '')
    """
    return log.removeprefix("@thread/") if log.startswith("@thread/") else ""


def begins_again(log: str) -> bool:
    """Whether the name of a log that was removed can be used again: of all but tasks, whose ids never act again.

    >>> begins_again("@thread/t-9"), begins_again("acme!@records/s/k"), begins_again("recap-42")
    (True, True, False)
    """
    return log.rpartition(NAMESPACE_END)[2].startswith("@")


RECORDS = "@records/"
"""What the logs of records begin with; no other log has it in its name."""

_SPACE = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.:~#+=,-]*")
_ESCAPED = {"!": '"0', '"': '"1'}
_PLAIN = {escaped: plain for plain, escaped in _ESCAPED.items()}


def record_space(space: str) -> str:
    """The name of a space of records."""
    if not isinstance(space, str):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise InvalidId(f"{space!r} is not the name of a space: it is not text", hint="give a str", id=str(space)[:80])
    if len(space) > limits.MAX_SPACE_LENGTH or not _SPACE.fullmatch(space):
        raise InvalidId(
            f"{space[:80]!r} cannot be the name of a space",
            hint=f"letters, digits and any of _.:~#+=,- are allowed, a letter or digit first, "
            f"{limits.MAX_SPACE_LENGTH} characters at most; a key may be any text",
            id=space[:80],
        )
    return space


def record_log(space: str, key: str) -> str:
    """The log of a key's records.

    A key is any text. Only `!`, which ends a namespace, is written otherwise: so that names stay in the order of their
    keys, and begin alike where keys do.

    >>> record_log("langgraph", "thread/1")
    '@records/langgraph/thread/1'
    """
    text(key, "key of records")
    size = len(key.encode())
    if not 0 < size <= limits.MAX_KEY_BYTES:
        raise InvalidId(
            f"the key of records {key[:80]!r} has {size:,} bytes",
            hint=f"use 1 to {limits.MAX_KEY_BYTES:,} bytes of UTF-8; a long one can be hashed",
            id=key[:80],
        )
    return f"{RECORDS}{space}/{_escaped(key)}"


def record_prefix(space: str, prefix: str = "") -> str:
    """Return the prefix of the logs of all keys that begin with a prefix."""
    return f"{RECORDS}{space}/{_escaped(text(prefix, 'prefix of keys'))}"


def _escaped(key: str) -> str:
    return re.sub('[!"]', lambda found: _ESCAPED[found[0]], key) if "!" in key or '"' in key else key


def record_key(log: str) -> tuple[str, str]:
    """The space and the key whose records a log holds.

    >>> record_key(record_log("langgraph", 'so "it" is!'))
    ('langgraph', 'so "it" is!')
    """
    space, _, escaped = log.rpartition(NAMESPACE_END)[2].removeprefix(RECORDS).partition("/")
    return space, re.sub('"[01]', lambda found: _PLAIN[found[0]], escaped)


def is_record_log(log: str) -> bool:
    """Return whether a log holds records, and not events of a task, a thread or a user."""
    return RECORDS in log


def namespace(name: str) -> str:
    """The name of a tenant's part of a store."""
    return _checked(name, "namespace")


NAMESPACE_END = "!"
"""What stands between a namespace and a name; it is in no id."""


def namespaced(namespace: str, name: str) -> str:
    """A name of a tenant's as it is in the store.

    >>> namespaced("acme", "@user/ana")
    'acme!@user/ana'
    """
    return f"{namespace}{NAMESPACE_END}{name}"


BLOCK_QUEUE = "@block"
"""Where tasks are that live in a block of code: no worker serves it."""

MOCK_KEYS = "@mock/"
"""What unique keys of mock tasks begin with, and no other may."""


def unique_key(key: str, tool: str) -> str:
    """A unique key that users chose; refuses one that could be taken for a mock task's."""
    if key.startswith(MOCK_KEYS):
        raise InvalidValue(f"the unique key {key!r} of {tool!r} belongs to mock tasks", hint="let it begin otherwise")
    text(key, f"unique key of {tool!r}")
    before, end, _ = key.partition(NAMESPACE_END)
    if end and _ID.fullmatch(before):
        raise InvalidValue(f"the unique key {key!r} of {tool!r} could be a tenant's", hint=f"write it without {end!r}")
    return key


_OTHER_PLACE = re.compile(r"~|[0-9]+/")


def step_name(name: str) -> str:
    """Refuse a name that could be taken for the key of another branch or turn."""
    if _OTHER_PLACE.match(name):
        raise InvalidValue(
            f"a step can't be called {name!r}: a name can't begin with '~', or a number and '/', as other branches do",
            hint=f"give it another name: name={name.lstrip('~0123456789/')!r}",
        )
    return name


def given_key(key: str) -> str:
    """Refuse a key that a numbered step could have: `key=` is taken as given, whatever branch it is used in."""
    short_name(key, "key")
    if "#" in key:
        raise InvalidValue(f"key={key!r} has a '#', as numbered steps have", hint=f"write {key.replace('#', '-')!r}")
    return step_name(key)


def own_name(key: str) -> str:
    """Return what a step is called, without its branch and number.

    >>> own_name("~2/~1/pay#3"), own_name("github/create#1"), own_name("order-17")
    ('pay', 'github/create', 'order-17')
    """
    return _BRANCHES.sub("", key).rpartition("#")[0] or key


_BRANCHES = re.compile(r"^(?:~[^/]*/)+")


def encodable(value: str, what: str) -> str:
    """Text that UTF-8 can hold, as every store needs it; refuses a lone surrogate."""
    if not isinstance(value, str):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise InvalidValue(f"the {what} {value!r} is not text", hint="give a str")
    lone = None if value.isascii() else _LONE.search(value)
    if lone is not None:
        raise InvalidValue(
            f"the {what} {value[:80]!r} holds the lone surrogate {lone[0]!r}, which is not text; nothing was written",
            hint="decode bytes with errors='replace', or drop that character",
        )
    return value


def whole(value: Any, what: str, *, least: int = 0, most: int | None = None) -> int:
    """A whole number, not below the least or above the most. Digits as text will do: a header of HTTP is text.

    >>> whole("17", "after")
    17
    """
    number = int(value) if isinstance(value, str) and value.isascii() and value.isdecimal() else value
    if not isinstance(number, int) or isinstance(number, bool):
        raise InvalidValue(f"{what}={value!r} is not a whole number", hint=f"give {least} or more")
    if number < least:
        raise InvalidValue(f"{what}={value} is too low", hint=f"give {least} or more")
    if most is not None and number > most:
        raise InvalidValue(f"{what}={str(value)[:80]} is too high", hint=f"give {most:,} or less")
    return number


def seq(value: Any) -> int:
    """A seq, as far as it is a number at all; whether a log has it is asked elsewhere."""
    if not isinstance(value, int):
        raise InvalidValue(f"seq={value!r} is not a number", hint="seqs are whole numbers from 1 on")
    return value


def text(value: str, what: str) -> str:
    """Text for a column: what every store can hold and compare, so no lone surrogate and no NUL."""
    if "\0" in encodable(value, what):
        raise InvalidValue(
            f"the {what} {value[:80]!r} holds the character NUL; nothing was written", hint="drop that character"
        )
    return value


def short_name(value: str, what: str) -> str:
    """A name people choose: any text, not empty, not endless."""
    encodable(value, what)
    if not value or len(value) > limits.MAX_NAME_LENGTH:
        raise InvalidValue(
            f"the {what} {value[:80]!r} has {len(value)} characters",
            hint=f"use 1 to {limits.MAX_NAME_LENGTH}",
        )
    return value


def a(noun: str) -> str:
    """A noun with its article.

    >>> a("int"), a("list")
    ('an int', 'a list')
    """
    return f"an {noun}" if noun[:1].lower() in "aeiou" and noun else f"a {noun}"


def column_name(value: str, what: str) -> str:
    """A name that stores keep in a column of its own."""
    return text(short_name(value, what), what)


def _checked(id: str, what: str) -> str:
    if not isinstance(id, str):  # pyright: ignore[reportUnnecessaryIsInstance]
        hint = f"give a str: {str(id)!r}" if isinstance(id, int) else "give a str"
        raise InvalidId(f"{id!r} is not a {what}: it is not text", hint=hint, id=str(id)[:80])
    if len(id) > limits.MAX_ID_LENGTH or not _ID.fullmatch(id):
        raise InvalidId(
            f"{str(id)[:80]!r} cannot be a {what}",
            hint=f"letters, digits and any of _.:/~#+=,- are allowed, a letter or digit first, "
            f"{limits.MAX_ID_LENGTH} characters at most; for example {_allowed(id)!r}",
            id=str(id)[:80],
        )
    return id


def _allowed(id: str) -> str:
    """An id that is as close as can be to one that is not allowed."""
    import unicodedata  # which takes a while, and is needed only here

    plain = "".join(one for one in unicodedata.normalize("NFKD", id) if not unicodedata.combining(one))
    close = re.sub(r"[^A-Za-z0-9_.:/~#+=,-]+", "-", plain)
    return re.sub(r"^[^A-Za-z0-9]+", "", close)[: min(40, limits.MAX_ID_LENGTH)].rstrip("-") or "task-1"
