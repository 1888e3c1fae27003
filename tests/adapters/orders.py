"""What the shops of all frameworks do: the tools that a model calls in turn, and files in which effects are lines."""

EFFECTS = ("charge", "ship", "mail")
REPLIES = ((("charge", {"euros": 5}),), (("ship", {"item": "book"}), ("mail", {"to": "ana"})), ())


def line(path, text):
    """One line, written at once: it is there, or it is not."""
    with path.open("ab", buffering=0) as file:
        file.write(f"{text}\n".encode())


def lines(path):
    return path.read_text().splitlines() if path.exists() else []
