"""A repetition penalty in one engine: tokens that stood in the row before are moved, others are not."""

from rlcorr_cli.quality.diagnosis.case import Case
from rlcorr_cli.quality.diagnosis.causes import CAUSES
from rlcorr_cli.quality.diagnosis.diagnosis import CauseFinding
from rlcorr_cli.quality.diagnosis.wording import figures, percent

MIN_ETA2, MIN_DIFFERENCE = 0.2, 0.1


def repetition_penalty(case: Case) -> CauseFinding | None:
    """Needs token ids."""
    found = case.repetition
    if found is None or found.eta2 < MIN_ETA2 or abs(found.difference) < MIN_DIFFERENCE:
        return None
    sides = (case.context.rollout, case.context.train)
    penalised, free = sides if found.difference > 0 else sides[::-1]
    return CauseFinding(
        cause="repetition_penalty",
        share=found.eta2 * case.features.share(case.features.body_gap),
        parameters={"difference": found.difference, "side": penalised},
        headline=f"a repetition penalty in {penalised} that {free} has not",
        evidence=(
            f"Tokens that stood in their row before are {figures(abs(found.difference))} lower in log-odds in "
            f"{penalised} than new ones of the same surprise; that is {percent(found.eta2)} of the variance.",
        ),
        advice=CAUSES["repetition_penalty"].advice,
    )
