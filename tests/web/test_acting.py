"""What people do through the API: each act is an event with their name, done once, refused if it is too late."""

import threading
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta

import pytest

import holdfast
from holdfast import Task, agent, tool
from holdfast.web.access.gate import RIGHTS, Denied, Gate, Person
from holdfast.web.asgi import ROUTES
from holdfast.web.requests.site import MOST_ACTS_KEPT, Settings, Site
from tests.web.world import ASK, page_of, refunds

OVER = ("sqlite", "postgres")
WAITING = "refund-A1093"


def last(app, id):
    return list(app.events(id))[-1].event


def test_a_question_is_answered_by_the_person_of_the_session(own):
    status, told = own.act("/tasks/trip-rome-02/answer", {"question": "stop", "value": "yes", "why": "cheaper"})
    assert status == 200 and told["status"] == "pending" and told["id"] == "trip-rome-02"
    ended = next(one.event for one in own.app.events("trip-rome-02") if one.kind == "wait_ended")
    assert (ended.by, ended.why) == ("ana", "cheaper")


@pytest.mark.parametrize("value", ["text", 3, 2.5, True, None, [1, "two"], {"seat": "aisle", "__proto__": 1}])
def test_an_answer_may_be_any_json(own, value):
    status, _ = own.act("/tasks/trip-rome-02/answer", {"question": "stop", "value": value})
    assert status == 200
    ended = next(one for one in own.app.describe("trip-rome-02") if one.verb == "answered")
    assert ended.value == value


def test_an_approval_is_of_what_was_seen_and_of_nothing_else(own):
    asked = next(one for one in own.get("/inbox")["entries"] if one["kind"] == "approval")
    status, told = own.act(f"/tasks/{WAITING}/approve", {"call": asked["key"], "bound": "0" * 64})
    assert (status, told["code"]) == (409, "approval-changed")
    assert next(own.app.inbox(WAITING)).bound == asked["bound"], "nothing was decided"
    assert own.act(f"/tasks/{WAITING}/approve", {"call": asked["key"]})[0] == 400, "without what was seen"
    assert own.act(f"/tasks/{WAITING}/approve", {"call": asked["key"], "bound": asked["bound"]})[0] == 200
    assert own.app.resume(WAITING, refunds).result == "r-A1093"


@tool(effect="once", risk="payment")
def pay(euros: int) -> str:
    return f"paid {euros}"


AMOUNT = [44]


@agent
def payer(task: Task) -> str:
    return task.call(pay, euros=AMOUNT[0])


def test_arguments_that_changed_between_look_and_click_are_not_approved(own):
    """The same key asks for 440 where the person saw 44."""
    AMOUNT[0] = 44
    own.app.run(payer, id="pays", contract={"constraints": ASK})
    seen = next(one for one in own.get("/inbox")["entries"] if one["task"] == "pays")
    own.app.approve("pays", "pay#1", by="ben")
    AMOUNT[0] = 440
    own.app.resume("pays", payer)
    status, told = own.act("/tasks/pays/approve", {"call": seen["key"], "bound": seen["bound"]})
    assert (status, told["code"]) == (409, "approval-changed"), told
    assert own.app.get("pays").status == "waiting"


def test_whoever_is_second_reads_who_was_first(own):
    asked = next(one for one in own.get("/inbox")["entries"] if one["kind"] == "approval")
    own.app.reject(WAITING, asked["key"], bound=asked["bound"], by="ben")
    status, told = own.act(f"/tasks/{WAITING}/approve", {"call": asked["key"], "bound": asked["bound"]})
    assert status == 409 and told["details"]["by"] == "ben" and "ben was first" in told["detail"]
    own.app.cancel("trip-rome-02", by="ben")
    status, told = own.act("/tasks/trip-rome-02/answer", {"question": "stop", "value": "yes"})
    assert status == 409 and told["code"] == "task-finished" and told["details"]["by"] == "ben"


@pytest.mark.parametrize("happened", [True, False])
def test_a_call_in_doubt_is_settled_both_ways(own, happened):
    body = {"call": "bank_transfer#1", "happened": happened, "result": "tx-1" if happened else None}
    status, told = own.act("/tasks/wire-0098/settle", body)
    assert status == 200 and told["status"] == "pending"
    settled = next(one.event for one in own.app.events("wire-0098") if one.kind == "step_settled")
    assert (settled.happened, settled.by) == (happened, "ana")


def test_a_budget_is_raised_and_an_odd_limit_is_refused(own):
    assert own.act("/tasks/triage-inc-5521/budget", {"limits": {"tons": 3}})[0] == 400
    assert own.act("/tasks/triage-inc-5521/budget", {"limits": {"steps": -3}})[0] == 400
    status, told = own.act("/tasks/triage-inc-5521/budget", {"limits": {"steps": 4}})
    assert status == 200 and told["budget"]["limits"]["steps"] == 4


def test_a_failed_task_becomes_pending_and_nothing_runs_here(own):
    status, told = own.act("/tasks/import-crm-771/resume", {"why": "fixed"})
    assert status == 200 and told["status"] == "pending"
    assert last(own.app, "import-crm-771").by == "ana"


def test_a_task_that_is_resumed_may_get_a_new_deadline(own):
    status, told = own.act("/tasks/import-crm-771/resume", {"why": "later", "deadline": "2h"})
    assert status == 200 and told["status"] == "pending"
    left = own.app.get("import-crm-771").deadline - datetime.now(UTC)
    assert timedelta(minutes=119) < left <= timedelta(hours=2)
    assert own.act("/tasks/import-crm-771/resume", {"deadline": "soon"})[0] == 400


def test_a_task_is_cancelled_signalled_patched_and_rolled_back_by_name(own):
    assert own.act("/tasks/trip-rome-02/signal", {"name": "go", "value": 1})[0] == 200
    assert own.act("/tasks/trip-rome-02/patch", {"patch": {"set": {"seat": "aisle"}}})[0] == 200
    assert own.app.get("trip-rome-02").state["seat"] == "aisle"
    assert own.act("/tasks/trip-rome-02/patch", {"patch": {"sett": {}}})[0] == 400
    status, told = own.act("/tasks/trip-rome-02/rollback", {"to": 4})
    assert status == 200, told
    status, told = own.act("/tasks/trip-rome-02/cancel", {"why": "plans changed"})
    assert status == 200 and told["status"] == "cancelled"
    by = {getattr(one.event, "by", "ana") or "ana" for one in own.app.events("trip-rome-02")}
    assert by == {"ana"}


def test_the_same_key_gives_the_same_fork_and_another_key_another(own):
    body = {"at": 5, "patch": {"set": {"seat": "window"}}, "effects": "recorded"}
    first = own.act("/tasks/recap-standup-1117/fork", body, key="one")[1]["id"]
    assert own.act("/tasks/recap-standup-1117/fork", body, key="one")[1]["id"] == first
    assert own.act("/tasks/recap-standup-1117/fork", body, key="two")[1]["id"] != first
    assert own.app.get(first).state["seat"] == "window"
    assert len([row for row in own.app.list() if row.id.startswith("recap-standup-1117~")]) == 2


def test_an_act_needs_a_key_and_only_what_it_takes(own):
    assert own.ask("POST", "/api/v1/tasks/trip-rome-02/cancel", {})[0] == 400
    assert own.act("/tasks/trip-rome-02/cancel", {"by": "somebody-else"})[0] == 400, "the request can't say who acts"
    assert own.app.get("trip-rome-02").status == "waiting"


@pytest.mark.parametrize("body", [b"", b"[]", b"{", b"null", b'"x"', b"[" * 10_000, b'{"why": 3}'])
def test_a_body_that_does_not_fit_is_refused_and_the_page_stays_up(own, body):
    status, told = own.ask("POST", "/api/v1/tasks/trip-rome-02/cancel", body, [("Idempotency-Key", "x")])
    assert status == 400 and told["code"] == "invalid-value"
    assert own.get("/about")["version"]


@pytest.mark.parametrize(("value", "status"), [("[" * 63, 200), ("[" * 64, 400), ('"' + "[" * 100 + '"', 200)])
def test_a_body_may_be_64_deep(own, value, status):
    body = f'{{"name": "x", "value": {value}{"]" * (value.count("[") if value[0] == "[" else 0)}}}'.encode()
    found, told = own.ask("POST", "/api/v1/tasks/trip-rome-02/signal", body, [("Idempotency-Key", value[:70])])
    assert found == status and (status == 200 or "64" in told["detail"])


def test_a_body_over_a_megabyte_is_refused(own):
    status, told = own.ask("POST", "/api/v1/tasks/trip-rome-02/answer", b" " * 1_100_000, [("Idempotency-Key", "x")])
    assert (status, told["code"]) == (413, "too-large")


def test_what_was_expected_at_an_older_seq_is_refused(own):
    status, told = own.act("/tasks/trip-rome-02/cancel", {"expect": 1})
    assert (status, told["code"]) == (409, "conflict")


def test_an_agent_can_not_approve_for_itself_by_its_name(tmp_path):
    store = tmp_path / "store.db"
    with holdfast.open(store) as app:
        app.run(refunds, {"order": "A1", "euros": 1}, id="r", contract={"constraints": ASK})
    with page_of(store, "--by", "refunds") as page:
        asked = page.get("/inbox")["entries"][0]
        status, told = page.act("/tasks/r/approve", {"call": asked["key"], "bound": asked["bound"]})
        assert (status, told["code"]) == (403, "self-approval")


@pytest.mark.parametrize("route", [one for one in ROUTES if one.right != "public"], ids=lambda one: one.path)
@pytest.mark.parametrize("right", RIGHTS)
def test_each_route_needs_exactly_the_right_of_its_row(route, right):
    gate = Gate(None, lambda scope: Person("ana", (right,)), None)
    scope = {"method": route.method, "headers": [(b"content-type", b"application/json")]}
    if right == route.right:
        assert gate.person(scope, route.right, is_shell=False, now=0.0).id == "ana"
    else:
        with pytest.raises(Denied) as refused:
            gate.person(scope, route.right, is_shell=False, now=0.0)
        assert refused.value.status == 403


def test_a_key_that_was_used_for_another_act_is_refused(own):
    """Its answer would be that of the other act, and the person would believe that this one was done."""
    assert own.act("/tasks/recap-standup-1117/fork", {"at": 3}, key="one")[0] == 200
    status, told = own.act("/tasks/trip-rome-02/answer", {"question": "stop", "value": "yes"}, key="one")
    assert (status, told["code"]) == (409, "key-used") and own.app.get("trip-rome-02").status == "waiting"
    assert own.act("/tasks/trip-rome-02/cancel", {"why": "a"}, key="two")[0] == 200
    assert own.act("/tasks/trip-rome-02/cancel", {"why": "b"}, key="two")[0] == 409
    assert own.act("/tasks/trip-rome-02/cancel", {"why": "a"}, key="two")[0] == 200, "the same one is answered again"


def test_an_act_that_takes_long_holds_up_no_other_and_is_done_once():
    site = Site(None, Settings(), None)
    begun, over, done = threading.Event(), threading.Event(), []

    def slow():
        begun.set()
        assert over.wait(20)
        done.append("slow")
        return "slow"

    with ThreadPoolExecutor(3) as threads:
        first = threads.submit(site.once, "ana", "one", "ask", slow)
        assert begun.wait(20)
        again = threads.submit(site.once, "ana", "one", "ask", slow)
        assert site.once("ben", "one", "approve", lambda: "quick") == "quick", "of another person"
        assert site.once("ana", "two", "approve", lambda: "quick") == "quick", "of another key"
        over.set()
        assert (first.result(20), again.result(20), done) == ("slow", "slow", ["slow"])


def test_only_the_newest_keys_are_remembered_and_those_under_way():
    site = Site(None, Settings(), None)

    def many():
        for number in range(MOST_ACTS_KEPT + 5):
            site.once("ben", str(number), "x", lambda number=number: number)
        return "first"

    assert site.once("ana", "key", "x", many) == "first"
    assert site.once("ana", "key", "x", lambda: "again") == "first", "it was under way, so it was not forgotten"
    assert site.once("ben", "0", "x", lambda: "again") == "again"
    assert len(site._acts) <= MOST_ACTS_KEPT + 1
