"""Claims many tasks and keeps them alive. Imports dispatch.

Others use `Worker`, `Schedule` and `factory.worker`.
"""
