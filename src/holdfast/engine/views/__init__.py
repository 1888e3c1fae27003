"""What a task state is made of: its budget, how it failed, the attempts of its steps."""
