"""Every limit of the system, in one place (law 12)."""

BLOB_BYTES = 4_096
"""A value this large or larger is stored beside the log, compressed and addressed by its content."""

MAX_VALUE_BYTES = 64 * 1024 * 1024
"""The largest single value, encoded."""

MAX_EVENT_BYTES = 128 * 1024 * 1024
"""The largest body of an event; the large values of most kinds are kept beside it and do not count."""

MAX_STATE_BYTES = 512 * 1024 * 1024
"""The largest encoded state that snapshots and shared caches hold."""

MAX_DEPTH = 64
"""How deep lists and objects may nest in a value."""

MAX_ID_LENGTH = 512
"""The longest id of a task; children carry their parent's id in theirs."""

MAX_NAME_LENGTH = 200
"""The longest name of a step, stage, fact, flag or key in the bag."""

HANDED_OUT_BYTES = 1024 * 1024
"""How many bytes of lists and objects, as JSON, a state keeps decoded for the next time they are read."""

MAX_PATH_PARTS = 16
"""How many names a path into the state may have."""

MAX_RECORD_BYTES = 16 * 1024 * 1024
"""The largest data of one record; what is larger goes into its blobs."""

MAX_RECORD_BLOBS = 1_000
"""How many blobs one record may have."""

MAX_APPEND_BYTES = 256 * 1024 * 1024
"""How many bytes of records and blobs one append may carry."""

MAX_SPACE_LENGTH = 64
"""The longest name of a space of records."""

MAX_KEY_BYTES = 1_024
"""The longest key of records, in UTF-8."""

MAX_EVENTS_PER_WRITE = 10_000
"""How many events one write may carry."""

MAX_GROUPS_PER_COMMIT = 1_024
"""How many groups share one transaction at the most."""

PAGE_SIZE = 100
"""How many rows a listing returns by default."""

FEED_KEPT = 10_000
"""How many changes of tasks are kept in memory for those who watch; who is further behind asks the store."""

FEED_WAIT_SECONDS = 1.0
"""How long a watcher waits before it checks that the feed is still open."""

FEED_CLOSE_SECONDS = 5.0
"""How long closing an app waits for the thread that reads changes."""

WAIT_LOOK_SECONDS = 5.0
"""How often `wait` reads a task although no change of it was reported."""

LIST_CHUNK = 1_000
"""How many rows of a list without a limit are in memory at once."""

INBOX_PAGE_SIZE = 1_000
"""How many rows of waiting tasks are read at once."""

MAX_PAGE_SIZE = 10_000
"""How many rows a listing gives at the most."""

READ_CHUNK = 5_000
"""How many events a long walk over a log reads at once."""

MAX_FORK_DEPTH = 1_000
"""How many forks of forks a log may stand on."""

MAX_APPEND_TRIES = 100
"""How often an outsider's write is tried against a moving head."""

MAX_UPDATE_TRIES = 1_000
"""How often a read-modify-write is tried: each time another writer was faster, so all of them together get ahead."""

MAX_KNOWN_HEADS = 10_000
"""How many tasks a process remembers the last acknowledged event of."""

MAX_CONTRACT_ITEMS = 100_000
"""How many facts, messages, turns and other items a contract may have."""

MAX_PHASES = 200
"""How many phases a machine may have, and how many events that move them."""

SNAPSHOT_MIN_BYTES = 64 * 1024
"""No snapshot is taken before the log has grown by this much."""

SNAPSHOTS_KEPT = 2
"""How many snapshots of one log are kept."""

BLOB_CACHE_BYTES = 8 * 1024 * 1024
"""How many bytes of decoded blobs a reader keeps in memory."""

TRACEBACK_FRAMES = 40
"""How many frames of a traceback a failure keeps."""

MAX_CAUSES = 16
"""How long a chain of causes a failure keeps."""

FAILED_OUTPUT_BYTES = 16_384
"""How much the record of a failure keeps of what the step had streamed: its last part."""

FAILURE_LOGGER = "holdfast.failures"
"""The name of the logger for failed tasks. Its records propagate to `holdfast`, as with all loggers."""

FAILURES_KEPT = 10_000
"""How many reported failures of tasks an app remembers, so that `on_failure` gets each once."""

NOTICE_SECONDS = 0.5
"""How often a watcher of the inbox looks for new entries."""

NOTICE_SHARE = 20
"""A look at the inbox rests for so many times as long as it took, if that is longer."""

NOTICE_KEPT_SECONDS = 3_600.0
"""How long notices of a task are remembered after it has stopped waiting."""

UNSERVED_SECONDS = 10.0
"""How long a task that no worker takes must wait before a notice is sent: a worker may be starting."""

WEBHOOK_SECONDS = 10.0
"""How long a request of a webhook may take by default."""

MAX_WEBHOOK_SECONDS = 60.0
"""How long it may take at the most, and how long the next attempt waits at the most because it was asked to."""

MAX_WEBHOOK_ATTEMPTS = 10
"""How often a notice is tried at the most."""

WEBHOOK_SECRET_LENGTH = 16
"""How many characters the secret of a webhook has at least."""

MAX_RATE_PLACES = 1_000
"""How many calls the rate of a tool lets begin at once. A higher one is a part of that in a part of its time."""

RATE_MARGIN_SHARE = 0.1
"""How much longer than the time of its rate a place is kept, as a part of that: a call may begin late by so much."""

RATE_MARGIN_SECONDS = 1.0
"""The most that this is."""

RATE_LEAD_US = 1_000_000
"""How long before the moment of a call its task's timer ends."""

RATE_MISSED = 6
"""How often the time by which a call may be late is doubled: each time that it was later."""

RATE_AHEAD_SECONDS = 60.0
"""How long before its time a call reserves its place, at least. One that would wait longer asks again then."""

RATE_AHEAD_WINDOWS = 2
"""The same, in times of its rate."""

MAX_RETRY_AFTER_SECONDS = 3_600.0
"""How long a retry waits at the most because its destination asked for it (`Retry-After`)."""

MAX_BUDGET = 2**53
"""The highest limit a budget may name."""

MAX_BLOCKERS = 100
"""How many things a suspended task names that keep it from continuing."""

MAX_LOST_SHOWN = 100
"""How many unconfirmed spendings are kept one by one; all are counted."""

LEASE_SECONDS = 30.0
"""How long a worker may be silent before others may take its tasks. A dead worker's tasks are taken at once."""

ABSENT_SECONDS = 1.0
"""How long a worker's lock must be missing before the worker is presumed dead; one that lives takes it again sooner."""

RESTART_SECONDS = 5.0
"""How long after a server was first seen anew those count as alive that held their locks on the one before it."""

RECONNECT_SECONDS = 0.25
"""How long a process waits at the most before it tries again to get back a connection that proves it alive."""

TURN_SECONDS = 0.002
"""How long it takes a worker to ask for tasks, at the least."""

ASKS_PER_TURN = 2
"""How many times that, as measured, a worker waits for each one whose turn to ask is before its own."""

TURNS_SECONDS = 0.5
"""How long a worker waits for its turn at the most, however many there are."""

MAX_WORKERS_TAKING_TURNS = 1_000
"""How many workers take turns. With more of them, some ask at the same time."""

QUIET_SECONDS = 1.0
"""How long a worker doesn't look by itself, at the most, because another one found nothing to do."""

BEATS_PER_LEASE = 5
"""How often a process lets itself be heard of within its lease."""

GOODBYE_SECONDS = 2.0
"""How long closing a store waits for the goodbye to be sent."""

WORKER_CONCURRENCY = 100
"""How many tasks a worker works on at a time by default."""

WORKER_HOLD_SECONDS = 2.0
"""How long a worker blocks while a task sleeps, before the task suspends."""

MAX_DEATHS = 5
"""How many workers in a row may die at a task, without a step being done, before it is quarantined."""

MAX_NOTE_LENGTH = 2_000
"""How long the reason of a quarantine may be."""

HOLD_SECONDS = 60.0
"""How long to block while a task sleeps, before it suspends."""

PARK_GRACE_SECONDS = 0.01
"""How long everything in an async task must stand still before it suspends."""

LOOP_SECONDS = 0.5
"""How often one looks whether an event loop with tasks on it was closed."""

MAX_REFUSED_VERBS = 1_000
"""How many verbs in a row a stopped task may refuse before its agent is thrown out of whatever swallows that."""

FEW_REFUSED_VERBS = 10
"""How many it may refuse however long that takes: an agent may clean up."""

STOP_SECONDS = 5.0
"""How long an async agent that was stopped may take to clean up."""

GC_OBJECTS, GC_GENERATIONS = 50_000, 20
"""When a worker process looks for garbage: after so many new objects; for older ones, after so many such looks."""

YIELD_SECONDS = 0.005
"""How long steps that wait for nothing keep other code on their event loop from running."""

POLL_SECONDS = 0.25
"""How often a blocking wait checks whether the log has moved."""

UNIQUE_POLL_US = 50_000
"""How long the second user of a unique key waits before it looks at the first one's call again."""

UNIQUE_WAIT_US = 5_000_000
"""How long the task then waits before it looks again."""

MAX_SEQ = 2**63 - 1
"""The highest position that stores can speak of."""

ANNOUNCE_SECONDS = 1.0
"""A step that runs longer than this announces itself."""

MAX_BUFFERED_EVENTS = 1_000
"""How many events may wait to be written, whatever the checkpoint strategy."""

MAX_CHILD_DEPTH = 32
"""How many tasks may be each other's children in one chain."""

MAP_LIMIT = 8
"""How many steps a map has under way by default."""

TRANSACTION_SECONDS = 30.0
"""How long a transaction tool may keep the store to itself by default."""

LEDGER_EVENTS = 1_000
"""How many events after a call's message are searched for what came of it, if the message that says so is missing."""

SECRET_LENGTH = 4
"""A secret shorter than this is hidden only where it stands by itself: too much would match."""

KEY_SPACE_LENGTH = 16
"""Letters of a store's id that a task's first event has, and that its idempotency keys cover."""

DUE_TASKS = 1_000
"""The most due tasks that a dispatcher gets before some of them are taken."""

FOLLOW_SECONDS = 0.05
"""How often `follow` looks for new events."""

CHUNK_SECONDS = 0.08
"""How often chunks that a step streams are written, at most."""

CHUNK_FLUSH_SECONDS = 0.5
"""How long the end of a step that streamed waits until its last chunks are written, at most."""

CHUNKS_KEPT_SECONDS = 1.0
"""How long chunks stay when their step has ended, for watchers that have not seen the last of them."""

CHUNKS_STALE_SECONDS = 3_600.0
"""How old a stream must be for `gc` to delete it: it was left over by a process that died."""

MAX_STREAM_BYTES = 1024 * 1024
"""How many bytes of chunks an attempt of a step publishes; watchers see that the rest is left out."""

MAX_STREAM_CHUNKS = 100_000
"""How many chunks an attempt of a step publishes."""

CACHE_BYTES = 32 * 1024 * 1024
"""About how many bytes an app caches of states, of threads and of messages."""

CACHE_ENTRIES = 10_000
"""How many of each it keeps at the most."""

CACHE_STATE_BYTES = 4_096
"""What a state in memory takes when there is nothing in it, about."""

CACHE_MESSAGE_BYTES = 512
"""What a message in memory takes beside its text, about."""

CACHE_ENTRY_BYTES = 640
"""What a step of a state takes in memory beside its text, about; other things in it take less."""

CACHE_LARGE_FACTOR = 8
"""How many times the whole cache one large state may take. The newest large state is kept beside the others."""

CACHE_SIZED_BYTES = 64 * 1024
"""A state is measured when its log has grown by this much, and by its own size; until then its events are counted."""

CACHE_TAIL_EVENTS = 500
"""How many events a state in a cache may be behind its log; beyond that a snapshot is the shorter way."""

CACHE_SHARED_BYTES = 8 * 1024 * 1024
"""The largest state that servers share, compressed."""

CACHE_SHARE_EVENTS = 32
"""By how many events a log must have grown before servers share its state again; less is not worth a trip."""

CACHE_QUEUE = 64
"""How many states, and how many wake-ups, may be on their way to the tier that servers share."""

CACHE_EXPIRE_SECONDS = 3_600.0
"""How long a shared state stays by default."""

CACHE_MAX_EXPIRE_SECONDS = 30 * 86_400.0
"""How long it may stay at the most."""

CACHE_TIMEOUT_SECONDS = 0.25
"""How long the tier that servers share may take to connect, or to answer."""

CACHE_PAUSE_SECONDS = 5.0
"""How long it is left alone after it was away."""

CACHE_LISTEN_SECONDS = 0.2
"""How often a listener for wake-ups looks whether it should stop."""

CACHE_CLOSE_SECONDS = 1.0
"""How long closing waits for what is on its way there."""

ABANDONED_SECONDS = 60.0
"""How long the thread of an attempt that timed out may still be sending, at least."""

ABANDONED_TIMEOUTS = 10
"""The same, in time limits of its tool."""

MAX_ABANDONED_THREADS = 64
"""With how many abandoned threads that still run a worker claims no more tasks."""

REPLAY_GRACE_SECONDS = 2.0
"""How long a replay whose time is over, or that was cancelled, may take to come back to where it was."""

REPLAY_PATIENCE_SECONDS = 1.0
"""How long a new call waits for branches that have not come back to their recorded steps, and wait for other things."""

DELIVERY_ROUNDS = 8
"""How many rounds of a busy event loop pass between two results that a task's branches are given."""

BOUND_LENGTH = 12
"""Letters of the digest by which a person says which call they were shown."""

CLOSE_GRACE_SECONDS = 10.0
"""How long closing an app waits for the calls under way in other threads."""

WAKE_PAGES = 20
"""How many pages of waiting tasks a worker looks through, as it starts, for those that an older version forgot."""

WAL_BYTES = 4 * 1024 * 1024
"""How long SQLite's write-ahead log may be before it is moved into the database, if no one reads at that moment."""

WAL_LONG_BYTES = 4 * WAL_BYTES
"""How long it may be before readers are asked to wait for that, for a moment."""

OTLP_ENDPOINT = "http://localhost:4318"
"""Where a collector is looked for, if neither the program nor the environment says."""

OTLP_TIMEOUT_SECONDS = 10.0
"""How long one request to a collector may take."""

OTLP_BATCH = 2_048
"""The most spans that one request carries."""

OTLP_BATCH_BYTES = 1_000_000
"""How many bytes of spans fill a request, so that collectors take it: the last one may go beyond."""

OTLP_KEPT = 10_000
"""How many spans are kept for a collector that does not take them; older ones are dropped and counted."""

OTLP_PAUSE_SECONDS = 30.0
"""How long a collector that failed is left alone at the most."""

OTLP_ANSWER_BYTES = 65_536
"""How much of a collector's answer is read."""

EVENT_LOGGER = "holdfast.events"
"""The logger of `logging` that gets a line for each event, if an app is opened with `logs=True`."""

TELEMETRY_SECONDS = 1.0
"""How often what was written is made into spans, measures and log lines."""

TELEMETRY_WAKE = 2_000
"""The most writes that may gather before that."""

TELEMETRY_KEPT = 20_000
"""How many writes are kept in memory for it; what comes beyond is read from the store again."""

TELEMETRY_TASKS = 4_096
"""How many tasks' folds are kept in memory; others are folded from their logs again."""

TELEMETRY_CLOSE_SECONDS = 2.0
"""How long closing an app waits for a collector."""

METRICS_SECONDS = 60.0
"""How often metrics are sent to a collector, unless OTEL_METRIC_EXPORT_INTERVAL says."""

GAUGES_SECONDS = 1.0
"""How long a count of the store is reused: frequent requests do not make it count often."""

GAUGES_SHARE = 20.0
"""How many times as long as counting took it is reused, if that is longer."""
