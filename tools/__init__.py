"""Programs for people who work on Holdfast; none of them is installed with it."""
