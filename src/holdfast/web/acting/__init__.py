"""What people do on the page: one act, and acts on many tasks. Each is an event with a name."""
