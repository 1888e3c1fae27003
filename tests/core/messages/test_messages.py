"""Messages: every provider's form read and written, groups, repair, and what is refused at the door."""

import math

import pytest
from hypothesis import given, strategies as st
from msgspec.structs import replace

from holdfast.core import codec
from holdfast.core.errors import InvalidValue, NotSerializable
from holdfast.core.messages import (
    NO_RESULT,
    Image,
    Message,
    Other,
    Reasoning,
    Text,
    ToolCall,
    ToolResult,
    answer,
    check,
    conversation,
    groups,
    losses,
    parse,
    parse_all,
    problems,
    render,
    repair,
    system,
)
from holdfast.core.messages.anthropic import EMPTY, OPENING, wire_id
from tests.conversations import FORMS, broken_conversations, conversations

every_form = pytest.mark.parametrize("form", FORMS)
user = Message("user", (Text("Is the disk full?"),))
call = Message("assistant", (ToolCall("c1", "df", '{"path":"/"}'),))
result = answer(call.calls[0], "91 %")
reply = Message("assistant", (Text("Almost."),))

CHAT = [
    {"role": "system", "content": "Be brief."},
    {
        "role": "user",
        "name": "ana",
        "content": [
            {"type": "text", "text": "What is this?"},
            {"type": "image_url", "image_url": {"url": "https://example.com/a.png", "detail": "low"}},
            {"type": "input_audio", "input_audio": {"data": "UklG", "format": "wav"}},
        ],
    },
    {
        "role": "assistant",
        "content": None,
        "refusal": None,
        "reasoning_content": "let me look",
        "tool_calls": [
            {
                "id": "c1",
                "type": "function",
                "function": {"name": "look", "arguments": '{"at": "/",  "deep":true}'},
                "extra_content": {"google": {"thought_signature": "Cs0B"}},
            },
            {"id": "c2", "type": "custom", "custom": {"name": "sh", "input": "ls -l"}},
        ],
    },
    {"role": "tool", "tool_call_id": "c2", "content": "nothing"},
    {"role": "tool", "tool_call_id": "c1", "name": "look", "content": [{"type": "text", "text": "a"}] * 2},
    {"role": "assistant", "content": [{"type": "refusal", "refusal": "No."}]},
]

RESPONSES = [
    {"type": "message", "role": "developer", "content": "Be brief."},
    {
        "type": "message",
        "role": "user",
        "content": [
            {"type": "input_text", "text": "What is this?"},
            {"type": "input_image", "image_url": "https://example.com/a.png", "detail": "low"},
            {"type": "input_file", "file_id": "file_1"},
        ],
    },
    {
        "type": "reasoning",
        "id": "rs_1",
        "summary": [{"type": "summary_text", "text": "hm"}],
        "encrypted_content": "gA==",
    },
    {
        "type": "message",
        "id": "msg_1",
        "status": "completed",
        "role": "assistant",
        "content": [{"type": "output_text", "text": "I will look.", "annotations": []}],
    },
    {
        "type": "function_call",
        "id": "fc_1",
        "call_id": "c1",
        "name": "look",
        "arguments": '{"at": 1}',
        "status": "done",
    },
    {"type": "custom_tool_call", "id": "ct_1", "call_id": "c2", "name": "sh", "input": "ls"},
    {"type": "custom_tool_call_output", "call_id": "c2", "output": "nothing"},
    {"type": "function_call_output", "call_id": "c1", "output": [{"type": "input_image", "file_id": "file_2"}]},
    {"type": "web_search_call", "id": "ws_1", "status": "completed"},
    {"type": "message", "role": "assistant", "content": "Almost."},
]

ANTHROPIC = [
    {
        "role": "user",
        "content": [
            {"type": "text", "text": "What is this?", "cache_control": {"type": "ephemeral"}},
            {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "iVBO"}},
            {"type": "document", "source": {"type": "file", "file_id": "file_1"}},
        ],
    },
    {
        "role": "assistant",
        "content": [
            {"type": "thinking", "thinking": "hm", "signature": "EqQB+/=="},
            {"type": "redacted_thinking", "data": "Em8=="},
            {"type": "tool_use", "id": "c1", "name": "look", "input": {"$at": [1, {"deep": None}]}},
            {"type": "tool_use", "id": "c2", "name": "look", "input": {}},
        ],
    },
    {
        "role": "user",
        "content": [
            {"type": "tool_result", "tool_use_id": "c2", "content": "no such thing", "is_error": True},
            {
                "type": "tool_result",
                "tool_use_id": "c1",
                "content": [
                    {"type": "text", "text": "a"},
                    {"type": "image", "source": {"type": "file", "file_id": "f"}},
                ],
                "cache_control": {"type": "ephemeral"},
            },
            {"type": "text", "text": "And now?"},
        ],
    },
    {"role": "assistant", "content": "Almost."},
]

SAMPLES = {"chat": CHAT, "responses": RESPONSES, "anthropic": ANTHROPIC}


# Forms


@every_form
def test_what_a_provider_wrote_is_given_back_to_it_unchanged(form):
    assert render(parse_all(SAMPLES[form], form), form) == SAMPLES[form]
    assert problems(SAMPLES[form], form) == []


@every_form
@pytest.mark.parametrize("other", FORMS)
def test_what_one_provider_wrote_can_be_sent_to_any_other(form, other):
    sent = render(parse_all(SAMPLES[form], form), other)
    assert problems(sent, other) == []


@every_form
@given(conversations())
def test_whatever_a_form_can_carry_comes_back_equal(form, conversation):
    once = parse_all(render(conversation, form), form)
    assert parse_all(render(once, form), form) == once
    if form != "anthropic":
        assert [text for text in spoken(once) if not text.startswith("[")] == spoken(conversation)
        assert sum(len(message.calls) for message in once) == sum(len(message.calls) for message in conversation)


@every_form
@given(conversations())
def test_messages_in_the_way_of_a_form_come_back_exactly(form, conversation):
    """A conversation that was read in a form, and so has only what it can carry, survives it."""
    parsed = parse_all(render(conversation, form), form)
    plain = [message for message in parsed if message.role != "developer" or form != "anthropic"]
    assert parse_all(render(plain, form), form) == plain


@given(conversations())
def test_neutral_messages_survive_being_stored(conversation):
    stored = codec.dump(conversation)
    assert codec.load(stored, list[Message]) == conversation


def test_reasoning_goes_back_to_its_own_provider_only_and_byte_for_byte(texts):
    thought = ANTHROPIC[1]["content"][0]
    said = parse_all([{"role": "user", "content": "hi"}, {"role": "assistant", "content": [thought]}], "anthropic")
    assert said[1].parts[0].text == "hm"
    assert render(said, "anthropic")[1]["content"] == [thought]
    assert render(said, "chat") == [{"role": "user", "content": "hi"}]
    [lost] = losses(said, "chat")
    texts.check(lost)
    assert losses(said, "anthropic") == []


def test_losses_name_everything_that_a_form_says_in_words_or_leaves_out(texts):
    error = Message("tool", (ToolResult("c1", (Image("https://e.com/a.png"),), is_error=True),))
    lost = losses([*parse(CHAT[1]), call, error], "responses")
    assert len(lost) == 3
    for said in (*lost, *losses([call, error], "chat")):
        texts.check(said)


def test_an_error_is_said_in_words_where_there_is_no_field_for_it():
    failed = answer(call.calls[0], "no such path", is_error=True)
    assert render([call, failed], "chat")[1]["content"] == "error: no such path"
    assert render([call, failed], "responses")[1]["output"] == "error: no such path"
    assert render([user, call, failed], "anthropic")[2]["content"][0]["is_error"] is True


def test_the_calls_of_one_reply_become_one_message_where_the_form_wants_that():
    second = Message("assistant", (ToolCall("c2", "df"),))
    conversation = [user, call, second, result, answer(second.calls[0], "12 %")]
    assert [len(one.get("tool_calls", [])) for one in render(conversation, "chat")] == [0, 2, 0, 0]
    assert [one["role"] for one in render(conversation, "anthropic")] == ["user", "assistant", "user"]
    assert [one["type"] for one in render(conversation, "responses")][1:3] == ["function_call"] * 2


def test_a_message_that_came_between_a_call_and_its_result_is_sent_after_the_result():
    hurry = Message("user", (Text("Hurry!"),))
    for form in FORMS:
        sent = render([user, call, hurry, result], form)
        assert problems(sent, form) == []
        assert parse_all(sent, form) == [user, call, result, hurry]


def test_anthropic_gets_the_system_text_apart_and_an_opening_by_the_user():
    conversation = [Message("system", (Text("Be brief."),)), reply, Message("developer", (Text("Be kind."),)), user]
    assert system(conversation) == "Be brief.\n\nBe kind."
    assert [one["content"] for one in render(conversation, "anthropic")] == [OPENING, "Almost.", "Is the disk full?"]
    cached = [{"type": "text", "text": "Be brief.", "cache_control": {"type": "ephemeral"}}]
    assert system(parse({"role": "system", "content": cached}, "anthropic")) == cached


def test_anthropic_gets_no_empty_texts():
    conversation = [
        Message("user", (Text(" "),)),
        Message("assistant", (Text(""), *call.parts)),
        answer(call.calls[0], ""),
    ]
    sent = render(conversation, "anthropic")
    assert sent[0]["content"] == EMPTY
    assert [block["type"] for block in sent[1]["content"]] == ["tool_use"]
    assert problems(sent, "anthropic") == []


def test_ids_that_a_form_does_not_take_are_replaced_the_same_way_in_call_and_result():
    odd = Message("assistant", (ToolCall("call/ü 1", "df"),))
    sent = render([user, odd, answer(odd.calls[0], "91 %")], "anthropic")
    assert sent[1]["content"][0]["id"] == sent[2]["content"][0]["tool_use_id"] == wire_id("call/ü 1")
    assert problems(sent, "anthropic") == []


@pytest.mark.parametrize("arguments", ["", "{", "[1]", "null", '"text"'])
def test_arguments_that_are_no_object_are_carried_inside_one(arguments):
    odd = Message("assistant", (ToolCall("c1", "df", arguments),))
    sent = render([user, odd, result], "anthropic")
    assert list(sent[1]["content"][0]["input"]) == ["arguments"]
    assert render([odd, result], "chat")[0]["tool_calls"][0]["function"]["arguments"] == arguments


def test_an_object_whose_key_begins_with_a_dollar_is_not_taken_for_an_envelope():
    (parsed,) = parse(ANTHROPIC[1], "anthropic")
    assert parsed.calls[0].arguments == '{"$at":[1,{"deep":null}]}'


# What providers refuse


@every_form
@pytest.mark.parametrize(
    "broken",
    [
        [user, result],
        [user, call, user],
        [user, call],
        [user, call, result, result],
        [user, call, result, call, result],
    ],
    ids=["orphan", "interrupted", "missing", "twice", "same-id"],
)
def test_the_validators_find_what_providers_refuse(form, broken, texts):
    found = problems(conversation._MODULES[form].render(broken), form)
    assert found
    for problem in found:
        texts.check(problem)


def test_the_validators_know_each_providers_own_rules(texts):
    texts.check(problems([], "chat")[0])
    texts.check(problems([{"role": "user", "content": "a"}, {"role": "system", "content": "b"}], "anthropic")[0])
    texts.check(problems([{"role": "assistant", "content": "a"}], "anthropic")[0])
    texts.check(problems([{"role": "user", "content": "a"}] * 2, "anthropic")[0])
    texts.check(problems([{"role": "user", "content": []}], "anthropic")[0])
    texts.check(problems([{"role": "user", "content": [{"type": "text", "text": " "}]}], "anthropic")[0])
    texts.check(problems([{"role": "assistant", "content": None}], "chat")[0])
    texts.check(problems([{"role": "assistant", "content": "a", "tool_calls": []}], "chat")[0])
    texts.check(problems([{"role": "function", "content": "a"}], "chat")[0])
    texts.check(problems([RESPONSES[2]], "responses")[0])
    texts.check(problems([RESPONSES[2], RESPONSES[1]], "responses")[0])
    late = {"role": "user", "content": [{"type": "text", "text": "so?"}, ANTHROPIC[2]["content"][1]]}
    called = {"role": "assistant", "content": [ANTHROPIC[1]["content"][2]]}
    texts.check(problems([ANTHROPIC[0], called, late], "anthropic")[0])


@pytest.mark.parametrize(
    ("form", "wrong"),
    [
        ("chat", {"role": "assistant", "tool_calls": [{"type": "function"}]}),
        ("chat", {"role": "user", "content": "a", "tool_calls": [{"id": "c"}]}),
        ("chat", {"role": "system", "content": [{"type": "image_url"}]}),
        ("responses", {"type": "message", "role": "tool", "content": "a"}),
        ("responses", {"type": "message", "role": "user", "content": []}),
        ("responses", {"role": "user", "content": [{"type": "output_text", "text": "a"}]}),
        ("anthropic", {"role": "user", "content": "a", "name": "ana"}),
        ("anthropic", {"role": "assistant", "content": [{"type": "tool_use", "id": "a b", "input": {}}]}),
        ("anthropic", {"role": "assistant", "content": [{"type": "tool_use", "id": "c"}]}),
        ("anthropic", {"role": "assistant", "content": [{"type": "image"}]}),
        ("anthropic", {"role": "user", "content": [{"type": "tool_use", "id": "c"}]}),
    ],
)
def test_the_validators_look_into_every_message(form, wrong, texts):
    found = problems([wrong], form)
    assert found
    for problem in found:
        texts.check(problem)


@pytest.mark.parametrize(
    ("form", "wrong"),
    [
        ("chat", {"role": "assistant", "tool_calls": [{"id": "c", "type": "magic"}]}),
        ("responses", {"type": "message", "role": "tool", "content": "a"}),
        ("responses", {"type": "message", "role": "user", "content": [{"type": "input_text", "text": 7}]}),
        ("anthropic", {"role": "tool", "content": "a"}),
        ("anthropic", {"role": "assistant", "content": [{"type": "tool_result", "tool_use_id": "c", "content": "a"}]}),
        ("anthropic", {"role": "user", "content": [{"type": "image", "source": {"type": "fax"}}]}),
        (
            "anthropic",
            {
                "role": "user",
                "content": [
                    {
                        "type": "tool_result",
                        "tool_use_id": "c",
                        "content": [{"type": "tool_use", "id": "d", "name": "df", "input": {}}],
                    }
                ],
            },
        ),
    ],
)
def test_what_no_form_knows_is_refused_where_it_stands(form, wrong, texts):
    with texts.raises(InvalidValue):
        parse(wrong, form)


def test_a_picture_kept_by_the_provider_is_read_and_written_by_its_name():
    given = {"role": "user", "content": [{"type": "image", "source": {"type": "file", "file_id": "f1"}}]}
    [message] = parse_all([given], "anthropic")
    assert message.parts == (Image(file="f1"),)
    assert render([message], "anthropic") == [given]


def test_a_result_may_come_without_its_call_when_the_provider_holds_that():
    output = [{"type": "function_call_output", "call_id": "c1", "output": "91 %"}]
    assert problems(output, "responses", held={"c1"}) == []
    assert repair(parse_all(output, "responses"), held={"c1"}) == (parse_all(output, "responses"), [])


# Groups


def test_a_reply_with_calls_and_all_its_results_is_one_group():
    assert groups([user, call, result, reply, user]) == [range(1), range(1, 3), range(3, 4), range(4, 5)]
    assert groups([]) == []


def test_reasoning_stays_with_what_it_led_to():
    items = parse_all(RESPONSES, "responses")
    assert range(2, 8) in groups(items)
    thought = Message("assistant", (Reasoning("hm"),))
    assert groups([user, thought, thought, call, result, thought, reply]) == [range(1), range(1, 5), range(5, 7)]


def test_a_late_result_draws_everything_since_its_call_into_one_group():
    assert groups([user, call, user, reply, result, user]) == [range(1), range(1, 5), range(5, 6)]


@given(broken_conversations())
def test_groups_are_whole_and_cover_everything_in_order(conversation):
    found = groups(conversation)
    assert [at for group in found for at in group] == list(range(len(conversation)))
    open_in = {}
    for number, group in enumerate(found):
        for at in group:
            for one in conversation[at].calls:
                open_in[one.id] = number
            if conversation[at].role == "tool":
                called = open_in.pop(conversation[at].result.call_id, number)
                assert called == number, "a result is in the group of its call"


# Repair


@given(conversations())
def test_what_is_whole_is_not_touched(conversation):
    assert repair(conversation) == (conversation, [])


def spoken(conversation):
    return [part.text for message in conversation for part in message.parts if isinstance(part, Text)]


@every_form
@given(broken_conversations(), st.dictionaries(st.sampled_from(["call_1", "call/1", "call_2"]), st.just("known")))
def test_whatever_broke_a_conversation_it_can_be_sent_after_repair(form, conversation, known):
    mended, notes = repair(conversation, known)
    if mended:
        sent = render(mended, form)
        assert not sent or problems(sent, form) == []
    assert repair(mended) == (mended, [])
    assert (mended == list(conversation)) == (notes == [])
    assert spoken(mended) == spoken(conversation), "only results and reasoning are left out"


def test_a_missing_result_comes_from_the_record_of_calls_or_the_model_is_told():
    two = Message("assistant", (ToolCall("c1", "df"), ToolCall("c2", "rm")))
    mended, notes = repair([user, two, reply], {"c1": "91 %"})
    assert [message.text for message in mended[2:]] == ["Almost.", "91 %", NO_RESULT]
    assert [message.result.is_error for message in mended[3:]] == [False, True]
    assert len(notes) == 2 and "'c1'" in notes[0] and "'c2'" in notes[1]


def test_nothing_is_left_out_without_a_word(texts):
    stray = answer(ToolCall("c9", "pay"), "paid 500 €")
    mended, notes = repair([user, stray, call, result, result])
    assert mended == [user, call, result]
    assert "c9" in notes[0] and "paid 500 €" in notes[0]
    for note in notes:
        texts.check(note)


def test_a_result_that_came_after_all_takes_the_place_of_the_word_that_there_was_none():
    lost = answer(call.calls[0], NO_RESULT, is_error=True)
    mended, notes = repair([user, call, lost, reply, result])
    assert mended == [user, call, result, reply]
    assert len(notes) == 1


def test_an_id_used_again_gets_another_and_its_result_follows():
    again = [call, answer(call.calls[0], "12 %")]
    mended, notes = repair([user, call, result, user, *again])
    assert mended[4].calls[0].id == mended[5].result.call_id == "c1-2"
    assert mended[5].text == "12 %" and len(notes) == 1


# At the door


def refused(message, **options):
    with pytest.raises(InvalidValue) as caught:
        check(message, **options)
    assert caught.value.hint
    return caught.value.details["reason"], caught.value.details["path"]


def test_bad_messages_are_refused_with_the_place_and_the_reason():
    tool = {"role": "tool", "tool_call_id": "c1", "content": "91 %"}
    calls = [{"id": "c1", "type": "function", "function": {"name": "df", "arguments": "{}"}}]
    asks = {"role": "assistant", "content": None, "tool_calls": calls}
    assert refused(tool) == ("orphan-result", "message")
    assert refused(tool, seen=["c1"]) == ("duplicate-result", "message")
    assert refused(asks, seen=["c1"]) == ("duplicate-call", "message")
    assert refused(asks | {"tool_calls": calls * 2}) == ("duplicate-call", "message")
    assert refused("hello") == ("wrong-type", "message")
    assert refused({"content": "a"}) == ("missing-field", "message.role")
    assert refused({"role": "function", "content": "a"}) == ("unknown-role", "message.role")
    assert refused({"role": "user"}) == ("no-content", "message.content")
    assert refused({"role": "assistant"}) == ("no-content", "message.content")
    assert refused({"role": "user", "content": 7}) == ("wrong-type", "message.content")
    assert refused({"role": "user", "content": ["a"]}) == ("wrong-type", "message.content[0]")
    assert refused({"role": "user", "content": [{"text": "a"}]}) == ("missing-field", "message.content[0].type")
    assert refused({"role": "tool", "content": "a"}) == ("missing-field", "message.tool_call_id")
    nameless = [{"id": "c1", "function": {"arguments": "{}"}}]
    assert refused(asks | {"tool_calls": nameless}) == ("missing-field", "message.tool_calls[0].function.name")
    assert refused(asks | {"tool_calls": [{"id": ""}]}) == ("missing-field", "message.tool_calls[0].id")
    assert refused({"role": "user", "content": "a"}, form="gemini") == ("unknown-form", "form")


def test_what_json_cannot_hold_is_refused_with_its_path():
    with pytest.raises(NotSerializable) as caught:
        check({"role": "user", "content": [{"type": "text", "text": "a", "weight": math.nan}]})
    assert caught.value.details["path"] == "message['content'][0]['weight']"


def test_good_messages_pass_and_come_back_as_they_were_read():
    assert check({"role": "user", "content": "Is the disk full?"}) == (user,)
    assert check({"role": "tool", "tool_call_id": "c1", "content": "91 %"}, open=["c1"], seen=["c1"]) == (result,)
    assert check({"role": "assistant", "content": ""}) == (Message("assistant"),)


def test_parts_stand_only_where_they_belong():
    for role, part in [
        ("user", call.parts[0]),
        ("user", result.parts[0]),
        ("system", Reasoning()),
        ("tool", Text("a")),
    ]:
        with pytest.raises(InvalidValue):
            Message(role, (part,))
    with pytest.raises(InvalidValue):
        replace(result, parts=())
    assert Message("assistant", (Other("refusal", "No."),)).text == ""
