"""The shop of `shop.py`, killed until it is done. In the mode "noisy", later lives start more asyncio tasks."""

import holdfast
from tests.adapters.killing import main
from tests.adapters.pydantic_ai import shop


def work(log, mode):
    with holdfast.open(str(log / "store.db")) as app:
        shop.work(log, app, mode)


if __name__ == "__main__":
    main(work)
