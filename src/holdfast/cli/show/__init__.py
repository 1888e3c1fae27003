"""How the command line draws: styles, tables, event lines, live screens. Imports nothing of the command line."""
