"""Errors as the command line prints them: one shape, exit codes, an explanation for each code.

Imports cli/show. Used from outside: `refusal.refusing`, `codes` and `explanation`.
"""
