"""The state of users as a program declares it: a model, its version, and the way from older ones."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any

from holdfast.core import limits
from holdfast.core.errors import Conflict, InvalidValue
from holdfast.engine.definitions.state_versions import States, Upcaster
from holdfast.engine.logs.logs import Logs


class UserModel:
    """The model of what is kept of users: `holdfast.open(url, users=UserModel(Profile, version=2))`.

    A model is a dataclass, a msgspec Struct or a pydantic model. What does not fit is refused with its path. A user
    whose state was written under an older version is migrated before the next write, and when a task of theirs begins.

        profiles = UserModel(Profile, version=2)

        @profiles.upcast(1, 2)
        def named(old: dict) -> dict:
            return {**old, "name": old.pop("first")}

    Every process that works with these users must know the newest version.
    """

    def __init__(self, model: type, *, version: int = 1) -> None:
        self.states = States(getattr(model, "__name__", str(model)), model, version)

    def upcast(self, start: int, to: int) -> Callable[[Upcaster], Upcaster]:
        """Declare how a state of one version becomes one of a later version: a function from dict to dict."""
        return lambda fn: self.states.add(start, to, fn)

    def migrate(self, logs: Logs, name: str) -> None:
        """Write a user's state anew if it was written under an older version."""
        for _ in range(limits.MAX_APPEND_TRIES):
            log = logs.load(name)
            if log.state.state_version >= self.states.version or not log.state.bag:
                return
            with contextlib.suppress(Conflict):  # another writer was faster: look again
                log.append([self.states.migration(log.state, logs.blob)])
                return

    def __repr__(self) -> str:
        return f"<users of {self.states.model.name}, version {self.states.version}>"


def user_model(given: Any) -> UserModel | None:
    """Return what `users=` stands for: a UserModel, or a class that is the first version of one."""
    if given is None or isinstance(given, UserModel):
        return given
    if not isinstance(given, type):
        raise InvalidValue(f"users={given!r} is not a model", hint="give a class, or UserModel(cls, version=…)")
    return UserModel(given)
