"""When schedules come round, against one who looks at the clocks of a place every minute."""

import time
from datetime import UTC, datetime, timedelta, timezone
from functools import lru_cache
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given, strategies as st

from holdfast import InvalidValue
from holdfast.core.cron import Cron, Every, times, zone_of

MINUTE = 60_000_000
SPAN = 1600
ZONES = (
    *("UTC", "Europe/Berlin", "America/New_York", "America/Sao_Paulo", "Australia/Lord_Howe", "Asia/Kathmandu"),
    *("Pacific/Apia", "America/St_Johns", "Africa/Casablanca", "Antarctica/Troll"),
)


def us(*when, zone=UTC, fold=0):
    at = datetime(*when, tzinfo=zone, fold=fold)
    return (at - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(microseconds=1)


def shown(at_us, zone):
    return (datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=at_us)).astimezone(zone).replace(tzinfo=None)


# The slow way: what a text names is listed value by value, and every minute of the clocks is looked at.

NAMES = {"jan": "1", "jul": "7", "oct": "10", "dec": "12", "sun": "0", "mon": "1", "fri": "5", "sat": "6"}


@lru_cache
def named(field, least, most):
    found = set()
    for part in field.split(","):
        part, _, step = part.partition("/")
        first, _, last = (NAMES.get(one, one) for one in part.lower().replace("*", f"{least}-{most}").partition("-"))
        found |= {n for n in range(int(first), int(last or first) + 1) if (n - int(first)) % int(step or 1) == 0}
    return found


def is_time(text, wall):
    minute, hour, day, month, weekday = text.split()
    on_day, on_weekday = wall.day in named(day, 1, 31), wall.isoweekday() % 7 in {n % 7 for n in named(weekday, 0, 6)}
    starred = day.startswith("*") or weekday.startswith("*")
    return (
        wall.minute in named(minute, 0, 59)
        and wall.hour in named(hour, 0, 23)
        and wall.month in named(month, 1, 12)
        and (on_day and on_weekday if starred else on_day or on_weekday)
    )


def walk(text, start_us, minutes, zone):
    """Every moment of a stretch at which a time of the text comes: when the clocks show it, or have leapt over it."""
    found, highest = [], max(shown(start_us - n * MINUTE, zone) for n in range(1, 1600))
    for n in range(minutes):
        at_us = start_us + n * MINUTE
        now, comes = shown(at_us, zone), False
        while highest < now:
            highest += timedelta(minutes=1)
            comes = comes or is_time(text, highest)
        if comes:
            found.append(at_us)
    return found


def values(least, most, names=()):
    one = st.integers(least, most).map(str)
    pair = st.tuples(st.integers(least, most), st.integers(least, most)).map(sorted)
    span = pair.map(lambda two: f"{two[0]}-{two[1]}")
    step = st.integers(1, most).map(str)
    stepped = st.tuples(st.one_of(span, st.just("*")), step).map("/".join)
    shapes = [st.just("*"), one, span, stepped] + ([st.sampled_from(names)] if names else [])
    return st.lists(st.one_of(shapes), min_size=1, max_size=3).map(",".join)


FIELDS = (
    st.one_of(st.sampled_from(["0", "*", "*/15", "30", "59"]), values(0, 59)),
    st.one_of(st.sampled_from(["*", "0", "2", "1-3", "*/2"]), values(0, 23)),
    st.one_of(st.just("*"), values(1, 28)),
    st.one_of(st.just("*"), values(1, 12, ("Jan", "JUL", "oct-dec"))),
    st.one_of(st.just("*"), values(0, 7, ("Sun", "mon-fri", "SAT"))),
)
TEXTS = st.tuples(*FIELDS).map(" ".join)
AROUND_CHANGES = [
    *(us(2024, 3, 31), us(2024, 10, 27), us(2024, 3, 10), us(2024, 11, 3)),  # Berlin, New York
    *(us(2018, 11, 4), us(2018, 2, 18), us(2024, 4, 6, 12), us(2024, 10, 5, 12)),  # São Paulo at midnight, Lord Howe
    *(us(2011, 12, 30), us(2024, 2, 28, 12), us(2023, 12, 31, 12), us(2024, 4, 14)),  # a day that Samoa left out
]
STARTS = st.tuples(st.sampled_from(AROUND_CHANGES), st.integers(-900, 900)).map(lambda two: two[0] + two[1] * MINUTE)


@given(TEXTS, STARTS, st.sampled_from(ZONES), st.integers(0, MINUTE - 1))
def test_it_comes_when_one_who_looks_every_minute_sees_it(text, start_us, zone, odd_us):
    cron, place = Cron.parse(text), ZoneInfo(zone)
    seen = walk(text, start_us, SPAN, place)
    found, at_us = [], start_us - 1
    while (at_us := cron.next(at_us, place)) < start_us + SPAN * MINUTE:
        found.append(at_us)
    assert found == seen
    for one in (*seen[:30], *seen[-30:]):
        assert cron.last(one, place) == one
        assert cron.last(one + MINUTE - 1 - odd_us, place) == one
    for n in range(0, SPAN, 97):
        at_us = start_us + n * MINUTE + odd_us
        before, after = [one for one in seen if one <= at_us], [one for one in seen if one > at_us]
        if before:
            assert cron.last(at_us, place) == before[-1]
        if after:
            assert cron.next(at_us, place) == after[0]


@given(TEXTS, st.integers(us(1950, 1, 1), us(2150, 1, 1)), st.sampled_from(ZONES))
def test_next_and_last_are_each_others_neighbours(text, at_us, zone):
    cron, place = Cron.parse(text), zone_of(zone)
    later, earlier = cron.next(at_us, place), cron.last(at_us, place)
    assert earlier <= at_us < later
    assert cron.next(earlier, place) == later
    assert cron.last(later - 1, place) == earlier
    assert cron.last(later, place) == later


def test_a_time_that_does_not_exist_comes_right_after_the_gap_once():
    berlin = ZoneInfo("Europe/Berlin")
    gap_us = us(2024, 3, 31, 1)  # 02:00 is 03:00
    for text in ("30 2 * * *", "0,15,59 2 * * *", "0 2,3 * * *"):
        cron = Cron.parse(text)
        assert cron.next(gap_us - 1, berlin) == gap_us == cron.last(gap_us + 59 * MINUTE, berlin)
        assert cron.next(gap_us, berlin) >= us(2024, 4, 1, 0)
    assert Cron.parse("0 12 30 12 *").next(us(2011, 12, 1), ZoneInfo("Pacific/Apia")) == us(2011, 12, 30, 10)


def test_a_time_that_exists_twice_comes_the_first_time_alone():
    berlin, cron = ZoneInfo("Europe/Berlin"), Cron.parse("30 2 * * *")
    first, second = us(2024, 10, 27, 0, 30), us(2024, 10, 27, 1, 30)  # 03:00 is 02:00 again at 01:00 UTC
    assert cron.next(first - 1, berlin) == first
    assert cron.next(first, berlin) == us(2024, 10, 28, 1, 30)
    assert cron.last(second - 1, berlin) == cron.last(second, berlin) == first
    assert cron.last(us(2024, 10, 27, 1, 5), berlin) == first, "the clocks show 02:05 for the second time"


def test_leap_days_come_every_four_years_but_for_most_centuries():
    cron, found, at_us = Cron.parse("0 0 29 2 *"), [], us(1999, 1, 1)
    while (at_us := cron.next(at_us, UTC)) < us(2110, 1, 1):
        found.append(shown(at_us, UTC).year)
    assert found == [*range(2000, 2097, 4), 2104, 2108]
    assert shown(cron.last(us(2103, 5, 1), UTC), UTC) == datetime(2096, 2, 29)
    sundays = Cron.parse("0 0 29 2 */7")
    assert shown(sundays.next(us(2088, 3, 1), UTC), UTC) == datetime(2128, 2, 29)
    assert shown(sundays.last(us(2128, 2, 28), UTC), UTC) == datetime(2088, 2, 29)


def test_day_or_weekday_is_enough_unless_one_of_them_is_a_star():
    def days(text, month=(2024, 3)):
        cron, found, at_us = Cron.parse(text), [], us(*month, 1) - 1
        while (at_us := cron.next(at_us, UTC)) < us(month[0], month[1] + 1, 1):
            found.append(shown(at_us, UTC).day)
        return found

    assert days("0 0 13 * fri") == [1, 8, 13, 15, 22, 29]
    assert days("0 0 13 * *") == [13]
    assert days("0 0 * * 5") == [1, 8, 15, 22, 29]
    assert days("0 0 */10 * fri") == [1]
    assert days("0 0 * * 7") == days("0 0 * * 0") == days("0 0 * * SUN") == [3, 10, 17, 24, 31]
    assert days("0 0 * * 5-7") == days("0 0 * * fri-sun") == days("0 0 * * 0,5,6")
    assert days("0 0 31 2 mon") == [], "but in February it comes on Mondays"


@pytest.mark.parametrize(
    ("macro", "text"),
    [
        *(("@hourly", "0 * * * *"), ("@daily", "0 0 * * *"), ("@weekly", "0 0 * * 0"), ("@monthly", "0 0 1 * *")),
        *(("@yearly", "0 0 1 1 *"), (" @Daily ", "0 0 * * *"), ("@annually", "0 0 1 JAN *")),
    ],
)
def test_macros_stand_for_five_fields(macro, text):
    berlin = ZoneInfo("Europe/Berlin")
    assert Cron.parse(macro).next(us(2024, 5, 5, 5), berlin) == Cron.parse(text).next(us(2024, 5, 5, 5), berlin)


@pytest.mark.parametrize(
    "text",
    [
        *("", " ", "x", "* * * *", "* * * * * *", "0 0 8 * * 1-5", "61 * * * *", "60 * * * *", "-1 * * * *"),
        *("* 24 * * *", "* * 0 * *", "* * 32 * *", "* * * 0 *", "* * * 13 *", "* * * * 8", "* * * * funday"),
        *("a * * * *", "1, * * * *", ",1 * * * *", "1-2-3 * * * *", "5-1 * * * *", "*/0 * * * *", "*/x * * * *"),
        *("*/90 * * * *", "5/10 * * * *", "*-5 * * * *", "1.5 * * * *", "٣ * * * *", "0 0 L * *", "0 0 15W * *"),
        *("0 0 * * 5#3", "? * * * *", "@reboot", "@", "0 0 31 2 *", "0 0 30 2 */2", "0 0 31 4,6,9,11 *", "*" * 600),
        *("every", "every x", "every 0s", "every -5m", "every 500ms", "every 15", "every day", "* * jan * *"),
        *("9" * 300 + " * * * *", "* * * * mon-", "* * * mon *"),
    ],
)
def test_what_is_not_a_time_is_refused_with_a_remedy(text):
    with pytest.raises(InvalidValue) as refused:
        times(text, "UTC")
    assert refused.value.hint
    assert len(str(refused.value)) < 1000


@pytest.mark.parametrize("text", [None, 5, b"* * * * *", ["*"]])
def test_what_is_not_even_text_is_refused_too(text):
    for read in (times, Cron.parse):
        with pytest.raises(InvalidValue):
            read(text)


@pytest.mark.parametrize(
    "zone", ["Mars/Base", "", "../UTC", "/etc/passwd", "Europe", "europe/berlinn", "a\0b", None, 5]
)
def test_an_unknown_time_zone_is_refused_with_a_remedy(zone, texts):
    with texts.raises(InvalidValue):
        times("@daily", zone)


def test_every_so_often_is_counted_from_1970_whatever_the_clocks_show():
    quarter = times("every 15m", "Europe/Berlin")
    assert quarter == Every(900)
    assert times("every 2h") == times("EVERY  2H") == Every(7200) and times("every 1h30m") == Every(5400)
    at_us = us(2024, 3, 31, 0, 59)
    assert quarter.next(at_us) == us(2024, 3, 31, 1) == quarter.last(us(2024, 3, 31, 1, 14, 59))
    assert quarter.next(us(2024, 3, 31, 1)) == us(2024, 3, 31, 1, 15)
    assert quarter.last(us(2024, 3, 31, 1)) == us(2024, 3, 31, 1)
    assert Every(1.5).next(-1) == 0 and Every(1.5).last(-1) == -1_500_000


@given(st.floats(1, 1e9), st.integers(-(10**15), 10**16))
def test_every_so_often_never_drifts(seconds, at_us):
    every = Every(seconds)
    later = every.next(at_us)
    assert every.last(at_us) <= at_us < later
    assert every.next(later - 1) == later == every.last(later)
    assert later - every.last(at_us) == round(seconds * 1_000_000)


def test_moments_out_of_reach_are_refused_and_fixed_offsets_work(texts):
    for at_us in (us(1899, 12, 31), 10**18, -(10**18)):
        with texts.raises(InvalidValue):
            Cron.parse("@daily").next(at_us, UTC)
        with texts.raises(InvalidValue):
            Cron.parse("@daily").last(at_us, UTC)
    india = timezone(timedelta(hours=5, minutes=30))
    assert Cron.parse("0 8 * * *").next(us(2024, 1, 1), india) == us(2024, 1, 1, 2, 30)


def test_the_rarest_times_are_found_at_once():
    began = time.process_time()
    for _ in range(20):
        Cron.parse("0 0 29 2 */7").next(us(2088, 3, 1), ZoneInfo("Europe/Berlin"))
        Cron.parse("59 23 31 12 *").last(us(2024, 12, 31, 22), ZoneInfo("Europe/Berlin"))
    assert time.process_time() - began < 2, "not a walk over minutes"
