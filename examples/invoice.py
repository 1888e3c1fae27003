"""Pay an invoice once, after a person has agreed, and take the money back if it can't be booked: 25 lines of agent.

    python examples/invoice.py [task-id]

Shows six steps, two `once` tools with business keys (`unique`), an approval, a compensation. Type the command that it
prints, and run it again. Another id is another task: it asks for approval again, since an approval covers one call of
one task, and then gets the first payment's result. The invoice is paid once.
"""

import holdfast
from holdfast import Call, Task, agent, step, tool


@step
def read(number: str) -> dict:
    return {"supplier": "Acme", "cents": [9_900, 2_500]}


@step
def account_of(supplier: str) -> str:
    return f"{supplier}-001"


def recall(call: Call) -> None:
    print(f"recalled {call.result}")


@tool(effect="once", unique="pay-{number}", risk="money", compensate=recall)
def pay(number: str, account: str, cents: int) -> str:
    return f"transfer of {cents} to {account}"


@tool(effect="once", unique="book-{number}")
def book(number: str, transfer: str) -> str:
    return f"invoice {number}: {transfer}"


@step
def archive(entry: str) -> str:
    return f"archived {entry}"


@agent(required_for_risk_levels=["money"])
def invoice(task: Task, number: str) -> str:
    bill = read(number)
    cents = task.step(sum, bill["cents"])
    transfer = pay(number=number, account=account_of(bill["supplier"]), cents=cents)
    return archive(book(number=number, transfer=transfer))


if __name__ == "__main__":
    import sys

    with holdfast.open("invoice.db") as app:
        done = app.run(invoice, {"number": "A-7"}, id=[*sys.argv, "invoice-A-7"][1])
        print(f"{done.id} is {done.status}: {done.waiting or done.result}")
