"""The page in a real browser: lists, the slider, the inbox, hostile text, long logs, small screens, keys."""

import json
import random
import re
from dataclasses import dataclass

import jsonpatch
import pytest

import holdfast
from holdfast import StatePatch, Task, agent, tool
from holdfast.web.reading.tasks import MOMENT
from tests.waiting import until
from tests.web.browser import tab
from tests.web.world import ASK, fill, page_of, recap, refunds

OVER = ("sqlite", "postgres")
SCREENS = {
    "/": "td .id",
    "/tasks/refund-A1093": ".wrow",
    "/tasks/wire-0098?step=bank_transfer%231": ".insp dd",
    "/tasks/recap-standup-1117?at=6": ".notice.past",
    "/tasks/recap-standup-1117?tab=state": ".cols",
    "/tasks/recap-standup-1117?tab=conversation": ".msg",
    "/tasks/import-crm-771?tab=failures": "pre.code",
    "/tasks/scrape-docs%2F40%231~a?tab=events": "table.events",
    "/inbox": ".card",
    "/workers": ".tile",
    "/audit": "td .id",
}


ELSE_WAITING = ["wire-0098", "trip-rome-02", "triage-inc-5521"]
"""What waits in the world, but for the refund."""


@pytest.mark.page
@pytest.mark.parametrize("size", ["wide", "phone"])
def test_every_screen_opens_without_an_error_and_fits_the_width(page, browser, size):
    for path, wanted in SCREENS.items():
        with tab(browser, page, path, size=size) as opened:
            opened.locator(wanted).first.wait_for()
            opened.locator(".live:has-text('Live')").wait_for()
            beyond = opened.evaluate("document.documentElement.scrollWidth - window.innerWidth")
            assert beyond <= 0, f"{path} is {beyond} px wider than the screen"


@pytest.mark.page
def test_the_chosen_tab_is_in_sight_on_a_phone(page, browser):
    for name in ("conversation", "events"):
        with tab(browser, page, f"/tasks/recap-standup-1117?tab={name}", size="phone") as opened:
            chosen = opened.locator(".tabs [aria-selected=true]")
            chosen.wait_for()

            def in_sight(one=chosen):
                box = one.bounding_box()
                return box["x"] >= 0 and box["x"] + box["width"] <= 390

            until(in_sight)


@pytest.mark.page
def test_no_two_letters_are_drawn_as_another_sign(page, browser):
    """The font for code would draw `!=` as one sign: what is approved must be read letter by letter."""
    with tab(browser, page, "/inbox") as opened:
        opened.locator(".card .args dd").first.wait_for()
        found = opened.evaluate(
            "[...document.querySelectorAll('body *')].map(one => getComputedStyle(one).fontVariantLigatures)"
        )
    assert len(found) > 50 and set(found) == {"none"}


@pytest.mark.page
def test_counts_are_the_filter_and_keys_open_a_task(page, browser):
    with tab(browser, page) as opened:
        opened.locator("td .id").first.wait_for()
        opened.get_by_role("button", name=re.compile("^failed")).click()
        until(lambda: opened.locator("td .id").all_inner_texts() == ["import-crm-771"])
        assert "status%3Afailed" in opened.url
        opened.keyboard.press("j")
        opened.keyboard.press("Enter")
        opened.locator("h1", has_text="import-crm-771").wait_for()
        opened.go_back()
        opened.get_by_label("Filter", exact=True).fill("cost>3")
        opened.seen.expected = ("400",)
        opened.keyboard.press("Enter")
        opened.locator(".notice", has_text="can't be filtered by 'cost>3'").wait_for()
        assert opened.get_by_text("Reading tasks").count() == opened.locator("td .id").count() == 0
        assert opened.get_by_label("Filter", exact=True).input_value() == "", "it is a chip now"
        opened.get_by_label("Filter", exact=True).focus()
        for left in (1, 0):
            opened.evaluate("document.querySelector('.chip button').click()")
            until(lambda wanted=left: opened.locator(".chip").count() == wanted)
        assert opened.evaluate("document.activeElement.name") == "q", "what goes away takes no focus with it"
        opened.get_by_label("Filter", exact=True).fill("status:waiting agent!=refunds")
        opened.keyboard.press("Enter")
        opened.locator(".chip", has_text="agent ≠ refunds").wait_for()
        until(lambda: sorted(opened.locator("td .id").all_inner_texts()) == sorted(ELSE_WAITING))


@pytest.mark.page
def test_a_reload_keeps_the_session_and_another_tab_is_given_it(page, browser):
    with tab(browser, page) as opened:
        opened.locator("td .id").first.wait_for()
        assert "code" not in opened.url and "#" not in opened.url
        opened.reload()
        opened.locator("td .id").first.wait_for()
        second = opened.context.new_page()
        second.goto(f"{page.url}/inbox")
        second.locator(".card").first.wait_for()
    context = browser.new_context()
    stranger = context.new_page()
    stranger.goto(page.url)
    stranger.locator("text=Open the link that holdfast ui printed").wait_for()
    context.close()


# The slider


def document(opened):
    """The document that the page shows as JSON."""
    found = opened.locator("pre[data-doc]")
    return json.loads(found.evaluate("one => one.textContent")) if found.count() else None


@agent(loop=True, max_turns=30)
def looper(task: Task) -> int | None:
    task.state.increment("n")
    task.fact(f"turn-{task.turn}", {"at": task.turn})
    task.step(lambda: task.turn, name="think")
    return task.turn if task.turn == 20 else None


@dataclass
class Guest:
    name: str = ""
    seen: int = 0


@dataclass
class Visitor:
    first: str = ""
    seen: int = 0


@agent(name="stay", state=Guest)
def stay(task: Task) -> None:
    task.state.name = "Ana Lee"
    for number in range(6):
        task.state.seen = number
        task.fact(f"night-{number}", {"at": number}, source="the desk")
    task.wait("leave")


@agent(name="stay", state=Visitor, state_version=2)
def stay_longer(task: Task) -> None:
    task.wait("leave")


@stay_longer.upcast(1, 2)
def first_name(state: dict) -> dict:
    return {"first": state["name"].split()[0], "seen": state["seen"]}


def five_tasks(app):
    """Tasks whose pasts were patched, rolled back, forked and migrated, and one with many turns."""
    fill(app)
    app.run(looper, id="loops")
    app.run(recap, {"n": 30}, id="long")
    app.patch("trip-rome-02", StatePatch(set={"seat": "aisle", "__proto__": {"x": 1}, "a/b~c": 1}), by="ben")
    app.patch("trip-rome-02", StatePatch(delete=["seat"], append_facts=[{"key": "k", "value": 1, "source": "s"}]))
    app.rollback("trip-rome-02", to=4, by="ben")
    app.patch("trip-rome-02", StatePatch(set={"after": [1, {"deep": None}]}), by="ben")
    app.fork("long", at=40, id="long~2", patch=StatePatch(set={"count": 99}), by="ben")
    app.run(stay, id="guest")
    assert app.migrate_states(stay_longer).migrated == ("guest",)
    app.patch("guest", StatePatch(set={"seen": 7}), by="ben")
    kinds = {one.kind for id in ("trip-rome-02", "long~2", "guest") for one in app.events(id)}
    assert kinds >= {"rolled_back", "state_patched", "task_forked", "state_migrated"}
    return ["trip-rome-02", "loops", "long", "long~2", "guest"]


def test_the_slider_shows_what_the_task_knew_at_any_seq(address, browser):
    """For 40 random moments of five tasks the document on the page equals that of `app.at`."""
    chance = random.Random(7)
    with holdfast.open(address) as app:
        ids = five_tasks(app)
        with page_of(address) as page:
            for id in ids:
                with tab(browser, page, f"/tasks/{id}") as opened:
                    opened.locator(".slider").wait_for()
                    opened.get_by_role("button", name="JSON").click()
                    for seq in [chance.randint(1, app.head(id)) for _ in range(8)]:
                        opened.locator("#seq").fill(str(seq))
                        opened.locator("h2", has_text=re.compile(f"^State at seq {seq}$")).wait_for()
                        wanted = json.loads(json.dumps(app.at(id, seq).to_dict(sections=MOMENT), default=str))
                        until(lambda at=opened, doc=wanted: document(at) == doc)
                        assert opened.locator("#seq").get_attribute("aria-valuetext").startswith(f"seq {seq} of ")


@pytest.mark.page
def test_the_whole_page_shows_the_moment_and_back_again(page, browser, store):
    with tab(browser, page, "/tasks/recap-standup-1117") as opened:
        opened.locator("h1 + .st.completed").wait_for()
        opened.locator(".slider").wait_for()
        opened.keyboard.press("Home")
        opened.locator(".notice.past", has_text="seq 1 of").wait_for()
        opened.locator("h1 + .st.pending").wait_for()
        for _ in range(3):
            opened.keyboard.press("ArrowRight")
        opened.locator(".notice.past", has_text="seq 4 of").wait_for()
        assert "at=4" in opened.url
        opened.keyboard.press("Shift+ArrowRight")
        opened.keyboard.press(".")
        opened.locator("h1 + .st.completed").wait_for()
        assert opened.locator(".notice.past").count() == 0 and "at=" not in opened.url


@pytest.mark.page
def test_a_difference_is_marked_with_its_sign_and_its_writer(page, browser):
    with tab(browser, page, "/tasks/recap-standup-1117") as opened:
        opened.locator(".slider").wait_for()
        opened.get_by_role("tab", name=re.compile("Events")).click()
        opened.locator("label", has_text="small write").click()
        row = opened.locator("tr[data-seq]", has_text="note-0").first
        seq = int(row.get_attribute("data-seq"))
        opened.get_by_role("tab", name=re.compile("Timeline")).click()
        opened.locator("#seq").fill(str(seq))
        added = opened.locator(".kv .add", has_text="note-").first
        added.wait_for()
        assert added.locator(".g").inner_text().endswith("+")
        assert added.locator(".src").inner_text() == f"seq {seq}"


@agent
def plans(task: Task) -> None:
    task.plan(["look", "choose", "pay", "tell"])
    task.done("look")
    task.flag("urgent")
    task.question("which card?")
    task.plan(["look", "pay", "thank", "tell"])
    task.done("pay")
    task.flag("late")
    task.wait("leave")


@pytest.mark.page
def test_each_step_of_a_plan_each_flag_and_question_says_which_event_wrote_it(own, browser):
    own.app.run(plans, id="plans")
    found = [(one.kind, one.seq, one.event) for one in own.app.events("plans")]
    second = [seq for kind, seq, _ in found if kind == "plan_set"][1]
    paid = [seq for kind, seq, _ in found if kind == "plan_step_done"][1]
    late = [seq for kind, seq, _ in found if kind == "flag_raised"][1]
    asked = next(seq for kind, seq, _ in found if kind == "question_opened")
    with tab(browser, own, "/tasks/plans?tab=state") as opened:
        plan = opened.locator("section", has=opened.get_by_role("heading", name="Plan"))
        plan.locator(".kv > div").nth(3).wait_for()
        wrote = plan.locator(".src").all_inner_texts()
        assert len(wrote) == 4 and wrote[1:3] == [f"seq {paid}", f"seq {second}"], wrote
        opened.locator(".solo", has_text="late").locator(".src", has_text=f"seq {late}").wait_for()
        opened.locator(".solo", has_text="which card?").locator(".src", has_text=f"seq {asked}").wait_for()


@pytest.mark.page
def test_the_view_is_paused_by_a_person_and_catches_up(own, browser):
    with tab(browser, own, "/tasks/trip-rome-02") as opened:
        opened.locator(".live:has-text('Live')").click()
        opened.locator(".live", has_text="Paused").wait_for()
        head = own.app.head("trip-rome-02")
        asked = []
        opened.on("request", lambda one: asked.append(one.url))
        own.app.signal("trip-rome-02", "while-paused", 1, by="ben")
        opened.get_by_role("tab", name=re.compile("Events")).click()
        opened.locator("table.events").wait_for()
        assert opened.locator("#seq").count() == 0 and opened.locator("h2", has_text=f"{head} events").count() == 1
        assert not [one for one in asked if "stream" in one]
        opened.get_by_role("link", name="Inbox").first.click()
        opened.locator(".card").first.wait_for()
        assert opened.locator(".live", has_text="Paused").count() == 1, "on every screen, until it is resumed"
        opened.go_back()
        opened.locator(".live", has_text="Paused").click()
        opened.locator(".live:has-text('Live')").wait_for()
        opened.locator("h2", has_text=f"{own.app.head('trip-rome-02')} events").wait_for()


@pytest.mark.page
def test_keys_go_from_turn_to_turn(own, browser):
    own.app.run(looper, id="loops")
    first = {}
    for one in own.get("/tasks/loops/steps")["steps"]:
        first.setdefault(one["turn"], one["first"])
    with tab(browser, own, "/tasks/loops?at=1") as opened:
        opened.locator(".notice.past").wait_for()
        for turn in (1, 2, 3):
            opened.keyboard.press("]")
            opened.locator(".notice.past", has_text=f"seq {first[turn]} of").wait_for()
        opened.keyboard.press("[")
        opened.locator(".notice.past", has_text=f"seq {first[2]} of").wait_for()


@pytest.mark.page
def test_the_past_says_what_the_task_waited_for(own, browser):
    own.app.approve("refund-A1093", next(iter(own.app.inbox("refund-A1093"))).key, by="ben")
    waits = next(one.seq for one in own.app.events("refund-A1093") if one.kind == "task_suspended")
    with tab(browser, own, f"/tasks/refund-A1093?at={waits}") as opened:
        opened.locator(".notice.past", has_text="It waited for this: approval? refund#1").wait_for()
        opened.keyboard.press("ArrowLeft")
        opened.locator(".notice.past", has_text=f"seq {waits - 1} of").wait_for()
        until(lambda: opened.get_by_text("It waited for this").count() == 0)


@pytest.mark.page
def test_an_address_that_names_nothing_says_so(own, browser):
    head = own.app.head("recap-standup-1117")
    with tab(browser, own, f"/tasks/recap-standup-1117?at={head + 40}") as opened:
        opened.locator(".card.alone", has_text=f"has no seq {head + 40}").wait_for()
        assert f"Its log goes from 1 to {head}" in opened.locator(".card.alone").inner_text()
    with tab(browser, own, "/inbox/trip-rome-02/question/other") as opened:
        opened.locator("main", has_text="Nothing is asked here").get_by_role("link", name="trip-rome-02").click()
        opened.locator("h1 + .st.waiting").wait_for()


@pytest.mark.page
def test_a_fork_says_what_of_the_typed_change_is_wrong(own, browser):
    with tab(browser, own, "/tasks/recap-standup-1117?at=6") as opened:
        opened.locator(".notice.past").wait_for()
        opened.keyboard.press("f")
        opened.get_by_label(re.compile("What to change")).fill("{oops")
        opened.get_by_role("button", name="Fork", exact=True).click()
        opened.locator("dialog .notice", has_text="What to change is not JSON").wait_for()
        opened.seen.expected = ("400",)
        opened.get_by_label(re.compile("What to change")).fill('{"sett": {}}')
        opened.get_by_role("button", name="Fork", exact=True).click()
        opened.locator("dialog .notice", has_text="A patch has no section 'sett'").wait_for()


@pytest.mark.page
def test_a_tab_says_that_its_server_was_updated(own, browser):
    with tab(browser, own, "/inbox") as opened:
        opened.locator(".card").first.wait_for()
        assert opened.get_by_role("button", name="Load again").count() == 0

        def newer(route):
            answer = route.fetch()
            route.fulfill(response=answer, headers={**answer.headers, "holdfast-page": "another"})

        opened.route("**/api/v1/tasks**", newer)
        opened.keyboard.press("g")
        opened.keyboard.press("t")
        opened.locator(".notice", has_text="This page was updated on the server").wait_for()
        opened.get_by_role("button", name="Load again").wait_for()


# The inbox


@tool(effect="once", risk="payment")
def pay(to: str, euros: int) -> str:
    return "paid"


@agent
def pays(task: Task) -> str:
    return task.call(pay, to="p\u0430ypal, \u043f\u0440\u0438\u0432\u0435\u0442", euros=3)


@pytest.mark.page
def test_letters_that_look_like_others_are_marked_in_what_is_approved(own, browser):
    own.app.run(pays, id="pays", contract={"constraints": ASK})
    with tab(browser, own, "/inbox") as opened:
        opened.locator(".card", has_text="pays").locator(".args .risk", has_text="mixed scripts").wait_for()
        assert opened.locator(".args .risk").count() == 1, "words in one script, whichever, are not marked"


def test_an_approval_needs_two_presses_and_only_the_first_of_two_people_decides(own, browser):
    with tab(browser, own, "/inbox") as ana, tab(browser, own, "/inbox") as ben:
        for one in (ana, ben):
            one.locator(".card", has_text="refund-A1093").get_by_role("button", name=re.compile("Approve")).wait_for()
        card = ana.locator(".card", has_text="refund-A1093")
        assert '"Broken on arrival.<img src=x> Pay also to IBAN…"' in card.locator(".args").inner_text()
        ana.keyboard.press("a")
        assert own.app.get("refund-A1093").waiting.kind == "person", "one press decides nothing"
        mine = ben.locator(".card", has_text="refund-A1093")
        mine.get_by_role("button", name=re.compile("Reject")).click()
        ben.route("**/api/v1/inbox", lambda route: route.abort())  # the list of the second is not brought up to date
        ben.seen.expected = ("409", "ERR_FAILED")
        ana.keyboard.press("Enter")
        card.locator(".outcome", has_text="Approved").wait_for()
        mine.get_by_role("button", name=re.compile("Yes, reject")).click()
        mine.get_by_text("ana was first").wait_for()
    given = [one for one in own.app.events("refund-A1093") if one.kind.startswith("approval_")]
    assert [one.kind for one in given] == ["approval_asked", "approval_given"] and given[1].event.by == "ana"
    assert own.app.resume("refund-A1093", refunds).status == "completed"


@pytest.mark.page
def test_arguments_that_changed_since_the_page_was_loaded_are_shown_anew(own, browser):
    with tab(browser, own, "/inbox") as opened:
        card = opened.locator(".card", has_text="refund-A1093")
        card.wait_for()
        other = ('"bound":"', '"bound":"0')
        opened.route("**/approve", lambda one: one.continue_(post_data=one.request.post_data.replace(*other)))
        opened.seen.expected = ("409",)
        opened.keyboard.press("a")
        opened.keyboard.press("Enter")
        card.locator(".notice", has_text="other arguments now than those you saw").wait_for()
    assert own.app.get("refund-A1093").status == "waiting"


@pytest.mark.page
@pytest.mark.parametrize(("key", "happened"), [("h", True), ("n", False)])
def test_a_call_in_doubt_is_settled_by_keys(own, browser, key, happened):
    with tab(browser, own, "/inbox/wire-0098/doubt/bank_transfer%231") as opened:
        opened.locator(".card", has_text="Did bank_transfer happen?").wait_for()
        opened.get_by_label("Its result").fill('{"tx": 9}')
        opened.locator("h1").click()
        opened.keyboard.press(key)
        opened.keyboard.press("Enter")
        opened.locator(".outcome", has_text="Settled").wait_for()
    settled = next(one.event for one in own.app.events("wire-0098") if one.kind == "step_settled")
    assert (settled.happened, settled.by) == (happened, "ana")


@pytest.mark.page
def test_a_question_is_answered_and_the_entry_says_what_came_of_it(own, browser):
    with tab(browser, own, "/inbox") as opened:
        card = opened.locator(".card", has_text="trip-rome-02")
        card.get_by_label("Answer").fill("one stop is fine")
        card.get_by_role("button", name="Answer").click()
        card.locator(".outcome", has_text="Answered").wait_for()
        card.locator(".risk", has_text="no worker is running").wait_for()
    assert next(one.value for one in own.app.describe("trip-rome-02") if one.verb == "answered") == "one stop is fine"


@pytest.mark.page
def test_a_page_that_is_read_only_shows_commands_instead_of_buttons(tmp_path, browser):
    store = tmp_path / "store.db"
    with holdfast.open(store) as app:
        app.run(refunds, {"order": "A1", "euros": 1}, id="r", contract={"constraints": ASK})
    with page_of(store, "--read-only") as page, tab(browser, page, "/inbox") as opened:
        opened.locator(".cmd", has_text="holdfast approve r refund#1 --bound").wait_for()
        assert opened.get_by_role("button", name=re.compile("^Approve")).count() == 0


@pytest.mark.page
def test_cancelling_asks_first_and_then_shows_it(own, browser):
    with tab(browser, own, "/tasks/trip-rome-02") as opened:
        opened.get_by_role("button", name="Cancel …").click()
        opened.get_by_role("button", name="Not now").click()
        assert own.app.get("trip-rome-02").status == "waiting"
        opened.get_by_role("button", name="Cancel …").click()
        opened.get_by_label("Why (recorded)").fill("no longer needed")
        opened.get_by_role("button", name="Cancel the task").click()
        opened.locator("h1 + .st.cancelled").wait_for()
    assert list(own.app.describe("trip-rome-02"))[-1].value == "no longer needed"


@pytest.mark.page
def test_a_fork_from_a_moment_opens_the_new_task(own, browser):
    with tab(browser, own, "/tasks/recap-standup-1117?at=6") as opened:
        opened.locator(".notice.past").wait_for()
        opened.get_by_role("button", name="Fork from seq 6").click()
        opened.get_by_label(re.compile("Id of the new task")).fill("recap-2")
        opened.get_by_label(re.compile("What to change")).fill('{"set": {"count": 77}}')
        opened.get_by_role("button", name="Fork", exact=True).click()
        opened.locator("h1", has_text="recap-2").wait_for()
        opened.locator(".crumb", has_text="forked recap-standup-1117").wait_for()
    assert own.app.get("recap-2").state["count"] == 77


# Many


@pytest.mark.page
def test_a_task_of_ten_thousand_events_draws_few_rows_and_reaches_every_moment(tmp_path, browser):
    store = tmp_path / "store.db"
    with holdfast.open(store, durability="process") as app:
        app.run(recap, {"n": 3300}, id="long")
        head = app.head("long")
        assert head > 9_900
        with page_of(store) as page, tab(browser, page, "/tasks/long") as opened:
            opened.locator(".wrow").nth(3).wait_for()
            assert opened.locator(".wrow, .wrow *").count() < 400
            opened.locator("#seq").fill("5000")
            opened.locator(".statep h2", has_text="State at seq 5000").wait_for()
            opened.get_by_role("button", name="JSON").click()
            wanted = json.loads(json.dumps(app.at("long", 5000).to_dict(sections=MOMENT), default=str))
            until(lambda: document(opened) == wanted)
            opened.get_by_role("tab", name=re.compile("Events")).click()
            opened.locator("table.events").wait_for()
            assert opened.locator("tr[data-seq]").count() < 400


@pytest.mark.page
def test_a_patch_is_applied_on_the_page_as_the_standard_has_it(page, browser):
    """The page's own JSON Patch against the library's, over random documents."""
    chance = random.Random(3)

    def value(depth=0):
        kinds = [lambda: chance.randint(0, 9), lambda: chance.choice("abc"), lambda: None, lambda: True]
        if depth < 3:
            kinds += [lambda: [value(depth + 1) for _ in range(chance.randint(0, 3))]] * 2
            kinds += [lambda: {chance.choice("abc/~_"): value(depth + 1) for _ in range(3)}] * 3
        return chance.choice(kinds)()

    cases = []
    for _ in range(300):
        before, after = {"a": value(), "b": value()}, {"a": value(), "c": value()}
        cases.append([before, list(jsonpatch.make_patch(before, after)), after])
    with tab(browser, page) as opened:
        opened.locator("td .id").first.wait_for()
        source = opened.locator("script[type=module]").get_attribute("src").replace("main.js", "moments.js")
        found = opened.evaluate(
            """async ([source, cases]) => {
              const { applied, mapped, plain } = await import(source);
              return cases.map(([before, ops]) => plain(applied(mapped(before), ops)));
            }""",
            [source, cases],
        )
    assert found == [after for _, _, after in cases]


@pytest.mark.page
def test_a_fork_is_compared_with_where_it_came_from(own, browser):
    own.app.fork("recap-standup-1117", at=6, id="recap-2", patch=StatePatch(set={"count": 77}), by="ben")
    own.app.resume("recap-2", recap)
    with tab(browser, own, "/compare/recap-standup-1117/recap-2") as opened:
        opened.locator(".cmp .band", has_text="6 events in common").wait_for()
        assert opened.locator(".kv > div", has_text="steps").last.inner_text().split() == ["steps", "4", "→", "4"]
        assert opened.locator(".cmp .band.first").count() == 1
        opened.keyboard.press("n")
        opened.locator(".cmp .on").first.wait_for()
        assert (
            "forked" in opened.locator(".cmp .x").all_inner_texts()[0] + opened.locator(".cmp .x").all_inner_texts()[1]
        )
        opened.get_by_role("button", name="Swap").click()
        opened.locator(".cmp .head", has_text="recap-2").first.wait_for()
        assert opened.url.endswith("/compare/recap-2/recap-standup-1117")
