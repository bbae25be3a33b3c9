"""`rlcorr sweep`: one bound at every threshold, and the one that a target comes to."""

from rlcorr_cli.cli import comparing_options as c
from rlcorr_cli.cli import options as o
from rlcorr_cli.cli.option_groups import ComputingOptions, PlanOptions, ReadingOptions


def sweep(
    dumps: o.Dumps,
    *,
    read: ReadingOptions,
    plan: PlanOptions,
    compute: ComputingOptions,
    bound: c.FreeBound = None,
    side: c.SideName = None,
    target_keep: c.TargetKeep = None,
    target_ess: c.TargetEss = None,
    points: c.Points = 25,
    json: o.Json = False,
    output: c.SheetOutputs = None,
    quiet: o.Quiet = False,
    debug: o.Debug = False,
) -> None:
    """See what one bound does at every threshold; --rs without bounds, or --bound, says which."""
    from dataclasses import replace

    from rlcorr_cli import api
    from rlcorr_cli.cli import shared
    from rlcorr_cli.errors import UsageError
    from rlcorr_cli.show import print_result
    from rlcorr_cli.show.stdout import emit_json

    if (plan.is_high if bound == "high" else plan.is_low if bound == "low" else None) is not None:
        raise UsageError(f"--bound {bound} moves the bound that --is-{bound} sets.", "Leave one of the two out.")
    rejections = plan.rs or []
    free = [text for text in rejections if ":" not in text]
    fixed = replace(plan, rs=[text for text in rejections if text not in free] or None)
    result = api.sweep(
        dumps,
        fixed.chosen(),
        rs=free,
        bound=bound,
        side=side,
        target_keep=target_keep,
        target_ess=target_ess,
        points=points,
        output=output or (),
        watch=shared.watch(quiet),
        **read.arguments(),
        **compute.arguments(),
    )
    if json:
        emit_json(result.to_dict())
    else:
        print_result(result)
