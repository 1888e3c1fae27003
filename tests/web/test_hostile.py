"""What agents, tools and people write is text, in every field and on every screen, exactly as it is stored."""

import json
import shlex
from urllib.parse import quote

import pytest

import holdfast
from holdfast import Task, agent, tool
from tests.waiting import until
from tests.web.browser import tab
from tests.web.world import ASK, page_of, refunds

pytestmark = pytest.mark.page

TAGS = [
    *("<script>alert(1)</script>", "<img src=x onerror=alert(1)>", "<svg onload=alert(1)>", "javascript:alert(1)"),
    *('"><iframe src=//evil.example>', "<style>*{display:none}</style>", "{{7*7}}", "${alert(1)}", "</script><b>"),
    *("<a href=https://evil.example>x</a>", "&lt;b&gt;", "<base href=//evil.example>", "<!--", "]]>", "'; drop table"),
    *("<form action=//evil.example>", "<meta http-equiv=refresh content=0>", "__proto__", "[x](javascript:alert(1))"),
    "<object data=//evil.example>",
]
ENDS = ("", " y", "\tz", "x" * 40, "'\"", "\\", "%00", "é", "漢", " &amp;", "\x85?", "/../", "`", "\u2603", "?#")
STRINGS = [f"{one}{end}".replace("\x85", "\u00b7") for one in TAGS for end in ENDS]
IDS = ["javascript:x", "a/../../api", "constructor", "x#y~z", "e=1,b+c", "A.html", "0//evil.example/a", "toString"]
MARKUP = "script, iframe, img, style, base, object, embed, meta, form[action], [onerror], [onload], [style*=display]"


def test_there_are_three_hundred_different_strings():
    assert len(STRINGS) == len(set(STRINGS)) == 300


def say(text):
    return text


def _raise(text):
    raise ValueError(text)


@agent(name=STRINGS[0])
def writer(task: Task, texts: list[str]) -> str:
    """Every verb that stores text, with every text."""
    task.goal(texts[1])
    task.plan(texts)
    for text in texts:
        task.state.set("all", {**(task.state.get("all") or {}), text: text}) if text in texts[:40] else None
        task.state.set(f"v{texts.index(text)}", text)
        task.fact(text, text, source=text)
        task.note(text, text)
        task.message({"role": "user", "content": text})
        task.step(say, text, name=text)
    for text in texts[:60]:
        task.stage(text)
        task.flag(text)
        task.question(text)
        task.decide(text, text, why=text, options=[text])
        task.artifact(text, type="text/html", summary=text)
        task.checkpoint(text)
        task.message({"role": "assistant", "content": [{"type": "text", "text": text}]})
    return task.step(_raise, texts[2], name=texts[2])


@tool(effect="once", risk="payment")
def pay(**values: str) -> str:
    return ""


@agent
def asker(task: Task, texts: list[str]) -> str:
    return task.call(pay, **{text: text for text in texts})


@agent
def questioner(task: Task, text: str) -> str:
    return task.ask(text, name=text[:40])


def write_all(app):
    """Each text in each field that takes any text; ids take fewer characters, and those are here too."""
    app.run(writer, {"texts": STRINGS}, id="hostile")
    for number, text in enumerate(STRINGS):
        app.start(text, {text: text}, id=f"t{number:03}", queue=text[:60], user=IDS[number % len(IDS)])
    for number in range(0, 300, 3):
        app.run(asker, {"texts": STRINGS[number : number + 3]}, id=f"a{number:03}", contract={"constraints": ASK})
    for number, text in enumerate(STRINGS[:90]):
        app.run(questioner, {"text": text}, id=f"q{number:03}")
    for number, text in enumerate(STRINGS[:49]):
        app.cancel(f"t{number:03}", by=text, why=text)
    for id in IDS:
        app.start("x", {}, id=id, thread=id)


@pytest.fixture(scope="module")
def hostile(tmp_path_factory):
    store = tmp_path_factory.mktemp("hostile") / "store.db"
    with holdfast.open(store, durability="process") as app:
        write_all(app)
        with page_of(store) as page:
            page.app = app
            yield page


def texts_of(opened, wanted):
    """The exact text of each element, as the document has it."""
    return opened.locator(wanted).evaluate_all("found => found.map(one => one.textContent)")


def scrolled(opened, wanted, told="one.textContent"):
    """What each row of a region that draws only those in view says, in order, each once."""
    return opened.evaluate(
        """async (wanted) => {
          const region = document.querySelector(".wscroll");
          const seen = new Map();
          for (let top = 0; top <= region.scrollHeight; top += 400) {
            region.scrollTop = top;
            await new Promise(done => requestAnimationFrame(() => requestAnimationFrame(done)));
            for (const one of region.querySelectorAll(wanted)) seen.set(JSON.stringify(TOLD), TOLD);
          }
          return [...seen.values()];
        }""".replace("TOLD", told),
        wanted,
    )


def harmless(opened):
    """Nothing of what was written has become an element, a link elsewhere or a style."""
    assert opened.locator("main").locator(MARKUP).count() == 0
    own = opened.evaluate("location.origin")
    away = opened.locator("a[href]").evaluate_all("found => found.map(one => one.href)")
    assert [one for one in away if not one.startswith(f"{own}/")] == []


def test_agents_of_a_list_and_its_ids(hostile, browser):
    with tab(browser, hostile, f"/?q={quote('status:pending')}") as opened:
        opened.locator("td .id").first.wait_for()
        more = opened.get_by_role("button", name="next 50")
        while more.count():
            before = opened.locator("td .id").count()
            more.click()
            until(lambda before=before: opened.locator("td .id").count() > before)
        harmless(opened)
        pending = hostile.app.list(status="pending", limit=500)
        assert texts_of(opened, "td .id") == [row.id for row in pending]
        assert texts_of(opened, "td .sub") == [row.agent for row in pending]
        assert {row.agent for row in pending} >= set(STRINGS[49:])


def test_steps_with_their_arguments_and_results(hostile, browser):
    told = hostile.get("/tasks/hostile/steps")["steps"]
    assert {one["name"] for one in told} >= set(STRINGS)
    with tab(browser, hostile, "/tasks/hostile") as opened:
        opened.locator(".wrow .code1").first.wait_for()
        shown = set(scrolled(opened, ".wrow .code1"))
        assert shown == {f"{one['name']}({one['given']})" for one in told}
        harmless(opened)


@pytest.mark.parametrize("number", [0, 16, 120, 288])
def test_a_step_that_is_opened(hostile, browser, number):
    key = f"{STRINGS[number]}#1"
    with tab(browser, hostile, f"/tasks/hostile?step={quote(key, safe='')}") as opened:
        opened.locator(".insp dd").first.wait_for()
        assert texts_of(opened, ".insp h2") == [key]
        until(lambda: json.dumps(STRINGS[number], ensure_ascii=False) in texts_of(opened, ".insp dd"))
        harmless(opened)


def test_events(hostile, browser):
    rows = [row for row in hostile.get("/tasks/hostile/rows")["rows"] if not row[12]]
    with tab(browser, hostile, "/tasks/hostile?tab=events") as opened:
        opened.locator("tr[data-seq]").first.wait_for()
        cells = {tuple(one) for one in scrolled(opened, "tr[data-seq]", "[...one.cells].map(cell => cell.textContent)")}
        shown = {int(one[0]): one[2:6] for one in cells}
        assert shown == {row[0]: (row[3], row[4], row[5], row[11]) for row in rows}
        harmless(opened)


def test_state_facts_notes_plans_flags_and_questions(hostile, browser):
    with tab(browser, hostile, "/tasks/hostile?tab=state") as opened:
        opened.locator(".cols").wait_for()
        keys = set(texts_of(opened, ".kv .k"))
        assert keys >= set(STRINGS), "keys of facts and notes"
        values = "\n".join(texts_of(opened, ".kv .v"))
        for text in STRINGS:
            assert json.dumps(text, ensure_ascii=False) in values, text
        harmless(opened)
        opened.get_by_role("tab", name="Timeline").click()
        opened.get_by_role("button", name="JSON").click()
        found = opened.locator("pre[data-doc]")
        found.wait_for()
        document = json.loads(found.evaluate("one => one.textContent"))
        assert document["state"] == dict(hostile.app.get("hostile").state)


def test_the_conversation(hostile, browser):
    with tab(browser, hostile, "/tasks/hostile?tab=conversation") as opened:
        opened.locator(".msg").first.wait_for()
        shown = texts_of(opened, ".msg.user .body")
        assert len(shown) == 300
        for text, seen in zip(STRINGS, shown, strict=True):  # signs of Markdown are elements, all else is as it was
            assert seen == text or any(sign in text for sign in ("__", "](", "`")), text
        harmless(opened)


def test_errors_and_their_tracebacks(hostile, browser):
    with tab(browser, hostile, "/tasks/hostile?tab=failures") as opened:
        opened.locator("pre.code").first.wait_for()
        assert f"ValueError: {STRINGS[2]}" in "".join(texts_of(opened, "main"))
        harmless(opened)
    with tab(browser, hostile, "/tasks/hostile") as opened:
        opened.locator(".notice.bad b", has_text="ValueError").wait_for()
        harmless(opened)


def test_the_inbox_with_names_and_values_of_arguments_and_questions(hostile, browser):
    entries = hostile.get("/inbox")["entries"]
    with tab(browser, hostile, "/inbox") as opened:
        opened.locator(".card").nth(len(entries) - 1).wait_for()
        harmless(opened)
        asked = [one for one in entries if one["kind"] == "approval"]
        assert len(asked) == 100
        assert texts_of(opened, ".args dt") == [name for one in asked for name in one["arguments"]]
        assert texts_of(opened, ".args dd:not(.from)") == [
            json.dumps(text, ensure_ascii=False) for one in asked for text in one["arguments"].values()
        ]
        questions = [one["prompt"] for one in entries if one["kind"] == "question"]
        assert len(questions) == 90 and set(questions) <= set(texts_of(opened, ".card .q"))


def test_acts_with_who_did_them_and_why(hostile, browser):
    acts = hostile.get("/audit")["acts"]
    assert {one["by"] for one in acts} & set(STRINGS[:49])
    with tab(browser, hostile, "/audit") as opened:
        opened.locator("td .id").first.wait_for()
        cells = opened.locator("tbody tr").evaluate_all(
            "rows => rows.map(row => [...row.cells].map(one => one.textContent))"
        )
        assert [row[1:6] for row in cells] == [
            [one["what"], one["tool"], one["task"], str(one["seq"]), one["by"]] for one in acts
        ]
        harmless(opened)


def test_queues(hostile, browser):
    with tab(browser, hostile, "/workers") as opened:
        opened.locator(".tile").first.wait_for()
        queues = [one["queue"] for one in hostile.get("/workers")["queues"]]
        assert len(queues) > 200 and set(queues) <= set(texts_of(opened, "td .id"))
        harmless(opened)


@pytest.mark.parametrize("id", IDS)
def test_ids_that_look_like_paths_or_properties(hostile, browser, id):
    with tab(browser, hostile, f"/tasks/{quote(id, safe='')}") as opened:
        opened.locator("h1.tid").wait_for()
        assert texts_of(opened, "h1.tid") == [id]
        opened.locator(".live:has-text('Live')").wait_for()
        harmless(opened)


def test_two_tasks_beside_each_other(hostile, browser):
    hostile.app.fork("hostile", at=40, id="hostile~2", by=STRINGS[3])
    with tab(browser, hostile, "/compare/hostile/hostile~2") as opened:
        opened.locator(".cmp .band").first.wait_for()
        harmless(opened)


def test_the_policy_is_in_force(hostile, browser):
    """What the tests above rely on: the browser itself refuses HTML, code and requests that data could become."""
    with tab(browser, hostile) as opened:
        opened.locator("td .id").first.wait_for()
        opened.seen.expected = (
            "policy",
            "Trusted",
            "Content Security Policy",
            "TrustedHTML",
            "trusted type",
            "Refused",
            "violat",
        )
        for code in (
            "document.body.innerHTML = '<b>x</b>'",
            "trustedTypes.createPolicy('default', {createHTML: x => x})",
            "window.setTimeout('1 + 1')",
        ):
            assert opened.evaluate(
                f"() => {{ try {{ {code}; return 'done' }} catch (error) {{ return error.name }} }}"
            ) != ("done"), code
        refused = opened.evaluate("fetch('http://127.0.0.1:9/').then(() => 'done', error => error.name)")
        assert refused == "TypeError"
        opened.seen.elsewhere.clear()


HIDDEN = {"\u202e": "U+202E", "\u200b": "U+200B", "\u2066": "U+2066", "\U000e0041": "U+E0041"}


def test_invisible_characters_are_shown_as_what_they_are(tmp_path, browser):
    store = tmp_path / "store.db"
    with holdfast.open(store) as app:
        for number, one in enumerate(HIDDEN):
            app.run(refunds, {"order": f"pay{one}ment", "euros": 1}, id=f"r{number}", contract={"constraints": ASK})
        with page_of(store) as page, tab(browser, page, "/inbox") as opened:
            opened.locator(".card").first.wait_for()
            for number, name in enumerate(HIDDEN.values()):
                assert opened.locator(".card", has_text=f"r{number}").locator(".args .hid").first.inner_text() == name


ODD = "a'; touch pwned; echo '$(touch pwned)`touch pwned`"


@agent
def asks_oddly(task: Task) -> str:
    return task.ask("Which?", name=ODD)


def test_a_copied_command_holds_what_others_named_as_one_word(tmp_path, browser):
    with holdfast.open(tmp_path / "s.db") as app:
        app.run(asks_oddly, id="odd-1", user="ana", thread="t")
        app.start("x", {}, queue=ODD[:40], id="odd-2")
    with page_of(tmp_path / "s.db", "--read-only") as page:
        asked = next(one for one in page.get("/inbox")["entries"] if one["kind"] == "question")
        assert [shlex.split(one)[:4] for one in asked["commands"]] == [["holdfast", "answer", "odd-1", asked["key"]]]
        with tab(browser, page, "/workers") as opened:
            served = opened.locator(".notice .cmd").first
            assert shlex.split(served.inner_text()) == ["holdfast", "worker", "FILE", "--queue", ODD[:40]]
        with tab(browser, page, f"/audit?q={quote('by:' + json.dumps(ODD))}") as opened:
            opened.get_by_text("Copy as").click()
            command, _, curl = (one.inner_text() for one in opened.locator(".sheet code").all()[:3])
            assert len(shlex.split(command)) == 5 and shlex.split(command)[:3] == ["holdfast", "audit", "--by"]
            assert "touch pwned" in shlex.split(command)[3] and len(shlex.split(curl)) == 4
        with tab(browser, page, f"/?q={quote(chr(10) + 'touch pwned')}") as opened:
            opened.get_by_text("Copy as").click()
            command = opened.locator(".sheet code").first.text_content()
            assert "\n" not in command and shlex.split(command, comments=True) == ["holdfast", "list", "--json"]
