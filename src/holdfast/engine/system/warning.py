"""Warnings in the program's log: something went wrong, and there is no caller who could be given an error."""

from __future__ import annotations


def warn(text: str, *values: object) -> None:
    """Write to the program's log."""
    import logging  # few programs are warned

    logging.getLogger("holdfast").warning(text, *values)
