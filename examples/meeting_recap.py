r"""Draft the recap of a meeting and send it once, whatever becomes of the process.

    python examples/meeting_recap.py [holdfast.db]

Shows plain calls, stages, and a tool that must not happen twice. The mail server is a folder, ./meeting-outbox. Kill
it (Ctrl-\, or kill -9) as soon as it says that it sends, and run it again: the call in doubt is cleared up.
"""

import sys
import time
from pathlib import Path

import holdfast
from holdfast import Call, DidNotHappen, Happened, Task, agent, step, tool

OUTBOX = Path("meeting-outbox")
NOTES = {"meeting": "planning", "to": "team@example.com", "notes": "Ana ships the search. Ben fixes the login."}
PAUSE = 1.0  # seconds that a model or a mail server takes: time to kill it


@step  # done once; replays get the recorded draft
def write_draft(meeting: str, notes: str) -> dict[str, str]:
    print("drafting …")  # a model of yours would be asked here
    return {"subject": f"Recap: {meeting}", "body": "".join(f"- {one.strip()}\n" for one in notes.split(".") if one)}


def find_sent(call: Call) -> Happened | DidNotHappen:
    # A process died after it announced the call and before it recorded the outcome. Ask the mail server.
    sent = [mail.stem for mail in OUTBOX.glob("*.eml") if call.idempotency_key in mail.read_text("utf-8")]
    print(f"in doubt: was it sent? {sent or 'no'}")
    return Happened(sent[0]) if sent else DidNotHappen()


@tool(effect="once", unique="recap-{meeting}", reconcile=find_sent, reconcile_after="500ms", mock="msg-0")
def send_email(meeting: str, to: str, subject: str, body: str, *, idempotency_key: str) -> str:
    OUTBOX.mkdir(exist_ok=True)
    mail = OUTBOX / f"msg-{len(list(OUTBOX.glob('*.eml'))) + 1}.part"
    mail.write_text(f"To: {to}\nSubject: {subject}\nKey: {idempotency_key}\n\n{body}", "utf-8")
    mail.rename(mail.with_suffix(".eml"))  # now it is out, and can't be called back
    print(f"sending {mail.stem} …")
    time.sleep(PAUSE)  # the worst moment to die: sent, and not recorded
    return mail.stem


@agent(stages=["drafting", "sending", "complete"], deadline="10m", example=NOTES)
def recap(task: Task, meeting: str, to: str, notes: str) -> str:
    task.stage("drafting")
    draft = write_draft(meeting, notes)
    task.stage("sending")
    task.state.message_id = send_email(meeting=meeting, to=to, **draft)
    task.stage("complete")
    return f"{draft['subject']} went to {to} as {task.state.message_id}"


if __name__ == "__main__":
    with holdfast.open(*sys.argv[1:] or ["meeting_recap.db"]) as app:
        for id in ("recap-1", "recap-2"):  # the second one is of the same meeting: no second mail
            done = app.run(recap, NOTES, id=id)
            print(f"{id} is {done.status}: {done.result}. Run it again: nothing is left to do.")
