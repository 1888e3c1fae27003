"""The command line. Imports the public names and engine/reading.

`main` has the list of commands, `commands` a module each, `environment` the store and the streams a command works with.
"""
