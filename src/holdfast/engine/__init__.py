"""Carries out what core decides. Imports core and store.

Its packages, bottom to top: system, logs, definitions, reading, maintenance, control, conversations, execution,
drivers, verbs, dispatch, people, workers; then `app`, the one object a program holds.
"""
