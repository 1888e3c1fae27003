"""The shop of `shop.py`, killed until it is done."""

import holdfast
from tests.adapters.google_adk import shop
from tests.adapters.killing import main


def work(log, mode):
    with holdfast.open(str(log / "store.db")) as app:
        shop.work(log, app, mode)


if __name__ == "__main__":
    main(work)
