"""Care of a store: export, copy, retention, checks. Imports logs and reading.

Used from outside: `export`, `copy.verified_copy`, `retention.collect` and `doctor.examine`.
"""
