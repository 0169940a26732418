"""Classes of which a selection has no sample."""

from collections.abc import Sequence

#: Classes that a remark names.
_NAMED = 5


def remark_on_lost(
    sizes_C: Sequence[int], taken_C: Sequence[int], picked: int, names_C: Sequence[str] | None = None
) -> str:
    """A sentence on the classes that have candidates but no selected sample; empty if there is no such class.

    Args:
        sizes_C: candidates of each class.
        taken_C: selected samples of each class, initial ones included.
        picked: number of samples that the selection has picked.
        names_C: of the classes; None: their numbers.
    """
    lost = [label for label, (size, taken) in enumerate(zip(sizes_C, taken_C, strict=True)) if size and not taken]
    if not lost:
        return ""
    named = ", ".join(names_C[label] if names_C else str(label) for label in lost[:_NAMED])
    more = f" and {len(lost) - _NAMED} more" if len(lost) > _NAMED else ""
    share = f"{len(lost)} of {sum(map(bool, sizes_C))} classes get none of the {picked} samples"
    return f"{share}: {'class' if len(lost) == 1 else 'classes'} {named}{more}; raise the budget to train on them"
