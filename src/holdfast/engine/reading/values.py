"""Values, times and JSON, as every face parses and prints them.

Faces import nothing of core but errors and events; what else they need of it stands here.
"""

from __future__ import annotations

from holdfast.core import urls as urls
from holdfast.core.codec import (
    Fetch as Fetch,
    LoggedEvent as LoggedEvent,
    Summary as Summary,
    as_json as as_json,
    load as load,
    moment as moment,
    parse as parse,
    text as text,
    unpack as unpack,
)
from holdfast.core.codec.secrets import HIDDEN as HIDDEN
from holdfast.core.durations import Duration as Duration, seconds as seconds
from holdfast.core.limits import (
    FAILURE_LOGGER as FAILURE_LOGGER,
    MAX_PAGE_SIZE as MAX_PAGE_SIZE,
    MAX_SEQ as MAX_SEQ,
)
from holdfast.core.names import BLOCK_QUEUE as BLOCK_QUEUE, task_log as task_log, user_log as user_log
from holdfast.core.state.shapes import ENDED as ENDED
from holdfast.engine.logs.addresses import is_server as is_server, path_of as path_of
from holdfast.engine.logs.committer import Observer as Observer, PlacedEvent as PlacedEvent
