"""Which process works on which task: begin, claim, resume, fork. Imports verbs and control.

Used from outside: `Dispatcher`, `Assignment` and `TaskOptions`.
"""
