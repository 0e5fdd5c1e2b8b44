"""The catalogs' conformance suite, which is Rust, on the REST catalogs of the bed."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

from bed.catalogs import RestCatalog

ROOT = Path(__file__).resolve().parents[2]
SUITE = ["--test", "catalog_conformance_rest", "--", "--ignored", "--test-threads=1"]
KEY_TEST = "a_storage_outlives_its_keys"


def conforms(catalog, flags: str, *words: str) -> str:
    """Runs the suite on `catalog`; `flags` are those of catalog_conformance_rest.rs."""
    prefix = "iceberg.catalog."
    properties = {key.removeprefix(prefix): value for key, value in catalog.connector().items()}
    properties.pop("type")
    environment = {
        **os.environ,
        "FRAZIL_TEST_REST_URI": properties.pop("uri"),
        "FRAZIL_TEST_REST_PROPERTIES": "\n".join(f"{k}={v}" for k, v in properties.items()),
        "FRAZIL_TEST_REST_FLAGS": flags,
        "FRAZIL_TEST_REST_SECONDS": "8",
    }
    command = [os.environ.get("CARGO", "cargo"), "test", "--release", "--workspace", *SUITE, *words]
    run = subprocess.run(
        command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=600
    )
    assert run.returncode == 0, run.stdout[-4000:] + run.stderr[-2000:]
    return run.stdout


# Promise: the REST client passes the catalogs' conformance suite on Apache's reference catalog
def test_the_reference_catalog_conforms(rest):
    told = conforms(rest, "open makes-namespaces faults", "--skip", KEY_TEST)
    assert "test a_rest_catalog ... ok" in told
    assert "test faults_of_a_commit_are_told_apart ... ok" in told


# Promise: the REST client passes the same suite on an independent catalog that vends scoped keys
def test_the_vending_catalog_conforms(weed):
    told = conforms(weed, "creates-twice plain-names vends", "--skip", KEY_TEST)
    assert "test a_rest_catalog ... ok" in told
    assert "test keys_are_vended_where_they_are_wanted ... ok" in told


# Promise: vended keys that live three seconds are renewed while files are written
def test_keys_are_renewed_while_files_are_written(weed, scratch, logs):
    weed.make_bucket("short-keys")
    keys = {
        "s3.endpoint": weed.s3,
        "s3.region": weed.REGION,
        "s3.access-key-id": weed.ACCESS_KEY,
        "s3.secret-access-key": weed.SECRET_KEY,
        "s3.path-style-access": "true",
    }
    catalog = RestCatalog(
        scratch / "rest-short-keys",
        logs,
        warehouse="s3://short-keys/wh",
        backend={"io-impl": "org.apache.iceberg.aws.s3.S3FileIO", **keys},
        vend={**keys, "ttl": "3"},
    )
    try:
        catalog.start()
        told = conforms(catalog, "open makes-namespaces faults vends", KEY_TEST)
        assert f"test {KEY_TEST} ... ok" in told
        # The table's creation is one; keys are due for renewal every 2.7 s.
        loads = catalog.stats()["loads"]
        assert loads >= 3, f"the keys were not renewed: {loads} loads"
    finally:
        catalog.stop()
