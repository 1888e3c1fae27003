"""The tools of the server: those that read, those that change something, those that a person decides."""
