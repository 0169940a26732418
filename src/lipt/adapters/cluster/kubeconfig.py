"""The credentials of a person, from the kubeconfig, and the proxy on the way to the API server."""

import logging
import os
from typing import Any
from urllib.parse import unquote, urlsplit
from urllib.request import getproxies, getproxies_environment, proxy_bypass

from urllib3.util import make_headers

from lipt.errors import UsageError, in_one_line


class _Errors(logging.Handler):
    """Collects what is logged as an error."""

    def __init__(self) -> None:
        super().__init__(logging.ERROR)
        self.messages: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.messages.append(" ".join(record.getMessage().split()))


def load() -> None:
    """Make the kubeconfig's credentials the default of the client library.

    Raises:
        UsageError: there are none, or the program that should get them has failed.
    """
    from kubernetes import config
    from kubernetes.config.config_exception import ConfigException

    errors, root = _Errors(), logging.getLogger()
    root.addHandler(errors)  # the client only logs that a program failed, and goes on without credentials
    try:
        config.load_kube_config(_location())
    except (ConfigException, OSError) as error:
        raise _none(" ".join(str(error).split())) from None
    except Exception as error:  # the client does not check the file, so a damaged one raises anything
        raise _none(f"the kubeconfig is damaged: {in_one_line(error)}") from None
    finally:
        root.removeHandler(errors)
    if errors.messages:
        raise _none("; ".join(errors.messages))
    _refuse_impersonation()


def is_there() -> bool:
    """Whether the user has a kubeconfig: KUBECONFIG names one, or it lies in its usual place."""
    return bool(os.environ.get("KUBECONFIG")) or os.path.exists(os.path.expanduser("~/.kube/config"))


def _location() -> str:
    """Where the kubeconfig is. An empty KUBECONFIG counts as unset, as for kubectl."""
    from kubernetes.config import kube_config

    return kube_config.KUBE_CONFIG_DEFAULT_LOCATION or "~/.kube/config"


def use_proxy(settings: Any) -> None:
    """Set the proxy that kubectl would use: `proxy-url` in the kubeconfig, else HTTPS_PROXY without NO_PROXY. The
    client library reads neither.

    Args:
        settings: a `Configuration` of the client library, with the credentials of the kubeconfig.

    Raises:
        UsageError: the client library does not know this kind of proxy.
    """
    merged, context = _context()
    own = merged["clusters"].get_with_name(context["cluster"])["cluster"].safe_get("proxy-url")
    proxy = own or getproxies().get(urlsplit(settings.host).scheme)
    settings.proxy = proxy if not proxy or "://" in proxy else f"http://{proxy}"  # as kubectl and curl
    excepted = getproxies_environment().get("no", "")
    settings.no_proxy = "" if own else excepted if excepted == "*" else f"{excepted},{_LOOPBACK}"
    found = urlsplit(settings.proxy or "http:")
    if found.username:
        login = f"{unquote(found.username)}:{unquote(found.password or '')}"
        settings.proxy_headers = make_headers(proxy_basic_auth=login)
    kind = found.scheme
    if kind not in ("http", "https"):
        # The message omits the address, which may contain a password.
        raise UsageError(
            f"lipt cannot reach the cluster through a proxy of kind {kind}", "use an http:// proxy, or a tunnel"
        )


def _refuse_impersonation() -> None:
    """The client library ignores `as` in the kubeconfig, and would act with all rights of the user.

    Raises:
        UsageError: the user of the kubeconfig acts as another one.
    """
    merged, context = _context()
    named = merged["users"].get_with_name(context.safe_get("user"), safe=True) if merged.safe_get("users") else None
    own = named.safe_get("user") if named else None
    if other := (own or {}).get("as"):
        raise UsageError(
            f"the kubeconfig acts as another user (as: {other}), which lipt cannot do",
            "log in as that user, or use a kubeconfig without `as`",
        )


def _context() -> tuple[Any, Any]:
    """The merged kubeconfig, and its current context."""
    from kubernetes.config import kube_config

    merged = kube_config.KubeConfigMerger(_location()).config
    return merged, merged["contexts"].get_with_name(merged["current-context"])["context"]


_LOOPBACK = "localhost,127.0.0.1,::1"


def proxy_to(address: str) -> str | None:
    """The proxy that the environment names for an address (HTTPS_PROXY, HTTP_PROXY, NO_PROXY); None: none."""
    where = urlsplit(address)
    host = where.hostname or ""
    return None if host in _LOOPBACK.split(",") or proxy_bypass(host) else getproxies().get(where.scheme)


def _none(why: str) -> UsageError:
    return UsageError(f"no Kubernetes credentials: {why}", "set KUBECONFIG, or log in")
