"""A workspace: the artifacts and data sets below one location, found, read and marked as damaged."""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress

from pydantic import TypeAdapter, ValidationError

from lipt.adapters.store import MissingObjectError, Store, open_store
from lipt.errors import DamagedDataError, IntegrityError, UsageError
from lipt.ledger import Cost
from lipt.runtime.artifact import COST, DAMAGED, MARKER, Artifact, owner_of

_COST = TypeAdapter(Cost)


class Workspace:
    """Artifacts and data sets below one location."""

    def __init__(self, location: str | Store) -> None:
        """
        Args:
            location: an address, or a store that is open already.
        """
        self.store = open_store(location) if isinstance(location, str) else location
        self.reused: set[str] = set()
        """References found finished that this process did not make."""
        self._made: set[str] = set()
        self._digests: dict[str, str] = {}
        """Reference -> `contents` of each artifact that was looked up or made."""

    def find(self, ref: str) -> Artifact | None:
        """The finished artifact; None if there is none, or if it must be made again.

        It must be made again if it was found damaged, if a file is missing or has another size, or if one of its
        inputs was made again and has changed.
        """
        try:
            found = self.get(ref)
        except (MissingObjectError, IntegrityError):
            return None
        return found if self._is_whole(found) and self._is_current(found) else None

    def _is_whole(self, artifact: Artifact) -> bool:
        sizes = self.store.sizes(f"{artifact.ref}/")

        def size(name: str) -> int | None:
            if name.endswith("/"):
                return sum(size for key, size in sizes.items() if key.startswith(f"{artifact.ref}/{name}"))
            return sizes.get(f"{artifact.ref}/{name}")

        return (
            f"{artifact.ref}/{DAMAGED}" not in sizes
            and f"{artifact.ref}/{COST}" in sizes
            and all(size(name) == file.num_bytes for name, file in artifact.files.items())
        )

    def _is_current(self, artifact: Artifact) -> bool:
        return all(
            self._digest(ref) in (digest, None) for ref, digest in zip(artifact.inputs, artifact.made_from, strict=True)
        )

    def _digest(self, ref: str) -> str | None:
        """`contents` of an artifact. None if it is gone: artifacts made from it stay valid."""
        if ref not in self._digests:
            try:
                self.get(ref)
            except (MissingObjectError, IntegrityError):
                return None
        return self._digests[ref]

    def get(self, ref: str) -> Artifact:
        """The finished artifact `STAGE/KEY`.

        Raises:
            MissingObjectError: there is no such finished artifact.
            IntegrityError: it is damaged, or another artifact lies there.
            UsageError: `ref` is not of the form STAGE/KEY.
        """
        if ref.count("/") != 1:
            raise UsageError(f"{ref!r} is not a reference", "it reads STAGE/KEY, as `lipt stage` prints it")
        origin = f"{self.store.uri}/{ref}/{MARKER}"
        found = Artifact.from_json(self.store.read(f"{ref}/{MARKER}", kind="other"), origin=origin)
        if found.ref != ref:
            raise IntegrityError(f"{origin} belongs to {found.ref}", "run again: its stage is repeated")
        self._digests[ref] = found.contents
        return found

    @contextmanager
    def repairing(self, inputs: Iterable[Artifact]) -> Iterator[None]:
        """If a reader finds damaged files, mark the data set among these artifacts as damaged.

        A data set that lies elsewhere is the user's: that error goes on as it is.
        """
        try:
            yield
        except DamagedDataError as error:
            for artifact in inputs:
                if owner := owner_of(artifact):
                    self._mark(owner, error.message)
                    raise IntegrityError(error.message, f"run again: {artifact.stage} is repeated") from None
            raise

    def note(self, artifact: Artifact, *, made: bool) -> None:
        """Remember whether this process made an artifact or found it."""
        self._digests[artifact.ref] = artifact.contents
        if made:
            self._made.add(artifact.ref)
        elif artifact.ref not in self._made:
            self.reused.add(artifact.ref)

    def cost(self, artifact: Artifact) -> Cost:
        """The cost of making the artifact.

        Raises:
            IntegrityError: the cost file is damaged or missing. The artifact is marked, so its stage will run again.
        """
        key = f"{artifact.ref}/{COST}"
        try:
            return _COST.validate_json(self.store.read(key, kind="other"))
        except MissingObjectError:
            problem = "is missing"
        except ValidationError as error:
            problem = f"is damaged: {error.errors(include_url=False)[0]['msg']}"
        raise self.damaged(artifact, COST, problem)

    def damaged(self, artifact: Artifact, name: str, problem: str) -> IntegrityError:
        """Mark the artifact, so that the next run makes it again. Returns the error to raise.

        It is not marked if another process has made it again since this one looked it up, or does so now.
        """
        where = f"{self.store.uri}/{artifact.ref}"
        with suppress(MissingObjectError, IntegrityError):  # without a valid marker it counts as unfinished anyway
            if self.get(artifact.ref).digest != artifact.digest:
                return IntegrityError(f"{where} has changed: another process has made it again", "run again")
            self._mark(artifact.ref, name)
        return IntegrityError(f"{where}/{name} {problem}", f"run again: {artifact.stage} is repeated")

    def _mark(self, ref: str, why: str) -> None:
        self.store.write(f"{ref}/{DAMAGED}", why.encode(), kind="other")
