"""HoldfastSaver: LangGraph's checkpoints in a Holdfast store, for sync and async graphs alike."""

from __future__ import annotations

import asyncio
import random
import threading
from collections import OrderedDict
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple, cast

from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.base import (
    WRITES_IDX_MAP,
    BaseCheckpointSaver,
    ChannelVersions,
    Checkpoint,
    CheckpointMetadata,
    CheckpointTuple,
    DeltaChannelHistory,
    get_checkpoint_id,
    get_checkpoint_metadata,
)
from langgraph.checkpoint.serde.base import SerializerProtocol

from holdfast import App, InvalidValue
from holdfast.adapters.langgraph.strict import refuse_lossy, strict_serializer
from holdfast.adapters.langgraph.thread import Content, Saved, SavedThread, TaskWrite, TaskWrites
from holdfast.adapters.langgraph.values import Packed, pack, typed

SPACE = "langgraph"
"""The space of records that threads are kept in, one key a thread."""

MEMORY_BYTES = 64 * 1024 * 1024
"""How many bytes of threads a saver keeps in memory; those not used for longest are read anew."""

PAGE = 1_000
"""How many threads are asked for at a time."""


class CheckpointSummary(NamedTuple):
    """A checkpoint without its values: where it is, what made it, and how many pending writes follow it."""

    id: str
    checkpoint_ns: str
    parent: str | None
    at: str
    source: str
    step: int | None
    writes: int


class SaverStats(NamedTuple):
    """What a saver has saved. `bytes` are those of its records, without values of 4 KB and more."""

    threads: int
    checkpoints: int
    writes: int
    bytes: int


class HoldfastSaver(BaseCheckpointSaver[str]):
    """Keep a graph's checkpoints in a Holdfast store. Sync and async; safe from several threads, loops and processes.

        graph = builder.compile(checkpointer=HoldfastSaver(app))

    A list in the state (the messages) is stored element by element: a checkpoint stores only what is new.
    `serde`: how values become bytes. Default: LangGraph's serializer, restricted to types that are safe to restore;
    a value of any other type is refused when it is saved. Allow your own types with
    `JsonPlusSerializer(allowed_msgpack_modules=[Order])`.
    """

    def __init__(self, app: App, *, serde: SerializerProtocol | None = None) -> None:
        if not isinstance(app, App):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise InvalidValue(f"{app!r} is not an app", hint="give HoldfastSaver(holdfast.open(…))")
        super().__init__(serde=serde or strict_serializer())
        self._is_strict = serde is None
        self._records = app.records(SPACE)
        self._threads = _Threads(lambda id: SavedThread(self._records, id))

    def get_next_version(self, current: str | None, channel: None) -> str:
        """Return a version after `current`. Its tail is random, so that two forks never have the same one."""
        number = "" if current is None else str(current).partition(".")[0]
        width = max(len(number), 8)  # as wide as those there are: versions are compared as text
        return f"{int(number or 0) + 1:0{width}}.{random.getrandbits(32):08x}"

    # Writing

    def put(
        self,
        config: RunnableConfig,
        checkpoint: Checkpoint,
        metadata: CheckpointMetadata,
        new_versions: ChannelVersions,
    ) -> RunnableConfig:
        """Store a checkpoint. It is durable when this returns."""
        id, ns = _place(config)
        values = checkpoint["channel_values"]
        body = self._pack({name: value for name, value in checkpoint.items() if name != "channel_values"})
        about = self._pack(get_checkpoint_metadata(config, metadata))
        content = {channel: self._packed(values[channel]) for channel in new_versions if channel in values}
        if self._is_strict:
            refuse_lossy(self.serde, about, "the metadata of the checkpoint")
        with self._threads.get(id) as thread:
            saved = Saved(ns, checkpoint["id"], get_checkpoint_id(config), body, about, {})
            thread.put(saved, content, new_versions, self._refuse)
        return _config(id, ns, checkpoint["id"])

    def put_writes(
        self, config: RunnableConfig, writes: Sequence[tuple[str, Any]], task_id: str, task_path: str = ""
    ) -> None:
        """Store what a task wrote after a checkpoint. It is durable when this returns."""
        id, ns = _place(config)
        packed = [
            (WRITES_IDX_MAP.get(channel, place), channel, self._pack(value))
            for place, (channel, value) in enumerate(writes)
        ]
        for _, channel, value in packed:
            self._refuse(channel, value)
        replaces = all(channel in WRITES_IDX_MAP for channel, _ in writes)
        given = TaskWrites(ns, str(get_checkpoint_id(config)), task_id, task_path, replaces, packed)
        with self._threads.get(id) as thread:
            thread.put_writes(given)

    def _pack(self, value: Any) -> Packed:
        return pack(value, self.serde.dumps_typed)

    def _packed(self, value: Any) -> Packed | list[Packed]:
        """A value as it is kept: a list element by element, packed anew each time, since elements can be changed."""
        if type(value) is not list:
            return self._pack(value)
        dump = self.serde.dumps_typed
        return [pack(one, dump) for one in cast("list[Any]", value)]

    def _refuse(self, channel: str, value: Packed) -> None:
        if self._is_strict:
            refuse_lossy(self.serde, value, f"channel {channel!r}")

    # Reading

    def get_tuple(self, config: RunnableConfig) -> CheckpointTuple | None:
        """Return a checkpoint by its id, or the newest of its thread and namespace; None if there is none."""
        id, ns = _place(config)
        wanted = get_checkpoint_id(config)
        with self._threads.get(id) as thread:
            thread.refresh()
            saved = thread.newest(ns) if wanted is None else thread.find(ns, wanted)
            gathered = None if saved is None else self._gather(thread, saved)
        return None if gathered is None else self._tuple(id, *gathered)

    def has(self, thread_id: str, checkpoint_ns: str, checkpoint_id: str) -> bool:
        """Whether a checkpoint is saved."""
        with self._threads.get(thread_id) as thread:
            return thread.refresh().find(checkpoint_ns, checkpoint_id) is not None

    def list(
        self,
        config: RunnableConfig | None,
        *,
        filter: dict[str, Any] | None = None,
        before: RunnableConfig | None = None,
        limit: int | None = None,
    ) -> Iterator[CheckpointTuple]:
        """Return checkpoints, newest first: of a thread, of one of its namespaces, or (without config) of all threads.

        `filter` compares metadata. `before` is the config of a newer checkpoint. Each is read when it is asked for.
        """
        upto = None if before is None else _configurable(before, "before", "checkpoint_id").get("checkpoint_id")
        if filter is not None and not isinstance(filter, Mapping):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise InvalidValue(f"filter={filter!r} is not a dict of metadata", hint='give {"source": "loop"}, or None')
        if limit is not None and (type(limit) is not int or limit < 0):
            raise InvalidValue(
                f"limit={limit!r} is not a number of checkpoints", hint="give 0 or more, or None for all"
            )
        return self._listed(config, None if config is None else _place(config)[0], upto, filter, limit)

    def _listed(
        self,
        config: RunnableConfig | None,
        thread_id: str | None,
        upto: str | None,
        filter: Mapping[str, Any] | None,
        limit: int | None,
    ) -> Iterator[CheckpointTuple]:
        wanted = None if config is None else get_checkpoint_id(config)
        found: list[tuple[str, str, str]] = []
        for id in self._ids() if thread_id is None else (thread_id,):
            with self._threads.get(id) as thread:
                thread.refresh()
                of_id = [one for one in _of_namespace(thread, config) if wanted in (None, one.id)]
                older = [one for one in of_id if upto is None or one.id < upto]
                found += [(one.id, id, one.ns) for one in older if self._fits(one, filter)]
        for saved_id, id, ns in sorted(found, reverse=True)[:limit]:
            one = self.get_tuple(_config(id, ns, saved_id))
            if one is not None:  # it may have been deleted meanwhile
                yield one

    def history(self, thread_id: str) -> Sequence[CheckpointSummary]:
        """Return what checkpoints a thread has, newest first, without their values: of all namespaces."""
        with self._threads.get(str(thread_id)) as thread:
            found = [self._summary(one, len(thread.pending(one))) for one in _every(thread.refresh())]
        return sorted(found, key=lambda one: one.id, reverse=True)

    def stats(self) -> SaverStats:
        """Return how many threads, checkpoints and writes are saved, and their bytes. It looks at every thread."""
        threads = checkpoints = writes = size = 0
        for id in self._ids():
            with self._threads.get(id) as thread:
                saved = _every(thread.refresh())
                threads += 1
                checkpoints += len(saved)
                writes += sum(len(thread.pending(one)) for one in saved)
                size += thread.bytes
        return SaverStats(threads, checkpoints, writes, size)

    def _summary(self, saved: Saved, writes: int) -> CheckpointSummary:
        metadata = self._load(saved.metadata)
        source, step = str(metadata.get("source", "")), metadata.get("step")
        return CheckpointSummary(saved.id, saved.ns, saved.parent, self._body(saved)["ts"], source, step, writes)

    def get_delta_channel_history(
        self, *, config: RunnableConfig, channels: Sequence[str]
    ) -> Mapping[str, DeltaChannelHistory]:
        """Return what was written to channels since their last stored value, and that value, along the parents."""
        id, ns = _place(config)
        wanted = get_checkpoint_id(config)
        writes: dict[str, list[list[TaskWrite]]] = {channel: [] for channel in channels}
        seeds: Content = {}
        with self._threads.get(id) as thread:
            thread.refresh()
            at = thread.newest(ns) if wanted is None else thread.find(ns, wanted)
            while at is not None and at.parent is not None and len(seeds) < len(writes):
                at = thread.find(ns, at.parent)
                if at is None:
                    break
                missing = [channel for channel in writes if channel not in seeds]
                pending = thread.pending(at)
                for channel in missing:
                    writes[channel].append([one for one in pending if one.channel == channel])
                seeds = {**seeds, **thread.content(at, self._versions(at), missing)}
        return {channel: self._history(steps, seeds.get(channel)) for channel, steps in writes.items()}

    def _history(self, steps: Sequence[Sequence[TaskWrite]], seed: Packed | list[Packed] | None) -> DeltaChannelHistory:
        """The writes of steps, the newest of which is first, from the oldest on."""
        writes = [(one.task, one.channel, self._load(one.value)) for step in reversed(steps) for one in step]
        return {"writes": writes} if seed is None else {"writes": writes, "seed": self._value(seed)}

    def _ids(self) -> Iterator[str]:
        """The ids of all threads."""
        after: str | None = None
        while page := self._records.keys(after=after, limit=PAGE):
            yield from page
            after = page[-1]

    def _fits(self, saved: Saved, filter: Mapping[str, Any] | None) -> bool:
        if not filter:
            return True
        metadata = self._load(saved.metadata)
        return all(metadata.get(name) == value for name, value in filter.items())

    def _body(self, saved: Saved) -> Checkpoint:
        """A checkpoint without its values."""
        return self._load(saved.body)

    def _load(self, packed: Packed) -> Any:
        return self.serde.loads_typed(typed(packed))

    def _value(self, value: Packed | list[Packed]) -> Any:
        return [self._load(one) for one in value] if isinstance(value, list) else self._load(value)

    def _gather(self, thread: SavedThread, saved: Saved) -> tuple[Saved, Checkpoint, Content, list[TaskWrite]]:
        """All there is of a checkpoint; values are unpacked later, when the thread is free again."""
        body = self._body(saved)
        return saved, body, thread.content(saved, body["channel_versions"]), thread.pending(saved)

    def _tuple(
        self, id: str, saved: Saved, body: Checkpoint, content: Content, pending: list[TaskWrite]
    ) -> CheckpointTuple:
        values = {channel: self._value(value) for channel, value in content.items()}
        return CheckpointTuple(
            _config(id, saved.ns, saved.id),
            cast("Checkpoint", {**body, "channel_values": values}),
            self._load(saved.metadata),
            None if saved.parent is None else _config(id, saved.ns, saved.parent),
            [(one.task, one.channel, self._load(one.value)) for one in pending],
        )

    # Taking away, and copying

    def delete_thread(self, thread_id: str) -> None:
        """Delete a thread: all namespaces, checkpoints and writes. Its id can be used again."""
        self._records.drop(str(thread_id), why="thread deleted")

    def delete_for_runs(self, run_ids: Sequence[str]) -> None:
        """Delete the checkpoints whose metadata names these runs. It looks at every thread."""
        gone = {str(id) for id in _ids_of(run_ids, "run_ids")}
        for id in self._ids() if gone else ():
            with self._threads.get(id) as thread:
                thread.keep(lambda: [one for one in _every(thread) if self._run(one) not in gone], self._versions)

    def copy_thread(self, source_thread_id: str, target_thread_id: str) -> None:
        """Copy a thread with all its checkpoints, writes and values; what the target has already stays as it is."""
        source, target = str(source_thread_id), str(target_thread_id)
        with self._threads.get(source) as thread:
            thread.refresh()
            every = _every(thread)
            copies = thread.copies(every, self._versions)
        with self._threads.get(target) as thread:
            thread.refresh()
            thread.append([one for one in copies if not isinstance(one, Saved) or not thread.find(one.ns, one.id)])

    def prune(self, thread_ids: Sequence[str], *, strategy: str = "keep_latest") -> None:
        """Delete all but the newest checkpoint of each namespace, or, with strategy "delete", whole threads.

        Of delta channels, the checkpoints back to the last stored value are kept too.
        """
        if strategy not in ("keep_latest", "delete"):
            raise InvalidValue(f"strategy={strategy!r} is not known", hint="use 'keep_latest' or 'delete'")
        for id in map(str, _ids_of(thread_ids, "thread_ids")):
            if strategy == "delete":
                self.delete_thread(id)
                continue
            with self._threads.get(id) as thread:
                thread.keep(
                    lambda: [one for ns in thread.checkpoints for one in self._needed(thread, ns)], self._versions
                )

    def _needed(self, thread: SavedThread, ns: str) -> Iterator[Saved]:
        """The newest checkpoint, and its ancestors as far as delta channels are made of their writes."""
        at = thread.newest(ns)
        assert at is not None
        yield at
        open = set(self._load(at.metadata).get("counters_since_delta_snapshot") or ())
        while True:
            open -= set(thread.content(at, self._versions(at), open))
            at = thread.find(ns, at.parent) if open and at.parent is not None else None
            if at is None:
                return
            yield at

    def _versions(self, saved: Saved) -> Mapping[str, Any]:
        return self._body(saved)["channel_versions"]

    def _run(self, saved: Saved) -> str:
        """The run that made a checkpoint."""
        return str(self._load(saved.metadata).get("run_id"))

    # The same, to be awaited: the event loop stays free while a thread waits for the store.

    async def aget_tuple(self, config: RunnableConfig) -> CheckpointTuple | None:
        """`get_tuple`, to be awaited."""
        return await asyncio.to_thread(self.get_tuple, config)

    async def alist(
        self,
        config: RunnableConfig | None,
        *,
        filter: dict[str, Any] | None = None,
        before: RunnableConfig | None = None,
        limit: int | None = None,
    ) -> AsyncIterator[CheckpointTuple]:
        """`list`, for `async for`."""
        found = self.list(config, filter=filter, before=before, limit=limit)
        while (one := await asyncio.to_thread(next, found, None)) is not None:
            yield one

    async def aput(
        self,
        config: RunnableConfig,
        checkpoint: Checkpoint,
        metadata: CheckpointMetadata,
        new_versions: ChannelVersions,
    ) -> RunnableConfig:
        """`put`, to be awaited."""
        return await asyncio.to_thread(self.put, config, checkpoint, metadata, new_versions)

    async def aput_writes(
        self, config: RunnableConfig, writes: Sequence[tuple[str, Any]], task_id: str, task_path: str = ""
    ) -> None:
        """`put_writes`, to be awaited."""
        await asyncio.to_thread(self.put_writes, config, writes, task_id, task_path)

    async def ahistory(self, thread_id: str) -> Sequence[CheckpointSummary]:
        """`history`, to be awaited."""
        return await asyncio.to_thread(self.history, thread_id)

    async def astats(self) -> SaverStats:
        """`stats`, to be awaited."""
        return await asyncio.to_thread(self.stats)

    async def adelete_thread(self, thread_id: str) -> None:
        """`delete_thread`, to be awaited."""
        await asyncio.to_thread(self.delete_thread, thread_id)

    async def adelete_for_runs(self, run_ids: Sequence[str]) -> None:
        """`delete_for_runs`, to be awaited."""
        await asyncio.to_thread(self.delete_for_runs, run_ids)

    async def acopy_thread(self, source_thread_id: str, target_thread_id: str) -> None:
        """`copy_thread`, to be awaited."""
        await asyncio.to_thread(self.copy_thread, source_thread_id, target_thread_id)

    async def aprune(self, thread_ids: Sequence[str], *, strategy: str = "keep_latest") -> None:
        """`prune`, to be awaited."""
        await asyncio.to_thread(self.prune, thread_ids, strategy=strategy)

    async def aget_delta_channel_history(
        self, *, config: RunnableConfig, channels: Sequence[str]
    ) -> Mapping[str, DeltaChannelHistory]:
        """`get_delta_channel_history`, to be awaited."""
        return await asyncio.to_thread(self.get_delta_channel_history, config=config, channels=channels)


class _Threads:
    """The threads that a saver has in memory, those not used for longest first."""

    def __init__(self, make: Callable[[str], SavedThread]) -> None:
        self._make = make
        self._lock = threading.Lock()
        self._kept: OrderedDict[str, SavedThread] = OrderedDict()
        self._bytes = 0

    def get(self, id: str) -> _InUse:
        """Return a thread to work with: `with threads.get(id) as thread:`."""
        return _InUse(self, id)

    def take(self, id: str) -> SavedThread:
        """Return a thread, as the one that was used last."""
        with self._lock:
            thread = self._kept.get(id)
            if thread is None:
                thread = self._kept[id] = self._make(id)
            else:
                self._kept.move_to_end(id)
            return thread

    def grown(self, id: str, thread: SavedThread, bytes: int) -> None:
        """Count what a thread has grown by, and forget others if there is too much."""
        with self._lock:
            self._bytes += bytes if self._kept.get(id) is thread else 0
            while self._bytes > MEMORY_BYTES and len(self._kept) > 1:
                self._bytes -= self._kept.popitem(last=False)[1].bytes


class _InUse:
    """A thread that nothing else of this process reads or writes meanwhile. (A generator would take twice as long.)"""

    __slots__ = ("_before", "_id", "_thread", "_threads")

    def __init__(self, threads: _Threads, id: str) -> None:
        self._threads = threads
        self._id = id
        self._thread = threads.take(id)

    def __enter__(self) -> SavedThread:
        self._thread.lock.acquire()
        self._before = self._thread.bytes
        return self._thread

    def __exit__(self, *error: object) -> None:
        grown = self._thread.bytes - self._before
        self._thread.lock.release()
        if grown:
            self._threads.grown(self._id, self._thread, grown)


def _place(config: RunnableConfig) -> tuple[str, str]:
    """The thread and the namespace that a config names."""
    given = _configurable(config)
    if given.get("thread_id") is None:
        raise InvalidValue(
            "the config names no thread", hint='invoke the graph with {"configurable": {"thread_id": "…"}}'
        )
    return str(given["thread_id"]), given.get("checkpoint_ns", "")


def _configurable(config: Any, what: str = "config", part: str = "thread_id") -> Mapping[str, Any]:
    """What a config names; nothing, if it has no such part."""
    given: Any = cast("Mapping[str, Any]", config).get("configurable", {}) if isinstance(config, Mapping) else None
    if not isinstance(given, Mapping):
        raise InvalidValue(f"{what}={config!r} is not a config", hint=f'give {{"configurable": {{"{part}": "…"}}}}')
    return cast("Mapping[str, Any]", given)


def _ids_of(given: Sequence[str], what: str) -> Sequence[str]:
    """Ids; a single text would be taken for a list of its letters."""
    if isinstance(given, str):
        raise InvalidValue(f"{what}={given!r} is a text, not a list of ids", hint=f"give [{given!r}]")
    return given


def _config(id: str, ns: str, checkpoint_id: str) -> RunnableConfig:
    return {"configurable": {"thread_id": id, "checkpoint_ns": ns, "checkpoint_id": checkpoint_id}}


def _every(thread: SavedThread) -> Sequence[Saved]:
    return [one for of_namespace in thread.checkpoints.values() for one in of_namespace.values()]


def _of_namespace(thread: SavedThread, config: RunnableConfig | None) -> Sequence[Saved]:
    """The checkpoints of the namespace that a config names; of all, if it names none."""
    given = {} if config is None else config.get("configurable", {})
    if given.get("checkpoint_ns") is None:
        return _every(thread)
    return [*thread.checkpoints.get(given["checkpoint_ns"], {}).values()]
