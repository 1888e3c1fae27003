"""Which process works on which task: begin, claim, resume, fork. Imports verbs and control.

Others use `Dispatcher` and `Assignment`.
"""
