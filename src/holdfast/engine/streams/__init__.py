"""What steps stream while they run: published beside the log, watched from any process, never part of a task."""
