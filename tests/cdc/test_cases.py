"""What went wrong elsewhere, case by case: each is named by its symptom, and the number in front of it is
that of the list of complaints. All run at once, see `stage.py`."""

from __future__ import annotations

import json
from typing import Iterator

import pytest
from checks import check_deletes
from stage import CASES, FIELDS, TEXT_KEY, WAIT, Stage, Step, Topic, case

from bed import foreign
from bed.read import Question, ask_java, connect_duckdb, local, pyiceberg_table, read_with_java
from bed.sink import sink


@pytest.fixture(scope="module")
def stage(request, worker, broker, rest) -> Iterator[Stage]:
    chosen = {item.name for item in request.session.items}
    made = Stage(worker, broker, rest, "cases", chosen & CASES.keys())
    try:
        made.start()
        made.run()
        yield made
    finally:
        made.stop()


# Promise: the keys of the Tabular sink for changes mean what they say: `cdc-field` with I, U and D over
# four commits leaves no row
# Case: 1
@case("tabular-cdc")
def test_tabulars_cdc_field_is_not_ignored(t: Topic) -> Iterator[Step]:
    # The field of the operation is a column like any other there.
    for number, op in enumerate("CUU"):
        yield [t.upsert(t.row(1, op, n=number)), t.upsert(t.row(2, op))], [(1, op), (2, op)]
    yield [t.upsert(t.row(1, "D"))], [(2, "U")]


# Promise: `upsert-mode-enabled` of the Tabular sink is upserts by key
# Case: 1
@case("tabular-upsert")
def test_tabulars_upsert_mode_is_not_ignored(t: Topic) -> Iterator[Step]:
    yield [t.upsert(t.row(1, "a")), t.upsert(t.row(2, "b"))], [(1, "a"), (2, "b")]
    yield [t.upsert(t.row(1, "c")), t.tombstone(2)], [(1, "c")]


# Promise: a delete that knows only the key finds its row in the partition where it is
# Case: 2
@case(partition_by="day(at)")
def test_a_delete_without_the_old_row_leaves_it_there(t: Topic) -> Iterator[Step]:
    day = 86_400_000_000
    yield [t.insert(1, t.row(1, "a", at=day)), t.insert(2, t.row(2, "b", at=9 * day))], [(1, "a"), (2, "b")]
    yield [t.update(3, t.row(1, "c", at=day))], [(1, "c"), (2, "b")]
    yield [*t.delete(4, 1)], [(2, "b")]
    yield [*t.delete(5, 2)], []


# Promise: an update that moves a row to another partition leaves one row, in that partition
# Complaint: 11
# Case: 3
@case(partition_by="part", version=3)
def test_a_row_that_moves_to_another_partition_is_there_twice(t: Topic) -> Iterator[Step]:
    yield [t.insert(1, t.row(1, "a", part="x")), t.insert(2, t.row(2, "a", part="x"))], [(1, "a"), (2, "a")]
    yield [t.update(3, t.row(1, "b", part="y"))], [(1, "b"), (2, "a")]
    yield [t.update(4, t.row(1, "c", part="z")), t.update(5, t.row(1, "d", part="x"))], [(1, "d"), (2, "a")]
    planned = read_with_java(t.view.location(), "files")
    live = {(file["partition"], int(file["rows"])) for file in planned}
    assert ("part=y", 1) not in live, "a file without rows is still listed"
    assert t.rows("id, part") == [(1, "x"), (2, "x")]


# Promise: an insert and an update of a key that are committed together, because the catalog was down,
# leave the newer row
# Case: 5
@case(version=3)
def test_two_epochs_in_one_commit_lose_or_double_a_row(t: Topic) -> Iterator[Step]:
    yield [t.insert(1, t.row(9, "there"))], [(9, "there")]
    # Other cases wait with this one.
    t.stage.fault("before", 6)
    yield [t.insert(2, t.row(1, "a")), WAIT, t.update(3, t.row(1, "b"))], [(1, "b"), (9, "there")]
    t.stage.fault("after", 1)
    yield [*t.delete(4, 9), t.update(5, t.row(1, "c"))], [(1, "c")]
    assert len({s["snapshot-id"] for s in t.view.snapshots()}) == len(t.view.snapshots())


# Promise: insert, delete and insert of one key in one batch leave the new row
# Complaint: 10
# Case: 6
@case()
def test_insert_delete_insert_in_one_batch_leave_the_old_row(t: Topic) -> Iterator[Step]:
    yield [t.insert(1, t.row(1, "hello")), *t.delete(1, 1), t.insert(1, t.row(1, "hallo"))], [(1, "hallo")]
    back = [t.insert(2, t.row(2, "x")), *t.delete(2, 2)]
    yield back, [(1, "hallo")]


# Promise: rows that a source inserts once more, after it and the sink were started again, are there once
# Case: 8
@case(version=3)
def test_inserts_that_are_sent_again_double_rows(t: Topic) -> Iterator[Step]:
    rows = [t.row(number, f"v{number}") for number in range(20)]
    there = sorted((row["id"], row["v"]) for row in rows)
    yield [t.insert(10 + row["id"], row) for row in rows], there
    # Later than those cases that live from what the tasks have in memory.
    yield [], there
    yield [], there
    yield [], there
    t.stage.restart()
    again = [t.insert(10 + row["id"], row) for row in rows]
    yield [*again, t.insert(100, t.row(99, "new"))], [*there, (99, "new")]


# Promise: events that a producer sends again become no second row where rows are added once: in one batch,
# over commits and partitions, and after all tasks were started again
@case("once", partitions=2, version=3)
def test_events_that_are_sent_again_double_rows(t: Topic) -> Iterator[Step]:
    first = [t.upsert(t.row(key, "a"), partition=key % 2) for key in range(10)]
    there = [(key, "a") for key in range(10)]
    yield [*first, *first], there
    again = [t.upsert(t.row(key, "b"), partition=(key + 1) % 2) for key in range(12)]
    there += [(10, "b"), (11, "b")]
    yield again, there
    yield [], there
    yield [], there
    # The case above has all tasks start again here.
    yield [], there
    late = [t.upsert(t.row(key, "c"), partition=key % 2) for key in range(13)]
    yield late, [*there, (12, "c")]


# Promise: records whose key is nowhere are dead letters that name topic, partition and offset; the others
# land
# Case: 9
@case("upsert", fields=[(*FIELDS[0][:2], True, None), *FIELDS[1:]])
def test_a_record_without_a_key_stops_all_others(t: Topic) -> Iterator[Step]:
    nowhere = t.upsert(t.row(None, "nobody"), keyed=False)
    tombstone = (t.topic, 0, None, None, [])
    only_in_value = t.upsert(t.row(3, "c"), keyed=False)
    sent = [t.upsert(t.row(1, "a")), nowhere, tombstone, only_in_value, t.upsert(t.row(2, "b"))]
    yield sent, [(1, "a"), (2, "b"), (3, "c")]
    assert t.letters() == [("CHANGE_KEY_NULL", 1), ("CHANGE_KEY_NULL", 2)]


# Promise: texts are the same key when their bytes are: the empty text, trailing blanks, case and Unicode
# forms count
# Case: 12
@case("upsert", fields=TEXT_KEY)
def test_keys_that_look_alike_are_taken_for_one(t: Topic) -> Iterator[Step]:
    keys = ["", " ", "a", "A", "a ", "e\u0301", "\u00e9", "null"]
    yield [t.upsert(t.row(key, "1")) for key in keys], [(key, "1") for key in sorted(keys)]
    yield [t.upsert(t.row(key, "2")) for key in keys], [(key, "2") for key in sorted(keys)]
    yield [t.tombstone("a"), t.tombstone("")], [(key, "2") for key in sorted(keys) if key not in ("a", "")]


# Promise: rows that are the same are both kept where rows are appended
# Case: 13
@case("upsert", mode="append", id_columns="")
def test_the_same_row_twice_is_there_once_in_append_mode(t: Topic) -> Iterator[Step]:
    yield [t.upsert(t.row(1, "a")), t.upsert(t.row(1, "a"))], [(1, "a"), (1, "a")]


# Promise: a truncation removes the rows before it, and those that are newer stay
# Case: 14
@case(truncate="truncate")
def test_a_truncation_removes_newer_rows_or_none(t: Topic) -> Iterator[Step]:
    yield [t.insert(10, t.row(1, "a")), t.insert(11, t.row(2, "b"))], [(1, "a"), (2, "b")]
    yield [t.insert(30, t.row(3, "c")), t.change("t", 20)], [(3, "c")]
    yield [t.insert(40, t.row(4, "d")), t.change("t", 50), t.insert(60, t.row(5, "e"))], [(5, "e")]


# Case: 14
@case("schemaless", truncate="truncate", version=3)
def test_a_truncation_without_a_schema_is_a_null_row(t: Topic) -> Iterator[Step]:
    yield [t.insert(10, t.row(1, "a"))], [(1, "a")]
    yield [t.change("t", 20), t.insert(30, t.row(2, "b"))], [(2, "b")]


# Promise: a truncation is ignored where that is said, and else it is an error of the record
# Case: 14
@case(truncate="ignore")
def test_a_truncation_that_is_ignored_removes_rows(t: Topic) -> Iterator[Step]:
    yield [t.insert(10, t.row(1, "a")), t.change("t", 20), t.insert(30, t.row(2, "b"))], [(1, "a"), (2, "b")]
    assert t.letters() == []


# Case: 14
@case()
def test_a_truncation_that_nobody_wants_removes_rows(t: Topic) -> Iterator[Step]:
    yield [t.insert(10, t.row(1, "a")), t.change("t", 20), t.insert(30, t.row(2, "b"))], [(1, "a"), (2, "b")]
    assert t.letters() == [("CHANGE_TRUNCATE", 1)]


# Promise: heartbeats, transaction records, schema changes and logical messages make no rows
# Case: 15
@case("schemaless")
def test_what_is_no_change_becomes_a_row(t: Topic) -> Iterator[Step]:
    source = {"connector": "postgresql", "name": "cases", "ts_ms": 1, "lsn": 5, "table": ""}
    foreign_records = [
        {"ts_ms": 1},
        {"status": "BEGIN", "id": "571:1", "event_count": None, "data_collections": None, "ts_ms": 1},
        {"status": "END", "id": "571:1", "event_count": 1, "data_collections": [], "ts_ms": 1},
        {
            "source": source,
            "ts_ms": 1,
            "databaseName": "shop",
            "schemaName": None,
            "ddl": "CREATE TABLE t (id int)",
            "tableChanges": [],
        },
        {
            "op": "m",
            "ts_ms": 1,
            "source": source,
            "transaction": None,
            "message": {"transactional": True, "prefix": "p", "content": "aGVsbG8="},
        },
    ]
    yield [*map(t.raw, foreign_records), t.insert(6, t.row(1, "a"))], [(1, "a")]
    assert t.letters() == []


# Promise: a topic that gets more partitions, so that keys move to others, doubles nothing once that is
# said to be meant
# Case: 16
@case("grows", partitions=3, version=3)
def test_more_partitions_double_rows(t: Topic) -> Iterator[Step]:
    keys = range(12)
    yield [t.upsert(t.row(key, "a"), partition=key % 3) for key in keys], [(key, "a") for key in keys]
    t.stage.broker.add_partitions(t.topic, 6)
    yield [t.upsert(t.row(key, "b"), partition=key % 6) for key in keys], [(key, "b") for key in keys]


# Promise: deletes that come twice, and tombstones behind them, change nothing more
# Case: 17
@case()
def test_a_second_delete_removes_another_row(t: Topic) -> Iterator[Step]:
    yield [t.insert(1, t.row(1, "a")), t.insert(2, t.row(2, "b"))], [(1, "a"), (2, "b")]
    yield [*t.delete(3, 1), *t.delete(3, 1), t.tombstone(1)], [(2, "b")]
    yield [*t.delete(3, 1), *t.delete(4, 7)], [(2, "b")]
    yield [t.insert(5, t.row(1, "c"))], [(1, "c"), (2, "b")]


# Promise: a text that looks like the placeholder of a value that was left out is a text, where the source
# leaves nothing out
# Case: 19
@case()
def test_the_placeholder_in_a_mysql_row_is_lost(t: Topic) -> Iterator[Step]:
    text = "__debezium_unavailable_value"
    row = t.insert(1, t.row(1, text), connector="mysql")
    yield [row], [(1, text)]


LEFT_OUT = "__debezium_unavailable_value"


# Promise: an update that leaves a long value out (TOAST) keeps it, from the same commit or from the table
# Case: 18
@case(version=3)
def test_a_value_that_was_left_out_is_overwritten(t: Topic) -> Iterator[Step]:
    yield [t.insert(1, t.row(1, "long")), t.insert(2, t.row(2, "b"))], [(1, "long"), (2, "b")]
    left_out = t.update(3, t.row(1, LEFT_OUT, n=5))
    yield [left_out, t.update(4, t.row(2, "c"))], [(1, "long"), (2, "c")]
    assert dict(t.rows("id, n"))[1] == 5
    # In one commit: after a change that has the value, and after one that left it out too.
    both = [t.update(5, t.row(1, "new", n=6)), t.update(6, t.row(1, LEFT_OUT, n=7))]
    twice = [t.update(7, t.row(2, LEFT_OUT, n=8)), t.update(8, t.row(2, LEFT_OUT, n=9))]
    yield [*both, *twice], [(1, "new"), (2, "c")]
    assert t.rows("id, n") == [(1, 7), (2, 9)]
    assert t.letters() == []


@case(version=2, partition_by="v")
def test_a_row_whose_value_was_left_out_lands_in_no_partition(t: Topic) -> Iterator[Step]:
    yield [t.insert(1, t.row(1, "long")), t.insert(2, t.row(2, "b"))], [(1, "long"), (2, "b")]
    yield [t.update(3, t.row(1, LEFT_OUT, n=5))], [(1, "long"), (2, "b")]
    planned = read_with_java(t.view.location(), "files")
    assert sorted(file["partition"] for file in planned) == ["v=b", "v=long"]


# Promise: a value that was left out and that no row of the table has is a dead letter, which says how the
# source sends it; the placeholder is not written
# Case: 19
@case()
def test_a_value_that_nobody_has_is_the_placeholder(t: Topic) -> Iterator[Step]:
    yield [t.insert(1, t.row(1, "a"))], [(1, "a")]
    yield [t.update(2, t.row(7, LEFT_OUT)), t.update(3, t.row(1, LEFT_OUT, n=2))], [(1, "a")]
    assert t.letters() == [("CHANGE_VALUE_UNAVAILABLE", 1)]


@case(unavailable_values="null")
def test_a_value_that_nobody_has_stops_the_task(t: Topic) -> Iterator[Step]:
    yield [t.insert(1, t.row(1, "a"))], [(1, "a")]
    yield [t.update(2, t.row(7, LEFT_OUT)), t.update(3, t.row(1, LEFT_OUT, n=2))], [(1, "a"), (7, None)]
    assert t.letters() == []


# Promise: with soft deletes a deleted row stays with its last values and is marked; when it comes again it is
# not
# Case: 17
@case(soft_delete_column="_deleted", version=3)
def test_a_row_that_comes_again_stays_marked(t: Topic) -> Iterator[Step]:
    yield [t.insert(1, t.row(1, "a", n=1)), t.insert(2, t.row(2, "b"))], [(1, "a"), (2, "b")]
    yield [*t.delete(3, 1), *t.delete(4, 9)], [(1, "a"), (2, "b")]
    assert t.rows("id, n, _deleted") == [(1, 1, True), (2, None, False)]
    yield [*t.delete(3, 1), *t.delete(5, 2), t.insert(6, t.row(2, "c"))], [(1, "a"), (2, "c")]
    assert t.rows("id, _deleted") == [(1, True), (2, False)]
    yield [t.update(7, t.row(2, LEFT_OUT, n=3)), *t.delete(8, 2), t.insert(9, t.row(1, "d"))], [(1, "d"), (2, "c")]
    assert t.rows("id, n, _deleted") == [(1, None, False), (2, 3, True)]


# Promise: three commits that delete from one data file leave one vector, and Iceberg's Java library,
# DuckDB and pyiceberg open every snapshot
# Case: 21
@case(version=3)
def test_commits_that_delete_from_one_file_leave_several_vectors(t: Topic) -> Iterator[Step]:
    yield from _three_deletes(t)
    planned = read_with_java(t.view.location(), "files")
    assert [(int(file["rows"]), int(file["deletes"])) for file in planned] == [(10, 1)]
    deletes = pyiceberg_table(t.view).inspect.delete_files().to_pylist()
    assert [(file["record_count"], file["file_format"]) for file in deletes] == [(3, "PUFFIN")]


# Case: 21
@case(version=2)
def test_commits_that_delete_from_one_file_leave_several_delete_files(t: Topic) -> Iterator[Step]:
    yield from _three_deletes(t)
    planned = read_with_java(t.view.location(), "files")
    assert [(int(file["rows"]), int(file["deletes"])) for file in planned] == [(10, 1)]
    deletes = pyiceberg_table(t.view).inspect.delete_files().to_pylist()
    assert [(file["record_count"], file["file_format"]) for file in deletes] == [(3, "PARQUET")]


def _three_deletes(t: Topic) -> Iterator[Step]:
    rows = {number: f"v{number}" for number in range(10)}
    yield [t.insert(1 + number, t.row(number, v)) for number, v in rows.items()], list(rows.items())
    history = [sorted(rows.items())]
    for number in (4, 0, 9):
        rows.pop(number)
        history.append(sorted(rows.items()))
        yield [*t.delete(20 + number, number)], list(rows.items())
    every_snapshot(t, history)


def every_snapshot(t: Topic, history: list[list[tuple]]) -> None:
    """Each reader reads each snapshot by the metadata file that it came with."""
    metadata = t.view.metadata()
    files = [entry["metadata-file"] for entry in metadata["metadata-log"]]
    files.append(t.stage.catalog.metadata_location(t.view.namespace, t.view.table))
    with_rows = [file for file in files if _snapshot_of(file) is not None]
    answers = ask_java([Question(local(file), "rows") for file in with_rows])
    seen: list[list[tuple]] = []
    for file, rows in zip(with_rows, answers, strict=True):
        by_java = sorted((int(row["id"]), row["v"]) for row in rows)
        scan = f"SELECT id, v FROM iceberg_scan('{local(file)}') ORDER BY id"
        assert connect_duckdb().execute(scan).fetchall() == by_java, file
        if not seen or seen[-1] != by_java:
            seen.append(by_java)
    assert seen == history
    table = pyiceberg_table(t.view)
    by_pyiceberg: list[list[tuple]] = []
    for snapshot in sorted(table.snapshots(), key=lambda one: one.sequence_number):
        read = table.scan(snapshot_id=snapshot.snapshot_id).to_arrow().to_pylist()
        rows = sorted((row["id"], row["v"]) for row in read)
        if not by_pyiceberg or by_pyiceberg[-1] != rows:
            by_pyiceberg.append(rows)
    assert by_pyiceberg == history


def _snapshot_of(file: str) -> int | None:
    found = json.load(open(local(file))).get("current-snapshot-id")
    return None if found in (None, -1) else found


# Promise: after an upgrade of the table to version 3, the first change of a data file puts its position
# deletes, also those of a file for several data files, into its vector
# Case: 24
@case(version=2)
def test_deletes_of_version_2_are_forgotten_after_an_upgrade(t: Topic) -> Iterator[Step]:
    first = [(number, "a") for number in range(4)]
    second = [(number, "b") for number in range(4, 8)]
    yield [t.insert(1 + number, t.row(number, v)) for number, v in first], first
    yield [t.insert(1 + number, t.row(number, v)) for number, v in second], first + second
    # One delete file for both data files.
    foreign.change_with_java(t.stage.catalog, [["delete-wide", t.table, "id", "1", "5"]])
    foreign.must_change(
        t.stage.catalog, t.table, {"action": "upgrade-format-version", "format-version": 3}
    )
    left = [(0, "a"), (2, "c"), (3, "a"), (4, "b"), (6, "b"), (7, "b")]
    yield [t.update(20, t.row(2, "c"))], left
    yield [*t.delete(30, 4)], [row for row in left if row[0] != 4]
    rows = read_with_java(t.view.location(), "rows")
    assert sorted(int(row["id"]) for row in rows) == [0, 2, 3, 6, 7]
    planned = read_with_java(t.view.location(), "files")
    assert max(int(file["deletes"]) for file in planned) == 1, planned


# Promise: a column that another writer drops does not hinder deletes, which go by field ids
# Case: 27
@case("upsert", version=3)
def test_deletes_miss_after_a_column_was_dropped(t: Topic) -> Iterator[Step]:
    yield [t.upsert(t.row(1, "a", n=1)), t.upsert(t.row(2, "b", n=2))], [(1, "a"), (2, "b")]
    _without_column(t, "n")
    yield [t.tombstone(1), t.upsert(t.row(2, "c", n=3))], [(2, "c")]


def _without_column(t: Topic, column: str) -> None:
    metadata = t.view.metadata()
    schema = next(s for s in metadata["schemas"] if s["schema-id"] == metadata["current-schema-id"])
    fields = [field for field in schema["fields"] if field["name"] != column]
    changed = schema | {"fields": fields, "schema-id": schema["schema-id"] + 1}
    foreign.must_change(
        t.stage.catalog,
        t.table,
        {"action": "add-schema", "schema": changed, "last-column-id": metadata["last-column-id"]},
        {"action": "set-current-schema", "schema-id": -1},
    )


# Promise: rows before and after a new column in one batch land together
# Case: 38
@case(evolve_schema_mode="add-only", version=3)
def test_a_new_column_in_the_middle_of_a_batch_parts_it(t: Topic) -> Iterator[Step]:
    yield [t.insert(1, t.row(1, "a"))], [(1, "a")]
    wider = t.wider(("extra", "string", True, None))
    sent = [t.update(2, t.row(1, "b")), wider.update(3, wider.row(1, "c", extra="x")), t.insert(4, t.row(2, "d"))]
    yield sent, [(1, "c"), (2, "d")]
    assert t.rows("id, extra") == [(1, "x"), (2, None)]


# Promise: a change that comes late does not win over a newer one, in the same commit or a later one
# Case: 5
@case(partitions=2)
def test_a_late_change_wins(t: Topic) -> Iterator[Step]:
    yield [t.update(20, t.row(1, "new")), t.insert(10, t.row(1, "old"), partition=1)], [(1, "new")]
    yield [t.update(15, t.row(1, "late"), partition=1), t.insert(30, t.row(2, "x"))], [(1, "new"), (2, "x")]


# Promise: a row of a snapshot does not replace a change, and does not bring back a row that was deleted
@case(version=3)
def test_a_row_of_a_snapshot_wins_over_a_change(t: Topic) -> Iterator[Step]:
    late = {"snapshot": "incremental"}
    yield [t.update(20, t.row(1, "new")), t.insert(21, t.row(2, "x"))], [(1, "new"), (2, "x")]
    yield [t.change("r", 20, t.row(1, "old"), **late), *t.delete(22, 2)], [(1, "new")]
    yield [t.change("r", 19, t.row(2, "old"), **late), t.change("r", 30, t.row(3, "r"), **late)], [
        (1, "new"),
        (3, "r"),
    ]


# Promise: a changed key leaves one row, whichever of its two changes comes first
@case(partitions=2, version=3)
def test_a_changed_key_leaves_both_rows(t: Topic) -> Iterator[Step]:
    yield [t.insert(1, t.row(1, "a")), t.insert(2, t.row(3, "b"))], [(1, "a"), (3, "b")]
    yield [*t.moved(3, 1, t.row(2, "a"))], [(2, "a"), (3, "b")]
    removal, tombstone, arrival = t.moved(4, 3, t.row(4, "b"), partitions=(0, 1))
    yield [arrival, WAIT, removal, tombstone], [(2, "a"), (4, "b")]


# Promise: a key that moves away and back in one transaction keeps its row
@case(version=2, partition_by="bucket(id, 4)")
def test_a_key_that_moves_away_and_back_is_lost(t: Topic) -> Iterator[Step]:
    yield [t.insert(1, t.row(1, "a"))], [(1, "a")]
    yield [*t.moved(2, 1, t.row(2, "a")), *t.moved(2, 2, t.row(1, "b"))], [(1, "b")]


# Promise: rows that another writer deletes, compacts or adds are found again by what commits next
# Case: 43
@case(version=3, partition_by="part")
def test_rows_of_another_writer_are_doubled_or_missed(t: Topic) -> Iterator[Step]:
    rows = [t.row(number, "a", part="xy"[number % 2]) for number in range(8)]
    yield [t.insert(1, row) for row in rows], [(number, "a") for number in range(8)]
    added = foreign.row(id=100, v="theirs", part="x")
    foreign.change_with_java(
        t.stage.catalog,
        [
            ["delete", t.table, "id", "0", "1"],
            ["compact", t.table],
            ["append", t.table, added],
        ],
    )
    sent = [t.update(10, t.row(2, "b", part="y")), t.update(11, t.row(100, "ours", part="y"))]
    sent += [t.insert(12, t.row(0, "back", part="x")), *t.delete(13, 7)]
    left = [(0, "back"), (2, "b"), (3, "a"), (4, "a"), (5, "a"), (6, "a"), (100, "ours")]
    yield sent, left


# Promise: snapshots that others expire take nothing with them that a sink with changes needs
# Case: 30
@case()
def test_expired_snapshots_bring_old_records_back(t: Topic) -> Iterator[Step]:
    yield [t.insert(1, t.row(1, "a")), t.insert(2, t.row(2, "a"))], [(1, "a"), (2, "a")]
    yield [t.update(3, t.row(1, "b"))], [(1, "b"), (2, "a")]
    metadata = t.view.metadata()
    old = [s["snapshot-id"] for s in metadata["snapshots"] if s["snapshot-id"] != metadata["current-snapshot-id"]]
    foreign.must_change(t.stage.catalog, t.table, {"action": "remove-snapshots", "snapshot-ids": old})
    yield [t.update(4, t.row(2, "c"))], [(1, "b"), (2, "c")]


# Promise: no equality deletes and at most one delete file for a data file, whatever the changes were
# Case: 29
def test_readers_meet_equality_deletes(stage):
    views = [topic.view for topic in stage.topics.values() if topic.said is None]
    changed = [view for view in views if view.location() is not None]
    assert changed
    check_deletes(*changed)


# Promise: what would leave equality deletes is refused by name, and so are keys that nobody can compare
# Case: 29
@pytest.mark.parametrize(
    ("keys", "said"),
    [
        ({"delete-mode": "equality"}, "equality"),
        ({"delete-mode": "copy-on-write"}, "copy-on-write"),
        ({"id-columns": ""}, "id-columns"),
        ({"id-columns": "ratio"}, "ratio"),
        ({"mode": "upsrt"}, "upsrt"),
        ({"change-format": "debezum"}, "debezium"),
    ],
)
def test_a_wrong_configuration_is_found_when_records_come(worker, rest, name, keys, said):
    fields = [
        {"name": "id", "type": "long", "required": False},
        {"name": "ratio", "type": "double", "required": True},
    ]
    table = f"{name}.t"
    foreign.create_table(rest, table, fields, [], [], 2)
    config = sink(rest, name, table, name=name)
    every = {"mode": "cdc", "id-columns": "id"} | keys
    config |= {f"iceberg.table.{table}.{key}": value for key, value in every.items() if value}
    errors = worker.validate(config)
    assert said in json.dumps(errors), errors
