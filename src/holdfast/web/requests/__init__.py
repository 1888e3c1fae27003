"""What handlers are given: the store, the shapes of what they take and answer with, and filters."""
