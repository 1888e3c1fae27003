"""Records: opaque bytes in ordered, named logs that are not tasks. Imports logs, reading and maintenance.

Used from outside: `records.Records`, which `app.records(space)` gives, and `removal.erase_of_user`.
"""
