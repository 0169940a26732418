"""Which errors of TLS pass by themselves."""

#: OpenSSL's reasons that come back: the certificate or the protocol does not fit, or the other side refuses ours.
_STAY = {
    "CERTIFICATE_VERIFY_FAILED", "HTTP_REQUEST", "RECORD_LAYER_FAILURE", "SSLV3_ALERT_BAD_CERTIFICATE",
    "SSLV3_ALERT_HANDSHAKE_FAILURE", "TLSV13_ALERT_CERTIFICATE_REQUIRED", "TLSV1_ALERT_INSUFFICIENT_SECURITY",
    "TLSV1_ALERT_PROTOCOL_VERSION", "TLSV1_ALERT_UNKNOWN_CA", "TLSV1_UNRECOGNIZED_NAME", "UNSUPPORTED_PROTOCOL",
    "WRONG_VERSION_NUMBER",
}  # fmt: skip


def stays(reason: str) -> bool:
    """Whether an error with OpenSSL's reason stays. Otherwise the connection broke, as when a server restarts."""
    return reason in _STAY
