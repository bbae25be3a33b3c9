"""`rlcorr presets`: the named plans and their records."""

from rlcorr_cli.cli import options as o


def presets(json: o.Json = False, debug: o.Debug = False) -> None:
    """List the presets with their records, and when to take each."""
    if json:
        import json as encoder

        from rlcorr_cli.present.sink import emit
        from rlcorr_cli.presets import PRESETS

        rows = [
            {**p.plan.to_dict(), "aliases": p.aliases, "when": p.when, "source": p.source} for p in PRESETS.values()
        ]
        emit(encoder.dumps(rows, indent=2) + "\n")
        return
    from rlcorr_cli.present.listing import print_presets

    print_presets()
