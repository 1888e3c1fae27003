"""The nouns of hosted assistants (threads, messages, runs, steps) over Holdfast's own.

    threads = Threads(app, [support])
    thread = threads.create(messages=[{"role": "user", "content": "My lamp is broken."}])
    run = threads.runs.create(thread.id, "support")
    threads.runs.wait(run.id, thread_id=thread.id).status           # "completed", once a worker has done it
    threads.messages.list(thread.id).data[0].content

A run is a task, its id the task's id; a thread is `app.thread(id)`. So everything else of Holdfast works with them.
"""

from holdfast.threads.shapes import (
    Page as Page,
    Run as Run,
    RunStep as RunStep,
    StoredMessage as StoredMessage,
    StoredThread as StoredThread,
)
from holdfast.threads.threads import (
    MessageCalls as MessageCalls,
    RunCalls as RunCalls,
    Threads as Threads,
)
