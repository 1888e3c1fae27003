"""Every limit of the system, in one place (law 12)."""

BLOB_BYTES = 4_096
"""A value this large or larger is stored beside the log, compressed and addressed by its content."""

MAX_VALUE_BYTES = 64 * 1024 * 1024
"""The largest single value, encoded."""

MAX_DEPTH = 64
"""How deep lists and objects may nest in a value."""

MAX_ID_LENGTH = 512
"""The longest id of a task; children carry their parent's id in theirs."""

MAX_NAME_LENGTH = 200
"""The longest name of a step, stage, fact, flag or key in the bag."""

MAX_EVENTS_PER_WRITE = 10_000
"""How many events one write may carry."""

MAX_GROUPS_PER_COMMIT = 1_024
"""How many groups share one transaction at the most."""

PAGE_SIZE = 100
"""How many rows a listing gives when nobody says."""

MAX_PAGE_SIZE = 10_000
"""How many rows a listing gives at the most."""

READ_CHUNK = 5_000
"""How many events a long walk over a log reads at once."""

MAX_FORK_DEPTH = 1_000
"""How many forks of forks a log may stand on."""

MAX_APPEND_TRIES = 100
"""How often an outsider's write is tried against a moving head."""

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
