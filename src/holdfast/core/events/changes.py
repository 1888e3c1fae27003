"""StatePatch: several changes to what an agent knows, all or nothing."""

from __future__ import annotations

from msgspec import Raw, Struct


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
    """A patch as it is written: the same JSON, its values still encoded.

    `nested` has those names that are paths into objects. In older logs a name with a dot is the name of a field.
    """

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
    require: dict[str, Raw] = {}
    nested: tuple[str, ...] = ()
