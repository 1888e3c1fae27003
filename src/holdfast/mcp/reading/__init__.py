"""What clients read: tasks, logs, threads, as documents with addresses."""
