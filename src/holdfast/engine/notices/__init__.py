"""Notices: what comes into the inbox is sent to a program, to a screen, or to another server. Imports reading and logs.

Used from outside: `Webhook`, and `App` uses `Notices` and `InboxFollow`.
"""
