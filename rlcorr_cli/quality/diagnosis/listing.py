"""The features of a diagnosis by name, as its JSON form lists them."""

from rlcorr_cli.quality.diagnosis.case import Case


def listed_features(case: Case) -> dict[str, float | None]:
    """Every number that a rule looks at; None where a dump has too little for it."""
    f = case.features
    return {
        "curve": f.curve,
        "mean_rho": 1 + f.forward,
        "mean_rho_error": f.forward_error,
        "mean_inverse_rho": 1 + f.inverse,
        "mean_inverse_rho_error": f.inverse_error,
        "positive_fraction": f.positive,
        **_spread(case),
        **_lines(case),
        "lean": f.lean.tau,
        "lean_z": f.lean.z_tau,
        "advantage_correlation": f.lean.correlation if f.lean.n else None,
        "advantage_z": f.lean.z_correlation if f.lean.n else None,
        **_step(case),
        **_vocabulary(case),
        "odd_rows": float(case.totals.n_odd),
    }


def _spread(case: Case) -> dict[str, float | None]:
    spread = case.features.spread
    names = ("core", "tail", "n_far", "below", "fan")
    return {f"d_{name}": None if spread is None else float(getattr(spread, name)) for name in names}


def _lines(case: Case) -> dict[str, float | None]:
    listed: dict[str, float | None] = {}
    for name, line in case.features.lines.items():
        known = line.n >= 3
        listed |= {
            f"line_{name}_{key}": getattr(line, key) if known else None for key in ("slope", "error", "r2", "match")
        }
    return listed


def _step(case: Case) -> dict[str, float | None]:
    step = case.step
    names = ("cut", "bound", "errors", "judged", "least_left")
    return {f"step_{name}": None if step is None else float(getattr(step, name)) for name in names}


def _vocabulary(case: Case) -> dict[str, float | None]:
    by_token, repeated = case.by_token, case.repetition
    return {
        "by_token": None if by_token is None else by_token.omega2,
        "by_token_error": None if by_token is None else by_token.error,
        "by_token_least": None if by_token is None else by_token.least,
        "repeated_difference": None if repeated is None else repeated.difference,
        "repeated_share": None if repeated is None else repeated.eta2,
    }
