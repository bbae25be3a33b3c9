"""A spread that is taken again of some sequences only."""

from dataclasses import asdict

import numpy as np
import pytest
import torch

from rlcorr_cli.core.ragged import Ragged
from rlcorr_cli.core.units import Units

LENGTHS = [1, 40, 3, 700, 1, 9, 256]
OFFSETS = np.concatenate([[0], np.cumsum(LENGTHS)])


@pytest.mark.parametrize("token_scope", [True, False])
@pytest.mark.parametrize("ends", [(0.5, 2.0), (None, 1.6), (0.9, None)])
def test_clamping_changes_only_sequences_beyond_the_bounds(
    ends: tuple[float | None, float | None], token_scope: bool
) -> None:
    units = Units(Ragged(OFFSETS, torch.device("cpu")), token_scope)
    x = torch.exp(torch.from_numpy(np.random.default_rng(5).standard_t(3, OFFSETS[-1] if token_scope else 7) * 0.6))
    plain = units.spread(x, 1.0)
    beyond = plain.beyond(ends)
    assert 0 < beyond.sum() < 7
    some, at = units.some(beyond)
    patched = plain.with_some(beyond, some.spread(x[at].clamp(*ends), 1.0))
    for name, column in asdict(units.spread(x.clamp(*ends), 1.0)).items():
        np.testing.assert_array_equal(getattr(patched, name), column)
