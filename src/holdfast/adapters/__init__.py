"""Adapters: agents of other frameworks, made durable by one line. Each is an extra, and imports only its own.

`adapters.langgraph`: checkpoints, memory and tool calls of LangGraph graphs and LangChain agents.
`adapters.pydantic_ai`: Pydantic AI agents as tasks.
`adapters.openai_agents`: runs and sessions of the OpenAI Agents SDK.
`adapters.google_adk`: sessions and tool calls of Google's Agent Development Kit.
`adapters.claude_agent_sdk`: transcripts and tool calls of the Claude Agent SDK.
`adapters.langchain`: chat message histories of LangChain chains and classic memory.
"""
