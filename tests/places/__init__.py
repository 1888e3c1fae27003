"""Ray, Temporal and Celery for real: servers, nodes, workers and brokers that are killed.

Run by `make test-places`; `make test` runs those that are marked as a sample.
"""
