"""Warnings in the program's log: of what went wrong without anybody being there to be told."""

from __future__ import annotations


def warn(text: str, *values: object) -> None:
    """Write to the program's log."""
    import logging  # few programs are warned

    logging.getLogger("holdfast").warning(text, *values)
