"""A shop in a database: what it sells changes in all the ways that a row can change, and what its tables
hold is compared with what other engines read of ours."""

from __future__ import annotations

import base64
import datetime
import random
import threading
import time
import uuid

from bed.databases import Maria, Postgres
from bed.process import BedError, wait_until
from bed.read import TableView, read_with_java

STATUS = ("new", "paid", "packed", "shipped", "returned")
COLUMNS = ("tenant", "nr", "status", "qty", "amount", "flag", "placed", "seen", "born", "payload", "note")
EPOCH = datetime.datetime(2026, 11, 28)
# What a table of ours holds, in the words that both databases use below.
ICEBERG = {
    "tenant": "tenant",
    "nr": "nr",
    "status": "status",
    "qty": "qty",
    "amount": "amount::VARCHAR",
    "flag": "flag::INTEGER",
    "placed": "strftime(placed AT TIME ZONE 'UTC', '%Y-%m-%d %H:%M:%S.%f')",
    "seen": "strftime(seen, '%Y-%m-%d %H:%M:%S.%f')",
    "born": "born::VARCHAR",
    "payload": "payload",
    "note": "note",
}


def _quoted(text: str | None) -> str:
    return "null" if text is None else "'" + text.replace("'", "''") + "'"


class Shop:
    """The statements that both databases understand. All of them go to all tables of the shop."""

    NAMES: tuple[str, ...]

    def __init__(self, seed: int, schema: str) -> None:
        self.tables = tuple(f"{schema}.{name}" for name in self.NAMES)
        self.dice = random.Random(seed)
        self.keys: list[tuple[int, int]] = []
        self.done: dict[str, int] = {}
        self._next = 0
        self._failure: str | None = None
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None

    def run(self, statements: list[str]) -> None:
        raise NotImplementedError

    # What a shop does.

    def _fresh(self) -> tuple[int, int]:
        self._next += 1
        key = self.dice.randrange(4), self._next
        self.keys.append(key)
        return key

    def _any(self) -> tuple[int, int]:
        return self.dice.choice(self.keys) if self.keys else (0, 0)

    def _moment(self) -> str:
        offset = datetime.timedelta(microseconds=self.dice.randrange(3 * 86_400_000_000))
        return f"'{EPOCH + offset:%Y-%m-%d %H:%M:%S.%f}'"

    def _text(self) -> str:
        """Long enough for PostgreSQL to keep it apart, and it does not compress."""
        return base64.b64encode(self.dice.randbytes(self.dice.choice((4, 40, 3000)))).decode()

    def _payload(self) -> str:
        return f'{{"k": {self.dice.randrange(100)}, "text": "{self._text()}"}}'

    def insert(self, key: tuple[int, int] | None = None) -> str:
        tenant, no = key or self._fresh()
        dice = self.dice
        values = [
            str(tenant),
            str(no),
            _quoted(dice.choice(STATUS)),
            str(dice.randrange(1000)) if dice.random() < 0.9 else "null",
            f"{dice.randrange(-10**6, 10**9) / 100:.2f}",
            dice.choice(("0", "1", "null")),
            self._moment(),
            self._moment() if dice.random() < 0.8 else "null",
            f"'19{dice.randrange(60, 99)}-0{dice.randrange(1, 9)}-{dice.randrange(10, 28)}'",
            _quoted(self._payload()),
            _quoted(self._text() if dice.random() < 0.9 else None),
        ]
        return f"insert into {{t}}({', '.join(self.names())}) values ({', '.join(values)})"

    def names(self) -> list[str]:
        """The names of the columns as this database writes them."""
        return list(COLUMNS)

    def _where(self, key: tuple[int, int]) -> str:
        return f"where tenant = {key[0]} and nr = {key[1]}"

    def update(self) -> str:
        """Leaves the long values alone."""
        change = self.dice.choice(
            (
                f"status = {_quoted(self.dice.choice(STATUS))}",
                f"qty = {self.dice.randrange(1000)}",
                f"placed = {self._moment()}",  # to another partition, most of the time
                f"amount = amount + {self.dice.randrange(100)}, flag = null",
            )
        )
        return f"update {{t}} set {change} {self._where(self._any())}"

    def rewrite(self) -> str:
        return f"update {{t}} set note = {_quoted(self._text())} {self._where(self._any())}"

    def move(self) -> str:
        """Gives a row another key."""
        old = self._any()
        if old not in self.keys:
            return self.insert()
        self.keys.remove(old)
        return f"update {{t}} set nr = {self._fresh_of(old)} {self._where(old)}"

    def _fresh_of(self, old: tuple[int, int]) -> int:
        self._next += 1
        self.keys.append((old[0], self._next))
        return self._next

    def delete(self) -> str:
        key = self._any()
        if key in self.keys:
            self.keys.remove(key)
        return f"delete from {{t}} {self._where(key)}"

    def several(self) -> str:
        """Many changes of one key in one transaction, which ends with the row or without it."""
        key = self._fresh()
        where = self._where(key)
        steps = [
            "begin",
            self.insert(key),
            f"update {{t}} set qty = 1 {where}",
            f"update {{t}} set qty = 2, note = {_quoted(self._text())} {where}",
            f"delete from {{t}} {where}",
        ]
        if self.dice.random() < 0.5:
            steps.append(self.insert(key))
        else:
            self.keys.remove(key)
        return "; ".join([*steps, "commit"])

    def away_and_back(self) -> str:
        """Moves a key away and back in one transaction."""
        tenant, no = self._any()
        back = f"update {{t}} set nr = {no} where tenant = {tenant} and nr = {-no - 1}"
        away = f"update {{t}} set nr = {-no - 1} {self._where((tenant, no))}"
        return f"begin; {away}; {back}; commit"

    def thrown_away(self) -> str:
        return f"begin; {self.delete_nothing()}; {self.insert((9, 9))}; rollback"

    def delete_nothing(self) -> str:
        return f"delete from {{t}} {self._where(self._any())}"

    def step(self) -> str:
        doings = {
            self.insert: 30,
            self.update: 35,
            self.rewrite: 8,
            self.move: 8,
            self.delete: 10,
            self.several: 3,
            self.away_and_back: 3,
            self.thrown_away: 1,
        }
        doing = self.dice.choices(list(doings), list(doings.values()))[0]
        self.done[doing.__name__] = self.done.get(doing.__name__, 0) + 1
        return doing()

    def do(self, count: int) -> None:
        steps = [self.step() for _ in range(count)]
        self.run([step.replace("{t}", table) for step in steps for table in self.tables])

    # All the time, in the background.

    def open(self, count: int = 40, pause: float = 0.4) -> None:
        def work() -> None:
            while not self._stop.wait(pause):
                try:
                    self.do(count)
                except BedError as error:
                    self._failure = str(error)
                    return

        self._thread = threading.Thread(target=work, daemon=True)
        self._thread.start()

    def close(self) -> None:
        self._stop.set()
        if self._thread is not None:
            self._thread.join(60)
        if self._failure is not None:
            raise BedError(self._failure)

    def rows(self, table: str) -> list[tuple]:
        """What a table holds, in the order of its key."""
        raise NotImplementedError


class PostgresShop(Shop):
    """`orders_full` logs whole rows. So does `orders` with `whole`; else its changes leave long values out
    that they did not touch."""

    NAMES = ("orders", "orders_full")
    EXPRESSIONS = {
        "amount": "amount::text",
        "flag": "flag::int",
        "placed": "to_char(placed at time zone 'UTC', 'YYYY-MM-DD HH24:MI:SS.US')",
        "seen": "to_char(seen, 'YYYY-MM-DD HH24:MI:SS.US')",
        "born": "born::text",
        "payload": "payload::text",
    }

    def __init__(self, postgres: Postgres, seed: int, schema: str, *, whole: bool) -> None:
        super().__init__(seed, schema)
        self.postgres = postgres
        columns = """(tenant int not null, nr bigint not null, status text not null default 'new',
            qty int, amount numeric(14,2), flag boolean, placed timestamptz default now(),
            seen timestamp(6), born date, payload jsonb, note text, primary key (tenant, nr))"""
        self.run(
            [
                f"create schema {schema}",
                f"create table {schema}.orders {columns}",
                f"alter table {schema}.orders alter note set storage external",
                f"alter table {schema}.orders replica identity {'full' if whole else 'default'}",
                f"create table {schema}.orders_full (like {schema}.orders including all)",
                f"alter table {schema}.orders_full replica identity full",
            ]
        )

    def run(self, statements: list[str]) -> None:
        self.postgres.sql("set time zone 'UTC';\n" + ";\n".join(statements) + ";\n")

    def insert(self, key: tuple[int, int] | None = None) -> str:
        made = super().insert(key)
        head, values = made.split(" values ")
        flagged = values.split(", ")
        flagged[5] = {"0": "false", "1": "true"}.get(flagged[5], flagged[5])
        return f"{head} values {', '.join(flagged)}"

    def rows(self, table: str) -> list[tuple]:
        chosen = ", ".join(f"{self.EXPRESSIONS.get(c, c)} as {c}" for c in COLUMNS)
        found = self.postgres.rows(f"select {chosen} from {table} order by tenant, nr")
        return [tuple(row[c] for c in COLUMNS) for row in found]


class MariaShop(Shop):
    """One table, whose key has an unsigned number in it."""

    NAMES = ("orders",)
    EXPRESSIONS = {
        "amount": "cast(amount as char)",
        "placed": "date_format(placed, '%Y-%m-%d %H:%i:%s.%f')",
        "seen": "date_format(seen, '%Y-%m-%d %H:%i:%s.%f')",
        "born": "cast(born as char)",
    }

    def __init__(self, maria: Maria, seed: int, schema: str) -> None:
        super().__init__(seed, schema)
        self.maria = maria
        self.run(
            [
                f"create database {schema} character set utf8mb4",
                f"""create table {schema}.orders (tenant int not null, nr bigint not null,
                status varchar(20) not null default 'new', qty int, amount decimal(14,2),
                flag tinyint(1), placed timestamp(6) null default current_timestamp(6),
                seen datetime(6), born date, payload longtext, note longtext,
                primary key (tenant, nr))""",
            ]
        )

    def run(self, statements: list[str]) -> None:
        self.maria.sql("set time_zone = '+00:00';\n" + ";\n".join(statements) + ";\n")

    def rows(self, table: str) -> list[tuple]:
        expressions = {c: self.EXPRESSIONS.get(c, c) for c in COLUMNS}
        found = self.maria.rows(expressions, f"from {table} order by tenant, nr")
        return [tuple(row[c] for c in COLUMNS) for row in found]


def differences(expected: list[tuple], found: list[tuple]) -> str:
    """Says in short how two tables differ; nothing when they do not."""
    if expected == found:
        return ""
    wanted = {row[:2]: row for row in expected}
    there: dict[tuple, list[tuple]] = {}
    for row in found:
        there.setdefault(row[:2], []).append(row)
    missing = sorted(wanted.keys() - there.keys())
    extra = sorted(there.keys() - wanted.keys())
    twice = sorted(key for key, rows in there.items() if len(rows) > 1)
    wrong = [
        (key, [name for name, a, b in zip(COLUMNS, wanted[key], rows[0]) if a != b])
        for key, rows in there.items()
        if key in wanted and rows[0] != wanted[key]
    ]
    return (
        f"{len(expected)} rows expected, {len(found)} found; missing {missing[:5]} ({len(missing)}),"
        f" extra {extra[:5]} ({len(extra)}), twice {twice[:5]} ({len(twice)}),"
        f" wrong {wrong[:5]} ({len(wrong)})"
    )


def table_rows(view: TableView) -> list[tuple]:
    """What DuckDB reads of a table of ours."""
    if view.location() is None or view.metadata().get("current-snapshot-id") in (None, -1):
        return []
    chosen = ", ".join(ICEBERG.values())
    return view.query(f"SELECT {chosen} FROM {{t}} ORDER BY tenant, nr")


def wait_same(shop: Shop, views: dict[str, TableView], timeout: float) -> None:
    """Waits until each table of ours has what the table in the database has."""
    said: dict[str, str] = {}

    def same() -> bool:
        for table, view in views.items():
            said[table] = differences(shop.rows(table), table_rows(view))
            if said[table]:
                return False
        return True

    try:
        wait_until("the tables to be the same", same, timeout, 1)
    except BedError:
        raise AssertionError(f"they are not the same: {said}") from None


def check_readers(shop: Shop, views: dict[str, TableView]) -> None:
    """Iceberg's Java library reads the same keys, and each file has one delete file at most."""
    for table, view in views.items():
        rows = read_with_java(view.location(), "rows")
        keys = sorted((int(row["tenant"]), int(row["nr"]), row["status"]) for row in rows)
        assert keys == [row[:3] for row in shop.rows(table)], table


def pause(seconds: float) -> None:
    """Waits, where how long something goes on is what is asked for."""
    time.sleep(seconds)


def unique() -> str:
    return f"s{uuid.uuid4().hex[:8]}"
