//! Keys of the schema registry, by the names that Confluent's converters give them.

use super::KeyType::{Int, List, Password, String};
use super::{Group, Key};

/// Keys of the schema registry.
pub(super) const REGISTRY: Group = Group {
    title: "Schema registry",
    intro: "Where the schemas are of records that name one: the formats `avro`, `protobuf` and \
            `json-schema` of `frazil.value.format` and `frazil.key.format` \
            ([native-decoding.md](native-decoding.md)). The names are those of Confluent's \
            converters behind `value.converter.`.",
    keys: &[
        Key::own(
            "frazil.schema.registry.url",
            List,
            "The registry's address, or several of one registry: Confluent, Karapace, or Apicurio \
             (`…/apis/ccompat/v7`, `…/apis/registry/v2`, `…/apis/registry/v3`).",
        )
        .medium(),
        Key::own(
            "frazil.schema.registry.basic.auth.user.info",
            Password,
            "User and password for the registry, `user:password`.",
        )
        .medium(),
        Key::own(
            "frazil.schema.registry.bearer.auth.token",
            Password,
            "A token for the registry.",
        )
        .medium(),
        Key::own(
            "frazil.schema.registry.ssl.truststore.location",
            String,
            "A PEM file with the certificates of authorities to trust beside those of the machine.",
        ),
        Key::own(
            "frazil.schema.registry.ssl.keystore.location",
            String,
            "A PEM file with the certificate and the private key by which a registry that asks \
             knows the worker.",
        ),
        Key::own(
            "frazil.schema.registry.latest.cache.ttl.sec",
            Int,
            "Seconds for which the newest schema of a subject is not asked for again.",
        )
        .or("60")
        .within(1, 86_400),
        Key::own(
            "frazil.schema.registry.missing.id.cache.ttl.sec",
            Int,
            "Seconds for which an id that the registry does not know is not asked for again.",
        )
        .or("60")
        .within(0, 86_400),
        Key::own(
            "frazil.value.schema.id",
            String,
            "Where a value says which schema it has: `auto` is in a header of Confluent's or \
             Apicurio's serializers, else in front of the bytes; `frame` is in front of the bytes, \
             and saves reading headers; `latest` is nowhere, and it has the newest schema of \
             `frazil.value.schema.subject`.",
        )
        .or("auto")
        .one_of(&["auto", "frame", "latest"], ""),
        Key::own(
            "frazil.key.schema.id",
            String,
            "The same of keys.",
        )
        .or("auto")
        .one_of(&["auto", "frame", "latest"], ""),
        Key::own(
            "frazil.value.schema.subject",
            String,
            "The subject of values with `frazil.value.schema.id=latest`; `${topic}` is the record's \
             topic. The default is Confluent's `TopicNameStrategy`; for `RecordNameStrategy` name \
             the record type, for `TopicRecordNameStrategy` `${topic}-` and the record type.",
        )
        .or("${topic}-value")
        .when("frazil.value.schema.id", &["latest"]),
        Key::own(
            "frazil.key.schema.subject",
            String,
            "The same of keys.",
        )
        .or("${topic}-key")
        .when("frazil.key.schema.id", &["latest"]),
    ],
};
