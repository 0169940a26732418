"""Servers that speak TLS."""

from __future__ import annotations

import ipaddress
import ssl
from datetime import datetime, timedelta
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

CERTIFICATE = "certificate.pem"


def self_signed(folder: Path) -> ssl.SSLContext:
    """Of a server at 127.0.0.1 with a certificate that nobody trusts; it is written into the folder."""
    key, now = ec.generate_private_key(ec.SECP256R1()), datetime.now()
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "127.0.0.1")])
    builder = x509.CertificateBuilder(name, name, key.public_key(), x509.random_serial_number())
    builder = builder.not_valid_before(now - timedelta(days=2)).not_valid_after(now + timedelta(days=2))
    address = x509.IPAddress(ipaddress.ip_address("127.0.0.1"))
    signed = builder.add_extension(x509.SubjectAlternativeName([address]), critical=False).sign(key, hashes.SHA256())
    secret = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    (folder / "key.pem").write_bytes(secret)
    (folder / CERTIFICATE).write_bytes(signed.public_bytes(serialization.Encoding.PEM))
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(folder / CERTIFICATE, folder / "key.pem")
    return context
