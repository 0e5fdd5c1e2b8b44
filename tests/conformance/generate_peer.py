#!/usr/bin/env python3
"""Writes peer/*.json: the inputs of the Apache sink's unit tests, with the values that are right.

The inputs are the values of those tests (TestRecordConverter, TestSchemaUtils, TestSinkWriter, TestRecordUtils,
TestSchemaUpdate, TestIcebergWriterFactory); what is right follows from what the input says. Where
that sink's tests expect something else, the case says so in `about`.
"""

from __future__ import annotations

from generate import HERE, write

UUID = "f24f9b64-81fa-49d1-b74e-8c09a6e31c56"
COLUMNS = {
    "i": "int", "l": "long", "d": "date", "t": "time", "ts": "timestamp", "tsz": "timestamptz", "fl": "float",
    "do": "double", "dec": "decimal(9, 2)", "s": "string", "b": "boolean", "u": "uuid", "f": "fixed[3]",
    "bi": "binary", "li": "list<string>", "ma": "map<string, string>",
}  # fmt: skip
ROW = {
    "i": 1, "l": 2, "d": "2023-05-18", "t": "07:14:21", "ts": "2023-05-18T07:14:21", "tsz": "2023-05-18T07:14:21Z",
    "fl": 1.1, "do": 2.2, "dec": "12.34", "s": "foobar", "b": True, "u": UUID, "f": "0x010203", "bi": "0x010203",
    "li": ["hello", "world"], "ma": {"one": "1", "two": "2"},
}  # fmt: skip
# As a map: texts where JSON has nothing better; bytes as bytes, for text is no bytes.
MAP = {
    **ROW, "i": {"$int32": 1}, "fl": {"$float32": 1.1}, "dec": {"$decimal": "12.34"},
    "f": {"$bytes": "0x010203"}, "bi": {"$buffer": "0x010203"},
}  # fmt: skip
SCHEMA = (
    "struct<i int32, l int64, d date, t time, ts timestamp, tsz timestamp, fl float32, do float64, dec decimal(2),"
    " s string, b boolean, u string, f bytes, bi bytes, li array<string>, ma map<string,string>>"
)
STRUCT = {**ROW, "ts": "2023-05-18T07:14:21Z"}


def struct_type(columns: dict) -> str:
    return "struct<" + ", ".join(f"{name} {kind}" for name, kind in columns.items()) + ">"


def case(name: str, records: list, columns: dict | None = None, about: str | None = None, **more) -> dict:
    body: dict = {"name": name}
    if about:
        body["about"] = about
    if columns is not None:
        body["table"] = {"columns": columns}
    return {**body, **more, "records": records}


def record(value, row, **more) -> dict:
    return {"value": value, "row": row, **more}


def typed(schema: str, value, row, **more) -> dict:
    return {"schema": schema, "value": value, "row": row, **more}


def refused(value, code: str, column: str, **more) -> dict:
    return {"value": value, "error": {"code": code, "column": column}, **more}


def whole_rows() -> list[dict]:
    inner = struct_type(COLUMNS)
    nested = {"ii": "int", "st": inner}
    pairs = {"one": ROW, "two": ROW}
    bytes_text = "AQID"
    return [
        case("testMapConvert", [record(MAP, ROW)], COLUMNS),
        case("testStructConvert", [typed(SCHEMA, STRUCT, ROW)], COLUMNS),
        case("testMapConvert with base64 text for bytes", [
            record({**MAP, "f": bytes_text}, ROW), record({**MAP, "bi": bytes_text}, ROW),
            refused({**MAP, "f": bytes_text + "!"}, "VALUE_MALFORMED", "f"),
            {"schema": "struct<bi string>", "value": {"bi": bytes_text}, "error": {"code": "VALUE_NOT_CONVERTIBLE", "column": "bi"}},
        ], COLUMNS, "Text without a schema is what JSON has for bytes; text that a schema calls text is none."),
        case("testEmptyListAndMapConvert", [record({"li": [], "ma": {}}, {"li": [], "ma": {}})], COLUMNS),
        case("testNestedMapConvert", [record({"ii": {"$int32": 11}, "st": MAP}, {"ii": 11, "st": ROW})], nested),
        case("testNestedStructConvert", [
            typed(f"struct<ii int32, st {SCHEMA}>", {"ii": 11, "st": STRUCT}, {"ii": 11, "st": ROW}),
        ], nested),
        case("testMapValueInListConvert", [record({"li": [MAP, MAP]}, {"li": [ROW, ROW]})], {"li": f"list<{inner}>"}),
        case("testStructValueInListConvert", [
            typed(f"struct<li array<{SCHEMA}>>", {"li": [STRUCT, STRUCT]}, {"li": [ROW, ROW]}),
        ], {"li": f"list<{inner}>"}),
        case("testMapValueInMapConvert", [
            record({"ma": {"one": MAP, "two": MAP}}, {"ma": pairs}),
        ], {"ma": f"map<string, {inner}>"}),
        case("testStructValueInMapConvert", [
            typed(f"struct<ma map<string,{SCHEMA}>>", {"ma": {"one": STRUCT, "two": STRUCT}}, {"ma": pairs}),
        ], {"ma": f"map<string, {inner}>"}),
        case("testMapToString", [
            record({"s": {"a": "x", "n": 1, "l": [1, 2]}}, {"s": '{"a":"x","n":1,"l":[1,2]}'}),
        ], {"s": "string"}),
        case("testStructToString", [
            typed("struct<s struct<a string, n int32, l array<int32>>>", {"s": {"a": "x", "n": 1, "l": [1, 2]}},
                  {"s": '{"a":"x","n":1,"l":[1,2]}'}),
        ], {"s": "string"}),
        case("testUUIDStringConversion", [record({"u": UUID}, {"u": UUID})], {"u": "uuid"}),
        case("testUUIDConversionWithParquet", [record({"u": UUID}, {"u": UUID})], {"u": "uuid"},
             "The peer's test expects byte[], which its Parquet writer then refuses (T11).",
             config={"iceberg.tables.write-props.write.format.default": "parquet"}),
        case("testUUIDConversion of 16 bytes", [
            record({"u": {"$bytes": "0x" + UUID.replace("-", "")}}, {"u": UUID}),
        ], {"u": "uuid"}),
        case("testConvertOrdersOutputByTableSchemaNotSourceFieldOrder", [
            typed("struct<c string, a int32, b boolean>", {"c": "x", "a": 1, "b": True}, {"a": 1, "b": True, "c": "x"}),
            record({"c": "y", "b": False, "a": 2}, {"a": 2, "b": False, "c": "y"}),
        ], {"a": "int", "b": "boolean", "c": "string"}),
    ]


def names() -> list[dict]:
    insensitive = {"iceberg.tables.schema-case-insensitive": "true"}
    return [
        case("testCaseSensitivity, exact", [record({"II": 123}, {}), record({"ii": 124}, {"ii": 124})], {"ii": "int"}),
        case("testCaseSensitivity, whatever the case", [record({"II": 123}, {"ii": 123})], {"ii": "int"}, config=insensitive),
        case("testMissingColumnDetectionMap, off", [record({"ii": 1, "other": 2}, {"ii": 1})], {"ii": "int"}),
    ]


def scalars() -> list[dict]:
    found = []
    for kind, column in (("Int", "int"), ("Long", "long"), ("Float", "float"), ("Double", "double")):
        right = 123 if column in ("int", "long") else 123.0
        values = ["123", {"$float32": 123}, {"$float64": 123}, {"$int64": 123}, {"$int32": 123}]
        found.append(case(f"test{kind}Conversion", [record({"v": value}, {"v": right}) for value in values], {"v": column}))
    found.append(case("testDecimalConversion", [
        record({"v": "123.45"}, {"v": "123.45"}), record({"v": {"$float64": 123.45}}, {"v": "123.45"}),
        record({"v": {"$float32": 123.45}}, {"v": "123.45"}), record({"v": "123"}, {"v": "123.00"}),
        record({"v": {"$int32": 123}}, {"v": "123.00"}), record({"v": {"$int64": 123}}, {"v": "123.00"}),
        record({"v": {"$float64": 123}}, {"v": "123.00"}), record({"v": {"$decimal": "123.45"}}, {"v": "123.45"}),
        record({"v": {"$decimal": "1.2345E+2"}}, {"v": "123.45"}),
    ], {"v": "decimal(9, 2)"}))
    found.append(case("testDateConversion", [
        record({"v": "2023-11-15"}, {"v": "2023-11-15"}),
        record({"v": {"$ms": 1700006400000}}, {"v": "2023-11-15"}),
        typed("struct<v date>", {"v": "2023-11-15"}, {"v": "2023-11-15"}),
        refused({"v": 19676}, "VALUE_UNIT_UNKNOWN", "v"),
        refused({"v": {"$int32": 19676}}, "VALUE_UNIT_UNKNOWN", "v"),
    ], {"v": "date"}, "The peer takes every number as days; a bare number has no unit here."))
    found.append(case("testTimeConversion", [
        record({"v": "07:51:30.888"}, {"v": "07:51:30.888"}),
        typed("struct<v time>", {"v": "07:51:30.888"}, {"v": "07:51:30.888"}),
        refused({"v": 28290888}, "VALUE_UNIT_UNKNOWN", "v"),
        refused({"v": {"$int32": 28290888}}, "VALUE_UNIT_UNKNOWN", "v"),
    ], {"v": "time"}, "The peer takes every number as milliseconds."))
    return found


def timestamps() -> list[dict]:
    """T or blank, each form of an offset, with a fraction and without one."""
    found = []
    day, clock = "2023-05-18", "07:14:21"
    offsets = {"": 7, "Z": 7, "+00": 7, "+00:00": 7, "+0000": 7, "-08": 15, "-08:00": 15, "-0800": 15}
    for fraction in ("", ".260514"):
        for column, zone in (("timestamptz", "Z"), ("timestamp", "")):
            records = []
            for between in ("T", " "):
                for offset, hour in offsets.items():
                    text = f"{day}{between}{clock}{fraction}{offset}"
                    records.append(record({"v": text}, {"v": f"{day}T{hour:02}:14:21{fraction}{zone}"}))
            name = f"testTimestamp{'With' if zone else 'Without'}Zone{'AndFractionalSeconds' if fraction else ''}Conversion"
            about = None if zone else "The peer drops an offset here and keeps the clock's reading: another moment."
            found.append(case(f"{name}, texts", records, {"v": column}, about))
    for column, zone in (("timestamptz", "Z"), ("timestamp", "")):
        name = f"testTimestamp{'With' if zone else 'Without'}ZoneConversion"
        right = {"v": f"2023-05-18T07:14:21.260{zone}"}
        found.append(case(f"{name}, Date", [
            record({"v": {"$ms": 1684394061260}}, right), typed("struct<v timestamp>", {"v": "2023-05-18T07:14:21.260Z"}, right),
        ], {"v": column}))
        found.append(case(f"{name}, a bare number", [refused({"v": 1684394061260}, "VALUE_UNIT_UNKNOWN", "v")], {"v": column},
                          "The peer takes every number as milliseconds: microseconds land in the year 55840."))
    return found


EVOLVE = {"iceberg.tables.evolve-schema-enabled": "true"}


def missing_columns() -> list[dict]:
    def both(name: str, before: dict, schema: str, value, row, after: dict) -> list[dict]:
        return [
            case(f"testMissingColumnDetection{name}, a schema", [typed(schema, value, row)], before, config=EVOLVE, expect={"columns": after}),
            case(f"testMissingColumnDetection{name}, none", [record(value, row)], before, config=EVOLVE,
                 expect={"columns": {key: kind.replace("int", "long") if key not in before else kind for key, kind in after.items()}}),
        ]

    found = []
    found += both("Map and Struct", {"i": "int"}, "struct<i int32, s string?>", {"i": 1, "s": "x"}, {"i": 1, "s": "x"}, {"i": "int", "s": "string"})
    found += both("MapNested and StructNested", {"st": "struct<i int>"}, "struct<st struct<i int32, s string?>?>", {"st": {"i": 1, "s": "x"}},
                  {"st": {"i": 1, "s": "x"}}, {"st": "struct<i int, s string>"})
    found += both("MapListValue and StructListValue", {"li": "list<struct<i int>>"}, "struct<li array<struct<i int32, s string?>>?>",
                  {"li": [{"i": 1, "s": "x"}]}, {"li": [{"i": 1, "s": "x"}]}, {"li": "list<struct<i int, s string>>"})
    found += both("StructMapValue", {"ma": "map<string, struct<i int>>"}, "struct<ma map<string,struct<i int32, s string?>>?>",
                  {"ma": {"k": {"i": 1, "s": "x"}}}, {"ma": {"k": {"i": 1, "s": "x"}}}, {"ma": "map<string, struct<i int, s string>>"})
    return found


def nested_nulls() -> list[dict]:
    """The schema says what is new; the first record has null there."""
    return [
        case("testNestedSchemaEvolutionStructWithNullValue", [
            typed("struct<st struct<i int32, s string?>?>", {}, {}),
            typed("struct<st struct<i int32, s string?>?>", {"st": {"i": 1, "s": "x"}}, {"st": {"i": 1, "s": "x"}}),
        ], {"st": "struct<i int>"}, config=EVOLVE, expect={"columns": {"st": "struct<i int, s string>"}}),
        case("testNestedSchemaEvolutionListOfStructsWithNullValue", [
            typed("struct<li array<struct<i int32, s string?>>?>", {}, {}),
        ], {"li": "list<struct<i int>>"}, config=EVOLVE, expect={"columns": {"li": "list<struct<i int, s string>>"}}),
        case("testNestedSchemaEvolutionMapOfStructsWithNullValue", [
            typed("struct<ma map<string,struct<i int32, s string?>>?>", {}, {}),
        ], {"ma": "map<string, struct<i int>>"}, config=EVOLVE, expect={"columns": {"ma": "map<string, struct<i int, s string>>"}}),
        case("testNestedSchemaEvolutionStructInStructWithNullParent", [
            typed("struct<a struct<b struct<i int32, s string?>?>?>", {}, {}),
            typed("struct<a struct<b struct<i int32, s string?>?>?>", {"a": {}}, {"a": {}}),
        ], {"a": "struct<b struct<i int>>"}, config=EVOLVE, expect={"columns": {"a": "struct<b struct<i int, s string>>"}}),
        case("testNoSchemaEvolutionStructWithNullValue", [
            typed("struct<st struct<i int32?>?>", {}, {}),
        ], {"st": "struct<i int>"}, config=EVOLVE, expect={"columns": {"st": "struct<i int>"}, "schemas": 1}),
        case("testNoNestedSchemaEvolutionMapKeyWithNullValue", [
            typed("struct<ma map<string,int32?>?>", {}, {}),
        ], {"ma": "map<string, int>"}, config=EVOLVE, expect={"columns": {"ma": "map<string, int>"}, "schemas": 1}),
        case("testSchemaEvolutionForFieldAndNestedFieldsAcrossTwoRecords", [
            typed("struct<i int32, st struct<a string?>?>", {"i": 1}, {"i": 1}),
            typed("struct<i int32, st struct<a string?, b int32?>?>", {"i": 2, "st": {"a": "x", "b": 3}}, {"i": 2, "st": {"a": "x", "b": 3}}),
        ], {"i": "int"}, config=EVOLVE, expect={"columns": {"i": "int", "st": "struct<a string, b int>"}}),
    ]


def schemas() -> list[dict]:
    types = (
        "struct<a boolean?, b int8?, c int16?, d int32?, e int64?, f float32?, g float64?, h string?, i bytes?, j decimal(4)?,"
        " k date?, l time?, m timestamp?, n array<string?>?, o map<string,string?>?, p struct<i int32?>?>"
    )
    made = {
        "a": "boolean", "b": "int", "c": "int", "d": "int", "e": "long", "f": "float", "g": "double", "h": "string",
        "i": "binary", "j": "decimal(38, 4)", "k": "date", "l": "time", "m": "timestamptz", "n": "list<string>",
        "o": "map<string, string>", "p": "struct<i int>",
    }  # fmt: skip
    inferred = {
        "a": [1, "long"], "b": [{"$int32": 1}, "long"], "c": [1.1, "double"], "d": [{"$float32": 1.5}, "double"],
        "e": ["foobar", "string"], "f": [True, "boolean"], "g": [{"$ms": 0}, "timestamptz"], "h": [["a"], "list<string>"],
        "i": [{"s": "x"}, "struct<s string>"], "j": [{"$decimal": "12.345"}, "decimal(5, 3)"],
    }  # fmt: skip
    right = {"a": 1, "b": 1, "c": 1.1, "d": 1.5, "e": "foobar", "f": True, "g": "1970-01-01T00:00:00Z", "h": ["a"], "i": {"s": "x"}, "j": "12.345"}
    small = {"a": ["0.001", "decimal(3, 3)"], "b": ["0.1", "decimal(1, 1)"], "c": ["12.30", "decimal(4, 2)"], "d": ["1E-38", "decimal(38, 38)"]}
    return [
        case("testToIcebergType", [typed(types, {}, {})], expect={"columns": made}),
        case("testToIcebergType, force optional", [typed(types.replace("?", ""), {
            "a": True, "b": 1, "c": 1, "d": 1, "e": 1, "f": 1.5, "g": 1.5, "h": "x", "i": "0x00", "j": "1.0000", "k": "1970-01-01",
            "l": "00:00:00", "m": "1970-01-01T00:00:00Z", "n": ["x"], "o": {"k": "v"}, "p": {"i": 1},
        }, {
            "a": True, "b": 1, "c": 1, "d": 1, "e": 1, "f": 1.5, "g": 1.5, "h": "x", "i": "0x00", "j": "1.0000", "k": "1970-01-01",
            "l": "00:00:00", "m": "1970-01-01T00:00:00Z", "n": ["x"], "o": {"k": "v"}, "p": {"i": 1},
        })], config={"iceberg.tables.schema-force-optional": "true"}, expect={"columns": made}),
        case("testInferIcebergType", [record({key: value for key, (value, _) in inferred.items()}, right)],
             expect={"columns": {key: kind for key, (_, kind) in inferred.items()}}),
        case("testInferIcebergTypeEmpty", [record({"a": None, "b": [], "c": {}, "d": [None], "e": {"f": None}, "id": 1}, {"id": 1})],
             expect={"columns": {"id": "long"}}),
        case("testInferIcebergTypeSmallDecimal", [
            record({key: {"$decimal": text} for key, (text, _) in small.items()},
                   {"a": "0.001", "b": "0.1", "c": "12.30", "d": "0." + "0" * 37 + "1"}),
        ], about="The peer's released version makes decimal(1, 3) of 0.001, which no table can have.",
             expect={"columns": {key: kind for key, (_, kind) in small.items()}}),
    ]


def routes() -> list[dict]:
    two = {"db.a": {"columns": {"id": "long"}}, "db.b": {"columns": {"id": "long"}}}
    return [
        case("testDefaultRoute", [{"value": {"id": 1}, "rows": {"db.a": {"id": 1}, "db.b": {"id": 1}}}], tables=two,
             config={"iceberg.tables": "db.a,db.b"}),
        case("testOffsetTrackedByOriginalTopicPartition", [
            {"topic": "orders", "offset": 42, "value": {"id": 1}, "row": {"id": 1}},
        ], {"id": "long"}, "The peer's test: topic renamed by an SMT, offset 42, next is 43 of the topic before (T17).",
             config={"transforms": "r", "transforms.r.type": "org.apache.kafka.connect.transforms.RegexRouter",
                     "transforms.r.regex": "orders", "transforms.r.replacement": "db.t"},
             expect={"committed": {"orders-0": 43}}),
        case("testAutoCreateTable, partitioned", [typed("struct<id int64, at timestamp>", {"id": 1, "at": "2023-05-18T07:14:21Z"},
             {"id": 1, "at": "2023-05-18T07:14:21Z"})], config={"iceberg.tables.default-partition-by": "day(at)"},
             expect={"partition": ["day at"]}),
        case("testAutoCreateTable, not partitioned", [record({"id": 1}, {"id": 1})], expect={"partition": []}),
    ]


def complaints() -> list[dict]:
    """The executable inputs of what users of that sink complained about."""
    keep = typed("struct<s struct<x int64, y string>?>", {"s": {"x": 1, "y": "keep"}}, {"s": {"x": 1, "y": "keep"}})
    micros = "struct<v int64:io.debezium.time.MicroTimestamp>"
    at = 1700000000123456
    return [
        case("T5: one bad record does not stop the others", [
            record({"v": 1}, {"v": 1}), refused({"v": "abc"}, "VALUE_MALFORMED", "v"), record({"v": 3}, {"v": 3}),
        ], {"v": "int"}, "The peer's task dies."),
        case("T8: microseconds make a timestamp column", [typed(micros, {"v": at}, {"v": "2023-11-14T22:13:20.123456"})],
             about="The peer makes a long.", expect={"columns": {"v": "timestamp required"}}),
        case("T8: microseconds into a timestamptz column", [typed(micros, {"v": at}, {"v": "2023-11-14T22:13:20.123456Z"})],
             {"v": "timestamptz"}, "The peer writes the year 55840."),
        case("T9: a fraction into an int column", [record({"v": 1}, {"v": 1}), refused({"v": 2.5}, "VALUE_PRECISION_LOSS", "v")],
             {"v": "int"}, "The peer writes 2."),
        case("T9: 1e20 into a decimal(38, 0) column", [record({"v": 1e20}, {"v": "100000000000000000000"})], {"v": "decimal(38, 0)"},
             "The peer writes 9223372036854775807."),
        case("T9: a moment before the epoch into a date column", [record({"v": {"$ms": -1}}, {"v": "1969-12-31"})], {"v": "date"},
             "The peer writes 1970-01-01."),
        case("T9: a word into a boolean column", [refused({"v": "yes"}, "VALUE_MALFORMED", "v")], {"v": "boolean"}, "The peer writes false."),
        case("T10: a nested field appears, its value is kept", [keep, keep], {"s": "struct<x long>"}, "The peer loses the first.",
             config=EVOLVE, expect={"columns": {"s": "struct<x long, y string>"}}),
        case("T11: uuid and an explicit format", [record({"v": UUID}, {"v": UUID})], {"v": "uuid"}, "The peer throws ClassCastException.",
             config={"iceberg.tables.write-props.write.format.default": "parquet"}),
        case("T14: a Timestamp into a string column", [
            typed("struct<v timestamp>", {"v": "2023-11-14T22:13:20.123Z"}, {"v": "2023-11-14T22:13:20.123Z"}),
            record({"v": {"$ms": 1700000000123}}, {"v": "2023-11-14T22:13:20.123Z"}),
        ], {"v": "string"}, "The peer throws."),
        case("T14: bytes into a string column", [
            typed("struct<v bytes>", {"v": "0x4142"}, {"v": "QUI="}), record({"v": {"$bytes": "0x4142"}}, {"v": "QUI="}),
        ], {"v": "string"}, "The peer throws."),
        case("T14: structs in a list into a string column", [
            typed("struct<v array<struct<x int32>>>", {"v": [{"x": 1}]}, {"v": '[{"x":1}]'}),
        ], {"v": "string"}, "The peer throws."),
        case("T17: a topic that an SMT renames", [
            {"topic": "orders", "offset": 42, "value": {"id": 1}, "row": {"id": 1}},
            {"topic": "orders", "offset": 43, "value": {"id": "x"}, "error": {"code": "VALUE_MALFORMED", "column": "id"}},
        ], {"id": "long"}, config={"transforms": "r", "transforms.r.type": "org.apache.kafka.connect.transforms.RegexRouter",
                                   "transforms.r.regex": "(.*)", "transforms.r.replacement": "db.$1"},
             expect={"committed": {"orders-0": 44}}),
        case("T21: two names that differ only in case", [
            {"value": {"v": 1, "V": 7}, "error": "FIELD_NAME_AMBIGUOUS"},
        ], {"v": "long"}, "The peer writes 7.", config={"iceberg.tables.schema-case-insensitive": "true"}),
        case("T22: a tombstone before the first record", [{"value": None}, record({"id": 1}, {"id": 1})],
             about="The peer's task dies.", expect={"columns": {"id": "long"}}),
        case("a long that is no int", [record({"v": 3000000000}, {"v": 3000000000})], {"v": "long"}),
        case("NaN into a long column", [refused({"v": {"$float64": "NaN"}}, "VALUE_NOT_CONVERTIBLE", "v")], {"v": "long"}, "The peer writes 0."),
        case("1e30 into a long column", [refused({"v": 1e30}, "VALUE_OUT_OF_RANGE", "v")], {"v": "long"}, "The peer writes 9223372036854775807."),
        case("a double that is no long's neighbour", [refused({"v": 9007199254740993}, "VALUE_PRECISION_LOSS", "v")], {"v": "double"},
             "The peer writes 9007199254740992."),
        case("a text with more digits than the scale", [refused({"v": "1.005"}, "VALUE_PRECISION_LOSS", "v")], {"v": "decimal(9, 2)"}, "The peer writes 1.01."),
        case("a word that is no base64 into a binary column", [
            refused({"v": "hello!"}, "VALUE_MALFORMED", "v"), refused({"v": "_-8="}, "VALUE_MALFORMED", "v"),
            {"schema": "struct<v string>", "value": {"v": "abcd"}, "error": {"code": "VALUE_NOT_CONVERTIBLE", "column": "v"}},
        ], {"v": "binary"}, "The peer throws, and writes bytes 105, 183, 29 for the text."),
        case("seconds into a timestamp column", [refused({"v": 1700000000}, "VALUE_UNIT_UNKNOWN", "v")], {"v": "timestamp"}, "The peer writes 1970-01-20."),
        case("nanoseconds into a timestamp column", [
            refused({"v": "2023-05-18T07:14:21.123456789Z"}, "VALUE_PRECISION_LOSS", "v"),
        ], {"v": "timestamp"}, "The peer cuts them."),
        case("a scalar into a list column", [refused({"v": 1}, "VALUE_NOT_CONVERTIBLE", "v")], {"v": "list<int>"}),
        case("JSON text into a struct column", [refused({"v": "{\"x\":1}"}, "VALUE_NOT_CONVERTIBLE", "v")], {"v": "struct<x int>"}),
        case("an explicit null where the schema has a default", [{
            "schema": {"type": "struct", "fields": {"v": {"type": "string", "optional": True, "default": "dflt"}, "id": "int32"}},
            "value": {"id": 1, "v": None}, "row": {"id": 1},
        }], {"id": "int", "v": "string"}, "The peer writes dflt."),
        case("an absent value for a required column", [
            {"value": {"v": 1}, "error": {"code": "REQUIRED_FIELD_NULL", "column": "id"}},
        ], {"id": "long required", "v": "int"}, "The peer's NullPointerException names neither column nor table."),
        case("plain text as a value", [{"value": "hello", "error": "VALUE_NOT_A_RECORD"}], {"v": "string"}),
    ]


def main() -> None:
    folder = HERE / "peer"
    for old in folder.glob("*.json"):
        old.unlink()
    families = {
        "whole-rows": whole_rows, "names": names, "scalars": scalars, "timestamps": timestamps, "missing-columns": missing_columns,
        "nested-nulls": nested_nulls, "schemas": schemas, "routes": routes, "complaints": complaints,
    }  # fmt: skip
    count = 0
    for name, cases in families.items():
        count += write(folder / f"{name}.json", f"Written by generate_peer.py: {name} of the peer's unit tests.", cases())
    print(f"{count} cases")


if __name__ == "__main__":
    main()
