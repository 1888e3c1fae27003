r"""Draft the recap of a meeting and send it once, whatever becomes of the process.

    python examples/meeting_recap.py [store.db]

Shows stages, typed state, a tool that must not happen twice (`effect="once"`), how a call in doubt is cleared up
(`reconcile`), and a key of your own that holds across tasks (`unique`). The mail server is a folder, ./meeting-outbox.
Kill it (Ctrl-\, or kill -9) as soon as it says that it sends, and run it again.
"""

import sys
import time
from dataclasses import dataclass
from pathlib import Path

import holdfast
from holdfast import Call, DidNotHappen, Happened, Task, agent, tool
from holdfast.testing import expect

OUTBOX = Path("meeting-outbox")
NOTES = {"meeting": "planning", "to": "team@example.com", "notes": "Ana ships the search. Ben mends the login."}
PAUSE = 1.0  # seconds that a model or a mail server takes: time to kill it


def write_draft(meeting: str, notes: str) -> dict[str, str]:
    print("drafting …")
    time.sleep(PAUSE)  # a model of yours would be asked here
    points = "\n".join(f"- {point.strip()}" for point in notes.split(".") if point.strip())
    return {"subject": f"Recap: {meeting}", "body": points}


def find_sent(call: Call) -> Happened | DidNotHappen:
    """A process died after it announced the call and before it wrote down the outcome. Ask the mail server."""
    sent = [mail.stem for mail in OUTBOX.glob("*.eml") if call.idempotency_key in mail.read_text("utf-8")]
    print(f"in doubt: was it sent? {sent or 'no'}")
    return Happened(sent[0]) if sent else DidNotHappen()


@tool(effect="once", unique="recap-{meeting}", reconcile=find_sent, reconcile_after="500ms", mock="msg-0")
def send_email(meeting: str, to: str, subject: str, body: str, *, idempotency_key: str) -> str:
    OUTBOX.mkdir(exist_ok=True)
    mail = OUTBOX / f"msg-{len(list(OUTBOX.glob('*.eml'))) + 1}.eml"
    whole = mail.with_suffix(".part")
    whole.write_text(f"To: {to}\nSubject: {subject}\nKey: {idempotency_key}\n\n{body}\n", "utf-8")
    whole.rename(mail)  # now it is out, and cannot be called back
    print(f"sending {mail.stem} …")
    time.sleep(PAUSE)  # the worst moment to die: sent, and nobody has written it down
    return mail.stem


@dataclass
class Recap:
    subject: str = ""
    message_id: str = ""


@agent(state=Recap, stages=["drafting", "sending", "complete"], deadline="10m")
def recap(task: Task, meeting: str, to: str, notes: str) -> str:
    task.stage("drafting")
    draft = task.step(write_draft, meeting, notes)  # done once; replays get the recorded draft
    task.state.subject = draft["subject"]
    task.stage("sending")
    task.state.message_id = task.call(send_email, meeting=meeting, to=to, **draft)
    task.stage("complete")
    return task.render("{state.subject} went to {input.to} as {state.message_id}")


if __name__ == "__main__":
    with holdfast.open(*sys.argv[1:] or ["meeting_recap.db"]) as app:
        done = app.run(recap, NOTES, id="recap-1")  # begins, goes on, or finds it finished
        expect(done).completed().stages("drafting", "sending", "complete").called(send_email, times=1)
        print(f"{done.id} is {done.status}: {done.result}")
        again = app.run(recap, NOTES, id="recap-by-mistake")  # another task, the same meeting: the key is taken
        print(f"{again.id} is {again.status}: {again.state['message_id']} again, no second mail")
        print(f"{OUTBOX} has {len(list(OUTBOX.glob('*.eml')))} mail. Run it again: nothing is left to do.")
