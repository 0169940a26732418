"""The attempts of a training on pods since its last checkpoint: their Job would repeat a hopeless one for days."""

from __future__ import annotations

import json
import time
from dataclasses import asdict, dataclass

from pydantic import TypeAdapter

from lipt.adapters.store import MissingObjectError, Store
from lipt.errors import RunError
from lipt.pods.notes import read_note
from lipt.runtime.artifact import CHECKPOINT, DIGEST_BYTES

#: The file beside the checkpoint. The last attempt removes it.
_ATTEMPTS = "attempts.json"
#: A training is hopeless after this many attempts from the same checkpoint over this many seconds. Nodes that are lost
#: one soon after the other do not make it hopeless. The clocks of their machines may differ. By minutes, this is
#: harmless; by hours, the training may end too soon, and continues from its checkpoint when it is run again.
_MOST, _WITHIN_S = 10, 4 * 3600


@dataclass
class _Noted:
    checkpoint: str
    """Digest of the checkpoint that they began with; empty: there was none."""
    attempts: int
    since: float
    """Seconds of `time.time`, when the first one began."""


_NOTED = TypeAdapter(_Noted)


def count_attempt(store: Store, ref: str) -> None:
    """Note that an attempt at the stage `ref` begins.

    Raises:
        IntegrityError: the file is damaged.
        RunError: the attempts before it have left no new checkpoint. The next attempt is the first again.
    """
    key, now, last = f"{ref}/{_ATTEMPTS}", time.time(), _last_checkpoint(store, ref)
    noted = read_note(store, key, _NOTED)
    if noted is None or noted.checkpoint != last:
        noted = _Noted(checkpoint=last, attempts=0, since=now)
    if noted.attempts >= _MOST and now - noted.since >= _WITHIN_S:
        store.delete(key)
        raise RunError(
            f"{noted.attempts} attempts in {(now - noted.since) / 3600:.0f} hours have left no new checkpoint",
            "the logs of its pods say how they ended. If they waited for each other, the network lets no pod reach "
            "another. If their nodes were taken away before the first checkpoint, lower train.checkpoint_s, or take "
            "nodes that stay. Then run again",
        )
    noted.attempts += 1
    store.write(key, json.dumps(asdict(noted)).encode(), kind="other")


def forget_attempts(store: Store, ref: str) -> None:
    """The training has ended."""
    store.delete(f"{ref}/{_ATTEMPTS}")


def _last_checkpoint(store: Store, ref: str) -> str:
    try:
        return store.read(f"{ref}/{CHECKPOINT}", kind="other", length=DIGEST_BYTES).hex()
    except MissingObjectError:
        return ""
