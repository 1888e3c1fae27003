"""What user code calls: Task, AsyncTask, the state bag. A verb is a line into a flow. Imports drivers.

Used from outside: `Task AsyncTask Block`.
"""
