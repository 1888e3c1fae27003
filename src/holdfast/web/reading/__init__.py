"""What the page shows, as JSON: tasks and the inbox, what a task holds, and the places beside tasks. Nothing writes."""
