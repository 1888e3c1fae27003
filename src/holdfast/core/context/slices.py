"""Context slices: what one step needs to know of a task, within a limit.

Goal, step and open questions are always there. Then come the artifacts of the step, the newest facts, and the other
artifacts by reference, as far as they fit. It names what was left out. The same input gives the same slice.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Literal

from msgspec import Struct
from msgspec.structs import replace

from holdfast.core import codec
from holdfast.core.errors import InvalidValue, WindowTooSmall
from holdfast.core.messages.tokens import Counter, estimate

INLINE_SHARE = 4
"""An artifact larger than the limit divided by this stands by reference."""


class SliceArtifact(Struct, frozen=True, gc=False, omit_defaults=True):
    """What the task has made: its data as text if it may be shown in full, else only where it is."""

    id: str
    type: str = ""
    summary: str = ""
    bytes: int = 0
    step: str = ""
    text: str = ""


class SliceFact(Struct, frozen=True, gc=False, omit_defaults=True):
    """What the task has learned; the value is any JSON."""

    key: str
    value: Any
    source: str = ""


class ContextSlice(Struct, frozen=True):
    """What fits, and what does not."""

    goal: str
    step: str
    questions: tuple[str, ...] = ()
    artifacts: tuple[SliceArtifact, ...] = ()
    """Those that are named; one with `text` is shown in full, one without `summary` by its id alone."""
    facts: tuple[SliceFact, ...] = ()
    left_out_artifacts: tuple[str, ...] = ()
    left_out_facts: tuple[str, ...] = ()
    size: int = 0
    """What its text takes, in the unit of the limit."""
    unit: Literal["bytes", "tokens"] = "bytes"

    @property
    def text(self) -> str:
        """The slice as text for a model; its size is what the limit is about."""
        lines = [f"Goal: {self.goal}", f"Current step: {self.step}"]
        lines += _section("Open questions", [f"- {question}" for question in self.questions])
        lines += _section("Artifacts", [_artifact_line(artifact) for artifact in self.artifacts])
        lines += _section("Facts", [_fact_line(fact) for fact in self.facts])
        missing = (len(self.left_out_artifacts), len(self.left_out_facts))
        return "\n".join(lines + ([_left_out_line(*missing)] if any(missing) else []))


def slice_context(
    goal: str,
    step: str,
    questions: Sequence[str] = (),
    artifacts: Sequence[SliceArtifact] = (),
    facts: Sequence[SliceFact] = (),
    *,
    max_bytes: int | None = None,
    max_tokens: int | None = None,
    counter: Counter | None = None,
    max_artifact_bytes: int | None = None,
) -> ContextSlice:
    """Choose a step's context; artifacts and facts come oldest first. Give one limit: bytes, or tokens.

    An artifact of the step whose text is given is shown in full if it is small enough (and all such together have no
    more than `max_artifact_bytes`), else by reference with its summary, else by its id.

    >>> print(slice_context("free space", "look", ["which host?"], facts=[Fact("used", 91, "df")], max_bytes=200).text)
    Goal: free space
    Current step: look
    Open questions:
    - which host?
    Facts:
    - used: 91 (df)
    """
    if (max_bytes is None) == (max_tokens is None):
        raise InvalidValue("a slice has one limit", hint="give max_bytes or max_tokens")
    if max_bytes is not None:
        cutter = _Slicer(ContextSlice(goal, step, tuple(questions), unit="bytes"), _byte_size, max_bytes)
    else:
        assert max_tokens is not None
        whole = ContextSlice(goal, step, tuple(questions), unit="tokens")
        cutter = _Slicer(whole, counter or estimate, max_tokens)
    return cutter.filled(artifacts, facts, max_artifact_bytes)


class _Slicer:
    """Fills a slice in the order of importance, and takes the last thing out again if it does not fit."""

    def __init__(self, least: ContextSlice, measure: Callable[[str], int], limit: int) -> None:
        self._least = least
        self._measure = measure
        self._limit = limit
        self._room = limit
        self._chosen: list[tuple[str, int]] = []  # ("artifact" or "fact", its position), the most important first
        self._shown: dict[int, SliceArtifact] = {}

    def filled(
        self, artifacts: Sequence[SliceArtifact], facts: Sequence[SliceFact], most_inline: int | None
    ) -> ContextSlice:
        self._begin(artifacts, facts)
        ours = [at for at, one in enumerate(artifacts) if one.step == self._least.step]
        inline = self._limit if most_inline is None else most_inline
        for at in reversed(ours):
            inline -= self._take_artifact(at, artifacts[at], inline)
        for at in range(len(facts) - 1, -1, -1):
            if self._room <= 0:
                break
            self._take("fact", at, _fact_line(facts[at]))
        for at in range(len(artifacts) - 1, -1, -1):
            if self._room > 0 and artifacts[at].step != self._least.step:
                self._take_artifact(at, artifacts[at], 0)
        made = self._made(artifacts, facts)
        while made.size > self._limit and self._chosen:
            # What was taken apart can count for more together, with some counters.
            self._chosen.pop()
            made = self._made(artifacts, facts)
        return made

    def _begin(self, artifacts: Sequence[SliceArtifact], facts: Sequence[SliceFact]) -> None:
        """Reserve room for what is always there: the headings, and the line that lists what is left out."""
        always = (self._least.text, "Artifacts:", "Facts:", _left_out_line(len(artifacts), len(facts)))
        self._room -= sum(self._measure(f"{text}\n") for text in always)
        least = self._made(artifacts, facts)
        if least.size > self._limit:
            over = least.size - self._limit
            raise WindowTooSmall(
                f"goal, step and open questions alone are {least.size:,} {least.unit}, {over:,} more than the limit "
                f"of {self._limit:,}",
                hint="allow more, close questions, or say the goal in fewer words",
                needed=least.size,
                over=over,
            )

    def _take_artifact(self, at: int, artifact: SliceArtifact, inline: int) -> int:
        """Take an artifact as fully as fits; how many bytes of it are shown."""
        size = len(artifact.text.encode())
        shorter = SliceArtifact(artifact.id, artifact.type, artifact.summary, artifact.bytes, artifact.step)
        bare = SliceArtifact(artifact.id, artifact.type, "", artifact.bytes, artifact.step)
        small = bool(artifact.text) and size <= inline and self._measure(artifact.text) * INLINE_SHARE <= self._limit
        for shown in (*([artifact] if small else []), shorter, bare):
            if self._take("artifact", at, _artifact_line(shown)):
                self._shown[at] = shown
                return size if shown is artifact else 0
        return 0

    def _take(self, kind: str, at: int, line: str) -> bool:
        size = self._measure(f"{line}\n")
        if size > self._room:
            return False
        self._room -= size
        self._chosen.append((kind, at))
        return True

    def _made(self, artifacts: Sequence[SliceArtifact], facts: Sequence[SliceFact]) -> ContextSlice:
        """The slice of what is chosen, in the order it came."""
        shown = {at for kind, at in self._chosen if kind == "artifact"}
        told = {at for kind, at in self._chosen if kind == "fact"}
        least = self._least
        made = ContextSlice(
            goal=least.goal,
            step=least.step,
            questions=least.questions,
            artifacts=tuple(self._shown[at] for at in sorted(shown)),
            facts=tuple(facts[at] for at in sorted(told)),
            left_out_artifacts=tuple(one.id for at, one in enumerate(artifacts) if at not in shown),
            left_out_facts=tuple(one.key for at, one in enumerate(facts) if at not in told),
            unit=least.unit,
        )
        return replace(made, size=self._measure(made.text))


def _byte_size(text: str) -> int:
    return len(text.encode())


def _section(title: str, lines: list[str]) -> list[str]:
    return [f"{title}:", *lines] if lines else []


def _artifact_line(artifact: SliceArtifact) -> str:
    about = ", ".join(word for word in (artifact.type, f"{artifact.bytes:,} bytes", artifact.step) if word)
    line = f"- {artifact.id} ({about})" + (f": {artifact.summary}" if artifact.summary else "")
    return f"{line}\n{artifact.text}" if artifact.text else line


def _fact_line(fact: SliceFact) -> str:
    value = fact.value if isinstance(fact.value, str) else codec.dump(fact.value).decode()
    return f"- {fact.key}: {value}" + (f" ({fact.source})" if fact.source else "")


def _left_out_line(artifacts: int, facts: int) -> str:
    return f"Left out: {artifacts} artifacts, {facts} facts"
