"""One claimed task being worked on: pending writes, what each branch sees, linked logs. Imports conversations and logs.

Others use `Execution` (def agents), `LoopExecution` (async ones), `StepRequest`s made by `step_request`, and `call`.
"""
