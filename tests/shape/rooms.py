"""The packages of the code, in order: each may import those above it in its list, and nothing below.

A package is named by its path under src/holdfast. `tests/shape/test_rooms.py` holds the code to this table.
"""

ORDER = (
    *("core/errors", "core", "core/events", "core/codec", "core/state", "core/messages", "core/context", "core/flows"),
    "core/traces",
    "failpoints",
    *("store", "store/sqlite", "store/memory", "store/postgres/server", "store/postgres"),
    *("engine/system", "engine/logs", "engine/definitions/declared", "engine/definitions"),
    *("engine/views", "engine/reading", "engine/lists", "engine/streams"),
    *("engine/maintenance", "engine/records", "engine/telemetry"),
    *("engine/control", "engine/notices"),
    *("engine/conversations", "engine/execution", "engine/drivers", "engine/verbs", "engine/dispatch"),
    *("engine/people", "engine/workers", "engine"),
    "tracing",
    "",
    *("threads", "llm", "mcp/reading", "mcp/verbs", "mcp"),
    *("web/access", "web/requests", "web/reading", "web/acting", "web"),
    *("adapters", "adapters/google_adk", "adapters/claude_agent_sdk", "adapters/langgraph", "adapters/openai_agents"),
    *("testing/auditor", "testing/conformance", "testing/crash", "testing/certification", "testing"),
    *("cli/show", "cli/failures", "cli", "cli/input", "cli/work", "cli/demo", "cli/commands"),
)
"""Bottom to top. The empty name is the package `holdfast` itself: its public names, loaded when they are asked for."""

FACES = ("cli", "threads", "llm", "web", "mcp", "adapters", "dispatch", "on_celery", "on_ray", "on_temporal")
"""What people and models meet. They use the public names, engine/reading, and errors and events of core."""

FACES_MAY_IMPORT = (
    "holdfast",
    "holdfast.dispatch",
    "holdfast.mcp",
    "holdfast.web",
    "holdfast.testing",
    "holdfast.tracing",
    "holdfast.engine.reading",
    "holdfast.engine.lists",
    "holdfast.core.errors",
    "holdfast.core.events",
)

FACE_EXCEPTIONS = {
    "cli/commands/import_": "it reads an export before it opens, and perhaps makes, the store it goes to",
    "cli/work/worker": "it draws a line for each task that a worker has worked on, and serves its health",
    "llm/answers": "it makes a JSON Schema of a user's type",
    "llm/chat": "it stores model replies in the form that the log keeps",
    "llm/loop": "it cuts the conversation to a window by itself, and adds up what replies say of their tokens",
    "llm/openai": "it hides the key in what a provider's error says",
}
"""Modules of faces that import more, and why. This list may only shrink."""

LATE = {
    "holdfast.cli": "a command is imported when it is called",
    "holdfast.core.context.task_slice": "only agents that cut slices need it",
    "holdfast.core.messages.stored": "only agents that talk need it",
    "holdfast.core.state.contract": "few tasks begin with a contract",
    "holdfast.core.state.moments": "only agents whose branches read need it",
    "holdfast.engine.aio": "it imports asyncio",
    "holdfast.engine.conversations": "only agents that talk need it",
    "holdfast.engine.definitions.state_model": "only agents that declare a state need it",
    "holdfast.engine.dispatch.loop_claim": "it imports asyncio",
    "holdfast.engine.execution.loop_execution": "it imports asyncio",
    "holdfast.engine.lists": "few programs watch or compare",
    "holdfast.engine.logs.redis": "only apps with a shared cache need it",
    "holdfast.engine.logs.shared_cache": "only apps with a shared cache need it",
    "holdfast.engine.maintenance.doctor": "it is asked for by people, seldom",
    "holdfast.engine.maintenance.doctor_postgres": "it imports psycopg",
    "holdfast.engine.notices": "only apps that are told of waits need it",
    "holdfast.engine.people": "few programs have users and threads",
    "holdfast.engine.records": "few programs keep records",
    "holdfast.engine.reading.contracts": "few tasks begin with a contract",
    "holdfast.engine.telemetry": "only apps that are watched need it",
    "holdfast.engine.system.token_counter": "it loads what counts tokens",
    "holdfast.engine.reading.inbox": "it is made of what tasks wait for, and a wait is printed as the inbox says it",
    "holdfast.engine.verbs": "verbs that few agents use",
    "holdfast.engine.workers": "it imports asyncio",
    "holdfast.store.memory": "the store that is opened decides",
    "holdfast.store.postgres": "it imports psycopg",
    "holdfast.store.sqlite": "it imports apsw",
    "holdfast.testing": "tests load what they use",
}
"""What functions may import when they are called, and why. The command line may import anything so."""

MOST_MODULES = 12
LARGE_ROOMS = {
    "cli/commands": "one module a command",
}

MOST_LINES = 600
LARGE_MODULES = {
    "engine/app": "the public face: a verb is a few lines, each into a package",
    "engine/execution/execution": "the one object that verbs, flows and drivers of a task share: its methods are short",
    "engine/execution/loop_execution": "the same object on an event loop: how branches write, wait and are cut off",
    "store/sqlite/store": "one connection with one lock: all its ways to write stand beside each other",
    "engine/verbs/task": "what a body can say: a verb is a few lines, with the types that checkers see beside it",
    "store/protocol": "the whole contract of a store in one place, with the shapes it speaks of",
    "store/postgres/server/queries": "every statement of the store, and nothing else",
}

SAME_NAME = {
    "Step": "what @step makes, which is public, and what a state knows of a step",
    "StepFailed": "an event and an error, both public: the log's word and the exception's",
    "TaskFailed": "an event and an error, both public: the log's word and the exception's",
}
"""Classes of one name. This list may only shrink."""
