"""The conversation of `chat.py`, killed until it is done."""

from tests.adapters.killing import main
from tests.adapters.langchain.chat import work

if __name__ == "__main__":
    main(work)
