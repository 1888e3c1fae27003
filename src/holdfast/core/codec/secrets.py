"""Values that stay out of the log, of errors and of screens: hold them, and find them in what others say.

A secret shows up in many spellings: quoted in a URL, in base64 inside a header, escaped in a traceback, as a number.
Every spelling is looked for. No fingerprint of a secret is kept, since a short one could be guessed from it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any, cast

from msgspec import Raw

from holdfast.core import limits
from holdfast.core.codec.documents import decode_plain, encode
from holdfast.core.errors import InvalidValue

HIDDEN = "[secret]"
"""What stands where a secret stood."""


class Secret:
    """A value that only the tool it is given to can see.

    The log and every screen show its `label` alone. The label is part of what a call is; the value is not, so a rotated
    token is still the same call.

    >>> key = Secret("sk-123", label="billing")
    >>> key
    <secret billing>
    >>> key.reveal()
    'sk-123'
    """

    __slots__ = ("_value", "label")

    def __init__(self, value: Any, *, label: str = "") -> None:
        """`value` is what the tool gets. `label` names it for people, such as "card …42"; default: no name."""
        if not isinstance(label, str) or len(label) > limits.MAX_NAME_LENGTH:  # pyright: ignore[reportUnnecessaryIsInstance]
            raise InvalidValue(
                "a secret's label is a text that may be shown", hint=f"{limits.MAX_NAME_LENGTH} characters at most"
            )
        self._value = value
        self.label = label

    def reveal(self) -> Any:
        """Return the value itself."""
        return self._value

    def __repr__(self) -> str:
        return f"<secret {self.label}>" if self.label else "<secret>"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Secret) and (other._value, other.label) == (self._value, self.label)

    def __hash__(self) -> int:
        return hash(("secret", self.label))


def reveal(value: Any) -> Any:
    """Return what a secret holds; anything else as it is."""
    return value.reveal() if isinstance(value, Secret) else value


def secret_texts(value: Any) -> Iterator[str]:
    """Yield every text and number in a secret value."""
    value = reveal(value)
    if isinstance(value, str):
        if value:
            yield value
    elif isinstance(value, bytes | bytearray):
        yield from secret_texts(bytes(value).decode("utf-8", "ignore"))
    elif isinstance(value, int | float) and not isinstance(value, bool):
        yield str(value)
    elif isinstance(value, Mapping):
        for item in cast("Mapping[Any, Any]", value).values():
            yield from secret_texts(item)
    elif isinstance(value, list | tuple):
        for item in cast("list[Any]", value):
            yield from secret_texts(item)


def hidden(text: str, secrets: tuple[str, ...]) -> str:
    """Return a text in which no spelling of a secret can be read.

    >>> hidden("GET /?key=a%2Fb%2Fc+d failed for PIN 4711 of 47110", ("a/b/c d", "4711"))
    'GET /?key=[secret] failed for PIN [secret] of 47110'
    """
    for pattern in map(_pattern, secrets):
        text = pattern.sub(HIDDEN, text)
    return text


def hidden_value(raw: Raw, secrets: tuple[str, ...]) -> Raw:
    """Return a value in which no spelling of a secret can be read, in keys neither."""
    patterns = tuple(map(_pattern, secrets))
    data = bytes(raw)
    value = decode_plain(data)
    changed = _without(value, patterns)
    return raw if changed is value else Raw(encode(changed))


def _without(value: Any, patterns: tuple[re.Pattern[str], ...]) -> Any:
    """The same value if nothing secret is in it, else one without."""
    if isinstance(value, str):
        return _text_without(value, patterns)
    if isinstance(value, int | float) and not isinstance(value, bool):
        text = str(value)
        return HIDDEN if any(pattern.fullmatch(text) for pattern in patterns) else value
    if isinstance(value, dict):
        pairs = cast("dict[str, Any]", value)
        made = {_text_without(key, patterns): _without(item, patterns) for key, item in pairs.items()}
        same = all(new is old for new, old in zip(made.values(), pairs.values(), strict=False))
        return pairs if same and made.keys() == pairs.keys() else made
    if isinstance(value, list):
        items = cast("list[Any]", value)
        listed = [_without(item, patterns) for item in items]
        return items if all(new is old for new, old in zip(listed, items, strict=True)) else listed
    return value


def _text_without(text: str, patterns: tuple[re.Pattern[str], ...]) -> str:
    found = text
    for pattern in patterns:
        found = pattern.sub(HIDDEN, found)
    return text if found == text else found


def _pattern(secret: str) -> re.Pattern[str]:
    """Match every spelling of a secret. A number or a short text is found only where it stands by itself."""
    spellings = sorted(_spellings(secret), key=len, reverse=True)
    if secret.isdigit() or len(secret) < limits.SECRET_LENGTH:
        return re.compile(r"(?<![\w.])(?:" + "|".join(map(re.escape, spellings)) + r")(?!\w)(?!\.\d)")
    return re.compile("|".join(map(re.escape, spellings)))


def _spellings(secret: str) -> set[str]:
    from urllib.parse import quote, quote_plus  # only calls with secrets need them

    found = {secret, repr(secret)[1:-1], secret.encode("unicode_escape").decode(), encode(secret)[1:-1].decode()}
    found |= {quote(secret), quote(secret, safe=""), quote_plus(secret), quote(secret, safe="").replace("%20", "+")}
    found |= {one.lower() for one in found if "%" in one}
    if len(secret) >= limits.SECRET_LENGTH:
        found |= set(_in_base64(secret.encode("utf-8", "surrogatepass"))) | {secret.encode("utf-8", "replace").hex()}
    return found


def _in_base64(data: bytes) -> Iterator[str]:
    """Yield what base64 makes of a secret wherever it begins, without letters it shares with its neighbours."""
    from base64 import b64encode, urlsafe_b64encode

    for before in range(3):
        length = 8 * len(data)
        first = -(-8 * before // 6)  # letters that belong to what comes before, wholly or in part
        last = (8 * before + length) // 6
        for encoded in (b64encode, urlsafe_b64encode):
            letters = encoded(b"\0" * before + data).decode().rstrip("=")[first:last]
            if len(letters) >= limits.SECRET_LENGTH:
                yield letters
