r"""Book a flight by what the traveller likes, after a person has agreed.

    python examples/flight_booking.py [oslo|rome] [--approve | --reject]

Shows approval by risk, a person's lasting state, a decision with its reason, and a unique key: no plan books one trip
twice. The airline is a folder, ./airline-tickets. Kill it (Ctrl-\, or kill -9) while it books, and run it again.
"""

import sys
import time
from pathlib import Path

import holdfast
from holdfast import Call, DidNotHappen, Happened, Task, agent, tool

TICKETS = Path("airline-tickets")
PRICES = {"oslo": {"Northern": 210, "Express": 190, "Luxe": 600}, "rome": {"Northern": 180, "Express": 185}}
PAUSE = 1.0  # seconds that the airline takes: time to kill it


@tool(effect="read")
def search_flights(city: str) -> dict[str, int]:
    return PRICES[city]


def find_ticket(call: Call) -> Happened | DidNotHappen:  # the process died while it booked: ask the airline
    tickets = (ticket.read_text("utf-8").split("\n") for ticket in TICKETS.glob("*.txt"))
    return next((Happened(text) for text, key in tickets if key == call.idempotency_key), DidNotHappen())


@tool(effect="once", risk="external_action", unique="booking-{trip}", reconcile=find_ticket, reconcile_after="500ms")
def book_flight(trip: str, airline: str, seat: str, *, idempotency_key: str) -> str:
    text, ticket = f"{airline} to {trip}, {seat} seat", TICKETS / f"{len(list(TICKETS.glob('*.txt'))) + 1}.txt"
    ticket.write_text(f"{text}\n{idempotency_key}", "utf-8")  # now it is booked, and paid for
    print(f"booking with {airline} …")
    time.sleep(PAUSE)  # the worst moment to die: booked, and not recorded
    return text


@agent(required_for_risk_levels=["external_action"])
def travel(task: Task, trip: str) -> str:
    likes = task.user.state  # outlives the task: what is set here is there for the next one
    fares = {one: price for one, price in search_flights(city=trip).items() if price <= likes.get("max_price", 400)}
    best = likes.airline if likes.get("airline") in fares else min(fares, key=fares.__getitem__)
    task.decide("which flight?", best, why="flown before" if "airline" in likes else "the cheapest")
    ticket = book_flight(trip=trip, airline=best, seat=likes.get("seat", "aisle"))  # waits for a person
    likes.airline = best
    return ticket


if __name__ == "__main__":
    TICKETS.mkdir(exist_ok=True)
    trip, decide = "rome" if "rome" in sys.argv else "oslo", sys.argv[-1].strip("-")
    with holdfast.open("flight_booking.db") as app:
        done = app.run(travel, {"trip": trip}, id=f"trip-{trip}", user="ana")
        if done.waiting and decide in ("approve", "reject"):
            getattr(app, decide)(done.id, "book_flight", by="ana")
            done = app.resume(done.id, travel)
        print(f"{done.id} is {done.status}: {done.waiting or done.result or done.failure.message}")
