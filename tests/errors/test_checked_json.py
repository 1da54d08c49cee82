"""JSON that something else wrote: typed, bounded, and refused with its place."""

import json
import math

import pytest

from mgcaffe.errors import DataError
from mgcaffe.errors.checked_json import MAX_INTEGER, Json, json_value, parse_json

TEXT = """{
 "name": "conv1", "again": 1, "again": [ true ],
 "groups": [
  {"bytes": 800, "times": [1.5, -2e3]},
  {"bytes": "many", "times": []}
 ]
}
"""


def read(text):
    return parse_json(text, "plan.json", "this is no plan", hint="write another one")


def test_values_are_read_by_type():
    document = read(TEXT)
    assert document["name"].text() == "conv1"
    assert document["again"].elements()[0].flag() is True
    first = document["groups"].elements()[0]
    assert (first["bytes"].integer(), first["bytes"].number()) == (800, 800.0)
    assert [time.number() for time in first["times"].elements()] == [1.5, -2000.0]
    assert list(first.members()) == ["bytes", "times"]
    assert first.get("absent") is None and read('{"a": null}').get("a") is None


@pytest.mark.parametrize(
    ("reading", "message"),
    [
        (lambda x: x["groups"].elements()[1]["bytes"].integer(), "5:13: this is no plan: groups[1].bytes should"),
        (lambda x: x["groups"].elements()[0]["times"].elements()[1].number(least=0), "4:33: this is no plan: group"),
        (lambda x: x["groups"].elements()[1]["name"], "5:3: this is no plan: 'name' is missing in groups[1]"),
        (lambda x: x["again"].text(), "2:40: this is no plan: again should be a text, not a list"),
        (lambda x: x["absent"], "1:1: this is no plan: 'absent' is missing\n  write another one"),
        (lambda x: x["name"].members(), '2:10: this is no plan: name should be an object, not "conv1"'),
        (lambda x: x.elements(), "1:1: this is no plan: the document should be a list, not an object"),
        (lambda x: x["name"].flag(), "name should be true or false"),
    ],
)  # fmt: skip
def test_what_does_not_fit_is_located(reading, message):
    with pytest.raises(DataError) as caught:
        reading(read(TEXT))
    assert message in str(caught.value)
    assert caught.value.exit_code == 65


@pytest.mark.parametrize(
    ("text", "reading", "fits"),
    [
        ("3.0", Json.integer, True),
        ("3.5", Json.integer, False),
        ("true", Json.integer, False),
        ("true", Json.number, False),
        (str(MAX_INTEGER), Json.integer, True),
        (str(MAX_INTEGER + 1), Json.integer, False),
        ("9" * 400, Json.number, False),
        ("1e999", Json.number, False),
        ("NaN", Json.number, False),
        ("-Infinity", Json.number, False),
        ("1e300", Json.number, True),
        ("null", Json.text, False),
        ('"' + 50 * "z" + '"', Json.integer, False),
        ('"a\\u0000"', Json.file_name, False),
        ('"a/b.txt"', Json.file_name, True),
    ],
)
def test_bounds_hold(text, reading, fits):
    if fits:
        reading(read(text))
        return
    with pytest.raises(DataError) as caught:
        reading(read(text))
    assert len(caught.value.message) < 200


def test_infinity_is_accepted_where_it_is_asked_for():
    assert read("Infinity").number(most=math.inf) == math.inf


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('{"a": 1,}', "plan.json:1:9: this is no plan: no JSON ("),
        ('[1,\n2,\n"x]', "plan.json:3:1: this is no plan: no JSON ("),
        ("", "plan.json:1:1: this is no plan: no JSON ("),
        ("9" * 5000, "plan.json: this is no plan: a number in it has too many digits"),
        ("[" * 100_000, "plan.json: this is no plan: it is nested too deeply"),
        (b"\xff\xfe", "plan.json: this is no plan: it is not UTF-8"),
    ],
)
def test_what_is_no_json_is_refused(text, message):
    with pytest.raises(DataError) as caught:
        read(text)
    assert str(caught.value).startswith(message)


def test_a_line_of_a_file_keeps_its_number():
    with pytest.raises(DataError, match=r"run\.json:7:7: no log: a should be a text"):
        parse_json('{"a": 1}', "run.json", "no log", line=7)["a"].text()


def test_halves_of_surrogate_pairs_are_replaced():
    document = read(json.dumps({"a\ud800": "b\udc00"}))
    assert [(name, value.text()) for name, value in document.members().items()] == [("a?", "b?")]


def test_parsed_values_are_read_alike():
    assert json_value({"a": [1]}, "no plan")["a"].elements()[0].integer() == 1
    with pytest.raises(DataError, match=r"<memory>: no plan: a\[0\] should be a text, not 1"):
        json_value({"a": [1]}, "no plan")["a"].elements()[0].text()
