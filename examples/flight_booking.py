r"""Book a flight by what the traveller likes, after a person has agreed.

    python examples/flight_booking.py [store.db] [--trip oslo|rome] [--approve | --reject]

Shows a call that waits for consent because of its risk, a person's lasting state (`task.user.state`) that is read and
added to, a decision with its reason, and the unique key `booking-{trip}`: no plan books one trip twice. The airline is
a folder, ./airline-tickets. Kill it (Ctrl-\, or kill -9) while it books, and run it again.
"""

import argparse
import time
from pathlib import Path
from typing import Any

import holdfast
from holdfast import ApprovalDenied, Call, DidNotHappen, Happened, StatePatch, Task, agent, tool

TICKETS = Path("airline-tickets")
PRICES = {"oslo": {"Northern": 210, "Express": 190, "Luxe": 600}, "rome": {"Northern": 180, "Express": 185}}
PAUSE = 1.0  # seconds that the airline takes: time to kill it


@tool(effect="read")
def search_flights(city: str) -> list[dict[str, Any]]:
    return [{"airline": airline, "price": price} for airline, price in PRICES[city].items()]


def find_ticket(call: Call) -> Happened | DidNotHappen:
    """The process died while it booked. Ask the airline, by the key it was given."""
    tickets = (ticket.read_text("utf-8").split("\n") for ticket in TICKETS.glob("*.txt"))
    return next((Happened(text) for text, key in tickets if key == call.idempotency_key), DidNotHappen())


@tool(effect="once", risk="external_action", unique="booking-{trip}", reconcile=find_ticket, reconcile_after="500ms")
def book_flight(trip: str, airline: str, seat: str, *, idempotency_key: str) -> str:
    TICKETS.mkdir(exist_ok=True)
    text, part = f"{airline} to {trip}, {seat} seat", TICKETS / "part"
    part.write_text(f"{text}\n{idempotency_key}", "utf-8")
    part.rename(TICKETS / f"{len(list(TICKETS.glob('*.txt'))) + 1}.txt")  # now it is booked, and paid for
    print(f"booking with {airline} …")
    time.sleep(PAUSE)  # the worst moment to die: booked, and nobody has written it down
    return text


@agent(required_for_risk_levels=["external_action"])
def travel(task: Task, trip: str) -> str:
    likes = task.user.state  # outlives the task: what is set here is there for the next one
    fitting = [one for one in task.call(search_flights, city=trip) if one["price"] <= likes.max_price]
    best = min(fitting, key=lambda one: (one["airline"] != likes.get("airline"), one["price"]))
    why = "flown before" if best["airline"] == likes.get("airline") else "the cheapest"
    task.decide("which flight?", best["airline"], why=why, options=[one["airline"] for one in fitting])
    try:
        ticket = task.call(book_flight, trip=trip, airline=best["airline"], seat=likes.seat)  # waits for a person
    except ApprovalDenied as denied:
        return f"not booked: {denied.message}"
    likes.airline = best["airline"]
    likes.increment("trips")
    return ticket


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("store", nargs="?", default="flight_booking.db")
    parser.add_argument("--trip", default="oslo", choices=PRICES)
    parser.add_argument("--approve", dest="say", action="store_const", const=holdfast.App.approve)
    parser.add_argument("--reject", dest="say", action="store_const", const=holdfast.App.reject)
    given = parser.parse_args()
    with holdfast.open(given.store, agents=[travel]) as app:
        ana = app.user("ana")
        if "seat" not in ana.state:
            ana.patch(StatePatch(set={"seat": "aisle", "max_price": 400}), by="ana")
        done = app.run(travel, {"trip": given.trip}, id=f"trip-{given.trip}", user="ana")
        if done.waiting and given.say:
            given.say(app, done.id, done.waiting.on[0]["key"], by="ana")
            done = app.resume(done.id)
        wants = f"may it book {done.waiting.on[0]['arguments']}? Add --approve or --reject" if done.waiting else ""
        print(f"{done.id} is {done.status}: {wants or done.result}\nAna: {ana.state.all()}. Then try --trip rome.")
