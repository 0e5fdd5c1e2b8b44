"""What `./x bench` runs: records, tables, and how each sink is configured for them."""

from __future__ import annotations

from dataclasses import dataclass, field

FLOOR, PEER, FRAZIL = "floor", "peer", "frazil"

BYTES = {"value.converter": "org.apache.kafka.connect.converters.ByteArrayConverter"}
JSON = {
    "value.converter": "org.apache.kafka.connect.json.JsonConverter",
    "value.converter.schemas.enable": "false",
}
ENVELOPE = {**JSON, "value.converter.schemas.enable": "true"}
# Stands for the address of the schema registry until there is one.
REGISTRY = "@REGISTRY@"
AVRO = {
    "value.converter": "io.apicurio.registry.utils.converter.AvroConverter",
    "value.converter.apicurio.registry.url": f"{REGISTRY}/apis/registry/v2",
    "value.converter.apicurio.registry.as-confluent": "true",
    "value.converter.apicurio.registry.id-handler": "io.apicurio.registry.serde.Legacy4ByteIdHandler",
}


def native(form: str, **more: str) -> dict[str, str]:
    """Returns what lets Frazil decode the bytes itself."""
    return {**BYTES, "frazil.value.format": form, **more}


NATIVE_AVRO = native("avro", **{"frazil.schema.registry.url": REGISTRY})
NATIVE_PROTOBUF = native("protobuf", **{"frazil.schema.registry.url": REGISTRY})


@dataclass(frozen=True)
class Struct:
    """A struct of named columns; every one may be null."""

    fields: tuple[tuple[str, object], ...]


@dataclass(frozen=True)
class List:
    element: object


@dataclass(frozen=True)
class Map:
    """A map from strings."""

    value: object


EVENT = Struct(
    (
        ("id", "long"),
        ("user_id", "long"),
        ("event_type", "string"),
        ("ts", "long"),
        ("amount", "double"),
        ("country", "string"),
        ("session", "string"),
        ("device", "string"),
        ("is_new", "boolean"),
        ("url", "string"),
    )
)
# As `Records.java` makes them.
WIDE = Struct(
    (
        ("id", "long"),
        *((f"c{n}", ("long", "double", "string", "boolean", "string")[n % 5]) for n in range(1, 200)),
    )
)
NESTED = Struct(
    (
        ("id", "long"),
        (
            "customer",
            Struct((("name", "string"), ("address", Struct((("city", "string"), ("zip", "string")))))),
        ),
        ("items", List(Struct((("sku", "string"), ("quantity", "long"), ("price", "double"))))),
        ("tags", List("string")),
        ("attributes", Map("string")),
    )
)
COLUMNS = {"event": EVENT, "shop800": EVENT, "wide": WIDE, "nested": NESTED}

AVRO_SCHEMA = {
    "type": "record",
    "name": "Event",
    "namespace": "io.frazil.bench",
    "fields": [{"name": "id", "type": "long"}]
    + [
        {"name": name, "type": ["null", kind], "default": None}
        for name, kind in EVENT.fields
        if name != "id"
    ],
}
PROTOBUF_TYPES = {"long": "int64", "string": "string", "double": "double", "boolean": "bool"}
PROTOBUF_SCHEMA = (
    'syntax = "proto3";\npackage io.frazil.bench;\nmessage Event {\n'
    + "".join(
        f"  {'' if name == 'id' else 'optional '}{PROTOBUF_TYPES[str(kind)]} {name} = {number};\n"
        for number, (name, kind) in enumerate(EVENT.fields, 1)
    )
    + "}\n"
)


@dataclass(frozen=True)
class Variant:
    """One sink as it is configured in a scenario."""

    side: str
    config: dict[str, str]
    tasks: int = 1


@dataclass(frozen=True)
class Goal:
    """A ratio of CPU-seconds per million records that a scenario is there for."""

    over: str
    under: str
    bound: float
    at_least: bool = True

    def __str__(self) -> str:
        return f"{self.over}/{self.under} {'>=' if self.at_least else '<='} {self.bound}"

    def held(self, ratio: float) -> bool:
        return ratio >= self.bound if self.at_least else ratio <= self.bound


@dataclass(frozen=True)
class Scenario:
    """One row of the table in docs/benchmarks.md."""

    name: str
    text: str
    kind: str
    format: str
    records: int
    variants: dict[str, Variant]
    goals: tuple[Goal, ...] = ()
    partition: tuple[tuple[str, str], ...] = ()
    """Column and transform of each partition field."""
    heap: str = "2g"
    s3: bool = False
    without: dict[str, str] = field(default_factory=dict)
    """Why a sink takes no part."""


def three(floor: dict[str, str], peer: dict[str, str], frazil: dict[str, str], tasks: int = 1) -> dict[str, Variant]:
    """Returns the usual three: no sink, Apache's, and Frazil."""
    return {
        FLOOR: Variant(FLOOR, floor, tasks),
        PEER: Variant(PEER, peer, tasks),
        FRAZIL: Variant(FRAZIL, frazil, tasks),
    }


def behind(converter: dict[str, str], tasks: int = 1) -> dict[str, Variant]:
    """Returns the three behind one of Connect's converters."""
    return three(converter, converter, converter, tasks)


BEHIND = (Goal(PEER, FRAZIL, 1.8),)
EVOLVE = {"iceberg.tables.evolve-schema-enabled": "true"}

SCENARIOS = [
    Scenario("json", "JSON of 213 B behind JsonConverter", "event", "json", 1_000_000, behind(JSON), BEHIND),
    Scenario(
        "json-raw",
        "the same bytes, decoded by Frazil; JsonConverter for the peer",
        "event",
        "json",
        1_000_000,
        three(BYTES, JSON, native("json")),
        (Goal(PEER, FRAZIL, 4), Goal(FRAZIL, FLOOR, 2, at_least=False)),
    ),
    Scenario(
        "envelope",
        "JSON with Connect's schema envelope of 784 B behind JsonConverter",
        "event",
        "envelope",
        400_000,
        behind(ENVELOPE),
        BEHIND,
    ),
    Scenario(
        "envelope-raw",
        "the same bytes, decoded by Frazil; JsonConverter for the peer",
        "event",
        "envelope",
        400_000,
        three(BYTES, ENVELOPE, native("json-envelope")),
        (Goal(PEER, FRAZIL, 5),),
    ),
    Scenario("avro", "Avro with a registry behind AvroConverter", "event", "avro", 600_000, behind(AVRO), BEHIND),
    Scenario(
        "avro-raw",
        "the same bytes, decoded by Frazil; AvroConverter for the peer",
        "event",
        "avro",
        600_000,
        three(BYTES, AVRO, NATIVE_AVRO),
        (Goal(PEER, FRAZIL, 5),),
    ),
    Scenario(
        "protobuf-raw",
        "Protobuf with a registry, decoded by Frazil",
        "event",
        "protobuf",
        1_000_000,
        {FLOOR: Variant(FLOOR, BYTES), FRAZIL: Variant(FRAZIL, NATIVE_PROTOBUF)},
        without={PEER: "no converter for Protobuf is on Maven Central"},
    ),
    Scenario("wide", "JSON of 200 columns behind JsonConverter", "wide", "json", 60_000, behind(JSON), BEHIND),
    Scenario(
        "wide-raw",
        "the same bytes, decoded by Frazil; JsonConverter for the peer",
        "wide",
        "json",
        60_000,
        three(BYTES, JSON, native("json")),
    ),
    Scenario(
        "nested",
        "JSON with structs, lists and a map behind JsonConverter",
        "nested",
        "json",
        500_000,
        behind(JSON),
        BEHIND,
    ),
    Scenario(
        "nested-raw",
        "the same bytes, decoded by Frazil; JsonConverter for the peer",
        "nested",
        "json",
        500_000,
        three(BYTES, JSON, native("json")),
    ),
    Scenario(
        "bucket16",
        "JSON behind JsonConverter into bucket(16, user_id)",
        "event",
        "json",
        800_000,
        behind(JSON),
        BEHIND,
        partition=(("user_id", "bucket[16]"),),
    ),
    Scenario(
        "identity800",
        "JSON behind JsonConverter into 800 identity partitions",
        "shop800",
        "json",
        200_000,
        behind(JSON),
        BEHIND,
        partition=(("country", "identity"),),
        heap="3g",
    ),
    Scenario(
        "s3",
        "JSON behind JsonConverter to S3 with keys that the catalog vends",
        "event",
        "json",
        800_000,
        behind(JSON),
        BEHIND,
        s3=True,
    ),
    Scenario(
        "tasks2",
        "JSON behind JsonConverter on 2 tasks, and on 1 in the same rounds",
        "event",
        "json",
        1_000_000,
        {**behind(JSON, 2), "peer_1": Variant(PEER, JSON), "frazil_1": Variant(FRAZIL, JSON)},
        (Goal(FRAZIL, "frazil_1", 1.15, at_least=False),),
    ),
    Scenario(
        "evolution",
        "JSON behind JsonConverter with schema evolution on, and off in the same rounds",
        "event",
        "json",
        1_000_000,
        {
            FLOOR: Variant(FLOOR, JSON),
            PEER: Variant(PEER, {**JSON, **EVOLVE}),
            FRAZIL: Variant(FRAZIL, {**JSON, **EVOLVE}),
            "frazil_off": Variant(FRAZIL, JSON),
        },
        (Goal(FRAZIL, "frazil_off", 1.1, at_least=False),),
    ),
]


class Ids:
    """Numbers columns as a new table's schema wants them."""

    def __init__(self) -> None:
        self.last = 0

    def next(self) -> int:
        self.last += 1
        return self.last

    def type(self, kind: object) -> object:
        """Returns a type in Iceberg's JSON."""
        if isinstance(kind, Struct):
            fields = [
                {"id": self.next(), "name": name, "required": False, "type": inner}
                for name, inner in kind.fields
            ]
            # All fields of a level are numbered before those below.
            return {"type": "struct", "fields": [{**f, "type": self.type(f["type"])} for f in fields]}
        if isinstance(kind, List):
            element = self.next()
            return {
                "type": "list",
                "element-id": element,
                "element-required": False,
                "element": self.type(kind.element),
            }
        if isinstance(kind, Map):
            key, value = self.next(), self.next()
            return {
                "type": "map",
                "key-id": key,
                "key": "string",
                "value-id": value,
                "value-required": False,
                "value": self.type(kind.value),
            }
        return kind


def table_schema(kind: str) -> dict:
    """Returns the schema of the table for records of a kind, in Iceberg's JSON."""
    struct = Ids().type(COLUMNS[kind])
    assert isinstance(struct, dict)
    return {**struct, "schema-id": 0}


def table_spec(kind: str, partition: tuple[tuple[str, str], ...]) -> dict:
    """Returns the partition spec, in Iceberg's JSON."""
    ids = {field["name"]: field["id"] for field in table_schema(kind)["fields"]}
    fields = [
        {"source-id": ids[column], "field-id": 1000 + index, "name": f"{column}_part", "transform": how}
        if how != "identity"
        else {"source-id": ids[column], "field-id": 1000 + index, "name": column, "transform": how}
        for index, (column, how) in enumerate(partition)
    ]
    return {"spec-id": 0, "fields": fields}
