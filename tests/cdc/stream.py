"""Random change streams: one topic and what its table has to hold, made from a seed.

A stream changes its model at once, and hands out the records that say so. What it makes is right in
whatever order it is delivered that the stream's own rules allow:

- in order, with kills and rebalances in between;
- the newest records again, from some place on, as a source does that starts again;
- with an order (Debezium), shuffled: but no change is moved over a truncation, changes of one
  transaction stay together, and the sink must not start again in between, for it keeps the orders of
  its keys in memory.
"""

from __future__ import annotations

import datetime
import random
import zlib
from dataclasses import dataclass, field
from typing import Iterable

from records import MICROS, NEW_KEY, OLD_KEY, Fields, Record, Writer, dump

EPOCH = datetime.datetime(2026, 11, 28)
COLUMNS = ("id", "tenant", "region", "seen", "rev", "text")
REGIONS = ("north", "south", "east", "west")
PARTITIONINGS = (None, "region", "bucket(id, 3)", "day(seen)")
# Keys that no stream makes.
FOREIGN = 1_000_000_000

Row = dict


def shown(row: Row) -> tuple:
    """A row as readers are asked for it."""
    return tuple(row[column] for column in COLUMNS)


ROW_FIELDS: Fields = [
    ("id", "int64", False, None),
    ("tenant", "string", False, None),
    ("region", "string", False, None),
    ("seen", "int64", True, MICROS),
    ("rev", "int64", False, None),
    ("text", "string", True, None),
]


def ordered(rows: Iterable[tuple]) -> list[tuple]:
    """Sorts rows that may have nulls, which come last, as DuckDB sorts by all columns."""
    return sorted(rows, key=lambda row: [(value is None, 0 if value is None else value) for value in row])


@dataclass
class Form:
    """How the records of a connector are written."""

    name: str
    debezium: bool
    schemas: bool
    tasks: int


FORMS = (
    Form("dbz", debezium=True, schemas=True, tasks=1),
    Form("dbzless", debezium=True, schemas=False, tasks=2),
    Form("ups", debezium=False, schemas=True, tasks=2),
    Form("upsless", debezium=False, schemas=False, tasks=1),
)


@dataclass
class Stream:
    """One topic, its table and what the table has to hold."""

    seed: int
    form: Form
    namespace: str
    dice: random.Random = field(init=False)
    rows: dict[tuple, Row] = field(default_factory=dict)
    done: dict[str, int] = field(default_factory=dict)
    # Since the round began: its transactions, each as the records of it, and keys that were given up for
    # others.
    recent: list[list[Record]] = field(default_factory=list)
    left: set[tuple] = field(default_factory=set)
    # Whether the sink is left alone, so that it knows the orders of this round's changes.
    calm: bool = True

    def __post_init__(self) -> None:
        self.dice = random.Random(self.seed)
        dice = self.dice
        self.topic = f"{self.namespace}-{self.form.name}-{self.seed}"
        self.table = f"{self.namespace}.{self.form.name}_{self.seed}"
        turn, form = divmod(self.seed, len(FORMS))
        self.version = 2 + turn % 2
        self.partition_by = PARTITIONINGS[(turn + form + turn // 4) % len(PARTITIONINGS)]
        self.key = dice.choice((("id",), ("id", "tenant")))
        self.partitions = dice.choice((1, 1, 2, 3))
        # Rows by key only: the order of a row is in a column, and the newest counts.
        self.ordered = self.form.debezium or dice.random() < 0.4
        # One that is no record: only the value of the key's only column.
        self.bare = not self.form.debezium and len(self.key) == 1 and dice.random() < 0.5
        self.writer = Writer(ROW_FIELDS, self.key, self.form.schemas, self.namespace)
        self.order = 1000
        self.ids = dice.choice((12, 60, 400))

    def __str__(self) -> str:
        by = self.partition_by or "nothing"
        return (
            f"seed {self.seed} ({self.form.name}, version {self.version}, by {by}, key"
            f" {'+'.join(self.key)}, {self.partitions} partitions, {len(self.rows)} rows)"
        )

    def expected(self) -> list[tuple]:
        return ordered(map(shown, self.rows.values()))

    # Rows and keys.

    def _key_of(self, row: Row) -> tuple:
        return tuple(row[column] for column in self.key)

    def _row(self, key: tuple) -> Row:
        dice = self.dice
        offset = datetime.timedelta(microseconds=dice.randrange(4 * 86_400_000_000))
        row = {
            "id": 0,
            "tenant": dice.choice("abc"),
            "region": dice.choice(REGIONS),
            "seen": (EPOCH + offset).isoformat(" ", "microseconds") if dice.random() < 0.95 else None,
            "rev": self.order,
            "text": dice.choice((None, "", "ü", "same", f"t{dice.randrange(10**6)}" * 3)),
        }
        return row | dict(zip(self.key, key))

    def _new_key(self) -> tuple:
        for _ in range(20):
            number = self.dice.randrange(self.ids)
            key = (number,) if len(self.key) == 1 else (number, self.dice.choice("abc"))
            if self.calm or key not in self.left:
                return key
        # A record in another partition may still say that the key was given up; without its memory the
        # sink would believe it.
        self.ids += 1
        return (self.ids, "a")[: len(self.key)]

    def _own(self) -> list[tuple]:
        return [key for key in self.rows if key[0] < FOREIGN]

    def _some_key(self) -> tuple:
        own = self._own()
        return self.dice.choice(own) if own else self._new_key()

    # Records.

    def _wire(self, row: Row | None) -> Row | None:
        """A row as it is in a record: with a schema a moment is a number, else it is a text."""
        if row is None or row["seen"] is None:
            return row
        if not self.form.schemas:
            return row | {"seen": row["seen"].replace(" ", "T")}
        since = datetime.datetime.fromisoformat(row["seen"]) - datetime.datetime(1970, 1, 1)
        return row | {"seen": since // datetime.timedelta(microseconds=1)}

    def _key_bytes(self, key: tuple) -> bytes:
        if self.bare:
            return self.writer.bare_key_bytes(key[0])
        return self.writer.key_bytes(dict(zip(self.key, key)))

    def _record(self, key: tuple, value: bytes | None, headers: list | None = None) -> Record:
        partition = zlib.crc32(repr(key).encode()) % self.partitions
        return self.topic, partition, self._key_bytes(key), value, headers or []

    def _change(self, op: str, before: Row | None, after: Row | None, snapshot: str = "false") -> bytes:
        return self.writer.change(op, self._wire(before), self._wire(after), self.order, snapshot)

    def _upsert(self, row: Row, op: str = "u", snapshot: str = "false") -> Record:
        if self.form.debezium:
            value = self._change(op, None, row, snapshot)
        else:
            value = self.writer.row(self._wire(row))
        return self._record(self._key_of(row), value)

    def _removal(self, key: tuple) -> list[Record]:
        """As PostgreSQL says it: only the key is to be trusted."""
        if not self.form.debezium:
            return [self._record(key, None)]
        made_up = {"id": 0, "tenant": "", "region": "none", "seen": None, "rev": 0, "text": None}
        before = made_up | dict(zip(self.key, key))
        change = self._change("d", before, None)
        return [self._record(key, change), self._record(key, None)]

    # What happens in the source.

    def _put(self) -> list[Record]:
        key = self._new_key()
        op = "u" if key in self.rows else "c"
        self.rows[key] = self._row(key)
        return [self._upsert(self.rows[key], op)]

    def _touch(self) -> list[Record]:
        key = self._some_key()
        fresh = self._row(key)
        # Mostly to another partition, else where it was.
        old = self.rows.get(key)
        if old is not None and self.dice.random() < 0.4:
            fresh |= {"region": old["region"], "seen": old["seen"]}
        self.rows[key] = fresh
        return [self._upsert(fresh)]

    def _remove(self) -> list[Record]:
        key = self._some_key()
        self.rows.pop(key, None)
        return self._removal(key)

    def _move(self) -> list[Record]:
        """Gives a row another key."""
        old = self._some_key()
        new = self._new_key()
        if old not in self.rows or new in self.rows:
            return self._touch()
        self.left.add(old)
        row = self.rows.pop(old) | dict(zip(self.key, new)) | {"rev": self.order}
        self.rows[new] = row
        removal = self._removal(old)
        if not self.form.debezium:
            return [*removal, self._upsert(row)]
        keys = {"old": old, "new": new}
        told = {name: dump(dict(zip(self.key, key))) for name, key in keys.items()}
        removal = [(*record[:4], [(NEW_KEY, told["new"])]) for record in removal]
        arrival = self._upsert(row, "c")
        return [*removal, (*arrival[:4], [(OLD_KEY, told["old"])])]

    def _again_and_again(self) -> list[Record]:
        """Many changes of one key at one place of the log."""
        key, made = self._new_key(), []
        for _ in range(self.dice.randrange(2, 5)):
            self.rows[key] = self._row(key)
            made.append(self._upsert(self.rows[key]))
            if self.dice.random() < 0.3:
                self.rows.pop(key)
                made += self._removal(key)
        return made

    def _late_snapshot(self) -> list[Record]:
        """A row of an incremental snapshot that is older than what was said of it since the round began."""
        if not self.form.debezium or not self.calm:
            return self._touch()
        key = self._some_key()
        self.rows[key] = self._row(key)
        now = self._upsert(self.rows[key])
        before = self._row(key) | {"rev": 0}
        return [now, self._upsert(before, "r", "incremental")]

    def _ignored(self) -> list[Record]:
        """What is no change of a row."""
        if not self.form.debezium:
            return self._put()
        return [self._record(self._some_key(), self.writer.heartbeat())]

    def step(self) -> list[Record]:
        """One transaction."""
        doings = {
            self._put: 40,
            self._touch: 30,
            self._remove: 14,
            self._move: 7,
            self._again_and_again: 5,
            self._late_snapshot: 3,
            self._ignored: 1,
        }
        self.order += self.dice.randrange(1, 50)
        doing = self.dice.choices(list(doings), list(doings.values()))[0]
        self.done[doing.__name__.strip("_")] = self.done.get(doing.__name__.strip("_"), 0) + 1
        records = doing()
        self.recent.append(records)
        return records

    def begin(self, calm: bool) -> None:
        """A new round: the table has all of the one before."""
        self.recent, self.left, self.calm = [], set(), calm

    def snapshot(self, count: int) -> list[Record]:
        """The rows that the source has at the beginning."""
        records = []
        for _ in range(count):
            key = self._new_key()
            if key not in self.rows:
                self.rows[key] = self._row(key)
                records.append(self._upsert(self.rows[key], "r", snapshot="true"))
        self.order += 1
        return records

    def steps(self, count: int) -> list[Record]:
        return [record for _ in range(count) for record in self.step()]

    def shuffled(self, count: int) -> list[Record]:
        """Transactions out of order, where an order is given that all of them have."""
        transactions = [self.step() for _ in range(count)]
        if self.form.debezium:
            places = [index + self.dice.uniform(0, 12) for index in range(count)]
            transactions = [transactions[index] for index in sorted(range(count), key=places.__getitem__)]
        return [record for transaction in transactions for record in transaction]

    def revisions(self, count: int) -> list[Record]:
        """Rows that carry their order in a column, shuffled, some of them twice; no deletes, which have none."""
        if not self.ordered or self.form.debezium:
            return self.steps(count)
        made = []
        for _ in range(count):
            self.order += 1
            key = self._new_key()
            self.rows[key] = self._row(key)
            made.append(self._upsert(self.rows[key]))
        made += self.dice.sample(made, count // 5)
        self.dice.shuffle(made)
        return made

    def replay(self) -> list[Record]:
        """The newest transactions of the round again, as a source sends them that was killed."""
        back = self.dice.randrange(len(self.recent) + 1)
        again = self.recent[len(self.recent) - back :]
        return [record for transaction in again for record in transaction]

    def truncate(self) -> list[Record]:
        """Empties the table. It has no key, so that only a topic of one partition says when it was."""
        if not self.form.debezium or self.partitions > 1:
            return self.steps(1)
        self.order += 5
        self.rows.clear()
        self.done["truncate"] = self.done.get("truncate", 0) + 1
        self.recent = []
        value = self._change("t", None, None)
        return [(self.topic, 0, None, value, [])]

    # What others do to the table.

    def foreign_rows(self, count: int) -> list[Row]:
        """Rows with keys that no stream has, which another writer is about to add."""
        made = []
        for _ in range(count):
            key = (FOREIGN + self.dice.randrange(10**6), *self._new_key()[1:])
            self.rows[key] = self._row(key)
            made.append(self.rows[key])
        return made

    def foreign_removal(self, count: int) -> list[int]:
        """Ids whose rows another writer is about to delete, its own ones and the stream's."""
        ids = sorted({key[0] for key in self.rows})
        chosen = self.dice.sample(ids, min(count, len(ids)))
        for key in [key for key in self.rows if key[0] in chosen]:
            self.rows.pop(key)
        return chosen
