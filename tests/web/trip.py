"""An agent that talks, decides, calls tools and makes things: what the tabs of a task show, for tests and pictures."""

import base64

from holdfast import Budget, Retry, Task, agent, report_usage, tool

SYSTEM = "You book trips. Ask before you pay. Prefer direct flights. " + "Be brief. " * 120
PDF = b"%PDF-1.4\x00\xffnot really"
OFFERS = [{"flight": "SK4035", "euros": 243}, {"flight": "DY641", "euros": 212}, {"flight": "AF1274", "euros": 198}]


def _call(id, name, arguments):
    return {"id": id, "type": "function", "function": {"name": name, "arguments": arguments}}


REPLIES = [
    {
        "role": "assistant",
        "content": "I will **look** for flights, and for `hotels`:\n\n- direct ones first\n- [a list](https://air.example/x)",
        "tool_calls": [
            _call("c1", "search_flights", '{"to": "OSL"}'),
            _call("c2", "search_flights", '{"to": "TRF"}'),
        ],
    },
    {
        "role": "assistant",
        "content": "# My choice\nSK4035 lands at 08:25, <b>in time</b>. I take it.",
        "tool_calls": [_call("c3", "hold_seat", '{"flight": "SK4035", "seat": "aisle"}')],
    },
    {"role": "assistant", "content": "Booked: SK4035 and Hotel Bryggen."},
]
AGAINST = {"DY641": "arrives 23:10 the day before", "AF1274": "one stop"}
broken = [1]


def model(window):
    report_usage(input_tokens=1_800, output_tokens=120, cost=0.05)
    return REPLIES[min(len(REPLIES) - 1, sum(one["role"] == "assistant" for one in window))]


@tool(effect="read", retry=Retry(3, first="10ms"))
def search_flights(to: str) -> list[dict]:
    if to == "OSL" and broken:
        broken.pop()
        raise ConnectionError("503 from api.air")
    return OFFERS


@tool(effect="once", risk="payment")
def hold_seat(flight: str, seat: str) -> str:
    return "hold-91c2"


@agent(
    loop=True,
    stages=["searching", "booking", "telling"],
    budget=Budget(cost=0.5, tokens=60_000, turns=12, calls=40),
)
def book_trip(task: Task, to: str) -> str | None:
    if task.turn == 1:
        task.goal(f"Two nights in {to}, there before Tuesday 10:00")
        task.plan(["find flights", "hold a seat", "tell"])
        task.stage("searching")
        task.message({"role": "system", "content": SYSTEM})
        task.message({"role": "user", "content": f"Two nights in {to}, I must be there before Tuesday 10:00."})
    if task.turn == 2:
        task.fact("cheapest_fare", "198 EUR", source="search_flights")
        task.state.seat = task.ask("Window or aisle?", name="seat")
        task.decide("which flight?", "SK4035", why="arrives before the meeting", options=AGAINST)
        task.question("does the office need an invoice?")
        task.stage("booking")
    reply = task.step(model, task.messages.window(max_tokens=8_000), name="model")
    task.message(reply)
    if not reply.get("tool_calls"):
        task.stage("telling")
        task.artifact(base64.b64encode(PDF).decode(), type="application/pdf", summary="SK4035 and Hotel Bryggen")
        task.artifact("<script>alert(1)</script>\n" + "x" * 3_000, type="text/html", summary="A page")
        return reply["content"]
    task.call_tools(reply, [search_flights, hold_seat])
    return None


ASK = {"human_in_the_loop": {"required_for_risk_levels": ["payment"]}}


def booked(app, id="trip-oslo-14", *, upto="end"):
    """A trip: asked for a seat, approved, and booked; or up to where it waits."""
    broken[:] = [1]
    app.run(book_trip, {"to": "Oslo"}, id=id, user="ana", contract={"constraints": ASK})
    if upto == "question":
        return
    app.answer(id, "seat", "aisle", by="ana")
    app.resume(id, book_trip)
    if upto == "approval":
        return
    app.approve(id, next(iter(app.inbox(id))).key, by="ana", why="looks right")
    assert app.resume(id, book_trip).status == "completed"
