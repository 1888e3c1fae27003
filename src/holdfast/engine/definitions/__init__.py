"""What users declare: agents, tools, queues, prices, the model of a typed state. Imports core.

Others use `Agent Tool agent tool Queue Price`, `signature` (what is known of a function) and `state_versions`.
"""
