"""Does a drafter draft one place off? Some checkpoints do not say how their blocks are laid out."""

from __future__ import annotations

from dataclasses import astuple, dataclass

_BLOCKS = 16  # fewer tell nothing
_NEVER = 0.05  # of blocks: hardly any drafter that is read rightly is right so seldom
_OFTEN = 0.25  # of blocks: chance does not come near


@dataclass(frozen=True, slots=True)
class Shifts:
    """Counts over blocks of two tokens or more.

    Attributes:
        blocks: how many there were.
        right: those whose first token became text.
        early: those whose first token was wrong and was the text's second one.
        late: those whose first token was wrong and whose second one was the text's first.
    """

    blocks: int = 0
    right: int = 0
    early: int = 0
    late: int = 0

    def __add__(self, other: Shifts) -> Shifts:
        """Return the counts of both."""
        return Shifts(*(a + b for a, b in zip(astuple(self), astuple(other), strict=True)))

    def hint(self) -> str | None:
        """Return what seems to be wrong with the drafter's file; None if nothing does."""
        if self.blocks < _BLOCKS or self.right > _NEVER * self.blocks:
            return None
        shifted = max(self.early, self.late)
        if shifted < _OFTEN * self.blocks:
            return None
        early = self.early > self.late
        return (
            f"the first drafted token was right in {self.right} of {self.blocks} blocks, and one place "
            f"{'later' if early else 'earlier'} it would have been in {shifted}: the drafter's blocks seem to "
            "be laid out otherwise than its file says; set sample_from_anchor to "
            f"{'true' if early else 'false'} in the checkpoint's config.json and convert it again"
        )
