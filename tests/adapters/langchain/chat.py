"""A conversation of three turns: a model that answers with how much it has seen, in a chain with a history."""

from langchain_core.messages import AIMessage
from langchain_core.runnables import RunnableLambda
from langchain_core.runnables.history import RunnableWithMessageHistory

import holdfast
from holdfast.adapters.langchain import HoldfastChatMessageHistory
from tests.adapters.orders import line

TURNS = ("charge", "ship", "mail")
"""What is said; also the files that `tests.adapters.killing` watches."""


def chain_of(app, model):
    return RunnableWithMessageHistory(
        RunnableLambda(model), lambda session_id: HoldfastChatMessageHistory(app, session_id)
    )


def config_of(session):
    return {"configurable": {"session_id": session}}


def work(log, mode):
    """Say three things to a model, each in a step of a task, and count the messages that are there in the end."""

    def model(messages):
        line(log / messages[-1].content, "said")
        return AIMessage("understood")

    @holdfast.agent
    def chat(task):
        for said in TURNS:
            if mode == "control":
                chain.invoke(said, config_of("ana"))
            else:
                task.step(lambda said=said: chain.invoke(said, config_of("ana")).content, name="turn")
        return "done"

    with holdfast.open(str(log / "store.db")) as app:
        chain = chain_of(app, model)
        done = app.run(chat, id="chat-1")
        assert done.status == "completed", done.failure
        found = HoldfastChatMessageHistory(app, "ana").messages
        for kind in ("human", "ai"):
            (log / kind).write_text("".join(f"{one.content}\n" for one in found if one.type == kind))
