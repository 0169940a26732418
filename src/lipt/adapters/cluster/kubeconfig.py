"""The credentials of a person, from the kubeconfig."""

import logging

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
        config.load_kube_config()
    except (ConfigException, OSError) as error:
        raise _none(" ".join(str(error).split())) from None
    except Exception as error:  # the client does not check the file, so a damaged one raises anything
        raise _none(f"the kubeconfig is damaged: {in_one_line(error)}") from None
    finally:
        root.removeHandler(errors)
    if errors.messages:
        raise _none("; ".join(errors.messages))


def _none(why: str) -> UsageError:
    return UsageError(f"no Kubernetes credentials: {why}", "set KUBECONFIG, or log in")
