"""StatePatch: several changes to what an agent knows, all or nothing; and how it is written."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Self, cast

from msgspec import Struct

from holdfast.core import codec, names
from holdfast.core.codec.blobs import deflate as deflate, inflate as inflate
from holdfast.core.errors import InvalidValue
from holdfast.core.events import Changes
from holdfast.core.state.paths import is_path


class _Sections(type(Struct)):
    """Refuses a section that does not exist, as every other refusal is made: by name, with a remedy."""

    def __call__(cls, *args: Any, **given: Any) -> Any:
        known: tuple[str, ...] = cls.__struct_fields__
        unknown = sorted(set(given) - {*known})
        if unknown or args:
            wrong = f"a patch has no section {unknown[0]!r}" if unknown else "the sections of a patch are named"
            raise InvalidValue(wrong, hint=f"its sections are {', '.join(known)}")
        return super().__call__(**given)


class StatePatch(
    Struct, metaclass=_Sections, frozen=True, omit_defaults=True, kw_only=True, forbid_unknown_fields=True
):
    """What to change, by section; every field may be left out. A name with a dot is a path: `preferences.seat`.

    `require` is compare-and-set: nothing is changed unless these fields have these values. None stands for a field that
    is not set, too.

    >>> StatePatch(set={"city": "Oslo"}, append_facts=[{"key": "pop", "value": 717_710, "source": "census"}])
    StatePatch(append_facts=[{'key': 'pop', 'value': 717710, 'source': 'census'}], set={'city': 'Oslo'})
    """

    append_facts: list[dict[str, Any]] = []
    replace_plan: list[str] | None = None
    complete_plan_step: str | None = None
    add_questions: list[str] = []
    close_question: str | None = None
    add_artifacts: list[dict[str, Any]] = []
    raise_flags: list[str] = []
    clear_flags: list[str] = []
    set: dict[str, Any] = {}
    increment: dict[str, int | float] = {}
    append: dict[str, Any] = {}
    delete: list[str] = []
    require: dict[str, Any] = {}

    @classmethod
    def from_json(cls, document: str | bytes | dict[str, Any]) -> Self:
        """A patch from JSON, as text or read already."""
        read: Any = codec.document(document, "patch")
        for name in read:
            names.encodable(name, "name in a patch")
        return cls(**read)

    def to_json(self) -> str:
        """The same patch as JSON text."""
        return codec.text(dict(self._given()))

    def __repr__(self) -> str:
        return f"StatePatch({', '.join(f'{name}={value!r}' for name, value in self._given())})"

    def _given(self) -> Iterator[tuple[str, Any]]:
        """The sections that say something. A plan of no steps does: it replaces the one there is."""
        for name in self.__struct_fields__:
            value = getattr(self, name)
            if value or (name == "replace_plan" and value is not None):
                yield name, value


Patch = StatePatch | Mapping[str, Any] | str | bytes
"""A patch: a StatePatch, or the same as a mapping or as JSON text."""


def as_patch(given: Patch) -> StatePatch:
    """Return a patch that was given in any form."""
    if isinstance(given, StatePatch):
        return given
    if not isinstance(given, Mapping | str | bytes):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise InvalidValue(f"{given!r} is not a StatePatch", hint="write StatePatch(set={…}), or the same as a dict")
    return StatePatch.from_json(dict(given) if isinstance(given, Mapping) else given)


def changes_of(patch: Patch) -> Changes:
    """A patch as it is written, each value packed. Refuses what is not a patch, with the place in it."""
    patch = as_patch(patch)
    document: dict[str, Any] = {name: getattr(patch, name) for name in patch.__struct_fields__}
    document["append_facts"] = [
        {
            name: codec.pack(item, f"patch.append_facts[{index}]") if name == "value" else item
            for name, item in fact.items()
        }
        for index, fact in enumerate(_listed(patch.append_facts))
    ]
    names_deleted = patch.delete
    if isinstance(names_deleted, str) or not isinstance(names_deleted, Sequence):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise InvalidValue(
            f"delete={names_deleted!r} is not a list; nothing was written", hint='write delete=["field"]'
        )
    for name, by in _named_values(patch.increment, "increment").items():
        if isinstance(by, bool) or not isinstance(by, int | float):
            raise InvalidValue(
                f"increment={{{name!r}: {by!r}}} is not valid; nothing was written", hint="give a number"
            )
    for section in ("set", "append", "require"):
        values = _named_values(document[section], section)
        document[section] = {name: codec.pack(value, f"patch.{section}[{name!r}]") for name, value in values.items()}
    changed = (patch.set, patch.increment, patch.append, patch.delete, patch.require)
    document["nested"] = sorted({name for section in changed for name in section if is_path(str(name))})
    try:
        return codec.read_as(document, Changes)
    except (ValueError, TypeError, AttributeError) as error:
        raise InvalidValue(f"the patch is not valid: {error}", hint="nothing was written") from None


def _listed(facts: Any) -> Sequence[Mapping[str, Any]]:
    """Facts as a list of dicts."""
    listed = isinstance(facts, Sequence) and not isinstance(facts, str | bytes)
    if not listed or not all(isinstance(one, Mapping) for one in cast("Sequence[Any]", facts)):
        raise InvalidValue(
            f"append_facts={facts!r} is not a list of facts; nothing was written",
            hint='write append_facts=[{"key": "city", "value": "Oslo"}]',
        )
    return cast("Sequence[Mapping[str, Any]]", facts)


def _named_values(section: Any, name: str) -> dict[str, Any]:
    if not isinstance(section, dict):
        raise InvalidValue(
            f"{name}={section!r} is not a dict; nothing was written", hint=f'write {name}={{"field": value}}'
        )
    for field in cast("dict[Any, Any]", section):
        names.short_name(field, f"name in {name}=")
    return cast("dict[str, Any]", section)
