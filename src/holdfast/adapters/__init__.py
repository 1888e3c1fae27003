"""Adapters: agents of other frameworks, made durable by one line. Each is an extra, and imports only its own.

`adapters.langgraph`: checkpoints, memory and tool calls of LangGraph graphs and LangChain agents.
`adapters.pydantic_ai`: Pydantic AI agents as tasks.
"""
