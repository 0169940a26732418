"""A tree of image files: which folders are splits and classes, and the files of each class."""

import errno
import os
import stat
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path

from lipt.data.sources.names import IMAGE_SUFFIXES, TEST_NAMES, TRAIN_NAMES, as_one_spelling, check_name, split_word
from lipt.errors import RunError, UsageError, printable

_LONGEST_SUFFIX = 12  # of the suffixes that are counted separately
#: Thumbnails on a Synology server; what macOS adds to an archive; what Windows and Linux keep at the root of a drive.
_MADE_BY_SYSTEMS = ("@eaDir", "__MACOSX", "$RECYCLE.BIN", "System Volume Information", "lost+found")


def find_splits(folder: Path, left_out: Counter[str]) -> dict[str, Path]:
    """The folder of each split, `train` and possibly `test`; images of other folders are counted in `left_out`.

    `FOLDER/train` is a split if it contains folders of images. If other folders of images lie beside it, a test split
    with the same classes must exist too. ImageNet's unlabelled `test` has no class folders; its `val` has.

    Raises:
        UsageError: a folder could be a split or a class, or a split has no class folders.
    """
    names = visible_folders(folder)
    if not any(name.lower() in (*TRAIN_NAMES, *TEST_NAMES) for name in names):
        _check_unsplit(folder, names)
        return {"train": folder}
    train = [name for name in names if name.lower() in TRAIN_NAMES]
    tests = sorted((name for name in names if name.lower() in TEST_NAMES), key=_rank)
    others = [name for name in names if name not in (*train, *tests) and has_images(folder / name)]
    splits = [name for name in (*train, *tests) if any(image_folders(folder / name))]
    if not splits and (others or not train):  # classes with the names of splits
        _check_unsplit(folder, names)
        return {"train": folder}
    if len(train) != 1 and splits:
        raise UsageError(
            f"{folder}: {splits[0]}/ holds folders of images, as a split does, but {_which(train)}",
            "put the classes of the training data into train/; if it is a class, rename it",
        )
    classes = _spellings(folder / train[0])
    labelled = [name for name in tests if classes & _spellings(folder / name)]
    if others and not (labelled and train[0] in splits):
        raise UsageError(
            f"{folder}: {splits[0]}/ holds folders of images, and beside it is {others[0]}/: is it a split or a class?",
            f"if it is a split, move {', '.join(others)} elsewhere; if it is a class, rename it",
        )
    if not classes or not tests:
        return {"train": folder / train[0]}
    if not labelled:
        remedy = "sort the images of one into folders, one per class, named as in train/; or remove all of them"
        there = " and ".join(f"{name}/" for name in tests)
        raise UsageError(f"{folder}: no folder in {there} is called like a class of {train[0]}/", remedy)
    _count_unused(folder, others, "", left_out)
    _count_unused(
        folder, [name for name in tests if name != labelled[0]], f" ({labelled[0]}/ is the test split)", left_out
    )
    return {"train": folder / train[0], "test": folder / labelled[0]}


def _check_unsplit(folder: Path, names: list[str]) -> None:
    """Check that the folders are classes, although none is a split: `train2017` and `val2017` are splits by a word.

    A single such name proves nothing: a class may be called `train`, a folder in it `test`. So all have to agree.

    Raises:
        UsageError: the folders, or those in each of them, seem to be splits.
    """
    like = [name for name in names if split_word(name)]
    words = {split_word(name) for name in like}
    if len(words) > 1 and not any(has_images(folder / name) for name in names if name not in like):
        raise UsageError(
            f"{folder}: all folders are called like splits, as {like[0]}/ and {like[1]}/: are they splits or classes?",
            "if they are splits, call them train/ and test/, with one folder per class in each; "
            "if they are classes, rename them",
        )
    inside: dict[str, str] = {}  # word -> the first folder with it
    for name in names:
        found = {word: f"{name}/{inner}/" for inner in visible_folders(folder / name) if (word := split_word(inner))}
        if not found:
            return
        inside = found | inside
    if len(names) > 1 and len(inside) > 1:
        one, other, *_ = sorted(inside.values())
        raise UsageError(
            f"{folder}: all class folders hold folders called like splits, as {one} and {other}",
            "if they are splits, put the classes into them: train/CLASS/ and test/CLASS/; else rename them",
        )


class ClassFiles:
    """Finds the image files of each class, in a fixed order; `left_out` counts all other files by kind.

    A link to a parent folder, or to a folder that the class already contains, is left out.

    Args:
        top: the folder of the source; paths are relative to it.
        roots: the folders that contain the class folders.
    """

    def __init__(self, top: Path, roots: Iterable[Path], left_out: Counter[str]) -> None:
        self._top = top
        self._left_out = left_out
        places = {os.path.realpath(path) for path in (top, *roots)}
        self._owners = dict.fromkeys(ancestors(top) | places, "")  # real path -> class folder
        for place in sorted(places):
            for name in os.listdir(place):
                if is_image(name):
                    left_out["images outside of class folders"] += 1
                elif is_hidden(name):
                    self._pass_over(os.path.join(place, name), file_kind="")

    def of(self, folder: Path) -> Iterator[tuple[str, int, int]]:
        """Relative path, bytes and time of modification (ns) of each image file in the class folder `folder`.

        Raises:
            RunError: a link is broken, or a name is not UTF-8.
            UsageError: a folder belongs to two classes or splits.
        """
        pending = [str(folder)]
        while pending:
            current = pending.pop()
            if not self._is_new(current, str(folder)):
                continue
            folders: list[str] = []
            inside = os.path.relpath(current, self._top)  # takes as long as reading a small file
            for name in sorted(os.listdir(current)):
                path = os.path.join(current, name)
                if is_hidden(name):
                    self._pass_over(path, file_kind="hidden files")
                elif stat.S_ISDIR((found := existing(path)).st_mode):
                    folders.append(path)
                elif kind := _kind(name, found):
                    self._left_out[kind] += 1
                else:
                    relative = os.path.normpath(os.path.join(inside, name))
                    check_name(relative, str(self._top))
                    yield relative, found.st_size, found.st_mtime_ns
            pending.extend(reversed(folders))

    def _pass_over(self, hidden: str, *, file_kind: str) -> None:
        if os.path.isdir(hidden):
            with suppress(PermissionError):  # only root may look into lost+found, which every ext4 volume has
                if count := sum(1 for _ in images_below(Path(hidden))):
                    self._left_out["images in hidden folders"] += count
        elif file_kind:
            self._left_out[file_kind] += 1

    def _is_new(self, current: str, owner: str) -> bool:
        real = os.path.realpath(current)
        if real not in self._owners:
            self._owners[real] = owner
            return True
        if self._owners[real] not in ("", owner):
            raise UsageError(
                f"{owner} and {self._owners[real]} share the folder {real}",
                "remove one of the links: classes and splits must not share images",
            )
        self._left_out["links to folders above or read before"] += 1
        return False


def _kind(name: str, found: os.stat_result) -> str:
    """The kind under which a left-out file is counted; empty for an image."""
    if is_image(name):
        return "" if stat.S_ISREG(found.st_mode) else "non-regular files"
    suffix = printable(os.path.splitext(name)[1].lower())
    return f"{suffix} files" if 1 < len(suffix) <= _LONGEST_SUFFIX else "files without a suffix"


def loose_files(folder: Path) -> Counter[str]:
    """The visible files that lie in a folder itself, by kind; it must have no visible folders."""
    found = Counter[str]()
    for name in filter(lambda name: not is_hidden(name), os.listdir(folder)):
        found[_kind(name, existing(os.path.join(folder, name))) or "images"] += 1
    return found


def _count_unused(folder: Path, names: list[str], why: str, left_out: Counter[str]) -> None:
    for name in names:
        if count := sum(1 for _ in images_below(folder / name)):
            left_out[f"images in {name}/{why}"] = count


def visible_folders(folder: Path) -> list[str]:
    """Names of the folders in a folder, sorted; without hidden folders and those that systems add.

    Raises:
        RunError: a link is broken: it may have led to a folder.
    """
    names = (name for name in sorted(os.listdir(folder)) if not is_hidden(name))
    return [name for name in names if stat.S_ISDIR(existing(os.path.join(folder, name)).st_mode)]


def existing(path: str) -> os.stat_result:
    """`os.stat` of a path, or of the target of a link.

    Raises:
        RunError: a link is broken, or leads to itself.
    """
    try:
        return os.stat(path)
    except OSError as error:
        if error.errno not in (errno.ENOENT, errno.ELOOP) or not os.path.islink(path):
            raise
        remedy = "restore its target, or remove the link"
        raise RunError(f"{path}: a broken link to {os.readlink(path)}", remedy) from error


def is_hidden(name: str) -> bool:
    return name.startswith(".") or name in _MADE_BY_SYSTEMS


def is_image(name: str) -> bool:
    return name.lower().endswith(IMAGE_SUFFIXES) and not is_hidden(name)


def images_below(folder: Path) -> Iterator[str]:
    """Paths of files with an image suffix at any depth. Each folder is read once, even if several links lead to it."""
    seen = ancestors(folder)
    for current, folders, names in os.walk(folder, onerror=reraise, followlinks=True):
        real = os.path.realpath(current)
        if real in seen:
            folders.clear()
            continue
        seen.add(real)
        yield from (os.path.join(current, name) for name in names if is_image(name))


def ancestors(folder: Path) -> set[str]:
    """The parent folders of `folder`: a link to one of them would make a loop."""
    return {str(parent) for parent in folder.resolve().parents}


def has_images(folder: Path) -> bool:
    return next(images_below(folder), None) is not None


def image_folders(folder: Path) -> Iterator[str]:
    """Names of the visible folders in a folder that hold images."""
    return (name for name in visible_folders(folder) if has_images(folder / name))


def reraise(error: OSError) -> None:
    """Raise, so that a folder that cannot be listed is not taken for an empty one."""
    raise error


def _spellings(folder: Path) -> set[str]:
    """The visible folders in a folder; two spellings of one class must not look like two classes here."""
    return {as_one_spelling(name) for name in visible_folders(folder)}


def _rank(name: str) -> tuple[int, str]:
    return TEST_NAMES.index(name.lower()), name


def _which(train: list[str]) -> str:
    return f"there are {' and '.join(f'{name}/' for name in train)}" if train else "there is no train/"
