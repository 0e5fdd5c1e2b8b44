"""Names that do not resolve, certificates that expire, and a gateway that wants a password."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from bed.process import wait_until
from bed.proxy import Proxied, refuse

long = pytest.mark.long


# Injection: 53
@pytest.mark.long
def test_a_gateway_wants_a_password(flow, proxy):
    """407 for a while, to whatever is asked: it is no word about the table."""
    with flow(tasks=1).running() as run:
        rule = proxy.rule(refuse(407, "ProxyAuthenticationRequired"))
        run.send(400)
        rule.wait_met(2)
        proxy.clear()
        if run.worker.failure(run.name):
            trace = run.worker.wait_failed(run.name)
            assert "407" in trace, trace
            run.restart_tasks()
        run.check(timeout=120)


# Injection: 53
@pytest.mark.long
def test_the_name_of_the_catalog_does_not_resolve(flow):
    run = flow(iceberg__catalog__uri="http://catalog.invalid:8181")
    errors = run.worker.validate({**run.config, "name": run.name})
    said = str(errors)
    if not said or said == "{}":
        run.broker.create_topic(run.name, run.partitions)
        run.worker.create(run.name, run.config)
        try:
            said = run.worker.wait_failed(run.name, 120)
        finally:
            run.worker.delete(run.name)
    assert "catalog.invalid" in said, said


def make_certificate(folder: Path, name: str, start: str, days: int) -> Path:
    """Makes a self-signed certificate for 127.0.0.1 with its key, as one PEM file."""
    store, pem = folder / f"{name}.p12", folder / f"{name}.pem"
    made = ["keytool", "-genkeypair", "-alias", "bed", "-keyalg", "RSA", "-keysize", "2048"]
    made += ["-dname", f"CN={name}", "-ext", "san=ip:127.0.0.1", "-startdate", start]
    made += ["-validity", str(days), "-storetype", "PKCS12", "-keystore", str(store)]
    subprocess.run([*made, "-storepass", "bedbed", "-noprompt"], check=True, capture_output=True)
    shown = ["openssl", "pkcs12", "-in", str(store), "-nodes", "-passin", "pass:bedbed"]
    subprocess.run([*shown, "-out", str(pem)], check=True, capture_output=True)
    return pem


def certificate_of(pem: Path) -> str:
    text = pem.read_text()
    begin, end = "-----BEGIN CERTIFICATE-----", "-----END CERTIFICATE-----"
    return begin + text.split(begin)[1].split(end)[0] + end + "\n"


# Promise (long): an expired certificate of the catalog is named as such, and a rotated one is taken without
# a new start
# Injection: 53
@pytest.mark.long
def test_a_certificate_expires_and_is_rotated(flow, rest, scratch, name):
    folder = scratch / f"tls-{name}"
    folder.mkdir()
    good = make_certificate(folder, "good", "-1d", 30)
    expired = make_certificate(folder, "expired", "-30d", 10)
    rotated = make_certificate(folder, "rotated", "-1d", 30)
    trusted = folder / "trusted.pem"
    trusted.write_text("".join(certificate_of(pem) for pem in (good, expired, rotated)))
    secured = Proxied(rest, rest.port, certificate=good)
    run = flow(catalog=secured, tasks=1, iceberg__catalog__tls__ca_file=str(trusted))
    try:
        with run.running():
            secured.proxy.present(expired)
            run.send(400)

            def named() -> bool:
                said = (run.worker.failure(run.name) or "") + run.worker.log()
                return "TLS_UNTRUSTED" in said and "xpired" in said

            wait_until("the reason", named, 60)
            secured.proxy.present(rotated)
            if run.worker.failure(run.name):
                run.restart_tasks()
            run.check(timeout=120)
    finally:
        secured.proxy.stop()
