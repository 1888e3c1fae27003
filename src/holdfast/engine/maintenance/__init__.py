"""Care of a store: export, copy, retention, checks. Imports logs and reading.

Others use `export import_lines copy collect findings`.
"""
