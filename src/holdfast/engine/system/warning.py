"""Warnings in the program's log, for what goes wrong while no caller waits who could get an error."""

from __future__ import annotations


def warn(text: str, *values: object) -> None:
    """Write to the program's log."""
    import logging  # few programs are warned

    logging.getLogger("holdfast").warning(text, *values)
