"""Claims many tasks and keeps them alive. Imports dispatch.

Used from outside: `Worker`, `Schedule`, `factory.worker` and `health`.
"""
