"""What the two algorithms with a coefficient zeta share."""

from collections.abc import Collection
from typing import ClassVar

from sb3_cpp.deep.base import RegularizedDQN
from sb3_cpp.deep.caution import Caution


class CautiousDQN(RegularizedDQN):
    """DQN that lets a new policy in only as far as ``zeta``."""

    rules: ClassVar[Collection[str]] = ()
    """The names that ``zeta`` may have."""
    caution: Caution

    @property
    def zeta(self) -> float:
        """How far the new policy is let in at present."""
        return self.caution.zeta

    def _setup_model(self) -> None:
        # load(path, zeta=...) writes the argument beside the caution that was saved
        given = {
            name: vars(self).pop(name)
            for name in ("zeta", "rho1", "rho2", "r_max")
            if name in vars(self)
        }
        self.caution = self.caution.changed(self.rules, **given)
        super()._setup_model()
