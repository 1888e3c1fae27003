"""The read side: what every face shows, as data. Imports logs and definitions. Faces may import it.

`task_state` is one task, `steps` and `timeline` its past, `describe` an event in words, `inbox` and `audit` views over
all tasks, `serving` the living workers, `waiting` why a task waits, `contracts` state as JSON, `verify` the chains,
`schema` migrations, `values` JSON and times for faces.
"""
