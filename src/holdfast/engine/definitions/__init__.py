"""What users declare: agents, tools, queues, prices, the model of a typed state. Imports core.

Used from outside: `Agent Tool agent tool Queue Price`, `signature` (what is known of a function) and `state_versions`.
"""
