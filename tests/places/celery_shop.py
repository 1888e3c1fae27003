"""The program of Celery's workers, and of the pump: `python -m tests.places.celery_shop`."""

import sys

from celery import Celery

from holdfast import on_celery
from tests.places.shop import BROKER, open_shop

celery = Celery("shop", broker=BROKER)
celery.conf.broker_connection_retry_on_startup = True
work = on_celery.task(celery, open_shop)
apart = on_celery.task(celery, open_shop, name="holdfast.apart", queue="apart")

if __name__ == "__main__":
    with open_shop() as app:
        print("ready.", flush=True)
        on_celery.pump(app, apart if "apart" in sys.argv else work, again="2s").run()
