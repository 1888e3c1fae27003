"""One module a command: `list_.py` holds `list_`, which is `holdfast list`. Imports the rest of cli."""
