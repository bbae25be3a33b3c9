"""A repetition penalty in one engine: tokens that stood in the row before are moved, others are not."""

from rlcorr_cli.quality.diagnosis.case import Case
from rlcorr_cli.quality.diagnosis.causes import CAUSES
from rlcorr_cli.quality.diagnosis.diagnosis import CauseFinding
from rlcorr_cli.quality.diagnosis.wording import figures, percent

MIN_ETA2, MIN_DIFFERENCE = 0.2, 0.1


def repetition_penalty(case: Case) -> CauseFinding | None:
    """Needs token ids."""
    repetition = case.repetition
    if repetition is None or repetition.eta2 < MIN_ETA2 or abs(repetition.difference) < MIN_DIFFERENCE:
        return None
    sides = (case.context.rollout, case.context.train)
    penalised, free = sides if repetition.difference > 0 else sides[::-1]
    return CauseFinding(
        cause="repetition_penalty",
        share=repetition.eta2 * case.features.share(case.features.body_gap),
        parameters={"difference": repetition.difference, "side": penalised},
        headline=f"a repetition penalty in {penalised} that {free} has not",
        evidence=(
            f"Tokens that stood in their row before are {figures(abs(repetition.difference))} lower in log-odds in "
            f"{penalised} than new ones of the same surprise; that is {percent(repetition.eta2)} of the variance.",
        ),
        advice=CAUSES["repetition_penalty"].advice,
    )
