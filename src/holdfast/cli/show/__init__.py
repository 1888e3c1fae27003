"""How the command line draws: styles, tables, event lines, live screens. Imports engine/reading."""
