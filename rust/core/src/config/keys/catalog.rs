//! Keys of the catalog and of the storage, both below `iceberg.catalog.`.

use super::KeyType::{Boolean, Int, Password, String};
use super::{Group, Key};

/// With which catalogs a key of the REST protocol has a meaning.
const TYPE: &str = "iceberg.catalog.type";
const REST: &[&str] = &["rest"];
const JAVA_CLASS: &str = "the native sink cannot load a Java class; use the `s3.` keys, vended \
                          credentials or the environment's default credentials";
const ASSUME_ROLE: &str = "assuming a role is not there yet; give the worker that role, or let a \
                           REST catalog vend credentials";

/// Keys of the catalog.
pub(super) const CATALOG: Group = Group {
    title: "Catalog",
    intro: "Keys below `iceberg.catalog.` go to the catalog and the storage. Those listed here are \
            known; any other is passed on and reported once.",
    keys: &[
        Key::own("iceberg.catalog", String, "The catalog's name.").or("iceberg"),
        Key::passed(
            "iceberg.catalog.type",
            String,
            "`rest`, or `sql` for a SQLite file (also `jdbc` with a SQLite URI). Required, unless \
             `iceberg.catalog.catalog-impl` is there.",
        )
        .high(),
        Key::passed(
            "iceberg.catalog.catalog-impl",
            String,
            "The Java class of the catalog, mapped to a type: `RESTCatalog` or `JdbcCatalog`.",
        )
        .medium(),
        Key::passed(
            "iceberg.catalog.uri",
            String,
            "Where the catalog is: `https://host/path`, or `sqlite:/path/catalog.db`. Required.",
        )
        .high(),
        Key::passed(
            "iceberg.catalog.warehouse",
            String,
            "The warehouse: a name or location for `rest`, the root location for `sql`.",
        )
        .high(),
        Key::passed(
            "iceberg.catalog.prefix",
            String,
            "The prefix of a REST catalog's paths; the catalog's own configuration may give it.",
        )
        .when(TYPE, REST),
        Key::passed(
            "iceberg.catalog.credential",
            Password,
            "OAuth2 client credentials of a REST catalog, as `id:secret`.",
        )
        .high()
        .when(TYPE, REST),
        Key::passed(
            "iceberg.catalog.token",
            Password,
            "The bearer token of a REST catalog.",
        )
        .high()
        .when(TYPE, REST),
        Key::passed(
            "iceberg.catalog.oauth2-server-uri",
            String,
            "Where tokens come from.",
        )
        .medium()
        .when(TYPE, REST),
        Key::passed(
            "iceberg.catalog.scope",
            String,
            "The scope of tokens; `catalog` when not set.",
        )
        .medium()
        .when(TYPE, REST),
        Key::passed(
            "iceberg.catalog.audience",
            String,
            "The audience of tokens.",
        )
        .when(TYPE, REST),
        Key::passed(
            "iceberg.catalog.resource",
            String,
            "The resource of tokens.",
        )
        .when(TYPE, REST),
        Key::passed(
            "iceberg.catalog.rest.auth.type",
            String,
            "How a REST catalog knows us; follows from the other keys when not set.",
        )
        .one_of(&["none", "oauth2"], "other schemes are not there yet")
        .when(TYPE, REST),
        Key::passed(
            "iceberg.catalog.rest.sigv4-enabled",
            Boolean,
            "Sign the requests to a REST catalog with AWS Signature 4.",
        )
        .refused("signed catalog requests are not there yet; use a catalog with OAuth2")
        .when(TYPE, REST),
        Key::passed(
            "iceberg.catalog.rest.client.connection-timeout-ms",
            Int,
            "How long to wait for a connection to a REST catalog.",
        )
        .within(1, i32::MAX as i64)
        .when(TYPE, REST),
        Key::passed(
            "iceberg.catalog.rest.client.socket-timeout-ms",
            Int,
            "How long a REST catalog may be silent within a request.",
        )
        .within(1, i32::MAX as i64)
        .when(TYPE, REST),
        Key::passed(
            "iceberg.catalog.tls.ca-file",
            String,
            "A PEM file with certificate authorities to trust besides the system's, for the \
             catalog and the storage.",
        ),
        Key::passed(
            "iceberg.catalog.header.*",
            String,
            "A header of every request to a REST catalog.",
        ),
        Key::passed(
            "iceberg.catalog.jdbc.*",
            String,
            "Settings of a JDBC catalog; SQLite needs none of them.",
        ),
        Key::passed(
            "iceberg.catalog.jdbc.password",
            Password,
            "The password of a JDBC catalog; SQLite has none.",
        ),
        Key::passed(
            "iceberg.catalog.*",
            String,
            "Any other property of the catalog or the storage.",
        ),
    ],
};

/// Keys of the storage.
pub(super) const STORAGE: Group = Group {
    title: "Storage",
    intro: "Local files, S3, Google Cloud Storage and Azure; tests run on the first two. A REST catalog may vend credentials and settings; those set here \
            are for catalogs that do not.",
    keys: &[
        Key::passed(
            "iceberg.catalog.io-impl",
            String,
            "The Java class of the file access, checked and mapped: `S3FileIO`, `GCSFileIO`, \
             `ADLSFileIO`, `HadoopFileIO` (local files only) or `ResolvingFileIO`. The location's scheme decides.",
        )
        .medium(),
        Key::passed("iceberg.catalog.client.region", String, "The AWS region.").medium(),
        Key::passed(
            "iceberg.catalog.s3.region",
            String,
            "The AWS region, for S3 alone.",
        ),
        Key::passed(
            "iceberg.catalog.s3.endpoint",
            String,
            "The address of an S3-compatible store.",
        )
        .medium(),
        Key::passed(
            "iceberg.catalog.s3.path-style-access",
            Boolean,
            "Put the bucket into the path, not into the host name; when not set, that is done \
             wherever `s3.endpoint` is set.",
        )
        .medium(),
        Key::passed(
            "iceberg.catalog.s3.access-key-id",
            String,
            "The id of a static S3 key.",
        )
        .medium(),
        Key::passed(
            "iceberg.catalog.s3.secret-access-key",
            Password,
            "The secret of a static S3 key.",
        )
        .medium(),
        Key::passed(
            "iceberg.catalog.s3.session-token",
            Password,
            "The session token of a temporary S3 key.",
        )
        .medium(),
        Key::passed(
            "iceberg.catalog.s3.allow-anonymous",
            Boolean,
            "Send requests to S3 without a signature when there is no key.",
        ),
        Key::passed(
            "iceberg.catalog.s3.sse.type",
            String,
            "Server-side encryption that S3 is asked for.",
        )
        .one_of(&["none", "s3", "kms", "dsse-kms", "custom"], ""),
        Key::passed(
            "iceberg.catalog.s3.sse.key",
            Password,
            "The key of that encryption: a KMS key's id, or a key in base64 for `custom`.",
        ),
        Key::passed(
            "iceberg.catalog.gcs.service.host",
            String,
            "The address of a store that speaks Google's protocol.",
        ),
        Key::passed(
            "iceberg.catalog.gcs.service.path",
            String,
            "The file with a Google service account's key.",
        ),
        Key::passed(
            "iceberg.catalog.gcs.credentials-json",
            Password,
            "A Google service account's key, as JSON.",
        ),
        Key::passed(
            "iceberg.catalog.gcs.oauth2.token",
            Password,
            "A token for Google Cloud Storage.",
        ),
        Key::passed(
            "iceberg.catalog.gcs.no-auth",
            Boolean,
            "Send requests to Google Cloud Storage without credentials.",
        ),
        Key::passed(
            "iceberg.catalog.adls.account-key",
            Password,
            "The shared key of an Azure storage account.",
        ),
        Key::passed(
            "iceberg.catalog.adls.auth.shared-key.account.name",
            String,
            "The name of an Azure storage account.",
        ),
        Key::passed(
            "iceberg.catalog.adls.auth.shared-key.account.key",
            Password,
            "The shared key of an Azure storage account, by the name of Iceberg's Java library.",
        ),
        Key::passed(
            "iceberg.catalog.adls.sas-token",
            Password,
            "The token of an Azure storage account.",
        ),
        Key::passed(
            "iceberg.catalog.adls.sas-token.*",
            Password,
            "The token of the Azure storage account of that name.",
        ),
        Key::passed(
            "iceberg.catalog.adls.connection-string.*",
            Password,
            "The address of the Azure storage account of that name.",
        ),
        Key::passed(
            "iceberg.catalog.adls.tenant-id",
            String,
            "The tenant of an Azure application.",
        ),
        Key::passed(
            "iceberg.catalog.adls.client-id",
            String,
            "The id of an Azure application.",
        ),
        Key::passed(
            "iceberg.catalog.adls.client-secret",
            Password,
            "The secret of an Azure application.",
        ),
        Key::passed(
            "iceberg.catalog.s3.remote-signing-enabled",
            Boolean,
            "Let the catalog sign each request.",
        )
        .or("false")
        .refused("remote signing is not there yet; let the catalog vend credentials"),
        Key::passed(
            "iceberg.catalog.client.credentials-provider",
            Password,
            "A Java class that gives credentials.",
        )
        .refused(JAVA_CLASS),
        Key::passed(
            "iceberg.catalog.client.factory",
            String,
            "A Java class that makes AWS clients.",
        )
        .refused(JAVA_CLASS),
        Key::passed(
            "iceberg.catalog.s3.client-factory-impl",
            String,
            "A Java class that makes S3 clients.",
        )
        .refused(JAVA_CLASS),
        Key::passed(
            "iceberg.catalog.client.assume-role.*",
            String,
            "The role to assume before S3 is used.",
        )
        .refused(ASSUME_ROLE),
    ],
};
