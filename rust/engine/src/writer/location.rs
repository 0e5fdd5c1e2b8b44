//! Names of data files: unique, below the table's data location, safe whatever the records say.

use std::collections::HashMap;

use frazil_core::partition::murmur3;
use frazil_core::{Result, SinkError};

const DATA_PATH: &str = "write.data.path";
const OBJECT_STORAGE: &str = "write.object-storage.enabled";
const OBJECT_STORAGE_PATH: &str = "write.object-storage.path";
const OBJECT_STORAGE_PARTITIONED: &str = "write.object-storage.partitioned-paths";
const FOLDER_STORAGE_PATH: &str = "write.folder-storage.path";
const LOCATION_PROVIDER: &str = "write.location-provider.impl";

/// Where hash directories go, as in Java's `ObjectStoreLocationProvider`.
#[derive(Debug)]
struct ObjectStorage {
    /// `db/table`, when the data location is not the table's own.
    context: Option<String>,
    partitioned: bool,
}

/// Gives out the locations of a writer's files.
#[derive(Debug)]
pub(super) struct Locations {
    data: String,
    prefix: String,
    object_storage: Option<ObjectStorage>,
    next: u32,
}

impl Locations {
    /// Reads the table's location properties. `prefix` makes names unique across writers.
    pub(super) fn new(
        table: &str,
        properties: &HashMap<String, String>,
        prefix: &str,
    ) -> Result<Self> {
        if properties.contains_key(LOCATION_PROVIDER) {
            return Err(SinkError::fatal(
                "TABLE_PROPERTY_UNSUPPORTED",
                format!(
                    "the table names a Java class in `{LOCATION_PROVIDER}`, which cannot be run \
                     here; remove the property or write the table with another engine"
                ),
            ));
        }
        let table = table.trim_end_matches('/');
        let hashed = super::properties::flag(properties, OBJECT_STORAGE, false)?;
        let paths = [DATA_PATH, OBJECT_STORAGE_PATH, FOLDER_STORAGE_PATH];
        let data = paths
            .into_iter()
            .filter(|key| hashed || *key != OBJECT_STORAGE_PATH)
            .find_map(|key| properties.get(key))
            .map(|path| path.trim_end_matches('/').to_string())
            .unwrap_or_else(|| format!("{table}/data"));
        let object_storage = if hashed {
            Some(ObjectStorage {
                context: (!data.starts_with(table)).then(|| context(table)),
                partitioned: super::properties::flag(properties, OBJECT_STORAGE_PARTITIONED, true)?,
            })
        } else {
            None
        };
        Ok(Locations {
            data,
            prefix: prefix.to_string(),
            object_storage,
            next: 0,
        })
    }

    /// Returns a new location for a file of the partition whose path is `partition`.
    pub(super) fn next(&mut self, partition: &str) -> String {
        let file = format!("{}-{}.parquet", self.prefix, self.next);
        self.next += 1;
        self.place(partition, file)
    }

    fn place(&self, partition: &str, file: String) -> String {
        let name = if partition.is_empty() {
            file.clone()
        } else {
            format!("{partition}/{file}")
        };
        let data = &self.data;
        let Some(storage) = &self.object_storage else {
            return format!("{data}/{name}");
        };
        let name = if storage.partitioned { name } else { file };
        let hash = hash_directories(&name);
        match &storage.context {
            Some(context) => format!("{data}/{hash}/{context}/{name}"),
            None if storage.partitioned => format!("{data}/{hash}/{name}"),
            None => format!("{data}/{hash}-{name}"),
        }
    }
}

/// Returns where a file called `name` lies among the data files of a table.
///
/// # Errors
///
/// `TABLE_PROPERTY_UNSUPPORTED` when a Java class would say where.
pub fn beside_data(
    table: &str,
    properties: &HashMap<String, String>,
    name: String,
) -> Result<String> {
    Ok(Locations::new(table, properties, "")?.place("", name))
}

/// Returns the last two parts of the table's location.
fn context(table: &str) -> String {
    let mut parts = table.rsplit('/');
    let name = parts.next().unwrap_or_default();
    match parts.next() {
        Some(parent) if !parent.is_empty() => format!("{parent}/{name}"),
        _ => name.to_string(),
    }
}

/// Returns the low 20 bits of the name's hash as `0101/0110/1001/10110010`.
fn hash_directories(name: &str) -> String {
    let bits = format!("{:020b}", murmur3(name.as_bytes()) as u32 & 0xf_ffff);
    let (one, rest) = bits.split_at(4);
    let (two, rest) = rest.split_at(4);
    let (three, rest) = rest.split_at(4);
    format!("{one}/{two}/{three}/{rest}")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn locations(properties: &[(&str, &str)]) -> Result<Locations> {
        let properties = properties
            .iter()
            .map(|(key, value)| (key.to_string(), value.to_string()))
            .collect();
        Locations::new("s3://b/wh/db/t/", &properties, "frazil-w-s-7")
    }

    #[test]
    fn files_lie_in_their_partition_below_the_data_location() {
        let mut plain = locations(&[]).unwrap();
        assert_eq!(plain.next(""), "s3://b/wh/db/t/data/frazil-w-s-7-0.parquet");
        assert_eq!(
            plain.next("d=..%2F"),
            "s3://b/wh/db/t/data/d=..%2F/frazil-w-s-7-1.parquet"
        );
        let mut moved = locations(&[(DATA_PATH, "s3://c/x/")]).unwrap();
        assert_eq!(moved.next("d=1"), "s3://c/x/d=1/frazil-w-s-7-0.parquet");
    }

    /// `a` hashes to 1009084850 = 0b0011_1100_0010_0101_0110_1001_1011_0010.
    #[test]
    fn hash_directories_are_those_of_the_java_library() {
        assert_eq!(hash_directories("a"), "0101/0110/1001/10110010");
        assert_eq!(hash_directories("/a/b").len(), 23);
        let mut own = locations(&[(OBJECT_STORAGE, "true")]).unwrap();
        let name = "d=1/frazil-w-s-7-0.parquet";
        let hash = hash_directories(name);
        assert_eq!(
            own.next("d=1"),
            format!("s3://b/wh/db/t/data/{hash}/{name}")
        );
        let mut foreign = locations(&[(OBJECT_STORAGE, "true"), (DATA_PATH, "s3://c/x")]).unwrap();
        assert_eq!(foreign.next("d=1"), format!("s3://c/x/{hash}/db/t/{name}"));
        let flat = [
            (OBJECT_STORAGE, "true"),
            (OBJECT_STORAGE_PARTITIONED, "false"),
        ];
        let mut flat = locations(&flat).unwrap();
        let hash = hash_directories("frazil-w-s-7-0.parquet");
        assert_eq!(
            flat.next("d=1"),
            format!("s3://b/wh/db/t/data/{hash}-frazil-w-s-7-0.parquet")
        );
    }

    #[test]
    fn a_java_location_provider_is_refused() {
        let error = locations(&[(LOCATION_PROVIDER, "com.acme.Mine")]).unwrap_err();
        assert_eq!(error.code(), "TABLE_PROPERTY_UNSUPPORTED");
    }
}
