"""StatePatch: several changes to what an agent knows, all or nothing."""

from __future__ import annotations

from typing import Any

from msgspec import Raw, Struct


class StatePatch(Struct, frozen=True, omit_defaults=True, kw_only=True, forbid_unknown_fields=True):
    """What to change, by section; every field may be left out.

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

    def __repr__(self) -> str:
        given = ((name, getattr(self, name)) for name in self.__struct_fields__)
        return f"StatePatch({', '.join(f'{name}={value!r}' for name, value in given if value not in ([], {}, None))})"


class PatchedFact(Struct, frozen=True, omit_defaults=True, gc=False, forbid_unknown_fields=True):
    key: str
    value: Raw
    source: str = ""


class PatchedArtifact(Struct, frozen=True, omit_defaults=True, gc=False, forbid_unknown_fields=True):
    artifact_id: str
    type: str
    summary: str = ""
    bytes: int = 0
    step: str = ""


class Changes(Struct, frozen=True, omit_defaults=True, gc=False, kw_only=True, forbid_unknown_fields=True):
    """A patch as it is written: the same JSON, its values still encoded."""

    append_facts: tuple[PatchedFact, ...] = ()
    replace_plan: tuple[str, ...] | None = None
    complete_plan_step: str | None = None
    add_questions: tuple[str, ...] = ()
    close_question: str | None = None
    add_artifacts: tuple[PatchedArtifact, ...] = ()
    raise_flags: tuple[str, ...] = ()
    clear_flags: tuple[str, ...] = ()
    set: dict[str, Raw] = {}
    increment: dict[str, int | float] = {}
    append: dict[str, Raw] = {}
    delete: tuple[str, ...] = ()
