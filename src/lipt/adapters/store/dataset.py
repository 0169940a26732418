"""The files of a data set, as the functions that `lipt.data.chunks` needs."""

from lipt.adapters.store.base import Kind, MissingObjectError, Store


class DatasetFiles:
    """`read`, `put`, `get` and `delete` a data set's files. Chunks (`.tar`, thumbnails `.bin`) count as data, the rest
    as other.
    """

    def __init__(self, store: Store) -> None:
        self.store = store

    def read(self, file: str, start: int, length: int | None) -> bytes:
        return self.store.read(file, kind=_kind(file), start=start, length=length)

    def put(self, file: str, data: bytes) -> None:
        self.store.write(file, data, kind=_kind(file))

    def get(self, file: str) -> bytes | None:
        """The whole file, or None if there is none."""
        try:
            return self.store.read(file, kind=_kind(file))
        except MissingObjectError:
            return None

    def delete(self, file: str) -> None:
        self.store.delete(file)


def _kind(file: str) -> Kind:
    return "data" if file.endswith((".tar", ".bin")) else "other"
