"""One claimed task being worked on: pending writes, what each branch sees, linked logs. Imports conversations.

Used from outside: `Execution` (def agents), `LoopExecution` (async ones), `step_request` and `call`.
"""
